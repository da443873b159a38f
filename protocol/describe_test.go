package protocol

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// dump is Describe of one frame under a heading.
func dump(t *testing.T, heading string, b []byte, records int, style Style) string {
	t.Helper()
	var text bytes.Buffer
	require.NoError(t, Describe(&text, Explain(b, records), style))
	return fmt.Sprintf("== %s\n%s\n", heading, text.String())
}

func TestDescribeWritesEachFieldWithPlaceBytesNameAndValue(t *testing.T) {
	vectors := map[string][]byte{}
	for _, list := range goldenVectors(t) {
		for _, v := range list {
			vectors[v.name] = v.w.encode()
		}
	}
	every := vectors["data-every-flag"]
	headers := vectors["data-headers"]
	beyond := changed(headers, HeaderSize+PreludeSize+recordPrefix+1, 0xFF, true) // the first header's name
	long := Frame(frame(Prelude{Layout: LayoutOpaque}, "key", bytes.Repeat([]byte("0123456789abcdef"), 20), 1))
	many := sealed(t, 20, 3)
	text := dump(t, "a request with key and arguments", vectors["subscribe-one-shot"], 0, Style{}) +
		dump(t, "a refusal", vectors["open-refused"], 0, Style{}) +
		dump(t, "lists within lists", vectors["topic-describe-reply"], 0, Style{}) +
		dump(t, "a DATA frame with every field of the prelude, at position 0x1000", every, 0, Style{Base: 0x1000}) +
		dump(t, "a stamped frame", vectors["data-stamped"], 0, Style{}) +
		dump(t, "headers", headers, 0, Style{}) +
		dump(t, "an OFFSET record", vectors["control-offset"], 0, Style{}) +
		dump(t, "2 of 20 records are walked", many, 2, Style{}) +
		dump(t, "long fields are cut", long, 0, Style{Bytes: 16}) +
		dump(t, "the check does not hold", changed(headers, 60, 0xAA, false), 0, Style{}) +
		dump(t, "cut inside a field", every[:70], 0, Style{}) +
		dump(t, "cut inside the header", every[:20], 0, Style{}) +
		dump(t, "cut inside the tail", headers[:len(headers)-3], 0, Style{}) +
		dump(t, "no bytes", nil, 0, Style{}) +
		dump(t, "a header's name reaches behind the headers: what follows is still told", beyond, 0, Style{}) +
		dump(t, "more records than recordCount says", frame(Prelude{}, "", many.Body(), 3), 0, Style{}) +
		dump(t, "fewer records than recordCount says", frame(Prelude{}, "", many.Body()[:2*12], 3), 0, Style{}) +
		dump(t, "a payload too short for its message", slices.Concat(head(0x21, 0, 5, 0)[:1], []byte{0, byte(OpOpen)}, head(0x21, 0, 5, 0)[3:], make([]byte, 9)), 0, Style{}) +
		dump(t, "a payload too long for its message", slices.Concat(head(0x11, 0, 6, 0)[:1], []byte{0, byte(OpUnsubscribe)}, head(0x11, 0, 6, 0)[3:], make([]byte, 6)), 0, Style{}) +
		dump(t, "a payload without room for prelude and tail", append(head(0x01, 3, 5, 1), "keybytes"...), 0, Style{}) +
		dump(t, "zeros", make([]byte, 32), 0, Style{}) +
		dump(t, "an unknown class that ends the connection", head(0x7F, 0, 0, 0), 0, Style{}) +
		dump(t, "an unknown class that is skipped", vectors["skip-unknown"], 0, Style{}) +
		dump(t, "an unknown prelude flag", changed(headers, HeaderSize+1, 0x30, true), 0, Style{}) +
		dump(t, "in colour", every[:31], 0, Style{Color: true})
	golden(t, "testdata/describe.txt", text)
}

func TestDescribeNamesTheFieldThatIsCut(t *testing.T) {
	f := sealed(t, 1, 5)
	for n := range f {
		var text bytes.Buffer
		require.NoError(t, Describe(&text, Explain(f[:n], 0), Style{}))
		last := text.String()[strings.LastIndex(strings.TrimSpace(text.String()), "\n")+1:]
		require.Regexp(t, `!! truncated: field \S+ wants \d+ bytes, \d+ left\n$`, last, "cut to %d bytes", n)
	}
}

// errWriter fails after a number of writes.
type errWriter struct{ left int }

var errFull = errors.New("full")

func (w *errWriter) Write(b []byte) (int, error) {
	if w.left == 0 {
		return 0, errFull
	}
	w.left--
	return len(b), nil
}

func TestDescribeStopsWhenTheWriterFails(t *testing.T) {
	w := &errWriter{left: 3}
	require.ErrorIs(t, Describe(w, Explain(sealed(t, 3, 5), 0), Style{}), errFull)
	require.Zero(t, w.left)
}

func TestExplainStopsWhenTheConsumerHasEnough(t *testing.T) {
	for _, b := range [][]byte{sealed(t, 3, 5), make([]byte, 40), vectorNamed(t, "topic-describe-reply"), vectorNamed(t, "data-headers"), vectorNamed(t, "control-offset")} {
		whole := 0
		for range Explain(b, 0) {
			whole++
		}
		for stop := 1; stop <= whole; stop++ {
			n := 0
			for range Explain(b, 0) {
				if n++; n == stop {
					break
				}
			}
			require.Equal(t, stop, n)
		}
	}
}

func vectorNamed(t *testing.T, name string) []byte {
	t.Helper()
	for _, list := range goldenVectors(t) {
		for _, v := range list {
			if v.name == name {
				return v.w.encode()
			}
		}
	}
	require.Fail(t, "no such vector", name)
	return nil
}

func TestExplainedTextsAreCutAtACharacter(t *testing.T) {
	for pad := range 4 {
		text := quote([]byte(strings.Repeat("x", textShown-pad) + "€€€"))
		require.NotContains(t, text, `\x`)
		require.Contains(t, text, "… ")
	}
	require.Equal(t, "3 bytes", quote([]byte{0xFF, 0xFE, 0xFD}))
	var wrong []string
	for p := range ExplainLegacyHello([]byte{9, 1, 2}) {
		if p.Wrong {
			wrong = append(wrong, p.Value)
		}
	}
	require.Equal(t, []string{"0x09 is no legacy handshake"}, wrong)
}
