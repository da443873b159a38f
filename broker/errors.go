package broker

import (
	"errors"
	"fmt"
	"strings"

	"github.com/millrace-mq/millrace/protocol"
	"github.com/millrace-mq/millrace/storage"
	"github.com/millrace-mq/millrace/storage/vfs"
)

var (
	// ErrClosed means that the broker is stopping or stopped; nothing was appended.
	ErrClosed = errors.New("broker: closed")
	// ErrUnknownTopic means that no topic has the name and policy does not let it be made.
	ErrUnknownTopic = errors.New("broker: unknown topic")
	// ErrDeleted means that the topic was removed while it was in use.
	ErrDeleted = errors.New("broker: topic deleted")
	// ErrTopicExists means that the name is taken.
	ErrTopicExists = errors.New("broker: topic exists")
	// ErrUnknownPartition means that the topic has fewer partitions.
	ErrUnknownPartition = errors.New("broker: unknown partition")
	// ErrFewerPartitions means that an ALTER would lower the number of partitions.
	ErrFewerPartitions = errors.New("broker: partitions can be raised, not lowered")
	// ErrDamagedTopic means that a topic's directory is there but its settings cannot be read.
	// The name stays taken: an empty topic in its place would hide its records.
	ErrDamagedTopic = errors.New("broker: settings of the topic cannot be read")
	// ErrUnavailable means that a partition's log could not be opened.
	ErrUnavailable = errors.New("broker: partition could not be opened")
	// ErrCommitBeyondEnd means that a group tried to commit an offset behind the visible end.
	ErrCommitBeyondEnd = errors.New("broker: commit beyond the end")
)

// PlaceError says where an error happened.
type PlaceError struct {
	Topic     string
	Partition int // -1 = the topic as a whole
	Err       error
}

// Error names topic and partition.
func (e *PlaceError) Error() string {
	if e.Partition < 0 {
		return fmt.Sprintf("topic %s: %v", e.Topic, e.Err)
	}
	return fmt.Sprintf("topic %s, partition %d: %v", e.Topic, e.Partition, e.Err)
}

// Unwrap returns the error without its place.
func (e *PlaceError) Unwrap() error { return e.Err }

func atTopic(name string, err error) error { return &PlaceError{Topic: name, Partition: -1, Err: err} }

// codes maps each sentinel of broker and storage to its wire code. The first match counts.
var codes = []struct {
	err  error
	code protocol.Code
	hint string
}{
	{ErrDeleted, protocol.UnknownTopic, ""},
	{ErrUnknownTopic, protocol.UnknownTopic, "create it, or let auto_create match its name"},
	{ErrTopicExists, protocol.Exists, ""},
	{ErrUnknownPartition, protocol.UnknownPartition, ""},
	{ErrFewerPartitions, protocol.BadRequest, "delete the topic and create it again to have fewer"},
	{ErrDamagedTopic, protocol.StorageFailed, "restore the TOPIC file or move the directory away"},
	{ErrUnavailable, protocol.StorageFailed, "the broker's log says why"},
	{ErrCommitBeyondEnd, protocol.OffsetOutOfRange, ""},
	{ErrClosed, protocol.ShuttingDown, ""},
	{storage.ErrClosed, protocol.ShuttingDown, ""},
	{storage.ErrNoSpace, protocol.NoSpace, "free disk space or lower retention; nothing was appended"},
	{storage.ErrRefused, protocol.StorageFailed, "nothing was appended; the broker's log says more"},
	{storage.ErrFailed, protocol.StorageFailed, "restart the broker: recovery finds what is on the disk"},
	{storage.ErrReadOnly, protocol.ReadOnly, "millrace verify names what is missing"},
	{storage.ErrNewer, protocol.Unsupported, "run the version that wrote the data"},
	{vfs.ErrLocked, protocol.StorageFailed, ""},
}

// withoutPackages takes the names of packages out of a text for clients.
var withoutPackages = strings.NewReplacer("broker: ", "", "storage: ", "")

// placeOf is "topic t, partition 0: " for an error that has a place.
func placeOf(err error) string {
	var place *PlaceError
	switch {
	case !errors.As(err, &place):
		return ""
	case place.Partition < 0:
		return "topic " + place.Topic + ": "
	}
	return fmt.Sprintf("topic %s, partition %d: ", place.Topic, place.Partition)
}

// CodeOf turns any error of broker or storage into what a client is told. It is the only such
// mapping. nil stays nil; an *protocol.Error stays what it is; what nothing maps is INTERNAL.
func CodeOf(err error) *protocol.Error {
	if err == nil {
		return nil
	}
	var wire *protocol.Error
	if errors.As(err, &wire) {
		return wire
	}
	var corrupt *storage.CorruptError
	if errors.As(err, &corrupt) {
		return &protocol.Error{Code: protocol.Corrupt, Detail: err.Error(), From: corrupt.From, To: corrupt.To,
			Hint: "subscribe from the end of the range to go on behind it"}
	}
	var outside *storage.RangeError
	if errors.As(err, &outside) {
		e := &protocol.Error{Code: protocol.OffsetOutOfRange, Detail: fmt.Sprintf("%soffset %d is outside", placeOf(err), outside.Offset),
			Actual: outside.Offset, From: outside.Start, To: outside.End, Epoch: outside.Epoch}
		if outside.Lost {
			e.Code, e.Detail = protocol.LostSuffix, fmt.Sprintf("%soffset %d is beyond the end of a log that lost a suffix:", placeOf(err), outside.Offset)
		}
		return e
	}
	for _, row := range codes {
		if errors.Is(err, row.err) {
			return &protocol.Error{Code: row.code, Detail: withoutPackages.Replace(err.Error()), Hint: row.hint}
		}
	}
	if vfs.NoSpace(err) {
		return &protocol.Error{Code: protocol.NoSpace, Detail: err.Error()}
	}
	return protocol.AsError(err)
}
