package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/millrace-mq/millrace/protocol"
	"github.com/millrace-mq/millrace/storage/vfs"
)

// indexBuilder makes the bytes of an index from the frames of its segment, in memory: a
// segment of 4 GiB has an index of 6 MiB. What it makes is the same, byte for byte, as what
// the appends made.
type indexBuilder struct {
	seg  *segment
	x    *index
	last int64 // pos of the last entry
}

// newIndexBuilder begins the index of s.
func newIndexBuilder(s *segment) (*indexBuilder, error) {
	x := &index{base: s.base, first: s.firstIndex, writable: true}
	b := make([]byte, indexStart)
	putIndexHeader(b, s.id, s.base, s.firstIndex)
	x.view.Store(&b)
	return &indexBuilder{seg: s, x: x}, nil
}

func putIndexHeader(b []byte, id, base, first uint64) {
	binary.BigEndian.PutUint32(b[0:], indexMagic)
	binary.BigEndian.PutUint32(b[4:], Version)
	binary.BigEndian.PutUint64(b[8:], id)
	binary.BigEndian.PutUint64(b[16:], base)
	binary.BigEndian.PutUint64(b[24:], first)
}

// frame is told of the next frame.
func (b *indexBuilder) frame(e entry, control bool) error {
	if b.x.count.Load() == 0 || e.pos-b.last >= blockBytes {
		if err := b.x.reserve(1); err != nil {
			return err
		}
		b.x.add(e)
		b.last = e.pos
	}
	if control {
		b.x.orFlags(blockControl)
	}
	return nil
}

// close writes the index file, in place of the one that is there.
func (b *indexBuilder) close() error {
	fsys, name := b.seg.log.fs, b.seg.idxName()
	if err := ignoreMissing(fsys.Remove(name)); err != nil {
		return err
	}
	f, err := fsys.Create(name)
	if err != nil {
		return err
	}
	_, err = f.WriteAt((*b.x.view.Load())[:indexSize(int(b.x.count.Load()))], 0)
	return errors.Join(err, f.Close())
}

// index returns what was built, mapped from its file, or from memory when the disk does not
// take it.
func (b *indexBuilder) index(size int64, writable bool) *index {
	if b.close() == nil {
		x, err := openIndex(b.seg.log.fs, b.seg.idxName(), b.seg.id, b.seg.base, b.seg.firstIndex, size, writable)
		if err == nil {
			return x
		}
	}
	return b.x
}

// rebuildIndex makes the index of s from the first size bytes of its log. Headers are followed,
// checks are not computed: the bytes below a published end were checked when they came in.
// Damage that is known is passed over.
func rebuildIndex(s *segment, f vfs.File, size int64) (*index, error) {
	b, err := buildIndex(s, f, size)
	if err != nil {
		return nil, err
	}
	return b.index(size, s.sealed.Load() == nil), nil
}

func buildIndex(s *segment, f vfs.File, size int64) (*indexBuilder, error) {
	b, err := newIndexBuilder(s)
	if err != nil {
		return nil, err
	}
	index, pos := s.firstIndex, int64(0)
	stretch := func(limit int64) error {
		h := hopper{file: f, pos: pos, limit: limit}
		defer h.done()
		for h.next() {
			if h.pos == pos && pos > 0 { // behind damage: the frame knows its index
				if index, err = indexAt(f, h.pos, h.end()); err != nil {
					return err
				}
			}
			e := entry{offset: h.head.Offset(), index: index, pos: h.pos, ts: h.head.Timestamp()}
			if err := b.frame(e, h.head.RecordCount() == 0); err != nil {
				return err
			}
			index++
		}
		return h.err
	}
	for _, d := range s.damaged() {
		if d.Pos >= size {
			break
		}
		if err := stretch(d.Pos); err != nil {
			return nil, err
		}
		pos = d.EndPos
	}
	if pos < size {
		err = stretch(size)
	}
	return b, err
}

// indexAt reads the index out of the tail of the frame at [pos, end).
func indexAt(f vfs.File, pos, end int64) (uint64, error) {
	var tail [8]byte
	if _, err := f.ReadAt(tail[:], end-protocol.TailSize); err != nil && !errors.Is(err, io.EOF) {
		return 0, fmt.Errorf("storage: tail of the frame at %d: %w", pos, err)
	}
	return binary.BigEndian.Uint64(tail[:]), nil
}

// checkIndexAgainst compares the last entry of x with the log, and that no entry is missing
// behind it.
func checkIndexAgainst(f vfs.File, x *index, size int64, damage []Damage) error {
	if size == 0 {
		return nil
	}
	e, err := x.at(int(x.count.Load()) - 1)
	if err != nil {
		return err
	}
	h := hopper{file: f, pos: e.pos, limit: size, damage: damage}
	defer h.done()
	if !h.next() || h.head.Offset() != e.offset || h.head.Timestamp() != e.ts {
		return errors.Join(fmt.Errorf("%w: last entry points to %d", errIndex, e.pos), h.err)
	}
	if index, err := indexAt(f, h.pos, h.end()); err != nil || index != e.index {
		return errors.Join(fmt.Errorf("%w: last entry has index %d, the frame %d", errIndex, e.index, index), err)
	}
	for h.next() {
		if h.pos-e.pos >= blockBytes {
			return fmt.Errorf("%w: no entry behind %d", errIndex, e.pos)
		}
	}
	return h.err
}

// floor is index.floor for readers, who do not hold the append lock: an index whose pages
// cannot be accessed any more is replaced and asked again.
func (s *segment) floor(c column, v uint64) (entry, int, error) {
	e, at, err := s.index.floor(c, v)
	if !errors.Is(err, errFault) {
		return e, at, err
	}
	if err := s.log.reindex(s, err); err != nil {
		return entry{}, 0, err
	}
	return s.index.floor(c, v)
}

// reindex replaces an index whose mapped pages cannot be accessed by one in memory.
func (l *Log) reindex(s *segment, why error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reindexLocked(s, why)
}

func (l *Log) reindexLocked(s *segment, why error) error {
	if err := guard(func() { s.index.touch() }); err == nil {
		return nil // somebody else did it
	}
	l.store.noteError(fmt.Errorf("storage: index of %s is rebuilt: %w", s.path(), why))
	l.store.count.indexRebuilds.Add(1)
	b, err := buildIndex(s, s.file, l.openSize(s, s.sealed.Load()))
	if err != nil {
		return err
	}
	s.index.replace(b.x)
	return nil
}

// openSize is how much of s holds frames.
func (l *Log) openSize(s *segment, end *sealedEnd) int64 {
	if end != nil {
		return end.size
	}
	if w := l.writtenMark(); w.seg == s {
		return w.pos
	}
	return 0
}
