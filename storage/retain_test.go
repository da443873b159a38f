package storage

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/protocol"
	"github.com/millrace-mq/millrace/storage/vfs"
)

// aged opens a log whose time the test moves.
func aged(t *testing.T, m *vfs.Mem, o LogOptions) (l *Log, now, passed *atomic.Int64) {
	t.Helper()
	now, passed = new(atomic.Int64), new(atomic.Int64)
	now.Store(1_800_000_000_000_000_000)
	s, err := OpenStore(m, StoreOptions{Now: now.Load, Elapsed: passed.Load})
	require.NoError(t, err)
	l, _, err = s.OpenLog(testDir, o)
	require.NoError(t, err)
	return l, now, passed
}

func pass(now, passed *atomic.Int64, d time.Duration) {
	now.Add(int64(d))
	passed.Add(int64(d))
}

func TestRetentionByAgeTakesWholeOldSegmentsAndQuietOnesToo(t *testing.T) {
	m := vfs.NewMem()
	l, now, passed := aged(t, m, LogOptions{SegmentBytes: 64 << 10})
	for i := range 30 {
		appendRun(t, l, runOf(t, 2, 5, 500, uint64(i)))
		pass(now, passed, time.Minute)
	}
	_, before := l.Size()
	n, err := l.Retain(15*time.Minute, 0)
	require.NoError(t, err)
	require.Positive(t, n)
	_, after := l.Size()
	require.Equal(t, before-n, after)
	require.Positive(t, l.Start())
	_, err = l.Seek(l.Start() - 1)
	var r *RangeError
	require.ErrorAs(t, err, &r)
	require.Equal(t, l.Start(), r.Start)
	require.Len(t, readAll(t, l, l.Start(), 1<<20), int(l.Written().Offset-l.Start()))

	pass(now, passed, time.Hour) // nobody appends any more
	_, err = l.Retain(15*time.Minute, 0)
	require.NoError(t, err)
	require.Equal(t, l.Written().Offset, l.Start(), "a quiet log expires too")
	require.Empty(t, readAll(t, l, l.Start(), 1<<20))
	next := appendRun(t, l, runOf(t, 1, 1, 10, 1))
	require.Equal(t, uint64(300), next, "offsets go on")
	list, err := m.ReadDir(testDir)
	require.NoError(t, err)
	wal := 0
	for _, e := range list {
		if strings.HasSuffix(e.Name, walSuffix) {
			wal++
		}
	}
	_, segments := l.Size()
	require.Equal(t, segments, wal, "removed segments are off the disk")
}

func TestRetentionByBytesKeepsTheNewest(t *testing.T) {
	l, _, _ := aged(t, vfs.NewMem(), LogOptions{SegmentBytes: 64 << 10})
	for i := range 60 {
		appendRun(t, l, runOf(t, 2, 5, 500, uint64(i)))
	}
	_, err := l.Retain(0, 150<<10)
	require.NoError(t, err)
	size, _ := l.Size()
	require.LessOrEqual(t, size, int64(150<<10))
	require.Greater(t, size, int64(50<<10))
}

func TestForwardClockJumpRemovesNothing(t *testing.T) {
	l, now, passed := aged(t, vfs.NewMem(), LogOptions{SegmentBytes: 64 << 10})
	for i := range 30 {
		appendRun(t, l, runOf(t, 2, 5, 500, uint64(i)))
		pass(now, passed, time.Second)
	}
	now.Add(int64(365 * 24 * time.Hour))
	n, err := l.Retain(time.Hour, 0)
	require.NoError(t, err)
	require.Zero(t, n)
	require.True(t, l.store.Stats().ClockAhead)
	now.Add(-int64(365 * 24 * time.Hour)) // set right again
	pass(now, passed, 2*time.Hour)
	n, err = l.Retain(time.Hour, 0)
	require.NoError(t, err)
	require.Positive(t, n)
}

func TestBackwardClockKeepsTimesAscending(t *testing.T) {
	l, now, _ := aged(t, vfs.NewMem(), LogOptions{})
	last := l.Newest()
	for i := range 20 {
		now.Add(int64(time.Duration(7-i) * time.Second))
		appendRun(t, l, runOf(t, 1, 1, 10, uint64(i)))
		require.GreaterOrEqual(t, l.Newest(), last)
		last = l.Newest()
	}
}

func TestTimeFindsTheFirstRecordOfThatTime(t *testing.T) {
	l, now, passed := aged(t, vfs.NewMem(), LogOptions{SegmentBytes: 100 << 10})
	type at struct {
		ts  int64
		off uint64
	}
	var all []at
	for i := range 400 {
		if i%3 != 0 { // several appends within one instant
			pass(now, passed, time.Duration(i%5)*time.Millisecond)
		}
		all = append(all, at{now.Load(), appendRun(t, l, runOf(t, 1, 3, 200, uint64(i)))})
	}
	_, segments := l.Size()
	require.Greater(t, segments, 2)
	for _, a := range all {
		for _, ts := range []int64{a.ts - 1, a.ts, a.ts + 1} {
			want := l.Visible().Offset
			for _, b := range all {
				if b.ts >= ts {
					want = b.off
					break
				}
			}
			got, err := l.SeekTime(ts)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	}
}

func TestReaderOutlivesTheRemovalOfItsSegment(t *testing.T) {
	m := vfs.NewMem()
	l, _, _ := aged(t, m, LogOptions{SegmentBytes: 64 << 10})
	for i := range 60 {
		appendRun(t, l, runOf(t, 2, 5, 500, uint64(i)))
	}
	c, err := l.Seek(0)
	require.NoError(t, err)
	s, err := l.Next(&c, protocol.NoStop, 1<<20)
	require.NoError(t, err)
	before := make([]byte, s.Size)
	_, err = s.File().ReadAt(before, s.Pos())
	require.NoError(t, err)
	_, err = l.Retain(0, 70<<10)
	require.NoError(t, err)
	after := make([]byte, s.Size)
	_, err = s.File().ReadAt(after, s.Pos())
	require.NoError(t, err, "the file is there as long as it is held")
	require.Equal(t, before, after)
	name := s.seg.walName()
	s.Release()
	_, err = m.Stat(testDir + "/" + name)
	require.Error(t, err, "and goes with its last reader")
	_, err = l.Next(&c, protocol.NoStop, 1<<20)
	var r *RangeError
	require.ErrorAs(t, err, &r, "what was removed is not skipped in silence")
}

func TestCheckpointsAreKeptAndDamagedOnesPassedOver(t *testing.T) {
	c := newClock()
	m := vfs.NewMem()
	s, l, _ := testLog(t, m, c, LogOptions{})
	for i := range 5 {
		durably(t, l, 2)
		require.NoError(t, l.SaveCheckpoint(l.Durable().Index, []byte{byte(i)}))
	}
	list, err := l.checkpoints()
	require.NoError(t, err)
	require.Equal(t, []uint64{10, 8}, list)
	index, body, err := l.LoadCheckpoint()
	require.NoError(t, err)
	require.Equal(t, uint64(10), index)
	require.Equal(t, []byte{4}, body)
	flip(t, m, testDir+"/"+stateName(10), 30, 1)
	index, body, err = l.LoadCheckpoint()
	require.NoError(t, err)
	require.Equal(t, uint64(8), index)
	require.Equal(t, []byte{3}, body)
	require.NoError(t, l.Close())
	require.NoError(t, s.Close())
}

func TestControlRecordsAreFoundWithoutReadingMessages(t *testing.T) {
	c := newClock()
	_, l, _ := testLog(t, vfs.NewMem(), c, LogOptions{SegmentBytes: 100 << 10})
	want := map[uint64]bool{}
	for i := range 200 {
		appendRun(t, l, runOf(t, 1, 5, 400, uint64(i)))
		if i%40 == 7 {
			index, err := l.AppendControl(protocol.AppendControl(nil, protocol.ControlOffset, nil,
				protocol.AppendGroupOffsets(nil, []protocol.GroupOffset{{Group: "g", Offset: uint64(i)}})), false)
			require.NoError(t, err)
			want[index] = true
		}
	}
	end := l.Written()
	require.Equal(t, uint64(1000), end.Offset, "control records take no offset")
	for from := uint64(0); from <= end.Index; from += 9 {
		got := map[uint64]bool{}
		require.NoError(t, l.Controls(from, func(f protocol.Frame) error {
			require.Equal(t, protocol.ControlOffset, f.Opcode())
			got[f.Index()] = true
			return nil
		}))
		for index := range want {
			require.Equal(t, index > from, got[index], "index %d from %d", index, from)
		}
		require.LessOrEqual(t, len(got), len(want))
	}
}

func TestFullDiskRefusesMessagesAndKeepsRoomForControlRecords(t *testing.T) {
	m := vfs.NewMem()
	c := newClock()
	s, l, _ := testLog(t, m, c, LogOptions{})
	appendRun(t, l, runOf(t, 1, 1, 10, 1))
	m.SetSpace(1<<20, 1<<30)
	s.checkSpace()
	_, err := l.Append([]Entry{{Run: runOf(t, 1, 1, 10, 1)}}, false)
	require.ErrorIs(t, err, ErrNoSpace)
	_, err = l.AppendControl(protocol.AppendControl(nil, protocol.ControlNoop, nil, nil), false)
	require.NoError(t, err)
	m.SetSpace(1<<30, 1<<30)
	s.checkSpace()
	appendRun(t, l, runOf(t, 1, 1, 10, 1))
	require.Len(t, readAll(t, l, 0, 1<<20), 2)
}
