package protocol

import (
	"encoding/binary"
	"fmt"
)

// A record:
//
//	plain : keyLen u16 (FFFF = no key) | headersLen u16 | valueLen u32 (FFFFFFFF = tombstone) | key | headers | value
//	sparse: relOffset u32, then as plain
//	headers: repeated  nameLen u8 | valueLen u16 | name | value
const (
	recordPrefix = 8 // bytes
	noKey        = 0xFFFF
	tombstone    = 0xFFFFFFFF
)

// Record is one message as it lies in a frame.
//
// Ownership: the slices view the frame's bytes; they are valid as long as those are. Clone what
// is to be kept.
type Record struct {
	Offset    uint64
	Timestamp uint64  // ns since 1970: when the broker appended it
	Key       []byte  // nil = no key
	Value     []byte  // nil = tombstone
	Headers   Headers // nil = none
	Span      uint32  // offsets that it covers: 1, or the recordCount of an opaque frame
}

// Clone copies the record, so that it stays valid whatever happens to the frame.
func (r *Record) Clone() Record {
	c := *r
	c.Key = clone(r.Key)
	c.Value = clone(r.Value)
	c.Headers = clone(r.Headers)
	return c
}

// clone copies b and keeps the difference between nil and empty.
func clone(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append(make([]byte, 0, len(b)), b...)
}

// Headers are the encoded name-value pairs of a record.
type Headers []byte

// Next returns the first pair and what follows it; ok is false at the end and on malformed
// bytes (CheckFrame lets none into a log).
func (h Headers) Next() (name, value []byte, rest Headers, ok bool) {
	if len(h) < 3 {
		return nil, nil, nil, false
	}
	n, v := int(h[0]), int(binary.BigEndian.Uint16(h[1:]))
	if len(h) < 3+n+v {
		return nil, nil, nil, false
	}
	return h[3 : 3+n : 3+n], h[3+n : 3+n+v : 3+n+v], h[3+n+v:], true
}

// Get returns the first value of that name.
func (h Headers) Get(name string) ([]byte, bool) {
	for k, v, rest, ok := h.Next(); ok; k, v, rest, ok = rest.Next() {
		if string(k) == name {
			return v, true
		}
	}
	return nil, false
}

// Append adds a pair.
//
// Bounds: name at most MaxHeaderName bytes; all pairs of a record, each with its 3 bytes of
// lengths, at most MaxHeaders. Errors: TooLarge, and h is unchanged.
func (h Headers) Append(name string, value []byte) (Headers, error) {
	if len(name) > MaxHeaderName {
		return h, &Error{Code: TooLarge, Detail: "header name", Actual: uint64(len(name)), Limit: MaxHeaderName, Setting: "header_name"}
	}
	if n := len(h) + 3 + len(name) + len(value); n > MaxHeaders {
		return h, &Error{Code: TooLarge, Detail: "headers", Actual: uint64(n), Limit: MaxHeaders, Setting: "headers"}
	}
	h = append(h, uint8(len(name)))
	h = binary.BigEndian.AppendUint16(h, uint16(len(value)))
	h = append(h, name...)
	return append(h, value...), nil
}

func (h Headers) valid() bool {
	for len(h) > 0 {
		_, _, rest, ok := h.Next()
		if !ok {
			return false
		}
		h = rest
	}
	return true
}

// appendRecord appends a plain record; the caller checked the bounds.
func appendRecord(dst, key, value []byte, headers Headers) []byte {
	k, v := uint16(noKey), uint32(tombstone)
	if key != nil {
		k = uint16(len(key))
	}
	if value != nil {
		v = uint32(len(value))
	}
	dst = binary.BigEndian.AppendUint16(dst, k)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(headers)))
	dst = binary.BigEndian.AppendUint32(dst, v)
	dst = append(dst, key...)
	dst = append(dst, headers...)
	return append(dst, value...)
}

// splitRecord reads the lengths of the plain record at the start of b; ok is false when they
// do not fit b. They are summed in 64 bits: valueLen alone may exceed an int.
func splitRecord(b []byte) (keyLen, headersLen, valueLen, size int, ok bool) {
	if len(b) < recordPrefix {
		return 0, 0, 0, 0, false
	}
	k := binary.BigEndian.Uint16(b)
	h := binary.BigEndian.Uint16(b[2:])
	v := binary.BigEndian.Uint32(b[4:])
	if k == noKey {
		k = 0
	}
	if v == tombstone {
		v = 0
	}
	if recordPrefix+uint64(k)+uint64(h)+uint64(v) > uint64(len(b)) {
		return 0, 0, 0, 0, false
	}
	keyLen, headersLen, valueLen = int(k), int(h), int(v)
	return keyLen, headersLen, valueLen, recordPrefix + keyLen + headersLen + valueLen, true
}

// checkRecords walks the records of a plain body and compares their number with the header's.
func checkRecords(b []byte, count, maxMessage uint32) error {
	for i := range count {
		keyLen, headersLen, _, size, ok := splitRecord(b)
		if !ok {
			return &Error{Code: BadFrame, Detail: fmt.Sprintf("recordCount %d but the bytes end in record %d", count, i)}
		}
		if uint64(size-recordPrefix) > uint64(maxMessage) {
			return &Error{Code: TooLarge, Detail: fmt.Sprintf("message %d of the frame", i),
				Actual: uint64(size - recordPrefix), Limit: uint64(maxMessage), Setting: "max_message_bytes"}
		}
		if headersLen != 0 && !Headers(b[recordPrefix+keyLen:recordPrefix+keyLen+headersLen]).valid() {
			return &Error{Code: BadFrame, Detail: fmt.Sprintf("headers of record %d", i)}
		}
		b = b[size:]
	}
	if len(b) != 0 {
		return &Error{Code: BadFrame, Detail: fmt.Sprintf("%d bytes behind the %d records that the header counts", len(b), count)}
	}
	return nil
}

// RecordIter walks the records of one frame without allocating:
//
//	it := protocol.Records(frame)
//	for it.Next() { use(&it.Record) }
//	if err := it.Err(); err != nil { … }
//
// Control records and frames with a codec yield nothing.
type RecordIter struct {
	Record Record // valid after Next returned true, until the next call

	b      []byte // what is left of the body
	base   uint64
	left   uint32
	layout Layout
	count  uint32
	least  uint32 // of a sparse frame: the least relOffset that the next record may have
	key    []byte
	bad    bool
}

// Records starts an iteration over f.
func Records(f Frame) RecordIter {
	h := f.Header()
	p := f.Prelude()
	it := RecordIter{b: f.Body(), base: h.Offset(), left: h.RecordCount(), layout: p.Layout, count: h.RecordCount()}
	it.Record.Timestamp = h.Timestamp()
	if p.Opcode != 0 || p.Codec != 0 {
		it.left, it.b = 0, nil
	}
	if p.Layout == LayoutOpaque && h.KeySize() != 0 {
		it.key = f.Key()
	}
	return it
}

// Next moves to the next record; false at the end.
func (it *RecordIter) Next() bool {
	if it.left == 0 || it.bad {
		it.bad = it.bad || it.layout == LayoutPlain && len(it.b) != 0
		return false
	}
	r := &it.Record
	switch it.layout {
	case LayoutPlain:
		r.Offset = it.base + uint64(it.count-it.left)
		it.left--
	case LayoutOpaque:
		r.Offset, r.Key, r.Value, r.Span, it.left = it.base, it.key, it.b, it.count, 0
		return true
	case LayoutSparse:
		if len(it.b) == 0 { // fewer records than the span
			it.left = 0
			return false
		}
		if !it.sparseOffset() {
			it.bad = true
			return false
		}
	default:
		it.bad = true
		return false
	}
	keyLen, headersLen, valueLen, size, ok := splitRecord(it.b)
	if !ok {
		it.bad = true
		return false
	}
	b := it.b[:size]
	it.b = it.b[size:]
	r.Span, r.Key, r.Value, r.Headers = 1, nil, nil, nil
	at := recordPrefix
	if binary.BigEndian.Uint16(b) != noKey {
		r.Key = b[at : at+keyLen : at+keyLen]
	}
	at += keyLen
	if headersLen != 0 {
		r.Headers = Headers(b[at : at+headersLen : at+headersLen])
	}
	at += headersLen
	if binary.BigEndian.Uint32(b[4:]) != tombstone {
		r.Value = b[at : at+valueLen : at+valueLen]
	}
	return true
}

// sparseOffset reads the relOffset in front of a sparse record. They ascend and stay below the
// frame's span, or the frame would claim offsets of its neighbours.
func (it *RecordIter) sparseOffset() bool {
	if len(it.b) < 4 {
		return false
	}
	rel := binary.BigEndian.Uint32(it.b)
	if rel < it.least || rel >= it.count {
		return false
	}
	it.Record.Offset = it.base + uint64(rel)
	it.least = rel + 1
	it.b = it.b[4:]
	return true
}

// Err reports bytes that do not follow the format.
func (it *RecordIter) Err() error {
	if it.bad {
		return &Error{Code: BadFrame, Detail: fmt.Sprintf("records of the frame at offset %d", it.base)}
	}
	return nil
}
