package client

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/millrace-mq/millrace/protocol"
)

// topic is what a producer knows of a topic: its pipelines and, as soon as one OPEN was
// answered, how many partitions there are to choose from. Until then messages without a chosen
// partition wait here.
type topic struct {
	// immutable
	p    *Producer
	name string

	// atomic, published by resolved: messages go straight to a pipeline once it is not 0
	partitions atomic.Uint32
	known      atomic.Uint32 // likewise, but set before those that waited are routed
	maxMessage atomic.Uint32 // bytes; 0 = not known yet

	// atomic
	sticky atomic.Uint32               // partition of messages without key
	lines  atomic.Pointer[[]*pipeline] // by partition, nil = not used yet; replaced under mu

	// guarded by mu
	mu      sync.Mutex
	waiting []waitingMessage
	closed  bool // takes nothing new
	aborted bool // nothing waits any more
}

// waitingMessage is a message whose partition cannot be chosen yet.
type waitingMessage struct {
	m     Message // a copy
	e     entry
	bytes int
	born  int64
	epoch uint32
}

// line returns the pipeline of partition n, nil when it would be new and the topic was aborted.
func (t *topic) line(n uint32) *pipeline {
	if lines := t.lines.Load(); lines != nil && n < uint32(len(*lines)) {
		if l := (*lines)[n]; l != nil {
			return l
		}
	}
	return t.addLine(n)
}

func (t *topic) addLine(n uint32) *pipeline {
	t.mu.Lock()
	var lines []*pipeline
	if old := t.lines.Load(); old != nil {
		lines = append(lines, *old...)
	}
	for uint32(len(lines)) <= n {
		lines = append(lines, nil)
	}
	l := lines[n]
	if l != nil || t.aborted {
		t.mu.Unlock()
		return l
	}
	l = &pipeline{p: t.p, topic: t, partition: n, backoff: t.p.c.newBackoff(), closed: t.closed}
	lines[n] = l
	t.lines.Store(&lines)
	t.mu.Unlock()
	t.p.c.register(l)
	return l
}

// all returns the pipelines in use.
func (t *topic) all() (lines []*pipeline) {
	if p := t.lines.Load(); p != nil {
		for _, l := range *p {
			if l != nil {
				lines = append(lines, l)
			}
		}
	}
	return lines
}

// choose returns the partition of m among n.
func (t *topic) choose(m *Message, n uint32) uint32 {
	if m.Partition.n != 0 {
		return m.Partition.n - 1
	}
	if m.Key != nil {
		return protocol.PartitionOf(m.Key, n)
	}
	return t.sticky.Load() % n
}

// turn moves messages without key on to the next partition: the batch of this one is complete.
func (t *topic) turn(partition uint32) {
	if n := t.known.Load(); n > 1 {
		t.sticky.CompareAndSwap(partition, (partition+1)%n)
	}
}

// add routes a message that was checked and paid for.
func (t *topic) add(m *Message, e entry, bytes int) error {
	n := t.partitions.Load()
	if n == 0 && m.Partition.n == 0 {
		return t.wait(m, e, bytes)
	}
	if limit := t.maxMessage.Load(); limit != 0 && m.size() > int(limit) {
		return tooLarge(m.size(), limit)
	}
	l := t.line(t.choose(m, n))
	if l == nil {
		return ErrClosed
	}
	return l.add(m, e, bytes)
}

// wait keeps a copy of a message until the number of partitions is known.
func (t *topic) wait(m *Message, e entry, bytes int) error {
	w := waitingMessage{m: m.clone(), e: e, bytes: bytes, born: t.p.now()}
	t.mu.Lock()
	if t.partitions.Load() != 0 { // resolved meanwhile
		t.mu.Unlock()
		return t.add(m, e, bytes)
	}
	if t.closed {
		t.mu.Unlock()
		return ErrClosed
	}
	w.epoch = t.p.epoch.Load() & 1
	t.p.enter(w.epoch)
	t.waiting = append(t.waiting, w)
	first := len(t.waiting) == 1
	t.mu.Unlock()
	t.p.alarm.at(w.born + int64(t.p.cfg.timeout))
	if first {
		t.probe()
	}
	return nil
}

// probe asks for the number of partitions: an OPEN of partition 0 tells.
func (t *topic) probe() {
	if l := t.line(0); l != nil {
		l.mu.Lock()
		l.probe = true
		l.leave()
	}
}

// resolved is the answer to an OPEN of any partition.
func (t *topic) resolved(reply *protocol.OpenReply) {
	t.maxMessage.Store(reply.MaxMessage)
	t.known.Store(reply.Partitions)
	if t.partitions.Load() != 0 {
		t.partitions.Store(reply.Partitions)
		return
	}
	for { // messages that waited go first; only then new ones may overtake nothing
		t.mu.Lock()
		list := t.waiting
		t.waiting = nil
		if len(list) == 0 {
			t.partitions.Store(reply.Partitions)
			t.mu.Unlock()
			return
		}
		t.mu.Unlock()
		for i := range list {
			t.routeWaiting(&list[i], reply)
		}
	}
}

func (t *topic) routeWaiting(w *waitingMessage, reply *protocol.OpenReply) {
	n := t.choose(&w.m, reply.Partitions)
	l := t.line(n)
	err := error(nil)
	switch {
	case l == nil:
		l = t.line(0)
		err = &DeliveryError{Topic: t.name, Reason: ErrClosed}
	case reply.MaxMessage != 0 && w.m.size() > int(reply.MaxMessage):
		err = tooLarge(w.m.size(), reply.MaxMessage)
	default:
		if err = l.addWaiting(w); errors.Is(err, ErrClosed) {
			err = &DeliveryError{Topic: t.name, Partition: n, Reason: ErrClosed}
		}
	}
	if err != nil {
		l.reject(w.e, w.bytes, w.epoch, err)
		return
	}
	t.p.exit(w.epoch)
}

// failed is the broker's final refusal of the OPEN: nobody can wait any longer.
func (t *topic) failed(err error) {
	t.reject(func(*waitingMessage) error { return err })
}

// tick gives up what waited too long and returns when to look again; 0 = never.
func (t *topic) tick(now int64) (next int64) {
	due := now - int64(t.p.cfg.timeout)
	t.reject(func(w *waitingMessage) error {
		if w.born <= due {
			return &DeliveryError{Topic: t.name, Reason: errDeadline, Last: t.p.c.trouble()}
		}
		next = sooner(next, w.born+int64(t.p.cfg.timeout))
		return nil
	})
	return next
}

// reject resolves the waiting messages for which verdict returns an error.
func (t *topic) reject(verdict func(*waitingMessage) error) {
	type failure struct {
		w   waitingMessage
		err error
	}
	var failures []failure
	t.mu.Lock()
	kept := t.waiting[:0]
	for i := range t.waiting {
		if err := verdict(&t.waiting[i]); err != nil {
			failures = append(failures, failure{t.waiting[i], err})
		} else {
			kept = append(kept, t.waiting[i])
		}
	}
	clear(t.waiting[len(kept):])
	t.waiting = kept
	t.mu.Unlock()
	for i := range failures {
		f := &failures[i]
		if l := t.line(0); l != nil { // probe made it
			l.reject(f.w.e, f.w.bytes, f.w.epoch, f.err)
		}
	}
}

// withdraw takes a waiting message back.
func (t *topic) withdraw(w *waiter) bool {
	t.mu.Lock()
	for i := range t.waiting {
		if t.waiting[i].e.w == w {
			found := t.waiting[i]
			t.waiting = append(t.waiting[:i], t.waiting[i+1:]...)
			t.mu.Unlock()
			t.p.release(1, found.bytes)
			t.p.exit(found.epoch)
			return true
		}
	}
	t.mu.Unlock()
	for _, l := range t.all() {
		if l.withdraw(w) {
			return true
		}
	}
	return false
}

// abort refuses what is still on its way to a pipeline.
func (t *topic) abort() {
	t.mu.Lock()
	t.aborted = true
	t.mu.Unlock()
}

// shut refuses new messages.
func (t *topic) shut() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	for _, l := range t.all() {
		l.shut()
	}
}
