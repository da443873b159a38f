package cli

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/millrace-mq/millrace/client"
)

// World is what a command sees of the process around it; tests make their own.
type World struct {
	Env            []string // as os.Environ returns
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Terminal       bool // stderr is one: progress may rewrite its line
	Now            func() time.Time
}

// Getenv returns a variable of the command's environment; the last one counts.
func (w *World) Getenv(name, otherwise string) string {
	for _, line := range slices.Backward(w.Env) {
		if value, ok := strings.CutPrefix(line, name+"="); ok && value != "" {
			return value
		}
	}
	return otherwise
}

// Call is one run of a command: the process around it, what stood on its
// command line, and ways to print.
type Call struct {
	World
	Commands []Command // the whole table
	Args     []string  // what is no flag

	// the global flags; the first two only of commands that ask a broker
	Addr     string        // of the broker, host:port
	Timeout  time.Duration // longest wait for an answer of the broker; 0 = none
	Output   OutputForm    // empty = text
	Quiet    bool          // no notices, no progress
	progress progressMode
}

const defaultTimeout = 10 * time.Second

// globals registers the flags that every command takes.
func (c *Call) globals(fs *flag.FlagSet) {
	fs.Var(&c.Output, "output", "output `FORM`: text, json or csv")
	Alias(fs, "o", "output")
	fs.BoolVar(&c.Quiet, "quiet", false, "no notices and no progress on stderr")
	Alias(fs, "q", "quiet")
	fs.Var(&c.progress, "progress", "progress on stderr, `MODE`: auto, never or json")
}

// brokerFlags registers the flags of commands that ask a broker.
func (c *Call) brokerFlags(fs *flag.FlagSet) {
	fs.StringVar(&c.Addr, "addr", c.Getenv("MILLRACE_ADDR", client.DefaultAddr), "address of the broker, `HOST:PORT` (environment: MILLRACE_ADDR)")
	Alias(fs, "a", "addr")
	DurationVar(fs, &c.Timeout, "timeout", defaultTimeout, "longest wait for an answer of the broker, `DURATION`; 0 = none")
}

// Deadline bounds ctx by --timeout.
func (c *Call) Deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.Timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, c.Timeout)
}

// Forever stands for a bound that --timeout 0 takes away.
const Forever = 100 * 365 * 24 * time.Hour

// Patience is --timeout where 0 is not allowed.
func (c *Call) Patience() time.Duration {
	if c.Timeout == 0 {
		return Forever
	}
	return c.Timeout
}

// Notice prints a line for people on stderr, unless -q.
func (c *Call) Notice(format string, args ...any) {
	if !c.Quiet {
		fmt.Fprintf(c.Stderr, format+"\n", args...)
	}
}
