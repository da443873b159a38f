package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/millrace-mq/millrace/protocol"
)

// Client is the way to one broker: one connection shared by producers and requests, kept up in
// the background, and one for each reader while it reads.
//
// Ownership: safe for concurrent use. Close it; close its producers before, to lose nothing.
type Client struct {
	// immutable
	addr  string
	cfg   config
	start time.Time
	ctx   context.Context // ends with Close
	end   context.CancelFunc
	wg    sync.WaitGroup // the goroutine of keepUp

	// guarded by mu
	mu        sync.Mutex
	conn      *conn         // nil = not connected
	up        chan struct{} // closed while conn is set
	last      error         // why there is no connection
	lines     map[*pipeline]struct{}
	producers map[*Producer]struct{}
	streams   map[*conn]struct{} // connections of readers
	closed    bool
}

// Open connects to a broker at addr, host:port; "" is DefaultAddr.
//
// Errors: those of the options, all of them joined; ErrAddr for an address of another form; why no connection could be made within ctx
// and DialTimeout. After Open the client reconnects by itself.
func Open(ctx context.Context, addr string, opts ...Option) (*Client, error) {
	cfg, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	if addr == "" {
		addr = DefaultAddr
	}
	if err := checkAddr(addr); err != nil && !cfg.anyAddr {
		return nil, err
	}
	c := &Client{
		addr: addr, cfg: cfg, start: time.Now(), up: make(chan struct{}),
		lines: make(map[*pipeline]struct{}), producers: make(map[*Producer]struct{}), streams: make(map[*conn]struct{}),
	}
	first, err := connect(ctx, &c.cfg, addr, nil)
	if err != nil {
		return nil, err
	}
	c.ctx, c.end = context.WithCancel(context.WithoutCancel(ctx))
	c.wg.Add(1)
	c.attach(first)
	go c.keepUp(first)
	return c, nil
}

// checkAddr accepts host:port with a numeric port.
func checkAddr(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		var form *net.AddrError
		if errors.As(err, &form) {
			return fmt.Errorf("%w: %q: %s; write host:port, as in %s", ErrAddr, addr, form.Err, DefaultAddr)
		}
		return fmt.Errorf("%w: %w", ErrAddr, err)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%w: %q: port %q is no number from 1 to 65535", ErrAddr, addr, port)
	}
	return nil
}

// now is the client's clock in ns: it counts from Open and never jumps.
func (c *Client) now() int64 { return int64(time.Since(c.start)) }

func (c *Client) newBackoff() backoff { return backoff{low: c.cfg.backoffLow, high: c.cfg.backoffHigh} }

// Close ends everything: readers' iterators yield ErrClosed, requests fail, and what producers
// that were not closed still hold is resolved as not sent or unknown.
//
// Errors: *UndeliveredError of producers that were not closed.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	var producers []*Producer
	for p := range c.producers {
		producers = append(producers, p)
	}
	var conns []*conn
	for s := range c.streams {
		conns = append(conns, s)
	}
	c.mu.Unlock()
	now, cancel := context.WithCancel(context.Background())
	cancel()
	var errs []error
	for _, p := range producers {
		errs = append(errs, p.Close(now))
	}
	c.end()
	c.mu.Lock()
	cn := c.conn
	c.mu.Unlock()
	if cn != nil {
		cn.fail(ErrClosed)
	}
	c.wg.Wait()
	for _, s := range conns {
		s.fail(ErrClosed)
		s.wg.Wait()
	}
	return errors.Join(errs...)
}

// keepUp keeps the shared connection up until Close.
func (c *Client) keepUp(cn *conn) {
	defer c.wg.Done()
	pause := c.newBackoff()
	for {
		since := c.now()
		err := cn.join()
		c.detach(cn, err)
		if c.now()-since > int64(c.cfg.backoffHigh) { // it was worth something
			pause.reset()
		}
		for {
			if c.ctx.Err() != nil {
				return
			}
			d := pause.next()
			c.report(err, d)
			if !c.pause(c.ctx, d) {
				return
			}
			if cn, err = connect(c.ctx, &c.cfg, c.addr, nil); err == nil {
				break
			}
			c.mu.Lock()
			c.last = err
			c.mu.Unlock()
		}
		c.attach(cn)
		if c.ctx.Err() != nil { // Close came when there was no connection to end
			cn.fail(ErrClosed)
		}
	}
}

// pause waits; false when ctx or the client ended.
func (c *Client) pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-c.ctx.Done():
	}
	return false
}

// report tells log and hook about a connection that ended or could not be made.
func (c *Client) report(err error, retryIn time.Duration) {
	c.cfg.log.Warn("not connected", "addr", c.addr, "err", err, "retry_in", retryIn)
	if h := c.cfg.hooks.Disconnected; h != nil {
		h(c.addr, err, retryIn)
	}
}

// refused tells the hook that messages were refused for a reason that may pass.
func (c *Client) refused(topic string, partition uint32, err error) {
	if h := c.cfg.hooks.Refused; h != nil && !errors.Is(err, ErrDisconnected) {
		h(topic, partition, err)
	}
}

// greeted tells log and hook about a new connection.
func (c *Client) greeted(cn *conn) {
	c.cfg.log.Info("connected", "addr", c.addr, "server", cn.hello.Server, "version", cn.hello.ServerVersion)
	if h := c.cfg.hooks.Connected; h != nil {
		h(c.addr)
	}
}

// attach makes cn the shared connection.
func (c *Client) attach(cn *conn) {
	c.mu.Lock()
	c.conn, c.last = cn, nil
	close(c.up)
	lines := c.allLines()
	c.mu.Unlock()
	c.greeted(cn)
	for _, l := range lines {
		l.connected(cn)
	}
}

// detach takes the shared connection away after it was joined.
func (c *Client) detach(cn *conn, err error) {
	c.mu.Lock()
	c.conn, c.last, c.up = nil, err, make(chan struct{})
	lines := c.allLines()
	c.mu.Unlock()
	for _, l := range lines {
		l.lost(cn, err)
	}
}

// allLines lists the pipelines. With mu.
func (c *Client) allLines() (lines []*pipeline) {
	for l := range c.lines {
		lines = append(lines, l)
	}
	return lines
}

// register offers l the shared connection, now and whenever there is a new one.
func (c *Client) register(l *pipeline) {
	c.mu.Lock()
	c.lines[l] = struct{}{}
	cn := c.conn
	c.mu.Unlock()
	if cn != nil {
		l.connected(cn)
	}
}

// forget ends what register began.
func (c *Client) forget(l *pipeline) {
	c.mu.Lock()
	delete(c.lines, l)
	c.mu.Unlock()
}

// adopt enters a producer, to be closed with the client.
func (c *Client) adopt(p *Producer) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	c.producers[p] = struct{}{}
	return nil
}

func (c *Client) disown(p *Producer) {
	c.mu.Lock()
	delete(c.producers, p)
	c.mu.Unlock()
}

// trouble is why there is no connection; nil while there is one.
func (c *Client) trouble() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// connection waits for the shared connection.
func (c *Client) connection(ctx context.Context) (*conn, error) {
	for {
		c.mu.Lock()
		cn, up, closed := c.conn, c.up, c.closed
		c.mu.Unlock()
		if closed {
			return nil, ErrClosed
		}
		if cn != nil {
			return cn, nil
		}
		select {
		case <-up:
		case <-c.ctx.Done():
			return nil, ErrClosed
		case <-ctx.Done():
			return nil, c.late(ctx, c.trouble())
		}
	}
}

// late is the error of a call whose context ended, with what went wrong before.
func (c *Client) late(ctx context.Context, last error) error {
	if last == nil {
		return ctx.Err()
	}
	return fmt.Errorf("%w (last: %w)", ctx.Err(), last)
}

// request asks the broker until it answers, ctx ends or RequestTimeout passes. What may be sent
// again is, after a lost connection or a refusal that says so.
func (c *Client) request(ctx context.Context, op protocol.Opcode, topic string, payload []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.requestTimeout)
	defer cancel()
	pause := c.newBackoff()
	var last error
	for {
		cn, err := c.connection(ctx)
		if err != nil {
			return nil, fmt.Errorf("client: %v: %w", op, err)
		}
		reply, wait, err := cn.call(ctx, op, 0, topic, payload)
		switch {
		case err == nil:
			return reply, nil
		case ctx.Err() != nil:
			return nil, fmt.Errorf("client: %v: %w", op, c.late(ctx, last))
		case errors.Is(err, ErrDisconnected) && !repeatable(op):
			return nil, fmt.Errorf("client: %v: %w: %w", op, protocol.UnknownOutcome, err)
		case !retriable(err):
			return nil, fmt.Errorf("client: %v: %w", op, err)
		}
		last = err
		if !c.pause(ctx, max(wait, pause.next())) {
			if c.ctx.Err() != nil {
				return nil, ErrClosed
			}
			return nil, fmt.Errorf("client: %v: %w", op, c.late(ctx, last))
		}
	}
}
