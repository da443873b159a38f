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

// buffers hands out memory under one budget for all connections.
//
// Bounds: the bytes handed out exceed limit by no more than what force gives; free buffers beyond
// what a class keeps go to the garbage collector.
type buffers struct {
	limit int64 // bytes; immutable

	used    atomic.Int64 // bytes handed out
	waiting atomic.Int32 // connections in await
	free    [len(classes)]freeList

	mu    sync.Mutex
	freed sync.Cond // of mu: bytes came back, or it is time to look at deadlines
}

// freeList is the free buffers of one class.
type freeList struct {
	mu   sync.Mutex
	list [][]byte
}

func newBuffers(limit int64) *buffers {
	b := &buffers{limit: limit}
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

// over tells whether the budget is used up.
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
	size := len(buf)
	b.used.Add(-int64(size))
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
	b.waiting.Add(1)
	defer b.waiting.Add(-1)
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.used.Load()+int64(rounded(n)) > b.limit {
		if over() || time.Now().After(deadline) {
			return false
		}
		b.freed.Wait()
	}
	return true
}
