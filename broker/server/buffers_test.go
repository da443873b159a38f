package server

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBuffersComeBackAndStayWithinTheirBudget(t *testing.T) {
	b := newBuffers(1 << 20)
	var all [][]byte
	for buf := b.take(64 << 10); buf != nil; buf = b.take(64 << 10) {
		all = append(all, buf)
	}
	require.Equal(t, 12, len(all), "the rest is for delivering")
	require.Nil(t, b.take(1))
	require.Len(t, b.takeOrSmall(64<<10), smallBuffer)
	require.Equal(t, int64(12*64<<10+smallBuffer), b.used.Load())
	b.give(make([]byte, smallBuffer))
	for _, buf := range all {
		b.give(buf)
	}
	require.Zero(t, b.used.Load())
	require.Same(t, &all[11][0], &b.take(64 << 10)[0], "free buffers are used again")
	require.Nil(t, b.take(2<<20), "larger than the whole budget")
	for n, size := range map[int]int{1: 4 << 10, 4097: 16 << 10, 1 << 20: 1 << 20, 5 << 20: 5 << 20} {
		require.Equal(t, size, rounded(n))
	}
}

func TestDeliveringAndReadingDoNotTakeEachOthersMemory(t *testing.T) {
	const budget = 8 << 20
	b := newBuffers(budget)
	take := func(from func(int) []byte) (list [][]byte, size int) {
		for buf := from(legacyWindow); buf != nil; buf = from(legacyWindow) {
			list, size = append(list, buf), size+len(buf)
		}
		return list, size
	}
	out, delivering := take(b.takeOut)
	require.Equal(t, budget/outShare, delivering)
	in, reading := take(b.take)
	require.Equal(t, budget-budget/outShare, reading, "those who read nothing take nothing from those who write")
	require.Equal(t, uint64(budget), b.total())
	for _, buf := range out {
		b.giveOut(buf)
	}
	require.Equal(t, uint64(reading), b.total())
	out, _ = take(b.takeOut)
	require.Equal(t, budget/outShare, len(out)*legacyWindow, "nor the other way round")

	var over atomic.Bool
	over.Store(true)
	require.False(t, b.awaitOut(legacyWindow, over.Load))
	over.Store(false)
	woken := make(chan bool)
	go func() { woken <- b.awaitOut(2*legacyWindow, over.Load) }()
	require.Eventually(t, func() bool { return b.waiting.Load() == 1 }, 20*time.Second, time.Millisecond)
	b.give(in[0]) // wakes it, and does not help it
	b.giveOut(out[0])
	select {
	case <-woken:
		t.Fatal("one window is not two")
	default:
	}
	b.giveOut(out[1])
	require.True(t, <-woken)
}

// TestLegacyProducersGoBeyondTheBudgetOneByOne: when what was read fills the budget, frames must
// still be wrapped and appended, or nothing would ever come back.
func TestLegacyProducersGoBeyondTheBudgetOneByOne(t *testing.T) {
	s := &Server{buffers: newBuffers(2 << 20)}
	for s.buffers.take(4<<10) != nil {
	}
	full := s.buffers.used.Load()
	first := &legacyProducer{handle: handle{conn: &conn{server: s}}}
	second := &legacyProducer{handle: handle{conn: &conn{server: s}}}
	first.hold(1 << 20)
	held := make(chan struct{})
	go func() { second.hold(1 << 20); close(held) }()
	require.False(t, s.wrapTurn.TryLock())
	select {
	case <-held:
		t.Fatal("two at a time")
	default:
	}
	require.Equal(t, full+1<<20, s.buffers.used.Load())
	first.drop()
	<-held
	require.Equal(t, full+1<<20, s.buffers.used.Load())
	second.drop()
	require.Equal(t, full, s.buffers.used.Load())
	require.True(t, s.wrapTurn.TryLock())
}
