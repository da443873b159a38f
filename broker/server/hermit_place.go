package server

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace-mq/millrace/protocol"
)

// legacyPlace is how far a legacyWriter came in a section: between two frames, or between two
// records of one. All positions are bytes from the section's start.
type legacyPlace struct {
	pos, size int64 // of the frame; size 0 = it is not opened yet
	at, end   int64 // of the next record, and of the end of the records
	left      uint32
	layout    protocol.Layout
	head      protocol.Header // of the frame
}

// next moves place behind the next legacy frame, which is piece then; false at the end of the
// section.
func (w *legacyWriter) next() (bool, error) {
	p := &w.place
	for {
		if p.size == 0 {
			if p.pos == w.section.Size {
				return false, nil
			}
			if err := w.open(p); err != nil {
				return false, err
			}
		}
		for p.left > 0 {
			wanted, err := w.record(p)
			if err != nil || wanted {
				return wanted, err
			}
		}
		*p = legacyPlace{pos: p.pos + p.size}
	}
}

// knownFlags are those of preludes whose size this version knows.
const knownFlags = protocol.FlagProducer | protocol.FlagDeliverAt | protocol.FlagExpireAt | protocol.FlagLane

// open looks at the frame at p: it verifies it, a large opaque one excepted, which leaves without
// being read, and finds its records. A frame that a legacy consumer cannot take has none.
func (w *legacyWriter) open(p *legacyPlace) error {
	b, err := w.view(p.pos, protocol.HeaderSize)
	if err != nil {
		return err
	}
	n, err := protocol.SizeStored(b, protocol.MaxDataFrame)
	if err != nil {
		return err
	}
	p.head, p.size = *protocol.HeaderOf(b), int64(n)
	if p.pos+p.size > w.section.Size {
		return fmt.Errorf("server: section ends inside a frame of %d bytes", n)
	}
	whole := n <= len(w.window)
	if whole {
		if b, err = w.view(p.pos, n); err == nil {
			_, err = protocol.CheckStored(b[:n], protocol.MaxDataFrame)
		}
		if err != nil {
			return err
		}
	}
	p.at, p.end = p.pos+protocol.HeaderSize+int64(p.head.KeySize()), p.pos+p.size-protocol.TailSize
	if b, err = w.view(p.at, protocol.PreludeSize); err != nil {
		return err
	}
	codec, opcode, prelude := b[0]>>4, binary.BigEndian.Uint16(b[2:]), protocol.Prelude{Flags: b[1]}
	p.layout = protocol.Layout(b[0] & 0x0F)
	var scratch [64]byte
	if p.at += int64(len(prelude.AppendTo(scratch[:0]))); p.at > p.end || prelude.Flags&^knownFlags != 0 {
		return w.malformed(p, "prelude")
	}
	switch {
	case opcode != 0:
	case codec != 0:
		if !w.warned {
			w.warned = true
			w.conn.log().Warn("compressed batches are left out for a legacy consumer", "offset", p.head.Offset(), "codec", codec)
		}
	case p.layout == protocol.LayoutOpaque:
		p.left = 1
	case p.layout == protocol.LayoutPlain || p.layout == protocol.LayoutSparse:
		p.left = p.head.RecordCount()
		if !whole {
			return w.verify(p)
		}
	default:
		return w.malformed(p, "layout")
	}
	return nil
}

func (w *legacyWriter) malformed(p *legacyPlace, what string) error {
	return &protocol.Error{Code: protocol.BadFrame, Detail: fmt.Sprintf("%s of the frame at offset %d", what, p.head.Offset())}
}

// verify compares the check of a frame that the window does not hold whole; protocol.Frame.Sum
// says what it is made of.
func (w *legacyWriter) verify(p *legacyPlace) error {
	const stamped = 17 // bytes of the header that are hashed with the tail
	var sum xxhash.Digest
	sum.Reset()
	for pos := p.pos + stamped; pos < p.end; {
		b, err := w.view(pos, 1)
		if err != nil {
			return err
		}
		b = b[:min(int64(len(b)), p.end-pos)]
		sum.Write(b) // never fails
		pos += int64(len(b))
	}
	tail, err := w.view(p.end, protocol.TailSize)
	if err != nil {
		return err
	}
	var b [stamped - 1 + protocol.TailSize - 8]byte
	copy(b[copy(b[:], p.head[1:stamped]):], tail)
	found, check := sum.Sum64()^xxhash.Sum64(b[:]), binary.BigEndian.Uint64(tail[protocol.TailSize-8:])
	if found != check {
		return &protocol.Error{Code: protocol.BadChecksum,
			Detail: fmt.Sprintf("frame at offset %d: check %016x, bytes give %016x", p.head.Offset(), check, found)}
	}
	return nil
}

// The lengths in front of a record, and what they say for none; protocol.Record draws them.
const (
	recordLengths = 8
	sparseDelta   = 4 // in front of those of a sparse record: its offset less the frame's
	noKey         = 0xFFFF
	tombstone     = 0xFFFFFFFF
)

// record makes the next record of the frame piece and moves p behind it. It is false for one
// that is before the consumer's first offset, and behind the last.
func (w *legacyWriter) record(p *legacyPlace) (wanted bool, err error) {
	base, count := p.head.Offset(), p.head.RecordCount()
	if p.layout == protocol.LayoutOpaque {
		p.left = 0
		w.piece = legacyPiece{timestamp: p.head.Timestamp(), offset: base, records: count,
			key: p.pos + protocol.HeaderSize, keySize: int64(p.head.KeySize()), value: p.at, valueSize: p.end - p.at}
		return base+uint64(count) > w.to.from, nil
	}
	offset := base + uint64(count-p.left)
	p.left--
	if p.layout == protocol.LayoutSparse {
		if p.at == p.end { // fewer records than the span
			p.left = 0
			return false, nil
		}
		b, err := w.inside(p, sparseDelta)
		if err != nil {
			return false, err
		}
		offset = base + uint64(binary.BigEndian.Uint32(b))
		p.at += sparseDelta
	}
	b, err := w.inside(p, recordLengths)
	if err != nil {
		return false, err
	}
	key, headers, value := int64(binary.BigEndian.Uint16(b)), int64(binary.BigEndian.Uint16(b[2:])), int64(binary.BigEndian.Uint32(b[4:]))
	if key == noKey {
		key = 0
	}
	if value == tombstone {
		value = 0
	}
	at := p.at + recordLengths
	p.at = at + key + headers + value
	if p.at > p.end || p.left == 0 && p.at != p.end && p.layout == protocol.LayoutPlain {
		return false, w.malformed(p, "records")
	}
	w.piece = legacyPiece{timestamp: p.head.Timestamp(), offset: offset, records: 1,
		key: at, keySize: key, value: at + key + headers, valueSize: value}
	return offset >= w.to.from, nil
}

// inside is view of n bytes that must lie before the end of the records.
func (w *legacyWriter) inside(p *legacyPlace, n int) ([]byte, error) {
	if p.at+int64(n) > p.end {
		return nil, w.malformed(p, "records")
	}
	return w.view(p.at, n)
}
