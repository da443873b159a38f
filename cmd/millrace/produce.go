package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/millrace-mq/millrace/client"
	"github.com/millrace-mq/millrace/cmd/millrace/cli"
	"github.com/millrace-mq/millrace/protocol"
)

var produceCommand = cli.Command{
	Name:    "produce",
	Args:    "TOPIC [MESSAGE ... | -]",
	MinArgs: 1, MaxArgs: -1,
	Summary: "Send messages to a topic",
	Help: "Each MESSAGE argument is a message; with - or without one, when standard input is no terminal, each line of it is (without its line end); " +
		"with --file each file is. The topic is created where the broker's auto_create allows.\n" +
		"Messages that are given as arguments or files are sent one by one and printed with address, size, level reached and time: " +
		"hello/0@0  5 B  durable  0.6 ms. Lines of standard input, and repetitions with --count, are sent in batches, with a summary on stderr " +
		"(with -o json as an object on stdout). It stops at the first message that is not acknowledged.\n" +
		"Messages with equal keys go to the same partition, and stay in order.",
	Setup: func(fs *flag.FlagSet) cli.RunFunc {
		o := produceOptions{level: levelFlag(protocol.LevelTopic)}
		fs.Var(&o.key, "key", "`KEY` of the messages")
		cli.Alias(fs, "k", "key")
		fs.StringVar(&o.splitKey, "split-key", "", "take what stands before the first `SEPARATOR` of a line as its key")
		fs.Var(&o.headers, "header", "`NAME:VALUE` of the messages; may be given for each header")
		cli.Alias(fs, "H", "header")
		fs.Var(&o.files, "file", "send `FILE` as one message; may be given for each file")
		partitionVar(fs, &o.partition, "send to partition `N`")
		fs.Var(&o.level, "durable", "`LEVEL` of the acknowledgement: none, written, durable, quorum or topic (the topic's floor)")
		fs.Lookup("durable").DefValue = o.level.String()
		cli.CountVar(fs, &o.count, "count", 1, "send each message `N` times")
		return func(ctx context.Context, c *cli.Call) error { return produce(ctx, c, &o) }
	},
}

// produceOptions are the flags of produce.
type produceOptions struct {
	key       textFlag
	splitKey  string
	headers   headersFlag
	files     listFlag
	partition partitionFlag
	level     levelFlag
	count     int64
}

// textFlag is a text that may be left out, which is not the same as empty.
type textFlag struct {
	text  string
	given bool
}

// Set keeps the text.
func (t *textFlag) Set(text string) error {
	t.text, t.given = text, true
	return nil
}

// String returns the text.
func (t *textFlag) String() string { return t.text }

// listFlag collects texts.
type listFlag []string

// Set adds a text.
func (l *listFlag) Set(text string) error {
	*l = append(*l, text)
	return nil
}

// String joins the texts.
func (l *listFlag) String() string { return strings.Join(*l, " ") }

// headersFlag collects NAME:VALUE.
type headersFlag []client.Header

// Set adds a header.
func (h *headersFlag) Set(text string) error {
	name, value, ok := strings.Cut(text, ":")
	if !ok || name == "" {
		return errors.New("not NAME:VALUE")
	}
	*h = append(*h, client.Header{Name: name, Value: []byte(strings.TrimPrefix(value, " "))})
	return nil
}

// String is empty: there is no default.
func (h *headersFlag) String() string { return "" }

// levelFlag is a durability level.
type levelFlag protocol.Level

// Set reads the name of a level.
func (l *levelFlag) Set(text string) error {
	level, ok := protocol.ParseLevel(text)
	if !ok {
		names := append(levelNames[:len(levelNames):len(levelNames)], protocol.LevelTopic.String())
		return fmt.Errorf("not one of %s%s", strings.Join(names, ", "), cli.Suggestion(text, names, ""))
	}
	*l = levelFlag(level)
	return nil
}

// String names the level.
func (l *levelFlag) String() string { return protocol.Level(*l).String() }

func produce(ctx context.Context, c *cli.Call, o *produceOptions) error {
	messages, lines := c.Args[1:], false
	switch {
	case len(messages) == 1 && messages[0] == "-":
		messages, lines = nil, true
	case len(messages) == 0 && len(o.files) == 0:
		if cli.IsTerminal(c.Stdin) {
			return cli.Usagef("produce: no message; give one, or - for lines of standard input")
		}
		lines = true
	}
	if o.splitKey != "" && (!lines || o.key.given) {
		return cli.Usagef("produce: --split-key is for lines of standard input, and goes without --key")
	}
	if o.count == 0 {
		return cli.Usagef("produce: --count 0: nothing to send")
	}
	values, err := o.read(messages)
	if err != nil {
		return err
	}
	opts := []client.ProducerOption{client.Durable(protocol.Level(o.level)), client.DeliveryTimeout(c.Patience())}
	return withClient(ctx, c, func(cl *client.Client) error {
		p, err := cl.NewProducer(opts...)
		if err != nil {
			return err
		}
		if lines || o.count > 1 {
			s := stream{c: c, o: o, producer: p}
			return s.run(ctx, values, lines)
		}
		err = o.sendEach(ctx, c, p, values)
		return errors.Join(err, p.Close(ctx))
	})
}

// read returns the messages of arguments and files.
func (o *produceOptions) read(arguments []string) ([][]byte, error) {
	var values [][]byte
	for _, a := range arguments {
		values = append(values, []byte(a))
	}
	for _, name := range o.files {
		b, err := readMessageFile(name)
		if err != nil {
			return nil, err
		}
		values = append(values, b)
	}
	return values, nil
}

// readMessageFile reads a file that is one message.
func readMessageFile(name string) (b []byte, err error) {
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, cli.WithCode(cli.ExitNotFound, err)
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b, err = io.ReadAll(io.LimitReader(f, protocol.MaxMessageBytes+1))
	if err == nil && len(b) > protocol.MaxMessageBytes {
		err = fmt.Errorf("%s: %w", name, &protocol.Error{Code: protocol.TooLarge, Detail: "message", Actual: uint64(len(b)),
			Limit: protocol.MaxMessageBytes, Setting: "max_message_bytes"})
	}
	return b, err
}

// message is what is sent for a value.
func (o *produceOptions) message(topic string, value []byte) client.Message {
	m := client.Message{Topic: topic, Value: value, Headers: o.headers}
	if o.key.given {
		m.Key = []byte(o.key.text)
	}
	if o.splitKey != "" {
		if key, rest, ok := strings.Cut(string(value), o.splitKey); ok {
			m.Key, m.Value = []byte(key), []byte(rest)
		}
	}
	if o.partition.given {
		m.Partition = client.Partition(o.partition.number)
	}
	return m
}

// sentFacts is one acknowledged message. Without an acknowledgement there is no offset.
type sentFacts struct {
	Topic     string  `json:"topic"`
	Partition uint32  `json:"partition"`
	Offset    *uint64 `json:"offset"`
	Bytes     int     `json:"bytes"` // of the value
	Level     string  `json:"level"`
	MS        float64 `json:"ms"`
}

// sendEach sends messages one by one and prints each.
func (o *produceOptions) sendEach(ctx context.Context, c *cli.Call, p *client.Producer, values [][]byte) error {
	for _, value := range values {
		began := c.Now()
		ack, err := p.Send(ctx, o.message(c.Args[0], value))
		if err != nil {
			return err
		}
		took := c.Now().Sub(began)
		facts := sentFacts{Topic: ack.Topic, Partition: ack.Partition, Bytes: len(value), Level: ack.Level.String(), MS: float64(took.Microseconds()) / 1000}
		place := fmt.Sprintf("%s/%d", ack.Topic, ack.Partition)
		if ack.Offset != client.NoOffset {
			facts.Offset = &ack.Offset
			place += fmt.Sprintf("@%d", ack.Offset)
		}
		if err := c.Object(facts, func(w io.Writer) {
			fmt.Fprintf(w, "%s  %s  %s  %.1f ms\n", place, cli.HumanSize(int64(facts.Bytes)), facts.Level, facts.MS)
		}); err != nil {
			return err
		}
	}
	return nil
}

// stream sends many messages without waiting for each.
type stream struct {
	c        *cli.Call
	o        *produceOptions
	producer *client.Producer
	progress *cli.Progress

	mu     sync.Mutex // callbacks come on the producer's goroutine
	acked  int64      // guarded by mu, and so are the others
	bytes  int64
	failed int64
	first  error // of the first that failed
}

// streamFacts is the result of a stream.
type streamFacts struct {
	Records int64   `json:"records"` // acknowledged
	Failed  int64   `json:"failed"`
	Bytes   int64   `json:"bytes"` // of acknowledged values
	Seconds float64 `json:"seconds"`
	Rate    float64 `json:"rate"` // records a second
}

// run sends values, or lines of standard input, and waits for the last answer.
func (s *stream) run(ctx context.Context, values [][]byte, lines bool) error {
	began := s.c.Now()
	total := int64(len(values)) * s.o.count
	s.progress = s.c.StartProgress("produce", "records", total)
	defer s.progress.Finish()
	var err error
	if lines {
		err = eachLine(s.c.Input(ctx), func(line []byte) error { return s.send(ctx, line) })
	} else {
		for i := 0; i < len(values) && err == nil; i++ {
			err = s.send(ctx, values[i])
		}
	}
	end, cancel := s.c.Deadline(context.WithoutCancel(ctx)) // what was given is seen through
	defer cancel()
	cerr := s.producer.Close(end)
	s.progress.Finish()
	s.mu.Lock()
	defer s.mu.Unlock()
	facts := streamFacts{Records: s.acked, Failed: s.failed, Bytes: s.bytes, Seconds: s.c.Now().Sub(began).Seconds()}
	if facts.Seconds > 0 {
		facts.Rate = float64(s.acked) / facts.Seconds
	}
	if perr := s.report(facts); perr != nil {
		return perr
	}
	switch {
	case s.first != nil:
		return fmt.Errorf("%s not acknowledged: %w", cli.Plural(int(s.failed), "message"), s.first)
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted after %s", cli.Plural(int(s.acked), "message"))
	}
	return errors.Join(err, cerr)
}

// report prints the result: for people on stderr, so that stdout stays empty.
func (s *stream) report(facts streamFacts) error {
	if s.c.Output == cli.OutputJSON || s.c.Output == cli.OutputCSV {
		return s.c.Object(facts, nil)
	}
	s.c.Notice("%s acknowledged, %d failed, %s, %s, %s/s", cli.Plural(int(facts.Records), "record"), facts.Failed,
		cli.HumanSize(facts.Bytes), cli.HumanSeconds(facts.Seconds), cli.HumanCount(facts.Rate))
	return nil
}

// send gives a message to the producer as often as --count says, which waits
// while its buffer is full.
//
// Errors: also that an earlier message failed.
func (s *stream) send(ctx context.Context, value []byte) error {
	m := s.o.message(s.c.Args[0], value)
	size := int64(len(m.Value))
	done := func(_ client.Ack, err error) { s.settled(size, err) }
	for range s.o.count {
		if err := errors.Join(ctx.Err(), s.failure()); err != nil {
			return err
		}
		if err := s.producer.Async(m, done); err != nil {
			s.settled(size, err)
			return err
		}
	}
	return nil
}

// settled is told what became of a message.
func (s *stream) settled(size int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.failed++
		if s.first == nil {
			s.first = err
		}
		return
	}
	s.acked++
	s.bytes += size
	s.progress.Add(1)
}

// failure is the error of the first message that failed.
func (s *stream) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.first
}
