package main

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/protocol"
)

func linesOf(t *testing.T, r io.Reader) []string {
	lines := []string{}
	require.NoError(t, eachLine(r, func(line []byte) error {
		lines = append(lines, string(line))
		return nil
	}))
	return lines
}

func TestLines(t *testing.T) {
	long := strings.Repeat("x", 600<<10)
	for text, want := range map[string][]string{
		"":                    {},
		"a":                   {"a"},
		"a\n":                 {"a"},
		"\n\na\r\n\n":         {"", "", "a\r", ""},
		long + "\nb\n" + long: {long, "b", long},
	} {
		require.Equal(t, want, linesOf(t, strings.NewReader(text)))
		if len(text) < 100 {
			require.Equal(t, want, linesOf(t, iotest.OneByteReader(strings.NewReader(text))))
		}
	}
}

func TestLineLongerThanAnyMessageIsRefusedBeforeItIsKept(t *testing.T) {
	err := eachLine(io.MultiReader(strings.NewReader("a\n"), endless{}), func([]byte) error { return nil })
	require.ErrorIs(t, err, protocol.TooLarge)
}

// endless is a line without end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func TestLineErrorsEndTheReading(t *testing.T) {
	broken := errors.New("broken")
	require.ErrorIs(t, eachLine(io.MultiReader(strings.NewReader("a"), iotest.ErrReader(broken)), func([]byte) error { return nil }), broken)
	n := 0
	require.ErrorIs(t, eachLine(strings.NewReader("a\nb\n"), func([]byte) error { n++; return broken }), broken)
	require.Equal(t, 1, n)
}

func TestLazyWriterKeepsNothingForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out sharedBuffer
		w := newLazyWriter(&out)
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
		require.NoError(t, w.flush())
		require.Equal(t, "abcabcabcd", out.String())
		<-time.After(2 * flushAfter)
	})
}

func TestLazyWriterRemembersTheFirstError(t *testing.T) {
	w := newLazyWriter(failingWriter{})
	_, err := w.Write([]byte("a"))
	require.NoError(t, err)
	require.EqualError(t, w.flush(), "disk full")
	_, err = w.Write([]byte("b"))
	require.EqualError(t, err, "disk full")
}

func TestInputEndsWithTheContext(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer func() { require.NoError(t, errors.Join(r.Close(), w.Close())) }()
	ctx, cancel := context.WithCancel(context.Background())
	in := (&call{world: world{stdin: r}}).input(ctx)
	_, err = w.WriteString("abc")
	require.NoError(t, err)
	buf := make([]byte, 10)
	n, err := in.Read(buf)
	require.NoError(t, err)
	require.Equal(t, "abc", string(buf[:n]))
	time.AfterFunc(time.Millisecond, cancel)
	_, err = in.Read(buf) // nobody writes
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, isScreen(r))
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer func() { require.NoError(t, null.Close()) }()
	require.False(t, isScreen(null))
}
