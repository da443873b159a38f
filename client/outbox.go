package client

import (
	"net"

	"github.com/millrace-mq/millrace/protocol"
)

const (
	writeSize   = 1 << 20  // bytes of one write; then control frames have their turn
	scratchSize = 64 << 10 // bytes; small frames are gathered so that they need no iovec each
	smallFrame  = 2 << 10  // bytes
	maxVec      = 1024     // buffers of one writev
)

// outbox gathers what one write sends. Large frames are written from where they lie.
//
// Ownership: whoever owns the writing of a connection. What was added must stay unchanged until
// flush returns.
type outbox struct {
	nc      net.Conn
	scratch []byte
	tail    int // start of the scratch bytes that no buffer of vec covers yet
	vec     [][]byte
	bufs    net.Buffers // a field so that WriteTo does not move it to the heap
	size    int

	control []byte      // the buffer that conn.control was swapped with
	ready   []*pipeline // likewise
	none    []*run      // of level none: done when they are written
}

func (o *outbox) start(nc net.Conn) {
	o.nc = nc
	o.vec = make([][]byte, 0, maxVec)
}

// add appends b to what is to be written.
func (o *outbox) add(b []byte) error {
	if len(o.vec) >= maxVec-2 || len(b) <= smallFrame && len(o.scratch)+len(b) > scratchSize {
		if err := o.flush(); err != nil {
			return err
		}
	}
	o.size += len(b)
	if len(b) <= smallFrame {
		if o.scratch == nil {
			o.scratch = make([]byte, 0, scratchSize)
		}
		o.scratch = append(o.scratch, b...)
		return nil
	}
	o.closeScratch()
	o.vec = append(o.vec, b)
	return nil
}

// closeScratch makes a buffer of the scratch bytes added since the last one.
func (o *outbox) closeScratch() {
	if len(o.scratch) > o.tail {
		o.vec = append(o.vec, o.scratch[o.tail:])
		o.tail = len(o.scratch)
	}
}

// flush writes what was added.
func (o *outbox) flush() error {
	o.closeScratch()
	if o.size == 0 {
		return nil
	}
	var err error
	if len(o.vec) == 1 {
		_, err = o.nc.Write(o.vec[0])
	} else {
		o.bufs = o.vec
		_, err = o.bufs.WriteTo(o.nc)
	}
	clear(o.vec)
	o.vec, o.scratch, o.tail, o.size = o.vec[:0], o.scratch[:0], 0, 0
	return err
}

// enqueue marks a pipeline as having something to send. When nothing is unanswered on the
// connection its socket is empty and takes a run at once: with now, the caller writes it, which
// saves the way over another goroutine.
func (c *conn) enqueue(l *pipeline, now bool) {
	c.mu.Lock()
	c.ready = append(c.ready, l)
	now = now && c.tcp && !c.writing && c.unacked == 0 && len(c.ready) == 1 && len(c.control) == 0 && c.err == nil
	if now {
		c.writing = true
		c.wg.Add(1) // before err is set, so before anybody waits
	}
	c.mu.Unlock()
	if !now {
		signal(c.wake)
		return
	}
	defer c.wg.Done()
	_, err := c.writeReady()
	c.disown(err)
}

// own takes the outbox; false when somebody has it, who will wake the write goroutine again.
func (c *conn) own() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writing {
		return false
	}
	c.writing = true
	return true
}

// disown gives the outbox up and sees to it that what came meanwhile is written.
func (c *conn) disown(err error) {
	c.mu.Lock()
	c.writing = false
	more := len(c.ready)+len(c.control) > 0
	c.mu.Unlock()
	if err != nil {
		c.fail(err)
	} else if more {
		signal(c.wake)
	}
}

// write sends whatever is there whenever it was woken, until the connection ends. While one
// write is under way, what comes meanwhile gathers for the next.
func (c *conn) write() {
	defer c.wg.Done()
	for {
		select {
		case <-c.wake:
		case <-c.gone:
			return
		}
		if !c.own() {
			continue
		}
		more, err := true, error(nil)
		for more && err == nil {
			more, err = c.writeReady()
		}
		c.disown(err)
		if err != nil {
			return
		}
	}
}

// writeReady writes the control frames and one round of the ready pipelines; false when there
// were none.
func (c *conn) writeReady() (bool, error) {
	o := &c.out
	c.mu.Lock()
	o.control, c.control = c.control, o.control[:0]
	o.ready, c.ready = c.ready, o.ready[:0]
	draining, over := c.draining, c.err != nil
	c.mu.Unlock()
	if over || len(o.control)+len(o.ready) == 0 {
		return false, nil
	}
	if err := o.add(o.control); err != nil {
		return false, err
	}
	for _, l := range o.ready {
		r, more := l.take(c, draining)
		if more { // next round, so that control frames and other pipelines have their turn
			c.enqueue(l, false)
		}
		if r == nil {
			continue
		}
		if err := c.send(r); err != nil {
			return false, err
		}
	}
	err := c.flush()
	clear(o.ready)
	return true, err
}

// send enters a run among the unanswered ones of its handle and adds it to the outbox.
func (c *conn) send(r *run) error {
	c.mu.Lock()
	c.lastRun++
	if r.level != protocol.LevelNone {
		q := c.sent[r.handle]
		if q == nil {
			q = new(fifo[*run])
			c.sent[r.handle] = q
		}
		q.push(r)
		c.unacked++
	}
	r.header.PutProduce(r.level, r.handle, c.lastRun, uint32(r.size))
	c.mu.Unlock()
	if r.level == protocol.LevelNone {
		c.out.none = append(c.out.none, r)
	}
	if err := c.out.add(r.header[:]); err != nil {
		return err
	}
	for _, b := range r.batches {
		if err := c.out.add(b.sealed); err != nil {
			return err
		}
	}
	if c.out.size >= writeSize {
		return c.flush()
	}
	return nil
}

// flush writes the outbox. Runs of level none are done with it.
func (c *conn) flush() error {
	c.writes.Add(1)
	if err := c.out.flush(); err != nil {
		return err
	}
	for _, r := range c.out.none {
		r.line.acked(r, NoOffset, protocol.LevelNone)
	}
	clear(c.out.none)
	c.out.none = c.out.none[:0]
	return nil
}
