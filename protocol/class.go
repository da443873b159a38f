package protocol

import "fmt"

// Direction is who sends a class.
type Direction string

// The directions.
const (
	ToBroker Direction = "client → broker"
	ToClient Direction = "broker → client"
	BothWays Direction = "both"
	Peers    Direction = "broker ↔ broker"
)

// FieldSpec is one field of a header.
type FieldSpec struct {
	Name string
	Pos  int // first byte in the header
	Size int // bytes
	Text string
}

// ClassSpec is one row of the class table: what a class does with the 28 bytes behind magic.
type ClassSpec struct {
	Magic  Magic
	Name   string
	Dir    Direction
	Since  uint8 // protocol version; 0 = reserved
	Fields []FieldSpec
	Body   string // what follows the header
}

const sizesText = "length of the key in bytes"

func fields(f ...FieldSpec) []FieldSpec {
	return append([]FieldSpec{{"magic", 0, 1, "class and version"}}, f...)
}

var (
	keySizeField     = FieldSpec{"keySize", 17, 4, sizesText}
	payloadSizeField = FieldSpec{"payloadSize", 21, 4, "length of the payload in bytes"}
)

// Classes is the only table of frame classes and header fields. docs/protocol.md and every tool
// that explains bytes are made from it.
var Classes = []ClassSpec{
	{MagicData, "DATA", BothWays, 1, fields(
		FieldSpec{"timestamp", 1, 8, "append time, ns since 1970; stamped by the broker, never decreases in a partition"},
		FieldSpec{"offset", 9, 8, "base offset, stamped by the broker"},
		keySizeField, payloadSizeField,
		FieldSpec{"recordCount", 25, 4, "offsets that it covers; 0 for a control record"}),
		"key, prelude, records, 28-byte tail; stored as it travels"},
	{MagicRequest, "REQUEST", ToBroker, 1, fields(
		FieldSpec{"opcode", 1, 2, "what is asked"},
		FieldSpec{"flags", 3, 2, "of the opcode"},
		FieldSpec{"timeoutMillis", 5, 4, "how long the broker may wait; 0 = not at all"},
		FieldSpec{"correlation", 9, 8, "repeated in the response"},
		keySizeField, payloadSizeField,
		FieldSpec{"handle", 25, 4, "from OPEN; 0 = addressed by name in the key"}),
		"key, arguments"},
	{MagicResponse, "RESPONSE", ToClient, 1, fields(
		FieldSpec{"opcode", 1, 2, "of the request"},
		FieldSpec{"status", 3, 2, "0 = success, else the payload is an Error"},
		FieldSpec{"throttleMillis", 5, 4, "pause before the next request"},
		FieldSpec{"correlation", 9, 8, "of the request"},
		keySizeField, payloadSizeField,
		FieldSpec{"items", 25, 4, "items of a list"}),
		"result"},
	{MagicProduce, "PRODUCE", ToBroker, 1, fields(
		FieldSpec{"acks", 1, 1, "level asked: 0 none, 1 written, 2 durable, 3 quorum, 255 the topic's floor"},
		FieldSpec{"flags", 2, 3, "none defined: 0"},
		FieldSpec{"handle", 5, 4, "from OPEN"},
		FieldSpec{"sequence", 9, 8, "of the run; repeated when it is refused"},
		keySizeField, payloadSizeField,
		FieldSpec{"runBytes", 25, 4, "bytes of DATA frames that follow"}),
		"DATA frames, appended whole or not at all"},
	{MagicAck, "ACK", ToClient, 1, fields(
		FieldSpec{"level", 1, 1, "level reached"},
		FieldSpec{"status", 2, 2, "0 = success, else the payload is an Error"},
		FieldSpec{"flags", 4, 1, "none defined: 0"},
		FieldSpec{"handle", 5, 4, "of the run; FIFO per handle"},
		FieldSpec{"offset", 9, 8, "base offset given; the run's sequence when refused"},
		keySizeField, payloadSizeField,
		FieldSpec{"records", 25, 4, "records acknowledged"}),
		"nothing, or the Error"},
	{MagicDeliver, "DELIVER", ToClient, 1, fields(
		FieldSpec{"subscription", 1, 4, "from SUBSCRIBE"},
		FieldSpec{"flags", 5, 2, "1 end of log, 2 subscription done"},
		FieldSpec{"epoch", 7, 2, "low bits of the partition's epoch"},
		FieldSpec{"watermark", 9, 8, "visible end of the partition"},
		keySizeField, payloadSizeField,
		FieldSpec{"runBytes", 25, 4, "bytes of DATA frames that follow"}),
		"whole DATA frames, straight from the log"},
	{MagicCredit, "CREDIT", ToBroker, 1, fields(
		FieldSpec{"subscription", 1, 4, "from SUBSCRIBE"},
		FieldSpec{"flags", 5, 4, "none defined: 0"},
		FieldSpec{"offset", 9, 8, "0"},
		keySizeField, payloadSizeField,
		FieldSpec{"credit", 25, 4, "bytes added"}),
		"nothing"},
	{MagicGoAway, "GOAWAY", ToClient, 1, fields(
		FieldSpec{"status", 1, 2, "why"},
		FieldSpec{"reserved", 3, 2, "0"},
		FieldSpec{"drainMillis", 5, 4, "how long the connection stays open"},
		FieldSpec{"last", 9, 8, "sequence of the last run that will be answered"},
		keySizeField, payloadSizeField,
		FieldSpec{"reserved2", 25, 4, "0"}),
		"an Error that says more, or nothing"},
	{MagicPing, "PING", BothWays, 1, pingFields(), "nothing"},
	{MagicPong, "PONG", BothWays, 1, pingFields(), "nothing"},
	{MagicPeer, "PEER", Peers, 0, fields(
		FieldSpec{"reserved", 1, 16, "defined with clustering"},
		keySizeField, payloadSizeField,
		FieldSpec{"runBytes", 25, 4, "bytes of DATA frames that follow"}), "DATA frames"},
}

func pingFields() []FieldSpec {
	return fields(
		FieldSpec{"clock", 1, 8, "sender's clock; PONG repeats it"},
		FieldSpec{"correlation", 9, 8, "PONG repeats it"},
		keySizeField, payloadSizeField,
		FieldSpec{"reserved", 25, 4, "0"})
}

// Spec returns the class's row, nil for a magic that no row has.
func (m Magic) Spec() *ClassSpec {
	for i := range Classes {
		if Classes[i].Magic == m {
			return &Classes[i]
		}
	}
	return nil
}

// String names the class.
func (m Magic) String() string {
	if s := m.Spec(); s != nil {
		return s.Name
	}
	return fmt.Sprintf("magic 0x%02x", uint8(m))
}

// Bounds are the largest frames that a reader takes. Zero means the default.
type Bounds struct {
	Control uint64 // bytes of every class but DATA; default MaxControlFrame
	Data    uint64 // bytes of a DATA frame; default MaxDataFrame
}

// Size returns the size of the frame that starts at b: 0 and no error when b ends inside the
// header, an error when the frame may not be read at all. It looks at the header alone, so a
// reader asks before it makes room; an unknown class is refused by its first byte.
//
// Errors: Unsupported (an unknown class that may not be skipped), TooLarge, BadFrame. Framing
// is lost after each of them: answer and hang up.
func (l Bounds) Size(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	switch m := Magic(b[0]); m {
	case MagicData:
		limit := l.Data
		if limit == 0 {
			limit = MaxDataFrame
		}
		return SizeStored(b, limit)
	case MagicRequest, MagicResponse, MagicProduce, MagicAck, MagicDeliver, MagicCredit, MagicGoAway:
	default:
		if !m.Skippable() {
			return 0, &Error{Code: Unsupported, Detail: fmt.Sprintf("unknown frame class, magic 0x%02x", uint8(m))}
		}
	}
	if len(b) < HeaderSize {
		return 0, nil
	}
	h := HeaderOf(b)
	limit := l.Control
	if limit == 0 {
		limit = MaxControlFrame
	}
	if n := h.FrameSize(); n > limit {
		return 0, &Error{Code: TooLarge, Detail: h.Magic().String() + " frame", Actual: n, Limit: limit, Setting: "control_frame"}
	}
	return int(h.FrameSize()), nil
}
