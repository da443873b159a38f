package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"time"

	"github.com/millrace-mq/millrace/protocol"
	"github.com/millrace-mq/millrace/storage/vfs"
)

// Append gives every frame of the runs its place: it stamps them in place, writes all of them
// with one call, and publishes the new end. Either all is appended or nothing.
//
// Ownership: the runs' bytes are changed during the call and not kept.
// Durability: none on return. With sync the syncer flushes now, else within the write-behind
// bounds; OnDurable tells.
// Errors: ErrNoSpace and ErrRefused (nothing happened, try later), ErrReadOnly, ErrFailed,
// ErrClosed.
func (l *Log) Append(entries []Entry, sync bool) (End, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.store.full.Load() {
		return End{}, l.noSpace()
	}
	return l.append(entries, sync)
}

// AppendControl appends one control record, built with protocol.AppendControl, and returns its
// index. It may use the space that is reserved for control records.
func (l *Log) AppendControl(frame []byte, sync bool) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	run := [1]Entry{{Run: protocol.Run{Bytes: frame, Frames: 1}}}
	end, err := l.append(run[:], sync)
	return end.Index, err
}

// noSpace is the refusal that keeps the reserve.
func (l *Log) noSpace() error {
	free, _, err := l.store.fs.Space()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return fmt.Errorf("%w: %d bytes free, %d are kept for control records", ErrNoSpace, free, l.store.opts.Reserve)
}

func (l *Log) append(entries []Entry, sync bool) (End, error) {
	var size, records int64
	l.bufs = l.bufs[:0]
	for i := range entries {
		r := &entries[i].Run
		size += int64(len(r.Bytes))
		records += int64(r.Records)
		l.bufs = append(l.bufs, r.Bytes)
	}
	now := uint64(max(0, l.store.opts.Now()))
	end, err := l.tail(size, records, now)
	if err != nil {
		return End{}, err
	}
	next := l.stamp(entries, end, max(now, end.ts))
	if err := l.write(end, size); err != nil {
		return End{}, err
	}
	l.addEntries()
	if end.pos == 0 {
		l.active.firstTS = next.ts
	}
	l.endMu.Lock()
	l.written = next
	l.unsynced += size
	behind := l.unsynced >= l.store.opts.WriteBehind
	l.endMu.Unlock()
	if l.brokenIndex != nil {
		l.store.noteError(l.reindexLocked(l.active, l.brokenIndex))
		l.brokenIndex = nil
	}
	l.store.count.appends.Add(1)
	l.store.count.appendedBytes.Add(uint64(size))
	l.store.sync.want(l, sync || behind)
	return next.End, nil
}

// tail makes the active segment ready for size more bytes and returns the place for them.
func (l *Log) tail(size, records int64, now uint64) (mark, error) {
	if l.closed {
		return mark{}, ErrClosed
	}
	if _, err := l.State(); err != nil {
		return mark{}, err
	}
	if err := l.open(); err != nil {
		return mark{}, l.refused(err)
	}
	end := l.writtenMark()
	age := l.opts.Load().SegmentAge
	switch {
	case end.seg != l.active: // the first append behind a sealed segment
		return mark{}, l.fail(errors.New("tail is not in the active segment"))
	case end.pos == 0:
		return end, nil
	case end.pos+size > l.segmentBytes.Load(),
		end.Offset-l.active.base+uint64(records) > math.MaxUint32,
		age > 0 && now > l.active.firstTS && time.Duration(now-l.active.firstTS) >= age:
		if err := l.roll(); err != nil {
			return mark{}, l.refused(err)
		}
		return l.writtenMark(), nil
	}
	return end, nil
}

// refused names the failure of a step that changed nothing of the log.
func (l *Log) refused(err error) error {
	if vfs.NoSpace(err) {
		return fmt.Errorf("%w: %s: %w", ErrNoSpace, l.dir, err)
	}
	if err == nil || errors.Is(err, ErrFailed) {
		return err
	}
	return fmt.Errorf("%w: %s: %w", ErrRefused, l.dir, err)
}

// open readies the log for its first append in this life: the manifest loses its clean end,
// the first segment is created, the active segment's files are opened.
func (l *Log) open() error {
	if l.active != nil {
		return nil
	}
	if l.manifest.Closed != nil || l.unwritten {
		keep := l.manifest.Closed
		l.manifest.Closed = nil
		if err := l.writeManifest(); err != nil {
			l.manifest.Closed = keep
			return err
		}
		l.unwritten = false
	}
	end := l.writtenMark()
	if end.seg == nil || end.seg.sealed.Load() != nil {
		return l.create()
	}
	if err := end.seg.acquire(); err != nil {
		return err
	}
	if last, at, err := end.seg.index.floor(byPos, math.MaxUint32); err == nil && at >= 0 {
		end.seg.lastEntry = last.pos
	}
	l.active = end.seg
	return nil
}

// create makes a new active segment behind the written end. Files first, then the manifest,
// whose directory sync makes both durable; a file that no manifest names is put aside at start.
func (l *Log) create() error {
	end := l.writtenMark()
	s := &segment{log: l, id: l.manifest.NextSegment, base: end.Offset, firstIndex: end.Index + 1, verified: true}
	f, err := l.createWal(s.walName())
	if err != nil {
		return err
	}
	x, err := createIndex(l.fs, s.idxName(), s.id, s.base, s.firstIndex)
	if err != nil {
		return errors.Join(err, f.Close(), l.fs.Remove(s.walName()))
	}
	s.file, s.index, s.refs = f, x, 1
	old := *l.segments.Load()
	list := append(old[:len(old):len(old)], s)
	l.segments.Store(&list)
	l.manifest.NextSegment++
	if err := l.writeManifest(); err != nil { // it may be on disk all the same: the files stay
		l.manifest.NextSegment-- // and the next attempt takes them
		l.segments.Store(&old)
		s.release()
		return errors.Join(err, s.retire())
	}
	l.active = s
	l.endMu.Lock()
	l.written.seg, l.written.pos = s, 0
	if l.synced.Index == l.written.Index {
		l.synced.seg, l.synced.pos = s, 0
	}
	l.endMu.Unlock()
	return nil
}

// createWal makes the log file of a new segment, or takes the one that a failed attempt left; no
// frame was ever written to that.
func (l *Log) createWal(name string) (vfs.File, error) {
	f, err := l.fs.Create(name)
	if !errors.Is(err, fs.ErrExist) {
		return f, err
	}
	if f, err = l.fs.OpenWrite(name); err != nil {
		return nil, err
	}
	if err := f.Truncate(0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// roll seals the active segment and begins the next one. The old one is durable before the new
// one takes a frame.
func (l *Log) roll() error {
	if err := l.syncLocked(); err != nil {
		return err
	}
	s, end := l.active, l.writtenMark()
	err := s.zero.cut(end.pos, true, func() error { return s.file.Truncate(end.pos) })
	if err == nil {
		err = s.index.sync()
	}
	if err != nil {
		return l.fail(fmt.Errorf("seal %s: %w", s.path(), err))
	}
	s.sealed.Store(&sealedEnd{End: end.End, size: end.pos, firstTS: s.firstTS, lastTS: end.ts})
	if err := l.create(); err != nil {
		l.active = nil // the next append creates it
		s.release()
		return err
	}
	s.release()
	l.store.count.rolled.Add(1)
	return nil
}

// stamp gives every frame its place from end on and collects the index entries that are due.
func (l *Log) stamp(entries []Entry, end mark, ts uint64) mark {
	settled := l.Durable().Index
	st := protocol.Stamp{Timestamp: ts, Offset: end.Offset, Index: end.Index, Term: l.term.Load()}
	pos, lastEntry := end.pos, l.active.lastEntry
	l.pending, l.oldFlags = l.pending[:0], 0
	for i := range entries {
		b := entries[i].Run.Bytes
		entries[i].Base = st.Offset
		for len(b) > 0 {
			h := protocol.HeaderOf(b)
			f := protocol.Frame(b[:h.FrameSize()])
			b = b[len(f):]
			st.Index++
			st.SettledLag = uint32(min(st.Index-settled, protocol.LagUnknown))
			st.Flags = 0
			if pos == 0 {
				st.Flags = protocol.StampSegmentStart
			}
			st.Apply(f)
			if pos == 0 || pos-lastEntry >= blockBytes {
				l.pending = append(l.pending, entry{offset: st.Offset, index: st.Index, pos: pos, ts: ts})
				lastEntry = pos
			}
			if h.RecordCount() == 0 {
				l.flagBlock(blockControl)
			}
			st.Offset += uint64(h.RecordCount())
			pos += int64(len(f))
		}
	}
	end.End, end.seg, end.pos, end.ts = End{st.Offset, st.Index}, l.active, pos, ts
	return end
}

// flagBlock sets flags of the block that the frame being stamped lies in: one that this append
// begins, or the last one before it.
func (l *Log) flagBlock(flags uint32) {
	if n := len(l.pending); n > 0 {
		l.pending[n-1].flags |= flags
	} else {
		l.oldFlags |= flags
	}
}

// write puts the bytes of the append behind end. A failed or short write leaves no trace: the
// file is cut back, durably, so that frames which were refused cannot appear after a crash.
func (l *Log) write(end mark, size int64) error {
	defer clear(l.bufs)
	s := l.active
	if err := s.index.reserve(len(l.pending)); err != nil {
		return l.refused(err)
	}
	due := s.zero.reserve(end.pos + size)
	_, err := s.file.WritevAt(l.bufs, end.pos)
	if err == nil {
		if due {
			l.store.zero.want(l)
		}
		return nil
	}
	cut := s.zero.cut(end.pos, false, func() error {
		if err := s.file.Truncate(end.pos); err != nil {
			return err
		}
		return s.file.Sync()
	})
	if cut != nil {
		return l.fail(fmt.Errorf("write: %w; cut back: %w", err, cut))
	}
	return l.refused(fmt.Errorf("write %s at %d: %w", s.walName(), end.pos, err))
}

// addEntries puts the collected entries into the index. An index that cannot be written any
// more is replaced by one in memory: it is derived, and no reason to refuse an append.
func (l *Log) addEntries() {
	s := l.active
	err := guard(func() {
		if l.oldFlags != 0 && s.index.count.Load() > 0 {
			s.index.orFlags(l.oldFlags)
		}
		for _, e := range l.pending {
			s.index.add(e)
		}
	})
	if n := len(l.pending); n > 0 {
		s.lastEntry = l.pending[n-1].pos
	}
	if err != nil {
		l.brokenIndex = err // written is published first, so that the new one covers this append
	}
}
