package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/broker"
	"github.com/millrace-mq/millrace/broker/brokertest"
	"github.com/millrace-mq/millrace/broker/server"
	"github.com/millrace-mq/millrace/client"
	"github.com/millrace-mq/millrace/protocol"
	"github.com/millrace-mq/millrace/storage/vfs"
)

// First arguments that make the test binary the processes of a scenario.
const (
	consumerVerb = "consumer-process"
	brokerVerb   = "broker"
)

func init() {
	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] == consumerVerb:
		err = ConsumerMain(context.Background(), os.Stdin, os.Stdout)
	case len(os.Args) == 4 && os.Args[1] == brokerVerb:
		err = brokerMain(os.Args[2], os.Args[3])
	default:
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// brokerMain serves the data directory until the process is killed.
func brokerMain(dir, portFile string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	disk, err := vfs.OS(dir)
	if err != nil {
		return err
	}
	b, err := broker.Open(broker.Options{FS: disk, Now: func() int64 { return time.Now().UnixNano() }, Log: slog.New(slog.DiscardHandler), Holder: "test"})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	text := fmt.Sprintf(`{"client":%q}`, l.Addr())
	if err := os.WriteFile(portFile, []byte(text), 0o600); err != nil {
		return err
	}
	return server.New(b, server.Options{}).Serve(l)
}

func startBroker(t *testing.T) *BrokerProcess {
	t.Helper()
	b, err := StartBroker(t.Context(), t.TempDir(), func(dataDir, portFile string) []string {
		return []string{os.Args[0], brokerVerb, dataDir, portFile}
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Stop()) })
	return b
}

// small is a shape that takes milliseconds.
func small() Shape {
	return Shape{Messages: 2003, Size: 40, Clients: 3, Batch: 7, Partitions: 2, Level: protocol.LevelWritten, Seed: 9}
}

func topics(t *testing.T, addr string) (names []string) {
	t.Helper()
	c, err := client.Open(t.Context(), addr)
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	for topic, err := range c.Topics(t.Context()) {
		require.NoError(t, err)
		names = append(names, topic.Name)
	}
	return names
}

func TestProduceAccountsForEveryMessage(t *testing.T) {
	b := brokertest.Start(t)
	for name, change := range map[string]func(*Shape){
		"pipelined":      func(*Shape) {},
		"lockstep":       func(s *Shape) { s.Lockstep = true },
		"window of 2":    func(s *Shape) { s.Window = 2 },
		"single records": func(s *Shape) { s.Batch = 1 },
		"durable":        func(s *Shape) { s.Level = protocol.LevelDurable },
		"none":           func(s *Shape) { s.Level = protocol.LevelNone },
		"rated":          func(s *Shape) { s.Rate = 1e6 },
		"one connection": func(s *Shape) { s.Conns = 1 },
		"idle clients":   func(s *Shape) { s.Messages = 2 },
	} {
		t.Run(name, func(t *testing.T) {
			shape := small()
			change(&shape)
			var shown atomic.Uint64
			bench := &Bench{Addr: b.Addr(), Progress: func(string, uint64) (func(uint64), func()) {
				return func(n uint64) { shown.Add(n) }, func() {}
			}}
			run, err := bench.Produce(t.Context(), shape)
			require.NoError(t, err)
			require.Equal(t, shape.Messages, run.Acked)
			require.Equal(t, shape.Messages, shown.Load(), "progress")
			var spanned uint64
			for _, s := range run.Spans {
				require.Zero(t, s.From, "a span that is not whole")
				spanned += s.N
			}
			require.Equal(t, shape.Messages, spanned)
			require.Positive(t, run.Rate())
			require.Positive(t, run.Latency.Count())
			require.GreaterOrEqual(t, run.Counters["produce_broker_records_appended"], int64(shape.Messages))
			require.Empty(t, topics(t, b.Addr()), "the topic of the run is deleted")
		})
	}
}

func TestTopicOfTheCallerIsKept(t *testing.T) {
	b := brokertest.Start(t)
	bench := &Bench{Addr: b.Addr()}
	shape := small()
	shape.Topic = "mine"
	run, err := bench.Produce(t.Context(), shape)
	require.NoError(t, err)
	shape.Topic, shape.Keep = "", true
	_, err = bench.Produce(t.Context(), shape)
	require.NoError(t, err)
	require.Len(t, topics(t, b.Addr()), 2)

	shape.Topic, shape.Messages = "mine", 0
	for name, expected := range map[string][]Span{"unknown": nil, "known": run.Spans} {
		t.Run(name, func(t *testing.T) {
			run, err := bench.Consume(t.Context(), shape, expected)
			require.NoError(t, err)
			require.Equal(t, small().Messages*uint64(shape.Clients), run.Acked, "each consumer reads everything")
			require.Zero(t, run.Verify)
		})
	}
	shape.Messages, shape.Clients = 10, 1
	run, err = bench.Consume(t.Context(), shape, nil)
	require.NoError(t, err)
	require.Equal(t, uint64(10), run.Acked)
}

func TestConsumeFillsATopicOfItsOwn(t *testing.T) {
	b := brokertest.Start(t)
	run, err := (&Bench{Addr: b.Addr()}).Consume(t.Context(), small(), nil)
	require.NoError(t, err)
	require.Equal(t, 3*small().Messages, run.Acked)
	require.Zero(t, run.Verify)
	require.Empty(t, topics(t, b.Addr()))
}

func TestConsumeMissesWhatWasAckedElsewhere(t *testing.T) {
	b := brokertest.Start(t)
	shape := small()
	shape.Topic, shape.Clients = "short", 1
	run, err := (&Bench{Addr: b.Addr()}).Produce(t.Context(), shape)
	require.NoError(t, err)
	run.Spans[0].N += 5
	run, err = (&Bench{Addr: b.Addr()}).Consume(t.Context(), shape, run.Spans)
	require.NoError(t, err)
	require.Equal(t, Verify{Lost: 5}, run.Verify)
}

func TestE2EChecksEveryMessageInAProcessOfItsOwn(t *testing.T) {
	b := startBroker(t)
	for name, simultaneous := range map[string]bool{"in turns": false, "simultaneous": true} {
		t.Run(name, func(t *testing.T) {
			run, err := (&Bench{Addr: b.Addr()}).E2E(t.Context(), small(), simultaneous, os.Args[0], consumerVerb)
			require.NoError(t, err)
			require.Equal(t, small().Messages, run.Acked)
			require.Zero(t, run.Verify)
			require.Len(t, run.Phases, 2)
			require.Equal(t, small().Messages, run.Phases[1].Messages)
			spent := run.spent()
			require.Positive(t, spent.Broker, "the broker's process was found by STATS")
			require.Positive(t, spent.RSSPeak)
			require.Positive(t, run.Phases[1].Client)
			require.Empty(t, topics(t, b.Addr()))
		})
	}
}

func TestConsumerProcessEndsWithItsParent(t *testing.T) {
	b := brokertest.Start(t)
	shape := small()
	shape.Topic = "endless"
	_, err := (&Bench{Addr: b.Addr()}).Produce(t.Context(), shape)
	require.NoError(t, err)
	s := &stage{Bench: &Bench{Addr: b.Addr()}, shape: shape, topic: shape.Topic}
	p, err := startConsumer(t.Context(), []string{os.Args[0], consumerVerb}, s.job(true), func(uint64) {})
	require.NoError(t, err)
	require.NoError(t, p.connected(t.Context()))
	require.Error(t, p.stop(), "it was in the middle of its job")
	require.True(t, p.cmd.ProcessState.Exited(), "it was not killed")
}

func TestLatencyTimesEveryMessage(t *testing.T) {
	b := brokertest.Start(t)
	run, err := (&Bench{Addr: b.Addr()}).Latency(t.Context(), Shape{Messages: 300, Size: 64, Clients: 1, Batch: 1, Partitions: 1, Level: protocol.LevelWritten, Rate: 20_000})
	require.NoError(t, err)
	require.Equal(t, uint64(300), run.Acked)
	require.Zero(t, run.Verify)
	require.Equal(t, uint64(300), run.Latency.Count())
	require.Equal(t, uint64(300), run.Latencies[latencyAck].Count())
	require.Equal(t, uint64(300), run.Latencies[latencyLate].Count())
	require.Empty(t, topics(t, b.Addr()))
}

func TestIdleCountsConnections(t *testing.T) {
	b := startBroker(t)
	run, err := (&Bench{Addr: b.Addr(), settle: time.Millisecond}).Idle(t.Context(), Shape{Clients: 50, Size: 100, Batch: 1, Partitions: 1})
	require.NoError(t, err)
	require.Equal(t, uint64(50), run.Acked)
	require.Positive(t, run.Counters[counterResidentAfter])
	require.Contains(t, run.Counters, counterPerConnection)
}

func TestRatiosCompareBothMethods(t *testing.T) {
	b := startBroker(t)
	shape := small()
	shape.Messages = 4000
	ratios, err := (&Bench{Addr: b.Addr()}).Ratios(t.Context(), shape, 2, t.TempDir(), func(dir string) []string {
		return []string{os.Args[0], perFrameVerb, dir}
	})
	require.NoError(t, err)
	require.Len(t, ratios, 4)
	for _, r := range ratios {
		require.Positive(t, r.PerFrame.Min, r.Name)
		require.Positive(t, r.Millrace.Min, r.Name)
		require.Positive(t, r.Ratio.Min, r.Name)
	}
	require.Empty(t, topics(t, b.Addr()))
}

// A broker that is killed in the middle leaves a run with what was acknowledged, and
// all of that is there when it is back.
func TestAckedIsReportedAndSurvivesTheBrokersDeath(t *testing.T) {
	b := startBroker(t)
	shape := Shape{Messages: 1 << 24, Size: 100, Clients: 3, Batch: 20, Partitions: 2, Level: protocol.LevelDurable, Topic: "dying"}
	var acked atomic.Uint64
	bench := &Bench{Addr: b.Addr(), Progress: func(string, uint64) (func(uint64), func()) {
		return func(n uint64) {
			if acked.Add(n) > 50_000 && acked.Load()-n <= 50_000 {
				if err := b.cmd.Process.Kill(); err != nil {
					t.Error(err)
				}
			}
		}, func() {}
	}}
	run, err := bench.Produce(t.Context(), shape)
	require.Error(t, err)
	require.NotNil(t, run)
	require.GreaterOrEqual(t, run.Acked, uint64(50_000))
	require.Less(t, run.Acked, shape.Messages)
	require.Equal(t, acked.Load(), run.Acked)
	var spanned uint64
	for _, s := range run.Spans {
		spanned += s.N
	}
	require.Equal(t, run.Acked, spanned)
	<-b.exited

	again, err := StartBroker(t.Context(), t.TempDir(), func(_, portFile string) []string {
		return []string{os.Args[0], brokerVerb, b.DataDir(), portFile}
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, again.Stop()) }()
	shape.Clients, shape.Messages = 1, 0
	read, err := (&Bench{Addr: again.Addr()}).Consume(t.Context(), shape, run.Spans)
	require.NoError(t, err)
	require.Zero(t, read.Verify)
	require.GreaterOrEqual(t, read.Acked, run.Acked)
}

func TestInterruptedRunDeletesItsTopic(t *testing.T) {
	b := brokertest.Start(t)
	for name, measure := range map[string]func(*Bench, context.Context, Shape) (*Run, error){
		"produce": (*Bench).Produce,
		"latency": (*Bench).Latency,
		"consume": func(b *Bench, ctx context.Context, s Shape) (*Run, error) { return b.Consume(ctx, s, nil) },
		"e2e": func(b *Bench, ctx context.Context, s Shape) (*Run, error) {
			return b.E2E(ctx, s, false, os.Args[0], consumerVerb)
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			stopped := errors.New("stopped by hand")
			bench := &Bench{Addr: b.Addr(), Left: func(topic string, err error) { t.Errorf("%s is left: %v", topic, err) },
				Progress: func(string, uint64) (func(uint64), func()) {
					return func(uint64) { cancel(stopped) }, func() {}
				}}
			shape := small()
			shape.Messages = MaxMessages / 2
			_, err := measure(bench, ctx, shape)
			require.ErrorIs(t, err, stopped)
			require.Empty(t, topics(t, b.Addr()))
		})
	}
}

func TestTopicThatCannotBeDeletedIsTold(t *testing.T) {
	b := startBroker(t)
	var once sync.Once
	var left []string
	bench := &Bench{Addr: b.Addr(), Left: func(topic string, err error) {
		require.Error(t, err)
		left = append(left, topic)
	}, Progress: func(string, uint64) (func(uint64), func()) {
		return func(uint64) {
			once.Do(func() {
				if err := b.cmd.Process.Kill(); err != nil {
					t.Error(err)
				}
			})
		}, func() {}
	}}
	shape := small()
	shape.Messages = MaxMessages / 2
	_, err := bench.Produce(t.Context(), shape)
	require.Error(t, err)
	require.Len(t, left, 1)
	require.Contains(t, left[0], "bench-produce-")
}

func TestTopicThatWasNeverMadeIsNotLeft(t *testing.T) {
	b := brokertest.Start(t)
	bench := &Bench{Addr: b.Addr(), Left: func(topic string, err error) { t.Errorf("%s is left: %v", topic, err) }}
	s, err := bench.set(t.Context(), ScenarioProduce, small(), false)
	require.NoError(t, err)
	s.topic, s.own = "bench-never", true
	refused := errors.New("refused")
	require.Equal(t, refused, s.strike(t.Context(), refused))
}

func TestUnknownTopicLeavesNoRun(t *testing.T) {
	b := brokertest.Start(t)
	shape := small()
	shape.Topic = "nope"
	run, err := (&Bench{Addr: b.Addr()}).Consume(t.Context(), shape, nil)
	require.ErrorIs(t, err, protocol.UnknownTopic)
	require.Nil(t, run)
}

func TestRunSaysWhereTheBrokerIs(t *testing.T) {
	b := startBroker(t)
	run, err := (&Bench{Addr: b.Addr()}).Produce(t.Context(), small())
	require.NoError(t, err)
	require.Equal(t, PlaceHere, run.Place)
}

// The topic of a run takes its messages, whatever the default of a topic is.
func TestLargeMessagesFitTheTopicOfTheRun(t *testing.T) {
	b := brokertest.Start(t)
	for name, shape := range map[string]Shape{
		"above the default": {Messages: 4, Size: 2 << 20, Clients: 2, Batch: 1},
		"a run alone":       {Messages: 2, Size: 5 << 20, Clients: 1, Batch: 1},
		"a run of small":    {Messages: uint64(MaxBatch(100)), Size: 100, Clients: 1, Batch: MaxBatch(100)},
	} {
		t.Run(name, func(t *testing.T) {
			shape.Partitions, shape.Level = 1, protocol.LevelWritten
			run, err := (&Bench{Addr: b.Addr()}).Produce(t.Context(), shape)
			require.NoError(t, err)
			require.Equal(t, shape.Messages, run.Acked)
		})
	}
}

func TestStartBrokerTellsWhyThereIsNone(t *testing.T) {
	dir := t.TempDir()
	_, err := StartBroker(t.Context(), dir, func(_, portFile string) []string {
		return []string{os.Args[0], brokerVerb, "/dev/null/data", portFile}
	})
	require.ErrorContains(t, err, "ended before it was ready")
	require.ErrorContains(t, err, "/dev/null", "the end of its log")
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestUnreachableBrokerLeavesNoRun(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	b := &Bench{Addr: l.Addr().String()}
	run, err := b.Produce(t.Context(), small())
	var refused *net.OpError
	require.ErrorAs(t, err, &refused)
	require.Nil(t, run)
}

func TestShapesOutOfBoundsAreRefused(t *testing.T) {
	for name, change := range map[string]func(*Shape){
		"messages":   func(s *Shape) { s.Messages = MaxMessages + 1 },
		"size":       func(s *Shape) { s.Size = MinPayload - 1 },
		"clients":    func(s *Shape) { s.Clients = 0 },
		"conns":      func(s *Shape) { s.Conns = s.Clients + 1 },
		"batch":      func(s *Shape) { s.Batch = 0 },
		"frame":      func(s *Shape) { s.Batch, s.Size = 1000, 1<<20 },
		"window":     func(s *Shape) { s.Window = -1 },
		"partitions": func(s *Shape) { s.Partitions = protocol.MaxPartitions + 1 },
		"level":      func(s *Shape) { s.Level = 9 },
		"rate":       func(s *Shape) { s.Rate = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			shape := small()
			require.NoError(t, shape.Validate())
			change(&shape)
			require.ErrorIs(t, shape.Validate(), ErrOutOfRange)
		})
	}
}
