package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/millrace-mq/millrace/broker/config"
)

// command is one row of the command table.
type command struct {
	name             string // one word, or group and verb
	args             string // usage of the positional arguments
	minArgs, maxArgs int    // maxArgs -1 = any number
	summary          string // one line, without a full stop
	help             string // paragraphs for --help and the documents
	hidden           bool   // not in help and documents
	setup            func(fs *flag.FlagSet) runFunc
}

// runFunc does the work of a command once flags and arguments are read.
type runFunc func(ctx context.Context, c *call) error

// call is one run of a command.
type call struct {
	world
	commands []command // the whole table
	args     []string  // what is no flag
	addr     string    // of the broker, host:port
	timeout  time.Duration
	output   outputForm
	quiet    bool // no notices, no progress
	progress progressMode
}

const (
	defaultAddr    = "127.0.0.1:7654"
	defaultTimeout = 10 * time.Second
)

// globals registers the flags that every command takes.
func (c *call) globals(fs *flag.FlagSet) {
	fs.StringVar(&c.addr, "addr", c.getenv("MILLRACE_ADDR", defaultAddr), "address of the broker, `HOST:PORT` (environment: MILLRACE_ADDR)")
	alias(fs, "a", "addr")
	fs.Var(&c.output, "output", "output `FORM`: text, json or csv")
	alias(fs, "o", "output")
	fs.BoolVar(&c.quiet, "quiet", false, "no notices and no progress on stderr")
	alias(fs, "q", "quiet")
	durationVar(fs, &c.timeout, "timeout", defaultTimeout, "longest wait for an answer of the broker, `DURATION`; 0 = none")
	fs.Var(&c.progress, "progress", "progress on stderr, `MODE`: auto, never or json")
}

// getenv returns a variable of the command's environment; the last one counts.
func (w *world) getenv(name, otherwise string) string {
	for _, line := range slices.Backward(w.env) {
		if value, ok := strings.CutPrefix(line, name+"="); ok && value != "" {
			return value
		}
	}
	return otherwise
}

// deadline bounds ctx by --timeout.
func (c *call) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, c.timeout)
}

// notice prints a line for people on stderr, unless -q.
func (c *call) notice(format string, args ...any) {
	if !c.quiet {
		fmt.Fprintf(c.stderr, format+"\n", args...)
	}
}

// run finds the command of args, runs it and returns the exit code.
func run(ctx context.Context, table []command, args []string, w world) exitCode {
	c := &call{world: w, commands: table}
	err := c.dispatch(ctx, args)
	if err != nil {
		printError(w.stderr, err)
	}
	return codeOf(err)
}

func (c *call) dispatch(ctx context.Context, args []string) error {
	cmd, rest, err := c.find(args)
	if err != nil {
		return err
	}
	fs := newFlagSet(cmd.name)
	c.globals(fs)
	work := cmd.setup(fs)
	c.args, err = parseInterspersed(fs, rest)
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, _ = parseInterspersed(fs, slices.DeleteFunc(rest, isHelpFlag)) // help is the answer in any case
		return c.printHelp(cmd)
	case err != nil:
		return usagef("%s: %w", cmd.name, err)
	case len(c.args) < cmd.minArgs:
		return usagef("%s: %s expected, got %s; usage: millrace %s [flags] %s",
			cmd.name, atLeast(cmd), plural(len(c.args), "argument"), cmd.name, cmd.args)
	case cmd.maxArgs >= 0 && len(c.args) > cmd.maxArgs:
		return usagef("%s: unexpected argument %q; usage: millrace %s [flags] %s", cmd.name, c.args[cmd.maxArgs], cmd.name, cmd.args)
	}
	return work(ctx, c)
}

func atLeast(cmd command) string {
	if cmd.minArgs == cmd.maxArgs {
		return plural(cmd.minArgs, "argument")
	}
	return "at least " + plural(cmd.minArgs, "argument")
}

// find returns the command that args name and args without its name. Flags
// may stand before the name.
func (c *call) find(args []string) (command, []string, error) {
	first := c.nextWord(args, 0)
	if first < 0 {
		return c.withoutName(args)
	}
	word := args[first]
	rest := slices.Delete(slices.Clone(args), first, first+1)
	if second := c.nextWord(rest, first); second >= 0 {
		if cmd, ok := c.lookup(word + " " + rest[second]); ok {
			return cmd, slices.Delete(rest, second, second+1), nil
		}
		if verbs := c.group(word); verbs != nil {
			return command{}, nil, usagef("unknown command %q%s (%s has %s)", word+" "+rest[second],
				suggestion(rest[second], verbs, word+" "), word, strings.Join(verbs, ", "))
		}
	}
	if cmd, ok := c.lookup(word); ok {
		return cmd, rest, nil
	}
	if verbs := c.group(word); verbs != nil {
		if help, ok := c.lookup("help"); ok && asksHelp(rest) {
			return help, slices.DeleteFunc(slices.Clone(args), isHelpFlag), nil
		}
		return command{}, nil, usagef("%s needs one of: %s", word, strings.Join(verbs, ", "))
	}
	return command{}, nil, usagef("unknown command %q%s; millrace help lists the commands", word, suggestion(word, c.firstWords(), ""))
}

// withoutName answers a command line that has flags at most.
func (c *call) withoutName(args []string) (command, []string, error) {
	help, ok := c.lookup("help")
	if ok && asksHelp(args) {
		return help, slices.DeleteFunc(slices.Clone(args), isHelpFlag), nil
	}
	if slices.Contains(args, "--version") || slices.Contains(args, "-version") {
		if cmd, ok := c.lookup("version"); ok {
			return cmd, nil, nil
		}
	}
	return command{}, nil, usagef("no command; millrace help lists the commands")
}

// nextWord returns the index of the first argument from i on that is neither
// a flag nor the value of a global one, or -1.
func (c *call) nextWord(args []string, i int) int {
	fs := newFlagSet("")
	(&call{world: c.world}).globals(fs)
	for ; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			return -1
		}
		if len(arg) < 2 || arg[0] != '-' {
			return i
		}
		f := fs.Lookup(strings.TrimLeft(arg, "-")) // nil for --name=value too
		if f != nil && !isBoolFlag(f) {
			i++
		}
	}
	return -1
}

func (c *call) lookup(name string) (command, bool) {
	i := slices.IndexFunc(c.commands, func(cmd command) bool { return cmd.name == name })
	if i < 0 {
		return command{}, false
	}
	return c.commands[i], true
}

// group returns the second words of the commands that begin with word.
func (c *call) group(word string) []string {
	var verbs []string
	for _, cmd := range c.commands {
		if group, verb, ok := strings.Cut(cmd.name, " "); ok && group == word {
			verbs = append(verbs, verb)
		}
	}
	return verbs
}

// firstWords lists what a command line can begin with.
func (c *call) firstWords() []string {
	var words []string
	for _, cmd := range c.commands {
		word, _, _ := strings.Cut(cmd.name, " ")
		if !cmd.hidden && !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	return words
}

// suggestion returns "; did you mean X?" for a word that is close to a name.
func suggestion(word string, names []string, prefix string) string {
	if near := config.Nearest(word, names); near != "" {
		return "; did you mean " + prefix + near + "?"
	}
	return ""
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func newFlagSet(name string) *flag.FlagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	return fs
}
