//go:build !linux

package main

// raiseOpenFiles leaves it to the Go runtime, which raises the limit at start.
func raiseOpenFiles() (uint64, error) { return 0, nil }

// fileSystem is not known.
func fileSystem(string) string { return "" }

// checkWritable leaves it to the first write.
func checkWritable(string) error { return nil }
