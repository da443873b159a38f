package cli

import (
	"fmt"
	"strings"
)

// GeneratedNote tells readers of a generated document to edit something else.
const GeneratedNote = "<!-- Made by make generate from the tables in the code; edit those. -->\n\n"

// Document returns docs/cli.md: flags, exit codes, topics and every command of a
// table that is not hidden.
func Document(table []Command, topics ...Topic) string {
	var b strings.Builder
	b.WriteString("# Command line\n\n" + GeneratedNote +
		"`millrace COMMAND [flags] [arguments]`. Flags may stand anywhere; what follows `--` is no flag. " +
		"Data goes to standard output, notices and progress to standard error. " +
		"With `-o json` every command prints JSON, one object a line; what went wrong then stands on standard error as " +
		"`{\"error\":\"…\",\"code\":\"UNKNOWN_TOPIC\",\"exit\":3}`.\n\n")
	b.WriteString("## Flags of every command\n\n")
	writeFlagTable(&b, globalFacts())
	b.WriteString("## Flags of commands that ask a broker\n\nThe others refuse them.\n\n")
	writeFlagTable(&b, brokerFacts())
	b.WriteString("Sizes are written `4096`, `64KiB`, `1GB` (a letter alone is binary: `64k` = `64KiB`), " +
		"numbers `1000`, `1_000_000`, `1M` (powers of ten), durations `250ms`, `30s`, `1h30m`, `7d`.\n\n")
	b.WriteString("## Exit codes\n\n| code | meaning |\n|---|---|\n")
	for _, e := range exitCodes {
		fmt.Fprintf(&b, "| %d | %s |\n", e.code, e.meaning)
	}
	for _, t := range topics {
		fmt.Fprintf(&b, "\n## millrace help %s\n\n%s.\n\n%s\n", t.Name, t.Summary, MarkdownText(t.Text))
	}
	b.WriteString("\n## Commands\n\n| command | what it does |\n|---|---|\n")
	for _, cmd := range table {
		if !cmd.Hidden {
			fmt.Fprintf(&b, "| [`%s`](#%s) | %s |\n", cmd.Name, strings.ReplaceAll("millrace "+cmd.Name, " ", "-"), MarkdownCell(cmd.Summary))
		}
	}
	for _, cmd := range table {
		if cmd.Hidden {
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
		fmt.Fprintf(b, "| `%s` | %s |\n", strings.ReplaceAll(f.names(), "|", `\|`), MarkdownCell(f.explanation()))
	}
	b.WriteString("\n")
}

// MarkdownText makes a paragraph of each line.
func MarkdownText(text string) string {
	return strings.ReplaceAll(strings.NewReplacer("*", `\*`, "<", "&lt;", "\\", `\\`).Replace(text), "\n", "\n\n")
}

// MarkdownCell keeps text from ending a table cell or being read as markup.
func MarkdownCell(text string) string {
	return strings.NewReplacer("|", `\|`, "*", `\*`, "<", "&lt;", "\n", " ").Replace(text)
}
