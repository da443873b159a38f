// Package inspect reads the files of a data directory without a broker: Dump
// explains one file, Verify checks all of them. Neither changes what is stored.
package inspect
