package server

import (
	"sync"

	"github.com/millrace-mq/millrace/protocol"
)

const (
	maxPending = 1 << 20 // bytes of unsent control frames at which the reader stops reading
	maxUnacked = 16384   // runs without answer at which the reader stops reading
	fewUnacked = 64      // the same while the budget is used up
	crowded    = 1 << 18 // bytes of unsent control frames at which they are written between two requests
)

// outbox is what a connection has to say. Its lock is never held while anything is written.
//
// Whoever sets owned owns the write side of the socket and everything that leaves through it,
// until it gives the ownership up.
type outbox struct {
	spares *spares // immutable

	mu   sync.Mutex
	room sync.Cond // of mu: there is room again, or it is over

	// guarded by mu
	pending   []byte        // whole control frames, in order; memory of spares, nil when there are none
	ready     *subscription // first of the list of those that may have something to deliver
	last      *subscription
	unacked   int // runs that were appended and not answered
	chunks    int // of memory that those take
	owned     bool
	draining  bool // no subscription is served any more
	finishing bool // what is pending is sent, then the write side is shut
	closed    bool // nothing is sent any more
	subs      map[uint32]*subscription
}

func (o *outbox) init(s *spares) { o.spares, o.room.L = s, &o.mu }

// tail is what is pending, to be appended to; mu is held.
func (o *outbox) tail() []byte {
	if o.pending == nil {
		o.pending = o.spares.frames()
	}
	return o.pending
}

// add appends one control frame without payload to what is pending.
func (o *outbox) add(h *protocol.Header) {
	if !o.closed {
		o.pending = append(o.tail(), h[:]...)
	}
}

// enqueue puts s at the end of the ready list; mu is held.
func (o *outbox) enqueue(s *subscription) {
	if s.queued || s.gone || o.closed || o.finishing || o.draining {
		return
	}
	s.queued, s.next = true, nil
	if o.last == nil {
		o.ready = s
	} else {
		o.last.next = s
	}
	o.last = s
}

// dequeue takes the first of the ready list; mu is held.
func (o *outbox) dequeue() *subscription {
	s := o.ready
	if s == nil {
		return nil
	}
	if o.ready = s.next; o.ready == nil {
		o.last = nil
	}
	s.queued, s.next = false, nil
	return s
}

// work tells whether there is something to write; mu is held.
func (o *outbox) work() bool {
	return !o.closed && (len(o.pending) > 0 || o.ready != nil || o.finishing)
}

// swap takes what is pending; mu is held. The caller gives it back to spares.
func (o *outbox) swap() []byte {
	buf := o.pending
	o.pending = nil
	return buf
}

// kick starts the pump when there is something to write and nobody owns the write side.
func (c *conn) kick() {
	c.out.mu.Lock()
	c.startPump()
	c.out.mu.Unlock()
}

// startPump is kick under mu.
func (c *conn) startPump() {
	if c.out.owned || !c.out.work() {
		return
	}
	c.out.owned = true
	c.pumps.Add(1)
	go c.pumpFunc()
}

// flush writes what is pending on the caller's goroutine when nobody owns the write side and
// no subscription waits for it; otherwise the owner writes it.
func (c *conn) flush() {
	o := &c.out
	o.mu.Lock()
	if o.owned || !o.work() {
		o.mu.Unlock()
		return
	}
	if o.ready != nil || o.finishing {
		c.startPump()
		o.mu.Unlock()
		return
	}
	o.owned = true
	buf := o.swap()
	o.mu.Unlock()

	err := c.write(buf)
	o.spares.keepFrames(buf)

	o.mu.Lock()
	o.owned = false
	o.room.Signal()
	c.startPump()
	o.mu.Unlock()
	if err != nil {
		c.abort(err)
	}
}

// pump owns the write side until there is nothing to write: pending control frames first, then
// one run of the subscription whose turn it is, and again.
func (c *conn) pump() {
	defer c.pumps.Done()
	o := &c.out
	for {
		o.mu.Lock()
		if !o.work() {
			o.owned = false
			o.room.Signal()
			o.mu.Unlock()
			return
		}
		buf := o.swap()
		finish := o.finishing
		var s *subscription
		if !finish {
			s = o.dequeue()
		}
		o.room.Signal()
		o.mu.Unlock()

		err := c.write(buf)
		o.spares.keepFrames(buf)
		if err == nil && s != nil {
			err = c.deliver(s)
		}
		if err == nil && finish {
			err = c.finishWrites()
		}
		if err != nil {
			c.abort(err)
		}
	}
}

// finishWrites shuts the write side once nothing is pending; the owner calls it.
func (c *conn) finishWrites() error {
	o := &c.out
	o.mu.Lock()
	more := len(o.pending) > 0
	if !more {
		o.closed = true
	}
	o.mu.Unlock()
	if more {
		return nil
	}
	return c.sock.closeWrite()
}

// finish lets what is pending go out and then shuts the write side. Nothing more is delivered.
func (c *conn) finish() {
	o := &c.out
	o.mu.Lock()
	o.finishing = true
	o.idleSubscriptions()
	c.startPump()
	o.mu.Unlock()
}

// idleSubscriptions lets none be served any more but the one that is; mu is held.
func (o *outbox) idleSubscriptions() {
	o.draining = true
	o.ready, o.last = nil, nil
}

// relieve writes what is pending when it is much. A few bytes of requests can ask for many bytes
// of answers. Errors: net.ErrClosed when the connection is over.
func (c *conn) relieve() error {
	c.out.mu.Lock()
	n := len(c.out.pending)
	c.out.mu.Unlock()
	if n < crowded {
		return nil
	}
	c.flush()
	if !c.backpressure() {
		return c.afterFinish()
	}
	return nil
}

// backpressure waits while the peer leaves too much of what it is owed unread. It is false when
// the connection is over.
func (c *conn) backpressure() bool {
	o := &c.out
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.closed && !o.finishing && (len(o.pending) > maxPending || o.unacked > maxUnacked || o.unacked > fewUnacked && c.server.buffers.over()) {
		c.server.counts.throttled.Add(1)
		o.room.Wait()
	}
	return !o.closed && !o.finishing
}
