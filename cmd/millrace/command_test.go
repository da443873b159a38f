package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/broker/config"
	"github.com/millrace-mq/millrace/cmd/millrace/cli"
)

// outcome is what a command line left behind.
type outcome struct {
	code           cli.ExitCode
	stdout, stderr string
}

func runLine(table []cli.Command, env []string, args ...string) outcome {
	var stdout, stderr bytes.Buffer
	code := cli.Run(context.Background(), table, args, cli.World{Env: env, Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr,
		Now: func() time.Time { return time.Unix(0, 0) }})
	return outcome{code, stdout.String(), stderr.String()}
}

// The table itself: every command, those of others too, keeps the rules.
func TestEveryCommandOfTheTableKeepsTheRules(t *testing.T) {
	names := map[string]bool{}
	for _, cmd := range commands {
		t.Run(cmd.Name, func(t *testing.T) {
			require.False(t, names[cmd.Name])
			names[cmd.Name] = true
			require.LessOrEqual(t, len(strings.Fields(cmd.Name)), 2)
			require.NotEmpty(t, cmd.Summary)
			require.NotContains(t, cmd.Summary, "\n")
			require.NotEqual(t, byte('.'), cmd.Summary[len(cmd.Summary)-1])
			require.True(t, cmd.MaxArgs == -1 || cmd.MaxArgs >= cmd.MinArgs)
			require.Equal(t, cmd.MaxArgs == 0, cmd.Args == "")
			got := runLine(commands, nil, append(strings.Fields(cmd.Name), "--no-such-flag")...)
			require.Equal(t, cli.ExitUsage, got.code)
			require.Contains(t, got.stderr, "unknown flag --no-such-flag")
		})
	}
}

func TestEveryCommandExplainsItselfInEveryForm(t *testing.T) {
	for _, cmd := range commands {
		t.Run(cmd.Name, func(t *testing.T) {
			words := strings.Fields(cmd.Name)
			got := runLine(commands, nil, append(words, "--help", "-o", "json")...)
			require.Equal(t, cli.ExitOK, got.code, got.stderr)
			var facts struct{ Command string }
			require.NoError(t, json.Unmarshal([]byte(got.stdout), &facts))
			require.Equal(t, cmd.Name, facts.Command)
			require.Equal(t, cli.ExitOK, runLine(commands, nil, append(words, "-o=csv", "-h")...).code)
			require.Contains(t, runLine(commands, nil, append(words, "-h")...).stdout, cmd.Summary)
		})
	}
}

// Commands that need no broker are run: with -o json all of their output is JSON.
func TestOutputOfOfflineCommandsIsJSONWhereAsked(t *testing.T) {
	for _, line := range []string{
		"version", "help", "help version", "config show", "config show --origin", "config explain durability", "config init",
		"docs --dir " + t.TempDir(),
	} {
		t.Run(line, func(t *testing.T) {
			args := strings.Fields(line)
			got := runLine(commands, nil, append(args, "-q", "-o", "json")...)
			require.Equal(t, cli.ExitOK, got.code, got.stderr)
			require.Empty(t, got.stderr)
			require.NotEmpty(t, got.stdout)
			for line := range strings.Lines(got.stdout) {
				require.True(t, json.Valid([]byte(line)), line)
				require.Equal(t, byte('{'), line[0])
			}
			require.Equal(t, cli.ExitOK, runLine(commands, nil, append(args, "-o", "csv")...).code)
		})
	}
}

func TestBadConfigurationIsListedWholeAndEndsWith78(t *testing.T) {
	file := t.TempDir() + "/m.conf"
	require.NoError(t, os.WriteFile(file, []byte("log.level = inf\nlog.fromat = text\n"), 0o600))
	got := runLine(commands, []string{"MILLRACE_CONFIG=" + file, "MILLRACE_DRAIN_TIMEOUT=3"}, "config", "show", "--http", "nowhere")
	require.Equal(t, cli.ExitConfig, got.code)
	require.Empty(t, got.stdout)
	lines := strings.Split(strings.TrimSpace(got.stderr), "\n")
	require.Len(t, lines, 5)
	require.Regexp(t, `m\.conf:1 +log\.level = "inf" +not one of .*; did you mean info\?$`, lines[0])
	require.Regexp(t, `m\.conf:2 +log\.fromat +unknown key; did you mean log\.format\?$`, lines[1])
	require.Regexp(t, `^env MILLRACE_DRAIN_TIMEOUT +drain\.timeout = "3" `, lines[2])
	require.Regexp(t, `^flag --http +listen\.http = "nowhere" `, lines[3])
	require.Equal(t, "millrace: 4 problems in the configuration", lines[4])

	got = runLine(commands, nil, "config", "show", "--config", file+".none")
	require.Equal(t, cli.ExitConfig, got.code)
	require.Contains(t, got.stderr, "no such file")
}

func TestConfigShowsValuesWithTheirOrigin(t *testing.T) {
	got := runLine(commands, []string{"MILLRACE_LOG_LEVEL=warn"}, "config", "show", "--origin", "--data-dir", "/d", "-o", "csv", "--topic.retention=0")
	require.Equal(t, cli.ExitOK, got.code, got.stderr)
	for _, row := range []string{"key,value,origin\n", "storage.data_dir,/d,flag --data-dir\n", "log.level,warn,env MILLRACE_LOG_LEVEL\n",
		"topic.retention,0,flag --topic.retention\n", "durability,durable,default\n"} {
		require.Contains(t, got.stdout, row)
	}
	got = runLine(commands, nil, "config", "explain", "data_dir")
	require.Equal(t, cli.ExitUsage, got.code)
	require.Contains(t, got.stderr, "did you mean storage.data_dir?")
}

func TestListenerThatIsNotInThisReleaseIsNotOffered(t *testing.T) {
	for _, line := range []string{"config show", "config init", "server -h", "dev -h"} {
		got := runLine(commands, nil, strings.Fields(line)...)
		require.Equal(t, cli.ExitOK, got.code)
		require.NotContains(t, got.stdout, "listen.http", line)
		require.NotContains(t, got.stdout, "--http", line)
	}
	require.Contains(t, runLine(commands, nil, "config", "show", "--http", "off").stdout, "listen.http")
	require.Contains(t, runLine(commands, nil, "config", "explain", "listen.http").stdout, "Not in this release")
}

func TestFlagsWithUnderscoresAreAcceptedAndThoseWithDashesOffered(t *testing.T) {
	for _, flags := range []string{"--auto-create off --on-storage-error readonly", "--auto_create off --on_storage_error readonly"} {
		got := runLine(commands, nil, append([]string{"config", "show", "-o", "csv"}, strings.Fields(flags)...)...)
		require.Equal(t, cli.ExitOK, got.code, got.stderr)
		require.Contains(t, got.stdout, "auto_create,off\non_storage_error,readonly\n")
	}
	help := runLine(commands, nil, "server", "-h").stdout
	require.Contains(t, help, "--auto-create")
	require.NotContains(t, help, "--auto_create")
}

func TestCommandsThatAskNoBrokerRefuseItsFlags(t *testing.T) {
	for _, name := range []string{"server", "dev", "verify", "dump", "version", "config show", "config explain", "config init", "help"} {
		for _, flags := range []string{"-a h:1", "--addr h:1", "--timeout 1s"} {
			got := runLine(commands, nil, append(strings.Fields(name), strings.Fields(flags)...)...)
			require.Equal(t, cli.ExitUsage, got.code, name)
			require.Contains(t, got.stderr, "asks no broker", name)
		}
	}
}

func TestBareProgramListsTheCommandsAndHelpHasTopics(t *testing.T) {
	got := runLine(commands, nil)
	require.Equal(t, cli.ExitOK, got.code)
	require.Contains(t, got.stdout, "topics create")
	require.Contains(t, runLine(commands, nil, "help", "positions").stdout, "@2026-11-30T10:00Z")
	require.Contains(t, runLine(commands, nil, "help", "format").stdout, "%t topic")
}

func TestPortFileIsCheckedBeforeAnythingIsOpened(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	for file, want := range map[string]string{dir: "is a directory", filepath.Join(dir, "none", "ports"): "cannot be written"} {
		got := runLine(commands, nil, "server", "--data-dir", data, "--listen", "127.0.0.1:0", "--port-file", file)
		require.Equal(t, cli.ExitRuntime, got.code)
		require.Contains(t, got.stderr, want)
		require.NoDirExists(t, data)
	}
}

func TestExampleConfigIsTheDefaultsOnceUncommented(t *testing.T) {
	text := runLine(commands, nil, "config", "init").stdout
	_, err := config.Load(config.Sources{File: "example", Text: []byte(text)})
	require.NoError(t, err)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "# ") {
			lines[i] = line[1:]
		}
	}
	c, err := config.Load(config.Sources{File: "example", Text: []byte(strings.Join(lines, "\n"))})
	require.NoError(t, err)
	for _, k := range config.Keys() {
		if k.Reserved {
			continue
		}
		require.Equal(t, config.SourceFile, c.Origin(k.Name).Source, k.Name)
		require.Equal(t, config.Default().Text(k.Name), c.Text(k.Name))
	}
}

func TestConfigDocumentNamesEveryKey(t *testing.T) {
	document := configDoc()
	require.Contains(t, document, "`listen.http` is accepted and has no effect")
	for _, k := range config.Keys() {
		if k.Reserved {
			continue
		}
		require.Contains(t, document, "| `"+k.Name+"` | `"+k.Default+"` |")
	}
}

func TestDocumentsAreThoseOfTheTables(t *testing.T) {
	for name, want := range map[string]string{"cli.md": cli.Document(commands, helpTopics...), "config.md": configDoc()} {
		have, err := os.ReadFile("../../docs/" + name)
		require.NoError(t, err)
		require.Equal(t, want, string(have), "docs/%s is old: make generate", name)
	}
}

func TestVersionSaysWhatWasBuilt(t *testing.T) {
	facts := buildFacts{Version: "0.1.0", Revision: "a1b2c3d", Time: "2026-11-30T02:00:00Z", Modified: true, Go: "go1.26", Platform: "linux/amd64"}
	require.Equal(t, "0.1.0 (a1b2c3d+changes 2026-11-30, go1.26 linux/amd64)", facts.String())
	require.Equal(t, "0.1.0 (go1.26 linux/amd64)", buildFacts{Version: "0.1.0", Go: "go1.26", Platform: "linux/amd64"}.String())
	require.NotEmpty(t, readBuild().Version)
}
