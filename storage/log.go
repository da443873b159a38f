package storage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace-mq/millrace/protocol"
	"github.com/millrace-mq/millrace/storage/vfs"
)

// LogOptions are the settings of a log.
type LogOptions struct {
	SegmentBytes int64         // a segment is sealed before it exceeds this; 0 = 1 GiB; at most MaxSegmentBytes
	SegmentAge   time.Duration // a segment is sealed when its first frame is so old; 0 = never
	Durable      bool          // readers see up to the durable end, and segments are pre-zeroed
	OnDurable    func(End)     // told of each advance of the durable end, by the syncer, no lock held; must not block
	OnFail       func(error)   // told once that the log stopped
}

// End is how far a log reaches.
type End struct {
	Offset uint64 // the next offset to be given
	Index  uint64 // the last index given; 0 = none
}

// Log is one partition's log.
//
// Ownership: safe for concurrent use; appends exclude each other.
type Log struct {
	// immutable
	store *Store
	dir   string // below the store's directory
	fs    vfs.FS // of the directory

	// atomic
	opts         atomic.Pointer[LogOptions]
	segmentBytes atomic.Int64
	durable      atomic.Bool                // LogOptions.Durable
	segments     atomic.Pointer[[]*segment] // ascending; replaced under mu
	zeroQueued   atomic.Bool
	shut         atomic.Bool // closed: files close with their last reader
	term         atomic.Uint32
	epoch        atomic.Uint32
	start        atomic.Uint64 // first offset kept

	endMu    sync.Mutex // the ends, for a few loads and stores
	written  mark
	synced   mark // durable end
	failed   error
	unsynced int64  // bytes appended since the last flush began
	life     uint64 // counts truncations: a flush that began before one proves nothing after it
	readOnly string // why appends are refused; empty = they are not

	mu          sync.Mutex // the append lock: owner of the tail, the manifest and the segment list; held across disk I/O
	active      *segment   // acquired; nil until the first append
	manifest    manifest
	unwritten   bool // recovery could not write the manifest
	closed      bool
	bufs        [][]byte
	pending     []entry // index entries of the append under way
	oldFlags    uint32  // flags for the block before them
	brokenIndex error   // of the append under way

	// One flush at a time: the kernel tells a failed write-back to one caller, and another one
	// that ran beside it would believe its own nil. Taken inside mu or alone; held across disk I/O.
	flushMu sync.Mutex

	sync syncState // guarded by the syncer's mu
}

// Entry is one run of an Append.
type Entry struct {
	Run  protocol.Run // whole, verified frames; stamped in place
	Base uint64       // out: the offset of its first record
}

// SetOptions replaces the settings, callbacks included.
func (l *Log) SetOptions(o LogOptions) {
	if o.SegmentBytes <= 0 {
		o.SegmentBytes = 1 << 30
	}
	l.segmentBytes.Store(min(o.SegmentBytes, MaxSegmentBytes))
	l.durable.Store(o.Durable)
	l.opts.Store(&o)
}

// SetTerm sets the term that appends are stamped with; 1 on a node that is alone. It never goes
// back.
func (l *Log) SetTerm(term uint32) {
	for {
		old := l.term.Load()
		if term <= old || l.term.CompareAndSwap(old, term) {
			return
		}
	}
}

// Dir is the log's directory below the store's.
func (l *Log) Dir() string { return l.dir }

// Epoch rises whenever the log may have lost a suffix that was never durable.
func (l *Log) Epoch() uint32 { return l.epoch.Load() }

// Start is the first offset that is kept.
func (l *Log) Start() uint64 { return l.start.Load() }

// Written is the end of what was appended.
func (l *Log) Written() End { return l.writtenMark().End }

// Durable is the end of what survives a power cut.
func (l *Log) Durable() End {
	l.endMu.Lock()
	defer l.endMu.Unlock()
	return l.synced.End
}

// Visible is the end that readers see: Durable or Written, by LogOptions.Durable.
func (l *Log) Visible() End { return l.visibleMark().End }

// Newest is the append time of the newest frame, ns since 1970; 0 = none.
func (l *Log) Newest() int64 { return int64(l.writtenMark().ts) }

func (l *Log) writtenMark() mark {
	l.endMu.Lock()
	defer l.endMu.Unlock()
	return l.written
}

func (l *Log) visibleMark() mark {
	l.endMu.Lock()
	defer l.endMu.Unlock()
	if l.durable.Load() {
		return l.synced
	}
	return l.written
}

// Size returns the bytes of frames kept and the number of segments.
func (l *Log) Size() (bytes int64, segments int) {
	end := l.writtenMark()
	list := *l.segments.Load()
	for _, s := range list {
		if e := s.sealed.Load(); e != nil {
			bytes += e.size
		} else if s == end.seg {
			bytes += end.pos
		}
	}
	return bytes, len(list)
}

// Damaged is the number of damaged places that are known.
func (l *Log) Damaged() (n int) {
	for _, s := range *l.segments.Load() {
		n += len(s.damaged())
	}
	return n
}

// State tells whether the log takes appends, and why not.
func (l *Log) State() (protocol.PartitionState, error) {
	l.endMu.Lock()
	defer l.endMu.Unlock()
	switch {
	case l.failed != nil:
		return protocol.PartitionFailed, l.failed
	case l.readOnly != "":
		return protocol.PartitionReadOnly, fmt.Errorf("%w: %s: %s", ErrReadOnly, l.dir, l.readOnly)
	}
	return protocol.PartitionOK, nil
}

// fail stops the log for good: nothing is acknowledged any more.
func (l *Log) fail(err error) error {
	err = fmt.Errorf("%w: %s: %w", ErrFailed, l.dir, err)
	l.endMu.Lock()
	first := l.failed == nil
	if first {
		l.failed = err
	}
	err = l.failed
	l.endMu.Unlock()
	if first {
		l.store.failed.Store(true)
		l.store.noteError(err)
		if f := l.opts.Load().OnFail; f != nil {
			f(err)
		}
	}
	return err
}

// flush makes what was written so far durable. It runs on a worker of the syncer, once at a
// time per log.
func (l *Log) flush() {
	if err := l.flushOnce(); err == nil {
		l.reportDurable()
	}
}

// beginFlush takes the end that a flush will make durable.
func (l *Log) beginFlush() mark {
	l.endMu.Lock()
	defer l.endMu.Unlock()
	l.unsynced = 0
	return l.written
}

// flushOnce makes what was written when it began durable.
func (l *Log) flushOnce() error {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	m := l.beginFlush()
	if state, err := l.State(); state == protocol.PartitionFailed {
		return err
	}
	if m.Index == l.Durable().Index {
		return nil
	}
	if err := m.seg.acquire(); err != nil {
		if errors.Is(err, errGone) { // retention or truncation took it, with all it had
			return nil
		}
		return l.flushed(m, err)
	}
	start := l.store.opts.Now()
	err := m.seg.file.Sync()
	l.store.count.syncs.Add(1)
	l.store.count.syncNanos.Add(uint64(max(0, l.store.opts.Now()-start)))
	m.seg.release()
	return l.flushed(m, err)
}

// flushed publishes a durable end, or the failure to get there; flushMu is held. Every segment
// before m's is durable already: roll saw to it.
func (l *Log) flushed(m mark, err error) error {
	if err != nil {
		return l.fail(fmt.Errorf("sync: %w", err))
	}
	l.endMu.Lock()
	defer l.endMu.Unlock()
	if l.failed == nil && m.life == l.life && m.Index > l.synced.Index {
		l.synced = m
	}
	return l.failed
}

// reportDurable tells the owner the durable end. Roll may have moved it without telling.
func (l *Log) reportDurable() {
	if f := l.opts.Load().OnDurable; f != nil {
		f(l.Durable())
	}
}

// Sync returns nil when everything appended before the call is durable.
//
// Errors: ErrFailed, ErrClosed, the context's.
func (l *Log) Sync(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return l.syncLocked()
}

// syncLocked flushes on the caller's goroutine; mu is held, so the tail stands still.
func (l *Log) syncLocked() error {
	before := l.Durable()
	if err := l.flushOnce(); err != nil {
		return err
	}
	if l.Durable() != before {
		l.store.sync.want(l, true) // a worker tells the owner
	}
	return nil
}

// Close makes everything durable, writes down that the log was closed in order and closes its
// files. A log that failed is closed without that mark.
//
// Errors: the first failure; the log is closed all the same.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	err := l.syncLocked()
	if state, _ := l.State(); err == nil && state == protocol.PartitionOK && l.active == nil && l.unclean() {
		err = l.open() // recovered and not appended to: the next start need not scan it again
	}
	l.closed = true
	if err == nil && l.active != nil {
		err = l.sealCleanly()
	}
	if l.active != nil {
		l.active.release()
		l.active = nil
	}
	l.shut.Store(true)
	l.store.leave(l)
	l.store.files.forget(*l.segments.Load()...)
	for _, s := range *l.segments.Load() {
		err = errors.Join(err, s.closeIfIdle())
	}
	return err
}

// unclean tells whether the manifest does not say where the log ends.
func (l *Log) unclean() bool {
	end := l.writtenMark()
	return l.manifest.Closed == nil && end.seg != nil && end.seg.sealed.Load() == nil
}

// sealCleanly cuts the prepared space behind the last frame and writes the clean end into the
// manifest, so that the next start need not scan.
func (l *Log) sealCleanly() error {
	end := l.writtenMark()
	err := l.active.zero.cut(end.pos, true, func() error {
		if err := l.active.file.Truncate(end.pos); err != nil {
			return err
		}
		return l.active.file.Sync()
	})
	if err != nil {
		return err
	}
	l.manifest.Closed = &closedEnd{Size: end.pos, Offset: end.Offset, Index: end.Index, LastTS: end.ts, FirstTS: l.active.firstTS}
	return l.writeManifest()
}
