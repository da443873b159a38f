// Package cli is the frame of a command line: the table of commands and its
// parser, the flags that every command takes, output as text, JSON or CSV,
// progress, errors and exit codes, help, and the document made from the table.
//
// A program calls Run with its table. A command gets a Call, prints by Call.Rows
// and Call.Object, and returns an error: one of WithCode and Usagef says how the
// process ends, of others their cause decides.
package cli
