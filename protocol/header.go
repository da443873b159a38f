package protocol

import "encoding/binary"

// HeaderSize is the length in bytes of the header that starts every frame.
const HeaderSize = 29

// Magic is the first byte of a frame: class in the high nibble, version in the low one.
// The zero byte is never a valid magic, so a zero-filled tail ends a scan.
type Magic uint8

// The classes of version 1.
const (
	MagicData     Magic = 0x01 // records or one control record; stored as it travels
	MagicRequest  Magic = 0x11 // client → broker
	MagicResponse Magic = 0x21 // broker → client
	MagicProduce  Magic = 0x31 // client → broker; DATA frames follow
	MagicAck      Magic = 0x41 // broker → client
	MagicDeliver  Magic = 0x51 // broker → client; DATA frames follow
	MagicCredit   Magic = 0x61 // client → broker
	MagicGoAway   Magic = 0x71 // broker → client
	MagicPing     Magic = 0x81 // both ways
	MagicPong     Magic = 0x91 // both ways
	MagicPeer     Magic = 0xA1 // broker ↔ broker
)

// Skippable tells whether a receiver that does not know the class may hop over the frame
// (classes 8 to F). An unknown class below that means the peer and we disagree: hang up.
func (m Magic) Skippable() bool { return m >= 0x80 }

// Header is the 29 bytes in front of every frame. The accessors are views of the bytes; the
// names of the fields that a class gives to bytes 1 to 16 are in the table Classes.
type Header [HeaderSize]byte

// HeaderOf views the first 29 bytes of b as a header. It panics when b is shorter.
func HeaderOf(b []byte) *Header { return (*Header)(b) }

// Magic returns the class and version byte.
func (h *Header) Magic() Magic { return Magic(h[0]) }

// Timestamp is bytes 1 to 8: of a DATA frame the append time, in nanoseconds since 1970.
func (h *Header) Timestamp() uint64 { return binary.BigEndian.Uint64(h[1:9]) }

// SetTimestamp stores bytes 1 to 8.
func (h *Header) SetTimestamp(ns uint64) { binary.BigEndian.PutUint64(h[1:9], ns) }

// Offset is bytes 9 to 16: base offset, correlation id, run sequence or watermark by class.
func (h *Header) Offset() uint64 { return binary.BigEndian.Uint64(h[9:17]) }

// SetOffset stores bytes 9 to 16.
func (h *Header) SetOffset(v uint64) { binary.BigEndian.PutUint64(h[9:17], v) }

// KeySize is the length of the key in bytes.
func (h *Header) KeySize() uint32 { return binary.BigEndian.Uint32(h[17:21]) }

// PayloadSize is the length of the payload in bytes.
func (h *Header) PayloadSize() uint32 { return binary.BigEndian.Uint32(h[21:25]) }

// SetSizes stores the lengths of key and payload.
func (h *Header) SetSizes(key, payload uint32) {
	binary.BigEndian.PutUint32(h[17:21], key)
	binary.BigEndian.PutUint32(h[21:25], payload)
}

// RecordCount is bytes 25 to 28: records, items, a handle or bytes that follow, by class.
func (h *Header) RecordCount() uint32 { return binary.BigEndian.Uint32(h[25:29]) }

// SetRecordCount stores bytes 25 to 28.
func (h *Header) SetRecordCount(n uint32) { binary.BigEndian.PutUint32(h[25:29], n) }

// FrameSize is the length of the whole frame in bytes, summed in 64 bits so that no pair of
// lengths can wrap.
func (h *Header) FrameSize() uint64 {
	return HeaderSize + uint64(h.KeySize()) + uint64(h.PayloadSize())
}

func (h *Header) u16(at int) uint16         { return binary.BigEndian.Uint16(h[at : at+2]) }
func (h *Header) u32(at int) uint32         { return binary.BigEndian.Uint32(h[at : at+4]) }
func (h *Header) put16(at int, v uint16)    { binary.BigEndian.PutUint16(h[at:at+2], v) }
func (h *Header) put32(at int, v uint32)    { binary.BigEndian.PutUint32(h[at:at+4], v) }
func (h *Header) reset(m Magic)             { *h = Header{byte(m)} }
func (h *Header) setFollow(n uint32)        { h.SetRecordCount(n) }
func (h *Header) correlate(id uint64)       { h.SetOffset(id) }
func (h *Header) sizes(payload int) *Header { h.SetSizes(0, uint32(payload)); return h }

// Opcode of a REQUEST or RESPONSE.
func (h *Header) Opcode() Opcode { return Opcode(h.u16(1)) }

// Flags of a REQUEST.
func (h *Header) Flags() uint16 { return h.u16(3) }

// TimeoutMillis of a REQUEST: how long the broker may wait before it answers; 0 = do not wait.
func (h *Header) TimeoutMillis() uint32 { return h.u32(5) }

// Correlation of a REQUEST, RESPONSE, PING or PONG: chosen by the sender of the first.
func (h *Header) Correlation() uint64 { return h.Offset() }

// RequestHandle of a REQUEST: what OPEN answered; 0 = addressed by name in the key.
func (h *Header) RequestHandle() uint32 { return h.RecordCount() }

// Status of a RESPONSE; 0 = success, else the payload is an encoded Error.
func (h *Header) Status() Code { return Code(h.u16(3)) }

// ThrottleMillis of a RESPONSE: how long the client should pause before its next request.
func (h *Header) ThrottleMillis() uint32 { return h.u32(5) }

// PutRequest makes h the header of a request whose key and payload follow.
func (h *Header) PutRequest(op Opcode, flags uint16, timeoutMillis uint32, correlation uint64, handle uint32, key, payload int) {
	h.reset(MagicRequest)
	h.put16(1, uint16(op))
	h.put16(3, flags)
	h.put32(5, timeoutMillis)
	h.correlate(correlation)
	h.SetSizes(uint32(key), uint32(payload))
	h.SetRecordCount(handle)
}

// PutResponse makes h the header of a response whose payload follows.
func (h *Header) PutResponse(op Opcode, status Code, throttleMillis uint32, correlation uint64, items uint32, payload int) {
	h.reset(MagicResponse)
	h.put16(1, uint16(op))
	h.put16(3, uint16(status))
	h.put32(5, throttleMillis)
	h.correlate(correlation)
	h.sizes(payload)
	h.SetRecordCount(items)
}

// Level of a PRODUCE run (asked) or an ACK (reached).
func (h *Header) Level() Level { return Level(h[1]) }

// RunFlags of a PRODUCE run: 24 bits, none defined in version 1.
func (h *Header) RunFlags() uint32 { return h.u32(1) & 0xFFFFFF }

// Handle of a PRODUCE run or an ACK.
func (h *Header) Handle() uint32 { return h.u32(5) }

// RunBytes of a PRODUCE or DELIVER header: how many bytes of DATA frames follow.
func (h *Header) RunBytes() uint32 { return h.RecordCount() }

// PutProduce makes h the header of a run of DATA frames of n bytes in all.
func (h *Header) PutProduce(level Level, handle uint32, sequence uint64, n uint32) {
	h.reset(MagicProduce)
	h[1] = byte(level)
	h.put32(5, handle)
	h.SetOffset(sequence)
	h.setFollow(n)
}

// AckStatus of an ACK; 0 = success, else the payload is an encoded Error and the offset field
// holds the sequence of the refused run.
func (h *Header) AckStatus() Code { return Code(h.u16(2)) }

// PutAck makes h the header of an acknowledgement. offset is the base offset that the run was
// given, or the run's sequence when status is not 0; payload is the size of the error detail.
func (h *Header) PutAck(level Level, status Code, handle uint32, offset uint64, records uint32, payload int) {
	h.reset(MagicAck)
	h[1] = byte(level)
	h.put16(2, uint16(status))
	h.put32(5, handle)
	h.SetOffset(offset)
	h.sizes(payload)
	h.SetRecordCount(records)
}

// Subscription of a DELIVER or CREDIT.
func (h *Header) Subscription() uint32 { return h.u32(1) }

// DeliverFlags of a DELIVER run.
func (h *Header) DeliverFlags() DeliverFlags { return DeliverFlags(h.u16(5)) }

// Epoch of a DELIVER run: the low 16 bits of the partition's epoch.
func (h *Header) Epoch() uint16 { return h.u16(7) }

// PutDeliver makes h the header of a run of n bytes of stored frames.
func (h *Header) PutDeliver(sub uint32, flags DeliverFlags, epoch uint16, watermark uint64, n uint32) {
	h.reset(MagicDeliver)
	h.put32(1, sub)
	h.put16(5, uint16(flags))
	h.put16(7, epoch)
	h.SetOffset(watermark)
	h.setFollow(n)
}

// CreditFlags of a CREDIT.
func (h *Header) CreditFlags() uint32 { return h.u32(5) }

// PutCredit makes h a CREDIT frame that adds n bytes to a subscription.
func (h *Header) PutCredit(sub uint32, n uint32) {
	h.reset(MagicCredit)
	h.put32(1, sub)
	h.SetRecordCount(n)
}

// GoAwayStatus of a GOAWAY.
func (h *Header) GoAwayStatus() Code { return Code(h.u16(1)) }

// DrainMillis of a GOAWAY: how long the connection stays open for what is in flight.
func (h *Header) DrainMillis() uint32 { return h.u32(5) }

// PutGoAway makes h a GOAWAY: last is the sequence of the last run that will be answered.
func (h *Header) PutGoAway(status Code, drainMillis uint32, last uint64, payload int) {
	h.reset(MagicGoAway)
	h.put16(1, uint16(status))
	h.put32(5, drainMillis)
	h.SetOffset(last)
	h.sizes(payload)
}

// PutPing makes h a PING (or, with MagicPong, the answer, which repeats clock and id).
func (h *Header) PutPing(m Magic, clock, id uint64) {
	h.reset(m)
	h.SetTimestamp(clock)
	h.correlate(id)
}

// DeliverFlags tell a consumer more about a DELIVER run.
type DeliverFlags uint16

// Bits of DeliverFlags.
const (
	DeliverEnd  DeliverFlags = 1 << iota // the run ends at the high watermark: caught up
	DeliverDone                          // the subscription is over: its stop or its one shot is reached
)

// Level says how safe a record is when it is acknowledged.
type Level uint8

// The levels, weakest first. A topic's floor is the least that it grants.
const (
	LevelNone    Level = 0    // never acknowledged
	LevelWritten Level = 1    // handed to the kernel: survives the broker's death
	LevelDurable Level = 2    // fdatasync returned: survives a power cut
	LevelQuorum  Level = 3    // durable on a majority; alone the same as durable
	LevelTopic   Level = 0xFF // asks for the topic's floor, whatever it is
)

// String names the level as configuration and command line do.
func (l Level) String() string {
	switch l {
	case LevelNone:
		return "none"
	case LevelWritten:
		return "written"
	case LevelDurable:
		return "durable"
	case LevelQuorum:
		return "quorum"
	case LevelTopic:
		return "topic"
	}
	return "level(" + itoa(uint64(l)) + ")"
}

// ParseLevel reads none, written, durable, quorum or topic.
func ParseLevel(s string) (Level, bool) {
	for _, l := range []Level{LevelNone, LevelWritten, LevelDurable, LevelQuorum, LevelTopic} {
		if l.String() == s {
			return l, true
		}
	}
	return 0, false
}
