package client

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// teller calls the callbacks of a producer, so that a slow one delays no other producer and no
// answer.
type teller struct {
	wake chan struct{} // capacity 1
	end  chan struct{}

	mu    sync.Mutex
	lines []*pipeline // guarded by mu: those with something in done

	// owned by the goroutine of tell
	spare []*pipeline
}

func (t *teller) start() {
	t.wake, t.end = make(chan struct{}, 1), make(chan struct{})
}

func (t *teller) stop() { close(t.end) }

// tell enters a pipeline; its telling flag says that it was.
func (t *teller) tell(l *pipeline) {
	t.mu.Lock()
	t.lines = append(t.lines, l)
	t.mu.Unlock()
	signal(t.wake)
}

// tell is the teller's goroutine. It ends when it was stopped and nobody is left to be told.
func (p *Producer) tell() {
	defer p.wg.Done()
	t := &p.teller
	for {
		t.mu.Lock()
		lines := t.lines
		t.lines, t.spare = t.spare[:0], lines
		t.mu.Unlock()
		for _, l := range lines {
			p.tellLine(l)
		}
		clear(lines)
		if len(lines) > 0 {
			continue
		}
		select {
		case <-t.wake:
		case <-t.end:
			t.mu.Lock()
			left := len(t.lines)
			t.mu.Unlock()
			if left == 0 {
				return
			}
		}
	}
}

// tellLine calls the callbacks of what a pipeline has done.
func (p *Producer) tellLine(l *pipeline) {
	for {
		l.mu.Lock()
		l.done, l.told = l.told[:0], l.done
		if len(l.told) == 0 {
			l.telling = false
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		for _, b := range l.told {
			p.call(l, b)
		}
		l.mu.Lock()
		for i, b := range l.told {
			l.freed.add(b.records, b.bytes, b.epoch)
			l.recycle(b)
			l.told[i] = nil
		}
		l.leave()
	}
}

// call tells everybody whom batch b concerns.
func (p *Producer) call(l *pipeline, b *batch) {
	if b.whole != nil {
		b.whole(b.ack(l, 0), b.err)
	}
	for i := range b.entries {
		if fn := b.entries[i].fn; fn != nil {
			fn(b.ack(l, i), b.err)
		}
	}
	if b.err == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.aborted {
		p.left.add(b.records, b.err)
	} else {
		p.quiet.add(b.unheard, b.err)
	}
}

// alarm wakes the clock of a producer at the earliest time that somebody asked for.
type alarm struct {
	next atomic.Int64 // ns of the client's clock
	wake chan struct{}
	end  chan struct{}
}

func (a *alarm) start() {
	a.wake, a.end = make(chan struct{}, 1), make(chan struct{})
	a.next.Store(math.MaxInt64)
}

func (a *alarm) stop() { close(a.end) }

// at asks for a look at time t.
func (a *alarm) at(t int64) {
	for {
		n := a.next.Load()
		if n <= t {
			return
		}
		if a.next.CompareAndSwap(n, t) {
			signal(a.wake)
			return
		}
	}
}

// watch is the clock of a producer: lingering, pauses after refusals and delivery timeouts end
// by it.
func (p *Producer) watch() {
	defer p.wg.Done()
	a := &p.alarm
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait := time.Hour
		if n := a.next.Load(); n != math.MaxInt64 {
			wait = time.Duration(n - p.now())
		}
		timer.Reset(max(wait, 0))
		select {
		case <-a.end:
			return
		case <-a.wake:
			continue
		case <-timer.C:
		}
		now := p.now()
		if a.next.Load() > now {
			continue
		}
		a.next.Store(math.MaxInt64)
		for _, t := range p.allTopics() {
			if next := t.tick(now); next != 0 {
				a.at(next)
			}
			for _, l := range t.all() {
				if next := l.tick(now); next != 0 {
					a.at(next)
				}
			}
		}
	}
}
