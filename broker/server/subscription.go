package server

import (
	"sync"
	"time"

	"github.com/millrace-mq/millrace/broker"
	"github.com/millrace-mq/millrace/protocol"
	"github.com/millrace-mq/millrace/storage"
)

// subscription is the flow of one partition to one client.
//
//	       CREDIT, woken                  nothing visible
//	dry ──────────────▶ ready ──▶ deliver ───────────────▶ parked in the partition
//	 ▲                    ▲         │  │                        │
//	 └─ credit used up ───┼─────────┘  └─ more to send ─▶ ready │
//	                      └─────────── the end moved ◀──────────┘
type subscription struct {
	// immutable
	conn        *conn
	id          uint32
	handle      uint32
	part        *broker.Partition
	correlation uint64
	stop        uint64 // first offset that is not wanted
	maxFrame    int64  // bytes; a larger frame ends the subscription
	oneShot     bool
	legacy      *legacyConsumer // serves the legacy protocol instead
	waiter      broker.Waiter

	// owned by the owner of the write side
	cursor storage.Cursor
	parked bool // may be in the partition's list

	// guarded by the outbox's mu
	credit  int64 // bytes; one run may exceed it
	dry     bool  // waits for credit
	expired bool  // one-shot: do not wait any longer
	gone    bool  // over: nothing is delivered any more
	queued  bool  // in the ready list
	next    *subscription

	timer sync.Mutex  // guards clock
	clock *time.Timer // one-shot: ends the wait
}

// start makes s known and ready. With a timeout a one-shot waits so long for something to come.
func (s *subscription) start(timeout time.Duration) {
	o := &s.conn.out
	s.expired = timeout == 0
	o.mu.Lock()
	if o.subs == nil {
		o.subs = make(map[uint32]*subscription)
	}
	o.subs[s.id] = s
	o.enqueue(s)
	o.mu.Unlock()
	s.conn.server.counts.subscriptions.Add(1)
	if !s.oneShot || timeout == 0 {
		return
	}
	s.timer.Lock()
	s.clock = time.AfterFunc(timeout, s.expire)
	s.timer.Unlock()
	o.mu.Lock()
	gone := s.gone
	o.mu.Unlock()
	if gone { // served already: release may not have seen the clock
		s.stopClock()
	}
}

func (s *subscription) stopClock() {
	s.timer.Lock()
	if s.clock != nil {
		s.clock.Stop()
	}
	s.timer.Unlock()
}

// expire ends the wait of a one-shot.
func (s *subscription) expire() {
	o := &s.conn.out
	o.mu.Lock()
	s.expired = true
	o.enqueue(s)
	s.conn.startPump()
	o.mu.Unlock()
}

// wake is the waiter's Wake: there may be something to deliver.
func (s *subscription) wake() {
	o := &s.conn.out
	o.mu.Lock()
	o.enqueue(s)
	s.conn.startPump()
	o.mu.Unlock()
}

// remove takes s out of the connection, once; mu is held. The caller then calls release.
func (s *subscription) remove() bool {
	if s.gone {
		return false
	}
	s.gone = true
	delete(s.conn.out.subs, s.id)
	return true
}

// release leaves the partition's list and stops the clock.
func (s *subscription) release() {
	s.part.LeaveVisible(&s.waiter)
	s.stopClock()
	s.conn.server.counts.subscriptions.Add(-1)
}

// dropSubscriptions ends every subscription of the connection without a word.
func (c *conn) dropSubscriptions() { c.dropMatching(func(*subscription) bool { return true }) }

func (c *conn) dropMatching(match func(*subscription) bool) {
	o := &c.out
	var gone []*subscription
	o.mu.Lock()
	for _, s := range o.subs {
		if match(s) && s.remove() {
			gone = append(gone, s)
		}
	}
	o.mu.Unlock()
	for _, s := range gone {
		s.release()
	}
}

// endWith ends s and tells the client why: a second response to its SUBSCRIBE.
func (s *subscription) endWith(err error) {
	e := broker.CodeOf(err)
	o := &s.conn.out
	o.mu.Lock()
	first := s.remove()
	if first {
		o.putError(protocol.OpSubscribe, s.correlation, e)
	}
	o.mu.Unlock()
	if first {
		s.release()
	}
}

// putError appends a refusing response to what is pending; mu is held.
func (o *outbox) putError(op protocol.Opcode, correlation uint64, e *protocol.Error) {
	if o.closed {
		return
	}
	var h protocol.Header
	at := len(o.pending)
	o.pending = e.AppendTo(append(o.tail(), h[:]...))
	var throttle uint32
	if e.Code == protocol.Throttled {
		throttle = throttleMillis
	}
	protocol.HeaderOf(o.pending[at:]).PutResponse(op, e.Code, throttle, correlation, 0, len(o.pending)-at-protocol.HeaderSize)
}

// throttleMillis is the pause that a throttled client is asked for.
const throttleMillis = 500
