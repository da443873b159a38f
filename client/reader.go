package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/millrace-mq/millrace/protocol"
)

// Read iterates over the records of a topic:
//
//	for rec, err := range c.Read(ctx, "orders", client.From(protocol.Start)) {
//		if err != nil { … }
//	}
//
// The order is that of the log within each partition. With Until the partitions are read one
// after the other, each to its end; without, all are followed at once and their records come as
// they arrive. Partitions added to the topic while it is followed are noticed when the
// connection is made anew, and then read from their start.
//
// A connection of its own carries the read, so that a slow loop delays nothing else; it is made
// when the loop begins and closed when it ends. Lost connections and refusals that pass are
// retried inside, without gap or repetition, until ctx ends. Every frame's check is verified.
//
// Errors end the iterator, except a *CorruptError with SkipCorrupt: the context's error (also
// when it was cancelled to stop following), ErrClosed, protocol.UnknownTopic (reading creates
// no topic), protocol.UnknownPartition, protocol.OffsetOutOfRange, protocol.LostSuffix,
// *CorruptError, protocol.Unsupported for a codec that this client does not know.
//
// Ownership: a *Record is valid until the loop asks for the next one.
// Bounds: CreditBytes.
func (c *Client) Read(ctx context.Context, topic string, opts ...ReadOption) iter.Seq2[*Record, error] {
	return func(yield func(*Record, error) bool) {
		r, err := c.newReader(ctx, topic, opts)
		if err != nil {
			yield(nil, err)
			return
		}
		defer r.disconnect()
		rec := &Record{Topic: topic}
		for {
			p, f, err := r.next()
			if err == nil {
				err = r.records(p, f, rec, yield)
			}
			switch {
			case err == nil:
			case errors.Is(err, io.EOF):
				return
			case !yield(nil, err) || !r.goesOn(err):
				return
			}
		}
	}
}

// records yields what frame f has for the reader.
//
// Errors: io.EOF when the reader is through: the loop broke off, or MaxRecords is reached.
func (r *reader) records(p *part, f protocol.Frame, rec *Record, yield func(*Record, error) bool) error {
	rec.Partition = p.number
	_, end := f.Span()
	from, stop := p.next, p.stop
	p.next = min(end, stop)
	it := protocol.Records(f)
	for it.Next() {
		if it.Record.Offset+uint64(it.Record.Span) <= from {
			continue
		}
		if it.Record.Offset >= stop {
			break
		}
		rec.Record = it.Record
		if !yield(rec, nil) {
			return io.EOF
		}
		if r.read++; r.read == r.cfg.maxRecords {
			return io.EOF
		}
	}
	if err := it.Err(); err != nil {
		return &CorruptError{Topic: r.topic, Partition: p.number, From: from, To: p.next, Err: err}
	}
	return nil
}

// Frames iterates over the whole frames of one partition (OfPartition; default 0) that hold
// records between From and Until, for tools that look at frames or decode records themselves.
// The first may begin before From, the last end behind Until; MaxRecords ends after the frame
// that reaches it. Control records are left out. All else is as with Read.
//
// Ownership: a frame is valid until the loop asks for the next one.
func (c *Client) Frames(ctx context.Context, topic string, opts ...ReadOption) iter.Seq2[protocol.Frame, error] {
	return func(yield func(protocol.Frame, error) bool) {
		r, err := c.newReader(ctx, topic, opts)
		if err != nil {
			yield(nil, err)
			return
		}
		r.cfg.one, r.raw = true, true
		defer r.disconnect()
		for {
			p, f, err := r.next()
			switch {
			case err == nil:
				base, end := f.Span()
				r.read += min(end, p.stop) - max(base, p.next)
				p.next = min(end, p.stop)
				if !yield(f, nil) || r.cfg.maxRecords != 0 && r.read >= r.cfg.maxRecords {
					return
				}
			case errors.Is(err, io.EOF):
				return
			case !yield(nil, err) || !r.goesOn(err):
				return
			}
		}
	}
}

// part is one partition of a read.
type part struct {
	number  uint32
	handle  uint32
	sub     uint32 // subscription on the present connection; 0 = none
	from    protocol.Position
	started bool   // next and stop were resolved
	next    uint64 // first offset not yet read
	stop    uint64 // protocol.NoStop = follow
	window  uint64 // bytes
	owed    uint64 // bytes consumed and not yet credited
	suspect uint64 // offset + 1 of a frame that arrived damaged once
	done    bool
}

// reader is one running Read or Frames.
//
// Ownership: the goroutine of the loop.
type reader struct {
	c     *Client
	ctx   context.Context
	topic string
	cfg   readConfig
	raw   bool // frames are not decoded here

	conn  *conn // nil = not connected
	inbox *inbox
	parts []*part // nil = not known yet
	read  uint64  // records
	pause backoff

	pieces  []piece // taken from the inbox
	at      int     // the piece in hand
	pos     int     // bytes of it that were consumed
	lastSub uint32
}

func (c *Client) newReader(ctx context.Context, topic string, opts []ReadOption) (*reader, error) {
	cfg, err := newReadConfig(opts)
	if err != nil {
		return nil, err
	}
	if err := protocol.ValidTopic(topic); err != nil {
		return nil, err
	}
	return &reader{c: c, ctx: ctx, topic: topic, cfg: cfg, pause: c.newBackoff()}, nil
}

// goesOn tells whether the reader can continue after it yielded err.
func (r *reader) goesOn(err error) bool {
	var damage *CorruptError
	return r.cfg.skipCorrupt && errors.As(err, &damage) && r.ctx.Err() == nil
}

// next returns the next frame of messages that has something for the reader, and its partition.
// The caller moves the partition's next.
//
// Errors: io.EOF at the end; those of Read.
func (r *reader) next() (*part, protocol.Frame, error) {
	for {
		if r.at == len(r.pieces) {
			if err := r.more(); err != nil {
				return nil, nil, err
			}
			continue
		}
		pc := &r.pieces[r.at]
		p := r.partOf(pc.sub)
		if p == nil || p.done { // of a subscription that is over
			r.finish(pc, p)
			continue
		}
		if pc.err != nil {
			err := r.ended(p, pc.err)
			r.finish(pc, p)
			if err != nil {
				return nil, nil, err
			}
			continue
		}
		if r.pos == len(pc.data) {
			over := pc.last && pc.flags&protocol.DeliverDone != 0
			r.finish(pc, p)
			p.done = p.done || over
			continue
		}
		f, err := r.frame(p, pc)
		if f != nil || err != nil {
			return p, f, err
		}
	}
}

// frame verifies the next frame of a piece; nil when it has nothing for the reader.
func (r *reader) frame(p *part, pc *piece) (protocol.Frame, error) {
	b := pc.data[r.pos:]
	n, err := protocol.CheckStored(b, protocol.MaxDataFrame)
	if err != nil {
		return nil, r.damaged(p, b, err)
	}
	f := protocol.Frame(b[:n])
	base, end := f.Span()
	if base > p.next && p.next < p.stop {
		missing := &CorruptError{Topic: r.topic, Partition: p.number, From: p.next, To: min(base, p.stop), Err: errors.New("the records are missing")}
		p.next = missing.To
		return nil, missing // the frame itself comes next, if the reader goes on
	}
	r.pos += n
	if f.Opcode() != 0 || end <= p.next || base >= p.stop {
		return nil, nil
	}
	if codec := f.Prelude().Codec; codec != 0 && !r.raw {
		return nil, &protocol.Error{Code: protocol.Unsupported, Detail: fmt.Sprintf("%s/%d: frame at offset %d is compressed with codec %d", r.topic, p.number, base, codec)}
	}
	return f, nil
}

// damaged handles a frame whose check does not hold. It may have been altered on the way, so
// the first time it is asked for again; err then is nil.
func (r *reader) damaged(p *part, b []byte, cause error) error {
	defer r.disconnect()
	if p.suspect != p.next+1 {
		p.suspect = p.next + 1
		return nil
	}
	damage := &CorruptError{Topic: r.topic, Partition: p.number, From: p.next, To: behindDamage(b, p.next), Err: cause}
	p.next = damage.To
	return damage
}

// behindDamage guesses where the damage at the start of b, at offset from, is over: where a
// sound frame that follows begins, or where the damaged one claims to end.
func behindDamage(b []byte, from uint64) uint64 {
	n, err := protocol.SizeStored(b, protocol.MaxDataFrame)
	if err == nil && n > 0 && n < len(b) {
		if _, err := protocol.CheckStored(b[n:], protocol.MaxDataFrame); err == nil {
			if base, _ := protocol.Frame(b[n:]).Span(); base > from {
				return base
			}
		}
	}
	if err == nil && n > 0 {
		if base, end := protocol.Frame(b).Span(); base <= from && end > from {
			return end
		}
	}
	return from + 1
}

// ended handles the broker's end of a subscription with an error; nil when it passes.
func (r *reader) ended(p *part, err error) error {
	var e *protocol.Error
	if errors.As(err, &e) && e.Code == protocol.Corrupt {
		damage := &CorruptError{Topic: r.topic, Partition: p.number, From: max(e.From, p.next), To: max(e.To, p.next+1), Err: err}
		p.next = damage.To
		defer r.disconnect()
		return damage
	}
	if retriable(err) {
		r.disconnect()
		return nil
	}
	return fmt.Errorf("client: read %s/%d: %w", r.topic, p.number, err)
}

// finish gives a consumed piece back and returns credit by halves of the window.
func (r *reader) finish(pc *piece, p *part) {
	if r.at == len(r.pieces) { // disconnected meanwhile
		return
	}
	if p != nil && !p.done {
		p.owed += uint64(len(pc.data))
		if p.owed >= p.window/2 {
			var h protocol.Header
			h.PutCredit(p.sub, uint32(p.owed))
			r.conn.post(h[:])
			p.owed = 0
		}
	}
	r.inbox.done(pc)
	r.at++
	r.pos = 0
}

// partOf finds the partition of a subscription on the present connection.
func (r *reader) partOf(sub uint32) *part {
	for _, p := range r.parts {
		if p.sub == sub {
			return p
		}
	}
	return nil
}
