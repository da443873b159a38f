package bench

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func payloadsOf(t testing.TB, seed uint64, maxSize int) *Payloads {
	t.Helper()
	p, err := NewPayloads(seed, maxSize)
	require.NoError(t, err)
	return p
}

func TestPayloadNamesItsMessage(t *testing.T) {
	p := payloadsOf(t, 42, 4096)
	for _, size := range []int{16, 17, 20, 100, 1024, 4096} {
		for _, producer := range []uint32{0, 1, 9, 1<<32 - 1} {
			for _, seq := range []uint64{0, 1, 1 << 40, 1<<64 - 1} {
				b := make([]byte, size)
				p.Fill(b, producer, seq)
				gotProducer, gotSeq, ok := p.Check(b)
				require.True(t, ok)
				require.Equal(t, producer, gotProducer)
				require.Equal(t, seq, gotSeq)
			}
		}
	}
}

func TestPayloadsOfOneSeedAreTheSameEverywhere(t *testing.T) {
	// Producer and consumer run in different processes and build different versions.
	a, b := make([]byte, 32), make([]byte, 32)
	payloadsOf(t, 7, 100).Fill(a, 3, 5)
	payloadsOf(t, 7, 1<<20).Fill(b, 3, 5)
	require.Equal(t, a, b, "the largest size must not change a payload")
	require.Equal(t, []byte{
		0x0, 0x0, 0x0, 0x3, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x5,
	}, a[:12])
}

func TestEveryFlippedBitIsFound(t *testing.T) {
	p := payloadsOf(t, 42, 128)
	for _, size := range []int{16, 17, 100, 128} {
		b := make([]byte, size)
		p.Fill(b, 5, 77)
		for bit := range size * 8 {
			b[bit/8] ^= 1 << (bit % 8)
			_, _, ok := p.Check(b)
			require.False(t, ok, "size %d bit %d", size, bit)
			b[bit/8] ^= 1 << (bit % 8)
		}
	}
}

func TestOtherSizeOrSeedIsFound(t *testing.T) {
	p := payloadsOf(t, 42, 100)
	b := make([]byte, 100)
	p.Fill(b, 5, 77)
	for size := range 100 {
		_, _, ok := p.Check(b[:size])
		require.False(t, ok, "cut to %d bytes", size)
	}
	_, _, ok := p.Check(append(bytes.Clone(b), 0))
	require.False(t, ok)
	_, _, ok = p.Check(nil)
	require.False(t, ok)
	_, _, ok = payloadsOf(t, 43, 100).Check(b)
	require.False(t, ok)
	_, _, ok = p.Check(make([]byte, 100))
	require.False(t, ok, "a zeroed payload")
}

func TestNeighboursHaveDifferentFillers(t *testing.T) {
	p := payloadsOf(t, 1, 100)
	seen := map[string]bool{}
	for seq := range uint64(1000) {
		b := make([]byte, 100)
		p.Fill(b, 0, seq)
		seen[string(b[prefixSize:])] = true
	}
	require.Greater(t, len(seen), 950)
}

func TestPayloadBoundsAreRefused(t *testing.T) {
	for _, size := range []int{-1, 0, MinPayload - 1, MaxPayload + 1} {
		_, err := NewPayloads(1, size)
		require.ErrorIs(t, err, ErrOutOfRange)
	}
	p := payloadsOf(t, 1, 100)
	require.Panics(t, func() { p.Fill(make([]byte, 15), 0, 0) })
	require.Panics(t, func() { p.Fill(make([]byte, 101), 0, 0) })
	largest := payloadsOf(t, 1, MaxPayload)
	b := make([]byte, MaxPayload)
	largest.Fill(b, 1, 2)
	_, _, ok := largest.Check(b)
	require.True(t, ok)
}

func TestFillAndCheckAllocateNothing(t *testing.T) {
	p := payloadsOf(t, 1, 100)
	b := make([]byte, 100)
	seq := uint64(0)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		p.Fill(b, 3, seq)
		if _, _, ok := p.Check(b); !ok {
			t.Error("payload does not check")
		}
		seq++
	}))
}

func FuzzPayloadCheck(f *testing.F) {
	p := payloadsOf(f, 9, 256)
	b := make([]byte, 40)
	p.Fill(b, 1, 2)
	f.Add(b)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		producer, seq, ok := p.Check(b)
		if !ok {
			return
		}
		want := make([]byte, len(b))
		p.Fill(want, producer, seq)
		require.Equal(t, want, b, "what checks is what was made")
	})
}

func BenchmarkPayloadFill100(b *testing.B) {
	p := payloadsOf(b, 1, 100)
	dst := make([]byte, 100)
	seq := uint64(0)
	b.ReportAllocs()
	b.SetBytes(100)
	for b.Loop() {
		p.Fill(dst, 3, seq)
		seq++
	}
}

func BenchmarkPayloadCheck100(b *testing.B) {
	p := payloadsOf(b, 1, 100)
	made := make([]byte, 1024*100)
	for i := range 1024 {
		p.Fill(made[i*100:][:100], 3, uint64(i))
	}
	i := 0
	b.ReportAllocs()
	b.SetBytes(100)
	for b.Loop() {
		if _, _, ok := p.Check(made[i*100:][:100]); !ok {
			b.Fatal("payload does not check")
		}
		i = (i + 1) & 1023
	}
}
