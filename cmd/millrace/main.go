// Command millrace is the broker, its command line and its bench in one
// program. commands.go lists the verbs; each verb has a file of its own.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/millrace-mq/millrace/cmd/millrace/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal ends the command by its context. The next one ends the
	// process, unless the command listens to signals itself.
	context.AfterFunc(ctx, stop)
	code := cli.Run(ctx, commands, os.Args[1:], cli.World{
		Env: os.Environ(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Terminal: cli.IsTerminal(os.Stderr), Now: time.Now,
	})
	stop()
	os.Exit(int(code))
}
