package server

import (
	"unsafe"

	"github.com/millrace-mq/millrace/broker"
	"github.com/millrace-mq/millrace/protocol"
)

// ack is the answer to one run.
type ack struct {
	target   uint64 // index that must be durable first; 0 = none
	base     uint64 // offset given
	sequence uint64 // of the run
	records  uint32
	level    protocol.Level
	refused  *protocol.Error
}

// acks is the answers of one handle that wait for the disk, in the order of their runs. One
// that waits for nothing waits behind those before it. Guarded by the outbox's mu.
//
// Bounds: it holds memory only for what waits; the outbox counts it against the budget.
type acks struct {
	head, tail  *ackChunk
	first, last int // of head, the first answer; of tail, behind the last one
	n           int
	waiting     bool // somebody waits for the first one's target, or is about to
	legacy      bool // 9 bytes instead of a frame
}

// ackChunk is a stretch of a queue of answers.
type ackChunk struct {
	list [50]ack
	next *ackChunk
}

const ackChunkSize = int64(unsafe.Sizeof(ackChunk{})) // bytes

// add answers at once when nothing is before a and it waits for nothing, else queues it.
func (q *acks) add(o *outbox, d *handle, a ack) {
	if q.n == 0 && a.target == 0 {
		q.put(o, d.id, a)
		return
	}
	if q.tail == nil || q.last == len(q.tail.list) {
		chunk := d.conn.server.spares.chunk()
		d.conn.server.buffers.used.Add(ackChunkSize)
		o.chunks++
		if q.tail == nil {
			q.head, q.first = chunk, 0
		} else {
			q.tail.next = chunk
		}
		q.tail, q.last = chunk, 0
	}
	q.tail.list[q.last] = a
	q.last++
	q.n++
	o.unacked++
}

// peek is the first answer; there is one.
func (q *acks) peek() *ack { return &q.head.list[q.first] }

// pop takes the first answer.
func (q *acks) pop(o *outbox, s *Server) ack {
	a := *q.peek()
	*q.peek() = ack{}
	q.first++
	q.n--
	o.unacked--
	if q.n == 0 || q.first == len(q.head.list) {
		chunk := q.head
		if q.head, q.first = chunk.next, 0; q.head == nil {
			q.tail = nil
		}
		chunk.next = nil
		s.spares.keepChunk(chunk)
		o.dropChunks(s, 1)
	}
	return a
}

// dropChunks gives the memory of n chunks back to the budget; mu is held.
func (o *outbox) dropChunks(s *Server, n int) {
	n = min(n, o.chunks) // 0 once the connection ended
	o.chunks -= n
	s.buffers.used.Add(-int64(n) * ackChunkSize)
}

// put writes the answer into what is pending.
func (q *acks) put(o *outbox, id uint32, a ack) {
	if q.legacy {
		o.putLegacyAck(a)
	} else {
		o.putAck(id, a)
	}
}

// startWaiting is true when the caller has to call settle: answers wait and nobody sees to it.
func (q *acks) startWaiting() bool {
	if q.n == 0 || q.waiting {
		return false
	}
	q.waiting = true
	return true
}

// putAck appends an ACK frame to what is pending; mu is held.
func (o *outbox) putAck(id uint32, a ack) {
	if o.closed {
		return
	}
	var h protocol.Header
	if a.refused == nil {
		h.PutAck(a.level, protocol.OK, id, a.base, a.records, 0)
		o.pending = append(o.tail(), h[:]...)
		return
	}
	at := len(o.pending)
	o.pending = a.refused.AppendTo(append(o.tail(), h[:]...))
	protocol.HeaderOf(o.pending[at:]).PutAck(protocol.LevelNone, a.refused.Code, id, a.sequence, 0, len(o.pending)-at-protocol.HeaderSize)
}

// settle sends every answer whose records are durable and parks for the next one. It runs in
// the reader after an append, then as the waiter's Wake in the disk's syncer; acks.waiting sees
// to it that only one of them does.
func (d *handle) settle() {
	o := &d.conn.out
	for {
		durable, err := d.part.DurableIndex()
		o.mu.Lock()
		for d.acks.n > 0 {
			if next := d.acks.peek(); next.target > durable {
				if err == nil {
					break
				}
				next.refused = broker.CodeOf(err)
			}
			d.acks.put(o, d.id, d.acks.pop(o, d.conn.server))
		}
		o.room.Signal()
		if d.acks.n == 0 {
			d.acks.waiting = false
			o.mu.Unlock()
			return
		}
		target := d.acks.peek().target
		o.mu.Unlock()
		parked, err := d.part.AwaitDurable(&d.waiter, target)
		if err != nil {
			d.conn.abort(err)
			return
		}
		if parked {
			return
		}
	}
}

// wake is the waiter's Wake.
func (d *handle) wake() {
	d.settle()
	d.conn.kick()
}
