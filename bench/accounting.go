package bench

import (
	"fmt"
	"math/bits"
)

// Bounds of an Accounting.
const (
	maxProducers = 1 << 20
	maxOrders    = 1 << 22 // producers × partitions
	maxAccounted = 1 << 30 // messages of all producers
)

// Verify counts what went wrong with messages. All zero is the only good answer.
//
// A message that arrives with a flaw is counted once: as altered, else as duplicated,
// else as reordered.
type Verify struct {
	Lost       uint64 `json:"lost"`       // acked and never delivered
	Duplicated uint64 `json:"duplicated"` // deliveries of a message already delivered
	Reordered  uint64 `json:"reordered"`  // first deliveries after a later message of the same producer and partition (RFC 4737)
	Altered    uint64 `json:"altered"`    // deliveries with a wrong byte or size

	// Foreign counts intact deliveries from outside the run: a producer, partition
	// or sequence number that the accounting was not made for.
	Foreign uint64 `json:"foreign,omitempty"`
}

// OK reports whether nothing went wrong.
func (v Verify) OK() bool { return v == Verify{} }

// Accounting compares the messages that were acknowledged with those that were
// delivered, each message by its producer and its sequence number from 0.
//
// A message whose prefix was altered cannot be named. It stands for one missing
// message, so a single flipped bit is one altered message and not a lost one besides.
//
// Ownership: one goroutine at a time. Give each producing and each consuming
// goroutine its own and Merge them when they have stopped; consumers that each
// receive every message are accounted separately.
//
// Bounds: 2^20 producers, 2^22 pairs of producer and partition (8 bytes each), 2^30
// messages. Two bits per message touched, taken in pieces of 8 KiB, so 100 M messages
// cost at most 25 MB and an accounting that only sees a part costs a part.
type Accounting struct {
	// immutable
	payloads   *Payloads
	partitions int
	limit      uint64 // sequence numbers of one producer

	// owned by the calling goroutine
	acked     []bitmap // by producer
	seen      []bitmap // by producer
	next      []uint64 // by producer, then partition: one above the highest seq delivered
	delivered uint64
	unnamed   uint64 // altered deliveries whose prefix is wrong too; also counted as altered
	found     Verify // Lost stays 0 until Verify
}

// NewAccounting makes an empty accounting for producers that each send fewer than
// limit messages to any of the partitions.
//
// Errors: ErrOutOfRange for numbers below 1 or above the bounds of Accounting.
func NewAccounting(payloads *Payloads, producers, partitions int, limit uint64) (*Accounting, error) {
	switch {
	case producers < 1 || producers > maxProducers:
		return nil, fmt.Errorf("%w: %d producers, want 1 to %d", ErrOutOfRange, producers, maxProducers)
	case partitions < 1 || partitions > maxOrders/producers:
		return nil, fmt.Errorf("%w: %d partitions, want 1 to %d with %d producers",
			ErrOutOfRange, partitions, maxOrders/producers, producers)
	case limit < 1 || limit > maxAccounted/uint64(producers):
		return nil, fmt.Errorf("%w: %d messages per producer, want 1 to %d with %d producers",
			ErrOutOfRange, limit, maxAccounted/producers, producers)
	}
	return &Accounting{
		payloads:   payloads,
		partitions: partitions,
		limit:      limit,
		acked:      make([]bitmap, producers),
		seen:       make([]bitmap, producers),
		next:       make([]uint64, producers*partitions),
	}, nil
}

// Acked notes that the n messages of a producer from seq on were acknowledged, or
// must be delivered for another reason. Noting one twice changes nothing.
//
// Errors: ErrOutOfRange for messages the accounting was not made for.
func (a *Accounting) Acked(producer uint32, seq, n uint64) error {
	if uint64(producer) >= uint64(len(a.acked)) || seq > a.limit || n > a.limit-seq {
		return fmt.Errorf("%w: acked %d messages from %d of producer %d, want producers below %d and messages below %d",
			ErrOutOfRange, n, seq, producer, len(a.acked), a.limit)
	}
	a.acked[producer].setRange(seq, n, a.limit)
	return nil
}

// Observe accounts one delivered payload. It allocates only when it meets a part of
// the sequence for the first time.
func (a *Accounting) Observe(partition int, payload []byte) {
	a.delivered++
	producer, seq, intact, known := a.payloads.inspect(payload)
	if !known {
		a.found.Altered++
		a.unnamed++
		return
	}
	if uint64(producer) >= uint64(len(a.seen)) || seq >= a.limit || partition < 0 || partition >= a.partitions {
		a.found.Foreign++
		return
	}
	again := a.seen[producer].set(seq, a.limit)
	next := &a.next[int(producer)*a.partitions+partition]
	switch {
	case !intact:
		a.found.Altered++
	case again:
		a.found.Duplicated++
	case seq < *next:
		a.found.Reordered++
	}
	*next = max(*next, seq+1)
}

// Delivered returns how many payloads were observed.
func (a *Accounting) Delivered() uint64 { return a.delivered }

// AckedCount returns how many messages were noted as acked.
func (a *Accounting) AckedCount() uint64 {
	var n uint64
	for i := range a.acked {
		n += a.acked[i].count()
	}
	return n
}

// Merge adds what from accounted to a. A message delivered to both is a duplicate.
// Order is judged within each part only: a partition that moved from one consumer to
// another starts afresh there.
//
// Errors: ErrOutOfRange if the two were made for different runs; a is left as it was.
func (a *Accounting) Merge(from *Accounting) error {
	if a.payloads.seed != from.payloads.seed || len(a.acked) != len(from.acked) ||
		a.partitions != from.partitions || a.limit != from.limit {
		return fmt.Errorf("%w: merging accountings of different runs (%d and %d producers, %d and %d partitions, %d and %d messages each)",
			ErrOutOfRange, len(a.acked), len(from.acked), a.partitions, from.partitions, a.limit, from.limit)
	}
	for i := range a.acked {
		a.acked[i].merge(&from.acked[i])
		a.found.Duplicated += a.seen[i].merge(&from.seen[i])
	}
	for i, n := range from.next {
		a.next[i] = max(a.next[i], n)
	}
	a.delivered += from.delivered
	a.unnamed += from.unnamed
	a.found.Duplicated += from.found.Duplicated
	a.found.Reordered += from.found.Reordered
	a.found.Altered += from.found.Altered
	a.found.Foreign += from.found.Foreign
	return nil
}

// Verify returns the account so far. Lost counts messages that were acked and have
// not been delivered yet.
func (a *Accounting) Verify() Verify {
	v := a.found
	for i := range a.acked {
		v.Lost += a.acked[i].missingFrom(&a.seen[i])
	}
	v.Lost -= min(v.Lost, a.unnamed)
	return v
}

// bitmap is a set of sequence numbers below a limit, held in pieces that are taken
// when first touched.
type bitmap struct {
	pieces [][]uint64
}

const (
	pieceWords = 1024 // 8 KiB
	pieceBits  = pieceWords * 64
)

// piece returns the piece that holds n, n < limit, and takes it if need be. The last
// piece of a set is only as long as the limit asks for.
func (m *bitmap) piece(n, limit uint64) []uint64 {
	if m.pieces == nil {
		m.pieces = make([][]uint64, (limit+pieceBits-1)/pieceBits)
	}
	i := n / pieceBits
	if m.pieces[i] == nil {
		left := limit - i*pieceBits
		m.pieces[i] = make([]uint64, min((left+63)/64, pieceWords))
	}
	return m.pieces[i]
}

// set adds n, n < limit, and reports whether it was there.
func (m *bitmap) set(n, limit uint64) bool {
	word := &m.piece(n, limit)[n%pieceBits/64]
	bit := uint64(1) << (n % 64)
	was := *word&bit != 0
	*word |= bit
	return was
}

// setRange adds the numbers from first to first+n-1, all below limit.
func (m *bitmap) setRange(first, n, limit uint64) {
	for n > 0 {
		k := min(n, 64-first%64) // bits within one word
		mask := ^uint64(0) >> (64 - k) << (first % 64)
		m.piece(first, limit)[first%pieceBits/64] |= mask
		first += k
		n -= k
	}
}

// merge adds all of from and returns how many were there already.
func (m *bitmap) merge(from *bitmap) (both uint64) {
	if m.pieces == nil && from.pieces != nil {
		m.pieces = make([][]uint64, len(from.pieces))
	}
	for i, theirs := range from.pieces {
		if theirs == nil {
			continue
		}
		if m.pieces[i] == nil {
			m.pieces[i] = make([]uint64, len(theirs))
		}
		for w, bitsOf := range theirs {
			both += uint64(bits.OnesCount64(m.pieces[i][w] & bitsOf))
			m.pieces[i][w] |= bitsOf
		}
	}
	return both
}

// missingFrom returns how many of m are not in other.
func (m *bitmap) missingFrom(other *bitmap) (missing uint64) {
	for i, ours := range m.pieces {
		for w, bitsOf := range ours {
			if other.pieces != nil && other.pieces[i] != nil {
				bitsOf &^= other.pieces[i][w]
			}
			missing += uint64(bits.OnesCount64(bitsOf))
		}
	}
	return missing
}

func (m *bitmap) count() uint64 { return m.missingFrom(&bitmap{}) }
