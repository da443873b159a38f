package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/millrace-mq/millrace/broker/config"
	"github.com/millrace-mq/millrace/cmd/millrace/cli"
)

//go:generate go run . docs --dir ../../docs

var docsCommand = cli.Command{
	Name:    "docs",
	Offline: true,
	Summary: "Write the documents that are made from tables",
	Hidden:  true,
	Setup: func(fs *flag.FlagSet) cli.RunFunc {
		dir := fs.String("dir", "docs", "`DIRECTORY` to write cli.md and config.md to")
		return func(_ context.Context, c *cli.Call) error { return writeDocs(c, *dir) }
	},
}

func writeDocs(c *cli.Call, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	out := c.Rows("file", "bytes")
	for _, doc := range []struct{ name, text string }{
		{"cli.md", cli.Document(c.Commands, helpTopics...)},
		{"config.md", configDoc()},
	} {
		file := filepath.Join(dir, doc.name)
		if err := os.WriteFile(file, []byte(doc.text), 0o644); err != nil {
			return err
		}
		out.Add(file, len(doc.text))
	}
	return out.Flush()
}

// configDoc is docs/config.md.
func configDoc() string {
	var b strings.Builder
	b.WriteString("# Configuration\n\n" + cli.GeneratedNote +
		"A key is set by a flag (`--storage.data_dir DIR`), by the environment (`MILLRACE_STORAGE_DATA_DIR`), or in the file that `--config` or " +
		"`MILLRACE_CONFIG` names; the first of these that has it wins. No other place is searched. Everything is checked before the broker " +
		"opens anything, and every problem is reported at once (exit code 78).\n\n" +
		"The file has lines `key = value` and comments from `#`; a value with `#`, quotes or spaces at its ends is a string in double quotes. " +
		"`millrace config init` prints one with all defaults, `millrace config show --origin` says where each value comes from.\n\n" +
		"| key | default | values | what it does |\n|---|---|---|---|\n")
	for _, k := range config.Keys() {
		if k.Reserved {
			continue
		}
		values := k.Bounds()
		if values == "" {
			values = k.Kind.String()
		}
		if k.Flag != "" && k.Flag != k.Name {
			values += "; flag: `--" + k.Flag + "`"
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s |\n", k.Name, k.Default, cli.MarkdownCell(values), cli.MarkdownCell(k.Doc))
	}
	b.WriteString("\n`listen.http` is accepted and has no effect: there is no HTTP listener in this release.\n")
	return b.String()
}
