package cli

import (
	"errors"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// parseInterspersed reads flags wherever they stand between the positional
// arguments, which it returns; what follows "--" is positional.
func parseInterspersed(fs *flag.FlagSet, args []string) (positional []string, err error) {
	var tail []string
	if i := slices.Index(args, "--"); i >= 0 {
		args, tail = args[:i], args[i+1:]
	}
	for {
		if err := fs.Parse(args); err != nil {
			return nil, flagError(fs, err)
		}
		if fs.NArg() == 0 {
			return append(positional, tail...), nil
		}
		positional, args = append(positional, fs.Arg(0)), fs.Args()[1:]
	}
}

// namedFlag finds the name of a flag in a text of package flag, which writes it
// with one dash.
var namedFlag = regexp.MustCompile(`(for flag|for|argument:) -[^\s:]+`)

// flagError adds what was probably meant to the error of an unknown flag.
func flagError(fs *flag.FlagSet, err error) error {
	if errors.Is(err, flag.ErrHelp) {
		return err
	}
	name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !unknown {
		return errors.New(namedFlag.ReplaceAllStringFunc(err.Error(), func(text string) string {
			at := strings.LastIndexByte(text, ' ') + 1
			return text[:at] + dashed(strings.TrimLeft(text[at:], "-"))
		}))
	}
	if slices.Contains([]string{"a", "addr", "timeout"}, name) {
		return fmt.Errorf("unknown flag %s: this command asks no broker", dashed(name))
	}
	var names []string
	fs.VisitAll(func(f *flag.Flag) { names = append(names, f.Name) })
	return fmt.Errorf("unknown flag %s%s", dashed(name), Suggestion(name, names, "--"))
}

// dashed writes a flag as people do: -n, --count.
func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

func isHelpFlag(arg string) bool {
	return slices.Contains([]string{"-h", "--h", "-help", "--help"}, arg)
}

func asksHelp(args []string) bool { return slices.ContainsFunc(args, isHelpFlag) }

func isBoolFlag(f *flag.Flag) bool {
	b, ok := f.Value.(interface{ IsBoolFlag() bool })
	return ok && b.IsBoolFlag()
}

// Alias gives an existing flag a second name. Help shows both together.
func Alias(fs *flag.FlagSet, name, of string) {
	f := fs.Lookup(of)
	fs.Var(f.Value, name, f.Usage)
	fs.Lookup(name).DefValue = f.DefValue
}

// Given tells whether a flag stood on the command line.
func Given(fs *flag.FlagSet, name string) (found bool) {
	fs.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}
