package inspect

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/millrace-mq/millrace/protocol"
)

// fileWindow reads a file forward in large pieces.
type fileWindow struct {
	file io.ReaderAt
	size int64
	at   int64 // file position of buf[0]
	buf  []byte
}

const windowBytes = 1 << 20

// bytes returns n bytes from pos on, fewer at the end of the file. They are
// valid until the next call.
func (w *fileWindow) bytes(pos int64, n int) ([]byte, error) {
	n = int(min(int64(n), w.size-pos))
	if n <= 0 {
		return nil, nil
	}
	if pos >= w.at && pos+int64(n) <= w.at+int64(len(w.buf)) {
		return w.buf[pos-w.at:][:n], nil
	}
	want := int(min(int64(max(n, windowBytes)), w.size-pos))
	if cap(w.buf) < want {
		w.buf = make([]byte, want)
	}
	w.buf, w.at = w.buf[:want], pos
	m, err := w.file.ReadAt(w.buf, pos)
	w.buf = w.buf[:m]
	if err != nil && !errors.Is(err, io.EOF) {
		w.buf = nil
		return nil, err
	}
	return w.buf[:min(n, m)], nil
}

// rest returns what is at hand from pos on, reading when that is nothing.
func (w *fileWindow) rest(pos int64) ([]byte, error) {
	if pos >= w.at && pos < w.at+int64(len(w.buf)) {
		return w.buf[pos-w.at:], nil
	}
	return w.bytes(pos, windowBytes)
}

// stretch is a part of a log: a frame, or bytes that are none.
type stretch struct {
	pos, end int64
	frame    protocol.Frame // nil where there is none; valid until the next stretch
	why      error          // what is wrong with the bytes, or with the frame's place; nil = all is well
	tail     bool           // no frame lies behind: torn or being written, when why is not nil, else prepared zeros
}

// walk goes through a log stretch by stretch.
type walk struct {
	w      fileWindow
	pos    int64
	last   protocol.Frame // header and tail of the last good frame; nil before the first
	end    uint64         // offset behind it
	budget int64          // bytes that failed candidates may still cost; a hostile file must not take for ever
}

const searchBudget = 4 << 30

func newWalk(file io.ReaderAt, size int64) *walk {
	return &walk{w: fileWindow{file: file, size: size}, budget: searchBudget}
}

// next returns the next stretch; ok is false at the end of the file.
func (k *walk) next() (s stretch, ok bool, err error) {
	if k.pos >= k.w.size {
		return stretch{}, false, nil
	}
	f, why, err := k.frameAt(k.pos)
	if err != nil {
		return stretch{}, false, err
	}
	if why == nil {
		s = stretch{pos: k.pos, end: k.pos + int64(len(f)), frame: f, why: k.follows(f)}
		k.take(f)
		return s, true, nil
	}
	next, zeros, err := k.search()
	if err != nil {
		return stretch{}, false, err
	}
	s = stretch{pos: k.pos, end: next, why: why, tail: next == k.w.size}
	if zeros {
		s.why = nil
	}
	k.pos = next
	return s, true, nil
}

// take moves behind a good frame.
func (k *walk) take(f protocol.Frame) {
	k.pos += int64(len(f))
	_, k.end = f.Span()
	short := append(k.last[:0], f[:protocol.HeaderSize]...)
	k.last = append(short, f[len(f)-protocol.TailSize:]...)
}

// skipTo moves to the frame that holds offset, hopping over headers without a
// check. beyond tells that the log has whole frames only, or zeros behind them,
// and that all of them end before the offset.
func (k *walk) skipTo(offset uint64) (beyond bool, err error) {
	k.end = 0
	for k.pos < k.w.size {
		b, err := k.w.bytes(k.pos, protocol.HeaderSize)
		if err != nil {
			return false, err
		}
		n, err := protocol.SizeStored(b, protocol.MaxDataFrame)
		if err != nil || n == 0 || k.pos+int64(n) > k.w.size {
			return k.blank() // else the walk says what is here
		}
		_, end := protocol.Frame(b).Span()
		if end > offset {
			return false, nil
		}
		k.pos, k.end = k.pos+int64(n), end
	}
	return true, nil
}

// blank tells whether nothing but zeros is left.
func (k *walk) blank() (bool, error) {
	for at := k.pos; at < k.w.size; {
		b, err := k.w.rest(at)
		if err != nil || len(b) == 0 || len(bytes.TrimLeft(b, "\x00")) > 0 {
			return false, err
		}
		at += int64(len(b))
	}
	return true, nil
}

// frameAt returns the frame at pos, or why there is none.
func (k *walk) frameAt(pos int64) (f protocol.Frame, why, err error) {
	b, err := k.w.bytes(pos, protocol.HeaderSize)
	if err != nil {
		return nil, nil, err
	}
	n, why := protocol.SizeStored(b, protocol.MaxDataFrame)
	if why == nil && (n == 0 || int64(n) > k.w.size-pos) {
		why = fmt.Errorf("frame of %d bytes where the file has %d more", max(n, protocol.HeaderSize), k.w.size-pos)
	}
	if why != nil {
		return nil, why, nil
	}
	if b, err = k.w.bytes(pos, n); err != nil {
		return nil, nil, err
	}
	if _, why = protocol.CheckStored(b, protocol.MaxDataFrame); why != nil {
		return nil, why, nil
	}
	return protocol.Frame(b), nil, nil
}

// follows tells why a frame whose check holds does not belong behind the last one.
func (k *walk) follows(f protocol.Frame) error {
	if k.last == nil {
		return nil
	}
	offset := f.Header().Offset()
	switch {
	case f.Index() != k.last.Index()+1:
		return fmt.Errorf("index %d where %d should follow", f.Index(), k.last.Index()+1)
	case offset != k.end:
		return fmt.Errorf("offset %d where %d should follow", offset, k.end)
	case f.Term() < k.last.Term():
		return fmt.Errorf("term %d after term %d", f.Term(), k.last.Term())
	case f.Header().Timestamp() < k.last.Header().Timestamp():
		return errors.New("appended before the frame in front of it")
	}
	return nil
}

// search looks behind pos for the next frame that can follow and returns its
// position, or the end of the file. zeros tells that nothing but zeros is left.
func (k *walk) search() (next int64, zeros bool, err error) {
	zeros = true
	for at := k.pos; at < k.w.size; {
		b, err := k.w.rest(at)
		if err != nil || len(b) == 0 {
			return k.w.size, false, err
		}
		if zeros && len(bytes.TrimLeft(b, "\x00")) > 0 {
			zeros = false
		}
		i := bytes.IndexByte(b, byte(protocol.MagicData))
		if i < 0 {
			at += int64(len(b))
			continue
		}
		at += int64(i)
		if at > k.pos && k.plausible(at) {
			_, why, err := k.frameAt(at)
			if err != nil || why == nil {
				return at, false, err
			}
		}
		if k.budget < 0 {
			return k.w.size, false, nil
		}
		at++
	}
	return k.w.size, zeros, nil
}

// plausible tells by header and tail whether a frame at this place can follow
// the last one across a hole, before its bytes are read and hashed.
func (k *walk) plausible(at int64) bool {
	head, err := k.w.bytes(at, protocol.HeaderSize)
	if err != nil {
		return false
	}
	n, err := protocol.SizeStored(head, protocol.MaxDataFrame)
	if err != nil || n == 0 || int64(n) > k.w.size-at {
		return false
	}
	h := protocol.HeaderOf(head)
	if k.last != nil && (h.Offset() < k.end || h.Timestamp() < k.last.Header().Timestamp()) {
		return false
	}
	k.budget -= 4 << 10 // a read of the tail
	tail := make(protocol.Frame, protocol.TailSize)
	if _, err := k.w.file.ReadAt(tail, at+int64(n)-protocol.TailSize); err != nil {
		return false
	}
	room := uint64(at-k.pos)/protocol.MinFrame + 1
	if k.last != nil && (tail.Index() <= k.last.Index() || tail.Index()-k.last.Index()-1 > room || tail.Term() < k.last.Term()) {
		return false
	}
	k.budget -= int64(n)
	return true
}
