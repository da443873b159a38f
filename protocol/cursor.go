package protocol

import (
	"encoding/binary"
	"fmt"
)

// cursor reads the fields of a message in order. The first read past the end sets bad, and
// every later read gives zero, so decoders are straight lines that end with done.
type cursor struct {
	b   []byte
	pos int
	bad bool
}

func (c *cursor) take(n int) []byte {
	if c.bad || n < 0 || len(c.b)-c.pos < n {
		c.bad = true
		return nil
	}
	p := c.b[c.pos : c.pos+n : c.pos+n]
	c.pos += n
	return p
}

func (c *cursor) u8() uint8 {
	if p := c.take(1); p != nil {
		return p[0]
	}
	return 0
}

func (c *cursor) u16() uint16 {
	if p := c.take(2); p != nil {
		return binary.BigEndian.Uint16(p)
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if p := c.take(4); p != nil {
		return binary.BigEndian.Uint32(p)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if p := c.take(8); p != nil {
		return binary.BigEndian.Uint64(p)
	}
	return 0
}

func (c *cursor) str() string { return string(c.take(int(c.u16()))) }

// count reads a u32 of items and refuses more than limit, or more than the bytes that are left
// could hold at minSize each, before anybody allocates for them.
func (c *cursor) count(limit, minSize int) int {
	n := c.u32()
	if uint64(n) > uint64(limit) || uint64(n)*uint64(minSize) > uint64(len(c.b)-c.pos) {
		c.bad = true
		return 0
	}
	return int(n)
}

// done reports a message that was too short, or longer than its fields.
func (c *cursor) done(what string) error {
	if c.bad {
		return &Error{Code: BadRequest, Detail: fmt.Sprintf("%s: %d bytes are too few, or a count in it is too large", what, len(c.b))}
	}
	if c.pos != len(c.b) {
		return &Error{Code: BadRequest, Detail: fmt.Sprintf("%s: %d bytes behind the last field", what, len(c.b)-c.pos)}
	}
	return nil
}

func appendU16(dst []byte, v uint16) []byte { return binary.BigEndian.AppendUint16(dst, v) }
func appendU32(dst []byte, v uint32) []byte { return binary.BigEndian.AppendUint32(dst, v) }
func appendU64(dst []byte, v uint64) []byte { return binary.BigEndian.AppendUint64(dst, v) }

// appendString appends a u16 length and the bytes; what does not fit 65,535 bytes is a defect
// of the caller, whose names and texts are bounded.
func appendString(dst []byte, s string) []byte {
	if len(s) > 0xFFFF {
		panic("protocol: string of " + itoa(uint64(len(s))) + " bytes in a message")
	}
	return append(appendU16(dst, uint16(len(s))), s...)
}
