package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace-mq/millrace/protocol"
)

// Sentinels. Refusals of the broker are *protocol.Error and match their protocol.Code:
// errors.Is(err, protocol.UnknownTopic).
var (
	// ErrClosed is returned by every call on a closed Client or Producer.
	ErrClosed = errors.New("client: closed")

	// ErrBufferFull is returned when a producer holds as much as MaxBuffered allows: at once
	// with FailWhenFull, else when there was no room within DeliveryTimeout.
	ErrBufferFull = errors.New("client: producer buffer is full")

	// ErrTopicDiffers is returned by CreateTopic with ifMissing when the topic exists with
	// another value of a setting that was asked for.
	ErrTopicDiffers = errors.New("client: topic exists with other settings")

	// ErrAddr is returned by Open for an address that is not host:port.
	ErrAddr = errors.New("client: bad address")

	// ErrDisconnected is in the chain of errors whose cause is a connection that ended.
	ErrDisconnected = errors.New("client: connection lost")
)

var (
	errDeadline = fmt.Errorf("delivery timeout: %w", context.DeadlineExceeded)
	errSilent   = errors.New("nothing received for 2.5 ping intervals")
	errDrained  = errors.New("broker is going away and its drain time is over")
)

// DeliveryError says what became of a message that was not acknowledged.
//
// errors.Is(err, protocol.UnknownOutcome) holds when the message was sent and no answer came:
// the broker may have appended it. errors.Is(err, protocol.Timeout) holds when the delivery
// timeout passed before it was sent, and it never will be. Why sending ended (the context's
// error, ErrClosed) and what went wrong last (a refusal, a lost connection) are in the chain.
type DeliveryError struct {
	Topic     string
	Partition uint32
	Sent      bool  // outcome unknown; false = certainly not appended
	Reason    error // what ended the wait
	Last      error // last refusal or connection error before that; nil = none
}

// Error says first what the caller must know: sent or not.
func (e *DeliveryError) Error() string {
	what := "message not sent"
	if e.Sent {
		what = "outcome unknown, message was sent"
	}
	s := fmt.Sprintf("client: %s/%d: %s: %v", e.Topic, e.Partition, what, e.Reason)
	if e.Last != nil {
		s += fmt.Sprintf(" (last: %v)", e.Last)
	}
	return s
}

// Is matches protocol.UnknownOutcome and protocol.Timeout.
func (e *DeliveryError) Is(target error) bool {
	code, ok := target.(protocol.Code)
	if !ok {
		return false
	}
	return e.Sent && code == protocol.UnknownOutcome || !e.Sent && code == protocol.Timeout && errors.Is(e.Reason, errDeadline)
}

// Unwrap returns reason and last error. A message that was sent does not match the code of an
// earlier refusal: what counts is that its outcome is unknown.
func (e *DeliveryError) Unwrap() []error {
	if e.Last == nil || e.Sent {
		return []error{e.Reason}
	}
	return []error{e.Reason, e.Last}
}

// UndeliveredError counts the messages of a producer that were not acknowledged: on Close all
// that were still open, and on Close and Flush those that failed without a callback to tell.
type UndeliveredError struct {
	NotSent int   // certainly not appended
	Unknown int   // sent, and no answer came
	Refused int   // refused by the broker
	First   error // error of the first of them
}

// Error gives the counts and the first error.
func (e *UndeliveredError) Error() string {
	n, s := e.NotSent+e.Unknown+e.Refused, "s"
	if n == 1 {
		s = ""
	}
	return fmt.Sprintf("client: %d message%s undelivered (%d not sent, %d unknown, %d refused), first: %v",
		n, s, e.NotSent, e.Unknown, e.Refused, e.First)
}

// Unwrap returns the first error.
func (e *UndeliveredError) Unwrap() error { return e.First }

// add counts n messages that failed with err.
func (e *UndeliveredError) add(n int, err error) {
	if n == 0 {
		return
	}
	if e.First == nil {
		e.First = err
	}
	var d *DeliveryError
	switch {
	case !errors.As(err, &d):
		e.Refused += n
	case d.Sent:
		e.Unknown += n
	default:
		e.NotSent += n
	}
}

// merge adds the counts of o.
func (e *UndeliveredError) merge(o *UndeliveredError) {
	if e.First == nil {
		e.First = o.First
	}
	e.NotSent += o.NotSent
	e.Unknown += o.Unknown
	e.Refused += o.Refused
}

// orNil is the error, or nil when it counts nothing.
func (e *UndeliveredError) orNil() error {
	if e.NotSent+e.Unknown+e.Refused == 0 {
		return nil
	}
	return e
}

// CorruptError reports stored records that cannot be read: their check does not match, or the
// broker knows that they are damaged or missing. It matches protocol.Corrupt.
type CorruptError struct {
	Topic     string
	Partition uint32
	From      uint64 // first damaged offset
	To        uint64 // first offset behind the damage, as far as known
	Err       error  // what was found
}

// Error names the range.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("client: %s/%d: damaged at [%d, %d): %v", e.Topic, e.Partition, e.From, e.To, e.Err)
}

// Is matches protocol.Corrupt.
func (e *CorruptError) Is(target error) bool { return target == error(protocol.Corrupt) }

// Unwrap returns what was found.
func (e *CorruptError) Unwrap() error { return e.Err }
