package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace-mq/millrace/broker"
	"github.com/millrace-mq/millrace/protocol"
)

// Options are the settings of a server. Zero values take the defaults named.
type Options struct {
	Name    string       // as HELLO tells it; default millrace
	Version string       // as HELLO tells it
	Log     *slog.Logger // default: discard

	Connections       int   // at a time; default 10,000
	InflightBytes     int64 // read and not yet appended, all connections; default 256 MiB, of which an eighth is for delivering
	ConnInflightBytes int64 // the same for one, raised to one frame where it needs it; default 8 MiB
	Handles           int   // of one connection; default 10,000
	Subscriptions     int   // of one connection; default 1,000

	// Legacy serves HermitMQ's protocol on the same port: "auto" (the default), "on" or "off".
	// Auto is on as long as clients need not authenticate.
	Legacy string

	Handshake time.Duration // from connect to HELLO; default 5 s
	Ping      time.Duration // a peer that was silent so long is pinged, and cut after 2.5 times that; default 10 s
	Write     time.Duration // a write that makes no progress for so long ends the connection; default 30 s
}

func (o *Options) complete() {
	o.Name = either(o.Name, "millrace")
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Connections = either(o.Connections, 10_000)
	o.InflightBytes = either(o.InflightBytes, protocol.MaxInflight)
	o.ConnInflightBytes = either(o.ConnInflightBytes, protocol.MaxConnInflight)
	o.Handles = either(o.Handles, protocol.MaxHandles)
	o.Subscriptions = either(o.Subscriptions, protocol.MaxSubscriptions)
	o.Legacy = either(o.Legacy, "auto")
	o.Handshake = either(o.Handshake, 5*time.Second)
	o.Ping = either(o.Ping, 10*time.Second)
	o.Write = either(o.Write, 30*time.Second)
}

// legacy tells whether the legacy protocol is served.
func (o *Options) legacy() bool { return o.Legacy != "off" }

func either[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// Server serves clients of one broker on any number of listeners.
//
// Ownership: safe for concurrent use. The broker is the caller's and is closed after the server.
type Server struct {
	// immutable
	broker  *broker.Broker
	options Options
	log     *slog.Logger
	buffers *buffers
	maxRead int             // bytes; how far a read buffer grows by itself
	life    context.Context // cancelled when the server closes
	cancel  context.CancelFunc
	start   time.Time

	spares   spares
	counts   counts
	tick     atomic.Int64 // ns since start, as of the last look of the watch; never 0
	draining atomic.Bool  // no new runs
	hurry    chan struct{}
	wrapTurn sync.Mutex // held by the legacy producer that wraps beyond the budget, until it appended

	mu        sync.Mutex
	conns     map[uint64]*conn
	listeners map[net.Listener]struct{}
	next      uint64
	closing   bool          // no new connections
	empty     chan struct{} // closed when closing and the last connection ended

	joined  sync.WaitGroup // accept loops and the watch
	readers sync.WaitGroup // connections
}

// New returns a server of b. Close it even when it never served.
func New(b *broker.Broker, o Options) *Server {
	o.complete()
	s := &Server{broker: b, options: o, log: o.Log, buffers: newBuffers(o.InflightBytes), start: time.Now(),
		conns: make(map[uint64]*conn), listeners: make(map[net.Listener]struct{}), empty: make(chan struct{}), hurry: make(chan struct{}, 1)}
	s.maxRead = readBuffer
	for _, c := range classes {
		if c.size <= maxReadBuffer && int64(c.size) <= o.ConnInflightBytes {
			s.maxRead = max(s.maxRead, c.size)
		}
	}
	s.life, s.cancel = context.WithCancel(context.Background())
	s.setTick()
	s.joined.Add(1)
	go s.watch()
	return s
}

// Serve accepts connections from l until the server closes. It closes l.
//
// Errors: net.ErrClosed after Shutdown or Close; what ended the listener otherwise.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return errors.Join(net.ErrClosed, l.Close())
	}
	s.listeners[l] = struct{}{}
	s.joined.Add(1)
	s.mu.Unlock()
	defer s.joined.Done()
	defer func() {
		s.mu.Lock()
		delete(s.listeners, l)
		s.mu.Unlock()
	}()
	return s.accept(l)
}

// The pauses after a failed accept: the first, and the longest.
const (
	minAcceptPause = 5 * time.Millisecond
	maxAcceptPause = time.Second
)

// accept survives a full table of files: what runs out comes back when clients leave.
func (s *Server) accept(l net.Listener) error {
	pause := minAcceptPause
	for {
		nc, err := l.Accept()
		if err == nil {
			pause = minAcceptPause
			s.admit(nc)
			continue
		}
		if s.life.Err() != nil || s.draining.Load() || errors.Is(err, net.ErrClosed) {
			return net.ErrClosed
		}
		s.counts.acceptErrors.Add(1)
		s.log.Warn("accept failed", "error", err, "pause", pause)
		select {
		case <-time.After(pause):
		case <-s.life.Done():
			return net.ErrClosed
		}
		pause = min(2*pause, maxAcceptPause)
	}
}

// admit starts a connection, or refuses it when there are too many.
func (s *Server) admit(nc net.Conn) {
	s.mu.Lock()
	switch {
	case s.closing:
		s.mu.Unlock()
		s.turnAway(nc, &protocol.Error{Code: protocol.ShuttingDown})
		return
	case len(s.conns) >= s.options.Connections:
		n := len(s.conns)
		s.mu.Unlock()
		s.turnAway(nc, &protocol.Error{Code: protocol.Quota, Detail: "connections", Actual: uint64(n) + 1,
			Limit: uint64(s.options.Connections), Setting: "limits.connections"})
		return
	}
	s.next++
	c := newConn(s, nc, s.next)
	s.conns[c.id] = c
	s.readers.Add(1)
	s.mu.Unlock()
	s.counts.accepted.Add(1)
	go s.serveConn(c)
}

// serveConn is a connection's reader, from accept to the end.
func (s *Server) serveConn(c *conn) {
	defer s.readers.Done()
	c.run()
	s.mu.Lock()
	delete(s.conns, c.id)
	if s.closing && len(s.conns) == 0 {
		close(s.empty)
	}
	s.mu.Unlock()
}

// turnAway tells a client why it is not served. The answer fits any socket buffer, so it does
// not wait.
func (s *Server) turnAway(nc net.Conn, e *protocol.Error) {
	s.counts.refusedConns.Add(1)
	detail := e.AppendTo(nil)
	var h protocol.Header
	h.PutGoAway(e.Code, 0, 0, len(detail))
	err := nc.SetWriteDeadline(time.Now().Add(minAcceptPause))
	if err == nil {
		_, err = nc.Write(append(h[:], detail...))
	}
	if err = errors.Join(err, nc.Close()); err != nil {
		s.log.Debug("turned away", "error", err)
	}
}

// Shutdown stops in order: no new connections, no new runs, GOAWAY to everybody; what was read
// is appended, what must be durable becomes so, acknowledgements and the runs that are being
// delivered go out. Connections with nothing left to say end; when ctx is over the rest is cut.
//
// Errors: ctx's, when connections were cut.
func (s *Server) Shutdown(ctx context.Context) error {
	s.draining.Store(true)
	list := s.stopAccepting()
	for _, c := range list {
		c.announceDrain(ctx)
	}
	select {
	case s.hurry <- struct{}{}:
	default:
	}
	var err error
	select {
	case <-s.empty:
	case <-ctx.Done():
		err = fmt.Errorf("server: %d connections were cut: %w", s.connections(), ctx.Err())
	}
	return errors.Join(err, s.Close())
}

// Close cuts every connection and joins everything. What was appended stays; what was not
// answered stays unanswered.
func (s *Server) Close() error {
	for _, c := range s.stopAccepting() {
		c.abort(nil)
	}
	s.cancel()
	s.buffers.wake()
	s.readers.Wait()
	s.joined.Wait()
	return nil
}

// stopAccepting closes the listeners and returns the connections that there are.
func (s *Server) stopAccepting() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.closing = true
		if len(s.conns) == 0 {
			close(s.empty)
		}
	}
	for l := range s.listeners {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			s.log.Warn("close of a listener", "error", err)
		}
	}
	list := make([]*conn, 0, len(s.conns))
	for _, c := range s.conns {
		list = append(list, c)
	}
	return list
}

func (s *Server) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// announceDrain stops deliveries behind the run that is under way and tells the client that the
// broker is stopping.
func (c *conn) announceDrain(ctx context.Context) {
	c.out.mu.Lock()
	c.out.idleSubscriptions()
	c.out.mu.Unlock()
	if !c.native.Load() {
		return
	}
	left := uint32(0)
	if deadline, ok := ctx.Deadline(); ok {
		left = uint32(min(max(0, time.Until(deadline).Milliseconds()), math.MaxUint32))
	}
	var h protocol.Header
	h.PutGoAway(protocol.ShuttingDown, left, c.lastRun.Load(), 0)
	c.send(&h)
	c.kick()
}
