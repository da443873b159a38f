package client

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBackoffGrowsToItsCapAndNoFurther(t *testing.T) {
	b := backoff{low: 10 * time.Millisecond, high: time.Hour}
	for want := b.low; ; want *= 2 {
		d := b.next()
		require.LessOrEqual(t, d, min(want, b.high))
		require.GreaterOrEqual(t, d, min(want, b.high)/2)
		if b.n == maxDoublings {
			break
		}
	}
	for range 1000 { // no shift overflows
		d := b.next()
		require.LessOrEqual(t, d, b.high)
		require.Greater(t, d, 5*time.Minute)
	}
	b.reset()
	require.LessOrEqual(t, b.next(), 10*time.Millisecond)
}

func TestFifoKeepsItsOrder(t *testing.T) {
	var q fifo[int]
	in, out := 0, 0
	for round := range 1000 {
		for range round % 7 {
			q.push(in)
			in++
		}
		for range min(q.len(), round%5) {
			require.Equal(t, out, q.pop())
			out++
		}
	}
	require.Equal(t, in-out, q.len())
	q.prepend([]int{-2, -1})
	q.remove(1)
	require.Equal(t, -2, q.pop())
	for q.len() > 0 {
		require.Equal(t, out, q.pop())
		out++
	}
	q.push(7)
	q.remove(0)
	require.Zero(t, q.len())
}
