package client

import (
	"fmt"

	"github.com/millrace-mq/millrace/protocol"
)

// NoOffset is the offset of an Ack that has none: the message was sent with level none.
const NoOffset = ^uint64(0)

// Header is one name and value of a message.
//
// Bounds: the name at most 255 bytes; all of a message with 3 bytes each at most 65,535 bytes.
type Header struct {
	Name  string
	Value []byte
}

// PartitionRef is a choice of partition; the zero value leaves it to the producer.
type PartitionRef struct{ n uint32 } // number + 1; 0 = none chosen

// Partition chooses partition n.
func Partition(n uint32) PartitionRef { return PartitionRef{n + 1} }

// Message is what a producer sends. A nil Key means none, a nil Value a tombstone.
//
// Without a chosen partition, messages with equal keys go to the same one
// (protocol.PartitionOf) and those without key stay with one partition for a batch, then with
// the next.
type Message struct {
	Topic     string
	Partition PartitionRef
	Key       []byte
	Value     []byte
	Headers   []Header
}

// Ack says where a message is and how safe it is.
type Ack struct {
	Topic     string
	Partition uint32
	Offset    uint64         // of AsyncBatch: of the first record; NoOffset with level none
	Level     protocol.Level // reached
}

// Batch is a DATA frame that the caller fills, for those who produce hundreds of records at
// once. The zero value is ready; it keeps its memory.
//
// Ownership: one goroutine at a time. Bytes given to Add are copied. AsyncBatch empties it, and
// then it may be filled again at once.
type Batch struct {
	frame   protocol.Batch
	headers protocol.Headers
}

// Add appends a record; a nil key means none, a nil value a tombstone.
//
// Errors: those of protocol.Batch.Add, and the batch is unchanged.
func (b *Batch) Add(key, value []byte, headers ...Header) error {
	var err error
	if b.headers, err = appendHeaders(b.headers[:0], headers); err != nil {
		return err
	}
	return b.frame.Add(key, value, b.headers)
}

// Len is the number of records.
func (b *Batch) Len() int { return b.frame.Len() }

// Size is the length in bytes of the frame.
func (b *Batch) Size() int { return b.frame.Size() }

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() { b.frame.Reset() }

func appendHeaders(dst protocol.Headers, headers []Header) (protocol.Headers, error) {
	for i := range headers {
		var err error
		if dst, err = dst.Append(headers[i].Name, headers[i].Value); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

// headersSize is what headers take in a record, in bytes.
func headersSize(headers []Header) (n int) {
	for i := range headers {
		n += 3 + len(headers[i].Name) + len(headers[i].Value)
	}
	return n
}

// check refuses a message that no frame can carry.
func (m *Message) check() error {
	if len(m.Key) > protocol.MaxKey {
		return &protocol.Error{Code: protocol.TooLarge, Detail: "key", Actual: uint64(len(m.Key)), Limit: protocol.MaxKey, Setting: "key"}
	}
	for i := range m.Headers {
		if n := len(m.Headers[i].Name); n > protocol.MaxHeaderName {
			return &protocol.Error{Code: protocol.TooLarge, Detail: "header name", Actual: uint64(n), Limit: protocol.MaxHeaderName, Setting: "header_name"}
		}
	}
	if n := headersSize(m.Headers); n > protocol.MaxHeaders {
		return &protocol.Error{Code: protocol.TooLarge, Detail: "headers", Actual: uint64(n), Limit: protocol.MaxHeaders, Setting: "headers"}
	}
	if m.Partition.n > protocol.MaxPartitions {
		return badPartition(m.Topic, m.Partition.n-1)
	}
	return nil
}

func badPartition(topic string, n uint32) error {
	return &protocol.Error{Code: protocol.UnknownPartition, Detail: fmt.Sprintf("%s/%d", topic, n),
		Actual: uint64(n), Limit: protocol.MaxPartitions - 1, Setting: "partitions_per_topic"}
}

// size is key + headers + value in bytes: what max_message_bytes bounds.
func (m *Message) size() int {
	n := len(m.Key) + len(m.Value)
	if len(m.Headers) > 0 {
		n += headersSize(m.Headers)
	}
	return n
}

func tooLarge(size int, limit uint32) error {
	return &protocol.Error{Code: protocol.TooLarge, Detail: "message", Actual: uint64(size), Limit: uint64(limit), Setting: "max_message_bytes"}
}

// recordOverhead is what a record takes beside key, headers and value, in bytes.
var recordOverhead = protocol.RecordSize(nil, nil, nil)

// entry is whom to tell about one record: a callback, a waiting Send, or nobody.
type entry struct {
	fn func(Ack, error)
	w  *waiter
}

// waiter is a Send that waits.
type waiter struct{ result chan outcome } // capacity 1

type outcome struct {
	ack Ack
	err error
}

// batch is one DATA frame of a pipeline and whom to tell about it.
//
//	open: being filled → queued: complete → in flight: in a run → resolved
//
// Ownership: the pipeline, under its mu; frame and sealed belong to the connection's write
// goroutine while the batch is in flight.
type batch struct {
	frame   protocol.Batch
	sealed  protocol.Frame   // nil = not yet sealed
	entries []entry          // by record; those behind its end have nobody to tell
	whole   func(Ack, error) // of AsyncBatch: one call for all records
	asks    bool             // a callback is among entries and whole
	single  bool             // of SendBatch: the one entry stands for all records
	records int
	bytes   int    // of the buffer budget
	born    int64  // ns of the client's clock
	epoch   uint32 // of Flush
	unknown bool   // it was sent on a connection that ended before the answer
	bad     bool   // it was refused for its check once
	alone   bool   // it makes a run of its own: a refused run of several is looking for the culprit
	gone    bool   // its entries were told already; only the memory is still in use
	kept    int    // bytes that it counts among the spare ones

	// the result
	base  uint64
	level protocol.Level
	err   error

	unheard int  // failed records that nobody is told about
	aborted bool // Close resolved it and counts all of its records
}

// put appends a record that Producer checked.
func (b *batch) put(m *Message, headers protocol.Headers, e entry, bytes int) error {
	if err := b.frame.Add(m.Key, m.Value, headers); err != nil {
		return err
	}
	if e.fn != nil || e.w != nil {
		for len(b.entries) < b.records { // those before have nobody to tell
			b.entries = append(b.entries, entry{})
		}
		b.entries = append(b.entries, e)
		b.asks = b.asks || e.fn != nil
	}
	b.records++
	b.bytes += bytes
	return nil
}

// size is the length of the frame in bytes.
func (b *batch) size() int {
	if b.sealed != nil {
		return len(b.sealed)
	}
	return b.frame.Size()
}

// seal makes the frame ready for the wire.
func (b *batch) seal() {
	if b.sealed == nil {
		b.sealed = b.frame.Seal()
	}
}

// without rebuilds the frame without record i, which was never sent.
func (b *batch) without(i int) {
	var left protocol.Batch
	it := protocol.Records(b.frame.Seal())
	for n := 0; it.Next(); n++ {
		if n == i {
			continue
		}
		if err := left.Add(it.Record.Key, it.Record.Value, it.Record.Headers); err != nil {
			panic("client: a record does not fit the frame that it came from: " + err.Error())
		}
	}
	b.frame, b.sealed = left, nil
	b.entries = append(b.entries[:i], b.entries[i+1:]...)
	b.records--
}

// reset makes the batch ready to be filled again.
func (b *batch) reset() {
	b.frame.Reset()
	clear(b.entries)
	*b = batch{frame: b.frame, entries: b.entries[:0]}
}

// run is a stretch of batches under one PRODUCE header: appended whole or not at all, and
// answered by one ACK.
type run struct {
	header  protocol.Header
	line    *pipeline
	handle  uint32
	level   protocol.Level
	batches []*batch
	records int
	size    int // bytes of frames
}

// reset makes the run ready to be filled again.
func (r *run) reset() {
	clear(r.batches)
	*r = run{batches: r.batches[:0]}
}

// clone copies a message and its bytes.
func (m *Message) clone() Message {
	c := *m
	c.Key, c.Value = cloneBytes(m.Key), cloneBytes(m.Value)
	if len(m.Headers) > 0 {
		c.Headers = make([]Header, len(m.Headers))
		for i, h := range m.Headers {
			c.Headers[i] = Header{h.Name, cloneBytes(h.Value)}
		}
	}
	return c
}

// cloneBytes copies b and keeps the difference between nil and empty.
func cloneBytes(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append(make([]byte, 0, len(b)), b...)
}
