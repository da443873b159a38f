package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/broker/config"
	"github.com/millrace-mq/millrace/protocol"
)

// outcome is what a command line left behind.
type outcome struct {
	code           exitCode
	stdout, stderr string
}

func runLine(table []command, env []string, args ...string) outcome {
	var stdout, stderr bytes.Buffer
	code := run(context.Background(), table, args, world{env: env, stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr,
		now: func() time.Time { return time.Unix(0, 0) }})
	return outcome{code, stdout.String(), stderr.String()}
}

// sendCommand has one flag of each sort and prints what it was given.
var sendCommand = command{
	name: "send", args: "TOPIC [VALUE]", minArgs: 1, maxArgs: 2, summary: "Send",
	setup: func(fs *flag.FlagSet) runFunc {
		var count, size int64
		var wait time.Duration
		countVar(fs, &count, "count", 1, "`N` messages")
		alias(fs, "n", "count")
		sizeVar(fs, &size, "size", 100, "`SIZE` of each")
		durationVar(fs, &wait, "wait", time.Second, "`DURATION` between them")
		level := choiceVar(fs, "level", "durable", "`LEVEL`", "written", "none")
		dry := fs.Bool("dry", false, "send nothing")
		from := fs.String("from", "end", "`POSITION`")
		return func(_ context.Context, c *call) error {
			_, err := fmt.Fprintf(c.stdout, "%q n=%d size=%d wait=%s level=%s dry=%v from=%s addr=%s o=%s",
				c.args, count, size, wait, *level, *dry, *from, c.addr, &c.output)
			return err
		}
	},
}

var topicsCommands = []command{
	{name: "topics ls", summary: "List", setup: func(*flag.FlagSet) runFunc {
		return func(_ context.Context, c *call) error { return c.rows("topic").flush() }
	}},
	{name: "topics rm", summary: "Remove", setup: func(*flag.FlagSet) runFunc {
		return func(context.Context, *call) error { return withCode(exitDamage, nil) }
	}},
}

var testTable = append([]command{sendCommand, helpCommand, versionCommand}, topicsCommands...)

func TestFlagsMayStandAnywhere(t *testing.T) {
	want := `["orders" "hi"] n=1000000 size=1024 wait=1m30s level=none dry=true from=-15m addr=h:1 o=json`
	groups := [][]string{{"orders"}, {"hi"}, {"-n", "1M"}, {"--size=1KiB", "--wait", "1m30s"}, {"--dry", "-level=none"},
		{"--from", "-15m"}, {"-o", "json", "-a", "h:1"}}
	seen := 0
	permute(groups, func(order [][]string) {
		if slices.IndexFunc(order, func(g []string) bool { return g[0] == "hi" }) < slices.IndexFunc(order, func(g []string) bool { return g[0] == "orders" }) {
			return
		}
		seen++
		got := runLine(testTable, nil, append([]string{"send"}, slices.Concat(order...)...)...)
		require.Equal(t, outcome{exitOK, want, ""}, got, order)
	})
	require.Equal(t, 5040/2, seen)
}

func permute(groups [][]string, visit func([][]string)) {
	var step func(n int)
	step = func(n int) {
		if n == len(groups) {
			visit(groups)
			return
		}
		for i := n; i < len(groups); i++ {
			groups[n], groups[i] = groups[i], groups[n]
			step(n + 1)
			groups[n], groups[i] = groups[i], groups[n]
		}
	}
	step(0)
}

func TestGlobalFlagsMayStandBeforeTheCommand(t *testing.T) {
	for _, line := range []string{
		"-a h:1 --timeout 3s send orders", "--addr=h:1 -q send orders", "send -a h:1 orders", "-q -a h:1 --progress never send orders",
	} {
		got := runLine(testTable, []string{"MILLRACE_ADDR=env:1"}, strings.Fields(line)...)
		require.Equal(t, exitOK, got.code, got.stderr)
		require.Contains(t, got.stdout, `["orders"]`)
		require.Contains(t, got.stdout, "addr=h:1")
	}
	got := runLine(testTable, []string{"MILLRACE_ADDR=env:1"}, "send", "orders")
	require.Contains(t, got.stdout, "addr=env:1")
	got = runLine(testTable, nil, "-o", "json", "topics", "-q", "ls")
	require.Equal(t, outcome{exitOK, "", ""}, got)
}

func TestWhatFollowsTwoDashesIsNoFlag(t *testing.T) {
	got := runLine(testTable, nil, "send", "--dry", "orders", "--", "--size")
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, `["orders" "--size"] n=1`)
	got = runLine(testTable, nil, "send", "orders", "-")
	require.Contains(t, got.stdout, `["orders" "-"]`)
}

func TestWrongCommandLinesAreUsageErrorsWithASuggestion(t *testing.T) {
	for line, want := range map[string]string{
		"":                           "no command; millrace help lists the commands",
		"-q":                         "no command",
		"sned x":                     `unknown command "sned"; did you mean send?`,
		"topic ls":                   `unknown command "topic"; did you mean topics?`,
		"topics lss":                 `unknown command "topics lss"; did you mean topics ls? (topics has ls, rm)`,
		"topics":                     "topics needs one of: ls, rm",
		"send orders --szie 3":       "send: unknown flag --szie; did you mean --size?",
		"send --xyzzy":               "send: unknown flag --xyzzy",
		"send orders --size":         "flag needs an argument: -size",
		"send orders --size big":     "not a size",
		"send orders -n 1MiB":        "not a number",
		"send orders --wait 3":       `no unit; try "3s"`,
		"send orders --level durabl": "not one of durable, written, none; did you mean durable?",
		"send orders -o xml":         "not one of text, json, csv",
		"send orders --progress x":   "not one of auto, never, json",
		"send":                       "send: at least 1 argument expected, got 0 arguments; usage: millrace send [flags] TOPIC [VALUE]",
		"send a b c":                 `send: unexpected argument "c"`,
		"help nothing":               `unknown command "nothing"`,
	} {
		got := runLine(testTable, nil, strings.Fields(line)...)
		require.Equal(t, exitUsage, got.code, line)
		require.Empty(t, got.stdout, line)
		require.Contains(t, got.stderr, want, line)
		require.Equal(t, 1, strings.Count(got.stderr, "\n"), line)
	}
}

func TestHelpIsReachableInEveryWay(t *testing.T) {
	for _, line := range []string{"help send", "send --help", "send -h", "send orders --size 3 -help", "--help send"} {
		got := runLine(testTable, nil, strings.Fields(line)...)
		require.Equal(t, exitOK, got.code, line)
		require.Contains(t, got.stdout, "usage: millrace send [flags] TOPIC [VALUE]", line)
		require.Contains(t, got.stdout, "-n, --count N", line)
		require.Contains(t, got.stdout, "N messages (default 1)", line)
		require.Contains(t, got.stdout, "-a, --addr HOST:PORT", line)
	}
	for _, line := range []string{"help", "--help", "-h"} {
		got := runLine(testTable, nil, strings.Fields(line)...)
		require.Equal(t, exitOK, got.code, line)
		require.Contains(t, got.stdout, "topics ls", line)
	}
	for _, line := range []string{"help topics", "topics --help"} {
		got := runLine(testTable, nil, strings.Fields(line)...)
		require.Equal(t, exitOK, got.code, line)
		require.Contains(t, got.stdout, "topics rm", line)
		require.NotContains(t, got.stdout, "send", line)
	}
	require.Contains(t, runLine(testTable, nil, "--version").stdout, "millrace ")
}

// The table itself: every command, those of others too, keeps the rules.
func TestEveryCommandOfTheTableKeepsTheRules(t *testing.T) {
	names := map[string]bool{}
	for _, cmd := range commands {
		t.Run(cmd.name, func(t *testing.T) {
			require.False(t, names[cmd.name])
			names[cmd.name] = true
			require.LessOrEqual(t, len(strings.Fields(cmd.name)), 2)
			require.NotEmpty(t, cmd.summary)
			require.NotContains(t, cmd.summary, "\n")
			require.NotEqual(t, byte('.'), cmd.summary[len(cmd.summary)-1])
			require.True(t, cmd.maxArgs == -1 || cmd.maxArgs >= cmd.minArgs)
			require.Equal(t, cmd.maxArgs == 0, cmd.args == "")
			got := runLine(commands, nil, append(strings.Fields(cmd.name), "--no-such-flag")...)
			require.Equal(t, exitUsage, got.code)
			require.Contains(t, got.stderr, "unknown flag --no-such-flag")
		})
	}
}

func TestEveryCommandExplainsItselfInEveryForm(t *testing.T) {
	for _, cmd := range commands {
		t.Run(cmd.name, func(t *testing.T) {
			words := strings.Fields(cmd.name)
			got := runLine(commands, nil, append(words, "--help", "-o", "json")...)
			require.Equal(t, exitOK, got.code, got.stderr)
			var facts commandFacts
			require.NoError(t, json.Unmarshal([]byte(got.stdout), &facts))
			require.Equal(t, cmd.name, facts.Command)
			require.Equal(t, exitOK, runLine(commands, nil, append(words, "-o=csv", "-h")...).code)
			require.Contains(t, runLine(commands, nil, append(words, "-h")...).stdout, cmd.summary)
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
			require.Equal(t, exitOK, got.code, got.stderr)
			require.Empty(t, got.stderr)
			require.NotEmpty(t, got.stdout)
			for line := range strings.Lines(got.stdout) {
				require.True(t, json.Valid([]byte(line)), line)
				require.Equal(t, byte('{'), line[0])
			}
			require.Equal(t, exitOK, runLine(commands, nil, append(args, "-o", "csv")...).code)
		})
	}
}

func TestErrorsEndTheProcessWithTheirCode(t *testing.T) {
	for _, test := range []struct {
		err  error
		code exitCode
	}{
		{nil, exitOK},
		{errors.New("x"), exitRuntime},
		{usagef("x"), exitUsage},
		{fmt.Errorf("in: %w", withCode(exitDamage, errors.New("x"))), exitDamage},
		{config.Problems{{Message: "x"}}, exitConfig},
		{fmt.Errorf("x: %w", protocol.UnknownTopic), exitNotFound},
		{fmt.Errorf("x: %w", protocol.UnknownPartition), exitNotFound},
		{fmt.Errorf("x: %w", protocol.Corrupt), exitDamage},
		{fmt.Errorf("x: %w", protocol.Timeout), exitTimeout},
		{fmt.Errorf("x: %w", context.DeadlineExceeded), exitTimeout},
		{&net.OpError{Op: "dial", Err: context.DeadlineExceeded}, exitUnreachable},
		{&net.OpError{Op: "read", Err: io.EOF}, exitRuntime},
	} {
		require.Equal(t, test.code, codeOf(test.err), "%v", test.err)
	}
	require.Equal(t, outcome{exitDamage, "", ""}, runLine(testTable, nil, "topics", "rm"))
}

func TestBadConfigurationIsListedWholeAndEndsWith78(t *testing.T) {
	file := t.TempDir() + "/m.conf"
	require.NoError(t, os.WriteFile(file, []byte("log.level = inf\nlog.fromat = text\n"), 0o600))
	got := runLine(commands, []string{"MILLRACE_CONFIG=" + file, "MILLRACE_DRAIN_TIMEOUT=3"}, "config", "show", "--http", "nowhere")
	require.Equal(t, exitConfig, got.code)
	require.Empty(t, got.stdout)
	lines := strings.Split(strings.TrimSpace(got.stderr), "\n")
	require.Len(t, lines, 5)
	require.Regexp(t, `m\.conf:1 +log\.level = "inf" +not one of .*; did you mean info\?$`, lines[0])
	require.Regexp(t, `m\.conf:2 +log\.fromat +unknown key; did you mean log\.format\?$`, lines[1])
	require.Regexp(t, `^env MILLRACE_DRAIN_TIMEOUT +drain\.timeout = "3" `, lines[2])
	require.Regexp(t, `^flag --http +listen\.http = "nowhere" `, lines[3])
	require.Equal(t, "millrace: 4 problems in the configuration", lines[4])

	got = runLine(commands, nil, "config", "show", "--config", file+".none")
	require.Equal(t, exitConfig, got.code)
	require.Contains(t, got.stderr, "no such file")
}

func TestConfigShowsValuesWithTheirOrigin(t *testing.T) {
	got := runLine(commands, []string{"MILLRACE_LOG_LEVEL=warn"}, "config", "show", "--origin", "--data-dir", "/d", "-o", "csv", "--topic.retention=0")
	require.Equal(t, exitOK, got.code, got.stderr)
	for _, row := range []string{"key,value,origin\n", "storage.data_dir,/d,flag --data-dir\n", "log.level,warn,env MILLRACE_LOG_LEVEL\n",
		"topic.retention,0,flag --topic.retention\n", "durability,durable,default\n"} {
		require.Contains(t, got.stdout, row)
	}
	got = runLine(commands, nil, "config", "explain", "data_dir")
	require.Equal(t, exitNotFound, got.code)
	require.Contains(t, got.stderr, "did you mean storage.data_dir?")
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
		require.Equal(t, config.SourceFile, c.Origin(k.Name).Source, k.Name)
		require.Equal(t, config.Default().Text(k.Name), c.Text(k.Name))
	}
}

func TestDocumentsNameEveryCommandFlagAndKey(t *testing.T) {
	cli, settings := commandDoc(append(commands, sendCommand)), configDoc()
	for _, cmd := range append(commands, sendCommand) {
		require.Equal(t, !cmd.hidden, strings.Contains(cli, "### millrace "+cmd.name+"\n"), cmd.name)
	}
	require.Contains(t, cli, "| `-n, --count N` | N messages (default 1) |")
	require.Contains(t, cli, "| 78 | bad configuration |")
	for _, k := range config.Keys() {
		require.Contains(t, settings, "| `"+k.Name+"` | `"+k.Default+"` |")
	}
}

func TestDocumentsAreThoseOfTheTables(t *testing.T) {
	for name, want := range map[string]string{"cli.md": commandDoc(commands), "config.md": configDoc()} {
		have, err := os.ReadFile("../../docs/" + name)
		require.NoError(t, err)
		require.Equal(t, want, string(have), "docs/%s is old: make generate", name)
	}
}

func TestDeadlineFollowsTheTimeoutFlag(t *testing.T) {
	ctx, cancel := (&call{timeout: time.Hour}).deadline(context.Background())
	_, bounded := ctx.Deadline()
	require.True(t, bounded)
	cancel()
	ctx, cancel = (&call{}).deadline(context.Background())
	_, bounded = ctx.Deadline()
	require.False(t, bounded)
	cancel()
	require.Error(t, ctx.Err())
}

func TestVersionSaysWhatWasBuilt(t *testing.T) {
	facts := buildFacts{Version: "0.1.0", Revision: "a1b2c3d", Time: "2026-11-30T02:00:00Z", Modified: true, Go: "go1.26", Platform: "linux/amd64"}
	require.Equal(t, "0.1.0 (a1b2c3d+changes 2026-11-30, go1.26 linux/amd64)", facts.String())
	require.Equal(t, "0.1.0 (go1.26 linux/amd64)", buildFacts{Version: "0.1.0", Go: "go1.26", Platform: "linux/amd64"}.String())
	require.NotEmpty(t, readBuild().Version)
}
