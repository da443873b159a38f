package bench

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
)

// Bounds of a self-checking payload, bytes.
const (
	MinPayload = prefixSize
	MaxPayload = 16 << 20
)

// Layout of a payload, big endian:
//
//	0              4                      12            16                size
//	| producer u32 | seq u64              | check u32   | filler …           |
//
// check is half of a 64-bit mix of seed, producer, seq and size; the other half picks
// the place in a pool of seeded random bytes where the filler is cut from. So a
// reader who knows the seed recomputes every byte of a payload from its first twelve
// and its size.
const (
	prefixSize = 16
	poolSpan   = 1 << 16 // places a filler may start at; the pool stays in a core's cache
)

// Payloads makes and checks payloads of one seed.
//
// Ownership: immutable, so any number of goroutines may share one.
//
// Bounds: holds 64 KiB plus the largest size. No method allocates.
type Payloads struct {
	// immutable
	seed uint64
	pool []byte
	size int // largest payload
}

// NewPayloads returns the payloads of a seed up to a size in bytes.
//
// Errors: ErrOutOfRange unless maxSize is within MinPayload and MaxPayload.
func NewPayloads(seed uint64, maxSize int) (*Payloads, error) {
	if maxSize < MinPayload || maxSize > MaxPayload {
		return nil, fmt.Errorf("%w: payload size %d bytes, want %d to %d", ErrOutOfRange, maxSize, MinPayload, MaxPayload)
	}
	p := &Payloads{seed: mix(seed), size: maxSize, pool: make([]byte, poolSpan+maxSize-prefixSize)}
	var key [32]byte
	binary.BigEndian.PutUint64(key[:], seed)
	// Read of a ChaCha8 source fills the slice and has no error to give.
	if _, err := rand.NewChaCha8(key).Read(p.pool); err != nil {
		return nil, fmt.Errorf("payload pool: %w", err)
	}
	return p, nil
}

// Fill overwrites dst with the payload of a producer's message seq.
//
// Panics if len(dst) is below MinPayload or above the size given to NewPayloads.
func (p *Payloads) Fill(dst []byte, producer uint32, seq uint64) {
	if len(dst) < MinPayload || len(dst) > p.size {
		panic(fmt.Sprintf("bench: payload of %d bytes, want %d to %d", len(dst), MinPayload, p.size))
	}
	m := p.mixOf(producer, seq, len(dst))
	binary.BigEndian.PutUint32(dst, producer)
	binary.BigEndian.PutUint64(dst[4:], seq)
	binary.BigEndian.PutUint32(dst[12:], uint32(m))
	copy(dst[prefixSize:], p.pool[m>>48:])
}

// Check says whose payload b is and whether each of its bytes is right. Changes that
// leave the first 16 bytes intact are always found; others escape with a chance of
// 2^-32.
func (p *Payloads) Check(b []byte) (producer uint32, seq uint64, ok bool) {
	producer, seq, intact, known := p.inspect(b)
	return producer, seq, known && intact
}

// inspect is Check in two steps: known says that the prefix is right, so that the
// message can be named even if its filler is damaged; intact says the filler is right.
func (p *Payloads) inspect(b []byte) (producer uint32, seq uint64, intact, known bool) {
	if len(b) < MinPayload || len(b) > p.size {
		return 0, 0, false, false
	}
	producer = binary.BigEndian.Uint32(b)
	seq = binary.BigEndian.Uint64(b[4:])
	m := p.mixOf(producer, seq, len(b))
	if uint32(m) != binary.BigEndian.Uint32(b[12:]) {
		return producer, seq, false, false
	}
	at := m >> 48
	return producer, seq, bytes.Equal(b[prefixSize:], p.pool[at:at+uint64(len(b)-prefixSize)]), true
}

func (p *Payloads) mixOf(producer uint32, seq uint64, size int) uint64 {
	return mix(mix(p.seed^seq) ^ uint64(producer)<<32 ^ uint64(size))
}

// mix is the finalizer of SplitMix64 (Steele, Lea and Flood, "Fast splittable
// pseudorandom number generators", 2014) with its increment added first: a bijection
// in which each input bit moves about half of the output bits.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
