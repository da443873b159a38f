package cli

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Topic is something that several commands share and that help explains by its name.
type Topic struct {
	Name, Summary string
	Text          string // paragraphs
}

// Help is the command that lists the commands of its table, or explains one.
var Help = HelpWith()

// HelpWith is Help that explains topics, too.
func HelpWith(topics ...Topic) Command {
	names := make([]string, len(topics))
	help := ""
	for i, t := range topics {
		names[i] = t.Name
		help += fmt.Sprintf("millrace help %s: %s.\n", t.Name, t.Summary)
	}
	return Command{
		Name:    "help",
		Args:    "[COMMAND | TOPIC]",
		MaxArgs: 2,
		Summary: "List the commands, or explain one",
		Help:    strings.TrimSuffix(help, "\n"),
		Offline: true,
		Setup: func(*flag.FlagSet) RunFunc {
			return func(_ context.Context, c *Call) error {
				name := strings.Join(c.Args, " ")
				if cmd, ok := c.lookup(name); ok {
					return c.printHelp(cmd)
				}
				if i := slices.Index(names, name); i >= 0 {
					return c.printTopic(topics[i])
				}
				if name != "" && c.group(name) == nil {
					return Usagef("unknown command %q%s", name, Suggestion(c.Args[0], append(c.firstWords(), names...), ""))
				}
				return c.listCommands(name, topics)
			}
		},
	}
}

// printTopic explains a topic.
func (c *Call) printTopic(t Topic) error {
	return c.Object(map[string]string{"topic": t.Name, "summary": t.Summary, "text": t.Text}, func(w io.Writer) {
		fmt.Fprintf(w, "%s.\n\n", t.Summary)
		printParagraphs(w, t.Text)
	})
}

func printParagraphs(w io.Writer, text string) {
	for paragraph := range strings.SplitSeq(text, "\n") {
		fmt.Fprintln(w, strings.Join(Wrap(paragraph, 96), "\n"))
	}
}

// listCommands prints the commands of a group; "" for all.
func (c *Call) listCommands(group string, topics []Topic) error {
	if group == "" && c.Output.String() == string(OutputText) {
		fmt.Fprintf(c.Stdout, "millrace is a message broker, its command line and its bench.\n\nusage: millrace COMMAND [flags] [arguments]\n\n")
	}
	out := c.Rows("command", "summary")
	for _, cmd := range c.Commands {
		first, _, grouped := strings.Cut(cmd.Name, " ")
		if !cmd.Hidden && (group == "" || grouped && first == group) {
			out.Add(cmd.Name, cmd.Summary)
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	c.Notice("\nmillrace help COMMAND explains one.")
	for _, t := range topics {
		c.Notice("millrace help %s: %s.", t.Name, t.Summary)
	}
	return nil
}

// flagFacts is one flag with all its names.
type flagFacts struct {
	Names    []string `json:"names"` // with dashes, shortest first
	Argument string   `json:"argument,omitempty"`
	Default  string   `json:"default,omitempty"`
	Usage    string   `json:"usage"`
}

// names returns "-a, --addr HOST:PORT".
func (f flagFacts) names() string {
	text := strings.Join(f.Names, ", ")
	if f.Argument != "" {
		text += " " + f.Argument
	}
	return text
}

// explanation returns the usage with the default behind it.
func (f flagFacts) explanation() string {
	if f.Default == "" || f.Default == "false" || strings.Contains(f.Usage, "(default") {
		return f.Usage
	}
	return f.Usage + " (default " + f.Default + ")"
}

// commandFacts is a command as help and the documents show it.
type commandFacts struct {
	Command  string      `json:"command"`
	Usage    string      `json:"usage"`
	Summary  string      `json:"summary"`
	Help     string      `json:"help,omitempty"`
	Flags    []flagFacts `json:"flags"`
	Settings bool        `json:"settings"` // every configuration key is a flag, too
	Offline  bool        `json:"offline"`  // asks no broker
}

func factsOf(cmd Command) commandFacts {
	fs := newFlagSet(cmd.Name)
	cmd.Setup(fs)
	flags, settings := flagFactsOf(fs)
	usage := strings.TrimRight("millrace "+cmd.Name+" [flags] "+cmd.Args, " ")
	return commandFacts{Command: cmd.Name, Usage: usage, Summary: cmd.Summary, Help: cmd.Help, Flags: flags, Settings: settings, Offline: cmd.Offline}
}

// argumentNamer is a flag that says itself what help calls its value.
type argumentNamer interface{ Argument() string }

// unlisted is a flag that is accepted and that help does not offer.
type unlisted interface{ Unlisted() bool }

// flagFactsOf lists the flags of a set, names of one value together. Flags
// named like a configuration key are left out; settings says whether there are any.
func flagFactsOf(fs *flag.FlagSet) (facts []flagFacts, settings bool) {
	facts = []flagFacts{}
	index := make(map[flag.Value]int)
	fs.VisitAll(func(f *flag.Flag) {
		if strings.Contains(f.Name, ".") {
			settings = true
			return
		}
		if u, ok := f.Value.(unlisted); ok && u.Unlisted() {
			return
		}
		i, seen := index[f.Value]
		if !seen {
			i = len(facts)
			index[f.Value] = i
			argument, usage := flag.UnquoteUsage(f)
			if own, ok := f.Value.(argumentNamer); ok {
				argument = own.Argument()
			}
			facts = append(facts, flagFacts{Argument: argument, Default: f.DefValue, Usage: usage})
		}
		facts[i].Names = append(facts[i].Names, dashed(f.Name))
	})
	for _, f := range facts {
		slices.SortFunc(f.Names, func(a, b string) int { return len(a) - len(b) })
	}
	return facts, settings
}

// globalFacts lists the flags that every command takes, and brokerFacts those of
// commands that ask a broker, with their plain defaults.
func globalFacts() []flagFacts { return factsFrom((&Call{}).globals) }

func brokerFacts() []flagFacts { return factsFrom((&Call{}).brokerFlags) }

func factsFrom(register func(*flag.FlagSet)) []flagFacts {
	fs := newFlagSet("")
	register(fs)
	facts, _ := flagFactsOf(fs)
	return facts
}

// printHelp explains one command.
func (c *Call) printHelp(cmd Command) error {
	facts := factsOf(cmd)
	return c.Object(facts, func(w io.Writer) {
		fmt.Fprintf(w, "%s\n\nusage: %s\n", facts.Summary+".", facts.Usage)
		if facts.Help != "" {
			fmt.Fprintln(w)
			printParagraphs(w, facts.Help)
		}
		printFlags(w, "flags", facts.Flags)
		if facts.Settings {
			fmt.Fprint(w, "\nEvery configuration key is a flag, too: --storage.data_dir DIR (millrace config show lists the keys).\n")
		}
		if !facts.Offline {
			printFlags(w, "flags of commands that ask a broker", brokerFacts())
		}
		printFlags(w, "flags of every command", globalFacts())
	})
}

func printFlags(w io.Writer, title string, flags []flagFacts) {
	if len(flags) == 0 {
		return
	}
	table := NewTextTable()
	for _, f := range flags {
		table.Add([]string{"  " + f.names(), f.explanation()})
	}
	fmt.Fprintf(w, "\n%s:\n%s", title, table)
}
