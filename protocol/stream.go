package protocol

// NoStop as a stop offset: the subscription has no end.
const NoStop = ^uint64(0)

// Bits of Subscribe.Flags.
const (
	SubscribeOneShot uint16 = 1 << iota // one DELIVER run, after at most the request's timeout, then over
)

// Subscribe starts the flow of one partition to the client: DELIVER runs of whole frames, as
// long as there is credit. The first frame may begin before the resolved start; the client
// drops those records. Whatever the credit, one whole frame is delivered when any is left.
//
//	subscription u32 | flags u16 | from position | hasTo u8 | to position | credit u64
//
// position = kind u8 | value u64.
type Subscribe struct {
	Subscription uint32 // chosen by the client, unique on the connection
	Flags        uint16
	From         Position
	HasTo        bool
	To           Position // resolved once, at the start; delivery stops before it
	Credit       uint64   // bytes
}

// AppendTo appends the message to dst.
func (m *Subscribe) AppendTo(dst []byte) []byte {
	dst = appendU32(dst, m.Subscription)
	dst = appendU16(dst, m.Flags)
	dst = m.From.appendTo(dst)
	dst = append(dst, b2u(m.HasTo))
	dst = m.To.appendTo(dst)
	return appendU64(dst, m.Credit)
}

// Decode reads the message from src.
func (m *Subscribe) Decode(src []byte) error {
	c := cursor{b: src}
	*m = Subscribe{Subscription: c.u32(), Flags: c.u16(), From: c.position(), HasTo: c.u8() != 0, To: c.position(), Credit: c.u64()}
	return c.done("SUBSCRIBE")
}

// SubscribeReply says what the positions were resolved to.
//
//	start u64 | stop u64 | end u64 | epoch u32
type SubscribeReply struct {
	Start uint64 // first offset that the client asked for
	Stop  uint64 // delivery is over before this offset; NoStop = never
	End   uint64 // high watermark now
	Epoch uint32
}

// AppendTo appends the message to dst.
func (m *SubscribeReply) AppendTo(dst []byte) []byte {
	dst = appendU64(dst, m.Start)
	dst = appendU64(dst, m.Stop)
	dst = appendU64(dst, m.End)
	return appendU32(dst, m.Epoch)
}

// Decode reads the message from src.
func (m *SubscribeReply) Decode(src []byte) error {
	c := cursor{b: src}
	*m = SubscribeReply{Start: c.u64(), Stop: c.u64(), End: c.u64(), Epoch: c.u32()}
	return c.done("SUBSCRIBE reply")
}

// Unsubscribe ends a subscription. After its answer no DELIVER of it follows.
//
//	subscription u32
type Unsubscribe struct{ Subscription uint32 }

// AppendTo appends the message to dst.
func (m *Unsubscribe) AppendTo(dst []byte) []byte { return appendU32(dst, m.Subscription) }

// Decode reads the message from src.
func (m *Unsubscribe) Decode(src []byte) error {
	c := cursor{b: src}
	m.Subscription = c.u32()
	return c.done("UNSUBSCRIBE")
}

// Offsets asks where positions lie, one item per partition of the topic in the key.
//
//	count u32 | count × ( partition u32 | position )
type Offsets struct{ Items []OffsetsItem }

// OffsetsItem is one question of Offsets.
type OffsetsItem struct {
	Partition uint32
	Position  Position
}

// AppendTo appends the message to dst.
func (m *Offsets) AppendTo(dst []byte) []byte {
	dst = appendU32(dst, uint32(len(m.Items)))
	for _, it := range m.Items {
		dst = it.Position.appendTo(appendU32(dst, it.Partition))
	}
	return dst
}

// Decode reads the message from src.
func (m *Offsets) Decode(src []byte) error {
	c := cursor{b: src}
	m.Items = nil
	for range c.count(MaxPartitions, 13) {
		m.Items = append(m.Items, OffsetsItem{c.u32(), c.position()})
	}
	return c.done("OFFSETS")
}

// OffsetsReply answers in the order of the questions.
//
//	count u32 | count × ( partition u32 | status u16 | offset u64 | start u64 | end u64 | durable u64 | epoch u32 )
type OffsetsReply struct{ Items []PartitionOffsets }

// PartitionOffsets is where one partition begins and ends, and where a position lies in it.
type PartitionOffsets struct {
	Partition uint32
	Status    Code   // OK, UNKNOWN_PARTITION, …; the offsets are 0 when it is not OK
	Offset    uint64 // what the position was resolved to
	Start     uint64
	End       uint64 // visible end
	Durable   uint64 // durable end
	Epoch     uint32
}

// AppendTo appends the message to dst.
func (m *OffsetsReply) AppendTo(dst []byte) []byte {
	dst = appendU32(dst, uint32(len(m.Items)))
	for i := range m.Items {
		it := &m.Items[i]
		dst = appendU16(appendU32(dst, it.Partition), uint16(it.Status))
		dst = appendU64(appendU64(dst, it.Offset), it.Start)
		dst = appendU64(appendU64(dst, it.End), it.Durable)
		dst = appendU32(dst, it.Epoch)
	}
	return dst
}

// Decode reads the message from src.
func (m *OffsetsReply) Decode(src []byte) error {
	c := cursor{b: src}
	m.Items = nil
	for range c.count(MaxPartitions, 42) {
		m.Items = append(m.Items, PartitionOffsets{Partition: c.u32(), Status: Code(c.u16()), Offset: c.u64(),
			Start: c.u64(), End: c.u64(), Durable: c.u64(), Epoch: c.u32()})
	}
	return c.done("OFFSETS reply")
}

func b2u(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}
