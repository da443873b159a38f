package protocol

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func sealed(t testing.TB, n, size int) Frame {
	t.Helper()
	var b Batch
	v := make([]byte, size)
	for i := range v {
		v[i] = byte(i * 7)
	}
	for range n {
		require.NoError(t, b.Add([]byte("k"), v, nil))
	}
	return b.Seal()
}

func TestStampKeepsTheCheckAndEveryFlippedBitIsFound(t *testing.T) {
	f := sealed(t, 10, 100)
	_, err := CheckFrame(f, 1<<20)
	require.NoError(t, err)
	s := Stamp{Timestamp: 123, Offset: 456, Index: 7, Term: 1, Flags: StampSegmentStart, SettledLag: 3}
	s.Apply(f)
	require.Equal(t, f.Sum(), f.Check())
	require.Equal(t, uint64(456), f.Header().Offset())
	require.Equal(t, uint64(4), f.Settled())
	for i := range f {
		for bit := range 8 {
			f[i] ^= 1 << bit
			_, err := CheckStored(f, MaxDataFrame)
			require.Error(t, err, "byte %d bit %d", i, bit)
			f[i] ^= 1 << bit
		}
	}
}

func TestStampAndCheckAllocateNothing(t *testing.T) {
	f := sealed(t, 100, 100)
	s := Stamp{Timestamp: 1, Index: 1, Term: 1}
	require.Zero(t, testing.AllocsPerRun(100, func() { s.Apply(f) }))
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if _, err := CheckRun(f, 1<<20); err != nil {
			t.Fatal(err)
		}
	}))
	require.Zero(t, testing.AllocsPerRun(100, func() {
		it := Records(f)
		for it.Next() {
		}
	}))
}

func BenchmarkCheckRun100x100(b *testing.B) {
	f := sealed(b, 100, 100)
	b.SetBytes(int64(len(f)))
	for b.Loop() {
		if _, err := CheckRun(f, 1<<20); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStamp(b *testing.B) {
	f := sealed(b, 100, 100)
	s := Stamp{Timestamp: 1, Index: 1, Term: 1}
	for b.Loop() {
		s.Apply(f)
	}
}

func BenchmarkRecords100x100(b *testing.B) {
	f := sealed(b, 100, 100)
	for b.Loop() {
		it := Records(f)
		for it.Next() {
		}
	}
}
