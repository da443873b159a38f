package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/millrace-mq/millrace/broker/config"
	"github.com/millrace-mq/millrace/cmd/millrace/cli"
)

var configShowCommand = cli.Command{
	Name:    "config show",
	Offline: true,
	Summary: "Print the configuration that a broker would start with",
	Help: "Reads the file, the environment and the flags as the broker does and prints every key. " +
		"With anything wrong it prints every problem and ends with exit code 78.",
	Setup: func(fs *flag.FlagSet) cli.RunFunc {
		origin := fs.Bool("origin", false, "print where each value comes from")
		load := configFlags(fs)
		return func(_ context.Context, c *cli.Call) error {
			cfg, err := load(c)
			if err != nil {
				return err
			}
			return showConfig(c, cfg, *origin)
		}
	},
}

func showConfig(c *cli.Call, cfg *config.Config, origin bool) error {
	columns := []string{"key", "value"}
	if origin {
		columns = append(columns, "origin")
	}
	out := c.Rows(columns...)
	for _, k := range config.Keys() {
		if k.Reserved && cfg.Origin(k.Name).Source == config.SourceDefault {
			continue // nothing that a broker of this release works with
		}
		values := []any{k.Name, cfg.Text(k.Name)}
		if origin {
			values = append(values, cfg.Origin(k.Name).String())
		}
		out.Add(values...)
	}
	return out.Flush()
}

var configExplainCommand = cli.Command{
	Name:    "config explain",
	Offline: true,
	Args:    "KEY",
	MinArgs: 1, MaxArgs: 1,
	Summary: "Explain a configuration key",
	Setup: func(*flag.FlagSet) cli.RunFunc {
		return func(_ context.Context, c *cli.Call) error {
			k, ok := config.Lookup(c.Args[0])
			if !ok {
				return cli.Usagef("unknown key %q%s", c.Args[0], cli.Suggestion(c.Args[0], keyNames(), ""))
			}
			return c.Object(explain(k), nil)
		}
	},
}

// keyFacts is what "config explain" says about a key.
type keyFacts struct {
	Key         string `json:"key"`
	Kind        string `json:"kind"`
	Default     string `json:"default"`
	Values      string `json:"values,omitempty"`
	Reloadable  bool   `json:"reloadable"`
	Environment string `json:"environment"`
	Flag        string `json:"flag"`
	Explanation string `json:"explanation"`
}

func explain(k config.Key) keyFacts {
	flags := "--" + k.Name
	if k.Flag != "" && k.Flag != k.Name {
		flags = "--" + k.Flag + ", " + flags
	}
	return keyFacts{Key: k.Name, Kind: k.Kind.String(), Default: k.Default, Values: k.Bounds(), Reloadable: k.Reloadable,
		Environment: k.Env(), Flag: flags, Explanation: k.Doc}
}

func keyNames() []string {
	var names []string
	for _, k := range config.Keys() {
		names = append(names, k.Name)
	}
	return names
}

var configInitCommand = cli.Command{
	Name:    "config init",
	Offline: true,
	Summary: "Print a commented configuration file with all defaults",
	Help:    "Write it where you want it: millrace config init > millrace.conf; then millrace server --config millrace.conf.",
	Setup: func(*flag.FlagSet) cli.RunFunc {
		return func(_ context.Context, c *cli.Call) error {
			text := exampleConfig()
			return c.Object(map[string]string{"text": text}, func(w io.Writer) { fmt.Fprint(w, text) })
		}
	},
}

// exampleConfig is a configuration file with every key at its default, each
// commented out and explained.
func exampleConfig() string {
	var b strings.Builder
	b.WriteString("# Configuration of a millrace broker: key = value, one a line, # begins a comment.\n" +
		"# Flags (--key value) override the environment (MILLRACE_SECTION_KEY), that this file, and that the defaults.\n" +
		"# The lines below are the defaults; remove the # of those that you change.\n")
	for _, k := range config.Keys() {
		if k.Reserved {
			continue
		}
		b.WriteByte('\n')
		for _, line := range cli.Wrap(k.Doc, 96) {
			b.WriteString("# " + line + "\n")
		}
		if bounds := k.Bounds(); bounds != "" {
			b.WriteString("# " + bounds + "\n")
		}
		fmt.Fprintf(&b, "#%s = %s\n", k.Name, k.Default)
	}
	return b.String()
}

// settingFlag collects the text of one configuration flag for config.Load.
type settingFlag struct {
	name     string
	argument string // what help calls the value
	unlisted bool   // another name of a flag, or one without effect
	values   map[string]string
}

// Set keeps the text; config.Load judges it together with all others.
func (s *settingFlag) Set(text string) error {
	s.values[s.name] = text
	return nil
}

// String returns the text that was given.
func (s *settingFlag) String() string { return s.values[s.name] }

// Argument is what help calls the value.
func (s *settingFlag) Argument() string { return s.argument }

// Unlisted keeps the flag out of help.
func (s *settingFlag) Unlisted() bool { return s.unlisted }

// configFlags registers --config and a flag for every configuration key, and
// returns what loads the configuration once the flags are read.
//
// Errors of the loader: exit code 78, with every problem of all sources.
func configFlags(fs *flag.FlagSet) func(c *cli.Call) (*config.Config, error) {
	file := fs.String("config", "", "configuration `FILE` (environment: MILLRACE_CONFIG)")
	values := make(map[string]string)
	for _, k := range config.Keys() {
		usage := briefly(k.Doc) + " (default " + k.Default + ")"
		argument := valueName(k)
		fs.Var(&settingFlag{k.Name, argument, k.Reserved || k.Flag != "" && k.Flag != k.Name, values}, k.Name, usage)
		if k.Flag != "" && k.Flag != k.Name {
			fs.Var(&settingFlag{k.Flag, argument, k.Reserved, values}, k.Flag, usage)
		}
	}
	return func(c *cli.Call) (*config.Config, error) {
		src := config.Sources{File: *file, Env: c.Env, Flags: values}
		if src.File == "" {
			src.File = c.Getenv("MILLRACE_CONFIG", "")
		}
		if src.File != "" {
			text, err := readConfigFile(src.File)
			if err != nil {
				return nil, cli.WithCode(cli.ExitConfig, fmt.Errorf("configuration: %w", err))
			}
			src.Text = text
		}
		cfg, err := config.Load(src)
		if err != nil {
			return nil, cli.WithCode(cli.ExitConfig, err)
		}
		return cfg, nil
	}
}

// briefly returns the first clause of a text as the usage of a flag.
func briefly(doc string) string {
	clause := doc
	for _, end := range []string{". ", ": ", "; "} {
		clause, _, _ = strings.Cut(clause, end)
	}
	return strings.ToLower(clause[:1]) + strings.TrimSuffix(clause[1:], ".")
}

// valueName is what help calls the value of a key: its choices or its kind.
func valueName(k config.Key) string {
	switch {
	case k.Kind == config.KindChoice, k.Kind == config.KindLevel:
		return strings.ReplaceAll(k.Bounds(), ", ", "|")
	case k.Name == "storage.data_dir":
		return "DIRECTORY"
	}
	return strings.ToUpper(k.Kind.String())
}

// readConfigFile reads a file of at most config.MaxFileBytes.
func readConfigFile(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.Mode().IsRegular() && info.Size() > config.MaxFileBytes {
		return nil, fmt.Errorf("%s has %d bytes, at most %d", name, info.Size(), config.MaxFileBytes)
	}
	return os.ReadFile(name)
}
