package client

import (
	"fmt"
	"sync"

	"github.com/millrace-mq/millrace/protocol"
)

const (
	eagerBytes = 64 << 10 // bytes that are worth a run although others are in flight
	maxFrames  = 512      // frames of a run
	spareBusy  = 16 << 20 // bytes of batches kept for reuse while there is much to do
	idleAfter  = 1e9      // ns; then memory is given back down to spareIdle
	spareIdle  = 1 << 20  // likewise when nothing is left to do
	batchCost  = 512      // bytes that a batch takes beside its frame
)

// pipeline carries the messages of one producer to one partition, in order.
//
//	open ─full→ queue ─take→ flight ─ACK→ done
//	              ↑            │ refused
//	              └── failed ←─┘ resent, oldest first, when flight is empty
//
// The write goroutine of the connection pulls: what is given while a write is under way, or
// while runs are in flight and little is there, gathers in open.
//
// Its events come from many goroutines: Send and Async, the connection's read (acked, refused,
// opened) and write (take), the client's (connected, lost), the producer's clock (tick). All
// state is behind mu, which is never held while waiting.
type pipeline struct {
	// immutable
	p         *Producer
	topic     *topic
	partition uint32

	mu sync.Mutex

	// guarded by mu: messages, oldest first: failed, flight, queue, open
	failed  []*batch
	flight  fifo[*run]
	queue   fifo[*batch]
	open    *batch
	queued  int // bytes of queue and open
	done    []*batch
	told    []*batch // the other buffer of done
	freed   debt     // to be returned once mu is released
	telling bool     // the producer's teller knows that done is not empty

	// guarded by mu: the way to the broker
	conn     *conn // nil = not connected
	handle   uint32
	level    protocol.Level // asked for
	runBytes int            // bytes of a run that the broker takes
	opening  bool
	probe    bool // the topic wants to know its partitions: OPEN although nothing is queued
	pulled   bool // in the connection's ready list

	// guarded by mu: pace
	backoff backoff
	held    bool  // nothing is sent before resume, and while failed waits for flight
	resume  int64 // ns of the client's clock
	ripe    bool  // lingered long enough
	last    error // what went wrong last
	closed  bool  // takes nothing new, delivers what it has
	aborted bool  // everything was resolved

	// guarded by mu: memory
	headers    protocol.Headers
	spare      []*batch
	spareBytes int
	usual      int // bytes of the last batch that was filled: the next will be alike
	runs       []*run
}

// add appends a message that was checked and paid for.
func (l *pipeline) add(m *Message, e entry, bytes int) error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return ErrClosed
	}
	return l.append(m, e, bytes, l.p.epoch.Load()&1)
}

// addWaiting appends a message that waited for its topic: it was taken before, also when the
// pipeline was closed since.
func (l *pipeline) addWaiting(w *waitingMessage) error {
	l.mu.Lock()
	if l.aborted {
		l.mu.Unlock()
		return ErrClosed
	}
	if l.open != nil && l.open.epoch != w.epoch {
		l.complete()
	}
	return l.append(&w.m, w.e, w.bytes, w.epoch)
}

// append adds a message to the open batch, and releases mu. epoch is that of a new batch.
func (l *pipeline) append(m *Message, e entry, bytes int, epoch uint32) error {
	var err error
	l.headers = l.headers[:0]
	if len(m.Headers) > 0 {
		l.headers, err = appendHeaders(l.headers, m.Headers)
	}
	b := l.open
	if b != nil && b.frame.Size()+bytes > l.p.cfg.batchBytes {
		l.complete()
		b = nil
	}
	if b == nil {
		b = l.begin(epoch)
		b.frame.Grow(max(l.usual, bytes)) // once, where doubling would copy
		l.open = b
	}
	if err == nil {
		err = b.put(m, l.headers, e, bytes)
	}
	if err != nil { // check lets none through
		l.mu.Unlock()
		return err
	}
	l.queued += bytes
	if b.records >= l.p.cfg.batchRecords || b.frame.Size() >= l.p.cfg.batchBytes {
		l.complete()
	}
	l.leave()
	return nil
}

// addBatch takes over a sealed frame; the caller gets the memory of another in exchange. e is
// told about all of its records at once.
func (l *pipeline) addBatch(from *Batch, sealed protocol.Frame, e entry, bytes int) error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return ErrClosed
	}
	l.complete()
	b := l.begin(l.p.epoch.Load() & 1)
	b.frame, from.frame = from.frame, b.frame
	b.sealed, b.whole, b.asks, b.records, b.bytes = sealed, e.fn, e.fn != nil, b.frame.Len(), bytes
	if e.w != nil {
		b.entries, b.single = append(b.entries, e), true
	}
	l.queue.push(b)
	l.queued += bytes
	from.frame.Reset()
	l.leave()
	return nil
}

// begin returns an empty batch that counts for an epoch. With mu.
func (l *pipeline) begin(epoch uint32) *batch {
	b := l.fetchSpare()
	if b == nil {
		b = new(batch)
	}
	b.born = l.p.now()
	b.epoch = epoch
	l.p.enter(epoch)
	l.p.alarm.at(b.born + int64(l.p.cfg.timeout))
	if l.p.cfg.linger > 0 {
		l.p.alarm.at(b.born + int64(l.p.cfg.linger))
	}
	return b
}

// fetchSpare takes a batch from the spare ones; nil when there is none. With mu.
func (l *pipeline) fetchSpare() *batch {
	n := len(l.spare)
	if n == 0 {
		return nil
	}
	b := l.spare[n-1]
	l.spare[n-1] = nil
	l.spare = l.spare[:n-1]
	l.spareBytes -= b.kept
	return b
}

// complete moves the open batch to the queue. With mu.
func (l *pipeline) complete() {
	if l.open == nil {
		return
	}
	l.topic.turn(l.partition)
	l.usual = l.open.frame.Size()
	if l.open.records == 0 {
		l.freed.add(0, 0, l.open.epoch)
		l.recycle(l.open)
	} else {
		l.queue.push(l.open)
	}
	l.open = nil
}

// empty tells that nothing waits to be sent. With mu.
func (l *pipeline) empty() bool {
	return l.queue.len() == 0 && (l.open == nil || l.open.records == 0)
}

// idle tells that there is nothing to do. With mu.
func (l *pipeline) idle() bool {
	return l.open == nil && l.queue.len() == 0 && l.flight.len() == 0 && len(l.failed) == 0
}

// sendable tells whether a run should be made now. With mu.
func (l *pipeline) sendable() bool {
	flying := l.flight.len()
	switch {
	case l.handle == 0 || l.held || l.empty() || flying >= l.p.cfg.maxInFlight:
		return false
	case l.queued >= l.p.eager:
		return true
	case flying > 0:
		return false
	}
	return l.p.cfg.linger == 0 || l.ripe || l.p.urgent.Load()
}

// wake returns the connection if there is something to do on it: with open, an OPEN, else a
// word to its write goroutine. With mu; the caller acts after it released mu.
func (l *pipeline) wake() (c *conn, open bool) {
	switch {
	case l.conn == nil:
		return nil, false
	case l.handle != 0:
		if l.pulled || !l.sendable() {
			return nil, false
		}
		l.pulled = true
		return l.conn, false
	case l.opening || l.held || l.empty() && !l.probe:
		return nil, false
	case l.flight.len() > 0: // answers are in order per handle only
		return nil, false
	}
	l.opening = true
	return l.conn, true
}

// leave releases mu and does what the change of state calls for.
func (l *pipeline) leave() {
	if l.held && l.flight.len() == 0 {
		l.p.alarm.at(l.resume)
	}
	if l.spareBytes > spareIdle && l.idle() {
		l.p.alarm.at(l.p.now() + idleAfter)
	}
	c, open := l.wake()
	now := l.level != protocol.LevelNone // its answer tells whether the peer is stuck; else only the write goroutine waits for the socket
	tell := len(l.done) > 0 && !l.telling
	l.telling = l.telling || tell
	freed := l.freed
	l.freed = debt{}
	l.mu.Unlock()
	l.p.free(&freed)
	switch {
	case open:
		l.askHandle(c)
	case c != nil:
		c.enqueue(l, now)
	}
	if tell {
		l.p.teller.tell(l)
	}
}

// take makes the next run for the write goroutine of c; nil when there is none. more tells that
// l stays in the ready list.
func (l *pipeline) take(c *conn, draining bool) (r *run, more bool) {
	l.mu.Lock()
	if l.conn != c {
		l.mu.Unlock()
		return nil, false
	}
	l.pulled = false
	if draining || !l.sendable() {
		l.mu.Unlock()
		return nil, false
	}
	if n := len(l.runs); n > 0 {
		r, l.runs = l.runs[n-1], l.runs[:n-1]
	} else {
		r = new(run)
	}
	r.line, r.handle, r.level = l, l.handle, l.level
	for l.fits(r) {
		if l.queue.len() == 0 {
			l.complete()
		}
		b := l.queue.pop()
		l.queued -= b.bytes
		r.batches = append(r.batches, b)
		r.size += b.size()
		r.records += b.records
	}
	l.flight.push(r)
	if l.empty() {
		l.ripe = false
	}
	more = l.sendable()
	l.pulled = more
	l.mu.Unlock()
	for _, b := range r.batches {
		b.seal() // outside mu: hashing takes as long as a hundred messages
	}
	return r, more
}

// fits tells whether the next batch belongs into r. With mu.
func (l *pipeline) fits(r *run) bool {
	b := l.open
	if l.queue.len() > 0 {
		b = l.queue.all()[0]
	}
	if b == nil || b.records == 0 {
		return false
	}
	if len(r.batches) == 0 {
		return true
	}
	return len(r.batches) < maxFrames && r.size+b.size() <= min(l.p.cfg.batchBytes, l.runBytes) &&
		!b.alone && !r.batches[0].alone
}

// acked is the answer to the oldest run: its first record has offset base.
func (l *pipeline) acked(r *run, base uint64, level protocol.Level) {
	l.mu.Lock()
	l.answered(r)
	l.backoff.reset()
	for _, b := range r.batches {
		at := base
		if base != NoOffset {
			base += uint64(b.records)
		}
		l.resolve(b, at, level, nil)
	}
	l.settle(r)
}

// answered takes the oldest run out of flight. With mu.
func (l *pipeline) answered(r *run) {
	if l.flight.len() == 0 || l.flight.pop() != r {
		panic("client: an answer for a run that is not the oldest in flight")
	}
}

// settle ends an event that took r out of flight, and releases mu.
func (l *pipeline) settle(r *run) {
	r.reset()
	l.runs = append(l.runs, r)
	if l.flight.len() == 0 && len(l.failed) > 0 {
		l.requeue()
	}
	l.leave()
}

// resolve tells everybody who waits for b, or has the teller do it where callbacks are to be
// called. With mu.
func (l *pipeline) resolve(b *batch, base uint64, level protocol.Level, err error) {
	if b.gone {
		l.recycle(b)
		return
	}
	b.base, b.level, b.err = base, level, err
	heard := 0
	for i := range b.entries {
		if w := b.entries[i].w; w != nil {
			w.result <- outcome{b.ack(l, i), err}
			b.entries[i].w = nil
			heard++
		} else if b.entries[i].fn != nil {
			heard++
		}
	}
	if b.single && heard > 0 {
		heard = b.records
	}
	if err != nil && b.whole == nil {
		b.unheard = b.records - heard
	}
	if b.asks || b.unheard > 0 || b.aborted {
		l.done = append(l.done, b)
		return
	}
	l.freed.add(b.records, b.bytes, b.epoch)
	l.recycle(b)
}

// ack is the Ack of record i.
func (b *batch) ack(l *pipeline, i int) Ack {
	a := Ack{Topic: l.topic.name, Partition: l.partition, Level: b.level}
	if b.err == nil {
		a.Offset = b.base
		if b.base != NoOffset {
			a.Offset += uint64(i)
		}
	}
	return a
}

// recycle keeps the memory of a batch that nobody uses any more. With mu.
func (l *pipeline) recycle(b *batch) {
	if kept := b.frame.Size() + batchCost; l.spareBytes+kept <= spareBusy {
		b.reset()
		b.kept = kept
		l.spare = append(l.spare, b)
		l.spareBytes += kept
	}
}

// refused is the broker's refusal of the oldest run: nothing of it was appended.
func (l *pipeline) refused(r *run, cause error) {
	l.mu.Lock()
	l.answered(r)
	code := protocol.AsError(cause).Code
	l.last = cause
	if code == protocol.UnknownHandle || code == protocol.UnknownTopic {
		l.handle = 0 // the topic is gone, perhaps created again
	}
	again := retriable(cause) && !l.p.cfg.noRetry
	if code == protocol.BadChecksum {
		for _, b := range r.batches {
			again = again && !b.bad
			b.bad = true
		}
	}
	if len(r.batches) > 1 && (code == protocol.TooLarge || code == protocol.BadFrame) {
		again = true // one of them is at fault: send each alone
		for _, b := range r.batches {
			b.alone = true
		}
	}
	if again {
		l.sendAgain(r)
		l.hold()
	} else {
		err := fmt.Errorf("client: produce to %s/%d: %w", l.topic.name, l.partition, cause)
		for _, b := range r.batches {
			l.resolve(b, 0, protocol.LevelNone, l.final(b, err))
		}
	}
	l.settle(r)
	if again {
		l.p.c.refused(l.topic.name, l.partition, cause)
	}
}

// final is the error of a batch that the broker refused with err. With mu.
func (l *pipeline) final(b *batch, err error) error {
	if !b.unknown {
		return err
	}
	return &DeliveryError{Topic: l.topic.name, Partition: l.partition, Sent: true, Reason: err}
}

// sendAgain collects the batches of a run to be sent again. With mu.
func (l *pipeline) sendAgain(r *run) {
	for _, b := range r.batches {
		if b.gone {
			l.recycle(b)
		} else {
			l.failed = append(l.failed, b)
		}
	}
}

// hold stops sending for a while. With mu.
func (l *pipeline) hold() {
	l.held = true
	l.resume = l.p.now() + int64(l.backoff.next())
}
