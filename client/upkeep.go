package client

import (
	"fmt"

	"github.com/millrace-mq/millrace/protocol"
)

// What happens to a pipeline beside sending and answers: connections that come and go, time
// that passes, contexts that end, Close.

// connected offers the connection c.
func (l *pipeline) connected(c *conn) {
	l.mu.Lock()
	if l.aborted || l.conn == c {
		l.mu.Unlock()
		return
	}
	l.conn, l.handle, l.opening, l.pulled = c, 0, false, false
	l.runBytes = protocol.MaxRun
	if n := c.hello.MaxRun; n > 0 {
		l.runBytes = min(l.runBytes, int(n))
	}
	l.leave()
}

// lost takes back what was in flight on c, which ended with err and was joined.
func (l *pipeline) lost(c *conn, err error) {
	l.mu.Lock()
	if l.conn != c {
		l.mu.Unlock()
		return
	}
	l.conn, l.handle, l.opening, l.pulled = nil, 0, false, false
	l.last = err
	for l.flight.len() > 0 {
		r := l.flight.pop()
		for _, b := range r.batches {
			b.unknown = true
		}
		if l.p.cfg.noRetry {
			for _, b := range r.batches {
				l.resolve(b, 0, protocol.LevelNone, l.undelivered(b, err))
			}
		} else {
			l.sendAgain(r)
		}
		r.reset()
		l.runs = append(l.runs, r)
	}
	l.requeue()
	l.leave()
}

// requeue puts failed batches in front of the queue. With mu, when nothing is in flight.
func (l *pipeline) requeue() {
	l.queue.prepend(l.failed)
	for _, b := range l.failed {
		l.queued += b.bytes
	}
	l.failed = l.failed[:0]
}

// askHandle sends OPEN.
func (l *pipeline) askHandle(c *conn) {
	m := protocol.Open{Partition: l.partition}
	c.start(&call{then: func(k *call) { l.opened(c, k) }}, protocol.OpOpen, 0, 0, l.topic.name, m.AppendTo(nil))
}

// opened is the answer to OPEN on c.
func (l *pipeline) opened(c *conn, k *call) {
	var reply protocol.OpenReply
	err := k.err
	if err == nil {
		err = reply.Decode(k.payload)
	}
	if err == nil && (reply.Handle == 0 || reply.Partitions == 0 || reply.Partitions > protocol.MaxPartitions) {
		err = &protocol.Error{Code: protocol.BadFrame, Detail: fmt.Sprintf("OPEN answered handle %d, %d partitions", reply.Handle, reply.Partitions)}
	}
	l.mu.Lock()
	if l.conn != c {
		l.mu.Unlock()
		return
	}
	l.opening = false
	probed := l.probe
	final := err != nil && !retriable(err)
	if final {
		err = fmt.Errorf("client: open %s/%d: %w", l.topic.name, l.partition, err)
	}
	switch {
	case err == nil:
		l.handle, l.probe, l.level = reply.Handle, false, l.p.cfg.level
		if l.level == protocol.LevelNone {
			l.level = reply.Floor // what is answered anyway may as well be waited for
		}
		l.backoff.reset()
	case !final:
		l.last = err
		l.hold()
		l.resume = max(l.resume, l.p.now()+int64(k.pause))
	default:
		l.probe = false
		l.failAll(err)
	}
	l.leave()
	switch {
	case err == nil:
		l.topic.resolved(&reply)
	case !final:
		l.p.c.refused(l.topic.name, l.partition, err)
	case probed:
		l.topic.failed(err)
	}
}

// failAll refuses everything that is not in flight. With mu.
func (l *pipeline) failAll(err error) {
	l.complete()
	for l.queue.len() > 0 {
		b := l.queue.pop()
		l.resolve(b, 0, protocol.LevelNone, l.final(b, err))
	}
	l.queued = 0
}

// undelivered is the error of a batch whose sending ended for a reason. With mu.
func (l *pipeline) undelivered(b *batch, reason error) error {
	e := &DeliveryError{Topic: l.topic.name, Partition: l.partition, Sent: b.unknown, Reason: reason}
	if l.last != reason {
		e.Last = l.last
	}
	return e
}

// tick looks at the clock and returns when it wants to do so again; 0 = never.
func (l *pipeline) tick(now int64) (next int64) {
	l.mu.Lock()
	if l.held && l.flight.len() == 0 {
		if l.resume <= now {
			l.held = false
		} else {
			next = l.resume
		}
	}
	due := now - int64(l.p.cfg.timeout) // born at or before: too old
	l.expireFlight(due)
	for len(l.failed) > 0 && l.failed[0].born <= due {
		l.resolve(l.failed[0], 0, protocol.LevelNone, l.undelivered(l.failed[0], errDeadline))
		l.failed = l.failed[1:]
	}
	for l.queue.len() > 0 && l.queue.all()[0].born <= due {
		b := l.queue.pop()
		l.queued -= b.bytes
		l.resolve(b, 0, protocol.LevelNone, l.undelivered(b, errDeadline))
	}
	if b := l.open; b != nil && b.born <= due && b.records > 0 {
		l.open = nil
		l.queued -= b.bytes
		l.resolve(b, 0, protocol.LevelNone, l.undelivered(b, errDeadline))
	}
	if born := l.oldest(); born != 0 {
		next = sooner(next, born+int64(l.p.cfg.timeout))
	}
	if linger := int64(l.p.cfg.linger); linger > 0 && !l.ripe && !l.empty() {
		b := l.open
		if l.queue.len() > 0 {
			b = l.queue.all()[0]
		}
		if l.ripe = b.born+linger <= now; !l.ripe {
			next = sooner(next, b.born+linger)
		}
	}
	for l.spareBytes > spareIdle && l.idle() {
		l.fetchSpare()
	}
	l.leave()
	return next
}

// expireFlight tells those whose run waits too long for its answer. The memory stays with the
// connection until the answer or its end. With mu.
func (l *pipeline) expireFlight(due int64) {
	for _, r := range l.flight.all() {
		for _, b := range r.batches {
			if b.born <= due {
				l.abandon(b, errDeadline)
			}
		}
	}
}

// abandon resolves a batch in flight as unknown. With mu.
func (l *pipeline) abandon(b *batch, reason error) {
	if b.gone {
		return
	}
	told := &batch{entries: b.entries, whole: b.whole, asks: b.asks, single: b.single, records: b.records, bytes: b.bytes, epoch: b.epoch, unknown: true, aborted: b.aborted}
	b.gone, b.entries, b.whole, b.asks = true, nil, nil, false
	l.resolve(told, 0, protocol.LevelNone, l.undelivered(told, reason))
}

// oldest returns when the oldest message was given; 0 = there is none. With mu.
func (l *pipeline) oldest() (born int64) {
	for _, r := range l.flight.all() {
		for _, b := range r.batches {
			if !b.gone {
				born = sooner(born, b.born)
			}
		}
	}
	for _, list := range [][]*batch{l.failed, l.queue.all()} {
		if len(list) > 0 {
			born = sooner(born, list[0].born)
		}
	}
	if l.open != nil && l.open.records > 0 {
		born = sooner(born, l.open.born)
	}
	return born
}

// sooner is the smaller of two times, where 0 is none.
func sooner(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// reject resolves one message that never reached the queue with an error.
func (l *pipeline) reject(e entry, bytes int, epoch uint32, err error) {
	l.mu.Lock()
	b := &batch{aborted: l.aborted, entries: []entry{e}, asks: e.fn != nil, records: 1, bytes: bytes, epoch: epoch}
	l.resolve(b, 0, protocol.LevelNone, err)
	l.leave()
}

// withdraw takes the message of w back if it was not sent yet.
func (l *pipeline) withdraw(w *waiter) bool {
	l.mu.Lock()
	defer l.leave()
	if b := l.open; b != nil && l.withdrawFrom(b, w) {
		if b.records == 0 {
			l.open = nil
		}
		return true
	}
	for n, b := range l.queue.all() {
		if b.unknown || !l.withdrawFrom(b, w) {
			continue
		}
		if b.records == 0 {
			l.queue.remove(n)
		}
		return true
	}
	return false
}

// withdrawFrom takes the message of w out of b, when it is there. An emptied b is recycled; the
// caller unlinks it. With mu.
func (l *pipeline) withdrawFrom(b *batch, w *waiter) bool {
	for i := range b.entries {
		if b.entries[i].w != w {
			continue
		}
		bytes, n := b.bytes, 1
		if b.records == 1 || b.single {
			n = b.records
			b.entries, b.records = b.entries[:0], 0
			l.freed.add(0, 0, b.epoch)
			l.recycle(b)
			b.records = 0
		} else {
			before := b.frame.Size()
			b.without(i)
			b.bytes -= before - b.frame.Size()
			bytes -= b.bytes
		}
		l.queued -= bytes
		l.freed.records += n
		l.freed.bytes += bytes
		return true
	}
	return false
}

// flush sends what lingers; the producer's urgent flag is set.
func (l *pipeline) flush() {
	l.mu.Lock()
	l.leave()
}

// shut refuses new messages.
func (l *pipeline) shut() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
}

// abort resolves everything with a reason, and lets the connection go.
func (l *pipeline) abort(reason error) {
	l.mu.Lock()
	l.closed, l.aborted = true, true
	for _, b := range l.failed {
		b.aborted = true
		l.resolve(b, 0, protocol.LevelNone, l.undelivered(b, reason))
	}
	l.failed = l.failed[:0]
	for _, r := range l.flight.all() {
		for _, b := range r.batches {
			b.aborted = true
			l.abandon(b, reason)
		}
	}
	l.complete()
	for l.queue.len() > 0 {
		b := l.queue.pop()
		b.aborted = true
		l.resolve(b, 0, protocol.LevelNone, l.undelivered(b, reason))
	}
	l.queued = 0
	l.leave()
}
