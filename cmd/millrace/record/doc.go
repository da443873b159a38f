// Package record writes records for people and programs: by a format text, or
// as JSON.
package record
