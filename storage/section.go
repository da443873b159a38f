package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sort"
	"sync"

	"github.com/millrace-mq/millrace/protocol"
	"github.com/millrace-mq/millrace/storage/vfs"
)

// Cursor is a reader's place in a log. The zero value is not one; Seek makes it.
type Cursor struct {
	Offset uint64 // base offset of the frame at which the next section begins
	seg    *segment
	pos    int64
}

// Section is a stretch of whole frames in one file.
//
// Ownership: the bytes do not change and the file stays open until Release, which is called
// exactly once on every section with Size > 0.
type Section struct {
	Size int64
	pos  int64
	seg  *segment
}

// File is the file that holds the section.
func (s *Section) File() vfs.File { return s.seg.file }

// Pos is the section's first byte in the file.
func (s *Section) Pos() int64 { return s.pos }

// Release gives the segment back. The section is not used afterwards.
func (s *Section) Release() {
	if s.seg != nil {
		s.seg.release()
		s.seg = nil
	}
}

// Seek places a cursor on the frame that holds offset, or behind the last visible frame when
// offset is the visible end.
//
// Errors: *RangeError; those of the disk.
func (l *Log) Seek(offset uint64) (Cursor, error) {
	for {
		end := l.visibleMark()
		if offset < l.Start() || offset > end.Offset {
			return Cursor{}, l.outOfRange(offset)
		}
		if offset == end.Offset {
			return Cursor{Offset: offset, seg: end.seg, pos: end.pos}, nil
		}
		seg := l.segmentOf(offset)
		if seg == nil {
			return Cursor{}, fmt.Errorf("storage: %s: no segment holds offset %d", l.dir, offset)
		}
		c, err := l.seekIn(seg, offset, end)
		if !errors.Is(err, errGone) {
			return c, err
		}
	}
}

func (l *Log) outOfRange(offset uint64) error {
	end, epoch := l.Visible().Offset, l.Epoch()
	return &RangeError{Offset: offset, Start: l.Start(), End: end, Epoch: epoch, Lost: offset > end && epoch > 0}
}

// segmentOf returns the last segment whose base is at most offset.
func (l *Log) segmentOf(offset uint64) *segment {
	list := *l.segments.Load()
	i := sort.Search(len(list), func(i int) bool { return list[i].base > offset })
	if i == 0 {
		if len(list) == 0 {
			return nil
		}
		return list[0] // a hole at the front: the next offset that exists
	}
	return list[i-1]
}

// seekIn finds the frame with offset in seg by its index and at most a block of headers.
func (l *Log) seekIn(seg *segment, offset uint64, end mark) (Cursor, error) {
	if c, ok := seg.damagedAt(offset); ok { // the file may be missing altogether
		return c, nil
	}
	if err := seg.acquire(); err != nil {
		return Cursor{}, err
	}
	defer seg.release()
	e, at, err := seg.floor(byOffset, offset)
	if err != nil {
		return Cursor{}, err
	}
	if at < 0 {
		e = entry{offset: seg.base, index: seg.firstIndex}
	}
	if c, ok := seg.damagedAt(offset); ok { // found when the segment was opened
		return c, nil
	}
	h := hopper{file: seg.file, pos: e.pos, limit: seg.limit(end), damage: seg.damaged()}
	defer h.done()
	base := e.offset
	for h.next() {
		base = h.head.Offset()
		if base+uint64(h.head.RecordCount()) > offset {
			return Cursor{Offset: base, seg: seg, pos: h.pos}, nil
		}
		base += uint64(h.head.RecordCount())
	}
	return Cursor{Offset: base, seg: seg, pos: h.pos}, h.err
}

// damagedAt returns a cursor at the damage that covers offset.
func (s *segment) damagedAt(offset uint64) (Cursor, bool) {
	for _, d := range s.damaged() {
		if offset >= d.From && offset < d.To {
			return Cursor{Offset: d.From, seg: s, pos: d.Pos}, true
		}
	}
	return Cursor{}, false
}

// damageAt returns the damage that covers pos.
func (s *segment) damageAt(pos int64) error {
	for _, d := range s.damaged() {
		if pos >= d.Pos && pos < d.EndPos {
			return &CorruptError{Path: s.path(), Pos: d.Pos, From: d.From, To: d.To, Err: errors.New(d.Kind)}
		}
	}
	return nil
}

// SeekTime returns the offset of the first frame that was appended at ns or later, the visible
// end when there is none.
func (l *Log) SeekTime(ns int64) (uint64, error) {
	ts := uint64(max(0, ns))
	for {
		off, err := l.seekTime(ts)
		if !errors.Is(err, errGone) {
			return off, err
		}
	}
}

func (l *Log) seekTime(ts uint64) (uint64, error) {
	end := l.visibleMark()
	list := *l.segments.Load()
	i := sort.Search(len(list), func(i int) bool {
		e := list[i].sealed.Load()
		return e == nil || e.lastTS >= ts
	})
	if i == len(list) || end.seg == nil || list[i].firstIndex > end.Index {
		return end.Offset, nil
	}
	seg := list[i]
	err := seg.acquire()
	if errors.Is(err, fs.ErrNotExist) {
		return max(seg.base, l.Start()), nil
	}
	if err != nil {
		return 0, err
	}
	defer seg.release()
	var e entry
	if ts > 0 {
		var at int
		var err error
		if e, at, err = seg.floor(byTime, ts-1); err != nil || at < 0 {
			return max(seg.base, l.Start()), err
		}
	}
	h := hopper{file: seg.file, pos: e.pos, limit: seg.limit(end), damage: seg.damaged()}
	defer h.done()
	for h.next() {
		if h.head.Timestamp() >= ts && h.head.RecordCount() > 0 {
			return max(h.head.Offset(), l.Start()), nil
		}
	}
	if seg == end.seg || h.err != nil {
		return end.Offset, h.err
	}
	return seg.sealed.Load().Offset, nil
}

// limit is how far a reader that sees end may read in s.
func (s *segment) limit(end mark) int64 {
	if s == end.seg {
		return end.pos
	}
	if e := s.sealed.Load(); e != nil && s.firstIndex <= end.Index {
		return e.size
	}
	return 0
}

// Next returns the next stretch of whole frames at c, cut at the visible end, at stop, at
// damage, and at about limit bytes but not below one frame. It moves c behind the stretch. A
// section of size 0 means that nothing is visible at c, or that c reached stop.
//
// A frame that begins before stop is delivered whole. Control records take no offset and are
// delivered with what surrounds them.
//
// Errors: *CorruptError when c stands at damage: Seek(To) goes on behind it; *RangeError when
// c's segment was removed by retention; those of the disk.
func (l *Log) Next(c *Cursor, stop uint64, limit int64) (Section, error) {
	for {
		if c.Offset >= stop {
			return Section{}, nil
		}
		end := l.visibleMark()
		if c.seg == nil { // was sought in an empty log
			list := *l.segments.Load()
			if len(list) == 0 {
				return Section{}, nil
			}
			if list[0].base > c.Offset {
				return Section{}, l.outOfRange(c.Offset)
			}
			c.seg, c.pos = list[0], 0
			continue
		}
		here := c.seg.limit(end)
		if c.pos >= here {
			next := l.after(c.seg)
			if c.seg == end.seg || next == nil || next.firstIndex > end.Index+1 {
				return Section{}, nil
			}
			if e := c.seg.sealed.Load(); e == nil || next.firstIndex != e.Index+1 {
				return Section{}, l.outOfRange(c.Offset) // what lay between was removed
			}
			c.seg, c.pos = next, 0
			continue
		}
		s, err := l.cut(c, end, here, stop, limit)
		if errors.Is(err, errGone) {
			return Section{}, l.outOfRange(c.Offset)
		}
		return s, err
	}
}

// after returns the segment behind s, nil when s is the last or in no list any more.
func (l *Log) after(s *segment) *segment {
	list := *l.segments.Load()
	i := sort.Search(len(list), func(i int) bool { return list[i].firstIndex >= s.firstIndex })
	for i < len(list) && (list[i] == s || list[i].firstIndex <= s.firstIndex && list[i].id <= s.id) {
		i++
	}
	if i == len(list) {
		return nil
	}
	return list[i]
}

// cut makes the section at c, in a segment that is readable up to here.
func (l *Log) cut(c *Cursor, end mark, here int64, stop uint64, limit int64) (Section, error) {
	seg := c.seg
	if err := seg.damageAt(c.pos); err != nil {
		return Section{}, err
	}
	if err := seg.acquire(); err != nil {
		return Section{}, err
	}
	if err := seg.damageAt(c.pos); err != nil { // found when it was opened
		seg.release()
		return Section{}, err
	}
	endOffset := end.Offset
	if e := seg.sealed.Load(); e != nil && seg != end.seg {
		endOffset = e.Offset
	}
	for _, d := range seg.damaged() {
		if d.Pos > c.pos && d.Pos < here {
			here, endOffset = d.Pos, d.From
		}
	}
	pos, offset := here, endOffset
	var err error
	if here-c.pos > limit || endOffset > stop {
		pos, offset, err = seg.boundary(c, here, endOffset, stop, limit)
	}
	if err != nil {
		seg.release()
		return Section{}, err
	}
	s := Section{Size: pos - c.pos, pos: c.pos, seg: seg}
	c.pos, c.Offset = pos, offset
	return s, nil
}

// boundary finds where a section at c must end that may not reach here: the last index entry
// within limit bytes and below stop, or, when none lies behind c, the last frame boundary that
// fits, found by hopping over headers, and one frame at least.
func (s *segment) boundary(c *Cursor, here int64, endOffset, stop uint64, limit int64) (int64, uint64, error) {
	want := min(here, c.pos+max(limit, 1))
	e, at, err := s.floor(byPos, uint64(want))
	if err == nil && at >= 0 && endOffset > stop && e.offset > stop {
		e, at, err = s.floor(byOffset, stop)
	}
	if err != nil {
		return 0, 0, err
	}
	if at >= 0 && e.pos > c.pos && e.offset <= stop {
		return e.pos, e.offset, nil
	}
	h := hopper{file: s.file, pos: c.pos, limit: here}
	defer h.done()
	pos, offset := c.pos, c.Offset
	for h.next() {
		if pos > c.pos && (h.end() > want || h.head.Offset() >= stop) {
			break
		}
		pos, offset = h.end(), h.head.Offset()+uint64(h.head.RecordCount())
	}
	if h.err == nil && pos == c.pos {
		h.err = fmt.Errorf("storage: %s: no frame at %d", s.path(), c.pos)
	}
	return pos, offset, h.err
}

// hopBytes is how much a hopper reads at a time: a block and the header behind it.
const hopBytes = blockBytes + 2*protocol.HeaderSize

var hopBuffers = sync.Pool{New: func() any { return new([hopBytes]byte) }}

// hopper walks frames by their headers.
type hopper struct {
	file   vfs.File
	pos    int64 // of the frame that head describes; after the last one, where the next would be
	limit  int64
	damage []Damage // known: stepped over
	head   *protocol.Header
	err    error

	buf     *[hopBytes]byte
	at      int64 // file position of buf[0]
	have    int
	started bool
}

// end is the position behind the current frame.
func (h *hopper) end() int64 { return h.pos + int64(h.head.FrameSize()) }

// next moves to the next frame below limit.
func (h *hopper) next() bool {
	if h.err != nil {
		return false
	}
	if h.started {
		h.pos = h.end()
	}
	h.started = true
	for _, d := range h.damage {
		if h.pos >= d.Pos && h.pos < d.EndPos {
			h.pos = d.EndPos
		}
	}
	if h.pos >= h.limit {
		return false
	}
	if h.buf == nil {
		h.buf = hopBuffers.Get().(*[hopBytes]byte)
	}
	if h.pos < h.at || h.pos+protocol.HeaderSize > h.at+int64(h.have) {
		n := min(int64(len(h.buf)), h.limit-h.pos)
		if n < protocol.HeaderSize {
			h.err = fmt.Errorf("storage: %d bytes at %d where a frame must begin", n, h.pos)
			return false
		}
		if _, err := h.file.ReadAt(h.buf[:n], h.pos); err != nil && !errors.Is(err, io.EOF) {
			h.err = err
			return false
		}
		h.at, h.have = h.pos, int(n)
	}
	h.head = protocol.HeaderOf(h.buf[h.pos-h.at:])
	size, err := protocol.SizeStored(h.head[:], protocol.MaxDataFrame)
	if err != nil || h.pos+int64(size) > h.limit {
		h.err = fmt.Errorf("storage: frame of %d bytes at %d, readable up to %d: %w", size, h.pos, h.limit, errors.Join(err, errIndex))
		return false
	}
	return true
}

// done gives the buffer back.
func (h *hopper) done() {
	if h.buf != nil {
		hopBuffers.Put(h.buf)
		h.buf = nil
	}
}
