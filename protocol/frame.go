package protocol

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// A DATA frame:
//
//	header 29 | key | prelude | records | tail 28
//	                 └────────── payloadSize ──────────┘
//	prelude: layout u8 | flags u8 | opcode u16 | fields that flags announce, in this order:
//	         producer  : producerID u64 | epoch u16 | firstSequence u32
//	         deliverAt : u64 ns
//	         expireAt  : u64 ns
//	         lane      : u8
//	tail:    index u64 | term u32 | stampFlags u32 | settledLag u32 | check u64
//	check  = xxh64(frame[17 : n-28])  XOR  xxh64(frame[1:17] ∥ frame[n-28 : n-8])
//
// Everything that the broker stamps lies in the two stretches of the second hash, 36 bytes, so
// a stamp costs the same whatever the frame's size.
const (
	TailSize     = 28                                  // bytes
	PreludeSize  = 4                                   // bytes, without announced fields
	MinFrame     = HeaderSize + PreludeSize + TailSize // bytes
	stampedBytes = 16 + TailSize - 8
)

// Layout is the low nibble of a prelude's first byte; the high nibble is the codec.
type Layout uint8

// The layouts of a frame's records.
const (
	LayoutPlain  Layout = 0 // records with key, headers, value
	LayoutOpaque Layout = 1 // the body is the client's; key is the frame's
	LayoutSparse Layout = 2 // plain after key compaction: each record carries its offset delta
)

// Bits of the prelude's flags.
const (
	FlagProducer  uint8 = 1 << iota // producerID, epoch, firstSequence
	FlagDeliverAt                   // not visible before
	FlagExpireAt                    // not delivered after
	FlagLane                        // priority lane
	flagsKnown    = FlagProducer | FlagDeliverAt | FlagExpireAt | FlagLane
)

// Bits of the tail's stampFlags.
const (
	StampSegmentStart uint32 = 1 << iota // the first frame of a segment
)

// LagUnknown as settledLag says: settled further back than the field can tell.
const LagUnknown = 0xFFFFFFFF

// Frame is one whole DATA frame. Its views are valid for frames that CheckFrame or CheckStored
// accepted; on other bytes they may panic.
type Frame []byte

// Header views the frame's header.
func (f Frame) Header() *Header { return HeaderOf(f) }

// Key is the frame's key: the subkey of a control record, the key of an opaque frame.
func (f Frame) Key() []byte {
	end := HeaderSize + int(f.Header().KeySize())
	return f[HeaderSize:end:end]
}

// Prelude is the decoded start of the payload.
func (f Frame) Prelude() (p Prelude) {
	c := cursor{b: f[HeaderSize+int(f.Header().KeySize()) : len(f)-TailSize]}
	p.decode(&c)
	return p
}

// Opcode is what the frame is: 0 for messages, else the kind of control record.
func (f Frame) Opcode() ControlOpcode {
	at := HeaderSize + int(f.Header().KeySize())
	return ControlOpcode(binary.BigEndian.Uint16(f[at+2:]))
}

// Body is the payload between prelude and tail: records, the opaque body, or a control record.
func (f Frame) Body() []byte {
	end := len(f) - TailSize
	payload := f[HeaderSize+int(f.Header().KeySize()) : end : end]
	return payload[preludeSize(payload[1]):]
}

func (f Frame) tail() []byte { return f[len(f)-TailSize:] }

// Index is the ordinal of the frame in its partition's log, from 1.
func (f Frame) Index() uint64 { return binary.BigEndian.Uint64(f.tail()) }

// Term is the leadership term under which the frame was stamped; 1 on a node that is alone.
func (f Frame) Term() uint32 { return binary.BigEndian.Uint32(f.tail()[8:]) }

// StampFlags are the flags that the broker set.
func (f Frame) StampFlags() uint32 { return binary.BigEndian.Uint32(f.tail()[12:]) }

// SettledLag is index minus the index up to which the log was settled when this was stamped.
func (f Frame) SettledLag() uint32 { return binary.BigEndian.Uint32(f.tail()[16:]) }

// Settled is the index up to which the log was known settled when the frame was stamped; 0
// when the frame does not say.
func (f Frame) Settled() uint64 {
	if lag := f.SettledLag(); lag != LagUnknown && uint64(lag) <= f.Index() {
		return f.Index() - uint64(lag)
	}
	return 0
}

// Check is the stored check.
func (f Frame) Check() uint64 { return binary.BigEndian.Uint64(f.tail()[20:]) }

// unstampedSum is the hash over 36 zeros: what a producer's frame has before it is stamped.
var unstampedSum = xxhash.Sum64(make([]byte, stampedBytes))

// stampedSum is the hash over the 36 bytes that the broker stamps.
func (f Frame) stampedSum() uint64 {
	var b [stampedBytes]byte
	copy(b[:16], f[1:17])
	copy(b[16:], f[len(f)-TailSize:len(f)-8])
	if b == ([stampedBytes]byte{}) {
		return unstampedSum
	}
	return xxhash.Sum64(b[:])
}

// Sum computes the check from the frame's bytes.
func (f Frame) Sum() uint64 { return xxhash.Sum64(f[17:len(f)-TailSize]) ^ f.stampedSum() }

// Seal stores the check. Whoever builds a frame calls it last.
func (f Frame) Seal() { binary.BigEndian.PutUint64(f[len(f)-8:], f.Sum()) }

// Stamp is what the broker writes into a frame when it gives it its place in a log.
type Stamp struct {
	Timestamp  uint64 // ns since 1970; never decreases in a partition
	Offset     uint64
	Index      uint64
	Term       uint32
	Flags      uint32
	SettledLag uint32
}

// Apply stamps f in place and corrects the check without reading the frame's body: the hash of
// the old 36 bytes is taken out and that of the new ones put in. A frame whose check held
// before holds after; one that was damaged stays detectably damaged.
func (s *Stamp) Apply(f Frame) {
	check := f.Check() ^ f.stampedSum()
	h := f.Header()
	h.SetTimestamp(s.Timestamp)
	h.SetOffset(s.Offset)
	t := f.tail()
	binary.BigEndian.PutUint64(t, s.Index)
	binary.BigEndian.PutUint32(t[8:], s.Term)
	binary.BigEndian.PutUint32(t[12:], s.Flags)
	binary.BigEndian.PutUint32(t[16:], s.SettledLag)
	binary.BigEndian.PutUint64(t[20:], check^f.stampedSum())
}

// Prelude is the start of a DATA frame's payload.
type Prelude struct {
	Layout        Layout
	Codec         uint8 // 0 = none; the broker never looks inside
	Flags         uint8
	Opcode        ControlOpcode
	ProducerID    uint64
	ProducerEpoch uint16
	FirstSequence uint32
	DeliverAt     uint64 // ns since 1970
	ExpireAt      uint64 // ns since 1970
	Lane          uint8
}

// preludeSize is the length in bytes of a prelude with these flags.
func preludeSize(flags uint8) int {
	n := PreludeSize
	if flags&FlagProducer != 0 {
		n += 14
	}
	if flags&FlagDeliverAt != 0 {
		n += 8
	}
	if flags&FlagExpireAt != 0 {
		n += 8
	}
	if flags&FlagLane != 0 {
		n++
	}
	return n
}

func (p *Prelude) decode(c *cursor) {
	b := c.u8()
	p.Layout, p.Codec = Layout(b&0x0F), b>>4
	p.Flags = c.u8()
	p.Opcode = ControlOpcode(c.u16())
	if p.Flags&FlagProducer != 0 {
		p.ProducerID, p.ProducerEpoch, p.FirstSequence = c.u64(), c.u16(), c.u32()
	}
	if p.Flags&FlagDeliverAt != 0 {
		p.DeliverAt = c.u64()
	}
	if p.Flags&FlagExpireAt != 0 {
		p.ExpireAt = c.u64()
	}
	if p.Flags&FlagLane != 0 {
		p.Lane = c.u8()
	}
}

// AppendTo appends the prelude to dst.
func (p *Prelude) AppendTo(dst []byte) []byte {
	dst = append(dst, uint8(p.Layout)|p.Codec<<4, p.Flags)
	dst = appendU16(dst, uint16(p.Opcode))
	if p.Flags&FlagProducer != 0 {
		dst = appendU64(dst, p.ProducerID)
		dst = appendU16(dst, p.ProducerEpoch)
		dst = appendU32(dst, p.FirstSequence)
	}
	if p.Flags&FlagDeliverAt != 0 {
		dst = appendU64(dst, p.DeliverAt)
	}
	if p.Flags&FlagExpireAt != 0 {
		dst = appendU64(dst, p.ExpireAt)
	}
	if p.Flags&FlagLane != 0 {
		dst = append(dst, p.Lane)
	}
	return dst
}

// SizeStored returns the size of the DATA frame that starts at b, judged by its header alone:
// 0 and no error when b ends inside the header, an error when no DATA frame of at most limit
// bytes can start so. The frame may still end behind b.
func SizeStored(b []byte, limit uint64) (int, error) {
	if len(b) < HeaderSize {
		return 0, nil
	}
	h := HeaderOf(b)
	if h.Magic() != MagicData {
		return 0, &Error{Code: BadFrame, Detail: fmt.Sprintf("magic 0x%02x where a DATA frame (0x01) must start", b[0])}
	}
	n := h.FrameSize()
	if n > limit {
		return 0, &Error{Code: TooLarge, Detail: "DATA frame", Actual: n, Limit: limit, Setting: "data_frame"}
	}
	if h.PayloadSize() < PreludeSize+TailSize {
		return 0, &Error{Code: BadFrame, Detail: fmt.Sprintf("payload of %d bytes has no room for prelude and tail", h.PayloadSize())}
	}
	if h.RecordCount() > MaxRecords {
		return 0, &Error{Code: TooLarge, Detail: "records of one frame", Actual: uint64(h.RecordCount()), Limit: MaxRecords, Setting: "records_per_frame"}
	}
	return int(n), nil
}

// CheckStored verifies the frame at the start of b as it lies in a log: sizes, check, and that
// the prelude fits. It returns the frame's size.
//
// Errors: BadFrame, TooLarge, BadChecksum; BadFrame also when b ends inside the frame.
func CheckStored(b []byte, limit uint64) (int, error) {
	n, err := SizeStored(b, limit)
	if err != nil {
		return 0, err
	}
	if n == 0 || n > len(b) {
		return 0, &Error{Code: BadFrame, Detail: fmt.Sprintf("frame of %d bytes in %d", max(n, HeaderSize), len(b))}
	}
	f := Frame(b[:n])
	if f.Sum() != f.Check() {
		return 0, &Error{Code: BadChecksum, Detail: fmt.Sprintf("frame at offset %d: check %016x, bytes give %016x", f.Header().Offset(), f.Check(), f.Sum())}
	}
	at := HeaderSize + int(f.Header().KeySize())
	if flags := f[at+1]; flags&^flagsKnown != 0 || at+preludeSize(flags) > n-TailSize {
		return 0, &Error{Code: BadFrame, Detail: fmt.Sprintf("prelude flags 0x%02x", flags)}
	}
	return n, nil
}

// CheckFrame verifies the frame at the start of b as it comes from a producer: all of
// CheckStored, and that it is a message frame whose recordCount agrees with its bytes.
// maxMessage bounds key + headers + value of each record, and the body of an opaque frame. It
// returns the frame's size.
//
// Errors: those of CheckStored; BadFrame, TooLarge, Unsupported.
func CheckFrame(b []byte, maxMessage uint32) (int, error) {
	n, err := CheckStored(b, MaxDataFrame)
	if err != nil {
		return 0, err
	}
	f := Frame(b[:n])
	at := HeaderSize + int(f.Header().KeySize())
	if f.Opcode() != 0 {
		return 0, &Error{Code: Denied, Detail: fmt.Sprintf("control record %d from a client", f.Opcode())}
	}
	codec := f[at] >> 4
	switch layout := Layout(f[at] & 0x0F); {
	case layout == LayoutOpaque:
		err = checkOpaque(f, maxMessage)
	case layout != LayoutPlain:
		err = &Error{Code: Unsupported, Detail: fmt.Sprintf("layout %d from a client", layout)}
	case f.Header().KeySize() != 0:
		err = &Error{Code: BadFrame, Detail: "plain frame with a frame key: keys are per record"}
	case f.Header().RecordCount() == 0:
		err = &Error{Code: BadFrame, Detail: "message frame of 0 records"}
	case codec == 0:
		err = checkRecords(f.Body(), f.Header().RecordCount(), maxMessage)
	}
	if err != nil {
		return 0, err
	}
	return n, nil
}

// checkOpaque bounds an opaque frame: its recordCount may not exceed its bytes, or one small
// frame could move the offset by four thousand million.
func checkOpaque(f Frame, maxMessage uint32) error {
	key := uint64(f.Header().KeySize())
	if key > MaxKey {
		return &Error{Code: TooLarge, Detail: "key", Actual: key, Limit: MaxKey, Setting: "key"}
	}
	size := uint64(len(f.Body())) + key
	if size > uint64(maxMessage) {
		return &Error{Code: TooLarge, Detail: "message", Actual: size, Limit: uint64(maxMessage), Setting: "max_message_bytes"}
	}
	if f.Header().RecordCount() == 0 {
		return &Error{Code: BadFrame, Detail: "message frame of 0 records"}
	}
	return checkCount("opaque frame", f.Header().RecordCount(), size)
}

// checkCount bounds the recordCount that a client claims for a body of size bytes that the
// broker does not look into.
func checkCount(what string, count uint32, size uint64) error {
	if count > MaxRecords {
		return &Error{Code: TooLarge, Detail: "records of one frame", Actual: uint64(count), Limit: MaxRecords, Setting: "records_per_frame"}
	}
	if uint64(count) > max(1, size) {
		return &Error{Code: BadFrame, Detail: fmt.Sprintf("%s of %d bytes claims %d records", what, size, count)}
	}
	return nil
}

// Run is what CheckRun found: a stretch of whole, verified frames.
type Run struct {
	Bytes   []byte
	Frames  uint32
	Records uint64
	Flags   uint8 // all prelude flags seen
}

// CheckRun verifies every frame of a PRODUCE run. Nothing of a refused run may be appended.
//
// Ownership: the result views b. Errors: those of CheckFrame with the ordinal of the frame.
func CheckRun(b []byte, maxMessage uint32) (Run, error) {
	r := Run{Bytes: b}
	for pos := 0; pos < len(b); {
		n, err := CheckFrame(b[pos:], maxMessage)
		if err != nil {
			e := *AsError(err)
			e.Detail = fmt.Sprintf("frame %d of the run: %s", r.Frames, e.Detail)
			return Run{}, &e
		}
		f := Frame(b[pos : pos+n])
		r.Frames++
		r.Records += uint64(f.Header().RecordCount())
		r.Flags |= f[HeaderSize+int(f.Header().KeySize())+1]
		pos += n
	}
	if r.Records > MaxRunRecords {
		return Run{}, &Error{Code: TooLarge, Detail: "records of one run", Actual: r.Records, Limit: MaxRunRecords, Setting: "records_per_run"}
	}
	if r.Frames == 0 {
		return Run{}, &Error{Code: BadFrame, Detail: "empty run"}
	}
	return r, nil
}
