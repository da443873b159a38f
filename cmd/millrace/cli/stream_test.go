package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// lockedBuffer is written by a timer while the test reads it.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

// Write takes p.
func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String returns what was written so far.
func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func TestLazyWriterKeepsNothingForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out lockedBuffer
		w := NewLazyWriter(&out)
		for i := range 3 {
			_, err := w.Write([]byte("abc"))
			require.NoError(t, err)
			require.Len(t, out.String(), 3*i)
			<-time.After(2 * flushAfter)
			synctest.Wait()
			require.Len(t, out.String(), 3*i+3)
		}
		_, err := w.Write([]byte("d"))
		require.NoError(t, err)
		require.NoError(t, w.Flush())
		require.Equal(t, "abcabcabcd", out.String())
		<-time.After(2 * flushAfter)
	})
}

func TestLazyWriterRemembersTheFirstError(t *testing.T) {
	w := NewLazyWriter(failingWriter{})
	_, err := w.Write([]byte("a"))
	require.NoError(t, err)
	require.EqualError(t, w.Flush(), "disk full")
	_, err = w.Write([]byte("b"))
	require.EqualError(t, err, "disk full")
}

func TestInputEndsWithTheContext(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer func() { require.NoError(t, errors.Join(r.Close(), w.Close())) }()
	ctx, cancel := context.WithCancel(context.Background())
	in := (&Call{World: World{Stdin: r}}).Input(ctx)
	_, err = w.WriteString("abc")
	require.NoError(t, err)
	buf := make([]byte, 10)
	n, err := in.Read(buf)
	require.NoError(t, err)
	require.Equal(t, "abc", string(buf[:n]))
	time.AfterFunc(time.Millisecond, cancel)
	_, err = in.Read(buf) // nobody writes
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, IsTerminal(r))
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer func() { require.NoError(t, null.Close()) }()
	require.False(t, IsTerminal(null))
}
