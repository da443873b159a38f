// Package clienttest plays brokers for tests of clients, over real TCP.
//
// A Script is played by hand: the test expects frames and sends frames, drops connections, sends
// garbage or single bytes. A Memory serves by itself, from memory.
package clienttest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-mq/millrace/protocol"
)

// patience is how long things that must happen may take on a busy machine.
const patience = 20 * time.Second

// Script is a broker that a test plays by hand. Its methods fail the test when something else
// happens than what they expect, so they belong on the test's goroutine.
type Script struct {
	// Hello is the answer to HELLO; change it before Greet.
	Hello protocol.HelloReply

	t     testing.TB
	l     net.Listener
	addr  string
	mu    sync.Mutex
	conns []net.Conn // guarded by mu
}

// Listen starts a Script on a free port of the loopback interface; it ends with the test.
func Listen(t testing.TB) *Script {
	t.Helper()
	s := &Script{t: t, addr: "127.0.0.1:0", Hello: protocol.HelloReply{Version: protocol.Version, PingMillis: 60_000,
		MaxFrame: protocol.MaxDataFrame, MaxControl: protocol.MaxControlFrame, MaxRun: protocol.MaxRun, Server: "script"}}
	s.Restart()
	t.Cleanup(func() {
		s.Stop()
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, nc := range s.conns {
			nc.Close()
		}
	})
	return s
}

// Addr is where the script listens.
func (s *Script) Addr() string { return s.addr }

// Stop refuses connections; those that there are stay.
func (s *Script) Stop() {
	if err := s.l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		s.t.Errorf("close of the listener: %v", err)
	}
}

// Restart listens again, on the same port.
func (s *Script) Restart() {
	s.t.Helper()
	l, err := net.Listen("tcp", s.addr)
	if err != nil {
		s.t.Fatalf("listen: %v", err)
	}
	s.l, s.addr = l, l.Addr().String()
}

// Accept waits for the next connection.
func (s *Script) Accept() *Conn {
	s.t.Helper()
	if err := s.l.(*net.TCPListener).SetDeadline(time.Now().Add(patience)); err != nil {
		s.t.Fatalf("accept: %v", err)
	}
	nc, err := s.l.Accept()
	if err != nil {
		s.t.Fatalf("accept: %v", err)
	}
	s.mu.Lock()
	s.conns = append(s.conns, nc)
	s.mu.Unlock()
	return &Conn{Pongs: true, t: s.t, script: s, nc: nc, r: protocol.NewReader(nc), handles: make(map[uint32]Opened)}
}

// Greet waits for the next connection and answers its HELLO.
func (s *Script) Greet() *Conn {
	s.t.Helper()
	c := s.Accept()
	c.Reply(c.Request(protocol.OpHello), &s.Hello)
	return c
}

// Conn is the broker's side of one connection.
type Conn struct {
	// Pongs answers PING frames by itself; default true.
	Pongs bool

	t       testing.TB
	script  *Script
	nc      net.Conn
	r       *protocol.Reader
	handles map[uint32]Opened
	last    uint32 // handle given
	pings   atomic.Int64
}

// Pings counts the PING frames that were read so far. Any goroutine may ask.
func (c *Conn) Pings() int64 { return c.pings.Load() }

// Opened is an OPEN that was answered.
type Opened struct {
	Topic     string
	Partition uint32
	Handle    uint32
}

// Request is a REQUEST of the client.
type Request struct {
	Header  protocol.Header
	Key     string
	Payload []byte
}

// Run is a PRODUCE run of the client.
type Run struct {
	Header protocol.Header
	Opened
	Frames  []protocol.Frame
	Records uint32
}

// Values returns the values of the run's records.
func (r *Run) Values() (values []string) {
	for _, f := range r.Frames {
		for it := protocol.Records(f); it.Next(); {
			values = append(values, string(it.Record.Value))
		}
	}
	return values
}

// Message is a payload of the protocol.
type Message interface{ AppendTo(dst []byte) []byte }

// read returns the next frame that is not a PING or PONG.
func (c *Conn) read() ([]byte, error) {
	for {
		if err := c.nc.SetReadDeadline(time.Now().Add(patience)); err != nil {
			return nil, err
		}
		f, err := c.r.Next()
		if err != nil {
			return nil, err
		}
		switch h := *protocol.HeaderOf(f); h.Magic() {
		case protocol.MagicPing:
			c.pings.Add(1)
			if c.Pongs {
				h.PutPing(protocol.MagicPong, h.Timestamp(), h.Correlation())
				if _, err := c.nc.Write(h[:]); err != nil {
					return nil, err
				}
			}
		case protocol.MagicPong:
		default:
			return f, nil
		}
	}
}

// Next returns the next frame that is not a PING or PONG.
func (c *Conn) Next() []byte {
	c.t.Helper()
	f, err := c.read()
	if err != nil {
		c.t.Fatalf("next frame: %v", err)
	}
	return append([]byte(nil), f...)
}

// Request expects a request.
func (c *Conn) Request(op protocol.Opcode) Request {
	c.t.Helper()
	f := c.Next()
	h := *protocol.HeaderOf(f)
	if h.Magic() != protocol.MagicRequest || h.Opcode() != op {
		c.t.Fatalf("got %v %v, expected %v", h.Magic(), h.Opcode(), op)
	}
	end := protocol.HeaderSize + int(h.KeySize())
	return Request{Header: h, Key: string(f[protocol.HeaderSize:end]), Payload: f[end:]}
}

// Reply answers a request; m nil = with nothing.
func (c *Conn) Reply(r Request, m Message) {
	c.t.Helper()
	var payload []byte
	if m != nil {
		payload = m.AppendTo(nil)
	}
	var h protocol.Header
	h.PutResponse(r.Header.Opcode(), protocol.OK, 0, r.Header.Correlation(), 0, len(payload))
	c.Write(h[:], payload)
}

// Refuse answers a request with an error.
func (c *Conn) Refuse(r Request, e *protocol.Error) {
	c.t.Helper()
	payload := e.AppendTo(nil)
	var h protocol.Header
	h.PutResponse(r.Header.Opcode(), e.Code, 0, r.Header.Correlation(), 0, len(payload))
	c.Write(h[:], payload)
}

// Open expects an OPEN and answers with the next handle.
func (c *Conn) Open(partitions uint32) Opened {
	c.t.Helper()
	r := c.Request(protocol.OpOpen)
	var m protocol.Open
	if err := m.Decode(r.Payload); err != nil {
		c.t.Fatalf("OPEN: %v", err)
	}
	c.last++
	o := Opened{Topic: r.Key, Partition: m.Partition, Handle: c.last}
	c.handles[o.Handle] = o
	c.Reply(r, &protocol.OpenReply{Handle: o.Handle, Partitions: partitions, Floor: protocol.LevelDurable, MaxMessage: protocol.DefaultMessageBytes})
	return o
}

// Run expects a PRODUCE run and checks its frames.
func (c *Conn) Run() Run {
	c.t.Helper()
	f := c.Next()
	h := *protocol.HeaderOf(f)
	if h.Magic() != protocol.MagicProduce {
		c.t.Fatalf("got %v, expected PRODUCE", h.Magic())
	}
	o, ok := c.handles[h.Handle()]
	if !ok {
		c.t.Fatalf("PRODUCE on handle %d, which was not opened", h.Handle())
	}
	r := Run{Header: h, Opened: o}
	for left := int(h.RunBytes()); left > 0; {
		f := c.Next()
		if _, err := protocol.CheckFrame(f, protocol.MaxMessageBytes); err != nil {
			c.t.Fatalf("frame of a run: %v", err)
		}
		left -= len(f)
		if left < 0 {
			c.t.Fatalf("a frame reaches over the end of its run")
		}
		r.Frames = append(r.Frames, f)
		r.Records += protocol.HeaderOf(f).RecordCount()
	}
	return r
}

// Ack acknowledges a run: its first record has offset base.
func (c *Conn) Ack(r Run, base uint64) {
	c.t.Helper()
	var h protocol.Header
	h.PutAck(protocol.LevelDurable, protocol.OK, r.Handle, base, r.Records, 0)
	c.Write(h[:])
}

// RefuseRun refuses a run.
func (c *Conn) RefuseRun(r Run, e *protocol.Error) {
	c.t.Helper()
	payload := e.AppendTo(nil)
	var h protocol.Header
	h.PutAck(protocol.LevelNone, e.Code, r.Handle, r.Header.Offset(), 0, len(payload))
	c.Write(h[:], payload)
}

// Subscribe expects a SUBSCRIBE and answers it.
func (c *Conn) Subscribe(reply protocol.SubscribeReply) protocol.Subscribe {
	c.t.Helper()
	m, r := c.AwaitSubscribe()
	c.Reply(r, &reply)
	return m
}

// AwaitSubscribe expects a SUBSCRIBE.
func (c *Conn) AwaitSubscribe() (protocol.Subscribe, Request) {
	c.t.Helper()
	r := c.Request(protocol.OpSubscribe)
	var m protocol.Subscribe
	if err := m.Decode(r.Payload); err != nil {
		c.t.Fatalf("SUBSCRIBE: %v", err)
	}
	return m, r
}

// Deliver sends a DELIVER run.
func (c *Conn) Deliver(sub uint32, flags protocol.DeliverFlags, watermark uint64, frames ...protocol.Frame) {
	c.t.Helper()
	c.Write(DeliverRun(sub, flags, watermark, frames...))
}

// DeliverRun makes the bytes of a DELIVER run.
func DeliverRun(sub uint32, flags protocol.DeliverFlags, watermark uint64, frames ...protocol.Frame) []byte {
	var h protocol.Header
	n := 0
	for _, f := range frames {
		n += len(f)
	}
	h.PutDeliver(sub, flags, 0, watermark, uint32(n))
	b := append(make([]byte, 0, n+len(h)), h[:]...)
	for _, f := range frames {
		b = append(b, f...)
	}
	return b
}

// GoAway sends GOAWAY.
func (c *Conn) GoAway(code protocol.Code, drain time.Duration) {
	c.t.Helper()
	var h protocol.Header
	h.PutGoAway(code, uint32(drain.Milliseconds()), 0, 0)
	c.Write(h[:])
}

// Write sends bytes as they are.
func (c *Conn) Write(parts ...[]byte) {
	c.t.Helper()
	for _, b := range parts {
		if err := c.nc.SetWriteDeadline(time.Now().Add(patience)); err != nil {
			c.t.Fatalf("write: %v", err)
		}
		if _, err := c.nc.Write(b); err != nil {
			c.t.Fatalf("write: %v", err)
		}
	}
}

// WriteSlow sends bytes one by one, each in a segment of its own.
func (c *Conn) WriteSlow(b []byte) {
	c.t.Helper()
	for i := range b {
		c.Write(b[i : i+1])
	}
}

// Drop closes the connection.
func (c *Conn) Drop() {
	c.t.Helper()
	if err := c.nc.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		c.t.Fatalf("drop: %v", err)
	}
}

// ExpectEnd expects that the client ends the connection and sends nothing more.
func (c *Conn) ExpectEnd() {
	c.t.Helper()
	f, err := c.read()
	if err == nil {
		c.t.Fatalf("got %v, expected the end", protocol.HeaderOf(f).Magic())
	}
	var late net.Error
	if errors.As(err, &late) && late.Timeout() {
		c.t.Fatalf("the client keeps the connection open")
	}
}

// AwaitEnd expects that the client ends the connection, whatever it sends before.
func (c *Conn) AwaitEnd() {
	c.t.Helper()
	buf := make([]byte, 64<<10)
	for {
		if err := c.nc.SetReadDeadline(time.Now().Add(patience)); err != nil {
			c.t.Fatalf("await the end: %v", err)
		}
		_, err := c.nc.Read(buf)
		var late net.Error
		switch {
		case err == nil:
		case errors.As(err, &late) && late.Timeout():
			c.t.Fatalf("the client keeps the connection open")
		case errors.Is(err, io.EOF) || err != nil:
			return
		}
	}
}

// Stored makes a frame as a broker would store it: records of the given values from offset base.
func Stored(base uint64, values ...string) protocol.Frame {
	var b protocol.Batch
	for _, v := range values {
		if err := b.Add(nil, []byte(v), nil); err != nil {
			panic(fmt.Sprintf("clienttest: %v", err))
		}
	}
	f := b.Seal()
	s := protocol.Stamp{Timestamp: 1, Offset: base, Index: base + 1, Term: 1}
	s.Apply(f)
	return f
}
