package client

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/millrace-mq/millrace/protocol"
)

// maxDoublings caps the exponent of a backoff, so that no shift can overflow.
const maxDoublings = 16

// backoff is jittered exponential delay: from half to the whole of low·2ⁿ, at most high.
type backoff struct {
	low, high time.Duration
	n         int
}

// next returns the delay before the next attempt.
func (b *backoff) next() time.Duration {
	d := min(b.high, b.low<<b.n)
	if b.n < maxDoublings {
		b.n++
	}
	return d/2 + rand.N(d/2+1)
}

// reset starts again from the low end.
func (b *backoff) reset() { b.n = 0 }

// retriable tells whether the same request, sent again, may succeed: a refusal that says so, a
// handle that a new OPEN replaces, or a connection that ended.
func retriable(err error) bool {
	if errors.Is(err, ErrDisconnected) { // whatever was wrong with its bytes
		return true
	}
	var e *protocol.Error
	return errors.As(err, &e) && (e.Code.Retriable() || e.Code == protocol.UnknownHandle)
}

// repeatable tells whether a request may be sent again although its first outcome is unknown.
func repeatable(op protocol.Opcode) bool {
	switch op {
	case protocol.OpOpen, protocol.OpTopicAlter, protocol.OpTopicList, protocol.OpTopicDescribe, protocol.OpOffsets, protocol.OpStats:
		return true
	}
	return false
}

// hopeless tells whether another attempt to connect would be refused likewise.
func hopeless(err error) bool {
	return errors.Is(err, protocol.Unsupported) || errors.Is(err, protocol.Denied) || errors.Is(err, protocol.Unauthenticated)
}
