package client

import (
	"time"

	"github.com/millrace-mq/millrace/protocol"
)

// Record is one message as it was read.
//
// Ownership: the record and its bytes are valid until the loop asks for the next one. Clone
// what is to be kept.
type Record struct {
	Topic     string
	Partition uint32
	protocol.Record
}

// Clone copies the record, so that it stays valid.
func (r *Record) Clone() *Record {
	return &Record{Topic: r.Topic, Partition: r.Partition, Record: r.Record.Clone()}
}

// Time is when the broker appended the record.
func (r *Record) Time() time.Time { return time.Unix(0, int64(r.Timestamp)) }
