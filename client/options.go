package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/millrace-mq/millrace/protocol"
)

// config is what the options of a Client say.
type config struct {
	name           string
	dial           func(ctx context.Context, network, addr string) (net.Conn, error)
	anyAddr        bool // the dialer is the program's own
	dialTimeout    time.Duration
	requestTimeout time.Duration
	backoffLow     time.Duration
	backoffHigh    time.Duration
	log            *slog.Logger
	hooks          Hooks
}

// DefaultAddr is where a broker listens unless it is told otherwise, and what Open connects to
// when it is given no address.
const DefaultAddr = "127.0.0.1:7654"

// Option sets up a Client. What an option refuses, Open returns, all refusals joined.
type Option func(*config) error

// Hooks are called with no lock held, from a goroutine of the client: they should be quick, and
// must not call Close, which would wait for them. A nil function is skipped.
type Hooks struct {
	// Connected is called after each successful HELLO, of the shared connection and of those
	// of readers.
	Connected func(addr string)

	// Disconnected is called when a connection ended that was not closed by the program, and
	// after each attempt to connect that failed. retryIn is the pause before the next attempt.
	Disconnected func(addr string, err error, retryIn time.Duration)

	// Refused is called when the broker refused messages of a producer for a reason that may
	// pass, NO_SPACE for instance, so that they are sent again until DeliveryTimeout. It is
	// called for each such refusal.
	Refused func(topic string, partition uint32, err error)
}

func newConfig(opts []Option) (config, error) {
	c := config{
		name:           "millrace-go",
		dial:           new(net.Dialer).DialContext,
		dialTimeout:    5 * time.Second,
		requestTimeout: 10 * time.Second,
		backoffLow:     20 * time.Millisecond,
		backoffHigh:    2 * time.Second,
		log:            slog.New(slog.DiscardHandler),
	}
	var errs []error
	for _, o := range opts {
		errs = append(errs, o(&c))
	}
	return c, errors.Join(errs...)
}

func positive[T int | time.Duration](what string, v T) error {
	if v <= 0 {
		return &protocol.Error{Code: protocol.BadRequest, Detail: fmt.Sprintf("%s = %v, must be positive", what, v)}
	}
	return nil
}

// Name is how the program calls itself in the broker's logs; at most 200 bytes.
func Name(name string) Option {
	return func(c *config) error {
		if len(name) > protocol.MaxName {
			return &protocol.Error{Code: protocol.TooLarge, Detail: "client name", Actual: uint64(len(name)), Limit: protocol.MaxName, Setting: "Name"}
		}
		c.name = name
		return nil
	}
}

// Dialer replaces the TCP dialer, for proxies, tests and other transports. The address is then
// the dialer's matter and may have any form.
func Dialer(dial func(ctx context.Context, network, addr string) (net.Conn, error)) Option {
	return func(c *config) error {
		if dial == nil {
			return &protocol.Error{Code: protocol.BadRequest, Detail: "Dialer = nil"}
		}
		c.dial, c.anyAddr = dial, true
		return nil
	}
}

// DialTimeout bounds one attempt to connect, HELLO included; default 5 s.
func DialTimeout(d time.Duration) Option {
	return func(c *config) error {
		c.dialTimeout = d
		return positive("DialTimeout", d)
	}
}

// RequestTimeout bounds one administrative call, reconnects and repeats included, where the
// context does not end sooner; default 10 s.
func RequestTimeout(d time.Duration) Option {
	return func(c *config) error {
		c.requestTimeout = d
		return positive("RequestTimeout", d)
	}
}

// Backoff bounds the jittered exponential pauses between attempts; default 20 ms to 2 s, at most
// 1 h.
func Backoff(low, high time.Duration) Option {
	return func(c *config) error {
		c.backoffLow, c.backoffHigh = low, high
		if low > high || high > time.Hour {
			return &protocol.Error{Code: protocol.BadRequest, Detail: fmt.Sprintf("Backoff from %v to %v", low, high)}
		}
		return positive("Backoff", low)
	}
}

// Logger takes notices of connections gained and lost; default none. Payloads are never
// logged.
func Logger(log *slog.Logger) Option {
	return func(c *config) error {
		if log != nil {
			c.log = log
		}
		return nil
	}
}

// WithHooks sets functions to be called when connections come and go.
func WithHooks(h Hooks) Option {
	return func(c *config) error {
		c.hooks = h
		return nil
	}
}

// producerConfig is what the options of a Producer say.
type producerConfig struct {
	linger       time.Duration
	batchBytes   int
	batchRecords int
	maxRecords   int
	maxBytes     int
	failWhenFull bool
	level        protocol.Level
	timeout      time.Duration
	maxInFlight  int
	noRetry      bool
}

// ProducerOption sets up a Producer. What an option refuses, NewProducer returns.
type ProducerOption func(*producerConfig) error

func newProducerConfig(opts []ProducerOption) (producerConfig, error) {
	c := producerConfig{
		batchBytes:   256 << 10,
		batchRecords: protocol.MaxRecords,
		maxRecords:   1 << 20,
		maxBytes:     64 << 20,
		level:        protocol.LevelTopic,
		timeout:      30 * time.Second,
		maxInFlight:  16,
	}
	var errs []error
	for _, o := range opts {
		errs = append(errs, o(&c))
	}
	return c, errors.Join(errs...)
}

// Linger waits so long for company before a batch is sent although the partition is idle;
// default 0: a message is sent at once when nothing of its partition is in flight, and else
// gathers with others until an answer comes or enough is there.
func Linger(d time.Duration) ProducerOption {
	return func(c *producerConfig) error {
		c.linger = d
		if d < 0 || d > time.Minute {
			return &protocol.Error{Code: protocol.BadRequest, Detail: fmt.Sprintf("Linger = %v, must be 0 to 1m", d)}
		}
		return nil
	}
}

// BatchBytes bounds a batch (and a run of batches); default 256 KiB, at most 4 MiB. One message
// that is larger travels alone.
func BatchBytes(n int) ProducerOption {
	return func(c *producerConfig) error {
		c.batchBytes = n
		if n > protocol.MaxRun {
			return &protocol.Error{Code: protocol.TooLarge, Detail: "BatchBytes", Actual: uint64(n), Limit: protocol.MaxRun, Setting: "run"}
		}
		return positive("BatchBytes", n)
	}
}

// BatchRecords bounds the messages of a batch; default 1,048,576, the most that a frame holds.
func BatchRecords(n int) ProducerOption {
	return func(c *producerConfig) error {
		c.batchRecords = n
		if n > protocol.MaxRecords {
			return &protocol.Error{Code: protocol.TooLarge, Detail: "BatchRecords", Actual: uint64(n), Limit: protocol.MaxRecords, Setting: "records_per_frame"}
		}
		return positive("BatchRecords", n)
	}
}

// MaxBuffered bounds what the producer holds: messages given and not yet resolved, and their
// bytes. Default 1,048,576 messages, 64 MiB; at most 8,388,607 messages, 512 GiB.
func MaxBuffered(records, bytes int) ProducerOption {
	return func(c *producerConfig) error {
		c.maxRecords, c.maxBytes = records, bytes
		if records > budgetRecords || uint64(bytes) > budgetBytes {
			return &protocol.Error{Code: protocol.TooLarge, Detail: fmt.Sprintf("MaxBuffered(%d, %d)", records, bytes),
				Actual: uint64(records), Limit: budgetRecords, Setting: "MaxBuffered"}
		}
		return errors.Join(positive("MaxBuffered records", records), positive("MaxBuffered bytes", bytes))
	}
}

// FailWhenFull makes Send and Async return ErrBufferFull at once when the buffer is full. By
// default Send waits for room until its context ends, and Async until DeliveryTimeout.
func FailWhenFull() ProducerOption {
	return func(c *producerConfig) error {
		c.failWhenFull = true
		return nil
	}
}

// Durable asks for a level; default protocol.LevelTopic, the topic's floor. With
// protocol.LevelNone, where the floor allows it, a message counts as delivered when it was
// handed to the kernel: its Ack has no offset, and messages can be lost.
func Durable(level protocol.Level) ProducerOption {
	return func(c *producerConfig) error {
		c.level = level
		if level > protocol.LevelQuorum && level != protocol.LevelTopic {
			return &protocol.Error{Code: protocol.BadRequest, Detail: "Durable(" + level.String() + ")"}
		}
		return nil
	}
}

// DeliveryTimeout bounds the time from Send or Async to the answer, repeats included; default
// 30 s. It is measured per batch, from its first message.
func DeliveryTimeout(d time.Duration) ProducerOption {
	return func(c *producerConfig) error {
		c.timeout = d
		return positive("DeliveryTimeout", d)
	}
}

// MaxInFlight bounds the unanswered runs of a partition; default 16, which with runs of 64 to
// 256 KiB covers the round trip of a fast network. With 1 not even a refusal that hits one run
// and not the next can change the order of a partition.
func MaxInFlight(runs int) ProducerOption {
	return func(c *producerConfig) error {
		c.maxInFlight = runs
		if runs > 1024 {
			return &protocol.Error{Code: protocol.TooLarge, Detail: "MaxInFlight", Actual: uint64(runs), Limit: 1024, Setting: "MaxInFlight"}
		}
		return positive("MaxInFlight", runs)
	}
}

// NoRetry gives a message up at the first refusal or lost connection, instead of sending it
// again until DeliveryTimeout: nothing is then appended twice, and what was in flight on a lost
// connection ends in protocol.UnknownOutcome.
func NoRetry() ProducerOption {
	return func(c *producerConfig) error {
		c.noRetry = true
		return nil
	}
}

// readConfig is what the options of a reader say.
type readConfig struct {
	from        protocol.Position
	to          protocol.Position
	bounded     bool
	partition   uint32
	one         bool
	credit      int
	maxRecords  uint64
	skipCorrupt bool
}

// ReadOption sets up a reader. What an option refuses, the iterator yields as its only error.
type ReadOption func(*readConfig) error

func newReadConfig(opts []ReadOption) (readConfig, error) {
	c := readConfig{from: protocol.Start, credit: 4 << 20}
	var errs []error
	for _, o := range opts {
		errs = append(errs, o(&c))
	}
	return c, errors.Join(errs...)
}

// From starts at a position, resolved in each partition; default protocol.Start.
func From(pos protocol.Position) ReadOption {
	return func(c *readConfig) error {
		c.from = pos
		return nil
	}
}

// Until ends before a position. It is resolved once per partition, when its reading begins, so
// Until(protocol.End) reads what is there and stops. Default: follow for ever.
func Until(pos protocol.Position) ReadOption {
	return func(c *readConfig) error {
		c.to, c.bounded = pos, true
		return nil
	}
}

// OfPartition reads one partition; default all of the topic.
func OfPartition(n uint32) ReadOption {
	return func(c *readConfig) error {
		c.partition, c.one = n, true
		if n >= protocol.MaxPartitions {
			return &protocol.Error{Code: protocol.UnknownPartition, Detail: fmt.Sprintf("partition %d", n), Actual: uint64(n), Limit: protocol.MaxPartitions - 1, Setting: "partitions_per_topic"}
		}
		return nil
	}
}

// CreditBytes is how much the broker may send ahead of the loop, in bytes, shared by the
// partitions of the read; default 4 MiB, at least 64 KiB, at most 1 GiB. Each partition's share
// is at least 64 KiB. One larger frame is delivered nevertheless.
func CreditBytes(n int) ReadOption {
	return func(c *readConfig) error {
		c.credit = n
		if n < minCredit || n > 1<<30 {
			return &protocol.Error{Code: protocol.BadRequest, Detail: fmt.Sprintf("CreditBytes = %d, must be %d to %d", n, minCredit, 1<<30)}
		}
		return nil
	}
}

// MaxRecords ends the read after so many records; default 0, no bound.
func MaxRecords(n uint64) ReadOption {
	return func(c *readConfig) error {
		c.maxRecords = n
		return nil
	}
}

// SkipCorrupt goes on behind damage: the iterator yields the *CorruptError and then the records
// that follow. Without it the error ends the iterator.
func SkipCorrupt() ReadOption {
	return func(c *readConfig) error {
		c.skipCorrupt = true
		return nil
	}
}
