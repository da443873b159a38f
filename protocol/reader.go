package protocol

import (
	"errors"
	"io"
)

const (
	readerMin = 64 << 10 // bytes; first buffer
	readerMax = 4 << 20  // bytes; beyond, the buffer only grows for one frame that needs it
)

// Reader cuts a byte stream into frames. It reads as much as there is into one buffer and
// hands out views, so a steady stream costs no allocation and no copy per frame.
//
// Ownership: one goroutine. A frame is valid until the next call of Next.
// Bounds: the buffer starts at 64 KiB and doubles as bytes arrive, never because a header
// announces many.
type Reader struct {
	Bounds Bounds

	r    io.Reader
	buf  []byte
	pos  int // start of what is not yet handed out
	end  int // end of what was read
	full bool
}

// NewReader returns a Reader of r.
func NewReader(r io.Reader) *Reader { return &Reader{r: r} }

// Next returns the next whole frame of any class. Frames of unknown classes that may be
// skipped are returned too; the caller hops over what it does not know.
//
// Errors: io.EOF between frames, io.ErrUnexpectedEOF inside one, those of Bounds.Size, those
// of the stream.
func (r *Reader) Next() ([]byte, error) {
	for {
		n, err := r.Bounds.Size(r.buf[r.pos:r.end])
		if err != nil {
			return nil, err
		}
		if n > 0 && n <= r.end-r.pos {
			f := r.buf[r.pos : r.pos+n : r.pos+n]
			r.pos += n
			return f, nil
		}
		if err := r.fill(max(n, HeaderSize)); err != nil {
			return nil, err
		}
	}
}

// Buffered is the number of bytes that were read and not yet handed out.
func (r *Reader) Buffered() int { return r.end - r.pos }

// fill reads once, after making room for some of the want bytes that the next frame needs.
func (r *Reader) fill(want int) error {
	if r.pos > 0 {
		r.end = copy(r.buf, r.buf[r.pos:r.end])
		r.pos = 0
	}
	if r.end == len(r.buf) || r.full && len(r.buf) < readerMax {
		size := max(readerMin, 2*len(r.buf))
		if size > readerMax { // only for a frame that needs it
			size = max(readerMax, min(size, want))
		}
		if size > len(r.buf) {
			r.buf = append(make([]byte, 0, size), r.buf[:r.end]...)[:size]
		}
	}
	n, err := r.r.Read(r.buf[r.end:])
	r.full = r.end == 0 && n == len(r.buf)
	r.end += n
	if n > 0 {
		return nil
	}
	if err == nil {
		return io.ErrNoProgress
	}
	if errors.Is(err, io.EOF) && r.end > 0 {
		return io.ErrUnexpectedEOF
	}
	return err
}
