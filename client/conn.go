package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace-mq/millrace/protocol"
)

const (
	maxCalls      = 2048    // unanswered requests of a connection
	maxControlOut = 1 << 20 // bytes of requests, pings and credits not yet written
	defaultPing   = 10 * time.Second
)

// conn is one TCP connection, from its HELLO to its end. It never reconnects.
//
// Three goroutines belong to it: read cuts what comes in, write writes all that goes out, and
// keep pings and notices silence. They end with gone; join waits for them.
type conn struct {
	// immutable
	nc    net.Conn
	addr  string
	cfg   *config
	hello protocol.HelloReply
	inbox *inbox // of a reader's connection; nil on the shared one
	wake  chan struct{}
	gone  chan struct{}
	drain chan time.Duration
	tcp   bool           // the kernel takes a little although nobody reads
	wg    sync.WaitGroup // the goroutines, and whoever writes at once

	// owned by read
	cut     *cutter
	piece   piece
	run     protocol.Header // of the DELIVER whose frames come in
	runLeft uint32          // bytes

	// owned by whoever set writing
	out outbox

	// atomic: counted so that keep notices silence, published by read and write
	reads   atomic.Uint64
	writes  atomic.Uint64
	waiting atomic.Bool // read waits for the inbox

	// guarded by mu
	mu       sync.Mutex
	control  []byte // frames to be written before runs
	ready    []*pipeline
	writing  bool // somebody owns out: the write goroutine, or whoever writes at once
	calls    map[uint64]*call
	sent     map[uint32]*fifo[*run] // unanswered runs by handle, oldest first
	unacked  int                    // runs in sent
	lastCall uint64
	lastRun  uint64
	draining bool
	why      error // of draining
	err      error
}

// call is a request that waits for its response.
type call struct {
	conn    *conn         // set when it was sent
	id      uint64        // correlation number
	done    chan struct{} // closed with the fields below set
	then    func(*call)   // instead of done: called by the connection, must be quick
	payload []byte
	pause   time.Duration // the broker asks for it before the next request
	err     error
}

func (k *call) finish(payload []byte, err error) {
	k.payload, k.err = payload, err
	if k.then != nil {
		k.then(k)
		return
	}
	close(k.done)
}

// connect dials, says HELLO and starts the goroutines.
//
// Errors: those of the dialer, the broker's refusal, or what was wrong with its answer.
func connect(ctx context.Context, cfg *config, addr string, in *inbox) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, cfg.dialTimeout)
	defer cancel()
	nc, err := cfg.dial(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("client: connect to %s: %w", addr, err)
	}
	c := &conn{
		nc: nc, addr: addr, cfg: cfg, inbox: in,
		wake: make(chan struct{}, 1), gone: make(chan struct{}), drain: make(chan time.Duration, 1),
		cut:   newCutter(nc),
		calls: make(map[uint64]*call), sent: make(map[uint32]*fifo[*run]),
	}
	stop := context.AfterFunc(ctx, func() { nc.SetDeadline(time.Unix(1, 0)) })
	err = c.greet()
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		nc.Close()
		if ctx.Err() != nil {
			err = errors.Join(ctx.Err(), err)
		}
		return nil, fmt.Errorf("client: HELLO to %s: %w", addr, err)
	}
	if c.hello.MaxControl > 0 {
		c.cut.bounds.Control = uint64(c.hello.MaxControl)
	}
	c.out.start(nc)
	_, c.tcp = nc.(*net.TCPConn)
	c.wg.Add(3)
	go c.read()
	go c.write()
	go c.keep()
	return c, nil
}

// greet sends HELLO and reads its answer.
func (c *conn) greet() error {
	m := protocol.Hello{MinVersion: protocol.Version, MaxVersion: protocol.Version, Client: c.cfg.name, ClientVersion: "1"}
	if _, err := c.nc.Write(appendRequest(nil, protocol.OpHello, 0, 0, "", m.AppendTo(nil))); err != nil {
		return err
	}
	for {
		f, err := c.cut.cut()
		if err == nil && f == nil {
			err = c.cut.fill()
		}
		if err != nil {
			return fmt.Errorf("%w (is it a millrace broker?)", err)
		}
		if f == nil {
			continue
		}
		h := protocol.HeaderOf(f)
		switch h.Magic() {
		case protocol.MagicGoAway:
			return goAwayError(f)
		case protocol.MagicResponse:
			if err := refusal(h.Status(), f[protocol.HeaderSize:]); err != nil {
				return err
			}
			if h.Opcode() != protocol.OpHello {
				return unexpected(f)
			}
			if err := c.hello.Decode(f[protocol.HeaderSize:]); err != nil {
				return err
			}
			if c.hello.Version != protocol.Version {
				return &protocol.Error{Code: protocol.Unsupported, Detail: fmt.Sprintf("broker chose protocol version %d", c.hello.Version)}
			}
			return nil
		}
	}
}

func (c *conn) interval() time.Duration {
	if c.hello.PingMillis == 0 {
		return defaultPing
	}
	return time.Duration(c.hello.PingMillis) * time.Millisecond
}

// fail ends the connection, once. Every call is answered; unanswered runs are kept by their
// pipelines, which take them back after join.
func (c *conn) fail(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = fmt.Errorf("%w: %s: %w", ErrDisconnected, c.addr, err)
	calls := c.calls
	c.calls = nil
	close(c.gone)
	c.mu.Unlock()
	c.nc.Close()
	for _, k := range calls {
		k.finish(nil, c.err)
	}
	if c.inbox != nil {
		c.inbox.fail(c.err)
	}
}

// join waits for the goroutines of a connection that failed and returns why it did.
func (c *conn) join() error {
	<-c.gone
	c.wg.Wait()
	if p := &c.piece; p.hold != nil {
		p.hold.release()
	}
	return c.err
}

// post queues control frames for writing.
func (c *conn) post(frames ...[]byte) {
	c.mu.Lock()
	for _, f := range frames {
		c.control = append(c.control, f...)
	}
	full := len(c.control) > maxControlOut
	c.mu.Unlock()
	if full { // the peer sends pings and reads nothing
		c.fail(fmt.Errorf("%d bytes of control frames cannot be written", maxControlOut))
		return
	}
	signal(c.wake)
}

// start sends a request. correlation 0 = the next number.
func (c *conn) start(k *call, op protocol.Opcode, correlation uint64, handle uint32, topic string, payload []byte) *call {
	c.mu.Lock()
	err := c.err
	if err == nil && len(c.calls) >= maxCalls {
		err = &protocol.Error{Code: protocol.Throttled, Detail: "unanswered requests of a connection", Actual: maxCalls + 1, Limit: maxCalls, Setting: "maxCalls"}
	}
	if err != nil {
		c.mu.Unlock()
		k.finish(nil, err)
		return k
	}
	if correlation == 0 {
		c.lastCall = (c.lastCall + 1) & 0x7FFFFFFF // those of subscriptions lie above
		correlation = c.lastCall
	}
	k.conn, k.id = c, correlation
	c.calls[correlation] = k
	c.control = appendRequest(c.control, op, correlation, handle, topic, payload)
	c.mu.Unlock()
	signal(c.wake)
	return k
}

// call sends a request and waits for its response.
func (c *conn) call(ctx context.Context, op protocol.Opcode, handle uint32, topic string, payload []byte) ([]byte, time.Duration, error) {
	return c.start(newCall(), op, 0, handle, topic, payload).wait(ctx)
}

func newCall() *call { return &call{done: make(chan struct{})} }

// wait returns the response. When the context ends first, a late response is dropped.
func (k *call) wait(ctx context.Context) ([]byte, time.Duration, error) {
	select {
	case <-k.done:
		return k.payload, k.pause, k.err
	case <-ctx.Done():
		if k.conn != nil {
			k.conn.answered(k.id)
			k.conn.maybeDrained()
		}
		return nil, 0, ctx.Err()
	}
}

// ping sends a PING and returns the call that its PONG ends.
func (c *conn) ping(k *call) *call {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		k.finish(nil, c.err)
		return k
	}
	c.lastCall = (c.lastCall + 1) & 0x7FFFFFFF
	id := c.lastCall | pingBit
	k.conn, k.id = c, id
	c.calls[id] = k
	c.mu.Unlock()
	c.postPing(id)
	return k
}

// Correlation numbers: requests count from 1, pings carry pingBit, subscriptions subscriptionBit
// and their number.
const (
	pingBit         = 1 << 31
	subscriptionBit = 1 << 32
)

func (c *conn) postPing(id uint64) {
	var h protocol.Header
	h.PutPing(protocol.MagicPing, uint64(time.Now().UnixNano()), id)
	c.post(h[:])
}

// keep pings an idle peer and ends the connection when nothing was received for 2.5 intervals.
func (c *conn) keep() {
	defer c.wg.Done()
	tick := time.NewTicker(max(c.interval()/2, time.Millisecond))
	defer tick.Stop()
	var drained <-chan time.Time
	var reads, writes uint64
	silent, quiet := 0, 0
	for {
		select {
		case <-c.gone:
			return
		case d := <-c.drain:
			t := time.NewTimer(d)
			defer t.Stop()
			drained = t.C
		case <-drained:
			c.fail(errDrained)
		case <-tick.C:
			silent, quiet = silent+1, quiet+1
			if n := c.reads.Load(); n != reads || c.waiting.Load() {
				reads, silent = n, 0
			}
			if n := c.writes.Load(); n != writes {
				writes, quiet = n, 0
			}
			if silent >= 5 {
				c.fail(errSilent)
			} else if quiet >= 2 {
				quiet = 0
				c.postPing(0)
			}
		}
	}
}

// appendRequest appends a REQUEST frame.
func appendRequest(dst []byte, op protocol.Opcode, correlation uint64, handle uint32, topic string, payload []byte) []byte {
	var h protocol.Header
	h.PutRequest(op, 0, 0, correlation, handle, len(topic), len(payload))
	dst = append(dst, h[:]...)
	dst = append(dst, topic...)
	return append(dst, payload...)
}

// refusal is the error that a status and its payload say; nil for success.
func refusal(status protocol.Code, payload []byte) error {
	if status == protocol.OK {
		return nil
	}
	e := new(protocol.Error)
	if err := e.Decode(status, payload); err != nil {
		return &protocol.Error{Code: status, Detail: "refused; the detail cannot be read: " + err.Error()}
	}
	return e
}

func goAwayError(f []byte) error {
	h := protocol.HeaderOf(f)
	if err := refusal(h.GoAwayStatus(), f[protocol.HeaderSize:]); err != nil && h.PayloadSize() > 0 {
		return err
	}
	return &protocol.Error{Code: h.GoAwayStatus(), Detail: "broker is going away"}
}

func unexpected(f []byte) error {
	return &protocol.Error{Code: protocol.BadFrame, Detail: fmt.Sprintf("unexpected %v from the broker", protocol.HeaderOf(f).Magic())}
}
