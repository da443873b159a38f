package server

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/protocol"
)

// TestEveryOpcodeIsServedOrRefused compares dispatch with the one table of opcodes.
func TestEveryOpcodeIsServedOrRefused(t *testing.T) {
	for _, row := range protocol.Opcodes {
		t.Run(row.Name, func(t *testing.T) {
			require.Equal(t, row.Since != 0, handlers[row.Opcode] != nil)
			c := &conn{server: &Server{}}
			_, err := c.dispatch(&request{opcode: row.Opcode})
			if row.Right != protocol.RightNone {
				require.ErrorIs(t, err, protocol.Unauthenticated, "denied before HELLO")
			}
			if row.Since == 0 {
				c.greeted.Store(true)
				_, err = c.dispatch(&request{opcode: row.Opcode})
				require.ErrorIs(t, err, protocol.Unsupported)
			}
		})
	}
	for op := range handlers {
		require.NotNil(t, op.Spec(), "a handler without a row")
	}
}

func TestBuffersComeBackAndStayWithinTheirBudget(t *testing.T) {
	b := newBuffers(1 << 20)
	var all [][]byte
	for buf := b.take(64 << 10); buf != nil; buf = b.take(64 << 10) {
		all = append(all, buf)
	}
	require.Len(t, all, 16)
	require.Nil(t, b.take(1))
	require.Len(t, b.takeOrSmall(64<<10), smallBuffer)
	require.Equal(t, int64(1<<20+smallBuffer), b.used.Load())
	b.give(make([]byte, smallBuffer))
	for _, buf := range all {
		b.give(buf)
	}
	require.Zero(t, b.used.Load())
	require.Same(t, &all[15][0], &b.take(64 << 10)[0], "free buffers are used again")
	require.Nil(t, b.take(2<<20), "larger than the whole budget")
	for n, size := range map[int]int{1: 4 << 10, 4097: 16 << 10, 1 << 20: 1 << 20, 5 << 20: 5 << 20} {
		require.Equal(t, size, rounded(n))
	}
}
