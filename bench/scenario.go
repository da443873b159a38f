package bench

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/millrace-mq/millrace/client"
	"github.com/millrace-mq/millrace/protocol"
)

// Names of the scenarios, as reports and the command line give them.
const (
	ScenarioProduce = "produce"
	ScenarioConsume = "consume"
	ScenarioE2E     = "e2e"
	ScenarioLatency = "latency"
	ScenarioIdle    = "idle"
	ScenarioRatio   = "ratio"
)

// ErrFlawed reports that what was delivered is not what was sent.
var ErrFlawed = errors.New("bench: verification failed")

// Bounds of a Shape.
const (
	MaxMessages = 1 << 30 // messages of one run: each is accounted for
	MaxClients  = 10_000  // producers or consumers of one run
	MaxWindow   = 1 << 16 // batches a client may have unanswered
)

// Defaults of a Shape that depend on others of its fields.
const (
	windowBytes   = 1 << 20 // bytes in flight per client from which Window is derived
	minWindow     = 64      // batches, so that small batches are pipelined too
	defaultWindow = 1024    // batches at most without being asked for
)

// frameOverhead bounds what a frame and its records cost beside their values.
const (
	frameOverhead  = 64 // bytes of a frame
	recordOverhead = 8  // bytes of each record
)

// Shape says what a run sends and reads.
type Shape struct {
	Messages   uint64         // to send, or at most to read; 0 = to read all there is
	Size       int            // bytes of a value
	Clients    int            // producers or consumers
	Conns      int            // connections that producers share; 0 = each has its own
	Batch      int            // records of a frame
	Window     int            // batches a producer may have unanswered; 0 = as many as hold 1 MiB, at least 64 and at most 1024
	Lockstep   bool           // the next batch is sent after the answer to the last: Window 1
	Partitions int            // of the topic
	Level      protocol.Level // floor of the topic and level asked for
	Linger     time.Duration  // of the producers
	Rate       float64        // messages per second of all producers together; 0 = as fast as they are acknowledged
	Seed       uint64         // of the payloads
	Topic      string         // empty = a topic of its own, deleted at the end
	Keep       bool           // do not delete it
}

// Progress is told how far a run is: it is called once at the beginning of a phase,
// add then with each stretch of messages done by any goroutine, done once.
type Progress func(phase string, total uint64) (add func(n uint64), done func())

// Bench is one broker to measure and who is told about it.
//
// Ownership: one scenario at a time.
type Bench struct {
	Addr     string
	PID      int      // the broker's process on this machine; 0 = what STATS says, if that process runs here
	Progress Progress // may be nil

	// Left, if not nil, is told of a topic of a run's own that could not be deleted,
	// and why. It may be there still.
	Left func(topic string, err error)

	settle time.Duration // how long idle connections rest; 0 = settleTime
}

// Validate refuses what no scenario can do.
//
// Errors: ErrOutOfRange with the field, its value and the limit.
func (s *Shape) Validate() error {
	switch {
	case s.Messages > MaxMessages:
		return fmt.Errorf("%w: %d messages, at most %d", ErrOutOfRange, s.Messages, MaxMessages)
	case s.Size < MinPayload || s.Size > MaxPayload:
		return fmt.Errorf("%w: values of %d bytes, want %d to %d bytes", ErrOutOfRange, s.Size, MinPayload, MaxPayload)
	case s.Clients < 1 || s.Clients > MaxClients:
		return fmt.Errorf("%w: %d clients, want 1 to %d", ErrOutOfRange, s.Clients, MaxClients)
	case s.Conns < 0 || s.Conns > s.Clients:
		return fmt.Errorf("%w: %d connections, want 0 to %d, the number of clients", ErrOutOfRange, s.Conns, s.Clients)
	case s.Batch < 1 || s.Batch > MaxBatch(s.Size):
		return fmt.Errorf("%w: batches of %d messages of %d bytes, want 1 to %d messages in a frame",
			ErrOutOfRange, s.Batch, s.Size, MaxBatch(s.Size))
	case s.Window < 0 || s.Window > MaxWindow:
		return fmt.Errorf("%w: window of %d batches, want 0 to %d", ErrOutOfRange, s.Window, MaxWindow)
	case s.Partitions < 1 || s.Partitions > protocol.MaxPartitions:
		return fmt.Errorf("%w: %d partitions, want 1 to %d", ErrOutOfRange, s.Partitions, protocol.MaxPartitions)
	case s.Level > protocol.LevelQuorum && s.Level != protocol.LevelTopic:
		return fmt.Errorf("%w: level %v", ErrOutOfRange, s.Level)
	case s.Rate < 0 || s.Rate > 1e9:
		return fmt.Errorf("%w: rate of %g messages per second, want 0 to 1e9", ErrOutOfRange, s.Rate)
	}
	return nil
}

// MaxBatch returns how many messages of a size in bytes a frame may hold: as many as a
// run does, or one that is a run alone.
func MaxBatch(size int) int {
	return min(max(1, (protocol.MaxRun-frameOverhead)/(recordOverhead+max(size, 0))), protocol.MaxRecords)
}

// MaxShare returns how many messages the client with the most of them has.
func (s *Shape) MaxShare() uint64 { return s.share(s.Messages, 0) }

// frameSize bounds the size of a batch on the wire, bytes.
func (s *Shape) frameSize() int { return frameOverhead + s.Batch*(recordOverhead+s.Size) }

// window is how many batches a producer may have unanswered.
func (s *Shape) window() int {
	switch {
	case s.Lockstep:
		return 1
	case s.Window > 0:
		return s.Window
	}
	return min(max(windowBytes/s.frameSize(), minWindow), defaultWindow)
}

// share is how many of n messages client i of the shape has.
func (s *Shape) share(n uint64, i int) uint64 {
	k := n / uint64(s.Clients)
	if uint64(i) < n%uint64(s.Clients) {
		k++
	}
	return k
}

// open connects one client. lost is told when its connection ends without being closed:
// a measurement that goes on after a reconnect would measure the pause.
func (b *Bench) open(ctx context.Context, name string, lost func(error)) (*client.Client, error) {
	return client.Open(ctx, b.Addr, client.Name("bench-"+name), client.WithHooks(client.Hooks{
		Disconnected: func(_ string, err error, _ time.Duration) { lost(err) },
	}))
}

// phase begins a phase of the progress.
func (b *Bench) phase(name string, total uint64) (add func(uint64), done func()) {
	if b.Progress == nil {
		return func(uint64) {}, func() {}
	}
	return b.Progress(name, total)
}

// stage is what a scenario needs beside its load: a connection for requests, the
// topic, and the meters.
type stage struct {
	*Bench
	shape Shape
	admin *client.Client
	meter *meter
	topic string
	own   bool // topic is ours to delete
}

// set connects, makes the topic if create says so, and readies the meters.
func (b *Bench) set(ctx context.Context, scenario string, shape Shape, create bool) (_ *stage, err error) {
	if err := shape.Validate(); err != nil {
		return nil, err
	}
	s := &stage{Bench: b, shape: shape, topic: shape.Topic}
	if s.admin, err = b.open(ctx, scenario, func(error) {}); err != nil {
		return nil, err
	}
	if s.meter, err = newMeter(ctx, s.admin, b.PID); err == nil && create {
		err = s.create(ctx, scenario)
	}
	if err != nil {
		return nil, s.strike(ctx, err) // a topic whose answer did not come may be there
	}
	return s, nil
}

// create makes the topic of a run.
func (s *stage) create(ctx context.Context, scenario string) error {
	if s.topic == "" {
		var nonce [6]byte
		if _, err := rand.Read(nonce[:]); err != nil {
			return err
		}
		s.topic, s.own = "bench-"+scenario+"-"+hex.EncodeToString(nonce[:]), !s.shape.Keep
	}
	settings := protocol.TopicSettings{{ID: protocol.SettingPartitions, Value: uint64(s.shape.Partitions)}}
	if s.shape.Level != protocol.LevelTopic {
		settings = append(settings, protocol.Setting{ID: protocol.SettingDurability, Value: uint64(s.shape.Level)})
	}
	if n := s.shape.Size; n > protocol.DefaultMessageBytes {
		settings = append(settings, protocol.Setting{ID: protocol.SettingMaxMessageBytes, Value: uint64(n)})
	}
	_, err := s.admin.CreateTopic(ctx, s.topic, settings, s.shape.Topic != "")
	return err
}

// strikeTimeout bounds what is left to do for a run whose context has ended.
const strikeTimeout = 5 * time.Second

// strike deletes the topic if it is ours, whatever became of the run and of ctx, and
// disconnects. What ended the run says more than what failed here, so err wins; of a
// topic that stays Left is told.
func (s *stage) strike(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), strikeTimeout)
	defer cancel()
	if s.own {
		failed := s.admin.DeleteTopic(ctx, s.topic)
		if err != nil && errors.Is(failed, protocol.UnknownTopic) {
			failed = nil // it was never made
		}
		if failed != nil && s.Left != nil {
			s.Left(s.topic, failed)
		}
		if err == nil {
			err = failed
		}
	}
	if closed := s.admin.Close(); err == nil {
		err = closed
	}
	return err
}

// loopback reports whether addr leads to this machine by its own word.
func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
