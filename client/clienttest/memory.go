package clienttest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"

	"github.com/millrace-mq/millrace/protocol"
)

// Memory is a small broker without a disk: it keeps what is produced in memory and serves it.
// It stands in for the real one in examples and in tests of clients; positions by time are
// answered with the start.
//
// Bounds: none; what is produced stays.
type Memory struct {
	// immutable
	o MemoryOptions
	l net.Listener

	wg sync.WaitGroup

	mu     sync.Mutex
	topics map[string]*memoryTopic // guarded by mu
	conns  map[net.Conn]struct{}   // guarded by mu
	grown  chan struct{}           // guarded by mu: closed and replaced when something was appended
	closed bool
}

// MemoryOptions change what a Memory does.
type MemoryOptions struct {
	Partitions int  // of topics that are created on demand; 0 = 1
	Discard    bool // acknowledge what is produced and forget it
}

type memoryTopic struct {
	id    uint64
	parts []*memoryPart
}

type memoryPart struct {
	frames []protocol.Frame // stored
	end    uint64
}

// StartMemory starts a Memory on a free port of the loopback interface. Close it.
func StartMemory(o MemoryOptions) (*Memory, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &Memory{o: o, l: l, topics: make(map[string]*memoryTopic), conns: make(map[net.Conn]struct{}), grown: make(chan struct{})}
	m.wg.Add(1)
	go m.accept()
	return m, nil
}

// Addr is where it listens.
func (m *Memory) Addr() string { return m.l.Addr().String() }

// Close ends all connections and joins all goroutines.
func (m *Memory) Close() {
	m.l.Close()
	m.mu.Lock()
	if !m.closed {
		m.closed = true
		close(m.grown)
	}
	m.mu.Unlock()
	m.DropConnections()
	m.wg.Wait()
}

// DropConnections closes all connections; clients may connect again.
func (m *Memory) DropConnections() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for nc := range m.conns {
		nc.Close()
	}
}

// Records counts the records of a topic.
func (m *Memory) Records(topic string) (n uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.topics[topic]; t != nil {
		for _, p := range t.parts {
			n += p.end
		}
	}
	return n
}

func (m *Memory) accept() {
	defer m.wg.Done()
	for {
		nc, err := m.l.Accept()
		if err != nil {
			return
		}
		m.mu.Lock()
		if m.closed {
			nc.Close()
		}
		m.conns[nc] = struct{}{}
		m.mu.Unlock()
		c := &memoryConn{m: m, nc: nc, handles: make(map[uint32]*memoryPart), subs: make(map[uint32]*memorySub), gone: make(chan struct{})}
		m.wg.Add(1)
		go c.serve()
	}
}

// obtain finds or makes a topic. With mu.
func (m *Memory) obtain(name string, create bool, partitions int) (*memoryTopic, error) {
	t := m.topics[name]
	if t != nil {
		return t, nil
	}
	if !create {
		return nil, &protocol.Error{Code: protocol.UnknownTopic, Detail: name}
	}
	t = &memoryTopic{id: uint64(len(m.topics) + 1)}
	for range max(1, partitions) {
		t.parts = append(t.parts, &memoryPart{})
	}
	m.topics[name] = t
	return t, nil
}

// resolve finds a position. With mu.
func (p *memoryPart) resolve(pos protocol.Position) (uint64, error) {
	switch pos.Kind {
	case protocol.PositionEnd:
		return p.end, nil
	case protocol.PositionOffset:
		if pos.Value > p.end {
			return 0, &protocol.Error{Code: protocol.OffsetOutOfRange, Detail: fmt.Sprintf("offset %d", pos.Value), From: 0, To: p.end}
		}
		return pos.Value, nil
	case protocol.PositionLast:
		return p.end - min(p.end, pos.Value), nil
	}
	return 0, nil
}

// memoryConn is one connection.
type memoryConn struct {
	m    *Memory
	nc   net.Conn
	gone chan struct{}

	writeMu sync.Mutex // one frame at a time

	// owned by serve
	handles map[uint32]*memoryPart
	run     protocol.Header
	left    uint32
	first   uint64
	count   uint32

	subs map[uint32]*memorySub // guarded by m.mu
}

type memorySub struct {
	part   *memoryPart
	next   int // frame
	stop   uint64
	credit int64
	end    bool
}

func (c *memoryConn) serve() {
	defer c.m.wg.Done()
	r := protocol.NewReader(c.nc)
	for {
		f, err := r.Next()
		if err == nil {
			err = c.handle(f)
		}
		if err != nil {
			break
		}
	}
	close(c.gone)
	c.nc.Close()
	c.m.mu.Lock()
	delete(c.m.conns, c.nc)
	c.m.mu.Unlock()
}

func (c *memoryConn) write(b ...[]byte) error {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	bufs := net.Buffers(b)
	_, err := bufs.WriteTo(c.nc)
	return err
}

func (c *memoryConn) handle(f []byte) error {
	h := protocol.HeaderOf(f)
	switch h.Magic() {
	case protocol.MagicPing:
		var pong protocol.Header
		pong.PutPing(protocol.MagicPong, h.Timestamp(), h.Correlation())
		return c.write(pong[:])
	case protocol.MagicPong:
		return nil
	case protocol.MagicCredit:
		c.m.mu.Lock()
		if s := c.subs[h.Subscription()]; s != nil {
			s.credit += int64(h.RecordCount())
			c.m.wake()
		}
		c.m.mu.Unlock()
		return nil
	case protocol.MagicProduce:
		c.run, c.left, c.count = *h, h.RunBytes(), 0
		return nil
	case protocol.MagicData:
		return c.data(f)
	case protocol.MagicRequest:
		return c.request(h, f)
	}
	return errors.New("unexpected frame")
}

// wake wakes those who wait for something to be sent. With mu.
func (m *Memory) wake() {
	if !m.closed {
		close(m.grown)
		m.grown = make(chan struct{})
	}
}

func (c *memoryConn) data(f []byte) error {
	if uint32(len(f)) > c.left {
		return io.ErrUnexpectedEOF
	}
	p := c.handles[c.run.Handle()]
	if p == nil {
		return errors.New("unknown handle")
	}
	records := protocol.HeaderOf(f).RecordCount()
	c.m.mu.Lock()
	if c.count == 0 {
		c.first = p.end
	}
	if !c.m.o.Discard {
		stored := protocol.Frame(slices.Clone(f))
		stamp := protocol.Stamp{Timestamp: 1, Offset: p.end, Index: uint64(len(p.frames) + 1), Term: 1}
		stamp.Apply(stored)
		p.frames = append(p.frames, stored)
		c.m.wake()
	}
	p.end += uint64(records)
	c.m.mu.Unlock()
	c.count += records
	if c.left -= uint32(len(f)); c.left > 0 || c.run.Level() == protocol.LevelNone {
		return nil
	}
	c.run.PutAck(protocol.LevelWritten, protocol.OK, c.run.Handle(), c.first, c.count, 0)
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	_, err := c.nc.Write(c.run[:])
	return err
}

func (c *memoryConn) request(h *protocol.Header, f []byte) error {
	end := protocol.HeaderSize + int(h.KeySize())
	m, after, err := c.answer(h, string(f[protocol.HeaderSize:end]), f[end:])
	var payload []byte
	var status protocol.Code
	if err != nil {
		e := protocol.AsError(err)
		status, payload = e.Code, e.AppendTo(nil)
	} else if m != nil {
		payload = m.AppendTo(nil)
	}
	var out protocol.Header
	out.PutResponse(h.Opcode(), status, 0, h.Correlation(), 0, len(payload))
	if err := c.write(out[:], payload); err != nil {
		return err
	}
	if after != nil {
		after()
	}
	return nil
}

func (c *memoryConn) answer(h *protocol.Header, key string, args []byte) (m Message, after func(), err error) {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	switch h.Opcode() {
	case protocol.OpHello:
		return &protocol.HelloReply{Version: protocol.Version, MaxRun: protocol.MaxRun, PingMillis: 60_000, Server: "memory"}, nil, nil
	case protocol.OpOpen:
		m, err = c.open(key, args)
	case protocol.OpClose:
		delete(c.handles, h.RequestHandle())
	case protocol.OpSubscribe:
		return c.subscribe(h, args)
	case protocol.OpUnsubscribe:
		var u protocol.Unsubscribe
		err = u.Decode(args)
		if s := c.subs[u.Subscription]; s != nil {
			s.end = true
			delete(c.subs, u.Subscription)
			c.m.wake()
		}
	case protocol.OpStats:
		m = &protocol.Stats{Items: []protocol.Stat{{Name: "topics", Value: uint64(len(c.m.topics))}}}
	default:
		m, err = c.m.topicRequest(h.Opcode(), key, args)
	}
	return m, nil, err
}

func (c *memoryConn) open(key string, args []byte) (Message, error) {
	var o protocol.Open
	if err := o.Decode(args); err != nil {
		return nil, err
	}
	t, err := c.m.obtain(key, o.Flags&protocol.OpenNoCreate == 0, c.m.o.Partitions)
	if err != nil {
		return nil, err
	}
	if int(o.Partition) >= len(t.parts) {
		return nil, &protocol.Error{Code: protocol.UnknownPartition, Detail: fmt.Sprintf("%s/%d", key, o.Partition)}
	}
	id := uint32(len(c.handles) + 1)
	for c.handles[id] != nil {
		id++
	}
	p := t.parts[o.Partition]
	c.handles[id] = p
	return &protocol.OpenReply{Handle: id, Partitions: uint32(len(t.parts)), Floor: protocol.LevelNone, MaxMessage: protocol.DefaultMessageBytes, End: p.end}, nil
}

func (c *memoryConn) subscribe(h *protocol.Header, args []byte) (Message, func(), error) {
	var m protocol.Subscribe
	if err := m.Decode(args); err != nil {
		return nil, nil, err
	}
	p := c.handles[h.RequestHandle()]
	if p == nil {
		return nil, nil, &protocol.Error{Code: protocol.UnknownHandle}
	}
	start, err := p.resolve(m.From)
	if err != nil {
		return nil, nil, err
	}
	s := &memorySub{part: p, stop: protocol.NoStop, credit: int64(m.Credit)}
	if m.HasTo {
		if s.stop, err = p.resolve(m.To); err != nil {
			return nil, nil, err
		}
	}
	for s.next < len(p.frames) {
		if _, end := p.frames[s.next].Span(); end > start {
			break
		}
		s.next++
	}
	c.subs[m.Subscription] = s
	reply := &protocol.SubscribeReply{Start: start, Stop: s.stop, End: p.end}
	return reply, func() {
		c.m.wg.Add(1)
		go c.pump(m.Subscription, s)
	}, nil
}

// pump delivers a subscription.
func (c *memoryConn) pump(id uint32, s *memorySub) {
	defer c.m.wg.Done()
	for {
		var frames []protocol.Frame
		var n int64
		var flags protocol.DeliverFlags
		c.m.mu.Lock()
		over, grown := s.end || c.m.closed, c.m.grown
		for s.next < len(s.part.frames) && n < min(s.credit, protocol.MaxDeliver) {
			f := s.part.frames[s.next]
			if base, _ := f.Span(); base >= s.stop {
				break
			}
			frames, n, s.next = append(frames, f), n+int64(len(f)), s.next+1
		}
		s.credit -= n
		end := s.part.end
		done := s.next == len(s.part.frames) && s.stop <= end
		if s.next < len(s.part.frames) {
			base, _ := s.part.frames[s.next].Span()
			done = base >= s.stop
		}
		c.m.mu.Unlock()
		if over {
			return
		}
		if done {
			flags |= protocol.DeliverDone
		}
		if len(frames) > 0 || done {
			if err := c.write(DeliverRun(id, flags, end, frames...)); err != nil || done {
				return
			}
			continue
		}
		select {
		case <-grown:
		case <-c.gone:
			return
		}
	}
}
