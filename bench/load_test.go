package bench

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSpansOfABitmapAreItsStretches(t *testing.T) {
	const limit = 3*pieceBits + 17
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		var m bitmap
		in := make([]bool, limit)
		for range 40 {
			first := r.Uint64N(limit)
			n := min(r.Uint64N(1<<r.Uint64N(18)), limit-first)
			m.setRange(first, n, limit)
			for i := range n {
				in[first+i] = true
			}
		}
		got := make([]bool, limit)
		behind := uint64(0)
		m.each(func(from, n uint64) {
			require.Positive(t, n)
			require.True(t, from > behind || from == 0, "stretches touch at %d", from)
			for i := range n {
				got[from+i] = true
			}
			behind = from + n
		})
		require.True(t, slices.Equal(in, got), "seed %d", seed)
	}
}

func TestArrivalsJudgeATopicOfUnknownOrigin(t *testing.T) {
	payloads, err := NewPayloads(3, 50)
	require.NoError(t, err)
	value := func(producer uint32, seq uint64) []byte {
		b := make([]byte, 50)
		payloads.Fill(b, producer, seq)
		return b
	}
	broken := value(0, 1)
	broken[40]++
	type record struct {
		partition int
		offset    uint64
		value     []byte
	}
	for name, c := range map[string]struct {
		records []record
		want    Verify
	}{
		"in order, two producers": {[]record{{0, 7, value(0, 0)}, {0, 8, value(4, 0)}, {0, 9, value(0, 1)}, {1, 0, value(0, 2)}}, Verify{}},
		"a gap":                   {[]record{{0, 7, value(0, 0)}, {0, 10, value(0, 3)}}, Verify{Lost: 2}},
		"twice":                   {[]record{{0, 7, value(0, 0)}, {0, 8, value(0, 0)}}, Verify{Duplicated: 1}},
		"twice, partitions":       {[]record{{0, 7, value(0, 0)}, {1, 7, value(0, 0)}}, Verify{Duplicated: 1}},
		"out of order":            {[]record{{0, 7, value(0, 1)}, {0, 8, value(0, 0)}}, Verify{Reordered: 1}},
		"altered":                 {[]record{{0, 7, value(0, 0)}, {0, 8, broken}}, Verify{Altered: 1}},
		"beyond the run":          {[]record{{0, 7, value(0, 100)}}, Verify{Foreign: 1}},
		"absurd producer":         {[]record{{0, 7, value(maxProducers, 0)}}, Verify{Foreign: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			a := &arrivals{payloads: payloads, limit: 100}
			for _, r := range c.records {
				a.observe(r.partition, r.offset, r.value)
			}
			require.Equal(t, c.want, a.verdict())
		})
	}
}

// The time that counts is when a batch was due, however late the one before made it.
func TestDueTimesFollowTheRateAlone(t *testing.T) {
	p := newPace(time.Now().Add(-time.Hour), float64(time.Millisecond), 250e3)
	defer p.end()
	for n := range int64(100) {
		require.Equal(t, 250_000+n*1_000_000, p.wait(t.Context()))
	}
	free := newPace(time.Now(), 0, 0)
	defer free.end()
	require.Equal(t, int64(-1), free.wait(t.Context()))

	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	far := newPace(time.Now(), float64(time.Hour), float64(time.Hour))
	defer far.end()
	require.Equal(t, int64(time.Hour), far.wait(stopped), "an ended context ends the wait")
}

func TestWindowKeepsBytesInFlightBounded(t *testing.T) {
	for _, c := range []struct {
		batch, size, want int
	}{{100, 100, windowBytes / (frameOverhead + 100*108)}, {1, 100, defaultWindow}, {1000, 1000, minWindow}} {
		s := Shape{Batch: c.batch, Size: c.size}
		require.Equal(t, c.want, s.window())
	}
	require.Equal(t, 1, (&Shape{Batch: 1, Size: 100, Window: 9, Lockstep: true}).window())
	require.Equal(t, 9, (&Shape{Batch: 1, Size: 100, Window: 9}).window())
}

// Answers may come in another order than batches were sent: each slot keeps its own
// messages, and a slot is not used again before its answer.
func TestSlotsSurviveAnswersOutOfOrder(t *testing.T) {
	const window, batches = 4, 100
	p := &publisher{load: &load{add: func(uint64) {}, failed: make(chan struct{}), began: time.Now()}, n: batches * 10,
		slots: make([]slot, window), free: []uint32{0, 1, 2, 3}, moved: make(chan struct{}, 1)}
	p.tail.Store(window)
	r := rand.New(rand.NewPCG(1, 2))
	var flying []*slot
	for seq := uint64(0); seq < batches*10 || len(flying) > 0; {
		if len(flying) < window && seq < batches*10 && r.IntN(2) == 0 {
			s := p.take(t.Context())
			require.NotNil(t, s)
			require.NotContains(t, flying, s)
			s.seq, s.n, s.sent = seq, 10, -1
			seq += 10
			flying = append(flying, s)
		} else if len(flying) > 0 {
			i := r.IntN(len(flying))
			s := flying[i]
			flying = slices.Delete(flying, i, i+1)
			k := uint32(slices.IndexFunc(p.slots, func(o slot) bool { return o.seq == s.seq && o.n > 0 }))
			p.answered(k, nil)
		}
	}
	require.Equal(t, uint64(batches*10), p.count)
	require.Equal(t, []Span{{0, 0, batches * 10}}, p.spans())
	require.True(t, p.await(t.Context(), p.head+window), "all slots are free")
}

// BenchmarkMakeBatch is what a record costs the load generator before its frame is hashed
// and sent.
func BenchmarkMakeBatch(b *testing.B) {
	payloads, err := NewPayloads(1, 100)
	require.NoError(b, err)
	p := &publisher{load: &load{payloads: payloads, shape: Shape{Batch: 100, Partitions: 1}}, value: make([]byte, 100)}
	b.ReportAllocs()
	b.SetBytes(100)
	for n := 0; n < b.N; n += 100 {
		s := slot{seq: uint64(n), n: 100}
		require.NoError(b, p.make(&s))
		p.batch.Reset()
	}
}

// BenchmarkJudge is what checking a record costs a consumer.
func BenchmarkJudge(b *testing.B) {
	payloads, err := NewPayloads(1, 100)
	require.NoError(b, err)
	values := make([][]byte, 1000)
	for i := range values {
		values[i] = make([]byte, 100)
	}
	for name, expected := range map[string][]Span{"arrivals": nil, "ledger": {{0, 0, MaxMessages}}} {
		b.Run(name, func(b *testing.B) {
			j, err := newJudge(payloads, expected, extent{partitions: 1, ever: MaxMessages})
			require.NoError(b, err)
			b.SetBytes(100)
			for n := 0; n < b.N; n++ {
				if n%len(values) == 0 {
					b.StopTimer()
					for i := range values {
						payloads.Fill(values[i], 0, uint64(n+i))
					}
					b.StartTimer()
				}
				j.observe(0, uint64(n), values[n%len(values)])
			}
		})
	}
}
