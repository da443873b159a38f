package bench

import "time"

// Usage is what a process has used since it started.
type Usage struct {
	CPU     time.Duration // user and system time of all its threads, ended ones included
	RSSPeak int64         // largest resident set so far, bytes
}

// Calls counts the read- and write-like system calls of a process, those that found
// nothing to do included. Sockets and files count alike; sendfile counts as neither.
type Calls struct {
	Reads  int64
	Writes int64
}
