package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/millrace-mq/millrace/protocol"
	"github.com/millrace-mq/millrace/storage/vfs"
)

const scanBytes = 1 << 20 // bytes read at a time

// window is a stretch of a file in memory that moves forward.
type window struct {
	file vfs.File
	size int64 // of the file
	at   int64 // file position of buf[0]
	buf  []byte
}

// bytes returns n bytes from pos, fewer at the end of the file. They are valid until the next
// call.
func (w *window) bytes(pos int64, n int) ([]byte, error) {
	n = int(min(int64(n), w.size-pos))
	if n <= 0 {
		return nil, nil
	}
	if pos >= w.at && pos+int64(n) <= w.at+int64(len(w.buf)) {
		return w.buf[pos-w.at:][:n], nil
	}
	want := int(min(int64(max(n, scanBytes)), w.size-pos))
	if cap(w.buf) < want {
		w.buf = make([]byte, 0, want)
	}
	w.buf = w.buf[:want]
	w.at = pos
	m, err := w.file.ReadAt(w.buf, pos)
	if err != nil && !(errors.Is(err, io.EOF) && m >= n) {
		w.buf = w.buf[:0]
		return nil, err
	}
	w.buf = w.buf[:m]
	return w.buf[:n], nil
}

// rest returns what the window holds from pos on, reading if that is nothing.
func (w *window) rest(pos int64) ([]byte, error) {
	if pos >= w.at && pos < w.at+int64(len(w.buf)) {
		return w.buf[pos-w.at:], nil
	}
	return w.bytes(pos, scanBytes)
}

// scan walks the frames of one segment with full checks.
//
// Where a frame should begin and none does, the log may go on behind a hole. When the header at
// the bad spot still tells where its frame ends and the next frame but one in the order begins
// there, that is it: nothing inside a message lies there. Otherwise the rest of the file is
// searched for chains of frames whose checks hold and which can follow: index, offset, term and
// time do not go back, and they are not further ahead than the bytes between could have held. A
// producer can put such chains into a message, and damage to the header of that message brings
// them to light. So of all chains up to the end of the data those are taken that agree with
// each other in their order and have most bytes together; and only when the last of them
// reaches the end of the data, or they are longer than any message, is it certain that they are
// the log. Others are not taken; but when they testify that the bad spot was settled, nothing is
// cut on the strength of that either.
//
// Frames that are taken tell by their settledLag up to where the log was known settled.
type scan struct {
	w      window
	pos    int64 // of the next frame
	last   mark  // behind the last good frame
	term   uint32
	first  uint64 // append time of the first frame
	frames int64

	settled uint64 // highest index that any frame testifies to
	holes   []hole
	budget  int64                   // bytes that may still be hashed in search of frames behind holes
	gaveUp  bool                    // the budget ran out
	claims  uint64                  // highest index that frames testify to of which it is not certain that they are the log
	plan    []link                  // chains behind the holes that were found
	entries func(entry, bool) error // told of every frame: where, and whether it is a control record
}

// hole is a stretch without good frames that has one behind it, or reaches to the end of the file.
type hole struct {
	pos, end int64
	before   mark   // behind the last good frame in front
	next     uint64 // base offset of the first good frame behind; 0 with tail
	why      error
	tail     bool // nothing good lies behind
}

func newScan(f vfs.File, size int64, base, firstIndex uint64) *scan {
	return &scan{w: window{file: f, size: size}, last: mark{End: End{base, firstIndex - 1}}, budget: 4*size + 256<<20}
}

// run walks the file. It ends without a hole when zeros follow the last frame up to the end of the file.
func (s *scan) run() error {
	for s.pos < s.w.size {
		f, why, err := s.frameAt(s.pos)
		if err != nil {
			return err
		}
		if f != nil {
			why = s.follows(f, false)
		}
		if why == nil {
			if err := s.take(f); err != nil {
				return err
			}
			continue
		}
		more, err := s.skipHole(why)
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// frameAt returns the frame at pos if its bytes are whole and its check holds, else why not.
func (s *scan) frameAt(pos int64) (f protocol.Frame, why, err error) {
	b, err := s.w.bytes(pos, protocol.HeaderSize)
	if err != nil {
		return nil, nil, err
	}
	n, why := protocol.SizeStored(b, protocol.MaxDataFrame)
	if why == nil && (n == 0 || int64(n) > s.w.size-pos) {
		why = fmt.Errorf("frame of %d bytes, the file has %d more", n, s.w.size-pos)
	}
	if why != nil {
		return nil, why, nil
	}
	if b, err = s.w.bytes(pos, n); err != nil {
		return nil, nil, err
	}
	if _, why = protocol.CheckStored(b, protocol.MaxDataFrame); why != nil {
		return nil, why, nil
	}
	return protocol.Frame(b), nil, nil
}

// follows tells why f cannot come after the last good frame: directly, or across a hole.
func (s *scan) follows(f protocol.Frame, hole bool) error {
	index, offset, ts, term := f.Index(), f.Header().Offset(), f.Header().Timestamp(), f.Term()
	switch {
	case !hole && (index != s.last.Index+1 || offset != s.last.Offset):
		return fmt.Errorf("%v where index %d, offset %d should follow", f, s.last.Index+1, s.last.Offset)
	case index <= s.last.Index || offset < s.last.Offset:
		return fmt.Errorf("%v goes back behind index %d, offset %d", f, s.last.Index, s.last.Offset)
	case term < s.term:
		return fmt.Errorf("%v after term %d", f, s.term)
	case ts < s.last.ts:
		return fmt.Errorf("%v was appended before its predecessor", f)
	}
	return nil
}

// take accepts the frame at pos.
func (s *scan) take(f protocol.Frame) error {
	if s.frames == 0 {
		s.first = f.Header().Timestamp()
	}
	if s.entries != nil {
		e := entry{offset: f.Header().Offset(), index: f.Index(), pos: s.pos, ts: f.Header().Timestamp()}
		if err := s.entries(e, f.Header().RecordCount() == 0); err != nil {
			return err
		}
	}
	_, end := f.Span()
	s.pos += int64(len(f))
	s.last = mark{End: End{end, f.Index()}, pos: s.pos, ts: f.Header().Timestamp()}
	s.term = f.Term()
	s.settled = max(s.settled, f.Settled())
	s.frames++
	return nil
}

// skipHole notes the bad spot at pos and moves to the next frame that can follow. more is
// false when there is none.
func (s *scan) skipHole(why error) (more bool, err error) {
	next, data, err := s.resync(s.pos)
	if err != nil {
		return false, err
	}
	h := hole{pos: s.pos, end: next, before: s.last, why: why}
	if next < 0 {
		if data < 0 { // only zeros: the prepared space behind the last frame
			return false, nil
		}
		h.end, h.tail = data+1, true
		s.holes = append(s.holes, h)
		return false, nil
	}
	f, _, err := s.frameAt(next)
	if err != nil {
		return false, err
	}
	h.next = f.Header().Offset()
	s.holes = append(s.holes, h)
	s.pos = next
	return true, s.take(f)
}

// link is a chain of good frames behind a hole.
type link struct {
	at, end     int64
	first, last mark // of its first frame, and behind its last one
	term        [2]uint32
	settled     uint64 // highest index that its frames testify to
	whole       bool   // it reaches the end of the data
}

// precedes tells whether b can come behind a in one log.
func (a *link) precedes(b *link) bool {
	return a.last.Index < b.first.Index && a.last.Offset <= b.first.Offset && a.last.ts <= b.first.ts && a.term[1] <= b.term[0]
}

// maxLinks bounds how many chains a search keeps; a file with more is not judged.
const maxLinks = 4096

// resync finds the frame at which the log goes on behind the bad spot at pos; −1 when there is
// none. data is the position of the last byte that is not zero from pos on; −1 when all are.
func (s *scan) resync(pos int64) (next, data int64, err error) {
	next, err = s.announced(pos)
	if err != nil || next >= 0 {
		return next, next, err
	}
	if len(s.plan) > 1 && s.plan[0].end == pos {
		s.plan = s.plan[1:]
		return s.plan[0].at, s.plan[0].end, nil
	}
	chains, data, err := s.search(pos)
	if err != nil || s.gaveUp || len(chains) == 0 {
		return -1, data, err
	}
	best, size := agreeing(chains)
	if !best[len(best)-1].whole && size <= protocol.MaxDataFrame {
		for i := range chains {
			s.claims = max(s.claims, chains[i].settled)
		}
		return -1, data, nil
	}
	s.plan = best
	return best[0].at, data, nil
}

// announced returns the position behind the damaged frame at pos, as its header tells it, when
// the frame behind its successor's place in the order begins there; else −1.
func (s *scan) announced(pos int64) (int64, error) {
	b, err := s.w.bytes(pos, protocol.HeaderSize)
	if err != nil {
		return -1, err
	}
	n, why := protocol.SizeStored(b, protocol.MaxDataFrame)
	if why != nil || n == 0 || pos+int64(n) >= s.w.size {
		return -1, nil
	}
	f, why, err := s.frameAt(pos + int64(n))
	if err != nil || why != nil || f.Index() != s.last.Index+2 || s.follows(f, true) != nil {
		return -1, err
	}
	return pos + int64(n), nil
}

// search collects the chains behind pos.
func (s *scan) search(pos int64) (chains []link, data int64, err error) {
	data = -1
	for at := pos; at < s.w.size && !s.gaveUp; {
		b, err := s.w.rest(at)
		if err != nil {
			return nil, data, err
		}
		t := bytes.TrimRight(b, "\x00")
		if len(t) == 0 {
			at += int64(len(b))
			continue
		}
		data = max(data, at+int64(len(t))-1)
		i := bytes.IndexByte(b, byte(protocol.MagicData))
		if i < 0 {
			at += int64(len(b))
			continue
		}
		at += int64(i)
		l, err := s.chain(at)
		if err != nil {
			return nil, data, err
		}
		if l.end == 0 || at == pos {
			at++
			continue
		}
		chains = append(chains, l)
		s.gaveUp = s.gaveUp || len(chains) > maxLinks
		data, at = max(data, l.end-1), l.end
	}
	return chains, data, nil
}

// agreeing returns the chains of one order that have most bytes together.
func agreeing(chains []link) (best []link, size int64) {
	type way struct {
		size int64
		from int
	}
	ways := make([]way, len(chains))
	end := 0
	for i := range chains {
		ways[i] = way{0, -1}
		for k := range i {
			if chains[k].precedes(&chains[i]) && ways[k].size > ways[i].size {
				ways[i] = way{ways[k].size, k}
			}
		}
		ways[i].size += chains[i].end - chains[i].at
		if ways[i].size >= ways[end].size {
			end = i
		}
	}
	for i := end; i >= 0; i = ways[i].from {
		best = append(best, chains[i])
	}
	slices.Reverse(best)
	return best, ways[end].size
}

// chain follows the frames from a candidate behind a hole on; its end is 0 when at is none.
func (s *scan) chain(at int64) (l link, err error) {
	s.budget -= 4 << 10 // what a look costs, whatever it finds
	ok, err := s.candidate(at)
	if err != nil || !ok {
		s.gaveUp = s.gaveUp || s.budget < 0
		return link{}, err
	}
	t := scan{w: window{file: s.w.file, size: s.w.size}, pos: at, last: s.last, term: s.term}
	for t.pos < t.w.size {
		b, err := t.w.bytes(t.pos, protocol.HeaderSize)
		if err != nil {
			return link{}, err
		}
		if n, why := protocol.SizeStored(b, protocol.MaxDataFrame); why == nil {
			s.budget -= int64(n)
		}
		if s.budget < 0 {
			s.gaveUp = true
			return link{}, nil
		}
		f, why, err := t.frameAt(t.pos)
		if err != nil {
			return link{}, err
		}
		if why == nil {
			why = t.follows(f, t.frames == 0)
		}
		if why != nil {
			break
		}
		if t.frames == 0 {
			l.at, l.term[0] = at, f.Term()
			l.first = mark{End: End{f.Header().Offset(), f.Index()}, ts: f.Header().Timestamp()}
		}
		if err := t.take(f); err != nil {
			return link{}, err
		}
	}
	if t.frames == 0 {
		return link{}, nil
	}
	l.end, l.last, l.term[1], l.settled = t.pos, t.last, t.term, t.settled
	l.whole, err = t.w.zeros(t.pos)
	return l, err
}

// candidate tells by header and tail alone, without hashing what lies between, whether a frame
// of this log can begin at at.
func (s *scan) candidate(at int64) (bool, error) {
	b, err := s.w.bytes(at, protocol.HeaderSize)
	if err != nil {
		return false, err
	}
	n, why := protocol.SizeStored(b, protocol.MaxDataFrame)
	if why != nil || n == 0 || int64(n) > s.w.size-at {
		return false, nil
	}
	offset, ts := protocol.HeaderOf(b).Offset(), protocol.HeaderOf(b).Timestamp()
	tail := [protocol.TailSize]byte{}
	if _, err := s.w.file.ReadAt(tail[:], at+int64(n)-protocol.TailSize); err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	index, term := binary.BigEndian.Uint64(tail[:]), binary.BigEndian.Uint32(tail[8:])
	if index <= s.last.Index || offset < s.last.Offset || ts < s.last.ts || term < s.term {
		return false, nil
	}
	room := uint64(at-s.pos)/protocol.MinFrame + 1
	skipped := index - s.last.Index - 1
	return skipped <= room && offset-s.last.Offset <= (skipped+1)*protocol.MaxRecords, nil
}

// zeros tells whether nothing but zeros follows from pos to the end of the file.
func (w *window) zeros(pos int64) (bool, error) {
	for pos < w.size {
		b, err := w.rest(pos)
		if err != nil {
			return false, err
		}
		if len(bytes.TrimRight(b, "\x00")) > 0 {
			return false, nil
		}
		pos += int64(len(b))
	}
	return true, nil
}
