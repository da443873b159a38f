package protocol

import "fmt"

// Batch builds one DATA frame of messages. The zero value is ready; Reset keeps the memory.
//
// Ownership: one goroutine at a time. Bytes given to Add are copied.
type Batch struct {
	Prelude Prelude // set before the first Add; the fields that Flags announces are written

	buf   []byte
	count uint32
}

// Reset empties the batch and keeps its memory and prelude.
func (b *Batch) Reset() { b.buf, b.count = b.buf[:0], 0 }

// Len is the number of records.
func (b *Batch) Len() int { return int(b.count) }

// Size is the length in bytes that the frame would have now.
func (b *Batch) Size() int {
	if b.count == 0 {
		return HeaderSize + preludeSize(b.Prelude.Flags) + TailSize
	}
	return len(b.buf) + TailSize
}

// Grow makes room for n more bytes of records.
func (b *Batch) Grow(n int) {
	if need := max(len(b.buf), HeaderSize+preludeSize(b.Prelude.Flags)) + n + TailSize; cap(b.buf) < need {
		b.buf = append(make([]byte, 0, need), b.buf...)
	}
}

// RecordSize is what a record adds to a frame, in bytes.
func RecordSize(key, value []byte, headers Headers) int {
	return recordPrefix + len(key) + len(headers) + len(value)
}

// Add appends a record; a nil key means none, a nil value a tombstone.
//
// Errors: TooLarge (key, headers, record count, frame size) and BadFrame (headers that were not
// made by Headers.Append), and the batch is unchanged.
func (b *Batch) Add(key, value []byte, headers Headers) error {
	switch {
	case len(key) > MaxKey:
		return &Error{Code: TooLarge, Detail: "key", Actual: uint64(len(key)), Limit: MaxKey, Setting: "key"}
	case len(headers) > MaxHeaders:
		return &Error{Code: TooLarge, Detail: "headers", Actual: uint64(len(headers)), Limit: MaxHeaders, Setting: "headers"}
	case !headers.valid():
		return &Error{Code: BadFrame, Detail: fmt.Sprintf("%d bytes of headers do not follow the format", len(headers))}
	case b.count == MaxRecords:
		return &Error{Code: TooLarge, Detail: "records of one frame", Actual: MaxRecords + 1, Limit: MaxRecords, Setting: "records_per_frame"}
	case b.Size()+RecordSize(key, value, headers) > MaxDataFrame:
		return &Error{Code: TooLarge, Detail: "DATA frame", Actual: uint64(b.Size() + RecordSize(key, value, headers)), Limit: MaxDataFrame, Setting: "data_frame"}
	}
	if b.count == 0 {
		var h Header
		b.buf = b.Prelude.AppendTo(append(b.buf[:0], h[:]...))
	}
	b.buf = appendRecord(b.buf, key, value, headers)
	b.count++
	return nil
}

// Seal finishes the frame and returns it. It panics on an empty batch.
//
// Ownership: the frame is the batch's memory, valid until Reset or Add.
func (b *Batch) Seal() Frame {
	if b.count == 0 {
		panic("protocol: Seal of an empty batch")
	}
	f := finish(b.buf, 0, b.count)
	b.buf = f[:len(b.buf)] // room for the tail is kept, so the next Seal finds it
	return f
}

// finish adds an empty tail to buf (header, key, payload so far), fills in the sizes and seals.
func finish(buf []byte, keySize int, count uint32) Frame {
	var tail [TailSize]byte
	f := Frame(append(buf, tail[:]...))
	h := f.Header()
	h.reset(MagicData)
	h.SetSizes(uint32(keySize), uint32(len(f)-HeaderSize-keySize))
	h.SetRecordCount(count)
	f.Seal()
	return f
}

// AppendOpaque appends to dst an opaque frame: a client's own body under a frame key, that
// takes count offsets.
//
// Errors: TooLarge when the frame would exceed MaxDataFrame, the key MaxKey or count MaxRecords;
// BadFrame when count is 0 or more than key and body have bytes (1 is always allowed). A reader
// of the log refuses each of them.
func AppendOpaque(dst []byte, key, body []byte, count uint32) ([]byte, error) {
	if len(key) > MaxKey {
		return dst, &Error{Code: TooLarge, Detail: "key", Actual: uint64(len(key)), Limit: MaxKey, Setting: "key"}
	}
	if n := len(key) + len(body) + MinFrame; n > MaxDataFrame {
		return dst, &Error{Code: TooLarge, Detail: "DATA frame", Actual: uint64(n), Limit: MaxDataFrame, Setting: "data_frame"}
	}
	if err := checkCount("opaque frame", count, uint64(len(key)+len(body))); err != nil {
		return dst, err
	}
	if count == 0 {
		return dst, &Error{Code: BadFrame, Detail: "message frame of 0 records"}
	}
	return appendFrame(dst, Prelude{Layout: LayoutOpaque}, key, body, count), nil
}

// appendFrame appends one frame to dst.
func appendFrame(dst []byte, p Prelude, key, body []byte, count uint32) []byte {
	start := len(dst)
	var h Header
	dst = append(dst, h[:]...)
	dst = append(dst, key...)
	dst = p.AppendTo(dst)
	dst = append(dst, body...)
	f := finish(dst[start:], len(key), count)
	return append(dst[:start], f...)
}

// Span returns the offsets that a stored frame covers: [base, base+count).
func (f Frame) Span() (base, end uint64) {
	h := f.Header()
	return h.Offset(), h.Offset() + uint64(h.RecordCount())
}

// String names the frame for logs and errors.
func (f Frame) String() string {
	base, end := f.Span()
	return fmt.Sprintf("frame index %d term %d offsets [%d, %d) %d bytes", f.Index(), f.Term(), base, end, len(f))
}
