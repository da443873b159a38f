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
