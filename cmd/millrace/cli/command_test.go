package cli

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
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/broker/config"
	"github.com/millrace-mq/millrace/client"
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
var versionCommand = Command{Name: "version", Summary: "Version", Offline: true, Setup: func(*flag.FlagSet) RunFunc {
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
		"-q":                         "no command",
		"sned x":                     `unknown command "sned"; did you mean send?`,
		"topic ls":                   `unknown command "topic"; did you mean topics?`,
		"topics lss":                 `unknown command "topics lss"; did you mean topics ls? (topics has ls, rm)`,
		"topics":                     "topics needs one of: ls, rm",
		"send orders --szie 3":       "send: unknown flag --szie; did you mean --size?",
		"send --xyzzy":               "send: unknown flag --xyzzy",
		"send orders --size":         "flag needs an argument: --size",
		"send orders --size big":     "for flag --size: ",
		"send orders -n 1MiB":        "not a number",
		"send orders --wait 3":       `no unit; try "3s"`,
		"send orders --level durabl": "not one of durable, written, none; did you mean durable?",
		"send orders -o xml":         "not one of text, json, csv",
		"send orders --progress x":   "not one of auto, never, json",
		"send":                       "send: at least 1 argument expected, got 0 arguments; usage: millrace send [flags] TOPIC [VALUE]",
		"send a b c":                 `send: unexpected argument "c"`,
		"help nothing":               `unknown command "nothing"`,
		"send orders --leve none":    "did you mean --level?",
		"send orders --dry=x":        "for --dry: ",
		"version -a h:1":             "version: unknown flag -a: this command asks no broker",
		"--timeout 3s version":       "version: unknown flag --timeout: this command asks no broker",
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
	for _, line := range []string{"", "help", "--help", "-h"} {
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
		{fmt.Errorf("x: %w", protocol.BadName), ExitUsage},
		{fmt.Errorf("x: %w", client.ErrAddr), ExitUsage},
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
		{fmt.Errorf("HELLO to h:1: %w", errors.Join(context.DeadlineExceeded, cut)), "h:1: no answer in time"},
		{fmt.Errorf("HELLO to h:1: %w", errors.Join(context.Canceled, cut)), "h:1: interrupted"},
		{WithCode(ExitUnreachable, errors.Join(context.DeadlineExceeded, cut)), "no answer in time"},
		{errors.Join(context.Canceled, errors.New("refused")), "interrupted; refused"},
		{errors.Join(errors.New("first"), fmt.Errorf("HELLO: %w", errors.Join(context.DeadlineExceeded, cut))), "first; no answer in time"},
		{errors.Join(errors.New("one"), errors.New("two")), "one; two"},
		{fmt.Errorf("%w, then %w", context.Canceled, cut), "interrupted, then read tcp: i/o timeout"},
		{context.DeadlineExceeded, "no answer in time"},
	} {
		var stderr bytes.Buffer
		(&Call{World: World{Stderr: &stderr}}).printError(test.err, false)
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

func TestFlagsOfABrokerAreNotOfferedWhereNoneIsAsked(t *testing.T) {
	help := runLine(testTable, nil, "version", "-h")
	require.NotContains(t, help.stdout, "--addr")
	require.NotContains(t, help.stdout, "--timeout")
	require.Contains(t, help.stdout, "--output")
	require.Contains(t, runLine(testTable, nil, "send", "-h").stdout, "--timeout")
}

func TestErrorTextsSayThingsOnceAndWithoutInnerNames(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for _, test := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("client: connect to h:1: %w", refused),
			"no broker at h:1 (connection refused); start one with millrace dev, or name another with --addr or MILLRACE_ADDR"},
		{fmt.Errorf("client: connect to h:1: %w", &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "h"}}),
			"no broker at h:1 (no such host); start one with millrace dev, or name another with --addr or MILLRACE_ADDR"},
		{fmt.Errorf("client: TOPIC_DESCRIBE: %w", &protocol.Error{Code: protocol.UnknownTopic, Detail: "topic t: broker: unknown topic"}),
			"UNKNOWN_TOPIC: topic t: unknown topic"},
		{Usagef("consume: --from: %w", &protocol.Error{Code: protocol.BadRequest, Detail: "position \"x\""}), `consume: --from: position "x"`},
		{Usagef("bench: %w", errors.New("bench: --clients 0")), "bench: --clients 0"},
		{errors.Join(errors.New("client: a: b"), errors.New("b"), errors.New("c")), "a: b; c"},
		{&client.DeliveryError{Topic: "t", Reason: context.DeadlineExceeded, Last: fmt.Errorf("client: connect to h:1: %w", refused)},
			"t/0: message not sent: no answer in time (last: connect to h:1: dial tcp: connect: connection refused)"},
	} {
		require.Equal(t, test.want, errorText(test.err))
	}
}

func TestErrorsAreJSONWhereJSONIsAsked(t *testing.T) {
	for _, test := range []struct {
		line, code string
		exit       ExitCode
	}{
		{"-o json send", "USAGE", ExitUsage}, {"send t --xyzzy --output=json", "USAGE", ExitUsage}, {"send t -o json --size big", "USAGE", ExitUsage},
	} {
		got := runLine(testTable, nil, strings.Fields(test.line)...)
		var facts errorFacts
		require.NoError(t, json.Unmarshal([]byte(got.stderr), &facts), got.stderr)
		require.Equal(t, [2]any{test.code, test.exit}, [2]any{facts.Code, facts.Exit})
		require.NotEmpty(t, facts.Error)
		require.Equal(t, test.exit, got.code)
	}
	require.NotContains(t, runLine(testTable, nil, "send", "--xyzzy", "--", "-o", "json").stderr, "{")
	require.Equal(t, "UNKNOWN_TOPIC", codeName(fmt.Errorf("x: %w", &protocol.Error{Code: protocol.UnknownTopic})))
	require.Equal(t, "CONFIG", codeName(config.Problems{{}}))
	require.Equal(t, "FAILED", codeName(errors.New("x")))
	require.Equal(t, "UNREACHABLE", codeName(&net.OpError{Op: "dial", Err: io.EOF}))
}

func TestHelpExplainsTopics(t *testing.T) {
	table := []Command{sendCommand, HelpWith(Topic{Name: "positions", Summary: "Where to begin", Text: "start\nend"})}
	require.Contains(t, runLine(table, nil, "help", "positions").stdout, "Where to begin.\n\nstart\nend\n")
	require.Contains(t, runLine(table, nil, "help", "postions").stderr, "did you mean positions?")
	require.Contains(t, runLine(table, nil, "help").stderr, "millrace help positions: Where to begin.")
}
