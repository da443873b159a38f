package storage

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/millrace-mq/millrace/storage/vfs"
)

// mark is a place in a log: behind the frame with that index.
type mark struct {
	End
	seg  *segment // nil in an empty log
	pos  int64
	ts   uint64 // append time of the frame before it, ns
	life uint64 // Log.life when it was taken
}

// sealedEnd is where a sealed segment ends; it never changes.
type sealedEnd struct {
	End
	size            int64
	firstTS, lastTS uint64
}

// segment is one .wal file and its index.
//
// Its files open when somebody acquires it and stay open until nobody holds it and the store's
// cache of open files closes it, or it is removed from the log. So the number of descriptors
// does not grow with the number of segments, and no reader ever meets a closed file.
type segment struct {
	// immutable
	log        *Log
	id         uint64
	base       uint64 // first offset
	firstIndex uint64 // of the first frame

	sealed atomic.Pointer[sealedEnd] // set once, by the append lock; nil = active
	damage atomic.Pointer[[]Damage]  // ascending by Pos; replaced under the append lock

	// guarded by mu
	mu       sync.Mutex // opening, closing and counting users of the files
	refs     int
	verified bool // scanned in this life, or written in it
	gone     bool // removed from the log: nobody acquires it any more
	kept     bool // gone, but the files are another segment's now
	file     vfs.File
	index    *index

	ticket uint64 // guarded by the file cache's mu: its place among idle ones; 0 = none

	// owned by the append lock while the segment is active
	firstTS   uint64
	lastEntry int64 // pos of the last index entry

	zero zeroed
}

func (s *segment) walName() string { return stem(s.base, s.id) + walSuffix }
func (s *segment) idxName() string { return stem(s.base, s.id) + idxSuffix }
func (s *segment) path() string    { return path.Join(s.log.dir, s.walName()) }

func (s *segment) damaged() []Damage {
	if d := s.damage.Load(); d != nil {
		return *d
	}
	return nil
}

// acquire opens the files if need be and keeps them open until release.
//
// Errors: errGone when the segment was removed meanwhile; those of the disk.
func (s *segment) acquire() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return errGone
	}
	if s.file == nil {
		if err := s.open(); err != nil {
			return err
		}
	}
	s.refs++
	return nil
}

// acquireOpen is acquire for background work: it never opens anything.
func (s *segment) acquireOpen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone || s.file == nil {
		return false
	}
	s.refs++
	return true
}

// open opens log and index; mu is held. A sealed segment's index that is missing or odd is
// rebuilt from the log.
func (s *segment) open() error {
	end := s.sealed.Load()
	open := s.log.fs.OpenWrite
	if end != nil {
		open = s.log.fs.Open
	}
	f, err := open(s.walName())
	if err != nil {
		return err
	}
	size := s.log.openSize(s, end)
	if end != nil && !s.verified {
		if err := s.verify(f, end); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	x, err := openIndex(s.log.fs, s.idxName(), s.id, s.base, s.firstIndex, size, end == nil)
	if err == nil {
		err = checkIndexAgainst(f, x, size, s.damaged())
		if err != nil {
			err = errors.Join(err, x.close())
		}
	}
	if err != nil {
		x, err = rebuildIndex(s, f, size)
		if err == nil {
			s.log.store.count.indexRebuilds.Add(1)
		}
	}
	if err != nil {
		return errors.Join(fmt.Errorf("storage: index of %s: %w", s.path(), err), f.Close())
	}
	s.file, s.index = f, x
	return nil
}

// verify scans a segment that was sealed in an earlier life, before anything of it is served for
// the first time: sealed segments are not scanned at the start, and what is damaged in them
// must be an answer and not bytes that a reader cannot make sense of. It costs one pass, which
// brings the file into the cache. mu is held.
func (s *segment) verify(f vfs.File, end *sealedEnd) error {
	size, err := f.Size()
	if err != nil {
		return err
	}
	sc := newScan(f, min(size, end.size), s.base, s.firstIndex)
	if err := sc.run(); err != nil {
		return err
	}
	var found []Damage
	for _, h := range sc.holes {
		d := Damage{Segment: s.id, Pos: h.pos, EndPos: h.end, From: h.before.Offset, To: h.next, Kind: h.why.Error()}
		if h.tail {
			d.EndPos, d.To = end.size, end.Offset
		}
		found = append(found, d)
	}
	if n := len(found); sc.last.Index != end.Index && (n == 0 || found[n-1].EndPos != end.size) {
		pos := sc.last.pos
		found = append(found, Damage{Segment: s.id, Pos: pos, EndPos: end.size, From: sc.last.Offset, To: end.Offset,
			Kind: fmt.Sprintf("file has %d bytes of %d", size, end.size)})
	}
	if len(found) > len(s.damaged()) {
		s.log.store.noteError(&CorruptError{Path: s.path(), Pos: found[0].Pos, From: found[0].From, To: found[0].To, Err: errors.New(found[0].Kind)})
	}
	s.damage.Store(&found)
	s.verified = true
	return nil
}

// release gives back what acquire took.
func (s *segment) release() {
	s.mu.Lock()
	if s.refs--; s.refs < 0 {
		panic("storage: segment released more often than acquired")
	}
	idle := s.refs == 0 && s.file != nil
	remove := s.refs == 0 && s.gone && !s.kept
	s.mu.Unlock()
	switch {
	case remove:
		s.log.store.noteError(s.remove())
	case idle && s.log.shut.Load(): // the last reader of a closed log
		s.log.store.noteError(s.closeIfIdle())
	case idle:
		s.log.store.files.idle(s)
	}
}

// closeIfIdle closes the files when nobody holds them.
func (s *segment) closeIfIdle() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refs > 0 || s.file == nil {
		return nil
	}
	return s.closeFiles()
}

// closeFiles closes log and index; mu is held and nobody is inside.
func (s *segment) closeFiles() error {
	err := errors.Join(s.index.close(), s.file.Close())
	s.file, s.index = nil, nil
	return err
}

// drop marks a segment that is in no list any more; its files go now or with the last user.
func (s *segment) drop() error {
	s.mu.Lock()
	s.gone = true
	busy := s.refs > 0
	s.mu.Unlock()
	s.log.store.files.forget(s)
	if busy {
		return nil
	}
	return s.remove()
}

// retire takes s out of use and leaves its files to the segment that replaced it.
func (s *segment) retire() error {
	s.mu.Lock()
	s.gone, s.kept = true, true
	s.mu.Unlock()
	s.log.store.files.forget(s)
	return s.closeIfIdle()
}

// remove deletes the files of a segment that nobody holds and no manifest names.
func (s *segment) remove() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	if s.file != nil {
		err = s.closeFiles()
	}
	return errors.Join(err, s.log.fs.Remove(s.walName()), ignoreMissing(s.log.fs.Remove(s.idxName())))
}

// fileCache bounds how many idle sealed segments keep their files open: the one that has been
// idle longest is closed first.
//
//	queue: (a,1) (b,2) (a,7) (c,8)     a was used again: its first place, whose ticket is not a's any more, counts for nothing
type fileCache struct {
	limit int

	mu     sync.Mutex // the queue and the tickets of all segments
	queue  []idlePlace
	ticket uint64
	live   int // segments with a ticket
}

type idlePlace struct {
	seg    *segment
	ticket uint64
}

// idle notes that s has no user; it may close the files of an older one.
func (c *fileCache) idle(s *segment) {
	if s.sealed.Load() == nil {
		return
	}
	var victim *segment
	c.mu.Lock()
	if s.ticket == 0 {
		c.live++
	}
	c.ticket++
	s.ticket = c.ticket
	c.queue = append(c.queue, idlePlace{s, s.ticket})
	if c.live > c.limit {
		for victim == nil {
			if p := c.queue[0]; p.seg.ticket == p.ticket {
				victim = p.seg
				victim.ticket = 0
				c.live--
			}
			c.queue = c.queue[1:]
		}
	}
	if len(c.queue) > 64+4*c.live {
		c.queue = slices.DeleteFunc(c.queue, func(p idlePlace) bool { return p.seg.ticket != p.ticket })
	}
	c.mu.Unlock()
	if victim != nil {
		s.log.store.noteError(victim.closeIfIdle())
	}
}

// forget drops segments whose files are gone or closed.
func (c *fileCache) forget(list ...*segment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range list {
		if s.ticket != 0 {
			s.ticket = 0
			c.live--
		}
	}
	c.queue = slices.DeleteFunc(c.queue, func(p idlePlace) bool { return p.seg.ticket != p.ticket })
}
