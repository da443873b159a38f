package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/millrace-mq/millrace/broker/config"
)

//go:generate go run . docs --dir ../../docs

var docsCommand = command{
	name:    "docs",
	summary: "Write the documents that are made from tables",
	hidden:  true,
	setup: func(fs *flag.FlagSet) runFunc {
		dir := fs.String("dir", "docs", "`DIRECTORY` to write cli.md and config.md to")
		return func(_ context.Context, c *call) error { return writeDocs(c, *dir) }
	},
}

func writeDocs(c *call, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	out := c.rows("file", "bytes")
	for _, doc := range []struct{ name, text string }{
		{"cli.md", commandDoc(c.commands)},
		{"config.md", configDoc()},
	} {
		file := filepath.Join(dir, doc.name)
		if err := os.WriteFile(file, []byte(doc.text), 0o644); err != nil {
			return err
		}
		out.add(file, len(doc.text))
	}
	return out.flush()
}

const generatedNote = "<!-- Made by make generate from the tables in the code; edit those. -->\n\n"

// commandDoc is docs/cli.md.
func commandDoc(table []command) string {
	var b strings.Builder
	b.WriteString("# Command line\n\n" + generatedNote +
		"`millrace COMMAND [flags] [arguments]`. Flags may stand anywhere; what follows `--` is no flag. " +
		"Data goes to standard output, notices and progress to standard error. " +
		"With `-o json` every command prints JSON, one object a line.\n\n")
	b.WriteString("## Flags of every command\n\n")
	writeFlagTable(&b, globalFacts())
	b.WriteString("Sizes are written `4096`, `64KiB`, `1GB` (a letter alone is binary: `64k` = `64KiB`), " +
		"numbers `1000`, `1_000_000`, `1M` (powers of ten), durations `250ms`, `30s`, `1h30m`, `7d`.\n\n")
	b.WriteString("## Exit codes\n\n| code | meaning |\n|---|---|\n")
	for _, e := range exitCodes {
		fmt.Fprintf(&b, "| %d | %s |\n", e.code, e.meaning)
	}
	b.WriteString("\n## Commands\n\n| command | what it does |\n|---|---|\n")
	for _, cmd := range table {
		if !cmd.hidden {
			fmt.Fprintf(&b, "| [`%s`](#%s) | %s |\n", cmd.name, strings.ReplaceAll("millrace "+cmd.name, " ", "-"), markdownCell(cmd.summary))
		}
	}
	for _, cmd := range table {
		if cmd.hidden {
			continue
		}
		facts := factsOf(cmd)
		fmt.Fprintf(&b, "\n### millrace %s\n\n%s.\n\n```\n%s\n```\n", facts.Command, facts.Summary, facts.Usage)
		if facts.Help != "" {
			fmt.Fprintf(&b, "\n%s\n", facts.Help)
		}
		if len(facts.Flags) > 0 {
			b.WriteString("\n")
			writeFlagTable(&b, facts.Flags)
		}
		if facts.Settings {
			b.WriteString("Every key of [config.md](config.md) is a flag, too: `--storage.data_dir DIR`.\n")
		}
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

func writeFlagTable(b *strings.Builder, flags []flagFacts) {
	b.WriteString("| flag | what it does |\n|---|---|\n")
	for _, f := range flags {
		fmt.Fprintf(b, "| `%s` | %s |\n", strings.ReplaceAll(f.names(), "|", `\|`), markdownCell(f.explanation()))
	}
	b.WriteString("\n")
}

// configDoc is docs/config.md.
func configDoc() string {
	var b strings.Builder
	b.WriteString("# Configuration\n\n" + generatedNote +
		"A key is set by a flag (`--storage.data_dir DIR`), by the environment (`MILLRACE_STORAGE_DATA_DIR`), or in the file that `--config` or " +
		"`MILLRACE_CONFIG` names; the first of these that has it wins. No other place is searched. Everything is checked before the broker " +
		"opens anything, and every problem is reported at once (exit code 78).\n\n" +
		"The file has lines `key = value` and comments from `#`; a value with `#`, quotes or spaces at its ends is a string in double quotes. " +
		"`millrace config init` prints one with all defaults, `millrace config show --origin` says where each value comes from.\n\n" +
		"| key | default | values | what it does |\n|---|---|---|---|\n")
	for _, k := range config.Keys() {
		values := k.Bounds()
		if values == "" {
			values = k.Kind.String()
		}
		if k.Flag != "" && k.Flag != k.Name {
			values += "; short: `--" + k.Flag + "`"
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s |\n", k.Name, k.Default, markdownCell(values), markdownCell(k.Doc))
	}
	return b.String()
}

// markdownCell keeps text from ending a table cell or being read as markup.
func markdownCell(text string) string {
	return strings.NewReplacer("|", `\|`, "*", `\*`, "<", "&lt;", "\n", " ").Replace(text)
}
