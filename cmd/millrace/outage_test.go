package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/broker/brokertest"
	"github.com/millrace-mq/millrace/client/clienttest"
	"github.com/millrace-mq/millrace/cmd/millrace/cli"
	"github.com/millrace-mq/millrace/protocol"
)

// runningLine is a command line that runs beside the test.
type runningLine struct {
	stdout, stderr sharedBuffer
	code           chan cli.ExitCode
}

func startLine(ctx context.Context, addr string, stdin io.Reader, args ...string) *runningLine {
	r := &runningLine{code: make(chan cli.ExitCode, 1)}
	go func() {
		r.code <- cli.Run(ctx, commands, args, cli.World{Env: []string{"MILLRACE_ADDR=" + addr}, Stdin: stdin, Stdout: &r.stdout, Stderr: &r.stderr, Now: time.Now})
	}()
	return r
}

func TestFollowerTellsOnceThatTheBrokerIsGoneAndBack(t *testing.T) {
	for _, quiet := range []bool{false, true} {
		b := brokertest.Start(t)
		must(t, b, "", "produce", "t", "before")
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		args := []string{"consume", "t", "--follow", "--from", "start"}
		if quiet {
			args = append(args, "-q")
		}
		r := startLine(ctx, b.Addr(), nil, args...)
		require.Eventually(t, func() bool { return r.stdout.String() == "before\n" }, patience, look)
		b.Restart(true)
		must(t, b, "", "produce", "t", "after")
		require.Eventually(t, func() bool { return r.stdout.String() == "before\nafter\n" }, patience, look)
		cancel()
		require.Equal(t, cli.ExitOK, <-r.code)
		want := 1
		if quiet {
			want = 0
		}
		require.Equal(t, want, strings.Count(r.stderr.String(), "connection to "+b.Addr()+" lost"), r.stderr.String())
		require.Equal(t, want, strings.Count(r.stderr.String(), "connected to "+b.Addr()+" again"), r.stderr.String())
	}
}

func TestConsumerThatLostTheBrokerSaysSo(t *testing.T) {
	b := brokertest.Start(t)
	must(t, b, "", "produce", "t", "a")
	r := startLine(context.Background(), b.Addr(), nil, "consume", "t", "-n", "2", "--timeout", "1s")
	require.Eventually(t, func() bool { return r.stdout.String() == "a\n" }, patience, look)
	b.Stop()
	require.Equal(t, cli.ExitUnreachable, <-r.code)
	require.Contains(t, r.stderr.String(), "the connection was lost and did not come back within 1s; 1 message read before")
}

func TestProducerTellsAtOnceThatTheDiskIsFull(t *testing.T) {
	s := clienttest.Listen(t)
	r := startLine(context.Background(), s.Addr(), strings.NewReader("a\n"), "produce", "t", "-", "--timeout", "2s")
	conn := s.Greet()
	conn.Open(1)
	full := &protocol.Error{Code: protocol.NoSpace, Detail: "the disk is full"}
	conn.RefuseRun(conn.Run(), full)
	require.Eventually(t, func() bool { return strings.Contains(r.stderr.String(), "NO_SPACE: the disk is full; trying again") }, patience, look)
	conn.Run() // again, which nobody answers
	require.Equal(t, cli.ExitTimeout, <-r.code)
	require.Equal(t, 1, strings.Count(r.stderr.String(), "trying again"))
	require.Regexp(t, `stopped at line 1 of standard input: 0 messages acknowledged, 1 failed: .*\(NO_SPACE since \d\d:\d\d:\d\d\)`, r.stderr.String())
	require.Contains(t, r.stderr.String(), "1 failed (1 UNKNOWN_OUTCOME)")
}

func TestConsumeWaitsForItsTopic(t *testing.T) {
	b := brokertest.Start(t)
	must(t, b, "", "topics", "create", "orders")
	for _, flags := range []string{"", "--follow", "-n 1"} {
		got := talk(b, "", append([]string{"consume", "order"}, strings.Fields(flags)...)...)
		require.Equal(t, cli.ExitNotFound, got.code)
		require.Contains(t, got.stderr, `UNKNOWN_TOPIC: there is no topic "order"; did you mean orders?; to make it: millrace topics create order, or produce to it first; --wait waits for it`)
	}
	got := talk(b, "", "consume", "order", "--wait", "--timeout", "50ms")
	require.Equal(t, cli.ExitTimeout, got.code)
	require.Contains(t, got.stderr, "within 50ms")

	r := startLine(context.Background(), b.Addr(), nil, "consume", "order", "--wait", "--follow", "-n", "2")
	require.Eventually(t, func() bool { return strings.Contains(r.stderr.String(), "waiting for the topic order") }, patience, look)
	must(t, b, "", "produce", "order", "a", "b")
	require.Equal(t, cli.ExitOK, <-r.code)
	require.Equal(t, "a\nb\n", r.stdout.String())
}

func TestOffsetIsCheckedInEveryPartitionBeforeAnythingIsPrinted(t *testing.T) {
	b := brokertest.Start(t)
	must(t, b, "", "topics", "create", "t", "-p", "2")
	must(t, b, "a\nb\nc\n", "produce", "t", "-", "-q", "--partition", "0")
	got := talk(b, "", "consume", "t", "--from", "2")
	require.Equal(t, outcome{cli.ExitRuntime, "", "millrace: OFFSET_OUT_OF_RANGE: offset 2 is outside: t/1 has [0, 0); " +
		"begin at start, end or -N, or name a partition with --partition\n"}, got)
	require.Equal(t, "c\n", must(t, b, "", "consume", "t", "--from", "2", "--partition", "0"))
	for line, want := range map[string]string{"--from 5 --to 2": "--to 2 lies before --from 5", "--from -1 --to -2": "lies before", "--from end --to start": "lies before",
		"--from @2026-01-02 --to @2026-01-01": "lies before"} {
		got := talk(b, "", append([]string{"consume", "t"}, strings.Fields(line)...)...)
		require.Equal(t, cli.ExitUsage, got.code, line)
		require.Contains(t, got.stderr, want)
	}
	got = talk(b, "", "consume", "t", "--from", "1", "--to", "1", "--partition", "0")
	require.Equal(t, outcome{cli.ExitOK, "", "--from and --to are the same: there is nothing between them\n"}, got)
}

func TestProduceSaysWhereItStopped(t *testing.T) {
	b := brokertest.Start(t)
	must(t, b, "", "topics", "create", "t", "max_message_bytes=1KiB")
	big := strings.Repeat("x", 2000)
	got := talk(b, "ok\n"+big+"\n", "produce", "t", "-")
	require.Contains(t, got.stderr, "stopped at line 2 of standard input: 1 message acknowledged, 1 failed")
	require.Contains(t, got.stderr, "1 failed (1 TOO_LARGE)")
	require.Contains(t, got.stderr, "raise it with: millrace topics set t max_message_bytes=2KiB")
	must(t, b, "", "topics", "set", "t", "max_message_bytes=2KiB")
	must(t, b, "", "produce", "t", big)

	file := filepath.Join(t.TempDir(), "big")
	require.NoError(t, os.WriteFile(file, []byte(big+big), 0o600))
	got = talk(b, "", "produce", "t", "a", "b", "--file", file)
	require.Contains(t, got.stderr, "stopped at "+file+", 2 of 3 were acknowledged: TOO_LARGE: ")
	require.Equal(t, 2, strings.Count(got.stdout, "\n"))

	got = talk(b, "ok\n"+big+big+"\n", "produce", "t", "-", "-o", "json")
	var facts streamFacts
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &facts))
	require.Equal(t, map[string]int64{"TOO_LARGE": 1}, facts.Errors)
	require.Contains(t, got.stderr, `"code":"TOO_LARGE","exit":1`)
	require.Equal(t, cli.ExitNotFound, talk(b, "", "produce", "t", "--file", t.TempDir()).code)
}

// sameLine is an input that says line for ever.
type sameLine struct{ line string }

// Read fills p from the line.
func (e sameLine) Read(p []byte) (int, error) { return copy(p, e.line), nil }

func TestProduceSaysThatTheInputWasNotReadToItsEnd(t *testing.T) {
	b := brokertest.Start(t)
	must(t, b, "", "topics", "create", "t", "max_message_bytes=1KiB")
	got := talkContext(context.Background(), b, sameLine{strings.Repeat("x", 1999) + "\n"}, "produce", "t", "-")
	require.Equal(t, cli.ExitRuntime, got.code)
	require.Contains(t, got.stderr, "and the input was not read to its end: TOO_LARGE")
}

func TestProducePrintsTheHeadOfCSVOnce(t *testing.T) {
	b := brokertest.Start(t)
	require.Regexp(t, `^topic,partition,offset,bytes,level,ms\nt,0,0,1,durable,[^,]+\nt,0,1,1,durable,[^,]+\nt,0,2,1,durable,[^,]+\n$`,
		must(t, b, "", "produce", "t", "a", "b", "c", "-o", "csv"))
}

func TestBadNamesAndAddressesAreUsageErrors(t *testing.T) {
	b := brokertest.Start(t)
	for _, line := range []string{"produce a/b x", "consume a/b", "topics show a/b", "topics rm a/b --yes", "topics create a/b", "topics set a/b partitions=2",
		"topics create a/b --dry-run", "topics set a/b partitions=2 --dry-run"} {
		got := talk(b, "", strings.Fields(line)...)
		require.Equal(t, cli.ExitUsage, got.code, "%s: %s", line, got.stderr)
	}
	for _, addr := range []string{"127.0.0.1", "h:x", "h:0"} {
		for _, verb := range []string{"health", "produce t a", "consume t", "topics ls"} {
			got := talk(b, "", append(strings.Fields(verb), "-a", addr)...)
			require.Equal(t, cli.ExitUsage, got.code, "%s: %s", verb, got.stderr)
			require.Contains(t, got.stderr, "bad address")
		}
	}
}
