package server

import (
	"time"

	"github.com/millrace-mq/millrace/protocol"
)

const (
	maxReadBuffer = 1 << 20         // bytes; how far a busy connection's buffer grows by itself
	starveTime    = 5 * time.Second // how long a connection waits for memory
	shrinkAfter   = 16              // short reads in a row
)

// input is what was read and not yet processed: buf[pos:end].
//
// Bounds: it starts at 64 KiB (4 KiB before HELLO), grows while reads fill it up to 1 MiB, and
// beyond that class by class as the bytes of one large frame arrive. While the reader waits it
// holds no buffer, or a small one with what is left of a frame.
type input struct {
	buf      []byte
	pos, end int
	want     int // bytes; size of the next buffer
	short    int // reads in a row that left most of the buffer free
}

// bytes is what is there to be processed.
func (in *input) bytes() []byte { return in.buf[in.pos:in.end] }

// target is the size of the next buffer.
func (c *conn) target() int {
	if !c.greeted.Load() {
		return smallBuffer
	}
	return max(c.in.want, readBuffer)
}

// park is called when there is nothing to read: what is left of a frame moves to the smallest
// buffer that does not have to be copied again soon, and an empty buffer goes back.
func (c *conn) park() {
	in, pool := &c.in, c.server.buffers
	left := in.end - in.pos
	if left == 0 {
		pool.give(in.buf)
		*in = input{want: in.want}
		return
	}
	if size := rounded(2 * left); len(in.buf) >= 16*left && size < len(in.buf) {
		if small := pool.take(size); small != nil {
			copy(small, in.bytes())
			pool.give(in.buf)
			in.buf, in.pos, in.end = small, 0, left
		}
	}
}

// fill reads once.
//
// Errors: io.EOF, those of the socket, protocol.Throttled when there is no memory in time.
func (c *conn) fill() error {
	for !c.room() {
		if !c.server.buffers.await(c.larger(), time.Now().Add(starveTime), c.over) {
			return &protocol.Error{Code: protocol.Throttled, Detail: "no memory for reading (a part of the budget is for delivering)", Actual: uint64(c.server.buffers.used.Load()),
				Limit: uint64(c.server.buffers.limit), Setting: "limits.inflight_bytes"}
		}
	}
	n, err := c.read()
	if err == nil {
		c.noteRead(n)
	}
	return err
}

// larger is the size of the buffer that room is about to take.
func (c *conn) larger() int {
	in := &c.in
	if in.buf == nil || len(in.buf) < c.target() {
		return c.target()
	}
	if len(in.buf) < classes[len(classes)-1].size {
		return rounded(len(in.buf) + 1)
	}
	return 2 * len(in.buf)
}

// room makes free space in the input: at the front, in a larger buffer when all of it is one
// unfinished frame, or in the next size when reads have been filling this one. It is false when
// there is no memory for that now.
func (c *conn) room() bool {
	in, pool := &c.in, c.server.buffers
	if in.buf == nil {
		return true // read takes one when there is something to read
	}
	left := in.end - in.pos
	if left == 0 && len(in.buf) != c.target() {
		pool.give(in.buf)
		*in = input{want: in.want}
		return true
	}
	free := len(in.buf) - in.end
	if in.pos > 0 && (left == 0 || free < len(in.buf)/2) {
		copy(in.buf, in.bytes())
		in.pos, in.end = 0, left
	}
	if in.end < len(in.buf) && len(in.buf) >= c.target() {
		return true
	}
	bigger := pool.take(c.larger())
	if bigger == nil {
		return in.end < len(in.buf)
	}
	copy(bigger, in.bytes())
	pool.give(in.buf)
	in.buf, in.pos, in.end = bigger, 0, left
	return true
}

// noteRead counts what a read brought and adapts the size of the next buffer.
func (c *conn) noteRead(n int) {
	in := &c.in
	free := len(in.buf) - in.end
	in.end += n
	c.heard.Store(c.server.tick.Load())
	c.server.counts.reads.Add(1)
	c.server.counts.bytesIn.Add(uint64(n))
	switch {
	case n == free && n >= len(in.buf)/2:
		in.want, in.short = min(max(2*len(in.buf), readBuffer), c.server.maxRead), 0
		in.want = rounded(in.want)
	case n < len(in.buf)/8:
		if in.short++; in.short >= shrinkAfter {
			in.want, in.short = max(in.want/4, readBuffer), 0
		}
	default:
		in.short = 0
	}
}

// dropInput gives the buffer back at the end of the connection.
func (c *conn) dropInput() {
	if c.in.buf != nil {
		c.server.buffers.give(c.in.buf)
		c.in = input{}
	}
}
