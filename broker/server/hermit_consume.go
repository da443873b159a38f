package server

import (
	"fmt"

	"github.com/millrace-mq/millrace/protocol"
	"github.com/millrace-mq/millrace/storage"
)

// legacyConsumer is what a subscription of the legacy protocol needs beside its cursor.
type legacyConsumer struct {
	from   uint64 // records before it are not sent
	warned bool   // that something cannot be sent to a legacy consumer
}

// legacyWindow is how much of a section is read at a time, bytes. An opaque frame that does
// not fit is sent from the file.
const legacyWindow = 64 << 10

// deliverLegacy is deliver for a legacy consumer.
func (c *conn) deliverLegacy(s *subscription) error {
	seen := s.part.Visible()
	section, err := s.part.Next(&s.cursor, s.stop, protocol.MaxDeliver)
	if err != nil {
		c.log().Info("legacy consumer stopped", "error", err)
		return err
	}
	if section.Size == 0 {
		c.parkSubscription(s, seen)
		return nil
	}
	w := legacyWriter{conn: c, to: s.legacy, section: &section,
		window: c.server.buffers.force(legacyWindow), out: c.server.buffers.force(legacyWindow)}
	err = w.run()
	c.server.buffers.give(w.window)
	c.server.buffers.give(w.out)
	section.Release()
	if err != nil {
		c.log().Warn("legacy delivery failed", "error", err)
		return err
	}
	c.server.counts.delivers.Add(1)
	c.again(s)
	return nil
}

// legacyWriter turns one section of stored frames into legacy frames.
type legacyWriter struct {
	conn    *conn
	to      *legacyConsumer
	section *storage.Section
	window  []byte // read from the section
	out     []byte // legacy frames that are not yet sent: out[:n]
	n       int
}

func (w *legacyWriter) run() error {
	for pos := int64(0); pos < w.section.Size; {
		b := w.window[:min(int64(len(w.window)), w.section.Size-pos)]
		if err := w.read(b, pos); err != nil {
			return err
		}
		used, err := w.whole(b)
		if err == nil && used == 0 {
			used, err = w.large(b, pos)
		}
		if err != nil {
			return err
		}
		pos += used
	}
	return w.flush()
}

func (w *legacyWriter) read(b []byte, pos int64) error {
	if n, err := w.section.File().ReadAt(b, w.section.Pos()+pos); n < len(b) {
		return fmt.Errorf("server: %d of %d bytes of a section: %w", n, len(b), err)
	}
	return nil
}

// whole sends every frame that lies whole in b and returns their size.
func (w *legacyWriter) whole(b []byte) (int64, error) {
	used := 0
	for used < len(b) {
		n, err := protocol.SizeStored(b[used:], protocol.MaxDataFrame)
		if err != nil {
			return 0, err
		}
		if n == 0 || used+n > len(b) {
			break
		}
		if err := w.frame(protocol.Frame(b[used : used+n])); err != nil {
			return 0, err
		}
		used += n
	}
	return int64(used), nil
}

// frame sends what a legacy consumer can take of a stored frame: an opaque one as it came, each
// record of a plain one as a frame of its own.
func (w *legacyWriter) frame(f protocol.Frame) error {
	if _, err := protocol.CheckStored(f, protocol.MaxDataFrame); err != nil {
		return err
	}
	h, p := f.Header(), f.Prelude()
	switch {
	case p.Opcode != protocol.ControlNone:
		return nil
	case p.Codec != 0:
		if !w.to.warned {
			w.to.warned = true
			w.conn.log().Warn("compressed batches are left out for a legacy consumer", "offset", h.Offset(), "codec", p.Codec)
		}
		return nil
	case p.Layout == protocol.LayoutOpaque:
		if _, end := f.Span(); end <= w.to.from {
			return nil
		}
		return w.put(h.Timestamp(), h.Offset(), f.Key(), f.Body(), h.RecordCount())
	}
	it := protocol.Records(f)
	for it.Next() {
		if r := &it.Record; r.Offset >= w.to.from {
			if err := w.put(r.Timestamp, r.Offset, r.Key, r.Value, 1); err != nil {
				return err
			}
		}
	}
	return it.Err()
}

// put sends one legacy frame, by way of out when it fits.
func (w *legacyWriter) put(timestamp, offset uint64, key, payload []byte, records uint32) error {
	var h protocol.Header
	h.PutLegacy(timestamp, offset, uint32(len(key)), uint32(len(payload)), records)
	size := len(h) + len(key) + len(payload)
	if size > len(w.out)-w.n {
		if err := w.flush(); err != nil {
			return err
		}
	}
	parts := [...][]byte{h[:], key, payload}
	for _, b := range parts {
		if size <= len(w.out) {
			w.n += copy(w.out[w.n:], b)
			continue
		}
		if err := w.conn.write(b); err != nil {
			return err
		}
	}
	w.conn.server.counts.copyBytes.Add(uint64(size))
	return nil
}

// flush sends what out holds.
func (w *legacyWriter) flush() error {
	err := w.conn.write(w.out[:w.n])
	w.n = 0
	return err
}

// large sends the frame at pos that the window b does not hold whole.
func (w *legacyWriter) large(b []byte, pos int64) (int64, error) {
	h := protocol.HeaderOf(b)
	size, at := int64(h.FrameSize()), protocol.HeaderSize+int(h.KeySize())
	if pos+size > w.section.Size {
		return 0, fmt.Errorf("server: section ends inside a frame of %d bytes", size)
	}
	if at+protocol.PreludeSize <= len(b) && protocol.Layout(b[at]&0x0F) == protocol.LayoutOpaque && b[at]>>4 == 0 && b[at+1] == 0 {
		return size, w.largeOpaque(h, b[protocol.HeaderSize:at], pos)
	}
	buf := w.conn.server.buffers.force(int(size))
	defer w.conn.server.buffers.give(buf)
	if err := w.read(buf[:size], pos); err != nil {
		return 0, err
	}
	if err := w.frame(protocol.Frame(buf[:size])); err != nil {
		return 0, err
	}
	return size, w.flush()
}

// largeOpaque sends an opaque frame's own bytes straight from the file, under a header of the
// client's protocol.
func (w *legacyWriter) largeOpaque(h *protocol.Header, key []byte, pos int64) error {
	if h.Offset()+uint64(h.RecordCount()) <= w.to.from {
		return nil
	}
	if err := w.flush(); err != nil {
		return err
	}
	skip := int64(protocol.HeaderSize + len(key) + protocol.PreludeSize)
	body := int64(h.FrameSize()) - skip - protocol.TailSize
	var head protocol.Header
	head.PutLegacy(h.Timestamp(), h.Offset(), uint32(len(key)), uint32(body), h.RecordCount())
	n := copy(w.out, head[:])
	n += copy(w.out[n:], key)
	if n < len(head)+len(key) { // a key of almost 64 KiB
		if err := w.conn.writeMore(w.out[:n]); err != nil {
			return err
		}
		return w.conn.sendSection(key[n-len(head):], w.section, pos+skip, body)
	}
	return w.conn.sendSection(w.out[:n], w.section, pos+skip, body)
}
