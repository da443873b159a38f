package server

import (
	"sync"
	"sync/atomic"
	"time"
)

// The sizes of pooled buffers, and how many free ones of each are kept: 64 MiB in all at most.
var classes = [...]struct{ size, keep int }{
	{4 << 10, 1024},
	{16 << 10, 256},
	{64 << 10, 256},
	{256 << 10, 64},
	{1 << 20, 16},
	{4 << 20, 4},
}

const (
	smallBuffer = 4 << 10  // bytes; before HELLO, and for what is left of a frame while parked
	readBuffer  = 64 << 10 // bytes; what a readable connection starts with
	copyBuffer  = 16 << 10 // bytes; a short run with its header
)

// outShare is the part of the budget that is for delivering, and minShare its least, bytes: two
// windows for one that turns records into legacy frames, and some for others.
const (
	outShare = 8 // one in so many
	minShare = 4 * legacyWindow
)

// buffers hands out memory under one budget for all connections. A part of it is for delivering:
// peers that read nothing never take what others write with, nor the other way round.
//
// Bounds: the bytes handed out exceed limit by no more than what force gives, and never exceed
// outLimit; free buffers beyond what a class keeps go to the garbage collector.
type buffers struct {
	// immutable, bytes
	limit    int64 // for reading and appending
	outLimit int64 // for delivering

	// atomic
	used    atomic.Int64 // of limit, bytes handed out
	out     atomic.Int64 // of outLimit, bytes handed out
	waiting atomic.Int32 // connections in await or awaitOut
	free    [len(classes)]freeList

	mu    sync.Mutex
	freed sync.Cond // of mu: bytes came back, or it is time to look at deadlines
}

// freeList is the free buffers of one class.
type freeList struct {
	mu   sync.Mutex
	list [][]byte
}

func newBuffers(budget int64) *buffers {
	share := max(budget/outShare, minShare)
	b := &buffers{limit: max(budget-share, budget/2), outLimit: share}
	b.freed.L = &b.mu
	return b
}

// class returns the smallest class that holds n bytes, len(classes) when none does.
func class(n int) int {
	for i := range classes {
		if n <= classes[i].size {
			return i
		}
	}
	return len(classes)
}

// rounded is the size that take gives for n bytes.
func rounded(n int) int {
	if i := class(n); i < len(classes) {
		return classes[i].size
	}
	return n
}

// take returns a buffer of at least n bytes, nil when the budget does not allow it now.
func (b *buffers) take(n int) []byte {
	size := int64(rounded(n))
	if b.used.Add(size) > b.limit {
		b.used.Add(-size)
		return nil
	}
	return b.make(int(size))
}

// takeOut is take for delivering.
func (b *buffers) takeOut(n int) []byte {
	size := int64(rounded(n))
	if b.out.Add(size) > b.outLimit {
		b.out.Add(-size)
		return nil
	}
	return b.make(int(size))
}

// total is the bytes handed out for everything.
func (b *buffers) total() uint64 { return uint64(max(0, b.used.Load()+b.out.Load())) }

// over tells whether the budget for reading is used up.
func (b *buffers) over() bool { return b.used.Load() > b.limit }

// takeOrSmall is take, or a small buffer when the budget is used up: requests and short runs
// go on being read. Connections are counted, so that is bounded too.
func (b *buffers) takeOrSmall(n int) []byte {
	if buf := b.take(n); buf != nil {
		return buf
	}
	return b.force(smallBuffer)
}

// force is take for what must go on whatever the budget says. The caller bounds it.
func (b *buffers) force(n int) []byte {
	size := rounded(n)
	b.used.Add(int64(size))
	return b.make(size)
}

func (b *buffers) make(size int) []byte {
	if i := class(size); i < len(classes) {
		f := &b.free[i]
		f.mu.Lock()
		if last := len(f.list) - 1; last >= 0 {
			buf := f.list[last]
			f.list[last] = nil
			f.list = f.list[:last]
			f.mu.Unlock()
			return buf
		}
		f.mu.Unlock()
	}
	return make([]byte, size)
}

// give takes back a buffer of take or force, whole.
func (b *buffers) give(buf []byte) {
	b.used.Add(-int64(len(buf)))
	b.keep(buf)
}

// giveOut takes back a buffer of takeOut, whole.
func (b *buffers) giveOut(buf []byte) {
	b.out.Add(-int64(len(buf)))
	b.keep(buf)
}

func (b *buffers) keep(buf []byte) {
	size := len(buf)
	if i := class(size); i < len(classes) && classes[i].size == size {
		f := &b.free[i]
		f.mu.Lock()
		if len(f.list) < classes[i].keep {
			f.list = append(f.list, buf)
		}
		f.mu.Unlock()
	}
	if b.waiting.Load() > 0 {
		b.wake()
	}
}

// wake lets everybody in await look again.
func (b *buffers) wake() {
	b.mu.Lock()
	b.freed.Broadcast()
	b.mu.Unlock()
}

// await waits until take(n) may succeed, over is true, or the deadline passed; it is false in
// the last two cases. The server's watch wakes it regularly, so it needs no timer of its own.
func (b *buffers) await(n int, deadline time.Time, over func() bool) bool {
	return b.wait(&b.used, b.limit-int64(rounded(n)), func() bool { return over() || time.Now().After(deadline) })
}

// awaitOut waits until out leaves n bytes for delivering; it is false when over is true first.
// Nobody keeps such bytes for longer than a write may stall.
func (b *buffers) awaitOut(n int, over func() bool) bool {
	return b.wait(&b.out, b.outLimit-int64(n), over)
}

// wait waits until taken is at most free, or over is true: it is false then.
func (b *buffers) wait(taken *atomic.Int64, free int64, over func() bool) bool {
	b.waiting.Add(1)
	defer b.waiting.Add(-1)
	b.mu.Lock()
	defer b.mu.Unlock()
	for taken.Load() > free {
		if over() {
			return false
		}
		b.freed.Wait()
	}
	return true
}
