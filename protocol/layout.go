package protocol

import "strings"

// MessageField is one field of a message.
type MessageField struct {
	Name  string
	Type  string         // u8, u16, u32, u64, str (u16 length + bytes), list, or the name of a message in lower case
	Means string         // the set of Values that the number is from; "time" = ns since 1970; "" = a plain number
	Text  string         // what it says, "" where the name does
	Items []MessageField // of a list: u32 count, then so many times these fields
}

// MessageSpec is one row of the message table.
type MessageSpec struct {
	Name   string // as the opcode table's Args and Result name it
	Text   string
	Fields []MessageField
}

// Messages is the table of payload layouts. A test compares it with the drawings above the
// codecs and with the bytes that those write.
var Messages = []MessageSpec{
	{"Position", "a place in a partition that the broker resolves", []MessageField{
		{"kind", "u8", "position kind", "", nil},
		{"value", "u64", "", "offset, count or time, by kind; else 0", nil}}},
	{"Error", "a refusal: payload of a RESPONSE or ACK with a status, and of GOAWAY; the code travels in the header", []MessageField{
		{"detail", "str", "", "what happened, with names; at most 1,024 bytes, as setting and hint", nil},
		{"actual", "u64", "", "the value that was refused", nil},
		{"limit", "u64", "", "what it was held against; 0 = no limit was passed", nil},
		{"setting", "str", "", "the setting or limit that holds it", nil},
		{"from", "u64", "", "OFFSET_OUT_OF_RANGE: first offset; CORRUPT: first damaged offset", nil},
		{"to", "u64", "", "OFFSET_OUT_OF_RANGE, LOST_SUFFIX: end; CORRUPT: first offset behind the damage", nil},
		{"epoch", "u32", "", "LOST_SUFFIX: the partition's epoch", nil},
		{"hint", "str", "", "what to do", nil}}},
	{"Hello", "the first request of a connection", []MessageField{
		{"minVersion", "u8", "", "least version that the client speaks", nil},
		{"maxVersion", "u8", "", "greatest version", nil},
		{"maxFrame", "u32", "", "largest DATA frame that the client takes, bytes; 0 = any", nil},
		{"features", "u64", "features", "what the client would use", nil},
		{"client", "str", "", "name of the program, for logs", nil},
		{"clientVersion", "str", "", "its version", nil}}},
	{"HelloReply", "whom the client talks to and within which limits", []MessageField{
		{"version", "u8", "", "the version that both speak from now on", nil},
		{"features", "u64", "features", "what the broker serves of what exists", nil},
		{"maxFrame", "u32", "", "bytes of a DATA frame", nil},
		{"maxControl", "u32", "", "bytes of a frame of another class", nil},
		{"maxRun", "u32", "", "bytes of a run; one larger frame may stand alone", nil},
		{"pingMillis", "u32", "", "both sides ping when nothing else went out for so long", nil},
		{"nodeID", "u64", "", "of the broker, as long as its data directory lives", nil},
		{"clock", "u64", "time", "of the broker", nil},
		{"cluster", "str", "", "empty on a node that is alone", nil},
		{"server", "str", "", "name of the broker, for logs", nil},
		{"serverVersion", "str", "", "its version", nil}}},
	{"Open", "asks for a handle on one partition of the topic in the key", []MessageField{
		{"partition", "u32", "", "", nil},
		{"flags", "u8", "open flags", "", nil}}},
	{"OpenReply", "the handle and what a producer or consumer needs to know first", []MessageField{
		{"handle", "u32", "", "never 0; valid on this connection until CLOSE", nil},
		{"partitions", "u32", "", "of the topic", nil},
		{"floor", "u8", "level", "least level that the topic grants", nil},
		{"maxMessage", "u32", "", "bytes of key + headers + value", nil},
		{"epoch", "u32", "", "of the partition: rises when a suffix was lost", nil},
		{"start", "u64", "", "first offset that is kept", nil},
		{"end", "u64", "", "behind the last visible offset", nil}}},
	{"Settings", "topic settings; what is not named keeps its value or default", []MessageField{
		{"items", "list", "", "", []MessageField{
			{"id", "u16", "setting", "", nil},
			{"value", "u64", "", "", nil}}}}},
	{"TopicInfo", "a topic and its partitions", []MessageField{
		{"name", "str", "", "", nil},
		{"id", "u64", "", "unique for ever: a topic that was removed and created again has another", nil},
		{"settings", "settings", "", "", nil},
		{"partitions", "list", "", "by number", []MessageField{
			{"state", "u8", "partition state", "", nil},
			{"epoch", "u32", "", "", nil},
			{"start", "u64", "", "first offset that is kept", nil},
			{"end", "u64", "", "visible end", nil},
			{"durable", "u64", "", "durable end", nil},
			{"bytes", "u64", "", "of log kept", nil},
			{"segments", "u32", "", "", nil},
			{"newest", "u64", "time", "append time of the newest frame; 0 = empty", nil}}}}},
	{"TopicList", "asks for a page of topics in ascending order of names", []MessageField{
		{"after", "str", "", "names behind this one; empty = from the first", nil},
		{"limit", "u32", "", "items at most; 0 = as many as a page may hold", nil}}},
	{"TopicListReply", "one page; it may hold fewer than asked though more follow", []MessageField{
		{"more", "u8", "bool", "another page follows", nil},
		{"items", "list", "", "", []MessageField{
			{"name", "str", "", "", nil},
			{"id", "u64", "", "", nil},
			{"partitions", "u32", "", "", nil},
			{"bytes", "u64", "", "of log kept", nil},
			{"records", "u64", "", "offsets kept", nil}}}}},
	{"Offsets", "asks where positions lie in partitions of the topic in the key", []MessageField{
		{"items", "list", "", "", []MessageField{
			{"partition", "u32", "", "", nil},
			{"position", "position", "", "", nil}}}}},
	{"OffsetsReply", "answers in the order of the questions", []MessageField{
		{"items", "list", "", "", []MessageField{
			{"partition", "u32", "", "", nil},
			{"status", "u16", "code", "of this partition; the offsets are 0 when it is not OK", nil},
			{"offset", "u64", "", "what the position was resolved to", nil},
			{"start", "u64", "", "first offset that is kept", nil},
			{"end", "u64", "", "visible end", nil},
			{"durable", "u64", "", "durable end", nil},
			{"epoch", "u32", "", "", nil}}}}},
	{"Subscribe", "starts the flow of one partition to the client", []MessageField{
		{"subscription", "u32", "", "chosen by the client, unique on the connection", nil},
		{"flags", "u16", "subscribe flags", "", nil},
		{"from", "position", "", "", nil},
		{"hasTo", "u8", "bool", "whether to counts", nil},
		{"to", "position", "", "resolved once, at the start; delivery stops before it", nil},
		{"credit", "u64", "", "bytes that the broker may send before the first CREDIT", nil}}},
	{"SubscribeReply", "what the positions were resolved to", []MessageField{
		{"start", "u64", "", "first offset that the client asked for; the first frame may begin before it", nil},
		{"stop", "u64", "stop", "delivery is over before this offset; 2^64 − 1 = never", nil},
		{"end", "u64", "", "high watermark now", nil},
		{"epoch", "u32", "", "", nil}}},
	{"Unsubscribe", "ends a subscription; after its answer no DELIVER of it follows", []MessageField{
		{"subscription", "u32", "", "", nil}}},
	{"Stats", "the broker's numbers by name", []MessageField{
		{"items", "list", "", "", []MessageField{
			{"name", "str", "", "", nil},
			{"value", "u64", "", "", nil}}}}},
	{"GroupOffsets", "body of an OFFSET control record", []MessageField{
		{"positions", "list", "", "", []MessageField{
			{"group", "str", "", "", nil},
			{"offset", "u64", "", "the next offset that the group wants to read", nil},
			{"epoch", "u32", "", "owner epoch; 0 where nobody owns the partition", nil}}}}},
}

// MessageByName returns the row with that name, in any case of letters; nil if there is none.
func MessageByName(name string) *MessageSpec {
	for i := range Messages {
		if strings.EqualFold(Messages[i].Name, name) {
			return &Messages[i]
		}
	}
	return nil
}

// Layout writes the fields in the notation of the drawings: name type | name type | …
func (m *MessageSpec) Layout() string { return layoutOf(m.Fields) }

func layoutOf(fields []MessageField) string {
	parts := make([]string, 0, len(fields))
	for _, f := range fields {
		switch {
		case f.Type == "list":
			parts = append(parts, "count u32 | count × ( "+layoutOf(f.Items)+" )")
		case f.Type == f.Name:
			parts = append(parts, f.Name)
		default:
			parts = append(parts, f.Name+" "+f.Type)
		}
	}
	return strings.Join(parts, " | ")
}

// ArgsOf returns the layout of the payload of a request, nil when it has none.
func (o Opcode) ArgsOf() *MessageSpec {
	if s := o.Spec(); s != nil {
		return messageIn(s.Args)
	}
	return nil
}

// ResultOf returns the layout of the payload of a successful response, nil when it has none.
func (o Opcode) ResultOf() *MessageSpec {
	if s := o.Spec(); s != nil {
		return messageIn(s.Result)
	}
	return nil
}

// messageIn finds the message that the words of an opcode's row name, such as
// "key topic, Open".
func messageIn(text string) *MessageSpec {
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ' ' || r == ',' || r == ';' }) {
		for i := range Messages {
			if Messages[i].Name == word {
				return &Messages[i]
			}
		}
	}
	return nil
}

// DataField is one field of a DATA frame behind its key.
type DataField struct {
	Name  string
	Size  int   // bytes
	Flag  uint8 // of the prelude: the flag that announces it; 0 = always there
	Means string
	Text  string
}

// PreludeFields is the table of the prelude, in order.
var PreludeFields = []DataField{
	{"layout", 1, 0, "layout", "low nibble: how the records lie; high nibble: codec, 0 = none"},
	{"flags", 1, 0, "prelude flags", "which of the fields below follow"},
	{"opcode", 2, 0, "control", "0 = messages, else the kind of control record"},
	{"producerID", 8, FlagProducer, "", "who sent the batch"},
	{"producerEpoch", 2, FlagProducer, "", "a newer epoch fences the older ones"},
	{"firstSequence", 4, FlagProducer, "", "sequence of the first record of the batch"},
	{"deliverAt", 8, FlagDeliverAt, "time", "not visible before"},
	{"expireAt", 8, FlagExpireAt, "time", "not delivered after"},
	{"lane", 1, FlagLane, "", "priority lane"},
}

// RecordFields is the table of a record's prefix. key, headers and value follow in this order.
var RecordFields = []DataField{
	{"keyLen", 2, 0, "keyLen", "bytes of the key; 65535 = no key"},
	{"headersLen", 2, 0, "", "bytes of all headers"},
	{"valueLen", 4, 0, "valueLen", "bytes of the value; 4294967295 = no value, a tombstone"},
}

// TailFields is the table of the tail, in order. All but check are zero from a client and
// stamped by the broker.
var TailFields = []DataField{
	{"index", 8, 0, "", "ordinal of the frame in its partition's log, from 1"},
	{"term", 4, 0, "", "leadership term; 1 on a node that is alone"},
	{"stampFlags", 4, 0, "stamp flags", "bits, below"},
	{"settledLag", 4, 0, "lag", "index minus the index up to which the log was settled; 4294967295 = further back"},
	{"check", 8, 0, "check", "see below"},
}
