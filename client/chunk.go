package client

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"github.com/millrace-mq/millrace/protocol"
)

const (
	chunkMin = 64 << 10  // bytes; first read buffer of a connection
	chunkMax = 512 << 10 // bytes; what a steady stream grows it to; one frame may need more
	chunkLow = 4 << 10   // bytes; with less room a read is not worth its system call
	maxSpare = 4         // chunks kept for reuse
)

// chunk is a buffer that a connection was read into. Frames stay where they were read, so that
// they reach another goroutine without a copy; the chunk is used again when nobody holds it.
type chunk struct {
	buf  []byte
	refs atomic.Int32 // the cutter, and every piece handed over
	home *chunks
}

// release gives up one hold.
func (k *chunk) release() {
	if k.refs.Add(-1) == 0 {
		k.home.put(k)
	}
}

// chunks keeps a few buffers of one connection for reuse.
//
// Bounds: maxSpare buffers; what is held by readers is bounded by their credit.
type chunks struct {
	mu    sync.Mutex
	spare []*chunk // guarded by mu
}

// get returns a chunk of at least size bytes with one hold.
func (s *chunks) get(size int) *chunk {
	s.mu.Lock()
	for n := len(s.spare); n > 0; n = len(s.spare) {
		k := s.spare[n-1]
		s.spare[n-1] = nil
		s.spare = s.spare[:n-1]
		if len(k.buf) >= size { // smaller ones date from before the stream grew
			s.mu.Unlock()
			k.refs.Store(1)
			return k
		}
	}
	s.mu.Unlock()
	k := &chunk{buf: make([]byte, size), home: s}
	k.refs.Store(1)
	return k
}

func (s *chunks) put(k *chunk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.spare) < maxSpare && len(k.buf) <= chunkMax {
		s.spare = append(s.spare, k)
	}
}

// cutter cuts the byte stream of a connection into frames.
//
//	cur.buf:  … handed out | pos: a frame, or a part of one | end: room
//
// Ownership: one goroutine. A frame is valid until the next fill, or as long as a hold on cur.
// Bounds: a buffer grows when it is full of one frame's bytes, never because a header announces
// many.
type cutter struct {
	bounds protocol.Bounds

	r    io.Reader
	pool chunks
	cur  *chunk
	pos  int
	end  int
	size int // of the next chunk
	full bool
}

func newCutter(r io.Reader) *cutter { return &cutter{r: r, size: chunkMin} }

// cut returns the next frame that was read whole, nil when more must be read first.
func (k *cutter) cut() ([]byte, error) {
	if k.cur == nil {
		return nil, nil
	}
	n, err := k.bounds.Size(k.cur.buf[k.pos:k.end])
	if err != nil || n == 0 || n > k.end-k.pos {
		return nil, err
	}
	f := k.cur.buf[k.pos : k.pos+n : k.pos+n]
	k.pos += n
	return f, nil
}

// fill reads once, after making room.
//
// Errors: io.EOF between frames, io.ErrUnexpectedEOF inside one, those of the stream.
func (k *cutter) fill() error {
	k.makeRoom()
	room := k.cur.buf[k.end:]
	n, err := k.r.Read(room)
	k.full = n == len(room)
	k.end += n
	if n > 0 {
		return nil
	}
	if err == nil {
		return io.ErrNoProgress
	}
	if errors.Is(err, io.EOF) && k.end > k.pos {
		return io.ErrUnexpectedEOF
	}
	return err
}

// makeRoom leaves at least chunkLow bytes behind end, moving the start of an unfinished frame
// when it has to.
func (k *cutter) makeRoom() {
	if k.cur == nil {
		k.cur = k.pool.get(k.size)
		return
	}
	if k.full && k.size < chunkMax {
		k.size *= 2
	}
	have, rest := len(k.cur.buf), k.cur.buf[k.pos:k.end]
	alone := k.cur.refs.Load() == 1
	switch {
	case alone && len(rest) == 0 && have >= k.size && have <= chunkMax:
		k.pos, k.end = 0, 0
		return
	case have-k.end >= chunkLow && !(alone && len(rest) == 0):
		return
	case alone && len(rest) <= have/2 && have >= k.size:
		k.pos, k.end = 0, copy(k.cur.buf, rest)
		return
	}
	old := k.cur
	k.cur = k.pool.get(max(k.size, 2*len(rest))) // more only when one frame has filled it
	k.pos, k.end = 0, copy(k.cur.buf, rest)
	old.release()
}
