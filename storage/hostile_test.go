package storage

import (
	"context"
	"path"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/protocol"
	"github.com/millrace-mq/millrace/storage/vfs"
)

// twoLives fills a log in one life that ended in order and one that did not, and returns what
// the manifest was between them.
func twoLives(t *testing.T, c *clock) (m *vfs.Mem, between []byte) {
	t.Helper()
	m = vfs.NewMem()
	s, l, _ := testLog(t, m, c, LogOptions{Durable: true})
	durably(t, l, 20)
	require.NoError(t, l.Close())
	require.NoError(t, s.Close())
	between, err := readFile(m, path.Join(testDir, manifestName))
	require.NoError(t, err)
	_, l, _ = testLog(t, m, c, LogOptions{Durable: true})
	durably(t, l, 20)
	return m.CrashClean(), between
}

func TestManifestOfAnEarlierLifeLosesNothing(t *testing.T) {
	c := newClock()
	m, between := twoLives(t, c)
	for what, spoil := range map[string]func(img *vfs.Mem){
		"put back": func(img *vfs.Mem) {
			require.NoError(t, img.Remove(path.Join(testDir, manifestName)))
			require.NoError(t, writeFile(img, path.Join(testDir, manifestName), between))
		},
		"only the previous one": func(img *vfs.Mem) { require.NoError(t, img.Remove(path.Join(testDir, manifestName))) },
		"put back as the previous one": func(img *vfs.Mem) {
			require.NoError(t, img.Remove(path.Join(testDir, manifestName)))
			require.NoError(t, ignoreMissing(img.Remove(path.Join(testDir, manifestName+".prev"))))
			require.NoError(t, writeFile(img, path.Join(testDir, manifestName+".prev"), between))
		},
	} {
		img := m.CrashClean()
		spoil(img)
		_, l, rep := testLog(t, img, c, LogOptions{Durable: true})
		require.False(t, rep.ReadOnly, rep.Reason)
		require.Len(t, readAll(t, l, 0, 1<<20), 40, what)
		require.Equal(t, uint64(40), appendRun(t, l, runOf(t, 1, 1, 1, 1)), what)
	}
}

func TestReadOnlyIsFoundAgainAtEveryStart(t *testing.T) {
	c := newClock()
	m := vfs.NewMem()
	s, l, _ := testLog(t, m, c, LogOptions{Durable: true})
	durably(t, l, 30)
	size := l.writtenMark().pos
	require.NoError(t, l.Close())
	require.NoError(t, s.Close())
	for what, spoil := range map[string]func(img *vfs.Mem, wal string){
		"cut by 10": func(img *vfs.Mem, wal string) {
			edit(t, img, wal, func(f vfs.File) { require.NoError(t, f.Truncate(size-10)) })
		},
		"cut by 300": func(img *vfs.Mem, wal string) {
			edit(t, img, wal, func(f vfs.File) { require.NoError(t, f.Truncate(size-300)) })
		},
		"emptied": func(img *vfs.Mem, wal string) {
			edit(t, img, wal, func(f vfs.File) { require.NoError(t, f.Truncate(0)) })
		},
		"removed": func(img *vfs.Mem, wal string) { require.NoError(t, img.Remove(wal)) },
	} {
		img := m.CrashClean()
		spoil(img, walOf(t, img, 0))
		var first string
		for start := range 3 {
			s, l, rep := testLog(t, img, c, LogOptions{Durable: true})
			require.True(t, rep.ReadOnly, "%s, start %d: %s", what, start, rep.String())
			if start == 0 {
				first = rep.Reason
			}
			require.Equal(t, first, rep.Reason, what)
			_, err := l.Append([]Entry{{Run: runOf(t, 1, 1, 1, 1)}}, false)
			require.ErrorIs(t, err, ErrReadOnly, what)
			require.NoError(t, l.Close())
			require.NoError(t, s.Close())
		}
	}
}

// forged is a frame as a producer could put it into a message: sealed, with a place in the
// future of the log.
func forged(t *testing.T, l *Log, c *clock, ahead uint64) protocol.Frame {
	t.Helper()
	f := protocol.Frame(runOf(t, 1, 1, 40, 666).Bytes)
	end := l.Written()
	st := protocol.Stamp{Offset: end.Offset + ahead, Index: end.Index + ahead, Term: 7, Timestamp: uint64(c.now()) + 1<<50}
	st.Apply(f)
	return f
}

func TestFrameInsideADamagedMessageIsNotTakenForTheLog(t *testing.T) {
	c := newClock()
	m := vfs.NewMem()
	_, l, _ := testLog(t, m, c, LogOptions{Durable: true})
	durably(t, l, 5)
	at := l.writtenMark().pos
	var b protocol.Batch
	inside := append(make([]byte, 1000), forged(t, l, c, 7)...) // far enough in to leave room for six frames between
	inside = append(inside, forged(t, l, c, 8)...)
	require.NoError(t, b.Add(nil, inside, nil))
	run, err := protocol.CheckRun(b.Seal(), 1<<20)
	require.NoError(t, err)
	appendRun(t, l, run)
	durably(t, l, 30)
	want := readAll(t, l, 0, 1<<20)
	for _, field := range []int64{0, 17, 21, 22, 26, 40} {
		img := m.CrashClean()
		flip(t, img, walOf(t, img, 0), at+field, 3)
		_, l2, rep := testLog(t, img, c, LogOptions{Durable: true})
		require.False(t, rep.ReadOnly, rep.Reason)
		require.Zero(t, rep.TornBytes)
		require.Len(t, rep.Damage, 1)
		require.Equal(t, uint64(6), rep.Damage[0].To)
		require.Equal(t, l.Written(), l2.Written())
		got := readAll(t, l2, 6, 1<<20)
		require.Len(t, got, 30)
		for off, v := range got {
			require.Equal(t, want[off], v)
		}
	}
}

func TestSearchBehindDamageHashesNoMoreThanItsBudget(t *testing.T) {
	c := newClock()
	m := vfs.NewMem()
	_, l, _ := testLog(t, m, c, LogOptions{})
	durably(t, l, 5)
	at := l.writtenMark().pos
	// Headers that all announce frames which end in one place, where a plausible tail lies.
	lure := make([]byte, 600<<10)
	for i := 100; i+protocol.HeaderSize < 100<<10; i += protocol.HeaderSize {
		h := protocol.HeaderOf(lure[i:])
		*h = protocol.Header{byte(protocol.MagicData)}
		h.SetTimestamp(1 << 63)
		h.SetOffset(6)
		h.SetSizes(0, uint32(len(lure)-i-protocol.HeaderSize))
		h.SetRecordCount(1)
	}
	tail := lure[len(lure)-protocol.TailSize:]
	tail[7], tail[11] = 7, 9 // index, term
	var b protocol.Batch
	require.NoError(t, b.Add(nil, lure, nil))
	run, err := protocol.CheckRun(b.Seal(), 1<<20)
	require.NoError(t, err)
	appendRun(t, l, run)
	require.NoError(t, l.Sync(context.Background()))
	img := m.CrashClean()
	flip(t, img, walOf(t, img, 0), at+22, 4)
	_, l2, rep := testLog(t, img, c, LogOptions{})
	require.LessOrEqual(t, l2.Written().Index, uint64(5))
	require.True(t, rep.ReadOnly || rep.TornBytes > 0, rep.String())
	f, err := img.Open(walOf(t, img, 0))
	require.NoError(t, err)
	size, err := f.Size()
	require.NoError(t, err)
	sc := newScan(f, size, 0, 1)
	before := sc.budget
	require.NoError(t, sc.run())
	require.True(t, sc.gaveUp, "the lures were looked at for %d bytes and not given up", before-sc.budget)
	require.LessOrEqual(t, before-sc.budget, before+int64(len(lure)), "bytes hashed")
	require.NoError(t, f.Close())
}

func TestTornTailRaisesTheEpochEvenWithoutWholeFrames(t *testing.T) {
	c := newClock()
	m := vfs.NewMem()
	_, l, _ := testLog(t, m, c, LogOptions{Durable: true})
	durably(t, l, 3)
	img := m.CrashClean()
	flip(t, img, walOf(t, img, 0), l.writtenMark().pos-20, 3)
	_, l2, rep := testLog(t, img, c, LogOptions{Durable: true})
	require.Positive(t, rep.TornBytes)
	require.Zero(t, rep.TornFrames)
	require.Equal(t, uint32(1), l2.Epoch())
	_, err := l2.Seek(3)
	var r *RangeError
	require.ErrorAs(t, err, &r)
	require.True(t, r.Lost)
}

func TestTimesAndControlRecordsAreFoundAroundDamage(t *testing.T) {
	c := newClock()
	m := vfs.NewMem()
	_, l, _ := testLog(t, m, c, LogOptions{Durable: true})
	durably(t, l, 30)
	ts := int64(0)
	require.NoError(t, l.Sync(context.Background()))
	_, err := l.AppendControl(protocol.AppendControl(nil, protocol.ControlOffset, nil,
		protocol.AppendGroupOffsets(nil, []protocol.GroupOffset{{Group: "g", Offset: 7}})), false)
	require.NoError(t, err)
	durably(t, l, 1)
	second, err := l.Seek(2)
	require.NoError(t, err)
	img := m.CrashClean()
	flip(t, img, walOf(t, img, 0), second.pos+22, 4)
	_, l2, rep := testLog(t, img, c, LogOptions{Durable: true})
	require.Len(t, rep.Damage, 1)
	groups := 0
	require.NoError(t, l2.Controls(0, func(f protocol.Frame) error { groups++; return nil }))
	require.Equal(t, 1, groups)
	for off := uint64(5); off < 30; off++ { // the time of each record finds it
		cur, err := l2.Seek(off)
		require.NoError(t, err)
		sec, err := l2.Next(&cur, off+1, 1)
		require.NoError(t, err)
		var h protocol.Header
		_, err = sec.File().ReadAt(h[:], sec.Pos())
		require.NoError(t, err)
		sec.Release()
		ts = int64(h.Timestamp())
		got, err := l2.SeekTime(ts)
		require.NoError(t, err)
		require.Equal(t, off, got)
	}
}

func TestSegmentWhoseIndexCannotBeWrittenIsRolledAllTheSame(t *testing.T) {
	c := newClock()
	m := vfs.NewMem()
	s, l, _ := testLog(t, m, c, LogOptions{SegmentBytes: 64 << 10})
	for i := range 5 {
		appendRun(t, l, runOf(t, 2, 5, 500, uint64(i)))
	}
	require.NoError(t, l.Close())
	require.NoError(t, s.Close())
	fsys := vfs.Fault(m, func(op vfs.Op) error {
		if op.Kind == vfs.OpCreate && strings.HasSuffix(op.Name, "-0"+idxSuffix) {
			return syscall.ENOSPC
		}
		return nil
	})
	require.NoError(t, m.Remove(strings.TrimSuffix(walOf(t, m, 0), walSuffix)+idxSuffix))
	_, l, _ = testLog(t, fsys, c, LogOptions{SegmentBytes: 64 << 10})
	for i := range 40 {
		appendRun(t, l, runOf(t, 2, 5, 500, uint64(i)))
	}
	_, segments := l.Size()
	require.Greater(t, segments, 1)
	require.Len(t, readAll(t, l, 0, 1<<20), 450)
}

func TestFullDiskDoesNotKeepALogFromOpening(t *testing.T) {
	c := newClock()
	m, _ := twoLives(t, c)
	var full atomic.Bool
	full.Store(true)
	fsys := vfs.Fault(m, func(op vfs.Op) error {
		switch op.Kind {
		case vfs.OpCreate, vfs.OpWrite, vfs.OpWritev, vfs.OpAllocate:
			if full.Load() {
				return syscall.ENOSPC
			}
		}
		return nil
	})
	_, l, rep := testLog(t, fsys, c, LogOptions{Durable: true})
	require.False(t, rep.ReadOnly, rep.Reason)
	require.Len(t, readAll(t, l, 0, 1<<20), 40)
	_, err := l.Append([]Entry{{Run: runOf(t, 1, 1, 1, 1)}}, false)
	require.ErrorIs(t, err, ErrNoSpace)
	full.Store(false)
	require.Equal(t, uint64(40), appendRun(t, l, runOf(t, 1, 1, 1, 1)), "and it goes on when there is room")
	require.NoError(t, l.Close())
}
