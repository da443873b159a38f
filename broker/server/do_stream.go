package server

import (
	"fmt"
	"math"
	"time"

	"github.com/millrace-mq/millrace/protocol"
)

// maxTimeout bounds how long a one-shot waits.
const maxTimeout = 5 * time.Minute

// doSubscribe starts a subscription: its positions are resolved now, once.
func doSubscribe(c *conn, r *request) (message, error) {
	var m protocol.Subscribe
	if err := m.Decode(r.args); err != nil {
		return nil, err
	}
	d, err := c.open(r)
	if err != nil {
		return nil, err
	}
	if err := c.maySubscribe(&m); err != nil {
		return nil, err
	}
	stop := protocol.NoStop
	if m.HasTo {
		if stop, err = d.part.ResolveStop(m.To); err != nil {
			return nil, err
		}
	}
	start, err := d.part.Resolve(m.From)
	if err != nil {
		return nil, err
	}
	cursor, err := d.part.Seek(start)
	if err != nil {
		return nil, err
	}
	s := &subscription{conn: c, id: m.Subscription, handle: d.id, part: d.part, correlation: r.correlation, stop: stop,
		oneShot: m.Flags&protocol.SubscribeOneShot != 0, cursor: cursor, credit: int64(min(m.Credit, math.MaxInt64))}
	s.maxFrame = int64(either(c.maxFrame, math.MaxUint32))
	if s.oneShot {
		s.credit = max(s.credit, 1)
	}
	if start >= stop {
		s.cursor.Offset = stop // nothing is wanted, not even the batch around it
	}
	s.waiter.Wake = s.wake
	timeout := min(time.Duration(r.timeout)*time.Millisecond, maxTimeout)
	r.after = func() { s.start(timeout); c.kick() }
	return &protocol.SubscribeReply{Start: start, Stop: stop, End: d.part.Visible().Offset, Epoch: d.part.Epoch()}, nil
}

// maySubscribe refuses what the connection cannot take.
func (c *conn) maySubscribe(m *protocol.Subscribe) error {
	if unknown := m.Flags &^ protocol.SubscribeOneShot; unknown != 0 {
		return unknownFlags(fmt.Sprintf("0x%04x", unknown), "SUBSCRIBE's arguments")
	}
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	if c.out.subs[m.Subscription] != nil {
		return &protocol.Error{Code: protocol.Exists, Detail: fmt.Sprintf("subscription %d of the connection", m.Subscription)}
	}
	if limit := c.server.options.Subscriptions; len(c.out.subs) >= limit {
		return &protocol.Error{Code: protocol.Quota, Detail: "subscriptions of the connection", Actual: uint64(limit) + 1,
			Limit: uint64(limit), Setting: "limits.subscriptions"}
	}
	return nil
}

// doUnsubscribe ends a subscription. A run of it that is being sent goes out before the answer,
// none after. One that is over already is no error: the two may cross.
func doUnsubscribe(c *conn, r *request) (message, error) {
	var m protocol.Unsubscribe
	if err := m.Decode(r.args); err != nil {
		return nil, err
	}
	c.dropMatching(func(s *subscription) bool { return s.id == m.Subscription })
	return nil, nil
}

// credit adds to a subscription's credit. One that is over already is no error: the two cross.
func (c *conn) credit(h *protocol.Header) error {
	if !c.greeted.Load() {
		return &protocol.Error{Code: protocol.Unauthenticated, Detail: "CREDIT before HELLO"}
	}
	if h.CreditFlags() != 0 {
		return &protocol.Error{Code: protocol.Unsupported, Detail: fmt.Sprintf("flags 0x%08x of CREDIT", h.CreditFlags())}
	}
	o := &c.out
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.subs[h.Subscription()]
	if s == nil {
		return nil
	}
	if n := int64(h.RecordCount()); s.credit > math.MaxInt64-n {
		s.credit = math.MaxInt64
	} else {
		s.credit += n
	}
	if s.dry && s.credit > 0 {
		s.dry = false
		o.enqueue(s)
		c.startPump()
	}
	return nil
}
