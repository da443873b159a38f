package storage

import (
	"errors"
	"fmt"
	"time"
)

// Retain removes whole sealed segments from the front of the log: those whose newest frame is
// older than age, and those by which the log exceeds bytes. An active segment that is older
// than age, or than LogOptions.SegmentAge, is sealed first, so quiet logs expire too. Zero turns a rule off.
//
// Age is the broker's append time in the frames, never that of files. A segment without one is
// kept. While the clock is ahead of the time that passed, age removes nothing. The manifest forgets a segment before its files go; they go when the last reader leaves.
// Errors: those of the disk; what was removed stays removed.
func (l *Log) Retain(age time.Duration, bytes int64) (removed int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return 0, ErrClosed
	}
	if state, _ := l.State(); state != 0 {
		return 0, nil
	}
	now := uint64(max(0, l.store.opts.Now()))
	if l.store.clockAhead() {
		age = 0
	}
	if err := l.rollAged(now, age); err != nil {
		return 0, err
	}
	list := *l.segments.Load()
	total := int64(0)
	for _, s := range list {
		total += l.openSize(s, s.sealed.Load())
	}
	n := 0
	for _, s := range list {
		end := s.sealed.Load()
		if end == nil {
			break
		}
		old := age > 0 && end.lastTS > 0 && now > end.lastTS && time.Duration(now-end.lastTS) > age
		if !old && (bytes <= 0 || total <= bytes) {
			break
		}
		total -= end.size
		n++
	}
	return l.dropFront(n)
}

// rollAged seals the active segment when it is old enough.
func (l *Log) rollAged(now uint64, age time.Duration) error {
	end := l.writtenMark()
	if end.seg == nil || end.pos == 0 || end.seg.sealed.Load() != nil {
		return nil
	}
	if limit := l.opts.Load().SegmentAge; limit > 0 && (age <= 0 || limit < age) {
		age = limit
	}
	first := end.seg.firstTS
	if age <= 0 || first == 0 || now <= first || time.Duration(now-first) <= age {
		return nil
	}
	if err := l.open(); err != nil {
		return l.refused(err)
	}
	return l.refused(l.roll())
}

// dropFront removes the first n segments, all sealed; the last of a log stays.
func (l *Log) dropFront(n int) (removed int, err error) {
	old := *l.segments.Load()
	n = min(n, len(old)-1)
	if n <= 0 {
		return 0, nil
	}
	kept := old[n:len(old):len(old)]
	l.segments.Store(&kept)
	if err := l.writeManifest(); err != nil {
		l.segments.Store(&old)
		return 0, err
	}
	l.start.Store(kept[0].base)
	for _, s := range old[:n] {
		err = errors.Join(err, s.drop())
	}
	l.store.count.removed.Add(uint64(n))
	if err != nil {
		err = fmt.Errorf("storage: remove segments of %s: %w", l.dir, err)
	}
	return n, err
}
