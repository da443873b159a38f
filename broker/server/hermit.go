package server

import (
	"errors"
	"io"
	"math"

	"github.com/millrace-mq/millrace/broker"
	"github.com/millrace-mq/millrace/protocol"
	"github.com/millrace-mq/millrace/storage"
)

// serveLegacy serves HermitMQ's version 1, which the first byte announced. That protocol has no
// error frame: what cannot be served is a closed connection.
func (c *conn) serveLegacy() error {
	c.server.counts.legacyConns.Add(1)
	err := c.legacySession()
	if err != nil && !errors.Is(err, io.EOF) && c.out.unclosed() {
		c.log().Info("legacy connection ended", "error", err)
	}
	return err
}

func (o *outbox) unclosed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.closed
}

func (c *conn) legacySession() error {
	h, err := c.legacyHello()
	if err != nil {
		return err
	}
	name := "HermitMQ"
	c.client.Store(&name)
	c.greeted.Store(true)
	obtain := c.server.broker.Obtain
	if h.Kind == protocol.LegacyCommit {
		obtain = c.server.broker.Topic // nobody can have read from a topic that is not there
	}
	t, err := obtain(h.Topic)
	if err != nil {
		return err
	}
	p, err := t.Partition(h.Partition)
	if err != nil {
		return err
	}
	if h.Kind != protocol.LegacyProduce {
		if err := protocol.ValidGroup(h.Group); err != nil {
			return err
		}
	}
	switch h.Kind {
	case protocol.LegacyProduce:
		return c.legacyProduce(p)
	case protocol.LegacyConsume:
		return c.legacyConsume(p, h.Group)
	default:
		return c.legacyCommit(p, &h)
	}
}

// legacyHello reads the handshake.
func (c *conn) legacyHello() (protocol.LegacyHello, error) {
	for {
		h, n, err := protocol.ParseLegacyHello(c.in.bytes())
		if err != nil || n > 0 {
			c.in.pos += n
			return h, err
		}
		if err := c.fill(); err != nil {
			return h, err
		}
	}
}

// legacyProducer is the producing side of a legacy connection: a handle whose runs are made
// here, of the client's frames under headers of ours.
type legacyProducer struct {
	handle
	wrapped []byte   // opaque DATA frames of this read; memory of the pool
	turn    bool     // it holds the server's wrapTurn
	counts  []uint32 // recordCount of each
	one     [1]storage.Entry
}

func (c *conn) legacyProduce(p *broker.Partition) error {
	l := &legacyProducer{handle: handle{conn: c, part: p}}
	l.acks.legacy = true
	l.waiter.Wake = l.wake
	c.legacy = l
	for {
		err := l.take()
		l.drop()
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

// legacyOverhead is what an opaque DATA frame has beside the legacy frame's own bytes.
const legacyOverhead = protocol.PreludeSize + protocol.TailSize

// take wraps and appends every whole frame of the input, many with one append.
func (l *legacyProducer) take() error {
	in := &l.conn.in
	limit := l.part.Topic().Settings().MaxMessageBytes
	for {
		b := in.bytes()
		n, err := protocol.LegacySize(b, limit)
		if err != nil || n == 0 || n > len(b) {
			l.append()
			return err
		}
		if len(l.wrapped)+n+legacyOverhead > cap(l.wrapped) {
			l.append()
			l.drop()
			l.hold(len(b) + smallBuffer)
		}
		h := protocol.HeaderOf(b)
		body := protocol.HeaderSize + int(h.KeySize())
		count := max(1, h.RecordCount())
		l.wrapped, err = protocol.AppendOpaque(l.wrapped, b[protocol.HeaderSize:body], b[body:n], count)
		if err != nil {
			l.append()
			return err
		}
		l.counts = append(l.counts, count)
		in.pos += n
	}
}

// append appends what is wrapped and queues an answer for each frame.
func (l *legacyProducer) append() {
	if len(l.counts) == 0 {
		return
	}
	r := protocol.Run{Bytes: l.wrapped, Frames: uint32(len(l.counts))}
	for _, n := range l.counts {
		r.Records += uint64(n)
	}
	level := l.part.Topic().Settings().Floor
	l.one[0] = storage.Entry{Run: r}
	var end storage.End
	var err error = protocol.ShuttingDown
	if !l.conn.server.draining.Load() {
		end, err = l.part.Append(l.one[:], level >= protocol.LevelDurable)
	}
	a := ack{base: l.one[0].Base, level: level, refused: broker.CodeOf(err)}
	if err == nil && level >= protocol.LevelDurable {
		a.target = end.Index
	}
	o := &l.conn.out
	o.mu.Lock()
	for _, n := range l.counts {
		l.acks.add(o, &l.handle, a)
		a.base += uint64(n)
	}
	wait := l.acks.startWaiting()
	o.mu.Unlock()
	l.conn.server.counts.runs.Add(uint64(len(l.counts)))
	l.wrapped, l.counts = l.wrapped[:0], l.counts[:0]
	if wait {
		l.settle()
	}
}

// hold takes a wrapping buffer of n bytes. When the budget is used up, by frames that may all
// wait to be wrapped, one producer after the other goes beyond it.
func (l *legacyProducer) hold(n int) {
	s := l.conn.server
	buf := s.buffers.take(n)
	if buf == nil {
		s.wrapTurn.Lock()
		l.turn = true
		buf = s.buffers.force(n)
	}
	l.wrapped = buf[:0]
}

// drop gives the wrapping buffer back.
func (l *legacyProducer) drop() {
	s := l.conn.server
	if cap(l.wrapped) > 0 {
		s.buffers.give(l.wrapped[:cap(l.wrapped)])
		l.wrapped = nil
	}
	if l.turn {
		l.turn = false
		s.wrapTurn.Unlock()
	}
}

// putLegacyAck appends 00 + offset, or FF + 8 zero bytes, to what is pending; mu is held.
func (o *outbox) putLegacyAck(a ack) {
	if o.closed {
		return
	}
	var b [protocol.LegacyAckSize]byte
	if a.refused != nil {
		b[0] = protocol.LegacyRefused
	} else {
		for i := range 8 {
			b[1+i] = byte(a.base >> (56 - 8*i))
		}
	}
	o.pending = append(o.tail(), b[:]...)
}

// legacyCommit stores a position and says so with one byte.
func (c *conn) legacyCommit(p *broker.Partition, h *protocol.LegacyHello) error {
	if err := p.Commit(c.server.life, h.Group, h.Offset); err != nil {
		return err
	}
	c.out.mu.Lock()
	c.out.pending = append(c.out.tail(), protocol.LegacyCommitted)
	c.out.mu.Unlock()
	return nil
}

// legacyConsume pushes frames from the group's position until the peer hangs up.
func (c *conn) legacyConsume(p *broker.Partition, group string) error {
	from, err := c.legacyStart(p, group)
	if err != nil {
		return err
	}
	cursor, err := p.Seek(from)
	if err != nil {
		return err
	}
	s := &subscription{conn: c, part: p, stop: protocol.NoStop, cursor: cursor, credit: math.MaxInt64, legacy: newLegacyConsumer(c, from)}
	s.waiter.Wake = s.wake
	s.start(0)
	c.kick()
	for {
		c.in.pos, c.in.end = 0, 0
		if err := c.fill(); err != nil {
			return err
		}
		if c.over() {
			return c.afterFinish()
		}
	}
}

// legacyStart is where the group goes on. A position that retention or a lost suffix took away
// is moved to the nearest that there is, and the log says so.
func (c *conn) legacyStart(p *broker.Partition, group string) (uint64, error) {
	start, err := p.Resolve(protocol.Start)
	if err != nil {
		return 0, err
	}
	end := p.Visible().Offset
	wanted, ok := p.Committed(group)
	if !ok {
		return start, nil
	}
	from := min(max(wanted, start), max(start, end))
	if from != wanted {
		c.log().Warn("committed position is outside the log", "topic", p.Topic().Name(), "partition", p.Number(),
			"group", group, "committed", wanted, "start", start, "end", end, "from", from)
	}
	return from, nil
}
