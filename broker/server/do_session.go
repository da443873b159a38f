package server

import (
	"fmt"
	"strings"

	"github.com/millrace-mq/millrace/protocol"
)

// doHello agrees on a version and tells the limits.
func doHello(c *conn, r *request) (message, error) {
	if c.greeted.Load() {
		return nil, &protocol.Error{Code: protocol.BadRequest, Detail: "a second HELLO"}
	}
	var m protocol.Hello
	if err := m.Decode(r.args); err != nil {
		return nil, err
	}
	if m.MinVersion > protocol.Version || m.MaxVersion < protocol.Version {
		return nil, &protocol.Error{Code: protocol.Unsupported,
			Detail: fmt.Sprintf("versions %d to %d; this broker speaks %d", m.MinVersion, m.MaxVersion, protocol.Version)}
	}
	name := printable(m.Client + " " + m.ClientVersion)
	c.client.Store(&name)
	c.maxFrame = m.MaxFrame
	c.greeted.Store(true)
	o := &c.server.options
	return &protocol.HelloReply{
		Version: protocol.Version, MaxFrame: protocol.MaxDataFrame, MaxControl: protocol.MaxControlFrame, MaxRun: protocol.MaxRun,
		PingMillis: uint32(o.Ping.Milliseconds()), NodeID: c.server.broker.NodeID(), Clock: uint64(c.server.broker.Now()),
		Server: o.Name, ServerVersion: o.Version,
	}, nil
}

// printable cuts a text from a client to what a log line may hold.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7F {
			return '?'
		}
		return r
	}, strings.TrimSpace(s[:min(len(s), 100)]))
}

// doOpen gives a handle on a partition and creates the topic where policy allows.
func doOpen(c *conn, r *request) (message, error) {
	var m protocol.Open
	if err := m.Decode(r.args); err != nil {
		return nil, err
	}
	if unknown := m.Flags &^ protocol.OpenNoCreate; unknown != 0 {
		return nil, unknownFlags(fmt.Sprintf("0x%02x", unknown), "OPEN's arguments")
	}
	if limit := c.server.options.Handles; len(c.handles) >= limit {
		return nil, &protocol.Error{Code: protocol.Quota, Detail: "handles of the connection", Actual: uint64(limit) + 1,
			Limit: uint64(limit), Setting: "limits.handles"}
	}
	obtain := c.server.broker.Obtain
	if m.Flags&protocol.OpenNoCreate != 0 {
		obtain = c.server.broker.Topic
	}
	t, err := obtain(string(r.key))
	if err != nil {
		return nil, err
	}
	p, err := t.Partition(m.Partition)
	if err != nil {
		return nil, err
	}
	if c.handles == nil {
		c.handles = make(map[uint32]*handle)
	}
	for c.nextHandle++; c.nextHandle == 0 || c.handles[c.nextHandle] != nil; c.nextHandle++ {
	}
	d := &handle{conn: c, id: c.nextHandle, part: p}
	d.waiter.Wake = d.wake
	c.handles[d.id] = d
	s := t.Settings()
	return &protocol.OpenReply{Handle: d.id, Partitions: uint32(len(t.Partitions())), Floor: s.Floor, MaxMessage: s.MaxMessageBytes,
		Epoch: p.Epoch(), Start: p.Start(), End: p.Visible().Offset}, nil
}

// doClose gives a handle up. Its subscriptions end; runs that were appended are still answered.
func doClose(c *conn, r *request) (message, error) {
	if err := r.empty(); err != nil {
		return nil, err
	}
	d, err := c.open(r)
	if err != nil {
		return nil, err
	}
	c.dropMatching(func(s *subscription) bool { return s.handle == d.id })
	delete(c.handles, d.id)
	return nil, nil
}

// stats is the answer to STATS.
type stats struct{ protocol.Stats }

func (l *stats) items() int { return len(l.Items) }

// doStats tells the broker's numbers.
func doStats(c *conn, r *request) (message, error) {
	if err := r.empty(); err != nil {
		return nil, err
	}
	return &stats{protocol.Stats{Items: c.server.Stats()}}, nil
}
