package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/millrace-mq/millrace/client"
	"github.com/millrace-mq/millrace/cmd/millrace/cli"
	"github.com/millrace-mq/millrace/cmd/millrace/record"
	"github.com/millrace-mq/millrace/protocol"
)

var consumeCommand = cli.Command{
	Name:    "consume",
	Args:    "TOPIC",
	MinArgs: 1, MaxArgs: 1,
	Summary: "Read messages of a topic",
	Help: "Without --to, -n and --follow it reads what is there and ends. With -n it ends after N messages and waits for them; with --follow it " +
		"goes on until it is interrupted, and begins at the end unless --from says otherwise. " +
		"When nothing comes for --timeout (with --follow only where it is given), the exit code is 4.\n" +
		"Positions of --from and --to: start, end, 45678 (an offset), -100 (the last 100), -15m (that long ago), @2026-11-30T10:00Z. " +
		"--to is where it ends, not included. Each partition has its own positions; with several, each is read in its own order.\n" +
		"-f FORMAT: " + record.FormatHelp + ". Nothing is added, so end it in \\n. Without -f the value and a line end are printed. " +
		"On a terminal bytes that are no text are shown escaped or in hex.\n" +
		"-o json prints an object a line: {\"topic\",\"partition\",\"offset\",\"timestamp\",\"key\",\"value\",\"headers\":[{\"name\",\"value\"}]}; " +
		"bytes that are no UTF-8 come as key_base64 and value_base64, a missing key and the value of a tombstone as null.\n" +
		"Damage ends it with exit code 6. With --skip-corrupt it is reported and left out, and the exit code is 6 in the end.",
	Setup: func(fs *flag.FlagSet) cli.RunFunc {
		var o consumeOptions
		fs.StringVar(&o.from, "from", "", "`POSITION` to begin at (default start; end with --follow)")
		fs.StringVar(&o.to, "to", "", "`POSITION` to end before")
		cli.CountVar(fs, &o.most, "count-max", 0, "end after `N` messages; 0 = no limit")
		cli.Alias(fs, "n", "count-max")
		fs.BoolVar(&o.count, "count", false, "print only {\"records\":N,\"first\":OFFSET,\"last\":OFFSET}")
		partitionVar(fs, &o.partition, "read partition `N` only")
		fs.StringVar(&o.format, "format", "", "how to print a message, `FORMAT`")
		cli.Alias(fs, "f", "format")
		fs.BoolVar(&o.follow, "follow", false, "wait for more at the end")
		fs.BoolVar(&o.skip, "skip-corrupt", false, "go on behind damage")
		return func(ctx context.Context, c *cli.Call) error {
			o.patient = o.follow && !cli.Given(fs, "timeout")
			return consume(ctx, c, &o)
		}
	},
}

// consumeOptions are the flags of consume.
type consumeOptions struct {
	from, to            string
	most                int64
	partition           partitionFlag
	format              string
	count, follow, skip bool
	patient             bool // silence ends nothing
}

// readOptions turns the flags into what the client takes.
func (o *consumeOptions) readOptions(now time.Time) ([]client.ReadOption, error) {
	from := protocol.Start
	if o.follow {
		from = protocol.End
	}
	var err error
	if o.from != "" {
		if from, err = protocol.ParsePosition(o.from, now); err != nil {
			return nil, cli.Usagef("consume: --from: %w", err)
		}
	}
	opts := []client.ReadOption{client.From(from), client.MaxRecords(uint64(o.most))}
	switch {
	case o.to != "" && o.follow:
		return nil, cli.Usagef("consume: --to ends where --follow goes on; give one of them")
	case o.to != "":
		to, err := protocol.ParsePosition(o.to, now)
		if err != nil {
			return nil, cli.Usagef("consume: --to: %w", err)
		}
		opts = append(opts, client.Until(to))
	case !o.follow && o.most == 0:
		opts = append(opts, client.Until(protocol.End))
	}
	if o.partition.given {
		opts = append(opts, client.OfPartition(o.partition.number))
	}
	if o.skip {
		opts = append(opts, client.SkipCorrupt())
	}
	return opts, nil
}

func consume(ctx context.Context, c *cli.Call, o *consumeOptions) error {
	opts, err := o.readOptions(c.Now())
	if err != nil {
		return err
	}
	out, err := newRecordPrinter(c, o)
	if err != nil {
		return err
	}
	return withClient(ctx, c, func(cl *client.Client) error {
		r := consumption{c: c, o: o, out: out}
		err := r.read(ctx, cl, opts)
		return errors.Join(err, out.flush())
	})
}

// consumption is one run of consume.
type consumption struct {
	c       *cli.Call
	o       *consumeOptions
	out     recordPrinter
	records int64
	damages int
}

var errSilence = errors.New("nothing came in time")

// read prints records until there is a reason to end.
func (r *consumption) read(parent context.Context, cl *client.Client, opts []client.ReadOption) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	timeout := r.c.Patience()
	if r.o.patient {
		timeout = cli.Forever
	}
	silence := time.AfterFunc(timeout, func() { cancel(errSilence) })
	defer silence.Stop()
	var failed error
	for rec, err := range cl.Read(ctx, r.c.Args[0], opts...) {
		silence.Stop() // whoever reads the output may take long
		if err == nil {
			r.records++
			err = r.out.print(rec)
		}
		if damage, ok := errors.AsType[*client.CorruptError](err); ok && r.o.skip {
			r.damages++
			r.c.Notice("skipped: %v", damage)
			err = nil
		}
		if err != nil {
			failed = err
			break
		}
		silence.Reset(timeout)
	}
	switch {
	case failed == nil && r.damages > 0:
		return cli.WithCode(cli.ExitDamage, fmt.Errorf("%s skipped", cli.Plural(r.damages, "damaged range")))
	case failed == nil:
		return nil
	case errors.Is(context.Cause(ctx), errSilence):
		return cli.WithCode(cli.ExitTimeout, fmt.Errorf("%w: %s of silence after %s", errSilence, timeout, cli.Plural(int(r.records), "message")))
	case parent.Err() != nil && r.o.follow:
		return nil // whoever follows ends it so
	case parent.Err() != nil:
		return fmt.Errorf("interrupted after %s", cli.Plural(int(r.records), "message"))
	}
	return failed
}

// recordPrinter prints records in one of the forms.
type recordPrinter interface {
	print(r *client.Record) error
	flush() error
}

func newRecordPrinter(c *cli.Call, o *consumeOptions) (recordPrinter, error) {
	if o.format != "" && (c.Output == cli.OutputJSON || c.Output == cli.OutputCSV) {
		return nil, cli.Usagef("consume: -f goes with -o text only")
	}
	if o.count {
		return &recordCounter{c: c}, nil
	}
	switch c.Output {
	case cli.OutputJSON:
		return &jsonRecords{out: cli.NewLazyWriter(c.Stdout)}, nil
	case cli.OutputCSV:
		return csvRecords{c.Rows("topic", "partition", "offset", "timestamp", "key", "key_base64", "value", "value_base64", "headers")}, nil
	}
	text := o.format
	if text == "" {
		text = `%s\n`
	}
	format, err := record.ParseFormat(text)
	if err != nil {
		return nil, cli.Usagef("consume: %w", err)
	}
	format.Safe = cli.IsTerminal(c.Stdout)
	return &textRecords{format: format, out: cli.NewLazyWriter(c.Stdout)}, nil
}

// textRecords prints by a format.
type textRecords struct {
	format *record.Format
	out    *cli.LazyWriter
	line   []byte
}

func (p *textRecords) print(r *client.Record) error {
	p.line = p.format.Append(p.line[:0], &record.Placed{Topic: r.Topic, Partition: r.Partition, Record: &r.Record})
	_, err := p.out.Write(p.line)
	return err
}

func (p *textRecords) flush() error { return p.out.Flush() }

// jsonRecords prints an object a line.
type jsonRecords struct {
	out  *cli.LazyWriter
	line []byte
}

func (p *jsonRecords) print(r *client.Record) error {
	p.line = record.AppendJSON(p.line[:0], r.Topic, r.Partition, &r.Record)
	_, err := p.out.Write(p.line)
	return err
}

func (p *jsonRecords) flush() error { return p.out.Flush() }

// csvRecords prints rows.
type csvRecords struct{ rows *cli.RowPrinter }

func (p csvRecords) print(r *client.Record) error {
	key, keyBase64 := record.TextOrBase64(r.Key)
	value, valueBase64 := record.TextOrBase64(r.Value)
	p.rows.Add(r.Topic, r.Partition, r.Offset, record.RFC3339(r.Timestamp), key, keyBase64, value, valueBase64,
		string(record.AppendHeadersJSON(nil, r.Headers)))
	return p.rows.Err()
}

func (p csvRecords) flush() error { return p.rows.Flush() }

// recordCounter prints how many records there were and between which offsets.
type recordCounter struct {
	c           *cli.Call
	n           uint64
	first, last uint64
}

func (p *recordCounter) print(r *client.Record) error {
	if p.n == 0 || r.Offset < p.first {
		p.first = r.Offset
	}
	p.last = max(p.last, r.Offset)
	p.n++
	return nil
}

// countFacts is what --count prints; first and last are null where there was no record.
type countFacts struct {
	Records uint64  `json:"records"`
	First   *uint64 `json:"first"`
	Last    *uint64 `json:"last"`
}

func (p *recordCounter) flush() error {
	facts := countFacts{Records: p.n}
	if p.n > 0 {
		facts.First, facts.Last = &p.first, &p.last
	}
	line, err := cli.MarshalLine(facts)
	if err != nil {
		return err
	}
	return p.c.Object(facts, func(w io.Writer) { fmt.Fprintf(w, "%s", line) })
}
