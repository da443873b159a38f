package storage

import (
	"errors"
	"sync"

	"github.com/millrace-mq/millrace/storage/vfs"
)

// Space is taken ahead of appends in steps that double, so that a busy segment is prepared far
// ahead and an idle one costs little.
const (
	zeroFirst = 64 << 10 // bytes
	zeroMost  = 64 << 20 // bytes
	zeroChunk = 1 << 20  // bytes written at a time: as long as an append can be held up

	// zeroRate is how fast, in bytes a second, appends may come for zeros to be worth writing.
	// Above it flushes are so large that their metadata does not matter and the zeros are one
	// more copy (measured, flushes waited for: 10 producers in lockstep 2.5 M msg/s with zeros
	// against 1.7 M allocated; pipelined 10.6 M against 15.8 M).
	zeroRate = 512 << 20
)

// zeroed is how far a segment's file is prepared: blocks of a durable log are written with
// zeros, because an fdatasync into blocks that were written before does not touch metadata
// (measured: p50 144 µs against 220 growing and 280 to 309 merely allocated); blocks of other
// logs, and of those that are written very fast, are allocated, which makes the copy into the
// page cache cheaper.
type zeroed struct {
	mu     sync.Mutex // the prepared range against the appends that reach it
	end    int64      // prepared up to here; appends beyond move it
	step   int64      // bytes of the next step
	sealed bool       // the segment takes no more

	// owned by the zeroer: where the appends were at the step before, and when
	seenPos  int64
	seenTime int64
}

// reserve is told of every append before it is written, so that zeros never land on frames: an
// append behind end waits while a chunk is being written there. It tells whether the next step
// is due.
func (z *zeroed) reserve(end int64) (due bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.end = max(z.end, end)
	return z.end-end < z.step/4 || z.step == 0
}

// cut forgets what lay behind pos; f truncates the file there, and no zeros go beside it. With
// seal none come after it either.
func (z *zeroed) cut(pos int64, seal bool, f func() error) error {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.end, z.sealed = pos, z.sealed || seal
	return f()
}

// zeroer prepares segments in the background, one at a time.
type zeroer struct {
	store *Store

	mu     sync.Mutex // queue
	work   *sync.Cond
	queue  []*Log
	closed bool

	worker sync.WaitGroup
}

func newZeroer(s *Store) *zeroer {
	z := &zeroer{store: s}
	z.work = sync.NewCond(&z.mu)
	z.worker.Go(z.run)
	return z
}

// want queues l, whose active segment should be prepared further; l.zeroQueued keeps it from
// standing there twice.
func (z *zeroer) want(l *Log) {
	if !l.zeroQueued.CompareAndSwap(false, true) {
		return
	}
	z.mu.Lock()
	z.queue = append(z.queue, l)
	z.work.Signal()
	z.mu.Unlock()
}

func (z *zeroer) run() {
	for {
		z.mu.Lock()
		for len(z.queue) == 0 && !z.closed {
			z.work.Wait()
		}
		if z.closed {
			z.mu.Unlock()
			return
		}
		l := z.queue[0]
		z.queue = z.queue[:copy(z.queue, z.queue[1:])]
		z.mu.Unlock()
		l.zeroQueued.Store(false)
		if err := l.prepare(); err != nil && !vfs.NoSpace(err) {
			z.store.noteError(err)
		}
	}
}

func (z *zeroer) close() {
	z.mu.Lock()
	z.closed = true
	z.work.Broadcast()
	z.mu.Unlock()
	z.worker.Wait()
}

var zeros [zeroChunk]byte

// prepare takes one step ahead of the appends of the active segment. A full disk is no error:
// the appends will meet it, or not.
func (l *Log) prepare() error {
	end := l.writtenMark()
	seg := end.seg
	if seg == nil || seg.sealed.Load() != nil {
		return nil
	}
	if !seg.acquireOpen() {
		return nil
	}
	defer seg.release()
	z := &seg.zero
	z.mu.Lock()
	from := z.end
	step := min(max(z.step, zeroFirst), zeroMost)
	to := min(from+min(step, l.store.spare()), l.segmentBytes.Load())
	z.step = max(zeroFirst, to-from) * 2
	fast := z.fast(end.pos, l.store.opts.Now())
	if (fast || !l.durable.Load()) && !z.sealed && to > from {
		err := seg.file.Allocate(from, to-from)
		if err == nil {
			z.end = to
		}
		z.mu.Unlock()
		return err
	}
	z.mu.Unlock()
	for {
		if more, err := z.chunk(seg.file, to); err != nil || !more {
			return errors.Join(err, seg.file.StartWriteback(from, max(0, to-from)))
		}
		l.store.count.zeroed.Add(zeroChunk)
	}
}

// fast tells whether appends come faster than zeroRate since the step before.
func (z *zeroed) fast(pos, now int64) bool {
	moved, took := pos-z.seenPos, now-z.seenTime
	first := z.seenTime == 0
	z.seenPos, z.seenTime = pos, now
	return !first && took >= 0 && float64(moved)*1e9 > float64(zeroRate)*float64(took)
}

// chunk writes the next zeros below to; more is false when there was nothing to do.
func (z *zeroed) chunk(f vfs.File, to int64) (more bool, err error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	n := min(zeroChunk, to-z.end)
	if z.sealed || n <= 0 {
		return false, nil
	}
	if _, err = f.WriteAt(zeros[:n], z.end); err != nil {
		return false, err
	}
	z.end += n
	return true, nil
}
