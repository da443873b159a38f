package storage

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/protocol"
	"github.com/millrace-mq/millrace/storage/vfs"
)

func osLog(t testing.TB, o LogOptions) *Log {
	t.Helper()
	fsys, err := vfs.OS(t.TempDir())
	require.NoError(t, err)
	s := openStore(t, fsys, newClock())
	l, _, err := s.OpenLog(testDir, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		require.NoError(t, s.Close())
	})
	return l
}

func TestAppendAndReadAllocateNothing(t *testing.T) {
	l := osLog(t, LogOptions{})
	e := []Entry{{Run: runOf(t, 100, 1, 100, 1)}, {Run: runOf(t, 10, 100, 100, 2)}}
	for range 10 {
		_, err := l.Append(e, false)
		require.NoError(t, err)
	}
	require.Zero(t, testing.AllocsPerRun(50, func() {
		if _, err := l.Append(e, false); err != nil {
			t.Fatal(err)
		}
	}))
	c, err := l.Seek(0)
	require.NoError(t, err)
	first := c
	require.Zero(t, testing.AllocsPerRun(50, func() {
		s, err := l.Next(&c, protocol.NoStop, 100<<10)
		if err != nil {
			t.Fatal(err)
		}
		if s.Size == 0 {
			c = first
			return
		}
		s.Release()
	}))
	require.LessOrEqual(t, testing.AllocsPerRun(50, func() {
		if _, err := l.Seek(777); err != nil {
			t.Fatal(err)
		}
	}), 0.0)
}

func benchAppend(b *testing.B, frames, n int) {
	l := osLog(b, LogOptions{SegmentBytes: 256 << 20})
	e := []Entry{{Run: runOf(b, frames, n, 92, 1)}}
	b.SetBytes(int64(len(e[0].Run.Bytes)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := l.Append(e, false); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*float64(frames*n)/b.Elapsed().Seconds()/1e6, "Mrec/s")
}

func BenchmarkAppend24Batches(b *testing.B)   { benchAppend(b, 24, 100) }
func BenchmarkAppend1000Singles(b *testing.B) { benchAppend(b, 1000, 1) }

func benchScan(b *testing.B, frames, n int) {
	l := osLog(b, LogOptions{SegmentBytes: 512 << 20})
	e := []Entry{{Run: runOf(b, frames, n, 92, 1)}}
	for l.writtenMark().pos < 200<<20 {
		_, err := l.Append(e, false)
		require.NoError(b, err)
	}
	m := l.writtenMark()
	require.NoError(b, m.seg.acquire())
	defer m.seg.release()
	b.SetBytes(m.pos)
	for b.Loop() {
		sc := newScan(m.seg.file, m.pos, 0, 1)
		require.NoError(b, sc.run())
		require.Empty(b, sc.holes)
		require.Equal(b, m.Index, sc.last.Index)
	}
}

func BenchmarkRecoveryScanBatches(b *testing.B) { benchScan(b, 24, 100) }
func BenchmarkRecoveryScanSingles(b *testing.B) { benchScan(b, 1000, 1) }

func BenchmarkSeek(b *testing.B) {
	l := osLog(b, LogOptions{SegmentBytes: 512 << 20})
	e := []Entry{{Run: runOf(b, 1000, 1, 92, 1)}}
	for l.writtenMark().pos < 100<<20 {
		_, err := l.Append(e, false)
		require.NoError(b, err)
	}
	end, i := l.Written().Offset, uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		i = (i*2862933555777941757 + 3037000493)
		if _, err := l.Seek(i % end); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkIndexLookup(b *testing.B) {
	x := &index{}
	view := make([]byte, indexSize(65536))
	x.view.Store(&view)
	for i := range 65536 {
		x.add(entry{offset: uint64(i) * 128, pos: int64(i) * 16384, ts: uint64(i), index: uint64(i)})
	}
	i := uint64(0)
	for b.Loop() {
		i = (i*2862933555777941757 + 3037000493)
		if _, _, err := x.floor(byOffset, i%(65536*128)); err != nil {
			b.Fatal(err)
		}
	}
}
