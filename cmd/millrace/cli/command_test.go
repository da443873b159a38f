package cli

import (
	"bytes"
	"context"
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
	code           ExitCode
	stdout, stderr string
}

func runLine(table []Command, env []string, args ...string) outcome {
	var stdout, stderr bytes.Buffer
	code := Run(context.Background(), table, args, World{Env: env, Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr,
		Now: func() time.Time { return time.Unix(0, 0) }})
	return outcome{code, stdout.String(), stderr.String()}
}

// sendCommand has one flag of each sort and prints what it was given.
var sendCommand = Command{
	Name: "send", Args: "TOPIC [VALUE]", MinArgs: 1, MaxArgs: 2, Summary: "Send",
	Setup: func(fs *flag.FlagSet) RunFunc {
		var count, size int64
		var wait time.Duration
		CountVar(fs, &count, "count", 1, "`N` messages")
		Alias(fs, "n", "count")
		SizeVar(fs, &size, "size", 100, "`SIZE` of each")
		DurationVar(fs, &wait, "wait", time.Second, "`DURATION` between them")
		level := ChoiceVar(fs, "level", "durable", "`LEVEL`", "written", "none")
		dry := fs.Bool("dry", false, "send nothing")
		from := fs.String("from", "end", "`POSITION`")
		return func(_ context.Context, c *Call) error {
			_, err := fmt.Fprintf(c.Stdout, "%q n=%d size=%d wait=%s level=%s dry=%v from=%s addr=%s o=%s",
				c.Args, count, size, wait, *level, *dry, *from, c.Addr, &c.Output)
			return err
		}
	},
}

var topicsCommands = []Command{
	{Name: "topics ls", Summary: "List", Setup: func(*flag.FlagSet) RunFunc {
		return func(_ context.Context, c *Call) error { return c.Rows("topic").Flush() }
	}},
	{Name: "topics rm", Summary: "Remove", Setup: func(*flag.FlagSet) RunFunc {
		return func(context.Context, *Call) error { return WithCode(ExitDamage, nil) }
	}},
}

// versionCommand is what --version runs.
var versionCommand = Command{Name: "version", Summary: "Version", Setup: func(*flag.FlagSet) RunFunc {
	return func(_ context.Context, c *Call) error {
		_, err := fmt.Fprintln(c.Stdout, "millrace 1")
		return err
	}
}}

var testTable = append([]Command{sendCommand, Help, versionCommand}, topicsCommands...)

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
		require.Equal(t, outcome{ExitOK, want, ""}, got, order)
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
		require.Equal(t, ExitOK, got.code, got.stderr)
		require.Contains(t, got.stdout, `["orders"]`)
		require.Contains(t, got.stdout, "addr=h:1")
	}
	got := runLine(testTable, []string{"MILLRACE_ADDR=env:1"}, "send", "orders")
	require.Contains(t, got.stdout, "addr=env:1")
	got = runLine(testTable, nil, "-o", "json", "topics", "-q", "ls")
	require.Equal(t, outcome{ExitOK, "", ""}, got)
}

func TestWhatFollowsTwoDashesIsNoFlag(t *testing.T) {
	got := runLine(testTable, nil, "send", "--dry", "orders", "--", "--size")
	require.Equal(t, ExitOK, got.code, got.stderr)
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
		require.Equal(t, ExitUsage, got.code, line)
		require.Empty(t, got.stdout, line)
		require.Contains(t, got.stderr, want, line)
		require.Equal(t, 1, strings.Count(got.stderr, "\n"), line)
	}
}

func TestHelpIsReachableInEveryWay(t *testing.T) {
	for _, line := range []string{"help send", "send --help", "send -h", "send orders --size 3 -help", "--help send"} {
		got := runLine(testTable, nil, strings.Fields(line)...)
		require.Equal(t, ExitOK, got.code, line)
		require.Contains(t, got.stdout, "usage: millrace send [flags] TOPIC [VALUE]", line)
		require.Contains(t, got.stdout, "-n, --count N", line)
		require.Contains(t, got.stdout, "N messages (default 1)", line)
		require.Contains(t, got.stdout, "-a, --addr HOST:PORT", line)
	}
	for _, line := range []string{"help", "--help", "-h"} {
		got := runLine(testTable, nil, strings.Fields(line)...)
		require.Equal(t, ExitOK, got.code, line)
		require.Contains(t, got.stdout, "topics ls", line)
	}
	for _, line := range []string{"help topics", "topics --help"} {
		got := runLine(testTable, nil, strings.Fields(line)...)
		require.Equal(t, ExitOK, got.code, line)
		require.Contains(t, got.stdout, "topics rm", line)
		require.NotContains(t, got.stdout, "send", line)
	}
	require.Contains(t, runLine(testTable, nil, "--version").stdout, "millrace 1")
}

func TestErrorsEndTheProcessWithTheirCode(t *testing.T) {
	for _, test := range []struct {
		err  error
		code ExitCode
	}{
		{nil, ExitOK},
		{errors.New("x"), ExitRuntime},
		{Usagef("x"), ExitUsage},
		{fmt.Errorf("in: %w", WithCode(ExitDamage, errors.New("x"))), ExitDamage},
		{config.Problems{{Message: "x"}}, ExitConfig},
		{fmt.Errorf("x: %w", protocol.UnknownTopic), ExitNotFound},
		{fmt.Errorf("x: %w", protocol.UnknownPartition), ExitNotFound},
		{fmt.Errorf("x: %w", protocol.Corrupt), ExitDamage},
		{fmt.Errorf("x: %w", protocol.Timeout), ExitTimeout},
		{fmt.Errorf("x: %w", context.DeadlineExceeded), ExitTimeout},
		{&net.OpError{Op: "dial", Err: context.DeadlineExceeded}, ExitUnreachable},
		{&net.OpError{Op: "read", Err: io.EOF}, ExitRuntime},
	} {
		require.Equal(t, test.code, CodeOf(test.err), "%v", test.err)
	}
	require.Equal(t, outcome{ExitDamage, "", ""}, runLine(testTable, nil, "topics", "rm"))
}

func TestEndOfAWaitIsOneLine(t *testing.T) {
	cut := &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}
	for _, test := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("HELLO to h:1: %w", errors.Join(context.DeadlineExceeded, cut)), "HELLO to h:1: no answer in time"},
		{fmt.Errorf("HELLO to h:1: %w", errors.Join(context.Canceled, cut)), "HELLO to h:1: interrupted"},
		{WithCode(ExitUnreachable, errors.Join(context.DeadlineExceeded, cut)), "no answer in time"},
		{errors.Join(context.Canceled, errors.New("refused")), "interrupted; refused"},
		{errors.Join(errors.New("first"), fmt.Errorf("HELLO: %w", errors.Join(context.DeadlineExceeded, cut))), "first\nHELLO: no answer in time"},
		{errors.Join(errors.New("one"), errors.New("two")), "one\ntwo"},
		{fmt.Errorf("%w, then %w", context.Canceled, cut), "context canceled, then read tcp: i/o timeout"},
		{context.DeadlineExceeded, "context deadline exceeded"},
	} {
		var stderr bytes.Buffer
		printError(&stderr, test.err)
		require.Equal(t, "millrace: "+test.want+"\n", stderr.String())
	}
}

func TestDeadlineFollowsTheTimeoutFlag(t *testing.T) {
	ctx, cancel := (&Call{Timeout: time.Hour}).Deadline(context.Background())
	_, bounded := ctx.Deadline()
	require.True(t, bounded)
	cancel()
	ctx, cancel = (&Call{}).Deadline(context.Background())
	_, bounded = ctx.Deadline()
	require.False(t, bounded)
	cancel()
	require.Error(t, ctx.Err())
}

func TestDocumentNamesEveryCommandAndFlag(t *testing.T) {
	hidden := sendCommand
	hidden.Name, hidden.Hidden = "send secretly", true
	document := Document(append(testTable, hidden))
	for _, cmd := range append(testTable, hidden) {
		require.Equal(t, !cmd.Hidden, strings.Contains(document, "### millrace "+cmd.Name+"\n"), cmd.Name)
	}
	require.Contains(t, document, "| `-n, --count N` | N messages (default 1) |")
	require.Contains(t, document, "| 78 | bad configuration |")
}
