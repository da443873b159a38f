package main

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

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
