package storage

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/protocol"
	"github.com/millrace-mq/millrace/storage/vfs"
)

// clock is a test's time: it moves by a microsecond at each look.
type clock struct{ ns atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.ns.Store(1_800_000_000_000_000_000)
	return c
}

func (c *clock) now() int64 { return c.ns.Add(1000) }

func openStore(t testing.TB, fsys vfs.FS, c *clock) *Store {
	t.Helper()
	s, err := OpenStore(fsys, StoreOptions{Now: c.now, Holder: "test"})
	require.NoError(t, err)
	return s
}

// runOf builds a checked run of frames with n records each, whose values say record and seed.
func runOf(t testing.TB, frames, n, size int, seed uint64) protocol.Run {
	t.Helper()
	var out []byte
	var b protocol.Batch
	for f := range frames {
		b.Reset()
		for i := range n {
			v := make([]byte, size)
			copy(v, fmt.Sprintf("%d/%d/%d", seed, f, i))
			require.NoError(t, b.Add([]byte("k"), v, nil))
		}
		out = append(out, b.Seal()...)
	}
	r, err := protocol.CheckRun(out, 1<<20)
	require.NoError(t, err)
	return r
}

func appendRun(t testing.TB, l *Log, r protocol.Run) uint64 {
	t.Helper()
	e := []Entry{{Run: r}}
	_, err := l.Append(e, false)
	require.NoError(t, err)
	return e[0].Base
}

// readAll reads the log from an offset and returns the values by offset.
func readAll(t testing.TB, l *Log, from uint64, limit int64) map[uint64]string {
	t.Helper()
	got := map[uint64]string{}
	c, err := l.Seek(from)
	require.NoError(t, err)
	for {
		s, err := l.Next(&c, protocol.NoStop, limit)
		require.NoError(t, err)
		if s.Size == 0 {
			return got
		}
		b := make([]byte, s.Size)
		_, err = s.File().ReadAt(b, s.Pos())
		require.NoError(t, err)
		s.Release()
		for len(b) > 0 {
			n, err := protocol.CheckStored(b, protocol.MaxDataFrame)
			require.NoError(t, err)
			it := protocol.Records(protocol.Frame(b[:n]))
			for it.Next() {
				_, dup := got[it.Record.Offset]
				require.False(t, dup)
				got[it.Record.Offset] = string(it.Record.Value)
			}
			b = b[n:]
		}
	}
}

func eachFS(t *testing.T, f func(t *testing.T, fsys vfs.FS)) {
	t.Run("os", func(t *testing.T) {
		fsys, err := vfs.OS(t.TempDir())
		require.NoError(t, err)
		f(t, fsys)
	})
	t.Run("mem", func(t *testing.T) { f(t, vfs.NewMem()) })
}

func TestAppendedIsReadBackAfterRollsAndReopen(t *testing.T) {
	eachFS(t, func(t *testing.T, fsys vfs.FS) {
		c := newClock()
		s := openStore(t, fsys, c)
		l, rep, err := s.OpenLog("topics/t.1/0", LogOptions{SegmentBytes: 200 << 10})
		require.NoError(t, err)
		require.True(t, rep.Clean)
		rng := rand.New(rand.NewPCG(1, 2))
		want := uint64(0)
		for i := range 300 {
			r := runOf(t, 1+rng.IntN(5), 1+rng.IntN(20), 10+rng.IntN(300), uint64(i))
			require.Equal(t, want, appendRun(t, l, r))
			want += r.Records
		}
		require.Equal(t, want, l.Written().Offset)
		_, segs := l.Size()
		require.Greater(t, segs, 2)
		for _, limit := range []int64{1, 5000, 100 << 10, 1 << 20} {
			require.Len(t, readAll(t, l, 0, limit), int(want))
		}
		for range 100 {
			from := rng.Uint64N(want + 1)
			got := readAll(t, l, from, 64<<10)
			for o := from; o < want; o++ {
				if _, ok := got[o]; !ok {
					t.Fatalf("offset %d is missing after Seek(%d)", o, from)
				}
			}
		}
		before := readAll(t, l, 0, 1<<20)
		require.NoError(t, l.Sync(context.Background()))
		require.NoError(t, l.Close())
		require.NoError(t, s.Close())

		s = openStore(t, fsys, c)
		require.True(t, s.WasClean())
		l, rep, err = s.OpenLog("topics/t.1/0", LogOptions{SegmentBytes: 200 << 10})
		require.NoError(t, err)
		require.True(t, rep.Clean, rep.String())
		require.Zero(t, rep.ScannedBytes)
		require.Equal(t, before, readAll(t, l, 0, 1<<20))
		appendRun(t, l, runOf(t, 1, 1, 10, 7))
		require.Len(t, readAll(t, l, 0, 1<<20), int(want)+1)
		require.NoError(t, l.Close())
		require.NoError(t, s.Close())
	})
}

func TestRecoveredLogIsCleanAfterItsNextCloseWithoutAnAppend(t *testing.T) {
	c := newClock()
	m := vfs.NewMem()
	_, l, _ := testLog(t, m, c, LogOptions{})
	durably(t, l, 3)
	img := m.CrashClean()
	for i := range 3 {
		s, l, rep := testLog(t, img, c, LogOptions{})
		require.Equal(t, i > 0, rep.Clean)
		require.Len(t, readAll(t, l, 0, 1<<20), 3)
		require.NoError(t, l.Close())
		require.NoError(t, s.Close())
	}
}
