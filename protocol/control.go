package protocol

import "fmt"

// ControlOpcode is the kind of a stored control record; 0 is a frame of messages. A control
// record is a DATA frame with an opcode and recordCount 0: it takes a place in the log and no
// offset. Readers skip those that they do not know.
type ControlOpcode uint16

// The control records.
const (
	ControlNone     ControlOpcode = 0
	ControlNoop     ControlOpcode = 1 // nothing; begins a term
	ControlOffset   ControlOpcode = 2 // Offsets committed by groups
	ControlOwner    ControlOpcode = 3
	ControlLease    ControlOpcode = 4
	ControlSettle   ControlOpcode = 5
	ControlSubscr   ControlOpcode = 6
	ControlSchedule ControlOpcode = 7
	ControlCancel   ControlOpcode = 8
	ControlProducer ControlOpcode = 9
	ControlConf     ControlOpcode = 10
)

// ControlSpec is one row of the control record table.
type ControlSpec struct {
	Opcode ControlOpcode
	Name   string
	Since  uint8 // storage version that writes it; 0 = number reserved
	Text   string
}

// Controls is the only table of control records.
var Controls = []ControlSpec{
	{ControlNone, "MESSAGES", 1, "records of clients"},
	{ControlNoop, "NOOP", 1, "nothing; begins a term"},
	{ControlOffset, "OFFSET", 1, "positions that groups committed"},
	{ControlOwner, "OWNER", 0, "a group's partition changes hands"},
	{ControlLease, "LEASE", 0, "messages were handed to a consumer"},
	{ControlSettle, "SETTLE", 0, "messages were acked, nacked, released or declared dead"},
	{ControlSubscr, "SUBSCRIPTION", 0, "a subscription was created or removed"},
	{ControlSchedule, "SCHEDULE", 0, "a batch that is not yet due"},
	{ControlCancel, "CANCEL", 0, "a scheduled batch was called off or moved"},
	{ControlProducer, "PRODUCER", 0, "a producer id and its epoch"},
	{ControlConf, "CONF", 0, "members of the replication group"},
}

// String names the control record.
func (c ControlOpcode) String() string {
	for i := range Controls {
		if Controls[i].Opcode == c {
			return Controls[i].Name
		}
	}
	return "CONTROL_" + itoa(uint64(c))
}

// AppendControl appends to dst a control record with the subkey and body given.
//
// Bounds: body at most MaxControlFrame − 1 KiB, key at most 255 bytes; more is a defect of the
// broker and panics.
func AppendControl(dst []byte, op ControlOpcode, key, body []byte) []byte {
	if op == ControlNone || len(key) > 255 || len(body) > MaxControlFrame-1024 {
		panic(fmt.Sprintf("protocol: control record %d with key of %d and body of %d bytes", op, len(key), len(body)))
	}
	return appendFrame(dst, Prelude{Opcode: op}, key, body, 0)
}

// GroupOffset is one committed position: the next offset that the group wants to read.
type GroupOffset struct {
	Group  string
	Offset uint64
	Epoch  uint32 // owner epoch; 0 where nobody owns the partition
}

// AppendGroupOffsets appends the body of an OFFSET record.
//
//	count u32 | count × ( group str | offset u64 | epoch u32 )
func AppendGroupOffsets(dst []byte, list []GroupOffset) []byte {
	dst = appendU32(dst, uint32(len(list)))
	for i := range list {
		dst = appendString(dst, list[i].Group)
		dst = appendU64(dst, list[i].Offset)
		dst = appendU32(dst, list[i].Epoch)
	}
	return dst
}

// DecodeGroupOffsets reads the body of an OFFSET record and calls f for each position; of a
// body that does not follow the format for none.
func DecodeGroupOffsets(body []byte, f func(GroupOffset)) error {
	c := cursor{b: body}
	for range c.count(len(body), 14) {
		c.take(int(c.u16()) + 12)
	}
	if err := c.done("OFFSET record"); err != nil {
		return err
	}
	c = cursor{b: body}
	for range c.u32() {
		f(GroupOffset{Group: c.str(), Offset: c.u64(), Epoch: c.u32()})
	}
	return nil
}
