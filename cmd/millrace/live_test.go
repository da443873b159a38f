package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/broker"
	"github.com/millrace-mq/millrace/broker/brokertest"
	"github.com/millrace-mq/millrace/client/clienttest"
	"github.com/millrace-mq/millrace/cmd/millrace/cli"
	"github.com/millrace-mq/millrace/cmd/millrace/inspect"
	"github.com/millrace-mq/millrace/protocol"
)

// talk runs a command line against a broker.
func talk(b *brokertest.Broker, stdin string, args ...string) outcome {
	return talkContext(context.Background(), b, strings.NewReader(stdin), args...)
}

func talkContext(ctx context.Context, b *brokertest.Broker, stdin io.Reader, args ...string) outcome {
	var stdout, stderr bytes.Buffer
	code := cli.Run(ctx, commands, args, cli.World{Env: []string{"MILLRACE_ADDR=" + b.Addr()}, Stdin: stdin, Stdout: &stdout, Stderr: &stderr, Now: time.Now})
	return outcome{code, stdout.String(), stderr.String()}
}

// must runs a command line that succeeds and returns its output.
func must(t *testing.T, b *brokertest.Broker, stdin string, args ...string) string {
	t.Helper()
	got := talk(b, stdin, args...)
	require.Equal(t, cli.ExitOK, got.code, "%v: %s", args, got.stderr)
	return got.stdout
}

func TestFirstTwoMinutes(t *testing.T) {
	b := brokertest.Start(t)
	require.Regexp(t, `^hello/0@0  5 B  durable  \d+\.\d ms\n$`, must(t, b, "", "produce", "hello", "world"))
	require.Equal(t, "world\n", must(t, b, "", "consume", "hello", "--from", "start", "-n", "1"))
	require.Regexp(t, `(?s)^state +ok\naddress +`+b.Addr()+`\n.*\ntopics +1\npartitions +1\nconnections +\d+\n`, must(t, b, "", "health"))
}

func TestProduceSendsArgumentsFilesAndHeaders(t *testing.T) {
	b := brokertest.Start(t)
	file := filepath.Join(t.TempDir(), "m")
	require.NoError(t, os.WriteFile(file, []byte("two\nlines\xff"), 0o600))
	out := must(t, b, "", "produce", "t", "a", "", "--file", file, "-k", "key", "-H", "x:1", "-H", "y: z:w", "--durable", "written", "-o", "json")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 3)
	var sent sentFacts
	require.NoError(t, json.Unmarshal([]byte(lines[2]), &sent))
	require.Equal(t, uint64(2), *sent.Offset)
	require.Equal(t, 10, sent.Bytes)
	require.Equal(t, "durable", sent.Level) // the topic's floor
	require.Equal(t, `key|a|x=1,y=z:w;key||x=1,y=z:w;key|two`+"\nlines\xff"+`|x=1,y=z:w;`, must(t, b, "", "consume", "t", "-f", `%k|%s|%h;`))
}

func TestProduceWithoutAcknowledgementHasNoOffset(t *testing.T) {
	b := brokertest.Start(t)
	must(t, b, "", "topics", "create", "t", "durability=none")
	require.Regexp(t, `^t/0  1 B  none  `, must(t, b, "", "produce", "t", "a", "--durable", "none"))
	require.Contains(t, must(t, b, "", "produce", "t", "a", "--durable", "none", "-o", "json"), `"offset":null`)
	require.Equal(t, "a\na\n", must(t, b, "", "consume", "t", "-n", "2"))
}

func TestProduceReadsLines(t *testing.T) {
	b := brokertest.Start(t)
	got := talk(b, "k1=a=b\n=c\nplain\n\nlast", "produce", "t", "--split-key", "=", "--partition", "0")
	require.Equal(t, cli.ExitOK, got.code, got.stderr)
	require.Empty(t, got.stdout)
	require.Contains(t, got.stderr, "5 records acknowledged, 0 failed")
	require.Equal(t, "k1|a=b\n|c\n|plain\n|\n|last\n", must(t, b, "", "consume", "t", "-f", `%k|%s\n`))
	require.Equal(t, "2\n0\n-1\n-1\n-1\n", must(t, b, "", "consume", "t", "-f", `%K\n`))

	out := must(t, b, "x\ny\n", "produce", "t", "-", "--count", "500", "-q", "-o", "json")
	var facts streamFacts
	require.NoError(t, json.Unmarshal([]byte(out), &facts))
	require.Equal(t, int64(1000), facts.Records)
	require.Equal(t, int64(1000), facts.Bytes)
	require.Equal(t, strings.Repeat("x\n", 500)+strings.Repeat("y\n", 500), must(t, b, "", "consume", "t", "--from", "5"))
	must(t, b, "", "produce", "t", "once", "--count", "3", "-q")
	require.Equal(t, "once\nonce\nonce\n", must(t, b, "", "consume", "t", "--from", "-3"))
}

func TestProduceRefusesWhatMakesNoSense(t *testing.T) {
	b := brokertest.Start(t)
	for line, want := range map[string]string{
		"produce t a --split-key =":            "--split-key",
		"produce t - --split-key = -k x":       "--split-key",
		"produce t a --count 0":                "nothing to send",
		"produce t a --durable durabel":        "did you mean durable?",
		"produce t a --partition 5000":         "0 to 1023",
		"produce t a -H novalue":               "NAME:VALUE",
		"consume t --to end --follow":          "one of them",
		"consume t --from nowhere":             "-100",
		"consume t --to -x":                    "-100",
		"consume t -f %z":                      "%t topic",
		"consume t -f %s -o json":              "text only",
		"topics set t":                         "no setting",
		"topics set t retention=forever":       "not a duration",
		"topics create _own":                   "underscore",
		"topics create t segment_bytes=1 -p 1": "64KiB",
		"topics ls [":                          "pattern",
	} {
		got := talk(b, "", strings.Fields(line)...)
		require.Equal(t, cli.ExitUsage, got.code, "%s: %s", line, got.stderr)
		require.Contains(t, got.stderr, want, line)
	}
	got := talk(b, "", "produce", "t", "--file", filepath.Join(t.TempDir(), "none"))
	require.Equal(t, cli.ExitNotFound, got.code)
	require.Empty(t, must(t, b, "", "topics", "ls", "-o", "json"))
}

func TestProduceEndsAtTheFirstRefusal(t *testing.T) {
	b := brokertest.Start(t)
	must(t, b, "", "topics", "create", "t", "max_message_bytes=1KiB")
	got := talk(b, "ok\n"+strings.Repeat("x", 2000)+"\n", "produce", "t", "-")
	require.Equal(t, cli.ExitRuntime, got.code)
	require.Contains(t, got.stderr, "TOO_LARGE")
	require.Contains(t, got.stderr, "1 record acknowledged")
	require.Equal(t, "ok\n", must(t, b, "", "consume", "t"))

	got = talk(b, "", "produce", "t", "a", "--partition", "7")
	require.Equal(t, cli.ExitNotFound, got.code)
	require.Contains(t, got.stderr, "UNKNOWN_PARTITION: topic t, partition 7: ")
	require.Equal(t, 1, strings.Count(got.stderr, "partition 7"))
	require.Contains(t, got.stderr, "millrace topics show t lists them")
}

func TestInterruptedProducerSeesThroughWhatItHasTaken(t *testing.T) {
	b := brokertest.Start(t)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer func() { require.NoError(t, errors.Join(r.Close(), w.Close())) }()
	_, err = w.WriteString("a\nb\nhalf a li")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	result := make(chan outcome, 1)
	go func() { result <- talkContext(ctx, b, r, "produce", "t", "-") }()
	require.Eventually(t, func() bool { return talk(b, "", "consume", "t").stdout == "a\nb\n" }, patience, look)
	cancel()
	got := <-result
	require.Equal(t, cli.ExitRuntime, got.code)
	require.Contains(t, got.stderr, "2 records acknowledged")
	require.Contains(t, got.stderr, "interrupted after 2 messages")
	require.Equal(t, "a\nb\n", must(t, b, "", "consume", "t"))
}

func TestTopicsAreNotMadeWhereCreationIsOff(t *testing.T) {
	b := brokertest.Start(t, brokertest.Options{Broker: func(o *broker.Options) { o.AutoCreate = func(string) bool { return false } }})
	got := talk(b, "", "produce", "t", "a")
	require.Equal(t, cli.ExitNotFound, got.code)
	require.Contains(t, got.stderr, "UNKNOWN_TOPIC")
	require.Equal(t, cli.ExitNotFound, talk(b, "", "consume", "t").code)
	require.Equal(t, cli.ExitNotFound, talk(b, "", "topics", "show", "t").code)
}

func TestConsumeFromAndToPositions(t *testing.T) {
	b := brokertest.Start(t)
	must(t, b, "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n", "produce", "t", "-", "-q")
	for flags, want := range map[string]string{
		"":                             "0123456789",
		"--from start --to end":        "0123456789",
		"--from 3 --to 6":              "345",
		"--from -2":                    "89",
		"--from -2 --to -1":            "8",
		"--to 3 --from start":          "012",
		"--from end":                   "",
		"-n 4":                         "0123",
		"-n 4 --from 5 --to end":       "5678",
		"--from 8 -n 10 --to end":      "89",
		"--from -1h --to @2100-01-01":  "0123456789",
		"--follow --from 2 -n 3":       "234",
		"--partition 0 --count-max 1M": "0123456789",
	} {
		args := append([]string{"consume", "t", "-f", "%s", "--timeout", "5s"}, strings.Fields(flags)...)
		if flags == "--partition 0 --count-max 1M" {
			args = append(args, "--to", "end")
		}
		require.Equal(t, want, must(t, b, "", args...), flags)
	}
	got := talk(b, "", "consume", "t", "--from", "11")
	require.Equal(t, cli.ExitRuntime, got.code)
	require.Contains(t, got.stderr, "OFFSET_OUT_OF_RANGE")
	require.Equal(t, cli.ExitNotFound, talk(b, "", "consume", "t", "--partition", "3").code)
}

func TestConsumeCounts(t *testing.T) {
	b := brokertest.Start(t)
	must(t, b, "", "topics", "create", "t", "-p", "2")
	require.Equal(t, `{"records":0,"first":null,"last":null,"partitions":[{"partition":0,"records":0,"first":null,"last":null},`+
		`{"partition":1,"records":0,"first":null,"last":null}]}`+"\n", must(t, b, "", "consume", "t", "--count"))
	must(t, b, "a\nb\nc\n", "produce", "t", "-", "-q", "--partition", "1")
	require.Equal(t, `{"records":3,"first":0,"last":2,"partitions":[{"partition":0,"records":0,"first":null,"last":null},`+
		`{"partition":1,"records":3,"first":0,"last":2}]}`+"\n", must(t, b, "", "consume", "t", "--count", "-o", "json"))
	require.Equal(t, `{"records":2,"first":1,"last":2}`+"\n", must(t, b, "", "consume", "t", "--count", "--from", "1", "--partition", "1"))
	require.Equal(t, "records,first,last\n3,0,2\n", must(t, b, "", "consume", "t", "--count", "-o", "csv"))
}

func TestConsumePrintsJSONAndCSV(t *testing.T) {
	b := brokertest.Start(t)
	must(t, b, "", "produce", "t", "-k", "k", "-H", "h:v", "hello", "by\xffe")
	lines := strings.Split(strings.TrimSpace(must(t, b, "", "consume", "t", "-o", "json")), "\n")
	require.Len(t, lines, 2)
	require.Regexp(t, `^{"topic":"t","partition":0,"offset":0,"timestamp":"20[^"]+Z","key":"k","value":"hello","headers":\[{"name":"h","value":"v"}\]}$`, lines[0])
	require.Contains(t, lines[1], `"value_base64":"Ynn/ZQ=="`)
	require.Regexp(t, `^topic,partition,offset,timestamp,key,key_base64,value,value_base64,headers\nt,0,0,20[^,]+Z,k,,hello,,"\[{""name"":""h"",""value"":""v""}\]"\nt,0,1,`,
		must(t, b, "", "consume", "t", "-o", "csv"))
}

func TestConsumeGivesUpAfterSilence(t *testing.T) {
	b := brokertest.Start(t)
	must(t, b, "", "produce", "t", "a")
	got := talk(b, "", "consume", "t", "-n", "2", "--timeout", "50ms")
	require.Equal(t, cli.ExitTimeout, got.code)
	require.Equal(t, "a\n", got.stdout)
	require.Contains(t, got.stderr, "50ms of silence after 1 message")
	require.Equal(t, cli.ExitTimeout, talk(b, "", "consume", "t", "--follow", "--timeout", "50ms").code)
}

// notingWriter tells when something was written.
type notingWriter struct {
	bytes.Buffer
	wrote chan string
}

func (w *notingWriter) Write(p []byte) (int, error) {
	w.wrote <- string(p)
	return len(p), nil
}

func TestFollowShowsMessagesAsTheyComeUntilItIsInterrupted(t *testing.T) {
	b := brokertest.Start(t)
	must(t, b, "", "produce", "t", "before")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	out := &notingWriter{wrote: make(chan string, 100)}
	code := make(chan cli.ExitCode, 1)
	go func() {
		code <- cli.Run(ctx, commands, []string{"consume", "t", "--follow", "--from", "-1"},
			cli.World{Env: []string{"MILLRACE_ADDR=" + b.Addr()}, Stdout: out, Stderr: io.Discard, Now: time.Now})
	}()
	require.Equal(t, "before\n", <-out.wrote)
	must(t, b, "", "produce", "t", "after")
	require.Equal(t, "after\n", <-out.wrote)
	cancel()
	require.Equal(t, cli.ExitOK, <-code)
}

func TestTopicsAreCreatedShownChangedAndRemoved(t *testing.T) {
	b := brokertest.Start(t)
	out := must(t, b, "", "topics", "create", "orders", "-p", "3", "--retention", "30d", "segment_bytes=64MiB", "--set", "durability=written")
	require.Contains(t, out, "partitions         3\n")
	require.Contains(t, out, "retention          30d\n")
	require.Contains(t, out, "segment_bytes      64MiB\n")
	require.Regexp(t, `\n        2  ok  `, out)
	got := talk(b, "", "topics", "create", "orders")
	require.Equal(t, cli.ExitRuntime, got.code)
	require.Contains(t, got.stderr, "EXISTS")
	must(t, b, "", "topics", "create", "orders", "-p", "3", "--if-missing")
	require.Equal(t, cli.ExitRuntime, talk(b, "", "topics", "create", "orders", "-p", "4", "--if-missing").code)
	require.Contains(t, must(t, b, "", "topics", "create", "new", "-p", "2", "--dry-run"), "partitions")
	require.Equal(t, cli.ExitNotFound, talk(b, "", "topics", "show", "new").code)
	for _, line := range []string{"topics create orders", "topics create orders -p 4 --if-missing", "topics set orders partitions=1", "topics set none partitions=2",
		"topics set orders partitions=5000", "topics create orders -p 3 --if-missing", "topics create a/b", "topics create x segment_bytes=1"} {
		done, dry := talk(b, "", strings.Fields(line)...), talk(b, "", append(strings.Fields(line), "--dry-run")...)
		require.Equal(t, done.code, dry.code, "%s: %s", line, dry.stderr)
		require.Equal(t, done.stderr, dry.stderr, line)
	}

	must(t, b, "", "produce", "orders", "-k", "x", "hello")
	var facts topicFacts
	require.NoError(t, json.Unmarshal([]byte(must(t, b, "", "topics", "show", "orders", "-o", "json")), &facts))
	require.Equal(t, "orders", facts.Topic)
	require.Equal(t, "written", facts.Settings["durability"])
	require.Equal(t, float64(30*24*3600*1000), facts.Settings["retention"])
	require.Len(t, facts.Partitions, 3)
	total := uint64(0)
	for _, p := range facts.Partitions {
		total += p.Records
	}
	require.Equal(t, uint64(1), total)
	require.Equal(t, "topic,partitions,records,bytes\norders,3,1,", must(t, b, "", "topics", "ls", "or*", "-o", "csv")[:len("topic,partitions,records,bytes\norders,3,1,")])
	require.Empty(t, must(t, b, "", "topics", "ls", "x*", "-o", "json"))

	require.JSONEq(t, `{"setting":"partitions","before":"3","after":"5"}`, must(t, b, "", "topics", "set", "orders", "partitions=5", "--dry-run", "-o", "json"))
	require.JSONEq(t, `{"setting":"retention","before":"30d","after":"1d12h"}`, must(t, b, "", "topics", "set", "orders", "--retention", "1d12h", "-o", "json"))
	got = talk(b, "", "topics", "set", "orders", "partitions=1")
	require.Equal(t, cli.ExitRuntime, got.code)
	require.Contains(t, got.stderr, "raised, not lowered")
}

func TestRemovingATopicAsksForItsName(t *testing.T) {
	b := brokertest.Start(t)
	must(t, b, "", "produce", "t", "a")
	for _, stdin := range []string{"", "y\n", "yes\n", "T\n"} {
		got := talk(b, stdin, "topics", "rm", "t")
		require.Equal(t, cli.ExitRuntime, got.code)
		require.Contains(t, got.stderr, "nothing was removed")
		require.Contains(t, got.stderr, "1 partition and 1 record (")
	}
	require.Contains(t, must(t, b, "", "topics", "rm", "t", "--dry-run"), "would remove t: 1 partition, 1 record,")
	require.Equal(t, "a\n", must(t, b, "", "consume", "t"))
	must(t, b, "t\n", "topics", "rm", "t")
	require.Equal(t, cli.ExitNotFound, talk(b, "", "consume", "t").code)
	must(t, b, "", "produce", "t", "b")
	require.Contains(t, must(t, b, "", "topics", "rm", "t", "--yes", "-o", "json"), `"dry_run":false`)
	require.Equal(t, cli.ExitNotFound, talk(b, "", "topics", "rm", "t", "--yes").code)
}

func TestHealthTellsABrokerFromNone(t *testing.T) {
	b := brokertest.Start(t)
	var facts healthFacts
	require.NoError(t, json.Unmarshal([]byte(must(t, b, "", "health", "-o", "json")), &facts))
	require.True(t, facts.OK)
	require.Equal(t, b.Addr(), facts.Addr)
	require.Equal(t, fmt.Sprintf("%016x", b.Broker.NodeID()), facts.NodeID)
	require.Equal(t, uint64(os.Getpid()), facts.Stats["pid"])

	for _, verb := range [][]string{{"health"}, {"produce", "t", "a"}, {"consume", "t"}, {"topics", "ls"}} {
		got := runLine(commands, nil, append(verb, "-a", unusedAddr(t))...)
		require.Equal(t, cli.ExitUnreachable, got.code, "%v: %s", verb, got.stderr)
		require.Contains(t, got.stderr, "refused")
		require.Empty(t, got.stdout)
	}
}

func TestHealthNamesWhatIsWrong(t *testing.T) {
	for name, want := range map[string]string{"storage_failures": "the disk failed under 1 partition", "disk_full": "the disk is full", "partitions_damaged": "1 partition damaged"} {
		s := clienttest.Listen(t)
		r := startLine(context.Background(), s.Addr(), nil, "health")
		conn := s.Greet()
		conn.Reply(conn.Request(protocol.OpStats), &protocol.Stats{Items: []protocol.Stat{{Name: name, Value: 1}}})
		require.Equal(t, cli.ExitRuntime, <-r.code)
		require.Contains(t, r.stdout.String(), "NOT OK")
		require.Contains(t, r.stdout.String(), want)
		require.Equal(t, 1, strings.Count(r.stdout.String(), "problem"))
		require.Empty(t, r.stderr.String())
	}
}

// A server that accepts and says nothing is one line, not the two errors of a wait cut short.
func TestServerThatDoesNotAnswerIsOneLine(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	for verb, code := range map[string]cli.ExitCode{"health": cli.ExitUnreachable, "topics ls": cli.ExitTimeout} {
		got := runLine(commands, nil, append(strings.Fields(verb), "-a", l.Addr().String(), "--timeout", "50ms")...)
		require.Equal(t, outcome{code, "", "millrace: " + l.Addr().String() + ": no answer in time\n"}, got, verb)
	}
}

func TestHealthIsNotFooledByAnotherServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() {
		nc, err := l.Accept()
		if err == nil {
			_, err = nc.Write([]byte("220 mail.example ESMTP\r\n--------------------------"))
			_ = nc.Close()
		}
		served <- err
	}()
	got := runLine(commands, nil, "health", "-a", l.Addr().String(), "--timeout", "5s")
	require.Equal(t, cli.ExitUnreachable, got.code)
	require.NoError(t, <-served)
	require.NoError(t, l.Close())
}

// unusedAddr is an address where nobody listens.
func unusedAddr(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// frameRow is a row of "dump -o json".
type frameRow struct {
	Pos  int64  `json:"pos"`
	Kind string `json:"kind"`
}

// dumpRows dumps a log in which everything holds.
func dumpRows(t *testing.T, args ...string) []frameRow {
	t.Helper()
	got := runLine(commands, nil, append([]string{"dump", "-o", "json"}, args...)...)
	require.Equal(t, cli.ExitOK, got.code, got.stderr)
	var rows []frameRow
	for line := range strings.Lines(got.stdout) {
		var row frameRow
		require.NoError(t, json.Unmarshal([]byte(line), &row), line)
		rows = append(rows, row)
	}
	return rows
}

func TestDumpRefusesFlagsThatMakeNoSense(t *testing.T) {
	for args, want := range map[string]string{"--hex -o json": "text only", "--hex -o csv": "text only", "-n -1": "not a number of frames"} {
		got := runLine(commands, nil, append([]string{"dump", os.DevNull}, strings.Fields(args)...)...)
		require.Equal(t, cli.ExitUsage, got.code, args)
		require.Contains(t, got.stderr, want)
	}
}

func TestDumpAndVerifyReadWhatABrokerWrote(t *testing.T) {
	b := brokertest.Start(t)
	must(t, b, "a\nb\nc\n", "produce", "t", "-", "-q")
	files, err := filepath.Glob(filepath.Join(b.Dir(), "topics", "t.*", "0", "*.wal"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	// beside the running broker
	rows := dumpRows(t, "--records", files[0])
	require.Equal(t, "messages", rows[0].Kind)
	index := runLine(commands, nil, "dump", strings.TrimSuffix(files[0], ".wal")+".idx", "-o", "csv")
	require.Equal(t, cli.ExitOK, index.code, index.stderr)
	require.Contains(t, index.stdout, ",agrees\n")
	list := runLine(commands, nil, "dump", b.Dir(), "-o", "csv")
	require.Equal(t, cli.ExitOK, list.code, list.stderr)
	for _, want := range []string{"LOCK,lock,", "NODE,sealed,", "/TOPIC,sealed,", "/MANIFEST,sealed,", "-0.wal,log,", "-0.idx,index,"} {
		require.Contains(t, list.stdout, want)
	}
	held := runLine(commands, nil, "verify", b.Dir())
	require.Equal(t, cli.ExitRuntime, held.code)
	require.Contains(t, held.stderr, fmt.Sprintf("pid %d", os.Getpid()))

	b.Stop()
	for _, dir := range []string{b.Dir(), filepath.Dir(filepath.Dir(files[0])), filepath.Dir(files[0])} {
		got := runLine(commands, nil, "verify", "-o", "json", dir)
		require.Equal(t, cli.ExitOK, got.code, got.stderr)
		var facts inspect.Report
		require.NoError(t, json.Unmarshal([]byte(got.stdout), &facts))
		require.True(t, facts.OK)
		require.Equal(t, int64(3), facts.Records)
		require.Equal(t, 1, facts.Partitions)
		require.Empty(t, facts.Damage)
	}
}

func TestDumpSaysThatAnOffsetIsBeyondTheEnd(t *testing.T) {
	b := brokertest.Start(t)
	must(t, b, "a\nb\nc\n", "produce", "t", "-", "-q")
	files, err := filepath.Glob(filepath.Join(b.Dir(), "topics", "t.*", "0", "*.wal"))
	require.NoError(t, err)
	got := runLine(commands, nil, "dump", files[0], "--at", "3")
	require.Equal(t, cli.ExitNotFound, got.code)
	require.Contains(t, got.stderr, "offset 3 is beyond the end, its last one is 2")
	require.Equal(t, cli.ExitOK, runLine(commands, nil, "dump", files[0], "--at", "2").code)
}

func TestVerifyFindsEveryFlippedByte(t *testing.T) {
	b := brokertest.Start(t)
	for range 3 { // three frames
		must(t, b, "", "produce", "t", "some value")
	}
	b.Stop()
	files, err := filepath.Glob(filepath.Join(b.Dir(), "topics", "t.*", "0", "*.wal"))
	require.NoError(t, err)
	whole, err := os.ReadFile(files[0])
	require.NoError(t, err)
	for pos := range whole {
		broken := bytes.Clone(whole)
		broken[pos] ^= 0x40
		require.NoError(t, os.WriteFile(files[0], broken, 0o600))
		got := runLine(commands, nil, "verify", "-o", "json", b.Dir())
		require.Equal(t, cli.ExitDamage, got.code, "byte %d: %s %s", pos, got.stdout, got.stderr)
		var facts inspect.Report
		require.NoError(t, json.Unmarshal([]byte(got.stdout), &facts))
		require.False(t, facts.OK)
		require.Equal(t, strings.TrimPrefix(files[0], b.Dir()+"/"), facts.Damage[0].File)
		require.LessOrEqual(t, facts.Damage[0].Pos, int64(pos))
		require.Equal(t, uint64(pos*3/len(whole)), facts.Damage[0].From)
	}
	require.NoError(t, os.WriteFile(files[0], whole, 0o600))
	topic := filepath.Join(filepath.Dir(filepath.Dir(files[0])), "TOPIC")
	sealed, err := os.ReadFile(topic)
	require.NoError(t, err)
	sealed[len(sealed)-2] ^= 1
	require.NoError(t, os.WriteFile(topic, sealed, 0o600))
	got := runLine(commands, nil, "verify", b.Dir())
	require.Equal(t, cli.ExitDamage, got.code)
	require.Regexp(t, `(?m)^DAMAGE  .*/TOPIC: `, got.stdout)
	require.Equal(t, cli.ExitDamage, runLine(commands, nil, "dump", topic).code)
}

func TestVerifyNeedsADataDirectory(t *testing.T) {
	dir := t.TempDir()
	require.Equal(t, cli.ExitNotFound, runLine(commands, nil, "verify", dir).code)
	require.Equal(t, cli.ExitNotFound, runLine(commands, nil, "verify", filepath.Join(dir, "none")).code)
	require.NoFileExists(t, filepath.Join(dir, "none"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), nil, 0o600))
	require.Equal(t, cli.ExitUsage, runLine(commands, nil, "verify", filepath.Join(dir, "f")).code)
}

func TestConsumeSkipsDamageOnlyWhereItIsTold(t *testing.T) {
	b := brokertest.Start(t)
	for _, v := range []string{"a", "b", "c"} {
		must(t, b, "", "produce", "t", v)
	}
	files, err := filepath.Glob(filepath.Join(b.Dir(), "topics", "t.*", "0", "*.wal"))
	require.NoError(t, err)
	rows := dumpRows(t, files[0])
	f, err := os.OpenFile(files[0], os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte{0xEE}, rows[1].Pos+protocol.HeaderSize+5)
	require.NoError(t, err)
	require.NoError(t, f.Close())

	got := talk(b, "", "consume", "t")
	require.Equal(t, cli.ExitDamage, got.code, got.stderr)
	require.Equal(t, "a\n", got.stdout)
	require.Contains(t, got.stderr, "[1, 2)")
	got = talk(b, "", "consume", "t", "--skip-corrupt")
	require.Equal(t, cli.ExitDamage, got.code, got.stderr)
	require.Equal(t, "a\nc\n", got.stdout)
	require.Contains(t, got.stderr, "1 damaged range skipped")
}
