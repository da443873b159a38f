package storage

import (
	"errors"
	"fmt"
	"math"
)

// TruncateFrom removes the frames from index on, so that others can take their place. It is
// for a suffix that was never settled: readers that could see it may have been sent pages that
// change.
//
// Durability: the removal is durable when it returns nil, before anything is written over it. A crash
// cannot bring back a stale suffix behind new frames.
// Errors: a RangeError-free no-op when the log ends before index; ErrFailed when the removal
// could not be completed.
func (l *Log) TruncateFrom(index uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	if _, err := l.State(); err != nil {
		return err
	}
	list := *l.segments.Load()
	if index > l.writtenMark().Index || len(list) == 0 {
		return nil
	}
	if index < list[0].firstIndex {
		return fmt.Errorf("storage: %s: truncate from index %d, the log begins at %d", l.dir, index, list[0].firstIndex)
	}
	if err := l.open(); err != nil {
		return l.refused(err)
	}
	list = *l.segments.Load()
	n := len(list) - 1
	for list[n].firstIndex > index {
		n--
	}
	at, err := l.placeOf(list[n], index)
	if err != nil {
		return err
	}
	return l.cutTo(list, n, at)
}

// placeOf returns the mark in front of the frame with that index.
func (l *Log) placeOf(s *segment, index uint64) (m mark, err error) {
	if err := s.acquire(); err != nil {
		return m, err
	}
	defer s.release()
	m = mark{End: End{s.base, s.firstIndex - 1}, seg: s}
	e, at, err := s.index.floor(byIndex, index-1)
	if err != nil {
		return m, err
	}
	if at >= 0 {
		m.Offset, m.Index, m.pos = e.offset, e.index-1, e.pos
	}
	h := hopper{file: s.file, pos: m.pos, limit: l.openSize(s, s.sealed.Load()), damage: s.damaged()}
	defer h.done()
	for m.Index+1 < index && h.next() {
		m.Index++
		m.Offset = h.head.Offset() + uint64(h.head.RecordCount())
		m.pos, m.ts = h.end(), h.head.Timestamp()
	}
	if h.err == nil && m.Index+1 != index {
		h.err = fmt.Errorf("storage: %s: no frame with index %d", s.path(), index)
	}
	return m, h.err
}

// cutTo makes list[n] the active segment and cuts it at m; later segments go first, whole.
func (l *Log) cutTo(list []*segment, n int, m mark) error {
	s := list[n]
	if m.ts == 0 && m.Index > 0 { // the frame before lies in an earlier segment
		if n > 0 {
			m.ts = list[n-1].sealed.Load().lastTS
		}
	}
	l.active.release()
	l.active = nil
	kept := list[: n+1 : n+1]
	again := &segment{log: l, id: s.id, base: s.base, firstIndex: s.firstIndex, firstTS: s.firstTS}
	if e := s.sealed.Load(); e != nil {
		again.firstTS = e.firstTS
		kept = append(list[:n:n], again)
	} else {
		again = s
	}
	l.segments.Store(&kept)
	if err := l.writeManifest(); err != nil {
		return l.fail(err)
	}
	for _, gone := range list[n+1:] {
		if err := gone.drop(); err != nil {
			return l.fail(err)
		}
	}
	if again != s { // sealed files are open for reading only
		if err := s.retire(); err != nil {
			return l.fail(err)
		}
	}
	m.seg = again
	l.endMu.Lock()
	l.life++
	m.life = l.life
	l.written = m
	if l.synced.Index > m.Index {
		l.synced = m
	}
	l.endMu.Unlock()
	if err := l.open(); err != nil {
		return l.fail(err)
	}
	err := again.zero.cut(m.pos, false, func() error {
		if err := again.file.Truncate(m.pos); err != nil {
			return err
		}
		return again.file.Sync()
	})
	if err == nil {
		err = l.cutActiveIndex(m.pos)
	}
	if err != nil {
		return l.fail(fmt.Errorf("truncate %s at %d: %w", again.path(), m.pos, err))
	}
	l.endMu.Lock()
	l.synced = l.written
	l.endMu.Unlock()
	return nil
}

// cutActiveIndex drops the index entries from pos on.
func (l *Log) cutActiveIndex(pos int64) error {
	x := l.active.index
	at := -1
	var err error
	if pos > 0 {
		_, at, err = x.floor(byPos, uint64(pos-1))
	}
	if err = errors.Join(err, x.cut(at+1)); err != nil {
		return err
	}
	last, _, err := x.floor(byPos, math.MaxUint32)
	l.active.lastEntry = last.pos
	return err
}
