package protocol

import (
	"encoding/binary"
	"fmt"
	"iter"
	"strconv"
	"unicode/utf8"
)

// Part is one field of a frame, as its bytes hold it.
//
// Ownership: Bytes views the explained bytes.
type Part struct {
	Pos   int // of the first byte
	Bytes []byte
	Name  string
	Value string // for people
	Wrong bool   // Value says what does not follow the format; Bytes may be empty
}

const textShown = 60 // bytes of a key, value or text that Value repeats

// explainer walks bytes and hands out parts. After a field that does not fit its region, later
// fields of the region are left out; after one that does not fit the input, all are.
type explainer struct {
	b     []byte // up to the end of the region being explained
	pos   int
	exact bool // the region's end is the format's and not that of the input
	short bool // a field did not fit the region
	over  bool // the input is used up, or the consumer has enough
	yield func(Part) bool
}

func (e *explainer) emit(p Part) {
	if !e.over && !e.yield(p) {
		e.over = true
	}
}

// done tells that the rest of the region is not to be explained.
func (e *explainer) done() bool { return e.over || e.short }

// wrong reports a breach of the format at the current place and goes on.
func (e *explainer) wrong(name, format string, args ...any) {
	e.emit(Part{Pos: e.pos, Name: name, Value: fmt.Sprintf(format, args...), Wrong: true})
}

// take returns the next n bytes, nil when there are fewer, which is the end.
func (e *explainer) take(name string, n uint64) []byte {
	if e.done() {
		return nil
	}
	if left := len(e.b) - e.pos; n > uint64(left) {
		what := "truncated"
		if e.exact {
			what = "too short"
		}
		e.emit(Part{Pos: e.pos, Bytes: e.b[e.pos:], Name: name, Wrong: true,
			Value: fmt.Sprintf("%s: field %s wants %d bytes, %d left", what, name, n, left)})
		e.short, e.over = e.exact, e.over || !e.exact
		return nil
	}
	p := e.b[e.pos : e.pos+int(n)]
	e.pos += int(n)
	return p
}

// number explains a big-endian number of 1 to 8 bytes.
func (e *explainer) number(name string, size int, set string) (v uint64) {
	p := e.take(name, uint64(size))
	for _, b := range p {
		v = v<<8 | uint64(b)
	}
	if p != nil {
		e.emit(Part{Pos: e.pos - size, Bytes: p, Name: name, Value: ValueText(set, v)})
	}
	return v
}

// bytes explains n bytes of a client; none are no part.
func (e *explainer) bytes(name string, n uint64) []byte {
	p := e.take(name, n)
	if len(p) != 0 {
		e.emit(Part{Pos: e.pos - len(p), Bytes: p, Name: name, Value: quote(p)})
	}
	return p
}

// quote repeats bytes that are text and counts others.
func quote(p []byte) string {
	if !utf8.Valid(p) {
		return fmt.Sprintf("%d bytes", len(p))
	}
	if len(p) <= textShown {
		return strconv.Quote(string(p))
	}
	n := textShown
	for !utf8.RuneStart(p[n]) {
		n--
	}
	return fmt.Sprintf("%s… %d bytes", strconv.Quote(string(p[:n])), len(p))
}

// rest reports what a region holds behind its last field.
func (e *explainer) rest() {
	if n := len(e.b) - e.pos; n > 0 && !e.done() {
		p := e.take("rest", uint64(n))
		e.emit(Part{Pos: e.pos - n, Bytes: p, Name: "rest", Wrong: true, Value: fmt.Sprintf("%d bytes behind the last field", n)})
	}
}

// within narrows the walk to the next n bytes; the result puts it back behind them, whatever
// was wrong inside.
func (e *explainer) within(n uint64) (leave func()) {
	if e.done() || n > uint64(len(e.b)-e.pos) {
		return func() {}
	}
	outer, exact, end := e.b, e.exact, e.pos+int(n)
	e.b, e.exact = e.b[:end], true
	return func() { e.b, e.exact, e.short, e.pos = outer, exact, false, end }
}

// Explain walks the frame at the start of b, field by field as the tables say, and never
// reads behind its end. records bounds how many records of a DATA frame are walked (0 = 8,
// less than 0 = all); the others are one part. Damaged and truncated bytes yield parts that are Wrong.
func Explain(b []byte, records int) iter.Seq[Part] {
	return func(yield func(Part) bool) {
		e := explainer{b: b, yield: yield}
		e.frame(records)
	}
}

var unknownFields = []FieldSpec{
	{"magic", 0, 1, ""}, {"bytes1to8", 1, 8, ""}, {"bytes9to16", 9, 8, ""}, keySizeField, payloadSizeField, {"bytes25to28", 25, 4, ""},
}

func (e *explainer) frame(records int) {
	if len(e.b) == 0 {
		e.take("magic", 1)
		return
	}
	m := Magic(e.b[0])
	spec := m.Spec()
	fields := unknownFields
	if spec != nil {
		fields = spec.Fields
	} else if m == 0 {
		e.wrong("magic", "0x00 never starts a frame: a zero-filled tail")
	} else if !m.Skippable() {
		e.wrong("magic", "0x%02x is no class that may be skipped: the connection ends here", uint8(m))
	}
	for _, f := range fields {
		e.number(f.Name, f.Size, headerSet(m, f.Name, e.b))
	}
	if e.over {
		return
	}
	h := HeaderOf(e.b)
	if m == MagicData {
		e.data(h, records)
		return
	}
	e.bytes("key", uint64(h.KeySize()))
	leave := e.within(uint64(h.PayloadSize()))
	if msg := payloadOf(h); msg != nil && h.PayloadSize() > 0 {
		e.message(msg.Fields, "")
		if e.exact {
			e.rest()
		}
	} else {
		e.bytes("payload", uint64(h.PayloadSize()))
	}
	leave()
}

// headerSet is the set of Values that a header field is from.
func headerSet(m Magic, field string, b []byte) string {
	switch field {
	case "magic", "opcode":
		return field
	case "timestamp":
		return "time"
	case "status":
		return "code"
	case "acks", "level":
		return "level"
	case "flags":
		switch {
		case m == MagicDeliver:
			return "deliver flags"
		case m == MagicRequest && len(b) > 2 && Opcode(binary.BigEndian.Uint16(b[1:])) == OpTopicCreate:
			return "create flags"
		}
	}
	return ""
}

// payloadOf finds the layout of a frame's payload, nil when it is not known.
func payloadOf(h *Header) *MessageSpec {
	switch m := h.Magic(); {
	case m == MagicRequest:
		return h.Opcode().ArgsOf()
	case m == MagicResponse && h.Status() == OK:
		return h.Opcode().ResultOf()
	case m == MagicResponse, m == MagicAck && h.AckStatus() != OK, m == MagicGoAway:
		return MessageByName("Error")
	}
	return nil
}

// message explains the fields of a message, each under prefix.
func (e *explainer) message(fields []MessageField, prefix string) {
	for _, f := range fields {
		name := prefix + f.Name
		switch f.Type {
		case "u8":
			e.number(name, 1, f.Means)
		case "u16":
			e.number(name, 2, f.Means)
		case "u32":
			e.number(name, 4, f.Means)
		case "u64":
			e.number(name, 8, f.Means)
		case "str":
			e.bytes(name, e.number(name+".size", 2, ""))
		case "list":
			count := e.number(name+".count", 4, "")
			for i := uint64(0); i < count && !e.done(); i++ {
				e.message(f.Items, fmt.Sprintf("%s[%d].", name, i))
			}
		default:
			e.message(MessageByName(f.Type).Fields, name+".")
		}
		if e.done() {
			return
		}
	}
}

// data explains what follows the header of a DATA frame.
func (e *explainer) data(h *Header, records int) {
	e.bytes("key", uint64(h.KeySize()))
	if n := h.PayloadSize(); n < PreludeSize+TailSize && !e.done() {
		e.wrong("payload", "%d bytes have no room for prelude and tail", n)
		e.bytes("payload", uint64(n))
		return
	}
	leave := e.within(uint64(h.PayloadSize()) - TailSize)
	p := e.prelude()
	if !e.done() {
		e.body(h, &p, records)
	}
	leave()
	for _, f := range TailFields {
		e.number("tail."+f.Name, f.Size, f.Means)
	}
	if e.over {
		return
	}
	if f := Frame(e.b[:e.pos]); f.Sum() == f.Check() {
		e.emit(Part{Pos: e.pos, Name: "check", Value: "holds"})
	} else {
		e.wrong("check", "does not hold: the bytes give %016x", f.Sum())
	}
}

func (e *explainer) prelude() (p Prelude) {
	start := e.pos
	for i, f := range PreludeFields {
		if f.Flag&p.Flags != f.Flag {
			continue
		}
		v := e.number("prelude."+f.Name, f.Size, f.Means)
		if i == 1 {
			p.Flags = uint8(v)
		}
	}
	if e.done() {
		return p
	}
	if unknown := p.Flags &^ flagsKnown; unknown != 0 {
		e.wrong("prelude.flags", "0x%02x is not defined: what follows cannot be told", unknown)
	}
	p.decode(&cursor{b: e.b[start:e.pos]})
	return p
}

// body explains the records of a DATA frame, or what lies in their place.
func (e *explainer) body(h *Header, p *Prelude, records int) {
	left := uint64(len(e.b) - e.pos)
	switch {
	case p.Opcode == ControlOffset:
		e.message(MessageByName("GroupOffsets").Fields, "")
		e.rest()
	case p.Opcode != ControlNone:
		e.bytes("body", left)
	case p.Codec != 0:
		e.bytes("compressed", left)
	case p.Layout == LayoutPlain || p.Layout == LayoutSparse:
		e.records(h, p.Layout, records)
	default:
		e.bytes("body", left)
	}
}

func (e *explainer) records(h *Header, layout Layout, most int) {
	switch {
	case most == 0:
		most = 8
	case most < 0:
		most = len(e.b)
	}
	i, count := uint32(0), h.RecordCount()
	for ; e.pos < len(e.b) && int64(i) < int64(most) && (i < count || layout != LayoutPlain) && !e.done(); i++ {
		e.record(fmt.Sprintf("records[%d].", i), layout)
	}
	left := uint64(len(e.b) - e.pos)
	switch {
	case e.done():
	case left == 0 && layout == LayoutPlain && i != count:
		e.wrong("records", "%d, but recordCount says %d", i, count)
	case layout == LayoutPlain && i == count:
		e.rest()
	case left > 0:
		p := e.take("records", left)
		e.emit(Part{Pos: e.pos - len(p), Bytes: p, Name: "records", Value: fmt.Sprintf("the others, in %d bytes", left)})
	}
}

func (e *explainer) record(name string, layout Layout) {
	if layout == LayoutSparse {
		e.number(name+"relOffset", 4, "")
	}
	var sizes [3]uint64
	for i, f := range RecordFields {
		sizes[i] = e.number(name+f.Name, f.Size, f.Means)
	}
	k, h, v := sizes[0], sizes[1], sizes[2]
	if k != noKey {
		e.bytes(name+"key", k)
	}
	e.headers(name+"headers", h)
	if v != tombstone {
		e.bytes(name+"value", v)
	}
}

func (e *explainer) headers(name string, n uint64) {
	if n == 0 || e.done() {
		return
	}
	if n > uint64(len(e.b)-e.pos) {
		e.take(name, n)
		return
	}
	leave := e.within(n)
	for i := 0; e.pos < len(e.b) && !e.done(); i++ {
		at := fmt.Sprintf("%s[%d].", name, i)
		k := e.number(at+"nameLen", 1, "")
		v := e.number(at+"valueLen", 2, "")
		e.bytes(at+"name", k)
		e.bytes(at+"value", v)
	}
	leave()
}

// ExplainLegacyHello walks the legacy handshake at the start of b.
func ExplainLegacyHello(b []byte) iter.Seq[Part] {
	return func(yield func(Part) bool) {
		e := explainer{b: b, yield: yield}
		kind := uint8(e.number("kind", 1, "legacy kind"))
		if kind < LegacyProduce || kind > LegacyCommit {
			e.wrong("kind", "0x%02x is no legacy handshake", kind)
			return
		}
		if kind != LegacyProduce {
			e.bytes("group", e.number("group.size", 1, ""))
		}
		e.bytes("topic", e.number("topic.size", 1, ""))
		e.number("partition", 4, "")
		if kind == LegacyCommit {
			e.number("offset", 8, "")
		}
	}
}

// ExplainLegacyFrame walks a frame of the legacy protocol, whose payload is the client's alone.
func ExplainLegacyFrame(b []byte) iter.Seq[Part] {
	return func(yield func(Part) bool) {
		e := explainer{b: b, yield: yield}
		for _, f := range MagicData.Spec().Fields {
			e.number(f.Name, f.Size, headerSet(MagicData, f.Name, nil))
		}
		if e.over {
			return
		}
		h := HeaderOf(b)
		e.bytes("key", uint64(h.KeySize()))
		e.bytes("payload", uint64(h.PayloadSize()))
	}
}
