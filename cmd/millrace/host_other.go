//go:build !linux

package main

import "os"

// raiseOpenFiles leaves it to the Go runtime, which raises the limit at start.
func raiseOpenFiles() (uint64, error) { return 0, nil }

// fileSystem is not known.
func fileSystem(string) string { return "" }

// checkWritable leaves it to the first write.
func checkWritable(string) error { return nil }

// isDevice tells whether f looks like a terminal.
func isDevice(f *os.File) bool { return isTerminal(f) }

// readable lets the read itself wait.
func readable(*os.File, int) (bool, error) { return true, nil }
