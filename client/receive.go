package client

import (
	"fmt"
	"time"

	"github.com/millrace-mq/millrace/protocol"
)

// read cuts frames and hands them to whom they are for, until the connection ends.
func (c *conn) read() {
	defer c.wg.Done()
	for {
		f, err := c.cut.cut()
		if err == nil && f != nil {
			err = c.handle(f)
		}
		if err == nil && f == nil {
			c.handOver(false)
			err = c.cut.fill()
			c.reads.Add(1)
		}
		if err != nil {
			c.handOver(false)
			c.fail(err)
			return
		}
	}
}

// handle takes one frame. Its bytes are valid until the next fill, those of DATA as long as the
// chunk is held.
func (c *conn) handle(f []byte) error {
	h := protocol.HeaderOf(f)
	if h.Magic() == protocol.MagicData {
		return c.data(f)
	}
	if c.runLeft != 0 {
		return &protocol.Error{Code: protocol.BadFrame, Detail: fmt.Sprintf("%v inside a DELIVER run, %d bytes before its end", h.Magic(), c.runLeft)}
	}
	switch h.Magic() {
	case protocol.MagicResponse:
		return c.response(h, f[protocol.HeaderSize+int(h.KeySize()):])
	case protocol.MagicAck:
		return c.ack(h, f[protocol.HeaderSize+int(h.KeySize()):])
	case protocol.MagicDeliver:
		return c.deliver(h, f)
	case protocol.MagicGoAway:
		c.goAway(f)
	case protocol.MagicPing:
		var pong protocol.Header
		pong.PutPing(protocol.MagicPong, h.Timestamp(), h.Correlation())
		c.post(pong[:])
	case protocol.MagicPong:
		if k := c.answered(h.Correlation()); k != nil {
			k.finish(nil, nil)
		}
	default:
		if !h.Magic().Skippable() {
			return unexpected(f)
		}
	}
	return nil
}

// answered takes the call of a correlation number out of the table; nil when nobody waits.
func (c *conn) answered(correlation uint64) *call {
	c.mu.Lock()
	k := c.calls[correlation]
	delete(c.calls, correlation)
	c.mu.Unlock()
	return k
}

func (c *conn) response(h *protocol.Header, payload []byte) error {
	err := refusal(h.Status(), payload)
	if k := c.answered(h.Correlation()); k != nil {
		k.pause = time.Duration(h.ThrottleMillis()) * time.Millisecond
		k.finish(append([]byte(nil), payload...), err)
		c.maybeDrained()
		return nil
	}
	if c.inbox != nil && h.Opcode() == protocol.OpSubscribe && h.Correlation()&subscriptionBit != 0 && err != nil {
		c.handOver(false)
		c.put(piece{sub: uint32(h.Correlation()), err: err})
	}
	return nil // a response that nobody waits for any more
}

// ack answers the oldest run of a handle.
func (c *conn) ack(h *protocol.Header, payload []byte) error {
	c.mu.Lock()
	q := c.sent[h.Handle()]
	if q == nil || q.len() == 0 {
		c.mu.Unlock()
		return nil // for a run of level none, which waits for nothing
	}
	r := q.pop()
	c.unacked--
	c.mu.Unlock()
	err := refusal(h.AckStatus(), payload)
	if err == nil && h.RecordCount() != uint32(r.records) {
		return &protocol.Error{Code: protocol.BadFrame, Detail: fmt.Sprintf("ACK of %d records for a run of %d", h.RecordCount(), r.records)}
	}
	if err == nil {
		r.line.acked(r, h.Offset(), h.Level())
	} else {
		r.line.refused(r, err)
	}
	c.maybeDrained()
	return nil
}

// deliver begins a run of DATA frames.
func (c *conn) deliver(h *protocol.Header, f []byte) error {
	if c.inbox == nil {
		return unexpected(f)
	}
	c.run, c.runLeft = *h, h.RunBytes()
	if c.runLeft == 0 {
		c.handOver(true)
	}
	return nil
}

// data adds a frame to the piece that is being gathered.
func (c *conn) data(f []byte) error {
	if c.runLeft == 0 {
		return unexpected(f)
	}
	if uint32(len(f)) > c.runLeft {
		return &protocol.Error{Code: protocol.BadFrame, Detail: fmt.Sprintf("frame of %d bytes reaches over the end of its run, %d bytes away", len(f), c.runLeft)}
	}
	p := &c.piece
	if p.hold == nil {
		p.hold = c.cut.cur
		p.hold.refs.Add(1)
		p.data = f[:len(f):len(f)]
	} else {
		end := c.cut.pos
		p.data = c.cut.cur.buf[end-len(p.data)-len(f) : end : end]
	}
	if c.runLeft -= uint32(len(f)); c.runLeft == 0 {
		c.handOver(true)
	}
	return nil
}

// handOver gives what was gathered to the reader. A piece never spans two chunks: it is handed
// over before more is read.
func (c *conn) handOver(last bool) {
	p := &c.piece
	if p.hold == nil && !last {
		return
	}
	p.sub, p.flags, p.watermark, p.last = c.run.Subscription(), c.run.DeliverFlags(), c.run.Offset(), last
	c.put(*p)
	*p = piece{}
}

func (c *conn) put(p piece) {
	if c.inbox.over() {
		c.waiting.Store(true)
		defer c.waiting.Store(false)
	}
	c.inbox.put(p, c.gone)
}

// goAway stops sending: the connection ends when what is in flight was answered, or when the
// drain time is over.
func (c *conn) goAway(f []byte) {
	h := protocol.HeaderOf(f)
	why := goAwayError(f)
	c.cfg.log.Info("broker is going away", "addr", c.addr, "why", why, "drain_ms", h.DrainMillis())
	c.mu.Lock()
	c.draining, c.why = true, why
	c.mu.Unlock()
	select {
	case c.drain <- time.Duration(h.DrainMillis()) * time.Millisecond:
	default: // said twice
	}
	c.maybeDrained()
}

// maybeDrained ends a draining connection that has nothing left to wait for.
func (c *conn) maybeDrained() {
	c.mu.Lock()
	over, why := c.draining && c.unacked == 0 && len(c.calls) == 0, c.why
	c.mu.Unlock()
	if over {
		c.fail(why)
	}
}
