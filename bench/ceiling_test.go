package bench

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCeilingMeasuresEveryLimitAndCleansUp(t *testing.T) {
	dir := t.TempDir()
	measures, err := Ceiling(t.Context(), dir, 150*time.Millisecond)
	require.NoError(t, err)
	var names []string
	for _, m := range measures {
		names = append(names, m.Name)
		require.NotEmpty(t, m.What)
		require.Equal(t, ceilingRepeats, m.Repeats, m.Name)
		require.Positive(t, m.Min, m.Name)
		require.LessOrEqual(t, m.Min, m.Median, m.Name)
		require.LessOrEqual(t, m.Median, m.Max, m.Name)
		require.GreaterOrEqual(t, m.Ops, int64(ceilingRepeats), m.Name)
		require.GreaterOrEqual(t, m.Bytes, m.Ops, m.Name)
		require.Positive(t, m.Seconds, m.Name)
		switch m.Unit {
		case UnitMicroseconds:
			require.NotNil(t, m.Latency, m.Name)
			require.Positive(t, m.Latency.P50, m.Name)
			require.LessOrEqual(t, m.Latency.P50, m.Latency.P99, m.Name)
		case UnitBytesPerSecond:
			require.Nil(t, m.Latency, m.Name)
		default:
			t.Fatalf("%s has unit %q", m.Name, m.Unit)
		}
	}
	require.Equal(t, []string{
		CeilingLoopback, CeilingPingPong, CeilingWriteLarge, CeilingWriteSmall, CeilingSyncAppend,
		CeilingSyncPrezeroed, CeilingSendfile, CeilingReadWrite, CeilingHashSmall, CeilingHashLarge,
	}, names)
	requireEmpty(t, dir)
}

func requireEmpty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestCeilingStopsWithItsContextAndCleansUp(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Ceiling(ctx, dir, time.Hour)
	require.ErrorIs(t, err, context.Canceled)
	requireEmpty(t, dir)
}

func TestCeilingRefusesWhatItCannotUse(t *testing.T) {
	_, err := Ceiling(t.Context(), t.TempDir(), -1)
	require.ErrorIs(t, err, ErrOutOfRange)
	_, err = Ceiling(t.Context(), filepath.Join(t.TempDir(), "absent"), time.Second)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestFileSenderSendsTheRangeAsked(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 64<<10) // 1 MiB, more than a socket buffer takes at once
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	require.NoError(t, err)
	defer f.Close()
	_, err = f.Write(content)
	require.NoError(t, err)
	to, from, err := connected(time.Now().Add(30 * time.Second))
	require.NoError(t, err)
	defer from.Close()
	got := make(chan []byte, 1)
	go func() {
		b, _ := io.ReadAll(from)
		got <- b
	}()
	s := fileSender{file: f, pos: 5}
	n, err := s.send(to, int64(len(content)-10))
	require.NoError(t, err)
	require.Equal(t, int64(len(content)-10), n)
	_, err = s.send(to, 6)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF, "only five bytes are left in the file")
	require.NoError(t, to.Close())
	require.True(t, bytes.Equal(content[5:], <-got))
}
