package millrace_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/bench"
	"github.com/millrace-mq/millrace/client"
	"github.com/millrace-mq/millrace/protocol"
)

// TestCatchUpIsServedBySendfile reads a topic from a broker in a process of its own. What came
// out of its files came out by sendfile, and the number of its read calls says so too: had it
// read what it sent, in pieces of 32 KiB or so, there would be far more of them.
func TestCatchUpIsServedBySendfile(t *testing.T) {
	dir := t.TempDir()
	build(t, filepath.Join(dir, "bin", "millrace"))
	addr := startBroker(t, dir)
	const n = 500_000
	cmd := exec.Command(filepath.Join(dir, "bin", "millrace"), "bench", "produce", "-n", "500000", "--keep", "--topic", "claims", "-q")
	cmd.Env = append(os.Environ(), "MILLRACE_ADDR="+addr)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))

	ctx := context.Background()
	c, err := client.Open(ctx, addr)
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	before, err := c.Stats(ctx)
	require.NoError(t, err)
	calls, err := bench.ReadCalls(pidOf(t, dir))
	require.NoError(t, err)
	records := 0
	for rec, err := range c.Read(ctx, "claims", client.Until(protocol.End)) {
		require.NoError(t, err)
		require.NotEmpty(t, rec.Value)
		records++
	}
	require.Equal(t, n, records)
	after, err := c.Stats(ctx)
	require.NoError(t, err)
	callsAfter, err := bench.ReadCalls(pidOf(t, dir))
	require.NoError(t, err)

	sent := after.Get("bytes_sendfile") - before.Get("bytes_sendfile")
	copied := after.Get("bytes_copied") - before.Get("bytes_copied")
	require.Greater(t, sent, uint64(n*100))
	require.Less(t, copied, sent/100)
	require.Less(t, uint64(callsAfter.Reads-calls.Reads), sent/(128<<10), "read calls of the broker for %d bytes", sent)
}

// pidOf reads the broker's process from its port file.
func pidOf(t *testing.T, dir string) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "ports"))
	require.NoError(t, err)
	var at struct{ PID int }
	require.NoError(t, json.Unmarshal(b, &at))
	return at.PID
}
