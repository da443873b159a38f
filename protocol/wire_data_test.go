package protocol

import "errors"

// data is a DATA frame by its fields. Records is of plain and sparse frames, Positions of an
// OFFSET record, Body of all others.
type data struct {
	Timestamp   uint64
	Offset      uint64
	RecordCount uint32
	Key         []byte
	Prelude     Prelude
	Records     []dataRecord
	Positions   []GroupOffset
	Body        []byte
	Index       uint64
	Term        uint32
	StampFlags  uint32
	SettledLag  uint32
}

type dataRecord struct {
	RelOffset uint32 // from the frame's base offset
	Key       []byte
	Headers   []dataHeader
	Value     []byte
}

type dataHeader struct {
	Name  string
	Value []byte
}

func (d data) encode() []byte {
	f := d.build()
	if d.Index != 0 {
		new(Stamp{d.Timestamp, d.Offset, d.Index, d.Term, d.StampFlags, d.SettledLag}).Apply(f)
	}
	return f
}

// build makes the frame as its sender does.
func (d data) build() Frame {
	p := d.Prelude
	switch {
	case p.Opcode == ControlOffset:
		return AppendControl(nil, p.Opcode, d.Key, AppendGroupOffsets(nil, d.Positions))
	case p.Opcode != ControlNone:
		return AppendControl(nil, p.Opcode, d.Key, d.Body)
	case p == (Prelude{Layout: LayoutOpaque}):
		f, err := AppendOpaque(nil, d.Key, d.Body, d.RecordCount)
		if err != nil {
			panic(err)
		}
		return f
	case p.Codec != 0 || p.Layout == LayoutOpaque:
		return appendFrame(nil, p, d.Key, d.Body, d.RecordCount)
	case p.Layout == LayoutSparse:
		var body []byte
		for _, r := range d.Records {
			body = appendRecord(appendU32(body, r.RelOffset), r.Key, r.Value, r.headers())
		}
		return appendFrame(nil, p, nil, body, d.RecordCount)
	}
	b := Batch{Prelude: p}
	for _, r := range d.Records {
		if err := b.Add(r.Key, r.Value, r.headers()); err != nil {
			panic(err)
		}
	}
	return b.Seal()
}

func (r *dataRecord) headers() (h Headers) {
	for _, pair := range r.Headers {
		var err error
		if h, err = h.Append(pair.Name, pair.Value); err != nil {
			panic(err)
		}
	}
	return h
}

func (d data) decode(b []byte) (wire, error) {
	if _, err := whole(b, MagicData); err != nil {
		return nil, err
	}
	return readFrame(b)
}

// readFrame reads one whole frame as a consumer, or the recovery of a log, does.
func readFrame(b []byte) (data, error) {
	n, err := CheckStored(b, MaxDataFrame)
	if err != nil || n != len(b) {
		return data{}, errors.Join(err, errUnlike)
	}
	f := Frame(b)
	h := f.Header()
	d := data{Timestamp: h.Timestamp(), Offset: h.Offset(), RecordCount: h.RecordCount(), Prelude: f.Prelude(),
		Index: f.Index(), Term: f.Term(), StampFlags: f.StampFlags(), SettledLag: f.SettledLag()}
	if h.KeySize() != 0 {
		d.Key = f.Key()
	}
	switch p := &d.Prelude; {
	case p.Opcode == ControlOffset:
		return d, DecodeGroupOffsets(f.Body(), func(g GroupOffset) { d.Positions = append(d.Positions, g) })
	case p.Opcode == ControlNoop:
	case p.Opcode != ControlNone || p.Codec != 0 || p.Layout == LayoutOpaque:
		d.Body = f.Body()
	default:
		it := Records(f)
		for it.Next() {
			d.Records = append(d.Records, readRecord(&it.Record, h.Offset()))
		}
		return d, it.Err()
	}
	return d, nil
}

func readRecord(r *Record, base uint64) dataRecord {
	got := dataRecord{RelOffset: uint32(r.Offset - base), Key: r.Key, Value: r.Value}
	for k, v, rest, ok := r.Headers.Next(); ok; k, v, rest, ok = rest.Next() {
		got.Headers = append(got.Headers, dataHeader{string(k), v})
	}
	return got
}

func appendFrames(dst []byte, frames []data) []byte {
	for _, d := range frames {
		dst = append(dst, d.encode()...)
	}
	return dst
}

func readFrames(b []byte) (frames []data, err error) {
	for len(b) > 0 {
		n, err := SizeStored(b, MaxDataFrame)
		if err != nil || n == 0 || n > len(b) {
			return nil, errors.Join(err, errUnlike)
		}
		d, err := readFrame(b[:n])
		if err != nil {
			return nil, err
		}
		frames = append(frames, d)
		b = b[n:]
	}
	return frames, nil
}
