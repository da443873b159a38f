package server

import (
	"fmt"
	"time"

	"github.com/millrace-mq/millrace/protocol"
)

const (
	lingerTime = time.Second          // how long a refused peer has to hang up
	drainLook  = 2 * time.Millisecond // between two looks at connections that are to end
	minLook    = 2 * time.Millisecond
	maxLook    = 250 * time.Millisecond
)

// watch is the one goroutine that knows the time for all connections: it cuts those that say no
// HELLO, are silent, or do not take what they are sent, and ends those that have nothing left
// to say while the server drains. No connection needs a timer of its own.
func (s *Server) watch() {
	defer s.joined.Done()
	look := min(max(min(s.options.Handshake, s.options.Ping, s.options.Write)/20, minLook), maxLook)
	tick := time.NewTicker(look)
	defer tick.Stop()
	var list []*conn
	for {
		select {
		case <-s.life.Done():
			return
		case <-s.hurry:
			tick.Reset(drainLook)
		case <-tick.C:
		}
		now := s.setTick()
		list = s.snapshot(list[:0])
		for _, c := range list {
			c.look(now)
		}
		clear(list)
		if s.buffers.waiting.Load() > 0 {
			s.buffers.wake()
		}
	}
}

// setTick publishes the time, ns since the server started. It is never 0.
func (s *Server) setTick() int64 {
	now := max(1, int64(time.Since(s.start)))
	s.tick.Store(now)
	return now
}

func (s *Server) snapshot(list []*conn) []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		list = append(list, c)
	}
	return list
}

// look judges one connection.
func (c *conn) look(now int64) {
	o := &c.server.options
	if since := c.stalled.Load(); since != 0 && now-since > int64(o.Write) {
		c.server.counts.cutStalled.Add(1)
		c.abort(fmt.Errorf("server: the peer took nothing for %s", o.Write))
		return
	}
	if since := c.lingers.Load(); since != 0 {
		if now-since > int64(lingerTime) {
			c.hangUp()
		}
		return
	}
	if c.server.draining.Load() {
		c.endIfDone(now)
		return
	}
	if !c.greeted.Load() {
		if now-c.born > int64(o.Handshake) {
			c.server.counts.cutSilent.Add(1)
			c.abort(fmt.Errorf("server: no HELLO within %s", o.Handshake))
		}
		return
	}
	silent := now - c.heard.Load()
	switch {
	case !c.native.Load(): // the legacy protocol has no ping; TCP's keepalive finds dead peers
	case silent > int64(o.Ping)*5/2 && now-c.taken.Load() > int64(o.Ping)*5/2: // one that is busy reading lives
		c.server.counts.cutSilent.Add(1)
		c.abort(fmt.Errorf("server: nothing heard for %s", time.Duration(silent)))
	case silent <= int64(o.Ping):
		c.pinged = false
	case !c.pinged:
		c.pinged = true
		var h protocol.Header
		h.PutPing(protocol.MagicPing, uint64(now), 0)
		c.send(&h)
		c.kick()
	}
}

// quietLooks is how often in a row a draining connection must be found idle: what arrived just
// before may not have woken its reader yet.
const quietLooks = 5

// endIfDone ends a connection that has nothing left to say while the server drains.
func (c *conn) endIfDone(now int64) {
	if c.busy.Load() {
		c.quiet = 0
		return
	}
	if c.quiet++; c.quiet < quietLooks {
		return
	}
	o := &c.out
	o.mu.Lock()
	done := o.unacked == 0 && len(o.pending) == 0 && !o.owned && !o.closed && !o.finishing
	o.mu.Unlock()
	if done {
		c.lingers.Store(now)
		c.finish()
	}
}
