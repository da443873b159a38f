package server

import (
	"fmt"
	"net"
	"strconv"

	"github.com/millrace-mq/millrace/protocol"
	"github.com/millrace-mq/millrace/storage"
)

// copyBelow is the size of a run, in bytes, below which reading it and writing it together with
// its header costs less than sendfile (measured break-even 12 KiB).
const copyBelow = 12 << 10

// deliver sends at most one run of s; the owner of the write side calls it. Afterwards s is
// ready again, parked, dry or gone.
//
// Errors: those of the socket; the stream is broken then.
func (c *conn) deliver(s *subscription) error {
	o := &c.out
	o.mu.Lock()
	credit, expired, gone := s.credit, s.expired, s.gone
	if !gone && credit <= 0 && s.cursor.Offset < s.stop {
		s.dry = true
		o.mu.Unlock()
		return nil
	}
	o.mu.Unlock()
	if gone {
		return nil
	}
	if s.parked {
		s.part.LeaveVisible(&s.waiter)
		s.parked = false
	}
	if s.legacy != nil {
		return c.deliverLegacy(s)
	}
	seen, before := s.part.Visible(), s.cursor.Offset
	section, err := s.part.Next(&s.cursor, s.stop, min(credit, protocol.MaxDeliver, s.maxFrame))
	if err == nil && section.Size > s.maxFrame { // one frame alone, or it would have been cut
		section.Release()
		err = &protocol.Error{Code: protocol.TooLarge, Detail: "frame at offset " + strconv.FormatUint(before, 10), Actual: uint64(section.Size),
			Limit: uint64(s.maxFrame), Setting: "maxFrame of HELLO", From: before, To: s.cursor.Offset}
	}
	if err != nil {
		s.endWith(err)
		return nil
	}
	done := s.cursor.Offset >= s.stop
	switch {
	case section.Size == 0 && (done || s.oneShot && expired):
		return c.sendEmpty(s, done)
	case section.Size == 0:
		c.parkSubscription(s, seen)
		return nil
	case s.cursor.Offset == before: // control records only, which a client has no use for
		section.Release()
		c.again(s)
		return nil
	}
	return c.sendRun(s, &section, done || s.oneShot)
}

// again puts s at the end of the ready list.
func (c *conn) again(s *subscription) {
	c.out.mu.Lock()
	c.out.enqueue(s)
	c.out.mu.Unlock()
}

// parkSubscription waits for the visible end to move beyond seen.
func (c *conn) parkSubscription(s *subscription, seen storage.End) {
	parked, err := s.part.AwaitVisible(&s.waiter, seen)
	switch {
	case err != nil:
		s.endWith(err)
		return
	case !parked:
		c.again(s)
		return
	}
	s.parked = true
	c.out.mu.Lock()
	gone := s.gone
	c.out.mu.Unlock()
	if gone { // it was removed while it parked
		s.part.LeaveVisible(&s.waiter)
	}
}

// sendEmpty tells the client that the subscription is over although nothing is sent.
func (c *conn) sendEmpty(s *subscription, atStop bool) error {
	end := s.part.Visible().Offset
	flags := protocol.DeliverDone
	if !atStop || s.cursor.Offset >= end {
		flags |= protocol.DeliverEnd
	}
	var h protocol.Header
	h.PutDeliver(s.id, flags, uint16(s.part.Epoch()), end, 0)
	c.out.mu.Lock()
	first := s.remove()
	if first {
		c.out.add(&h)
	}
	c.out.mu.Unlock()
	if first {
		s.release()
	}
	return nil
}

// sendRun sends one section as a DELIVER run and takes its size from the credit.
func (c *conn) sendRun(s *subscription, section *storage.Section, last bool) error {
	size, end := section.Size, s.part.Visible().Offset
	var flags protocol.DeliverFlags
	if s.cursor.Offset >= end {
		flags |= protocol.DeliverEnd
	}
	if last {
		flags |= protocol.DeliverDone
	}
	c.sendHead.PutDeliver(s.id, flags, uint16(s.part.Epoch()), end, uint32(size))
	err := c.sendSection(c.sendHead[:], section, 0, size)
	section.Release()
	if err != nil {
		return err
	}
	c.server.counts.delivers.Add(1)
	c.taken.Store(c.server.tick.Load())
	o := &c.out
	o.mu.Lock()
	s.credit -= size
	first := last && s.remove()
	if !last {
		o.enqueue(s)
	}
	o.mu.Unlock()
	if first {
		s.release()
	}
	return nil
}

// sendSection sends head and then size bytes of the section from skip on: together from a
// buffer when they are few, else head first and the bytes straight from the file. While the
// socket takes nothing no buffer is held, except where there is no file to send from.
//
// Ownership: the section stays the caller's. Errors: those of socket and disk; head or a part of
// the bytes may have gone out, so the connection must not carry anything else.
func (c *conn) sendSection(head []byte, section *storage.Section, skip, size int64) error {
	fd, ok := section.File().Fd()
	if !ok || !c.direct() {
		return c.copySection(head, section, skip, size)
	}
	sent := 0
	if size < copyBelow {
		var err error
		if sent, err = c.copyNow(head, section, skip, size); err != nil || sent == len(head)+int(size) {
			return err
		}
	}
	if sent < len(head) {
		if err := c.writeMore(head[sent:]); err != nil {
			return err
		}
		sent = len(head)
	}
	done := int64(sent - len(head))
	return c.sendfile(fd, section.Pos()+skip+done, size-done)
}

// copyNow sends what the socket takes at once of head and size bytes of the section, and tells
// how much that was: 0 also when there is no buffer. The rest can come from the file.
func (c *conn) copyNow(head []byte, section *storage.Section, skip, size int64) (sent int, err error) {
	buf := c.server.buffers.takeOut(copyBuffer)
	if buf == nil {
		return 0, nil
	}
	defer c.server.buffers.giveOut(buf)
	n := copy(buf, head)
	end := n + int(size)
	if err := readSection(section, buf[n:end], skip); err != nil {
		return 0, err
	}
	sent, err = c.writeNow(buf[:end])
	c.server.counts.copyBytes.Add(uint64(max(0, sent-n)))
	return sent, err
}

// copySection is sendSection where nothing can be sent from the file. It waits for a buffer.
func (c *conn) copySection(head []byte, section *storage.Section, skip, size int64) error {
	want := copyBuffer
	if int64(len(head))+size > copyBuffer {
		want = readBuffer
	}
	buf := c.server.buffers.takeOut(want)
	for ; buf == nil; buf = c.server.buffers.takeOut(want) {
		if !c.server.buffers.awaitOut(want, c.over) {
			return net.ErrClosed
		}
	}
	defer c.server.buffers.giveOut(buf)
	n := copy(buf, head)
	for {
		chunk := min(size, int64(len(buf)-n))
		if err := readSection(section, buf[n:n+int(chunk)], skip); err != nil {
			return err
		}
		c.server.counts.copyBytes.Add(uint64(chunk))
		if err := c.write(buf[:n+int(chunk)]); err != nil {
			return err
		}
		skip, size, n = skip+chunk, size-chunk, 0
		if size == 0 {
			return nil
		}
	}
}

// readSection fills b from the section's byte pos on.
func readSection(section *storage.Section, b []byte, pos int64) error {
	if n, err := section.File().ReadAt(b, section.Pos()+pos); n < len(b) {
		return fmt.Errorf("server: %d of %d bytes of a section at %d: %w", n, len(b), section.Pos()+pos, err)
	}
	return nil
}
