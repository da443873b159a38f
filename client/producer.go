package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace-mq/millrace/protocol"
)

// The buffer budget is one number: records in the high bits, bytes in the low ones, so that one
// atomic operation takes or returns both.
const (
	budgetShift   = 40
	budgetRecords = 1<<(63-budgetShift) - 1
	budgetBytes   = 1 << (budgetShift - 1)
)

// Producer sends messages.
//
// Order: messages of one partition are appended and acknowledged in the order in which they
// were given, also across reconnects. One exception: with several runs in flight, a refusal
// that hits one and not those behind it (they were on the way already) puts the refused one
// behind them; MaxInFlight(1) excludes that.
//
// Delivery: at least once. A run whose connection ended before the answer is sent again and may
// then be in the log twice; the broker does not drop such duplicates yet. NoRetry trades that
// for protocol.UnknownOutcome.
//
// Ownership: safe for concurrent use. Callbacks run one at a time on a goroutine of the
// producer, in order per partition, with no lock held. They may use the producer, but must not
// wait for it: Flush and Close would wait for themselves, Send for room that only the callback
// frees; Async gives up with ErrBufferFull at the latest after DeliveryTimeout.
//
// Bounds: MaxBuffered; a message counts until its callback returned.
type Producer struct {
	// immutable
	c     *Client
	cfg   producerConfig
	now   func() int64 // ns of the client's clock
	eager int          // bytes that are sent although runs are in flight

	teller teller
	alarm  alarm
	last   atomic.Pointer[topic] // the topic used last, mostly the right one
	budget atomic.Uint64

	// atomic: batches and waiting messages of the even and the odd epoch. A Flush begins an
	// epoch and waits until nothing of the one before is left.
	epoch   atomic.Uint32
	urgent  atomic.Bool // a Flush is under way: no lingering
	pending [2]atomic.Int64

	flushing chan struct{} // capacity 1: held by the one Flush at a time
	idle     chan struct{} // capacity 1: pending reached 0
	closing  chan struct{} // closed when Close begins
	waiters  atomic.Int32  // those who wait for room
	senders  sync.Pool     // *waiter

	topicsMu sync.RWMutex
	topics   map[string]*topic // guarded by topicsMu

	// guarded by mu
	mu     sync.Mutex
	room   chan struct{}    // closed and replaced when budget was returned
	quiet  UndeliveredError // failures without a callback since the last Flush
	left   UndeliveredError // what Close had to abort
	closed bool
	over   chan struct{} // closed when Close is through
	result error         // of Close

	wg sync.WaitGroup
}

// NewProducer makes a producer. It connects nothing: topics are opened as messages for them
// come, and created where the broker's policy allows.
func (c *Client) NewProducer(opts ...ProducerOption) (*Producer, error) {
	cfg, err := newProducerConfig(opts)
	if err != nil {
		return nil, err
	}
	p := &Producer{
		c: c, cfg: cfg, now: c.now,
		eager:    min(cfg.batchBytes, eagerBytes),
		flushing: make(chan struct{}, 1), idle: make(chan struct{}, 1),
		closing: make(chan struct{}), over: make(chan struct{}), room: make(chan struct{}),
		topics: make(map[string]*topic),
	}
	p.senders.New = func() any { return &waiter{result: make(chan outcome, 1)} }
	p.alarm.start()
	p.teller.start()
	if err := c.adopt(p); err != nil {
		return nil, err
	}
	p.wg.Add(2)
	go p.tell()
	go p.watch()
	return p, nil
}

// Async gives a message to the producer and returns. done, if not nil, is called exactly once
// when its fate is known.
//
// Ownership: the message's bytes are copied.
// Errors, each meaning that the message was not taken and done will not be called: ErrClosed,
// ErrBufferFull (waits for room up to DeliveryTimeout, unless FailWhenFull), TooLarge, BadName,
// UnknownPartition.
func (p *Producer) Async(m Message, done func(Ack, error)) error {
	return p.give(context.Background(), p.cfg.timeout, &m, entry{fn: done})
}

// Send gives a message to the producer and waits until it is acknowledged.
//
// Ownership: the message's bytes are copied.
// Errors: those of Async; a refusal of the broker; *DeliveryError. When ctx ends first, a
// message that was not sent yet is withdrawn, and the *DeliveryError says which was the case.
func (p *Producer) Send(ctx context.Context, m Message) (Ack, error) {
	if err := ctx.Err(); err != nil {
		return Ack{}, err
	}
	w := p.senders.Get().(*waiter)
	if err := p.give(ctx, 0, &m, entry{w: w}); err != nil {
		p.senders.Put(w)
		return Ack{}, err
	}
	return p.await(ctx, w, m.Topic, max(m.Partition.n, 1)-1)
}

// await waits for the answer to what w was given with, or withdraws that when ctx ends first.
func (p *Producer) await(ctx context.Context, w *waiter, topic string, partition uint32) (Ack, error) {
	select {
	case o := <-w.result:
		p.senders.Put(w)
		return o.ack, o.err
	case <-ctx.Done():
	}
	t, err := p.topic(topic)
	sent := err != nil || !t.withdraw(w)
	select {
	case o := <-w.result: // the answer came at the same time
		return o.ack, o.err
	default:
	}
	// w stays with the batch in flight, and is not used again.
	return Ack{}, &DeliveryError{Topic: topic, Partition: partition, Sent: sent, Reason: ctx.Err()}
}

// AsyncBatch gives a whole batch for one partition: one call, one callback and no work per
// record. done, if not nil, is called exactly once, with the offset of the first record.
//
// Ownership: the records are taken over without a copy; b is empty afterwards, with other
// memory, and may be filled again at once. When an error is returned, b is unchanged.
// Errors: those of Async; BadRequest for an empty batch. Messages larger than the topic takes
// are refused by the broker, with all of the batch.
func (p *Producer) AsyncBatch(topic string, partition uint32, b *Batch, done func(Ack, error)) error {
	return p.giveBatch(context.Background(), p.cfg.timeout, topic, partition, b, entry{fn: done})
}

// SendBatch gives a whole batch for one partition to the producer and waits until it is
// acknowledged. The Ack has the offset of its first record.
//
// Ownership: as for AsyncBatch. Errors: those of AsyncBatch, then b is unchanged; those of Send.
// A batch that ctx withdrew is gone, too.
func (p *Producer) SendBatch(ctx context.Context, topic string, partition uint32, b *Batch) (Ack, error) {
	if err := ctx.Err(); err != nil {
		return Ack{}, err
	}
	w := p.senders.Get().(*waiter)
	if err := p.giveBatch(ctx, 0, topic, partition, b, entry{w: w}); err != nil {
		p.senders.Put(w)
		return Ack{}, err
	}
	return p.await(ctx, w, topic, partition)
}

// giveBatch checks, pays for and routes a batch, waiting as give says.
func (p *Producer) giveBatch(ctx context.Context, limit time.Duration, topic string, partition uint32, b *Batch, e entry) error {
	n := b.Len()
	if n == 0 {
		return &protocol.Error{Code: protocol.BadRequest, Detail: "empty batch"}
	}
	if partition >= protocol.MaxPartitions {
		return badPartition(topic, partition)
	}
	t, err := p.topic(topic)
	if err != nil {
		return err
	}
	bytes := b.Size()
	if err := p.reserve(ctx, limit, n, bytes); err != nil {
		return err
	}
	err = ErrClosed
	if l := t.line(partition); l != nil {
		err = l.addBatch(b, b.frame.Seal(), e, bytes)
	}
	if err != nil {
		p.release(n, bytes)
	}
	return err
}

// give checks, pays for and routes a message. It waits for room until ctx ends, and no longer
// than limit where that is not 0.
func (p *Producer) give(ctx context.Context, limit time.Duration, m *Message, e entry) error {
	t := p.last.Load()
	if t == nil || t.name != m.Topic {
		var err error
		if t, err = p.topic(m.Topic); err != nil {
			return err
		}
		p.last.Store(t)
	}
	if err := m.check(); err != nil {
		return err
	}
	size := m.size()
	if size > protocol.MaxMessageBytes {
		return tooLarge(size, protocol.MaxMessageBytes)
	}
	bytes := size + recordOverhead
	if err := p.reserve(ctx, limit, 1, bytes); err != nil {
		return err
	}
	if err := t.add(m, e, bytes); err != nil {
		p.release(1, bytes)
		return err
	}
	return nil
}

// topic returns what is known of a topic, making it when it is new.
func (p *Producer) topic(name string) (*topic, error) {
	p.topicsMu.RLock()
	t := p.topics[name]
	p.topicsMu.RUnlock()
	if t != nil {
		return t, nil
	}
	if err := protocol.ValidClientTopic(name); err != nil {
		return nil, err
	}
	p.topicsMu.Lock()
	defer p.topicsMu.Unlock()
	if p.isClosing() {
		return nil, ErrClosed
	}
	if t = p.topics[name]; t == nil {
		t = &topic{p: p, name: name}
		p.topics[name] = t
	}
	return t, nil
}

func (p *Producer) allTopics() (list []*topic) {
	p.topicsMu.RLock()
	defer p.topicsMu.RUnlock()
	for _, t := range p.topics {
		list = append(list, t)
	}
	return list
}

func (p *Producer) isClosing() bool {
	select {
	case <-p.closing:
		return true
	default:
		return false
	}
}

// Buffered returns how many messages, and how many bytes of them, were given and are not yet
// resolved.
func (p *Producer) Buffered() (records, bytes int) {
	v := p.budget.Load()
	return int(v >> budgetShift), int(v & (1<<budgetShift - 1))
}

// Flush sends what is buffered without lingering and waits until everything given before is
// resolved and its callbacks returned.
//
// Errors: the context's; *UndeliveredError with the messages that failed since the last Flush
// and had no callback to say so.
func (p *Producer) Flush(ctx context.Context) error {
	if err := p.drain(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	quiet := p.quiet
	p.quiet = UndeliveredError{}
	return quiet.orNil()
}

// drain waits until everything given before is resolved.
func (p *Producer) drain(ctx context.Context) error {
	select {
	case p.flushing <- struct{}{}:
		defer func() { <-p.flushing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	defer signal(p.idle) // an abort may wait for it too
	p.urgent.Store(true)
	defer p.urgent.Store(false)
	// What a Flush before this one gave up waiting for belongs to the epoch that is not
	// current; then the current one ends.
	for _, next := range []bool{false, true} {
		if next {
			p.epoch.Add(1)
		}
		for _, t := range p.allTopics() {
			for _, l := range t.all() {
				l.flush()
			}
		}
		old := (p.epoch.Load() + 1) & 1
		for p.pending[old].Load() != 0 {
			select {
			case <-p.idle:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

// Close refuses new messages, sends what is buffered and waits until everything is resolved.
// When ctx ends first, the rest is resolved as not sent or unknown; every callback has returned
// when Close does.
//
// Errors: *UndeliveredError with the messages that were not acknowledged: those still open, and
// those that failed before without a callback to say so. A second Close returns the same.
func (p *Producer) Close(ctx context.Context) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		<-p.over
		return p.result
	}
	p.closed = true
	p.mu.Unlock()
	p.topicsMu.Lock()
	close(p.closing)
	p.topicsMu.Unlock()
	topics := p.allTopics()
	for _, t := range topics {
		t.shut()
	}
	if err := p.drain(ctx); err != nil {
		reason := ErrClosed
		if cause := context.Cause(ctx); cause != nil {
			reason = fmt.Errorf("%w: %w", ErrClosed, cause)
		}
		p.abort(topics, reason)
	}
	p.teller.stop()
	p.alarm.stop()
	p.wg.Wait()
	for _, t := range topics {
		t.abort()
		for _, l := range t.all() {
			p.c.forget(l)
		}
	}
	p.c.disown(p)
	p.mu.Lock()
	p.left.merge(&p.quiet)
	p.result = p.left.orNil()
	p.mu.Unlock()
	close(p.over)
	return p.result
}

// abort resolves everything that is left.
func (p *Producer) abort(topics []*topic, reason error) {
	for _, t := range topics {
		t.abort()
		for _, l := range t.all() {
			l.abort(reason)
		}
		t.reject(func(*waitingMessage) error {
			return &DeliveryError{Topic: t.name, Reason: reason, Last: p.c.trouble()}
		})
	}
	for p.pending[0].Load()+p.pending[1].Load() != 0 { // callbacks, and messages on their way to a pipeline
		<-p.idle
	}
	signal(p.idle) // a Flush may wait for it too
}

// reserve takes n records of so many bytes from the budget, waiting as give says.
func (p *Producer) reserve(ctx context.Context, limit time.Duration, n, bytes int) error {
	if n > p.cfg.maxRecords || bytes > p.cfg.maxBytes {
		return &protocol.Error{Code: protocol.TooLarge, Detail: fmt.Sprintf("%d records of %d bytes in a buffer for %d", n, bytes, p.cfg.maxRecords),
			Actual: uint64(bytes), Limit: uint64(p.cfg.maxBytes), Setting: "MaxBuffered"}
	}
	if p.tryReserve(n, bytes) {
		return nil
	}
	if p.isClosing() {
		return ErrClosed
	}
	if p.cfg.failWhenFull {
		return ErrBufferFull
	}
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, ErrBufferFull)
		defer cancel()
	}
	return p.awaitRoom(ctx, n, bytes)
}

func (p *Producer) tryReserve(n, bytes int) bool {
	for {
		v := p.budget.Load()
		next := v + uint64(n)<<budgetShift + uint64(bytes)
		if next>>budgetShift > uint64(p.cfg.maxRecords) || next&(1<<budgetShift-1) > uint64(p.cfg.maxBytes) {
			return false
		}
		if p.budget.CompareAndSwap(v, next) {
			return true
		}
	}
}

func (p *Producer) awaitRoom(ctx context.Context, n, bytes int) error {
	p.waiters.Add(1)
	defer p.waiters.Add(-1)
	for {
		p.mu.Lock()
		room := p.room
		p.mu.Unlock()
		if p.tryReserve(n, bytes) {
			return nil
		}
		select {
		case <-room:
		case <-p.closing:
			return ErrClosed
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), ErrBufferFull) {
				return ErrBufferFull
			}
			return ctx.Err()
		}
	}
}

// release returns what reserve took.
func (p *Producer) release(n, bytes int) {
	p.budget.Add(-(uint64(n)<<budgetShift + uint64(bytes)))
	if p.waiters.Load() == 0 {
		return
	}
	p.mu.Lock()
	close(p.room)
	p.room = make(chan struct{})
	p.mu.Unlock()
}

// debt is what pipelines return to the producer after they released their lock.
type debt struct {
	records, bytes int
	exits          [2]int64
}

func (d *debt) add(records, bytes int, epoch uint32) {
	d.records += records
	d.bytes += bytes
	d.exits[epoch]++
}

// free takes a debt back.
func (p *Producer) free(d *debt) {
	if d.records > 0 {
		p.release(d.records, d.bytes)
	}
	for e, n := range d.exits {
		if n > 0 && p.pending[e].Add(-n) == 0 {
			signal(p.idle)
		}
	}
}

// enter counts a batch or waiting message among those that Flush waits for.
func (p *Producer) enter(epoch uint32) { p.pending[epoch].Add(1) }

// exit is its end.
func (p *Producer) exit(epoch uint32) {
	if p.pending[epoch].Add(-1) == 0 {
		signal(p.idle)
	}
}
