package protocol

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestControlRecordsOverTheirBoundsAreADefect(t *testing.T) {
	for name, call := range map[string]func(){
		"no opcode":    func() { AppendControl(nil, ControlNone, nil, nil) },
		"a long key":   func() { AppendControl(nil, ControlOffset, make([]byte, 256), nil) },
		"a large body": func() { AppendControl(nil, ControlOffset, nil, make([]byte, MaxControlFrame-1023)) },
		"a long text":  func() { appendString(nil, strings.Repeat("x", 1<<16)) },
	} {
		require.Panics(t, call, name)
	}
	f := Frame(AppendControl([]byte("prefix"), ControlOffset, make([]byte, 255), make([]byte, MaxControlFrame-1024))[6:])
	n, err := CheckStored(f, MaxControlFrame)
	require.NoError(t, err, "the largest control record is a control frame still")
	require.Len(t, f, n)
	it := Records(f)
	require.False(t, it.Next(), "it holds no messages")
	require.NoError(t, it.Err())
	require.Zero(t, f.Header().RecordCount())
	require.Equal(t, ControlOffset, f.Opcode())
}

func TestStatsAreFoundByName(t *testing.T) {
	m := Stats{[]Stat{{"pid", 7}, {"frames", 9}}}
	require.Equal(t, uint64(9), m.Get("frames"))
	require.Zero(t, m.Get("nothing"))
}

// TestKeysGoWhereEveryClientSendsThem holds the rule to numbers that docs/protocol.md prints.
func TestKeysGoWhereEveryClientSendsThem(t *testing.T) {
	for _, c := range []struct {
		key         string
		four, seven uint32
	}{{"a", 3, 6}, {"order-1", 1, 1}, {"order-2", 1, 4}, {"ключ", 0, 5}} {
		require.Equal(t, c.four, PartitionOf([]byte(c.key), 4))
		require.Equal(t, c.seven, PartitionOf([]byte(c.key), 7))
		require.Zero(t, PartitionOf([]byte(c.key), 1))
		require.Zero(t, PartitionOf([]byte(c.key), 0))
	}
	used := map[uint32]bool{}
	for i := range 1000 {
		p := PartitionOf(fmt.Appendf(nil, "key-%d", i), 16)
		require.Less(t, p, uint32(16))
		used[p] = true
	}
	require.Len(t, used, 16)
}
