package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace-mq/millrace/client"
	"github.com/millrace-mq/millrace/protocol"
)

// endKey marks a record that says to a following consumer that its partition ends
// here. Payloads have no key.
const endKey = "bench-end"

// reader is one consuming client: it decodes every record and shows it to see.
type reader struct {
	// immutable
	topic string
	see   func(partition int, offset uint64, value []byte)
	add   func(uint64) // progress
	ends  int          // partitions whose end mark is waited for; 0 = the read ends by itself

	// owned by the goroutine of read
	records uint64
	bytes   uint64 // of values
	first   time.Time
	last    time.Time // of the last record
}

// read reads the topic through a connection of its own until its end.
//
// Errors: those of client.Read; the loss of the connection.
func (r *reader) read(ctx context.Context, b *Bench, name string, opts ...client.ReadOption) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c, err := b.open(ctx, name, func(err error) { cancel(err) })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	opts = append(opts, client.From(protocol.Start), client.CreditBytes(readCredit))
	left := r.ends
	for rec, err := range c.Read(ctx, r.topic, opts...) {
		if err != nil {
			return errors.Join(context.Cause(ctx), fmt.Errorf("after %d records: %w", r.records, err))
		}
		if rec.Key != nil && string(rec.Key) == endKey {
			if left--; left == 0 {
				break
			}
			continue
		}
		if r.records == 0 {
			r.first = time.Now()
		}
		r.see(int(rec.Partition), rec.Offset, rec.Value)
		r.bytes += uint64(len(rec.Value))
		if r.records++; r.records%progressEvery == 0 {
			r.add(progressEvery)
		}
	}
	r.add(r.records % progressEvery)
	r.last = time.Now()
	return nil
}

// readCredit is how many bytes a broker may be ahead of a consumer.
const readCredit = 4 << 20

// arrivals judges the records of a topic that somebody else filled: by payloads that
// prove themselves, by offsets without gap, and by each producer's sequence numbers.
// What was acknowledged is not known here, so only gaps count as lost.
//
// Ownership: one goroutine.
//
// Bounds: as Accounting, for the producers and messages that turn up.
type arrivals struct {
	// immutable
	payloads *Payloads
	limit    uint64 // messages there are at most

	// owned by the calling goroutine
	offsets []uint64 // by partition: the next one; 0 = none seen yet
	seen    []bitmap // by producer
	next    [][]uint64
	found   Verify
}

// observe takes one record.
func (a *arrivals) observe(partition int, offset uint64, value []byte) {
	for partition >= len(a.offsets) {
		a.offsets, a.next = append(a.offsets, 0), append(a.next, nil)
	}
	if want := a.offsets[partition]; want != 0 && offset > want {
		a.found.Lost += offset - want
	}
	a.offsets[partition] = offset + 1
	producer, seq, ok := a.payloads.Check(value)
	if !ok {
		a.found.Altered++
		return
	}
	if producer >= maxProducers || seq >= a.limit {
		a.found.Foreign++
		return
	}
	for int(producer) >= len(a.seen) {
		a.seen = append(a.seen, bitmap{})
	}
	next := a.next[partition]
	for int(producer) >= len(next) {
		next = append(next, 0)
	}
	a.next[partition] = next
	switch again := a.seen[producer].set(seq, a.limit); {
	case again:
		a.found.Duplicated++
	case seq < next[producer]:
		a.found.Reordered++
	}
	next[producer] = max(next[producer], seq+1)
}
