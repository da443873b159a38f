package storage

import (
	"context"
	"errors"
	"path"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/protocol"
	"github.com/millrace-mq/millrace/storage/vfs"
)

// around reads a log from an offset and goes on behind damage as a reader does that skips it.
func around(t testing.TB, l *Log, from uint64) (got map[uint64]string, damage [][2]uint64) {
	t.Helper()
	got = map[uint64]string{}
	for range 10_000 {
		c, err := l.Seek(from)
		require.NoError(t, err)
		for {
			s, err := l.Next(&c, protocol.NoStop, 64<<10)
			var bad *CorruptError
			if errors.As(err, &bad) {
				require.Greater(t, bad.To, c.Offset, "damage that cannot be passed")
				damage = append(damage, [2]uint64{bad.From, bad.To})
				from = bad.To
				break
			}
			require.NoError(t, err)
			if s.Size == 0 {
				return got, damage
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
					got[it.Record.Offset] = string(it.Record.Value)
				}
				b = b[n:]
			}
		}
	}
	t.Fatal("no end")
	return nil, nil
}

// placeOfFrame is the position of the frame with that offset.
func placeOfFrame(t testing.TB, l *Log, offset uint64) int64 {
	t.Helper()
	c, err := l.Seek(offset)
	require.NoError(t, err)
	require.Equal(t, offset, c.Offset)
	return c.pos
}

func TestEveryGoodRecordBetweenDamagedPlacesIsReadable(t *testing.T) {
	for _, field := range []int64{0, 20, 22, 26, 60} {
		for _, places := range [][]uint64{{5, 30}, {0, 38}, {3, 4, 9, 20}, {10, 12}} {
			c := newClock()
			m := vfs.NewMem()
			_, l, _ := testLog(t, m, c, LogOptions{Durable: true})
			durably(t, l, 40)
			img := m.CrashClean()
			for _, p := range places {
				flip(t, img, walOf(t, img, 0), placeOfFrame(t, l, p)+field, 3)
			}
			for life := range 3 { // nothing is added by later lives
				_, l2, rep := testLog(t, img, c, LogOptions{Durable: true})
				require.False(t, rep.ReadOnly, rep.Reason)
				got, _ := around(t, l2, 0)
				require.Len(t, got, 40-len(places), "field %d, damage at %v, life %d: %s", field, places, life, rep.String())
				img = img.CrashClean()
			}
		}
	}
}

func TestDamageThatGrowsIsFoundAnew(t *testing.T) {
	c := newClock()
	m := vfs.NewMem()
	_, l, _ := testLog(t, m, c, LogOptions{Durable: true})
	durably(t, l, 40)
	img := m.CrashClean()
	for i, p := range []uint64{5, 6, 20, 7} {
		flip(t, img, walOf(t, img, 0), placeOfFrame(t, l, p)+22, 3)
		_, l2, rep := testLog(t, img, c, LogOptions{Durable: true})
		require.False(t, rep.ReadOnly, rep.Reason)
		got, _ := around(t, l2, 0)
		require.Len(t, got, 39-i)
		require.LessOrEqual(t, l2.Damaged(), 2)
		img = img.CrashClean()
	}
}

func TestForgedFramesInTheLastMessageAreNotTakenForTheLog(t *testing.T) {
	for _, behind := range []int{0, 2} {
		c := newClock()
		m := vfs.NewMem()
		_, l, _ := testLog(t, m, c, LogOptions{Durable: true})
		durably(t, l, 5)
		at := l.writtenMark().pos
		inside := make([]byte, 1000)
		for i := range uint64(4) {
			inside = append(inside, forged(t, l, c, 7+i)...)
		}
		var b protocol.Batch
		require.NoError(t, b.Add(nil, inside, nil))
		run, err := protocol.CheckRun(b.Seal(), 1<<20)
		require.NoError(t, err)
		appendRun(t, l, run)
		durably(t, l, behind)
		for _, field := range []int64{0, 17, 22, 26, 60} {
			img := m.CrashClean()
			flip(t, img, walOf(t, img, 0), at+field, 3)
			if behind > 0 { // and a torn tail
				edit(t, img, walOf(t, img, 0), func(f vfs.File) {
					_, err := f.WriteAt([]byte("garbage"), l.writtenMark().pos)
					require.NoError(t, err)
				})
			}
			_, l2, rep := testLog(t, img, c, LogOptions{Durable: true})
			got, _ := around(t, l2, 0)
			for off, v := range got {
				require.NotContains(t, v, "666/", "field %d: a forged record at %d: %s", field, off, rep.String())
			}
			if !rep.ReadOnly { // then nothing that was durable is gone
				require.GreaterOrEqual(t, l2.Written().Offset, uint64(5+behind), "field %d: %s", field, rep.String())
			}
		}
	}
}

func TestDamageInASealedSegmentIsAnAnswer(t *testing.T) {
	for _, field := range []int64{0, 20, 22, 26, 60} {
		for _, index := range []bool{true, false} {
			c := newClock()
			m := vfs.NewMem()
			s, l, _ := testLog(t, m, c, LogOptions{SegmentBytes: 64 << 10})
			for i := range 60 {
				appendRun(t, l, runOf(t, 1, 1, 3000, uint64(i)))
			}
			_, segments := l.Size()
			require.GreaterOrEqual(t, segments, 3)
			at := placeOfFrame(t, l, 24)
			require.NoError(t, l.Close())
			require.NoError(t, s.Close())
			wal := walOf(t, m, 1)
			flip(t, m, wal, at+field, 3)
			if !index {
				require.NoError(t, m.Remove(strings.TrimSuffix(wal, walSuffix)+idxSuffix))
			}
			_, l, _ = testLog(t, m, c, LogOptions{SegmentBytes: 64 << 10})
			got, damage := around(t, l, 0)
			require.Len(t, got, 59, "field %d", field)
			require.Equal(t, [][2]uint64{{24, 25}}, damage)
		}
	}
}

func TestMissingSegmentIsDamageAndTheRestIsServed(t *testing.T) {
	c := newClock()
	m := vfs.NewMem()
	_, l, _ := testLog(t, m, c, LogOptions{SegmentBytes: 64 << 10})
	for i := range 60 {
		appendRun(t, l, runOf(t, 1, 1, 3000, uint64(i)))
	}
	_, err := l.AppendControl(protocol.AppendControl(nil, protocol.ControlNoop, nil, nil), false)
	require.NoError(t, err)
	img := m.CrashClean()
	require.NoError(t, img.Remove(walOf(t, img, 1)))
	_, l, rep := testLog(t, img, c, LogOptions{SegmentBytes: 64 << 10})
	require.True(t, rep.ReadOnly)
	got, damage := around(t, l, 0)
	require.Len(t, damage, 1)
	require.Len(t, got, 60-int(damage[0][1]-damage[0][0]))
	controls := 0
	require.NoError(t, l.Controls(0, func(protocol.Frame) error { controls++; return nil }))
	require.Equal(t, 1, controls)
	for _, ts := range []int64{0, l.Newest() / 2, l.Newest()} {
		_, err := l.SeekTime(ts)
		require.NoError(t, err)
	}
}

func TestRefusedRollsLeaveOneFileAndHideNothing(t *testing.T) {
	for _, refusals := range []int{1, 2, 5} {
		c := newClock()
		m := vfs.NewMem()
		var left atomic.Int64
		fsys := vfs.Fault(m, func(op vfs.Op) error {
			if op.Kind == vfs.OpCreate && path.Base(op.Name) == manifestName+".tmp" && left.Add(-1) >= 0 {
				return syscall.ENOSPC
			}
			return nil
		})
		_, l, _ := testLog(t, fsys, c, LogOptions{SegmentBytes: 64 << 10})
		n := 0
		for range 60 {
			if n == 25 {
				left.Store(int64(refusals))
			}
			if _, err := l.Append([]Entry{{Run: runOf(t, 1, 1, 3000, uint64(n))}}, false); err == nil {
				n++
			}
		}
		require.NoError(t, l.Sync(context.Background()))
		for _, img := range []*vfs.Mem{m.CrashClean()} {
			for range 2 {
				s, l2, rep := testLog(t, img, c, LogOptions{SegmentBytes: 64 << 10})
				require.False(t, rep.ReadOnly, rep.Reason)
				require.Len(t, readAll(t, l2, 0, 64<<10), n, "%d refusals", refusals)
				_, segments := l2.Size()
				list, err := img.ReadDir(testDir)
				require.NoError(t, err)
				wal := 0
				for _, e := range list {
					if strings.HasSuffix(e.Name, walSuffix) {
						wal++
					}
				}
				require.Equal(t, segments, wal)
				require.NoError(t, l2.Close())
				require.NoError(t, s.Close())
			}
		}
	}
}

func TestFilesThatDoNotFollowStayWhereTheyAre(t *testing.T) {
	c := newClock()
	m := vfs.NewMem()
	_, l, _ := testLog(t, m, c, LogOptions{SegmentBytes: 64 << 10, Durable: true})
	for i := range 60 {
		appendRun(t, l, runOf(t, 1, 1, 3000, uint64(i)))
	}
	require.NoError(t, l.Sync(context.Background()))
	img := m.CrashClean()
	require.NoError(t, img.Remove(path.Join(testDir, manifestName)))
	require.NoError(t, img.Remove(path.Join(testDir, manifestName+".prev")))
	require.NoError(t, img.Remove(walOf(t, img, 1)))
	for start := range 3 {
		_, l, rep := testLog(t, img, c, LogOptions{SegmentBytes: 64 << 10, Durable: true})
		require.True(t, rep.ReadOnly, "start %d: %s", start, rep.String())
		require.Empty(t, rep.SetAside)
		_, err := l.Append([]Entry{{Run: runOf(t, 1, 1, 1, 1)}}, false)
		require.ErrorIs(t, err, ErrReadOnly)
		img = img.CrashClean()
	}
}

func TestEpochOutlivesAFullDisk(t *testing.T) {
	c := newClock()
	m := vfs.NewMem()
	_, l, _ := testLog(t, m, c, LogOptions{})
	durably(t, l, 5)
	m = m.CrashClean()
	var full atomic.Bool
	full.Store(true)
	fsys := vfs.Fault(m, func(op vfs.Op) error {
		if full.Load() && op.Kind == vfs.OpCreate {
			return syscall.ENOSPC
		}
		return nil
	})
	_, l, rep := testLog(t, fsys, c, LogOptions{})
	require.Equal(t, uint32(1), rep.Epoch)
	full.Store(false)
	appendRun(t, l, runOf(t, 1, 1, 1, 1))
	require.NoError(t, l.Sync(context.Background()))
	_, l, _ = testLog(t, m.CrashClean(), c, LogOptions{})
	require.Equal(t, uint32(2), l.Epoch())
}
