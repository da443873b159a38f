package client

import (
	"sync"

	"github.com/millrace-mq/millrace/protocol"
)

// piece is a stretch of a DELIVER run, or what else the broker says to a subscription.
type piece struct {
	hold      *chunk // nil = no data
	data      []byte // whole frames, not yet verified
	sub       uint32
	flags     protocol.DeliverFlags // hold behind the last byte of the run
	watermark uint64
	last      bool  // the run ends with it
	err       error // the broker ended the subscription
}

// pieceCost is what a piece counts beside its bytes, so that empty ones are bounded too.
const pieceCost = 128 // bytes

// inbox takes what a connection reads for subscriptions to the loop that consumes it.
//
// Bounds: limit bytes; a broker that sends more than the credit it was given is left waiting in
// its socket.
type inbox struct {
	// immutable
	limit int
	wake  chan struct{} // capacity 1: there is something new
	room  chan struct{} // capacity 1: something was consumed

	// guarded by mu
	mu     sync.Mutex
	pieces []piece
	bytes  int   // in pieces and with the consumer
	err    error // why the connection ended
}

func newInbox(limit int) *inbox {
	return &inbox{limit: limit, wake: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

// put adds a piece. It waits while the inbox is over its limit, until gone is closed.
func (b *inbox) put(p piece, gone <-chan struct{}) {
	cost := len(p.data) + pieceCost
	for {
		b.mu.Lock()
		if b.bytes < b.limit {
			b.bytes += cost
			b.pieces = append(b.pieces, p)
			b.mu.Unlock()
			signal(b.wake)
			return
		}
		b.mu.Unlock()
		select {
		case <-b.room:
		case <-gone:
			if p.hold != nil {
				p.hold.release()
			}
			return
		}
	}
}

// over reports whether put would wait.
func (b *inbox) over() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes >= b.limit
}

// fail says that nothing more will come.
func (b *inbox) fail(err error) {
	b.mu.Lock()
	if b.err == nil {
		b.err = err
	}
	b.mu.Unlock()
	signal(b.wake)
}

// take moves all pieces into dst, which it may use up. err is set when the connection ended and
// nothing is left.
func (b *inbox) take(dst []piece) (pieces []piece, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	pieces = b.pieces
	b.pieces = dst[:0]
	if len(pieces) == 0 {
		err = b.err
	}
	return pieces, err
}

// done returns a consumed piece.
func (b *inbox) done(p *piece) {
	b.mu.Lock()
	b.bytes -= len(p.data) + pieceCost
	b.mu.Unlock()
	if p.hold != nil {
		p.hold.release()
	}
	*p = piece{}
	signal(b.room)
}

// signal wakes the reader of a channel of capacity 1.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
