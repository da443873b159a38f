package storage

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/storage/vfs"
)

func TestDamagedNodeFileIsReplacedByTheOneBefore(t *testing.T) {
	c := newClock()
	m := vfs.NewMem()
	s := openStore(t, m, c)
	id := s.NodeID()
	require.NoError(t, s.Close())
	flip(t, m, nodeName, 50, 1)
	var told atomic.Int32
	s, err := OpenStore(m, StoreOptions{Now: c.now, OnError: func(error) { told.Add(1) }})
	require.NoError(t, err)
	require.Equal(t, id, s.NodeID())
	require.False(t, s.WasClean())
	require.Equal(t, int32(1), told.Load())
	require.NoError(t, s.Close())
	require.NoError(t, m.Remove(nodeName+".prev"))
	flip(t, m, nodeName, 50, 1)
	_, err = OpenStore(m, StoreOptions{Now: c.now})
	require.ErrorContains(t, err, "remove NODE")
	s = openStore(t, func() vfs.FS { require.NoError(t, m.Remove(nodeName)); return m }(), c)
	require.NoError(t, s.Close())
}

func TestPreparingSpaceLeavesTheReserveAlone(t *testing.T) {
	c := newClock()
	m := vfs.NewMem()
	var on, off atomic.Int32
	s, err := OpenStore(m, StoreOptions{Now: c.now, OnSpace: func(full bool, _ uint64) {
		if full {
			on.Add(1)
		} else {
			off.Add(1)
		}
	}})
	require.NoError(t, err)
	l, _, err := s.OpenLog(testDir, LogOptions{})
	require.NoError(t, err)
	m.SetSpace(33<<20, 1<<30) // a little more than twice the reserve
	s.checkSpace()
	require.LessOrEqual(t, s.spare(), int64(1<<20))
	for i := range 300 {
		appendRun(t, l, runOf(t, 2, 5, 1000, uint64(i)))
	}
	end := l.writtenMark()
	require.NoError(t, l.prepare())
	z := &end.seg.zero
	z.mu.Lock()
	require.LessOrEqual(t, z.end-end.pos, int64(2<<20), "steps are an eighth of what is spare")
	z.mu.Unlock()
	m.SetSpace(1<<20, 1<<30)
	s.checkSpace()
	require.Zero(t, s.spare())
	m.SetSpace(1<<30, 1<<30)
	s.checkSpace()
	require.Equal(t, [2]int32{1, 1}, [2]int32{on.Load(), off.Load()})
}
