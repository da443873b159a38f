package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/millrace-mq/millrace/broker/config"
	"github.com/millrace-mq/millrace/client"
)

// Command is one row of the command table.
//
// Setup declares the command's flags as variables of its own and returns the
// function that runs it; it is called for help and documents as well. A
// flag.Value with a method Argument() string says itself what help calls its
// value; flags with a dot in their name are configuration keys, which help
// mentions without listing them.
type Command struct {
	Name             string // one word, or group and verb
	Args             string // usage of the positional arguments
	MinArgs, MaxArgs int    // MaxArgs -1 = any number
	Summary          string // one line, without a full stop
	Help             string // paragraphs for --help and the documents
	Hidden           bool   // not in help and documents
	Offline          bool   // asks no broker: --addr and --timeout are refused
	Setup            func(fs *flag.FlagSet) RunFunc
}

// RunFunc does the work of a command once flags and arguments are read.
type RunFunc func(ctx context.Context, c *Call) error

// Run finds the command of args in table, runs it and returns the exit code. An
// error is printed on stderr.
func Run(ctx context.Context, table []Command, args []string, w World) ExitCode {
	c := &Call{World: w, Commands: table}
	err := c.dispatch(ctx, args)
	if err != nil {
		c.printError(err, c.Output == OutputJSON || asksJSON(args))
	}
	return CodeOf(err)
}

func (c *Call) dispatch(ctx context.Context, args []string) error {
	cmd, rest, err := c.find(args)
	if err != nil {
		return err
	}
	fs := newFlagSet(cmd.Name)
	c.globals(fs)
	if !cmd.Offline {
		c.brokerFlags(fs)
	}
	work := cmd.Setup(fs)
	c.Args, err = parseInterspersed(fs, rest)
	if c.Addr == "" {
		c.Addr = client.DefaultAddr
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, _ = parseInterspersed(fs, slices.DeleteFunc(rest, isHelpFlag)) // help is the answer in any case
		return c.printHelp(cmd)
	case err != nil:
		return Usagef("%s: %w", cmd.Name, err)
	case len(c.Args) < cmd.MinArgs:
		return Usagef("%s: %s expected, got %s; usage: millrace %s [flags] %s",
			cmd.Name, atLeast(cmd), Plural(len(c.Args), "argument"), cmd.Name, cmd.Args)
	case cmd.MaxArgs >= 0 && len(c.Args) > cmd.MaxArgs:
		return Usagef("%s: unexpected argument %q; usage: millrace %s [flags] %s", cmd.Name, c.Args[cmd.MaxArgs], cmd.Name, cmd.Args)
	}
	return work(ctx, c)
}

func atLeast(cmd Command) string {
	if cmd.MinArgs == cmd.MaxArgs {
		return Plural(cmd.MinArgs, "argument")
	}
	return "at least " + Plural(cmd.MinArgs, "argument")
}

// find returns the command that args name and args without its name. Flags
// may stand before the name.
func (c *Call) find(args []string) (Command, []string, error) {
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
			return Command{}, nil, Usagef("unknown command %q%s (%s has %s)", word+" "+rest[second],
				Suggestion(rest[second], verbs, word+" "), word, strings.Join(verbs, ", "))
		}
	}
	if cmd, ok := c.lookup(word); ok {
		return cmd, rest, nil
	}
	if verbs := c.group(word); verbs != nil {
		if help, ok := c.lookup("help"); ok && asksHelp(rest) {
			return help, slices.DeleteFunc(slices.Clone(args), isHelpFlag), nil
		}
		return Command{}, nil, Usagef("%s needs one of: %s", word, strings.Join(verbs, ", "))
	}
	return Command{}, nil, Usagef("unknown command %q%s; millrace help lists the commands", word, Suggestion(word, c.firstWords(), ""))
}

// withoutName answers a command line that has flags at most: with the list of
// commands where there is nothing at all.
func (c *Call) withoutName(args []string) (Command, []string, error) {
	help, ok := c.lookup("help")
	if ok && len(args) == 0 {
		return help, nil, nil
	}
	if ok && asksHelp(args) {
		return help, slices.DeleteFunc(slices.Clone(args), isHelpFlag), nil
	}
	if slices.Contains(args, "--version") || slices.Contains(args, "-version") {
		if cmd, ok := c.lookup("version"); ok {
			return cmd, nil, nil
		}
	}
	return Command{}, nil, Usagef("no command; millrace help lists the commands")
}

// nextWord returns the index of the first argument from i on that is neither
// a flag nor the value of a global one, or -1.
func (c *Call) nextWord(args []string, i int) int {
	fs := newFlagSet("")
	every := &Call{World: c.World}
	every.globals(fs)
	every.brokerFlags(fs)
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

func (c *Call) lookup(name string) (Command, bool) {
	i := slices.IndexFunc(c.Commands, func(cmd Command) bool { return cmd.Name == name })
	if i < 0 {
		return Command{}, false
	}
	return c.Commands[i], true
}

// group returns the second words of the commands that begin with word.
func (c *Call) group(word string) []string {
	var verbs []string
	for _, cmd := range c.Commands {
		if group, verb, ok := strings.Cut(cmd.Name, " "); ok && group == word {
			verbs = append(verbs, verb)
		}
	}
	return verbs
}

// firstWords lists what a command line can begin with.
func (c *Call) firstWords() []string {
	var words []string
	for _, cmd := range c.Commands {
		word, _, _ := strings.Cut(cmd.Name, " ")
		if !cmd.Hidden && !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	return words
}

// Suggestion returns "; did you mean X?" for a word that is close to one of names,
// with prefix in front of the name, and nothing for other words.
func Suggestion(word string, names []string, prefix string) string {
	if near := config.Nearest(word, names); near != "" {
		return "; did you mean " + prefix + near + "?"
	}
	return ""
}

// Plural returns "1 noun" or "n nouns".
func Plural(n int, noun string) string {
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
