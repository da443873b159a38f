package protocol

import "fmt"

// The legacy protocol is HermitMQ's version 1, spoken on the same port. The first byte of a
// connection decides. After a handshake without reply,
//
//	0x01 topic part                : producer. Then frames: the 29-byte header with magic 0x01,
//	                                 key, payload; answered by 00 + offset u64 or FF + 8 zero bytes
//	0x02 group topic part          : consumer. Frames are pushed from the group's position
//	0x03 group topic part offset   : commit, answered by 01
//
// strings are u8 length + bytes, part is u32, offset u64.
const (
	LegacyProduce uint8 = 0x01
	LegacyConsume uint8 = 0x02
	LegacyCommit  uint8 = 0x03
)

// The answers of the legacy protocol.
const (
	LegacyAckSize   = 9    // bytes: status, offset
	LegacyOK        = 0x00 // status of a produce that was appended
	LegacyRefused   = 0xFF // status of one that was not
	LegacyCommitted = 0x01 // the whole answer to a commit
)

// LegacyHello is a legacy handshake.
type LegacyHello struct {
	Kind      uint8
	Group     string
	Topic     string
	Partition uint32
	Offset    uint64 // of a commit: the next offset to read
}

// ParseLegacyHello reads the handshake at the start of b and returns its size; 0 when b ends
// inside it.
//
// Bounds: at most 525 bytes. Errors: BadFrame for an unknown kind or an empty string.
func ParseLegacyHello(b []byte) (h LegacyHello, n int, err error) {
	if len(b) == 0 {
		return h, 0, nil
	}
	h.Kind = b[0]
	if h.Kind < LegacyProduce || h.Kind > LegacyCommit {
		return h, 0, &Error{Code: BadFrame, Detail: fmt.Sprintf("first byte 0x%02x is neither a REQUEST (0x11) nor a legacy handshake (0x01 to 0x03)", b[0])}
	}
	c := cursor{b: b, pos: 1}
	if h.Kind != LegacyProduce {
		h.Group = string(c.take(int(c.u8())))
	}
	h.Topic = string(c.take(int(c.u8())))
	h.Partition = c.u32()
	if h.Kind == LegacyCommit {
		h.Offset = c.u64()
	}
	if c.bad {
		return h, 0, nil
	}
	if h.Topic == "" || h.Kind != LegacyProduce && h.Group == "" {
		return h, 0, &Error{Code: BadFrame, Detail: "legacy handshake with an empty string"}
	}
	return h, c.pos, nil
}

// AppendTo appends the handshake to dst; names longer than 255 bytes do not fit the format and
// are the caller's defect.
func (h *LegacyHello) AppendTo(dst []byte) []byte {
	dst = append(dst, h.Kind)
	if h.Kind != LegacyProduce {
		dst = append(append(dst, uint8(len(h.Group))), h.Group...)
	}
	dst = append(append(dst, uint8(len(h.Topic))), h.Topic...)
	dst = appendU32(dst, h.Partition)
	if h.Kind == LegacyCommit {
		dst = appendU64(dst, h.Offset)
	}
	return dst
}

// LegacySize returns the size of the legacy producer frame that starts at b: 0 when b ends
// inside its header.
//
// Bounds: key at most MaxKey, key + payload at most maxMessage. recordCount may exceed neither
// the bytes of key and payload (1 is always allowed, 0 counts as 1) nor MaxRecords. Errors: BadFrame, TooLarge; framing is lost.
func LegacySize(b []byte, maxMessage uint32) (int, error) {
	if len(b) < HeaderSize {
		return 0, nil
	}
	h := HeaderOf(b)
	size := uint64(h.KeySize()) + uint64(h.PayloadSize())
	switch {
	case h.Magic() != MagicData:
		return 0, &Error{Code: BadFrame, Detail: fmt.Sprintf("magic 0x%02x of a legacy frame", b[0])}
	case h.KeySize() > MaxKey:
		return 0, &Error{Code: TooLarge, Detail: "key", Actual: uint64(h.KeySize()), Limit: MaxKey, Setting: "key"}
	case size > uint64(maxMessage):
		return 0, &Error{Code: TooLarge, Detail: "message", Actual: size, Limit: uint64(maxMessage), Setting: "max_message_bytes"}
	}
	if err := checkCount("legacy frame", h.RecordCount(), size); err != nil {
		return 0, err
	}
	return int(h.FrameSize()), nil
}

// PutLegacy makes h the header of a legacy frame as a consumer gets it.
func (h *Header) PutLegacy(timestamp, offset uint64, key, payload, records uint32) {
	h.reset(MagicData)
	h.SetTimestamp(timestamp)
	h.SetOffset(offset)
	h.SetSizes(key, payload)
	h.SetRecordCount(records)
}
