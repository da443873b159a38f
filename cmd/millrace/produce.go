package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

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
		"(with -o json as an object on stdout). It stops at the first message that is not acknowledged, and says " +
		"where, how many were acknowledged, and which errors there were.\n" +
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
	values, names, err := o.read(messages)
	if err != nil {
		return err
	}
	opts := []client.ProducerOption{client.Durable(protocol.Level(o.level)), client.DeliveryTimeout(c.Patience())}
	return withLink(ctx, c, func(cl *client.Client, l *link) error {
		p, err := cl.NewProducer(opts...)
		if err != nil {
			return err
		}
		if lines || o.count > 1 {
			s := stream{c: c, o: o, client: cl, producer: p, link: l}
			return s.run(ctx, values, lines)
		}
		e := eachSender{c: c, o: o, client: cl, producer: p, link: l}
		err = e.send(ctx, values, names)
		return errors.Join(err, p.Close(ctx))
	})
}

// read returns the messages of arguments and files, and what to call each.
func (o *produceOptions) read(arguments []string) (values [][]byte, names []string, err error) {
	for n, a := range arguments {
		values, names = append(values, []byte(a)), append(names, fmt.Sprintf("message %d", n+1))
	}
	for _, name := range o.files {
		b, err := readMessageFile(name)
		if err != nil {
			return nil, nil, err
		}
		values, names = append(values, b), append(names, name)
	}
	return values, names, nil
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
	if info, err := f.Stat(); err != nil || info.IsDir() {
		return nil, errors.Join(err, cli.WithCode(cli.ExitNotFound, fmt.Errorf("%s is a directory; --file takes a file", name)))
	}
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

// eachSender sends messages one by one and prints each.
type eachSender struct {
	c        *cli.Call
	o        *produceOptions
	client   *client.Client
	producer *client.Producer
	link     *link
	rows     *cli.RowPrinter // for CSV, which has one head
}

// send sends messages, and says of one that fails which it was.
func (e *eachSender) send(ctx context.Context, values [][]byte, names []string) error {
	if e.c.Output == cli.OutputCSV {
		e.rows = e.c.Rows("topic", "partition", "offset", "bytes", "level", "ms")
	}
	for n, value := range values {
		began := e.c.Now()
		ack, err := e.producer.Send(ctx, e.o.message(e.c.Args[0], value))
		if err != nil {
			err = withRefusal(advise(ctx, e.c, e.client, e.c.Args[0], err), e.link)
			if len(values) > 1 {
				err = fmt.Errorf("stopped at %s, %d of %d were acknowledged: %w", names[n], n, len(values), err)
			}
			return err
		}
		e.link.accepted()
		if err := e.print(ack, len(value), e.c.Now().Sub(began)); err != nil {
			return err
		}
	}
	return nil
}

// print shows one message that was acknowledged.
func (e *eachSender) print(ack client.Ack, size int, took time.Duration) error {
	facts := sentFacts{Topic: ack.Topic, Partition: ack.Partition, Bytes: size, Level: ack.Level.String(), MS: float64(took.Microseconds()) / 1000}
	place := fmt.Sprintf("%s/%d", ack.Topic, ack.Partition)
	offset := any(nil)
	if ack.Offset != client.NoOffset {
		facts.Offset, offset = &ack.Offset, ack.Offset
		place += fmt.Sprintf("@%d", ack.Offset)
	}
	if e.rows != nil {
		e.rows.Add(facts.Topic, facts.Partition, offset, facts.Bytes, facts.Level, facts.MS)
		return e.rows.Flush()
	}
	return e.c.Object(facts, func(w io.Writer) {
		fmt.Fprintf(w, "%s  %s  %s  %.1f ms\n", place, cli.HumanSize(int64(facts.Bytes)), facts.Level, facts.MS)
	})
}

// withRefusal adds to an error since when the broker has refused messages.
func withRefusal(err error, l *link) error {
	if since := l.refusedSince(); since != "" {
		return fmt.Errorf("%w (%s)", err, since)
	}
	return err
}
