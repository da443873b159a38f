package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/millrace-mq/millrace/client"
	"github.com/millrace-mq/millrace/protocol"
)

var consumeCommand = command{
	name:    "consume",
	args:    "TOPIC",
	minArgs: 1, maxArgs: 1,
	summary: "Read messages of a topic",
	help: "Without --to, -n and --follow it reads what is there and ends. With -n it ends after N messages and waits for them; with --follow it " +
		"goes on until it is interrupted, and begins at the end unless --from says otherwise. " +
		"When nothing comes for --timeout (with --follow only where it is given), the exit code is 4.\n" +
		"Positions of --from and --to: start, end, 45678 (an offset), -100 (the last 100), -15m (that long ago), @2026-11-30T10:00Z. " +
		"--to is where it ends, not included. Each partition has its own positions; with several, each is read in its own order.\n" +
		"-f FORMAT: " + formatHelp + ". Nothing is added, so end it in \\n. Without -f the value and a line end are printed. " +
		"On a terminal bytes that are no text are shown escaped or in hex.\n" +
		"-o json prints an object a line: {\"topic\",\"partition\",\"offset\",\"timestamp\",\"key\",\"value\",\"headers\":[{\"name\",\"value\"}]}; " +
		"bytes that are no UTF-8 come as key_base64 and value_base64, a missing key and the value of a tombstone as null.\n" +
		"Damage ends it with exit code 6. With --skip-corrupt it is reported and left out, and the exit code is 6 in the end.",
	setup: func(fs *flag.FlagSet) runFunc {
		var o consumeOptions
		fs.StringVar(&o.from, "from", "", "`POSITION` to begin at (default start; end with --follow)")
		fs.StringVar(&o.to, "to", "", "`POSITION` to end before")
		countVar(fs, &o.most, "count-max", 0, "end after `N` messages; 0 = no limit")
		alias(fs, "n", "count-max")
		fs.BoolVar(&o.count, "count", false, "print only {\"records\":N,\"first\":OFFSET,\"last\":OFFSET}")
		partitionVar(fs, &o.partition, "read partition `N` only")
		fs.StringVar(&o.format, "format", "", "how to print a message, `FORMAT`")
		alias(fs, "f", "format")
		fs.BoolVar(&o.follow, "follow", false, "wait for more at the end")
		fs.BoolVar(&o.skip, "skip-corrupt", false, "go on behind damage")
		return func(ctx context.Context, c *call) error {
			o.patient = o.follow && !given(fs, "timeout")
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
			return nil, usagef("consume: --from: %w", err)
		}
	}
	opts := []client.ReadOption{client.From(from), client.MaxRecords(uint64(o.most))}
	switch {
	case o.to != "" && o.follow:
		return nil, usagef("consume: --to ends where --follow goes on; give one of them")
	case o.to != "":
		to, err := protocol.ParsePosition(o.to, now)
		if err != nil {
			return nil, usagef("consume: --to: %w", err)
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

func consume(ctx context.Context, c *call, o *consumeOptions) error {
	opts, err := o.readOptions(c.now())
	if err != nil {
		return err
	}
	out, err := newRecordPrinter(c, o)
	if err != nil {
		return err
	}
	return c.withClient(ctx, func(cl *client.Client) error {
		r := consumption{c: c, o: o, out: out}
		err := r.read(ctx, cl, opts)
		return errors.Join(err, out.flush())
	})
}

// consumption is one run of consume.
type consumption struct {
	c       *call
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
	timeout := r.c.patience()
	if r.o.patient {
		timeout = forever
	}
	silence := time.AfterFunc(timeout, func() { cancel(errSilence) })
	defer silence.Stop()
	var failed error
	for rec, err := range cl.Read(ctx, r.c.args[0], opts...) {
		silence.Stop() // whoever reads the output may take long
		if err == nil {
			r.records++
			err = r.out.print(rec)
		}
		if damage, ok := errors.AsType[*client.CorruptError](err); ok && r.o.skip {
			r.damages++
			r.c.notice("skipped: %v", damage)
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
		return withCode(exitDamage, fmt.Errorf("%s skipped", plural(r.damages, "damaged range")))
	case failed == nil:
		return nil
	case errors.Is(context.Cause(ctx), errSilence):
		return withCode(exitTimeout, fmt.Errorf("%w: %s of silence after %s", errSilence, timeout, plural(int(r.records), "message")))
	case parent.Err() != nil && r.o.follow:
		return nil // whoever follows ends it so
	case parent.Err() != nil:
		return fmt.Errorf("interrupted after %s", plural(int(r.records), "message"))
	}
	return failed
}

// recordPrinter prints records in one of the forms.
type recordPrinter interface {
	print(r *client.Record) error
	flush() error
}

func newRecordPrinter(c *call, o *consumeOptions) (recordPrinter, error) {
	if o.format != "" && (c.output == outputJSON || c.output == outputCSV) {
		return nil, usagef("consume: -f goes with -o text only")
	}
	if o.count {
		return &recordCounter{c: c}, nil
	}
	switch c.output {
	case outputJSON:
		return &jsonRecords{out: newLazyWriter(c.stdout)}, nil
	case outputCSV:
		return csvRecords{c.rows("topic", "partition", "offset", "timestamp", "key", "key_base64", "value", "value_base64", "headers")}, nil
	}
	text := o.format
	if text == "" {
		text = `%s\n`
	}
	format, err := parseFormat(text)
	if err != nil {
		return nil, usagef("consume: %w", err)
	}
	format.safe = isScreen(c.stdout)
	return &textRecords{format: format, out: newLazyWriter(c.stdout)}, nil
}

// textRecords prints by a format.
type textRecords struct {
	format *recordFormat
	out    *lazyWriter
	line   []byte
}

func (p *textRecords) print(r *client.Record) error {
	p.line = p.format.append(p.line[:0], &placedRecord{r.Topic, r.Partition, &r.Record})
	_, err := p.out.Write(p.line)
	return err
}

func (p *textRecords) flush() error { return p.out.flush() }

// jsonRecords prints an object a line.
type jsonRecords struct {
	out  *lazyWriter
	line []byte
}

func (p *jsonRecords) print(r *client.Record) error {
	p.line = appendRecordJSON(p.line[:0], r.Topic, r.Partition, &r.Record)
	_, err := p.out.Write(p.line)
	return err
}

func (p *jsonRecords) flush() error { return p.out.flush() }

// csvRecords prints rows.
type csvRecords struct{ rows *rowPrinter }

func (p csvRecords) print(r *client.Record) error {
	key, keyBase64 := textOrBase64(r.Key)
	value, valueBase64 := textOrBase64(r.Value)
	p.rows.add(r.Topic, r.Partition, r.Offset, rfc3339(r.Timestamp), key, keyBase64, value, valueBase64,
		string(appendHeadersJSON(nil, r.Headers)))
	return p.rows.err
}

func (p csvRecords) flush() error { return p.rows.flush() }

// recordCounter prints how many records there were and between which offsets.
type recordCounter struct {
	c           *call
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
	line, err := marshalLine(facts)
	if err != nil {
		return err
	}
	return p.c.object(facts, func(w io.Writer) { fmt.Fprintf(w, "%s", line) })
}
