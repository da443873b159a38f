package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace-mq/millrace/client"
	"github.com/millrace-mq/millrace/protocol"
)

// load is what the publishers of one run share.
type load struct {
	// immutable
	topic    string
	shape    Shape
	payloads *Payloads
	add      func(uint64) // progress
	start    chan struct{}
	failed   chan struct{} // closed at the first failure

	// set before start is closed
	began time.Time

	once sync.Once
	err  error // the first failure; set before failed is closed
}

func (l *load) fail(err error) {
	l.once.Do(func() {
		l.err = err
		close(l.failed)
	})
}

// now is nanoseconds since the load began.
func (l *load) now() int64 { return int64(time.Since(l.began)) }

// slot is a place for one batch in flight. Its callback is made once, so that a batch
// costs no allocation.
type slot struct {
	seq  uint64 // first message
	n    uint64
	sent int64 // ns since the load began from which the latency counts; -1 = it is not measured
	done func(client.Ack, error)
}

// Every message of a lockstep or rated load has its latency recorded; of others one
// batch of at least so many messages, because reading the clock twice costs as much as
// making a message.
const latencyEvery = 32

// every says that one batch of so many is timed.
func (s *Shape) every() int {
	if s.Lockstep || s.Rate > 0 {
		return 1
	}
	return max(1, latencyEvery/s.Batch)
}

// progressEvery is how many messages are told to the progress at once.
const progressEvery = 1 << 12

// publisher is one producing client: its goroutine makes batches and keeps up to a
// window of them in flight, the callbacks of its producer take the answers.
//
//	free:  … | slot 3 | slot 0 | slot 2 | …      the ring of slots that are not in flight
//	           head →             ← tail
//	           the goroutine      the callbacks put
//	           takes here         answered ones here
type publisher struct {
	// immutable
	*load
	id       uint32
	n        uint64 // messages to send
	every    uint64 // a latency is recorded for each such many batches
	interval float64
	producer *client.Producer
	slots    []slot
	moved    chan struct{} // capacity 1

	// owned by the goroutine
	batch client.Batch
	value []byte
	head  uint64

	// owned by the callbacks
	latency Histogram
	acked   bitmap
	count   uint64
	untold  uint64 // of count, not yet in the progress

	free []uint32 // written by the callbacks below tail, read by the goroutine

	// atomic, published by the callbacks
	tail atomic.Uint64
	// atomic, published by the goroutine: the tail it waits for; 0 = it does not wait
	want atomic.Uint64
}

// newPublisher makes client i of a load on a connection.
func newPublisher(conn *client.Client, l *load, i int) (_ *publisher, err error) {
	s := &l.shape
	p := &publisher{load: l, id: uint32(i), n: s.share(s.Messages, i), every: uint64(s.every()),
		moved: make(chan struct{}, 1), value: make([]byte, s.Size)}
	if s.Rate > 0 {
		p.interval = float64(s.Clients) * float64(s.Batch) / s.Rate * float64(time.Second)
	}
	window := s.window()
	p.slots, p.free = make([]slot, window), make([]uint32, window)
	for k := range p.slots {
		p.free[k] = uint32(k)
		p.slots[k].done = func(_ client.Ack, err error) { p.answered(uint32(k), err) }
	}
	p.tail.Store(uint64(window))
	p.producer, err = conn.NewProducer(client.Durable(s.Level), client.Linger(s.Linger), client.NoRetry(),
		client.MaxBuffered(max(1<<20, 2*s.Batch), max(64<<20, 2*s.frameSize())))
	return p, err
}

// publish sends the publisher's messages and returns when all are answered or the load
// has failed.
func (p *publisher) publish(ctx context.Context) {
	<-p.start
	pace := newPace(p.began, p.interval, p.interval/float64(p.shape.Clients)*float64(p.id)) // clients take turns
	defer pace.end()
	for seq := uint64(0); seq < p.n; {
		due := pace.wait(ctx)
		s := p.take(ctx)
		if s == nil {
			break
		}
		s.seq, s.n = seq, min(uint64(p.shape.Batch), p.n-seq)
		if err := p.send(s, due); err != nil {
			p.fail(err)
			break
		}
		seq += s.n
	}
	p.await(ctx, p.head+uint64(len(p.slots)))
}

// make fills the batch with the messages of s.
func (p *publisher) make(s *slot) error {
	for i := range s.n {
		p.payloads.Fill(p.value, p.id, s.seq+i)
		if err := p.batch.Add(nil, p.value); err != nil {
			return err
		}
	}
	return nil
}

// send makes the batch of s and gives it to the producer. due is when it should have
// been sent, ns since the load began; -1 = now.
func (p *publisher) send(s *slot, due int64) error {
	if err := p.make(s); err != nil {
		return err
	}
	if s.sent = due; due < 0 && (p.head-1)%p.every == 0 {
		s.sent = p.now()
	}
	partition := uint32(0)
	if p.shape.Partitions > 1 {
		partition = uint32((uint64(p.id) + p.head) % uint64(p.shape.Partitions))
	}
	return p.producer.AsyncBatch(p.topic, partition, &p.batch, s.done)
}

// take returns a free slot, waiting for one; nil when the run is over.
func (p *publisher) take(ctx context.Context) *slot {
	if p.head == p.tail.Load() && !p.await(ctx, p.head+uint64(max(1, len(p.slots)/4))) {
		return nil
	}
	select {
	case <-p.failed:
		return nil
	default:
	}
	s := &p.slots[p.free[p.head%uint64(len(p.free))]]
	p.head++
	return s
}

// await waits until the tail has come to want; false when the load failed or ctx ended
// before. Waiting for a part of the window at once saves wake-ups.
func (p *publisher) await(ctx context.Context, want uint64) bool {
	p.want.Store(want)
	defer p.want.Store(0)
	for p.tail.Load() < want {
		select {
		case <-p.moved:
		case <-p.failed:
			return false
		case <-ctx.Done():
			p.fail(context.Cause(ctx))
			return false
		}
	}
	return true
}

// answered is the callback of slot k.
func (p *publisher) answered(k uint32, err error) {
	s := &p.slots[k]
	if err != nil {
		p.fail(err)
	} else {
		if s.sent >= 0 {
			p.latency.Record(p.now() - s.sent)
		}
		p.acked.setRange(s.seq, s.n, p.n)
		p.count += s.n
		p.untold += s.n
		if p.untold >= progressEvery {
			p.add(p.untold)
			p.untold = 0
		}
	}
	tail := p.tail.Load()
	p.free[tail%uint64(len(p.free))] = k
	p.tail.Store(tail + 1)
	if want := p.want.Load(); want != 0 && tail+1 >= want {
		select {
		case p.moved <- struct{}{}:
		default:
		}
	}
}

// close resolves what is left. After a failure nothing is waited for, and what it left
// unanswered is no news.
func (p *publisher) close(ctx context.Context) error {
	select {
	case <-p.failed:
		over, cancel := context.WithCancel(ctx)
		cancel()
		_ = p.producer.Close(over) // the load's failure says why messages are left
		return nil
	default:
		return p.producer.Close(ctx)
	}
}

// published is what a load has done.
type published struct {
	acked   uint64
	elapsed time.Duration
	latency Histogram
	spans   []Span
}

// publish runs all publishers of a load to the topic of the stage. What was
// acknowledged before a failure is reported beside it.
func (s *stage) publish(ctx context.Context, payloads *Payloads) (done published, err error) {
	add, end := s.phase(ScenarioProduce, s.shape.Messages)
	defer end()
	l := &load{topic: s.topic, shape: s.shape, payloads: payloads, add: add, start: make(chan struct{}), failed: make(chan struct{})}
	conns, publishers, err := s.gather(ctx, l)
	if err != nil {
		l.fail(err)
	}
	var group sync.WaitGroup
	for _, p := range publishers {
		group.Go(func() { p.publish(ctx) })
	}
	// The garbage of making the clients is not the load's to collect.
	runtime.GC()
	l.began = time.Now()
	close(l.start)
	group.Wait()
	done.elapsed = time.Since(l.began)
	if s.shape.Level == protocol.LevelNone && len(publishers) == s.shape.Clients {
		done.elapsed, err = s.arrived(ctx, l)
	}
	if err != nil {
		l.fail(err)
	}
	err = nil
	for _, p := range publishers {
		err = errors.Join(err, p.close(ctx))
		add(p.untold)
		done.acked += p.count
		done.latency.Merge(&p.latency)
		done.spans = append(done.spans, p.spans()...)
	}
	for _, c := range conns {
		err = errors.Join(err, c.Close())
	}
	select {
	case <-l.failed:
		return done, l.err
	default:
		return done, err
	}
}

// gather connects the clients of a load. What there is up to an error is the caller's
// to close, too.
func (s *stage) gather(ctx context.Context, l *load) (conns []*client.Client, publishers []*publisher, err error) {
	for i := range cmp.Or(s.shape.Conns, s.shape.Clients) {
		c, err := s.open(ctx, fmt.Sprintf("producer-%d", i), l.fail)
		if err != nil {
			return conns, publishers, err
		}
		conns = append(conns, c)
	}
	for i := range s.shape.Clients {
		p, err := newPublisher(conns[i%len(conns)], l, i)
		if err != nil {
			return conns, publishers, err
		}
		publishers = append(publishers, p)
	}
	return conns, publishers, nil
}

// arrivalTimeout bounds the wait for messages that nobody acknowledges.
const arrivalTimeout = 30 * time.Second

// arrived waits until the broker has all messages of a load that asked for no
// acknowledgement, whose producers only know that they wrote them to a socket.
func (s *stage) arrived(ctx context.Context, l *load) (time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, arrivalTimeout,
		fmt.Errorf("the broker has not got all messages within %v", arrivalTimeout))
	defer cancel()
	for {
		select {
		case <-l.failed:
			return time.Since(l.began), l.err
		case <-ctx.Done():
			return time.Since(l.began), context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
		ends, err := s.admin.Offsets(ctx, s.topic, protocol.End)
		if err != nil {
			return time.Since(l.began), err
		}
		var have uint64
		for i := range ends {
			have += ends[i].End
		}
		if have >= s.shape.Messages {
			return time.Since(l.began), nil
		}
	}
}

// spans lists what was acknowledged. Only after the producer is closed.
func (p *publisher) spans() (spans []Span) {
	p.acked.each(func(from, n uint64) { spans = append(spans, Span{p.id, from, n}) })
	return spans
}

// each calls f for each stretch of numbers in the set, in order.
func (m *bitmap) each(f func(from, n uint64)) {
	from, n := uint64(0), uint64(0)
	for i, piece := range m.pieces {
		for w, word := range piece {
			at := uint64(i)*pieceBits + uint64(w)*64
			switch {
			case word == 0:
			case n > 0 && from+n == at && word == ^uint64(0):
				n += 64
			default:
				for b := range uint64(64) {
					if word&(1<<b) == 0 {
						continue
					}
					if n == 0 || from+n != at+b {
						if n > 0 {
							f(from, n)
						}
						from, n = at+b, 0
					}
					n++
				}
			}
		}
	}
	if n > 0 {
		f(from, n)
	}
}
