package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/bench"
	"github.com/millrace-mq/millrace/cmd/millrace/cli"
)

// programVariable makes the test binary millrace itself, as the child processes of
// bench expect their own executable to be.
const programVariable = "MILLRACE_TEST_PROGRAM"

func init() {
	if os.Getenv(programVariable) == "1" {
		if err := os.Unsetenv(programVariable); err != nil {
			panic(err)
		}
		main()
	}
}

// runBenchLine runs a command line whose children are this binary. The broker of --self
// has its data in a directory of the test, which must be empty again at the end.
func runBenchLine(t *testing.T, args ...string) outcome {
	t.Helper()
	t.Setenv(programVariable, "1")
	dir := t.TempDir()
	args = append(args, "--self-dir", dir)
	var stdout, stderr bytes.Buffer
	code := cli.Run(t.Context(), commands, args, cli.World{Env: os.Environ(), Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr, Now: time.Now})
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Empty(t, left, "the broker's directory is removed")
	return outcome{code, stdout.String(), stderr.String()}
}

func TestBenchE2EWritesTheObjectScriptsRelyOn(t *testing.T) {
	file, receipts := filepath.Join(t.TempDir(), "e2e.json"), filepath.Join(t.TempDir(), "receipts")
	got := runBenchLine(t, "bench", "e2e", "-n", "2k", "--clients", "3", "--batch", "50", "--verify", "--self", "--seed", "5", "--json", file, "--receipts", receipts, "-q")
	require.Equal(t, cli.ExitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, "verify     0 lost, 0 doubled, 0 reordered, 0 altered\n")
	require.Empty(t, got.stderr)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var object map[string]any
	require.NoError(t, json.Unmarshal(text, &object))
	for name, want := range map[string]any{"schema": 1.0, "scenario": "e2e", "messages": 2000.0, "acked": 2000.0, "size": 100.0,
		"clients": 3.0, "batch": 50.0, "level": "durable", "seed": 5.0} {
		require.Equal(t, want, object[name], name)
	}
	for _, name := range []string{"seconds", "rate", "bytes_per_second"} {
		require.Positive(t, object[name], name)
	}
	require.Contains(t, object["latency_us"], "p999")
	require.Equal(t, map[string]any{"lost": 0.0, "duplicated": 0.0, "reordered": 0.0, "altered": 0.0}, object["verify"])
	require.Positive(t, object["broker"].(map[string]any)["cpu_seconds"])
	require.Positive(t, object["broker"].(map[string]any)["rss_peak_bytes"])
	require.NotEmpty(t, object["kernel"])
	require.NotEqual(t, "unknown", object["file_system"], "the disk of the broker's data")
	lines, err := bench.ReadReceipts(receipts)
	require.NoError(t, err)
	require.Len(t, lines, 1)
}

func TestBenchRunsEachScenario(t *testing.T) {
	for name, c := range map[string]struct {
		args string
		want string
	}{
		"produce": {"produce -n 3000 --durable written --repeat 2", "produce  3.00k of 3.00k messages, 100 B each, 10 clients, batches of 100, written, 96 in flight each\n"},
		"consume": {"consume -n 3000 --clients 2", "consume  6.00k of 6.00k messages, 100 B each, 2 clients\n"},
		"latency": {"latency -n 100 --rate 10k --durable written --verify", "100 messages, 100 B each, 1 client, batches of 1, written, 10.0k/s asked for\n"},
		"both":    {"e2e -n 1000 --simultaneous --partitions 3 --lockstep --verify", ", lockstep, 3 partitions\n"},
		"ratio":   {"ratio -n 2000 --clients 2 --repeat 1", "TIMES BETTER"},
	} {
		t.Run(name, func(t *testing.T) {
			got := runBenchLine(t, append([]string{"bench", "--self", "-q"}, strings.Fields(c.args)...)...)
			require.Equal(t, cli.ExitOK, got.code, got.stderr)
			require.Contains(t, got.stdout, c.want)
		})
	}
}

// A broker that dies in the middle leaves a report of what was acknowledged, and what
// was acknowledged can be checked for afterwards.
func TestBenchOfADyingBrokerReportsWhatWasAcked(t *testing.T) {
	t.Setenv(programVariable, "1")
	broker := startTestBroker(t)
	file := filepath.Join(t.TempDir(), "cut.json")
	killed := make(chan error, 1)
	stderr := &watchedBuffer{onWrite: func(all string) bool {
		// The first progress line that shows messages.
		return strings.Contains(all, `"done":`) && !strings.HasSuffix(all[:strings.LastIndex(all, `"total"`)], `"done":0,`)
	}, then: func() { killed <- broker.Kill() }}
	var stdout bytes.Buffer
	code := cli.Run(context.Background(), commands, []string{"bench", "produce", "-n", "1G", "--addr", broker.Addr(), "--topic", "t", "--json", file, "--progress", "json"},
		cli.World{Env: os.Environ(), Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: stderr, Now: time.Now})
	require.NoError(t, <-killed)
	require.Equal(t, cli.ExitRuntime, code)
	require.Contains(t, stdout.String(), "cut short")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var report bench.Report
	require.NoError(t, json.Unmarshal(text, &report))
	require.Positive(t, report.Acked)
	require.Less(t, report.Acked, report.Messages)
	require.NotEmpty(t, report.Error)
	spans, _, _, err := bench.ReadSpans(file)
	require.NoError(t, err)
	require.NotEmpty(t, spans)
}

// startTestBroker runs a broker in a process of its own.
func startTestBroker(t *testing.T) *bench.BrokerProcess {
	t.Helper()
	b, err := bench.StartBroker(t.Context(), t.TempDir(), func(dataDir, portFile string) []string {
		return []string{os.Args[0], "server", "--data-dir", dataDir, "--listen", "127.0.0.1:0", "--port-file", portFile}
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Stop()) })
	return b
}

// watchedBuffer calls then once, when onWrite first likes what was written so far.
type watchedBuffer struct {
	all     strings.Builder
	onWrite func(all string) bool
	then    func()
}

func (w *watchedBuffer) Write(b []byte) (int, error) {
	n, err := w.all.Write(b)
	if w.then != nil && w.onWrite(w.all.String()) {
		w.then()
		w.then = nil
	}
	return n, err
}

func TestBenchEndsWithItsSignal(t *testing.T) {
	t.Setenv(programVariable, "1")
	broker := startTestBroker(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stderr := &watchedBuffer{onWrite: func(all string) bool { return strings.Contains(all, `"label":"produce"`) }, then: cancel}
	var stdout bytes.Buffer
	code := cli.Run(ctx, commands, []string{"bench", "produce", "-n", "1G", "--addr", broker.Addr(), "--progress", "json", "-o", "json"},
		cli.World{Env: os.Environ(), Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: stderr, Now: time.Now})
	require.Equal(t, cli.ExitRuntime, code)
	var report bench.Report
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &report))
	require.Contains(t, report.Error, "canceled")
	require.NotContains(t, strings.Join(report.Harness, "\n"), "not visible")
	left := runLine(commands, nil, "topics", "ls", "--addr", broker.Addr())
	require.NotContains(t, left.stdout, "bench-", "its topic is deleted")
	require.NoError(t, syscall.Kill(broker.PID(), 0), "the broker is none of its business")
}

// A topic that cannot be deleted is named, with the command that does it.
func TestBenchOfADyingBrokerNamesTheTopicItLeaves(t *testing.T) {
	t.Setenv(programVariable, "1")
	broker := startTestBroker(t)
	killed := make(chan error, 1)
	stderr := &watchedBuffer{onWrite: func(all string) bool { return strings.Contains(all, `"label":"produce"`) }, then: func() { killed <- broker.Kill() }}
	code := cli.Run(t.Context(), commands, []string{"bench", "produce", "-n", "1G", "--addr", broker.Addr(), "--progress", "json"},
		cli.World{Env: os.Environ(), Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: stderr, Now: time.Now})
	require.NoError(t, <-killed)
	require.Equal(t, cli.ExitRuntime, code)
	require.Regexp(t, `to delete it: millrace topics rm bench-produce-[0-9a-f]{12} --yes --addr `+broker.Addr()+"\n", stderr.all.String())
}

func TestBenchRefusesWhatItCannotRun(t *testing.T) {
	for args, want := range map[string]string{
		"produce --size 3":                "values of 3 bytes, want 16",
		"produce --clients 0":             "0 clients",
		"produce --repeat 0":              "--repeat 0",
		"produce --durable everywhere":    "not one of durable, written, none, quorum",
		"latency --partitions 2":          "one client to one partition",
		"consume --expect /dev/null":      "malformed receipt",
		"produce --size 2MiB --batch 100": "--batch 100: a frame holds at most 1 message of 2097152 bytes; --batch 1 fits",
		"produce --batch 0":               "batches of 0 messages",
		"produce --size 0":                "millrace: bench: argument out of range: values of 0 bytes, want 16 to 16777216 bytes\n",
		"produce --size 20MiB":            "values of 20971520 bytes, want 16 to 16777216 bytes\n",
		"produce -n 0":                    "-n 0: nothing to measure",
		"consume -n 0":                    "-n 0: nothing to measure",
		"e2e -n 0":                        "-n 0: nothing to measure",
		"latency --messages 0":            "-n 0: nothing to measure",
		"ratio -n 0":                      "-n 0: nothing to measure",
		"produce --json /dev/null/x":      "--json: open /dev/null/x",
		"produce --receipts /dev/null/x":  "--receipts: open /dev/null/x",
		"ratio --json /dev/null/x":        "--json: open /dev/null/x",
		"ceiling --json /dev/null/x":      "--json: open /dev/null/x",
	} {
		got := runLine(commands, nil, append([]string{"bench"}, strings.Fields(args)...)...)
		require.Contains(t, got.stderr, want, args)
		require.NotEqual(t, cli.ExitOK, got.code)
	}
	got := runLine(commands, nil, "bench", "produce", "--addr", "127.0.0.1:1")
	require.Equal(t, cli.ExitUnreachable, got.code, got.stderr)
}

func TestBenchLimitsTheDefaultBatch(t *testing.T) {
	for args, want := range map[string]int{"-n 1M": 100, "-n 25 --clients 10": 3, "-n 10": 1, "-n 1M --size 2MiB": 1, "-n 1M --size 100KiB": 40, "-n 1000 --clients 1 --batch 5000": 1000} {
		f := &benchFlags{shape: bench.Shape{Messages: 1_000_000, Clients: 10, Batch: 100}}
		fs := flag.NewFlagSet("", flag.ContinueOnError)
		f.register(fs)
		f.registerLoad(fs)
		require.NoError(t, fs.Parse(strings.Fields(args)))
		require.NoError(t, f.complete(), args)
		require.Equal(t, want, f.shape.Batch, args)
	}
}

func TestBenchConsumeOfAnUnknownTopicIsAnErrorAlone(t *testing.T) {
	t.Setenv(programVariable, "1")
	got := runLine(commands, nil, "bench", "consume", "--topic", "nope", "--addr", startTestBroker(t).Addr())
	require.Equal(t, cli.ExitNotFound, got.code)
	require.Empty(t, got.stdout)
	require.Equal(t, 1, strings.Count(got.stderr, "\n"), got.stderr)
}

func TestBenchListsNoInternalVerbs(t *testing.T) {
	for _, line := range [][]string{{"bench"}, {"bench", "foo"}, {"help", "bench"}, {"foo"}} {
		got := runLine(commands, nil, line...)
		require.NotContains(t, got.stdout+got.stderr, "per-frame-broker", line)
		require.NotContains(t, got.stdout+got.stderr, "consumer-process", line)
	}
}

func TestBenchCeilingPrintsTheLimitsOfThisMachine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ceiling.json")
	got := runLine(commands, nil, "bench", "ceiling", t.TempDir(), "--budget", "1ms", "--json", file, "-o", "json")
	require.Equal(t, cli.ExitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, bench.CeilingSendfile)
	all, err := bench.ReadReceipts(file)
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.NotEmpty(t, all[0].Ceiling)
	got = runLine(commands, nil, "bench", "ceiling", "--addr", "127.0.0.1:1")
	require.Equal(t, cli.ExitUsage, got.code, "no broker has a part in it")
}
