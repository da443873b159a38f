// Command millrace is the broker, its command line and its bench in one
// program. commands.go lists the verbs; each verb has a file of its own.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// world is what a command sees of the process around it; tests make their own.
type world struct {
	env            []string // as os.Environ returns
	stdin          io.Reader
	stdout, stderr io.Writer
	terminal       bool // stderr is one: progress may rewrite its line
	now            func() time.Time
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal ends the command by its context. The next one ends the
	// process, unless the command listens to signals itself.
	context.AfterFunc(ctx, stop)
	code := run(ctx, commands, os.Args[1:], world{
		env: os.Environ(), stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		terminal: isScreen(os.Stderr), now: time.Now,
	})
	stop()
	os.Exit(int(code))
}
