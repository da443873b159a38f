package protocol

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// update makes the tests write the files that they otherwise compare: the vectors in
// testdata/wire, the dumps in testdata and docs/protocol.md.
var update = flag.Bool("update", false, "write golden files instead of comparing them")

const wireDir = "../testdata/wire"

// golden compares text with a file, or writes it.
func golden(t *testing.T, path, text string) {
	t.Helper()
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	if string(want) != text {
		require.Equal(t, string(want), text, "%s is not what the code writes; if the change is meant: go test ./protocol -update", path)
	}
}

// wire is something with bytes: encode writes them from the fields, decode reads the fields
// from them with the decoders that a peer uses.
type wire interface {
	encode() []byte
	decode(b []byte) (wire, error)
}

// vector is one golden vector.
type vector struct {
	name  string // unique
	about string
	w     wire
}

// parts explains the bytes of a vector.
func (v *vector) parts(b []byte) iter.Seq[Part] {
	switch v.w.(type) {
	case legacyHello:
		return ExplainLegacyHello(b)
	case legacyFrame:
		return ExplainLegacyFrame(b)
	case legacyAck:
		return func(yield func(Part) bool) {
			_ = yield(Part{0, b[:1], "status", ValueText("legacy status", uint64(b[0])), false}) && yield(Part{1, b[1:], "offset", itoa(be(b[1:])), false})
		}
	}
	return func(yield func(Part) bool) {
		for pos := 0; pos < len(b); {
			for p := range Explain(b[pos:], -1) {
				p.Pos += pos
				if !yield(p) {
					return
				}
			}
			pos += int(HeaderOf(b[pos:]).FrameSize())
		}
	}
}

func be(b []byte) (v uint64) {
	for _, c := range b {
		v = v<<8 | uint64(c)
	}
	return v
}

// text writes a vector as its file has it.
func (v *vector) text(t testing.TB, b []byte) string {
	var s strings.Builder
	fmt.Fprintf(&s, "== %s\nabout  %s\nkind   %s\n", v.name, v.about, kindOf(v.w))
	writeFields(&s, "", reflect.ValueOf(v.w))
	for p := range v.parts(b) {
		require.False(t, p.Wrong, "%s: %s", v.name, p.Value)
		writeHex(&s, p.Bytes, fmt.Sprintf("%d %s = %s", p.Pos, p.Name, p.Value))
	}
	return s.String()
}

func writeHex(s *strings.Builder, b []byte, note string) {
	for i := 0; i < len(b); i += hexPerLine {
		line := "hex    " + hexText(b[i:min(i+hexPerLine, len(b))])
		if i == 0 && note != "" {
			line = fmt.Sprintf("%-30s  # %s", line, note)
		}
		s.WriteString(line + "\n")
	}
}

func kindOf(w wire) string { return reflect.TypeOf(w).Name() }

// writeFields flattens a value into lines "field path = value": numbers in decimal, texts and
// bytes quoted as Go does, nil where there is none.
func writeFields(s *strings.Builder, path string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer:
		if v.IsNil() {
			return
		}
		writeFields(s, path, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			name := fieldName(v.Type().Field(i).Name)
			if path != "" {
				name = path + "." + name
			}
			writeFields(s, name, v.Field(i))
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			text := "nil"
			if !v.IsNil() {
				text = fmt.Sprintf("%q", v.Bytes())
			}
			fmt.Fprintf(s, "field  %s = %s\n", path, text)
			return
		}
		fmt.Fprintf(s, "field  %s.count = %d\n", path, v.Len())
		for i := range v.Len() {
			writeFields(s, fmt.Sprintf("%s[%d]", path, i), v.Index(i))
		}
	case reflect.String:
		fmt.Fprintf(s, "field  %s = %q\n", path, v.String())
	case reflect.Bool:
		fmt.Fprintf(s, "field  %s = %d\n", path, b2u(v.Bool()))
	default:
		fmt.Fprintf(s, "field  %s = %d\n", path, v.Uint())
	}
}

// fieldName is a Go name as the tables write it: minVersion, id, nodeID.
func fieldName(name string) string {
	if strings.ToUpper(name) == name {
		return strings.ToLower(name)
	}
	return string(unicode.ToLower(rune(name[0]))) + name[1:]
}

// vectorBytes reads the bytes of each vector from the text of a file: all that a client in
// another language has to do too.
func vectorBytes(t testing.TB, text string) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	name := ""
	for line := range strings.Lines(text) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "==":
			name = rest
			require.NotContains(t, found, name, "vector names are unique")
			found[name] = []byte{}
		case "hex":
			digits, _, _ := strings.Cut(rest, "#")
			b, err := hex.DecodeString(strings.Join(strings.Fields(digits), ""))
			require.NoError(t, err, line)
			found[name] = append(found[name], b...)
		}
	}
	return found
}

const vectorHead = "# Golden vectors, written by the tests of protocol. README.md says how to read them.\n"

func TestGoldenVectorsBothWays(t *testing.T) {
	names := map[string]bool{}
	for file, vectors := range goldenVectors(t) {
		t.Run(file, func(t *testing.T) {
			text := vectorHead
			for _, v := range vectors {
				require.False(t, names[v.name], v.name)
				names[v.name] = true
				text += "\n" + v.text(t, v.w.encode())
			}
			path := filepath.Join(wireDir, file)
			golden(t, path, text) // fields → bytes
			stored, err := os.ReadFile(path)
			require.NoError(t, err)
			decodeVectors(t, vectors, vectorBytes(t, string(stored)))
		})
	}
}

// decodeVectors checks that the stored bytes give the fields back.
func decodeVectors(t *testing.T, vectors []vector, stored map[string][]byte) {
	require.Len(t, stored, len(vectors))
	for _, v := range vectors {
		b := bytes.Clone(stored[v.name])
		got, err := v.w.decode(b)
		require.NoError(t, err, v.name)
		require.Equal(t, v.w, got, v.name)
		require.Equal(t, stored[v.name], b, "%s: decoding changes nothing", v.name)
	}
}

// TestEveryClassOpcodeAndMessageHasAVector fails when a row of a table is added without one.
func TestEveryClassOpcodeAndMessageHasAVector(t *testing.T) {
	classes, requests, responses := map[Magic]bool{}, map[Opcode]bool{}, map[Opcode]bool{}
	controls := map[ControlOpcode]bool{}
	for _, vectors := range goldenVectors(t) {
		for _, v := range vectors {
			switch v.w.(type) {
			case legacyHello, legacyFrame, legacyAck:
				continue
			}
			b := v.w.encode()
			h := HeaderOf(b)
			classes[h.Magic()] = true
			switch h.Magic() {
			case MagicRequest:
				requests[h.Opcode()] = true
			case MagicResponse:
				if h.Status() == OK {
					responses[h.Opcode()] = true
				}
			case MagicData:
				controls[Frame(b).Opcode()] = true
			}
		}
	}
	for _, c := range Classes {
		require.True(t, classes[c.Magic], "class %s has no vector", c.Name)
	}
	for _, o := range Opcodes {
		require.Equal(t, o.Since > 0, requests[o.Opcode], "request %s", o.Name)
		require.Equal(t, o.Since > 0, responses[o.Opcode], "response %s", o.Name)
	}
	for _, c := range Controls {
		require.Equal(t, c.Since > 0, controls[c.Opcode], "control record %s", c.Name)
	}
}

func TestVectorReadmeIsCurrent(t *testing.T) {
	golden(t, filepath.Join(wireDir, "README.md"), vectorReadme)
}

const vectorReadme = `# Wire vectors

Bytes of the protocol with what they mean, for anybody who writes a client. docs/protocol.md
explains the format; a client that encodes and decodes every vector here speaks it.

## Files

| file | holds |
|---|---|
| session.txt | HELLO, OPEN, CLOSE, PING and PONG, GOAWAY, a refusal, STATS, a frame to skip |
| topics.txt | TOPIC_CREATE, TOPIC_ALTER, TOPIC_DELETE, TOPIC_LIST, TOPIC_DESCRIBE |
| stream.txt | OFFSETS, SUBSCRIBE, UNSUBSCRIBE, CREDIT, DELIVER |
| produce.txt | PRODUCE runs and their ACKs |
| data.txt | DATA frames: every layout, every prelude field, stamped and not, control records |
| legacy.txt | handshakes, frames and answers of the legacy protocol |
| reject-*.txt | bytes that must be refused, each with the code of the refusal |

## Reading them

Lines are UTF-8 text. Empty lines and lines that begin with # say nothing. Others begin with
one of these words:

    == NAME            begins a vector; names are unique over all files
    about TEXT         what it shows
    kind NAME          request, response, produce, ack, deliver, credit, goAway, ping, skipped,
                       data, legacyHello, legacyFrame, legacyAck
    field PATH = VALUE a field before encoding and after decoding: numbers in decimal, texts and
                       bytes in double quotes with the escapes of Go, nil for "there is none"
    hex BYTES # TEXT   the next bytes in hexadecimal; what follows # is for people: position,
                       field, value

In reject-*.txt, decoder and code stand in place of kind and fields:

    decoder header     the reader of frames, with default bounds
    decoder stored     the check of a frame in a log
    decoder frame      the check of a producer's frame, max_message_bytes 1 MiB
    decoder run        the check of a whole PRODUCE run, max_message_bytes 1 MiB
    decoder legacyHello, legacyFrame (max_message_bytes 1 MiB)
    decoder MESSAGE    the decoder of that payload: Hello, OpenReply, …
    code NAME          the error code that the decoder answers with

## Making them

The tests of protocol write these files from Go values and compare them ever after:

    go test ./protocol -run 'Vector' -update

They must stay as they are for as long as version 1 is spoken: add vectors, never change one.
`
