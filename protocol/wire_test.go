package protocol

import (
	"errors"
	"fmt"
	"reflect"
)

// The kinds of golden vectors: each has the fields of a frame by name, writes it with what a
// sender uses and reads it with what a receiver uses.

type message interface {
	AppendTo(dst []byte) []byte
	Decode(src []byte) error
}

var errUnlike = errors.New("decoded otherwise")

// whole checks that b is one frame of the class for a reader of frames.
func whole(b []byte, m Magic) (*Header, error) {
	n, err := Bounds{}.Size(b)
	if err != nil {
		return nil, err
	}
	if n != len(b) || HeaderOf(b).Magic() != m {
		return nil, fmt.Errorf("%w: %d of %d bytes, %s", errUnlike, n, len(b), HeaderOf(b).Magic())
	}
	return HeaderOf(b), nil
}

// likewise decodes a message of the same type as m.
func likewise(m message, src []byte) (message, error) {
	if m == nil {
		if len(src) != 0 {
			return nil, fmt.Errorf("%w: %d bytes of payload", errUnlike, len(src))
		}
		return nil, nil
	}
	got := reflect.New(reflect.TypeOf(m).Elem()).Interface().(message)
	return got, got.Decode(src)
}

func payload(m message) []byte {
	if m == nil {
		return nil
	}
	return m.AppendTo(nil)
}

// refusalBytes is the payload of a refusal, and refusalOf reads it.
func refusalBytes(e *Error) []byte {
	if e == nil {
		return nil
	}
	return e.AppendTo(nil)
}

func refusalOf(code Code, src []byte) (*Error, error) {
	if len(src) == 0 {
		return nil, nil
	}
	e := new(Error)
	return e, e.Decode(code, src)
}

type request struct {
	Opcode        Opcode
	Flags         uint16
	TimeoutMillis uint32
	Correlation   uint64
	Handle        uint32
	Key           string
	Message       message
}

func (r request) encode() []byte {
	var h Header
	p := payload(r.Message)
	h.PutRequest(r.Opcode, r.Flags, r.TimeoutMillis, r.Correlation, r.Handle, len(r.Key), len(p))
	return append(append(h[:], r.Key...), p...)
}

func (r request) decode(b []byte) (wire, error) {
	h, err := whole(b, MagicRequest)
	if err != nil {
		return nil, err
	}
	key := b[HeaderSize : HeaderSize+h.KeySize()]
	m, err := likewise(r.Message, b[HeaderSize+h.KeySize():])
	return request{h.Opcode(), h.Flags(), h.TimeoutMillis(), h.Correlation(), h.RequestHandle(), string(key), m}, err
}

type response struct {
	Opcode         Opcode
	Status         Code
	ThrottleMillis uint32
	Correlation    uint64
	Items          uint32
	Message        message
	Error          *Error
}

func (r response) encode() []byte {
	var h Header
	p := append(payload(r.Message), refusalBytes(r.Error)...)
	h.PutResponse(r.Opcode, r.Status, r.ThrottleMillis, r.Correlation, r.Items, len(p))
	return append(h[:], p...)
}

func (r response) decode(b []byte) (wire, error) {
	h, err := whole(b, MagicResponse)
	if err != nil {
		return nil, err
	}
	got := response{Opcode: h.Opcode(), Status: h.Status(), ThrottleMillis: h.ThrottleMillis(), Correlation: h.Correlation(), Items: h.RecordCount()}
	if got.Status != OK {
		got.Error, err = refusalOf(got.Status, b[HeaderSize:])
	} else {
		got.Message, err = likewise(r.Message, b[HeaderSize:])
	}
	return got, err
}

type produce struct {
	Acks     Level
	Handle   uint32
	Sequence uint64
	RunBytes uint32
	Frames   []data
}

func (p produce) encode() []byte {
	var h Header
	h.PutProduce(p.Acks, p.Handle, p.Sequence, p.RunBytes)
	return appendFrames(h[:], p.Frames)
}

func (p produce) decode(b []byte) (wire, error) {
	h, err := whole(b[:HeaderSize], MagicProduce)
	if err != nil {
		return nil, err
	}
	got := produce{Acks: h.Level(), Handle: h.Handle(), Sequence: h.Offset(), RunBytes: h.RunBytes()}
	if h.RunFlags() != 0 || int(got.RunBytes) != len(b)-HeaderSize {
		return nil, errUnlike
	}
	run, err := CheckRun(b[HeaderSize:], DefaultMessageBytes)
	if err != nil {
		return nil, err
	}
	got.Frames, err = readFrames(b[HeaderSize:])
	if int(run.Frames) != len(got.Frames) {
		return nil, errUnlike
	}
	return got, err
}

type ack struct {
	Level   Level
	Status  Code
	Handle  uint32
	Offset  uint64
	Records uint32
	Error   *Error
}

func (a ack) encode() []byte {
	var h Header
	p := refusalBytes(a.Error)
	h.PutAck(a.Level, a.Status, a.Handle, a.Offset, a.Records, len(p))
	return append(h[:], p...)
}

func (a ack) decode(b []byte) (wire, error) {
	h, err := whole(b, MagicAck)
	if err != nil {
		return nil, err
	}
	e, err := refusalOf(h.AckStatus(), b[HeaderSize:])
	return ack{h.Level(), h.AckStatus(), h.Handle(), h.Offset(), h.RecordCount(), e}, err
}

type deliver struct {
	Subscription uint32
	Flags        DeliverFlags
	Epoch        uint16
	Watermark    uint64
	RunBytes     uint32
	Frames       []data
}

func (d deliver) encode() []byte {
	var h Header
	h.PutDeliver(d.Subscription, d.Flags, d.Epoch, d.Watermark, d.RunBytes)
	return appendFrames(h[:], d.Frames)
}

func (d deliver) decode(b []byte) (wire, error) {
	h, err := whole(b[:HeaderSize], MagicDeliver)
	if err != nil || int(h.RunBytes()) != len(b)-HeaderSize {
		return nil, errors.Join(err, errUnlike)
	}
	frames, err := readFrames(b[HeaderSize:])
	return deliver{h.Subscription(), h.DeliverFlags(), h.Epoch(), h.Offset(), h.RunBytes(), frames}, err
}

type credit struct {
	Subscription uint32
	Credit       uint32
}

func (c credit) encode() []byte {
	var h Header
	h.PutCredit(c.Subscription, c.Credit)
	return h[:]
}

func (c credit) decode(b []byte) (wire, error) {
	h, err := whole(b, MagicCredit)
	if err != nil || h.CreditFlags() != 0 {
		return nil, errors.Join(err, errUnlike)
	}
	return credit{h.Subscription(), h.RecordCount()}, nil
}

type goAway struct {
	Status      Code
	DrainMillis uint32
	Last        uint64
	Error       *Error
}

func (g goAway) encode() []byte {
	var h Header
	p := refusalBytes(g.Error)
	h.PutGoAway(g.Status, g.DrainMillis, g.Last, len(p))
	return append(h[:], p...)
}

func (g goAway) decode(b []byte) (wire, error) {
	h, err := whole(b, MagicGoAway)
	if err != nil {
		return nil, err
	}
	e, err := refusalOf(h.GoAwayStatus(), b[HeaderSize:])
	return goAway{h.GoAwayStatus(), h.DrainMillis(), h.Offset(), e}, err
}

type ping struct {
	Magic       Magic
	Clock       uint64
	Correlation uint64
}

func (p ping) encode() []byte {
	var h Header
	h.PutPing(p.Magic, p.Clock, p.Correlation)
	return h[:]
}

func (p ping) decode(b []byte) (wire, error) {
	h, err := whole(b, p.Magic)
	if err != nil {
		return nil, err
	}
	return ping{h.Magic(), h.Timestamp(), h.Correlation()}, nil
}

// skipped is a frame of a class that a receiver hops over.
type skipped struct {
	Magic   Magic
	Key     string
	Payload []byte
}

func (s skipped) encode() []byte {
	h := Header{byte(s.Magic)}
	h.SetSizes(uint32(len(s.Key)), uint32(len(s.Payload)))
	return append(append(h[:], s.Key...), s.Payload...)
}

func (s skipped) decode(b []byte) (wire, error) {
	h, err := whole(b, s.Magic)
	if err != nil || !h.Magic().Skippable() {
		return nil, errors.Join(err, errUnlike)
	}
	at := HeaderSize + h.KeySize()
	return skipped{h.Magic(), string(b[HeaderSize:at]), b[at:]}, nil
}

type legacyHello LegacyHello

func (l legacyHello) encode() []byte { return (*LegacyHello)(&l).AppendTo(nil) }

func (l legacyHello) decode(b []byte) (wire, error) {
	h, n, err := ParseLegacyHello(b)
	if err != nil || n != len(b) {
		return nil, errors.Join(err, errUnlike)
	}
	return legacyHello(h), nil
}

type legacyFrame struct {
	Timestamp   uint64
	Offset      uint64
	Key         string
	Payload     []byte
	RecordCount uint32
}

func (l legacyFrame) encode() []byte {
	var h Header
	h.PutLegacy(l.Timestamp, l.Offset, uint32(len(l.Key)), uint32(len(l.Payload)), l.RecordCount)
	return append(append(h[:], l.Key...), l.Payload...)
}

func (l legacyFrame) decode(b []byte) (wire, error) {
	n, err := LegacySize(b, DefaultMessageBytes)
	if err != nil || n != len(b) {
		return nil, errors.Join(err, errUnlike)
	}
	h := HeaderOf(b)
	at := HeaderSize + h.KeySize()
	return legacyFrame{h.Timestamp(), h.Offset(), string(b[HeaderSize:at]), b[at:], h.RecordCount()}, nil
}

type legacyAck struct {
	Status uint8
	Offset uint64
}

func (l legacyAck) encode() []byte { return appendU64([]byte{l.Status}, l.Offset) }

func (l legacyAck) decode(b []byte) (wire, error) {
	if len(b) != LegacyAckSize {
		return nil, errUnlike
	}
	return legacyAck{b[0], be(b[1:])}, nil
}
