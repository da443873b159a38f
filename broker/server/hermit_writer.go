package server

import (
	"fmt"
	"net"

	"github.com/millrace-mq/millrace/protocol"
	"github.com/millrace-mq/millrace/storage"
)

// legacyWindow is how much of a section is read at a time, and how much of what is made of it
// is written at a time, bytes. A legacy frame that is larger leaves straight from the file.
const legacyWindow = 64 << 10

// legacyWriter turns one section of stored frames into legacy frames: an opaque frame is sent as
// it came, each record of a plain one as a frame of its own.
//
//	            the socket takes no more: buffers go back, place moves back
//	         ┌──────────────────────────────────────────────────────────────┐
//	section ─▶ window ─▶ frames, records ─▶ out ─▶ socket ──────────────────┘
//	                           └─ larger than out ─▶ head, then sendfile
//
// It holds its buffers only while the socket takes bytes. What a socket that is full left of
// out is made again later, from the same place: the same bytes come out.
//
// Bounds: two buffers of legacyWindow, taken from the share for delivering.
type legacyWriter struct {
	// immutable
	conn    *conn
	to      *legacyConsumer
	tryFunc func(fd uintptr) bool // kept: a new closure for each section would allocate

	section *storage.Section
	place   legacyPlace
	piece   legacyPiece // before place
	sent    int         // bytes that the socket took of what is made from place
	state   legacyState // how try ended
	err     error       // of legacyFailed
	warned  bool        // that something cannot be sent to a legacy consumer

	// nil while the socket takes nothing
	window []byte
	out    []byte
	lo, hi int64 // stretch of the section that the window holds
}

// legacyState is why a legacyWriter stopped.
type legacyState uint8

const (
	legacyDone    legacyState = iota // the section is sent
	legacyBlocked                    // the socket takes no more
	legacyStarved                    // no buffers
	legacyLarge                      // piece is to be sent from the file
	legacyFailed
)

// legacyPiece is one legacy frame: where in the section its key and its payload lie.
type legacyPiece struct {
	timestamp, offset uint64
	records           uint32
	key, keySize      int64
	value, valueSize  int64
}

func (p *legacyPiece) size() int64 { return protocol.HeaderSize + p.keySize + p.valueSize }

func (p *legacyPiece) header(h *protocol.Header) {
	h.PutLegacy(p.timestamp, p.offset, uint32(p.keySize), uint32(p.valueSize), p.records)
}

// send sends the section.
//
// Errors: those of socket and disk, of stored bytes that do not follow the format.
func (w *legacyWriter) send(section *storage.Section) error {
	w.section, w.place, w.sent = section, legacyPlace{}, 0
	c := w.conn
	for {
		if err := c.whenWritable(w.tryFunc); err != nil {
			return err
		}
		switch w.state {
		case legacyDone:
			return nil
		case legacyFailed:
			return w.err
		case legacyStarved:
			if !c.server.buffers.awaitOut(2*legacyWindow, c.over) {
				return net.ErrClosed
			}
		case legacyLarge:
			if err := w.sendLarge(); err != nil {
				return err
			}
		}
	}
}

// try is the body of send: true when it has a state to act on, false to be called again when
// the socket takes bytes.
func (w *legacyWriter) try(fd uintptr) bool {
	if w.state = legacyStarved; !w.hold() {
		return true
	}
	w.state, w.err = w.pass(fd)
	w.release()
	return w.state != legacyBlocked
}

// hold takes the buffers.
func (w *legacyWriter) hold() bool {
	pool := w.conn.server.buffers
	if w.window = pool.takeOut(legacyWindow); w.window == nil {
		return false
	}
	if w.out = pool.takeOut(legacyWindow); w.out == nil {
		pool.giveOut(w.window)
		w.window = nil
		return false
	}
	return true
}

// release gives the buffers back.
func (w *legacyWriter) release() {
	pool := w.conn.server.buffers
	pool.giveOut(w.window)
	pool.giveOut(w.out)
	w.window, w.out, w.lo, w.hi = nil, nil, 0, 0
}

// pass makes and writes one filling of out after the other.
func (w *legacyWriter) pass(fd uintptr) (legacyState, error) {
	for {
		start := w.place
		n, large, err := w.fill()
		switch {
		case err != nil:
			return legacyFailed, err
		case large:
			return legacyLarge, nil
		case n == 0:
			return legacyDone, nil
		}
		sent, err := w.write(fd, w.out[w.sent:n])
		w.sent += sent
		switch {
		case err != nil:
			return legacyFailed, err
		case w.sent < n:
			w.place = start
			return legacyBlocked, nil
		}
		w.sent = 0
		w.conn.server.counts.copyBytes.Add(uint64(n))
	}
}

// write writes what the socket takes of b, all of it where it cannot do so without waiting.
func (w *legacyWriter) write(fd uintptr, b []byte) (int, error) {
	if w.conn.direct() {
		return w.conn.writeFd(fd, b)
	}
	return len(b), w.conn.write(b)
}

// fill puts legacy frames into out, whole ones, as many as fit, and moves place behind them.
// large tells that the first one does not fit at all.
func (w *legacyWriter) fill() (n int, large bool, err error) {
	for {
		before := w.place
		more, err := w.next()
		if err != nil || !more {
			return n, false, err
		}
		p := &w.piece
		if p.size() > int64(len(w.out)-n) {
			if n == 0 {
				return 0, true, nil
			}
			w.place = before
			return n, false, nil
		}
		var h protocol.Header
		p.header(&h)
		n += copy(w.out[n:], h[:])
		for _, part := range [...]struct{ pos, size int64 }{{p.key, p.keySize}, {p.value, p.valueSize}} {
			b, err := w.view(part.pos, int(part.size))
			if err != nil {
				return 0, false, err
			}
			n += copy(w.out[n:], b[:part.size])
		}
	}
}

// view returns the section from pos on as far as the window has it: n bytes or more.
func (w *legacyWriter) view(pos int64, n int) ([]byte, error) {
	if pos < w.lo || pos+int64(n) > w.hi {
		b := w.window[:min(int64(len(w.window)), w.section.Size-pos)]
		if len(b) < n {
			return nil, fmt.Errorf("server: section of %d bytes ends at %d inside %d bytes", w.section.Size, pos, n)
		}
		if err := readSection(w.section, b, pos); err != nil {
			return nil, err
		}
		w.lo, w.hi = pos, pos+int64(len(b))
	}
	return w.window[pos-w.lo : w.hi-w.lo], nil
}

// sendLarge sends piece from the file, under a header of the client's protocol.
func (w *legacyWriter) sendLarge() error {
	c, p := w.conn, &w.piece
	p.header(&c.sendHead)
	head := c.sendHead[:]
	if p.keySize > 0 {
		if err := c.sendSection(head, w.section, p.key, p.keySize); err != nil || p.valueSize == 0 {
			return err
		}
		head = nil
	}
	return c.sendSection(head, w.section, p.value, p.valueSize)
}
