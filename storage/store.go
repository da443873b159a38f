package storage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace-mq/millrace/storage/vfs"
)

// StoreOptions are the settings of a data directory. Zero values take the defaults named.
type StoreOptions struct {
	Now                 func() int64  // ns since 1970; required
	Elapsed             func() int64  // ns that passed, whatever the clock says; default: the clock is believed
	Holder              string        // written into LOCK for whoever finds it taken
	WriteBehind         int64         // bytes of a log that wait at most for a flush; default 8 MiB
	WriteBehindInterval time.Duration // time that bytes of a log wait at most for a flush; default 25 ms
	ParallelSyncs       int           // flushes at a time; default 8
	OpenFiles           int           // idle sealed segments whose files stay open; default 1024
	Reserve             int64         // bytes of the disk kept for control records; default 16 MiB
	OnError             func(error)   // told of failures that no caller waits for; default none

	// OnSpace is told when the disk becomes full, that is when less than Reserve is free and messages
	// are refused, and when it no longer is; default none.
	OnSpace func(full bool, free uint64)
}

func (o *StoreOptions) setDefaults() {
	if o.Now == nil {
		panic("storage: StoreOptions.Now is required")
	}
	setDefault(&o.WriteBehind, 8<<20)
	setDefault(&o.WriteBehindInterval, 25*time.Millisecond)
	setDefault(&o.ParallelSyncs, 8)
	setDefault(&o.OpenFiles, 1024)
	setDefault(&o.Reserve, 16<<20)
	if o.OnError == nil {
		o.OnError = func(error) {}
	}
}

func setDefault[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// Store is one data directory: its lock and identity, the syncer of its disk, and the files
// that its logs keep open.
//
// Ownership: safe for concurrent use. Logs are closed before the store.
type Store struct {
	// immutable
	fs     vfs.FS
	opts   StoreOptions
	opened int64 // Now − Elapsed when it was opened
	lock   io.Closer
	node   node
	clean  bool
	sync   *syncer
	zero   *zeroer
	files  fileCache
	ticker sync.WaitGroup
	stop   chan struct{}

	count  counters
	failed atomic.Bool   // a log stopped: the end of this life is not clean
	full   atomic.Bool   // the disk has less than Reserve bytes free
	free   atomic.Uint64 // bytes, when last looked at

	mu     sync.Mutex // the set of open logs
	logs   map[*Log]struct{}
	closed bool
}

// counters are the store's numbers, all atomic.
type counters struct {
	syncs, syncNanos, syncAlls     atomic.Uint64
	rolled, removed, indexRebuilds atomic.Uint64
	appends, appendedBytes, zeroed atomic.Uint64
	errors                         atomic.Uint64
}

// StoreStats is a snapshot of the store's counters.
type StoreStats struct {
	Syncs           uint64 // fdatasync calls of logs
	SyncNanos       uint64 // time in them
	SyncAlls        uint64 // syncfs calls that stood for many
	SegmentsRolled  uint64
	SegmentsRemoved uint64
	IndexRebuilds   uint64
	Appends         uint64 // calls of Append
	AppendedBytes   uint64
	ZeroedBytes     uint64 // written ahead of appends
	Errors          uint64 // failures that no caller waited for
	FreeBytes       uint64
	Full            bool // appends of messages are refused to keep the reserve
	ClockAhead      bool // the clock jumped ahead: nothing is removed for its age
}

// node is the content of NODE.
type node struct {
	ID    uint64 `json:"id"`
	Clean bool   `json:"clean"`
}

// OpenStore takes the lock of a data directory and reads its identity, making both when they
// are missing.
//
// Durability: the mark of an unclean stop is on disk before it returns.
// Errors: vfs.ErrLocked with the holder's name; *SealedError when NODE is damaged or newer.
func OpenStore(fsys vfs.FS, o StoreOptions) (*Store, error) {
	o.setDefaults()
	lock, err := fsys.Lock(lockName, o.Holder)
	if err != nil {
		return nil, err
	}
	s := &Store{fs: fsys, opts: o, lock: lock, logs: map[*Log]struct{}{}, stop: make(chan struct{})}
	s.files.limit = o.OpenFiles
	if o.Elapsed != nil {
		s.opened = o.Now() - o.Elapsed()
	}
	if err := s.readNode(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	s.checkSpace()
	s.sync = newSyncer(s)
	s.zero = newZeroer(s)
	s.ticker.Go(s.tick)
	return s, nil
}

func (s *Store) readNode() error {
	body, _, err := ReadSealed(s.fs, nodeName, "node", Version)
	var damaged *SealedError
	if errors.As(err, &damaged) && !errors.Is(err, ErrNewer) {
		prev, _, perr := readSealed(s.fs, nodeName+".prev", "node", Version)
		if perr != nil {
			return fmt.Errorf("%w (and %w); without it the node's id is lost: remove %s to start under a new one", err, perr, nodeName)
		}
		s.noteError(fmt.Errorf("%w; the one before it is used", err))
		body, err = prev, nil
		defer func() { s.clean = false }()
	}
	found := err == nil
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.node.ID = rand.Uint64()
		s.clean = true
	case err != nil:
		return err
	default:
		if err := json.Unmarshal(body, &s.node); err != nil {
			return &SealedError{nodeName, err}
		}
		s.clean = s.node.Clean
	}
	err = s.writeNode(false)
	if vfs.NoSpace(err) && found { // logs know by themselves whether they were closed
		s.noteError(fmt.Errorf("storage: opened on a full disk: %w", err))
		err = nil
	}
	return err
}

func (s *Store) writeNode(clean bool) error {
	s.node.Clean = clean
	body, err := json.Marshal(s.node)
	if err != nil {
		return err
	}
	return WriteSealed(s.fs, nodeName, "node", Version, append(body, '\n'))
}

// FS is the tree of the data directory.
func (s *Store) FS() vfs.FS { return s.fs }

// NodeID identifies the data directory for ever.
func (s *Store) NodeID() uint64 { return s.node.ID }

// WasClean tells whether the last run ended with Close.
func (s *Store) WasClean() bool { return s.clean }

// Stats returns the store's numbers.
func (s *Store) Stats() StoreStats {
	free, _, err := s.fs.Space()
	s.noteError(err)
	c := &s.count
	return StoreStats{Syncs: c.syncs.Load(), SyncNanos: c.syncNanos.Load(), SyncAlls: c.syncAlls.Load(),
		SegmentsRolled: c.rolled.Load(), SegmentsRemoved: c.removed.Load(), IndexRebuilds: c.indexRebuilds.Load(),
		Appends: c.appends.Load(), AppendedBytes: c.appendedBytes.Load(), ZeroedBytes: c.zeroed.Load(),
		Errors: c.errors.Load(), FreeBytes: free, Full: s.full.Load(), ClockAhead: s.clockAhead()}
}

// noteError counts and reports a failure that no caller waits for.
func (s *Store) noteError(err error) {
	if err == nil {
		return
	}
	s.count.errors.Add(1)
	s.opts.OnError(err)
}

// tick flushes what has waited long enough and watches the free space.
func (s *Store) tick() {
	t := time.NewTicker(s.opts.WriteBehindInterval)
	defer t.Stop()
	for n := 0; ; n++ {
		select {
		case <-s.stop:
			return
		case <-t.C:
		}
		s.sync.promote()
		if n%4 == 0 {
			s.checkSpace()
		}
	}
}

// checkSpace compares the free space with the reserve.
func (s *Store) checkSpace() {
	free, _, err := s.fs.Space()
	if err != nil {
		s.noteError(err)
		return
	}
	s.free.Store(free)
	full := free < uint64(s.opts.Reserve)
	if s.full.Swap(full) != full && s.opts.OnSpace != nil {
		s.opts.OnSpace(full, free)
	}
}

// spare is how many bytes may be taken ahead of appends: a part of what is free beyond twice the
// reserve, so that preparing never makes a disk full.
func (s *Store) spare() int64 {
	free := int64(min(s.free.Load(), math.MaxInt64))
	return max(0, free-2*s.opts.Reserve) / 8
}

// maxClockJump is how far the clock may run ahead of the time that passed before retention by
// age stops believing it: a wrong clock must not remove what a right one would keep.
const maxClockJump = time.Hour

// clockAhead tells whether the clock jumped ahead since the store was opened. It counts again
// when it was set back, and from then on when the store is opened with it.
func (s *Store) clockAhead() bool {
	return s.opts.Elapsed != nil && s.opts.Now()-s.opts.Elapsed()-s.opened > int64(maxClockJump)
}

// Close writes the clean marker and gives up the lock.
//
// Errors: that logs are still open. Then, and when one of them failed, the marker is not written.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	s.closed = true
	open := len(s.logs)
	s.mu.Unlock()
	close(s.stop)
	s.ticker.Wait()
	s.zero.close()
	s.sync.close()
	if open > 0 {
		return errors.Join(fmt.Errorf("storage: %d logs still open", open), s.lock.Close())
	}
	if s.failed.Load() {
		return s.lock.Close()
	}
	return errors.Join(s.writeNode(true), s.lock.Close())
}

func (s *Store) enter(l *Log) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	s.logs[l] = struct{}{}
	return nil
}

func (s *Store) leave(l *Log) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.logs, l)
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
