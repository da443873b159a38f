package server

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"

	"github.com/millrace-mq/millrace/protocol"
)

// conn is one client connection.
//
// Ownership: the reader's goroutine runs it and ends it; the write side belongs to whoever owns
// the outbox.
type conn struct {
	// immutable
	server *Server
	id     uint64
	born   int64 // tick, ns

	sock socket
	in   input // owned by the reader
	out  outbox

	pumps    sync.WaitGroup // the pump, at most one at a time
	pumpFunc func()         // kept: a new closure for each start would allocate

	// owned by the reader
	legacy     *legacyProducer // set when the first byte said so, and it produces
	handles    map[uint32]*handle
	nextHandle uint32
	touched    []*handle // with runs of this read that are not appended yet
	skip       uint64    // bytes of a refused run that are still to come
	maxFrame   uint32    // largest DATA frame that the client takes, bytes; 0 = any

	// owned by the owner of the write side
	sendHead protocol.Header // of the run that is being sent

	// atomic, published by the reader
	greeted atomic.Bool            // HELLO was answered, or the connection is a legacy one
	native  atomic.Bool            // speaks the native protocol
	client  atomic.Pointer[string] // what HELLO said it is
	busy    atomic.Bool            // holds bytes that are not yet processed
	lastRun atomic.Uint64          // sequence of the last run that was answered or will be
	heard   atomic.Int64           // tick when something last arrived, ns

	// atomic, published by the owner of the write side
	stalled atomic.Int64 // tick since when a write has made no progress, ns; 0 = none is under way
	taken   atomic.Int64 // tick when the peer last took a delivered run, ns

	// owned by the server's watch
	pinged bool
	quiet  int // looks in a row that found it idle while draining

	// atomic, published by the reader
	lingers atomic.Int64 // tick when it began to wait for the peer to hang up, ns; 0 = it does not
}

func newConn(s *Server, nc net.Conn, id uint64) *conn {
	c := &conn{server: s, id: id, born: s.tick.Load()}
	c.heard.Store(c.born)
	c.out.init(&s.spares)
	c.initSocket(nc)
	c.pumpFunc = c.pump
	return c
}

// run serves the connection until it is over. It returns when nothing of it is left. Whatever
// ends it, runs that were appended are answered first while the peer can be reached.
func (c *conn) run() {
	err := c.serve()
	var refusal *protocol.Error
	switch {
	case err == nil, errors.Is(err, io.EOF):
		c.awaitAcks()
		c.finish()
	case errors.As(err, &refusal):
		c.awaitAcks()
		if c.native.Load() {
			c.goAway(refusal)
		}
		c.finish()
		c.linger()
	default:
		c.abort(err)
	}
	c.end()
}

// serve finds out which protocol the peer speaks and serves it.
func (c *conn) serve() error {
	if err := c.fill(); err != nil {
		return err
	}
	switch first := c.in.bytes()[0]; {
	case protocol.Magic(first) == protocol.MagicRequest:
		c.native.Store(true)
		return c.serveNative()
	case first >= protocol.LegacyProduce && first <= protocol.LegacyCommit && c.server.options.legacy():
		return c.serveLegacy()
	case first >= protocol.LegacyProduce && first <= protocol.LegacyCommit:
		return fmt.Errorf("%w: legacy = off", errNotSpoken)
	default:
		c.native.Store(true) // so that it is told
		return &protocol.Error{Code: protocol.BadFrame, Detail: fmt.Sprintf("first byte 0x%02x is neither a REQUEST (0x11) nor a legacy handshake", first)}
	}
}

var errNotSpoken = errors.New("server: protocol not served")

// goAway says why the connection ends.
func (c *conn) goAway(e *protocol.Error) {
	c.server.counts.refusedConns.Add(1)
	c.log().Info("connection refused", "error", e)
	detail := e.AppendTo(nil)
	var h protocol.Header
	h.PutGoAway(e.Code, 0, c.lastRun.Load(), len(detail))
	c.out.mu.Lock()
	if !c.out.closed {
		c.out.pending = append(append(c.out.tail(), h[:]...), detail...)
	}
	c.out.mu.Unlock()
}

// linger throws away what the peer still sends until it hangs up: closing at once would make
// the kernel drop the answer that is on its way. The watch ends it after lingerTime.
func (c *conn) linger() {
	c.lingers.Store(c.server.tick.Load())
	for {
		c.in.pos, c.in.end = 0, 0
		if c.in.buf == nil {
			c.in.buf = c.server.buffers.force(smallBuffer)
		}
		if _, err := c.read(); err != nil {
			return
		}
	}
}

// awaitAcks waits until every run that was appended is answered: a peer may stop sending and
// still read.
func (c *conn) awaitAcks() {
	c.dropSubscriptions()
	o := &c.out
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.unacked > 0 && !o.closed {
		o.room.Wait()
	}
}

// abort ends the connection at once. Anybody may call it.
func (c *conn) abort(err error) {
	o := &c.out
	o.mu.Lock()
	first := !o.closed
	o.closed = true
	o.room.Signal()
	o.mu.Unlock()
	if first && err != nil && !errors.Is(err, net.ErrClosed) {
		c.log().Debug("connection cut", "error", err)
	}
	c.hangUp()
}

// hangUp closes the socket, which ends reads and writes that are under way.
func (c *conn) hangUp() {
	if err := c.sock.net.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		c.log().Debug("close", "error", err)
	}
}

// over tells whether nothing more will be sent.
func (c *conn) over() bool {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	return c.out.closed || c.out.finishing
}

// end gives back everything that the connection holds.
func (c *conn) end() {
	c.dropSubscriptions()
	c.pumps.Wait() // what is pending goes out, or the watch cuts it
	o := &c.out
	o.mu.Lock()
	o.closed = true
	o.pending = nil
	o.dropChunks(c.server, o.chunks)
	o.mu.Unlock()
	c.hangUp()
	for _, h := range c.handles {
		h.part.LeaveDurable(&h.waiter)
	}
	if c.legacy != nil {
		c.legacy.part.LeaveDurable(&c.legacy.waiter)
		c.legacy.drop()
	}
	c.dropInput()
}

func (c *conn) log() *slog.Logger {
	l := c.server.log.With("conn", c.id, "peer", c.sock.net.RemoteAddr().String())
	if name := c.client.Load(); name != nil {
		l = l.With("client", *name)
	}
	return l
}

// serveNative reads and processes frames until the connection is over.
func (c *conn) serveNative() error {
	for {
		err := c.process()
		c.appendRuns()
		c.flush()
		if err != nil {
			return err
		}
		if !c.backpressure() {
			return c.afterFinish()
		}
		if err := c.fill(); err != nil {
			return err
		}
	}
}

// afterFinish is how a reader ends whose write side was shut by the drain, or that was cut.
func (c *conn) afterFinish() error {
	c.out.mu.Lock()
	finishing := c.out.finishing
	c.out.mu.Unlock()
	if finishing {
		c.linger()
	}
	return net.ErrClosed
}

// process handles every whole frame in the input.
//
// Errors: framing is lost, or the peer breaks the protocol.
func (c *conn) process() error {
	in := &c.in
	for {
		if c.skip > 0 {
			n := min(c.skip, uint64(in.end-in.pos))
			in.pos += int(n)
			c.skip -= n
		}
		b := in.bytes()
		n, err := c.bounds().Size(b)
		if err != nil {
			return err
		}
		if n == 0 || n > len(b) {
			return nil
		}
		h := protocol.HeaderOf(b)
		if h.Magic() == protocol.MagicProduce {
			used, err := c.produce(h, b)
			if err != nil || used == 0 {
				return err
			}
			in.pos += used
			continue
		}
		in.pos += n
		if err := c.frame(h, b[:n]); err != nil {
			return err
		}
	}
}

// bounds are the largest frames that the peer may send now.
func (c *conn) bounds() protocol.Bounds {
	if !c.greeted.Load() {
		return protocol.Bounds{Control: protocol.MaxFrameUnauthenticated, Data: protocol.MaxFrameUnauthenticated}
	}
	return protocol.Bounds{}
}

// frame handles one whole frame of any class but PRODUCE.
func (c *conn) frame(h *protocol.Header, b []byte) error {
	switch m := h.Magic(); m {
	case protocol.MagicRequest:
		c.appendRuns() // requests see what was sent before them
		return c.request(h, b)
	case protocol.MagicCredit:
		return c.credit(h)
	case protocol.MagicPing:
		var pong protocol.Header
		pong.PutPing(protocol.MagicPong, h.Timestamp(), h.Correlation())
		c.send(&pong)
		return nil
	case protocol.MagicPong:
		return nil
	case protocol.MagicData:
		return &protocol.Error{Code: protocol.BadFrame, Detail: "DATA frame outside of a PRODUCE run"}
	default:
		if m.Skippable() {
			return nil
		}
		return &protocol.Error{Code: protocol.BadFrame, Detail: m.String() + " frame from a client"}
	}
}

// send queues a frame that is only a header.
func (c *conn) send(h *protocol.Header) {
	c.out.mu.Lock()
	c.out.add(h)
	c.out.mu.Unlock()
}
