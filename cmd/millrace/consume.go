package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
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
		"When the connection is lost and does not come back for --timeout, it is 5.\n" +
		"A topic that does not exist is an error: reading makes none. With --wait it waits for the topic, and then reads it from its start " +
		"unless --from says otherwise.\n" +
		"Positions of --from and --to: start, end, 45678 (an offset), -100 (the last 100), -15m (that long ago), @2026-11-30T10:00Z " +
		"(millrace help positions). --to is where it ends, not included. Each partition has its own positions; with several, each is read in its " +
		"own order. An offset of --from that a partition does not have is an error before anything is printed.\n" +
		"--count over several partitions has \"partitions\":[{\"partition\",\"records\",\"first\",\"last\"}] in addition.\n" +
		"-f FORMAT: " + record.FormatHelp + ". Nothing is added, so end it in \\n (millrace help format).\n" +
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
		fs.BoolVar(&o.wait, "wait", false, "wait for the topic to appear, for ever unless --timeout is given")
		return func(ctx context.Context, c *cli.Call) error {
			o.waitPatient = !cli.Given(fs, "timeout")
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
	wait                bool
	patient             bool // silence ends nothing
	waitPatient         bool // the wait for the topic has no end
}

// span turns --from and --to into positions; bounded tells that the read ends at one.
func (o *consumeOptions) span(now time.Time) (from, to protocol.Position, bounded bool, err error) {
	from, to = protocol.Start, protocol.End
	if o.follow {
		from = protocol.End
	}
	if o.from != "" {
		if from, err = protocol.ParsePosition(o.from, now); err != nil {
			return from, to, false, cli.Usagef("consume: --from: %w", err)
		}
	}
	switch {
	case o.to != "" && o.follow:
		return from, to, false, cli.Usagef("consume: --to ends where --follow goes on; give one of them")
	case o.to != "":
		if to, err = protocol.ParsePosition(o.to, now); err != nil {
			return from, to, false, cli.Usagef("consume: --to: %w", err)
		}
		if before(to, from) {
			return from, to, false, cli.Usagef("consume: --to %s lies before --from %s: there is nothing between them", o.to, o.from)
		}
	}
	return from, to, o.to != "" || !o.follow && o.most == 0, nil
}

// before tells whether a lies before b wherever partitions begin and end.
func before(a, b protocol.Position) bool {
	switch {
	case a.Kind == protocol.PositionStart:
		return b.Kind == protocol.PositionEnd || b.Kind == protocol.PositionOffset && b.Value > 0
	case a.Kind != b.Kind:
		return false
	case a.Kind == protocol.PositionLast:
		return a.Value > b.Value
	}
	return a.Value < b.Value
}

func consume(ctx context.Context, c *cli.Call, o *consumeOptions) error {
	from, to, bounded, err := o.span(c.Now())
	if err != nil {
		return err
	}
	out, err := newRecordPrinter(c, o)
	if err != nil {
		return err
	}
	if o.from != "" && o.to != "" && from == to {
		c.Notice("--from and --to are the same: there is nothing between them")
	}
	opts := []client.ReadOption{client.MaxRecords(uint64(o.most))}
	if bounded {
		opts = append(opts, client.Until(to))
	}
	if o.partition.given {
		opts = append(opts, client.OfPartition(o.partition.number))
	}
	if o.skip {
		opts = append(opts, client.SkipCorrupt())
	}
	return withLink(ctx, c, func(cl *client.Client, l *link) error {
		r := consumption{c: c, o: o, out: out, link: l}
		from, err := r.prepare(ctx, cl, from)
		if err != nil {
			return err
		}
		err = r.advise(ctx, cl, r.read(ctx, cl, append(opts, client.From(from))))
		return errors.Join(err, out.flush())
	})
}

// consumption is one run of consume.
type consumption struct {
	c       *cli.Call
	o       *consumeOptions
	out     recordPrinter
	link    *link
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
	case errors.Is(context.Cause(ctx), errSilence) && r.link.down():
		return cli.WithCode(cli.ExitUnreachable, fmt.Errorf("no broker at %s: the connection was lost and did not come back within %s; %s read before",
			r.c.Addr, timeout, cli.Plural(int(r.records), "message")))
	case errors.Is(context.Cause(ctx), errSilence):
		return cli.WithCode(cli.ExitTimeout, fmt.Errorf("%w: %s of silence after %s", errSilence, timeout, cli.Plural(int(r.records), "message")))
	case parent.Err() != nil && r.o.follow:
		return nil // whoever follows ends it so
	case parent.Err() != nil:
		return fmt.Errorf("interrupted after %s", cli.Plural(int(r.records), "message"))
	}
	return failed
}

// prepare waits for the topic where it is told to, and checks what can be checked
// before anything is printed. It returns where to begin.
//
// Errors: OFFSET_OUT_OF_RANGE with all partitions that do not have the offset.
func (r *consumption) prepare(ctx context.Context, cl *client.Client, from protocol.Position) (protocol.Position, error) {
	o := r.o
	counter, counts := r.out.(*recordCounter)
	if !o.wait && !counts && from.Kind != protocol.PositionOffset {
		return from, nil
	}
	info, waited, err := r.topic(ctx, cl)
	if err != nil {
		return from, r.advise(ctx, cl, err)
	}
	if waited && o.from == "" {
		from = protocol.Start // what came first must not be missed
	}
	if counts && len(info.Partitions) > 1 && !o.partition.given {
		counter.parts = make([]span, len(info.Partitions))
	}
	if from.Kind != protocol.PositionOffset {
		return from, nil
	}
	var outside []string
	for n, p := range info.Partitions {
		if o.partition.given && uint32(n) != o.partition.number || from.Value >= p.Start && from.Value <= p.End {
			continue
		}
		outside = append(outside, fmt.Sprintf("%s/%d has [%d, %d)", info.Name, n, p.Start, p.End))
	}
	if len(outside) == 0 {
		return from, nil
	}
	const most = 8
	if more := len(outside) - most; more > 0 {
		outside = append(outside[:most], fmt.Sprintf("and %d more", more))
	}
	return from, &advised{fmt.Sprintf("OFFSET_OUT_OF_RANGE: offset %d is outside: %s; begin at start, end or -N, or name a partition with --partition",
		from.Value, strings.Join(outside, ", ")), &protocol.Error{Code: protocol.OffsetOutOfRange}}
}

// lookForTopic is how often --wait looks.
const lookForTopic = 100 * time.Millisecond

// topic describes the topic, with --wait as soon as there is one.
func (r *consumption) topic(ctx context.Context, cl *client.Client) (info protocol.TopicInfo, waited bool, err error) {
	patience := r.c.Patience()
	if r.o.waitPatient {
		patience = cli.Forever
	}
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(lookForTopic)
	defer tick.Stop()
	for {
		info, err = cl.DescribeTopic(ctx, r.c.Args[0])
		if !r.o.wait || !errors.Is(err, protocol.UnknownTopic) {
			return info, waited, err
		}
		if !waited {
			r.c.Notice("waiting for the topic %s", r.c.Args[0])
		}
		waited = true
		select {
		case <-tick.C:
		case <-wait.Done():
			if ctx.Err() != nil {
				return info, waited, errors.New("interrupted while waiting for the topic")
			}
			return info, waited, cli.WithCode(cli.ExitTimeout, fmt.Errorf("no topic %q within %s", r.c.Args[0], patience))
		}
	}
}

// advise adds to what is said of a topic that does not exist how it comes to be.
func (r *consumption) advise(ctx context.Context, cl *client.Client, err error) error {
	if !errors.Is(err, protocol.UnknownTopic) {
		return err
	}
	return &advised{unknownTopicText(ctx, r.c, cl, r.c.Args[0]) + ", or produce to it first; --wait waits for it", err}
}
