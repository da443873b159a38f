package record

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millrace-mq/millrace/cmd/millrace/cli"
	"github.com/millrace-mq/millrace/protocol"
)

// Format is a compiled -f text: what it appends for a record.
type Format struct {
	// Safe is for a screen: bytes that are no text, and control characters, are
	// shown escaped, so that no message can command the terminal.
	Safe bool

	pieces []formatPiece
}

// formatPiece appends one part of a format.
type formatPiece func(dst []byte, f *Format, p *Placed) []byte

// Placed is a record and where it comes from.
type Placed struct {
	Topic     string
	Partition uint32
	*protocol.Record
}

// FormatHelp lists the letters of a format for help.
const FormatHelp = `%t topic, %p partition, %o offset, %k key, %s or %v value, %K and %S their lengths in bytes (-1 = none), ` +
	`%h headers as name=value,…, %d time of the append, %% a percent sign; \n \t \r \0 \\ and \xHH. ` +
	`%k, %s, %v and %h take {hex}, {base64} or {json}; %d takes {rfc3339} (the default), {unix} or {ns}`

// ParseFormat compiles a format, whose letters FormatHelp explains.
//
// Errors: an unknown letter, modifier or escape, with what there is instead.
func ParseFormat(text string) (*Format, error) {
	f := &Format{}
	literal := []byte(nil)
	flush := func() {
		if len(literal) > 0 {
			fixed := literal
			f.pieces = append(f.pieces, func(dst []byte, _ *Format, _ *Placed) []byte { return append(dst, fixed...) })
			literal = nil
		}
	}
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '\\':
			b, n, err := unescape(text[i:])
			if err != nil {
				return nil, err
			}
			literal = append(literal, b)
			i += n
		case c == '%' && strings.HasPrefix(text[i:], "%%"):
			literal = append(literal, '%')
			i += 2
		case c == '%':
			piece, n, err := parseVerb(text[i:])
			if err != nil {
				return nil, err
			}
			flush()
			f.pieces = append(f.pieces, piece)
			i += n
		default:
			literal = append(literal, c)
			i++
		}
	}
	flush()
	return f, nil
}

// Append appends what the format makes of a record.
func (f *Format) Append(dst []byte, p *Placed) []byte {
	for _, piece := range f.pieces {
		dst = piece(dst, f, p)
	}
	return dst
}

// unescape reads the escape at the start of text and returns its byte and length.
func unescape(text string) (b byte, n int, err error) {
	if len(text) < 2 {
		return 0, 0, fmt.Errorf(`format ends in \`)
	}
	switch text[1] {
	case 'n':
		return '\n', 2, nil
	case 't':
		return '\t', 2, nil
	case 'r':
		return '\r', 2, nil
	case '0':
		return 0, 2, nil
	case '\\':
		return '\\', 2, nil
	case 'x':
		if len(text) >= 4 {
			if v, err := strconv.ParseUint(text[2:4], 16, 8); err == nil {
				return byte(v), 4, nil
			}
		}
	}
	return 0, 0, fmt.Errorf(`format: %q is no escape; there are \n \t \r \0 \\ \xHH`, text[:2])
}

// verbs of a format, by letter: the modifiers they take, the first being the default.
var formatVerbs = map[byte][]string{
	't': {""}, 'p': {""}, 'o': {""}, 'K': {""}, 'S': {""},
	'k': {"", "hex", "base64", "json"}, 's': {"", "hex", "base64", "json"}, 'v': {"", "hex", "base64", "json"},
	'h': {"", "hex", "base64", "json"}, 'd': {"rfc3339", "unix", "ns"},
}

// parseVerb reads %x or %x{modifier} at the start of text.
func parseVerb(text string) (piece formatPiece, n int, err error) {
	if len(text) < 2 {
		return nil, 0, fmt.Errorf("format ends in %%; write %%%% for a percent sign")
	}
	modifiers, ok := formatVerbs[text[1]]
	if !ok {
		return nil, 0, fmt.Errorf("format: unknown %q; there are %s", text[:2], FormatHelp)
	}
	modifier, n := modifiers[0], 2
	if strings.HasPrefix(text[2:], "{") {
		end := strings.IndexByte(text, '}')
		if end < 0 {
			return nil, 0, fmt.Errorf("format: %q has no }", text)
		}
		modifier, n = text[3:end], end+1
		if modifier == "" || !slices.Contains(modifiers, modifier) {
			named := slices.DeleteFunc(slices.Clone(modifiers), func(m string) bool { return m == "" })
			if len(named) == 0 {
				return nil, 0, fmt.Errorf("format: %s takes nothing in braces", text[:2])
			}
			return nil, 0, fmt.Errorf("format: %s takes {%s}, not {%s}%s", text[:2], strings.Join(named, "}, {"), modifier, cli.Suggestion(modifier, named, ""))
		}
	}
	return verbPiece(text[1], modifier), n, nil
}

func verbPiece(letter byte, modifier string) formatPiece {
	switch letter {
	case 't':
		return func(dst []byte, _ *Format, p *Placed) []byte { return append(dst, p.Topic...) }
	case 'p':
		return func(dst []byte, _ *Format, p *Placed) []byte {
			return strconv.AppendUint(dst, uint64(p.Partition), 10)
		}
	case 'o':
		return func(dst []byte, _ *Format, p *Placed) []byte {
			return strconv.AppendUint(dst, p.Offset, 10)
		}
	case 'K':
		return func(dst []byte, _ *Format, p *Placed) []byte { return appendLength(dst, p.Key) }
	case 'S':
		return func(dst []byte, _ *Format, p *Placed) []byte { return appendLength(dst, p.Value) }
	case 'k':
		return func(dst []byte, f *Format, p *Placed) []byte { return f.appendBytes(dst, p.Key, modifier) }
	case 's', 'v':
		return func(dst []byte, f *Format, p *Placed) []byte {
			return f.appendBytes(dst, p.Value, modifier)
		}
	case 'h':
		return func(dst []byte, f *Format, p *Placed) []byte {
			return f.appendHeaders(dst, p.Headers, modifier)
		}
	case 'd':
		return func(dst []byte, _ *Format, p *Placed) []byte { return appendTime(dst, p.Record, modifier) }
	}
	panic("record: format verb without a piece: " + string(letter))
}

func appendLength(dst, b []byte) []byte {
	if b == nil {
		return append(dst, "-1"...)
	}
	return strconv.AppendInt(dst, int64(len(b)), 10)
}

func appendTime(dst []byte, r *protocol.Record, modifier string) []byte {
	switch modifier {
	case "unix":
		return strconv.AppendUint(dst, r.Timestamp/uint64(time.Second), 10)
	case "ns":
		return strconv.AppendUint(dst, r.Timestamp, 10)
	}
	return append(dst, RFC3339(r.Timestamp)...)
}

func (f *Format) appendHeaders(dst []byte, headers protocol.Headers, modifier string) []byte {
	if modifier == "json" {
		return AppendHeadersJSON(dst, headers)
	}
	first := true
	for name, value, rest, ok := headers.Next(); ok; name, value, rest, ok = rest.Next() {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = f.appendBytes(dst, name, "")
		dst = f.appendBytes(append(dst, '='), value, modifier)
	}
	return dst
}

func (f *Format) appendBytes(dst, b []byte, modifier string) []byte {
	switch modifier {
	case "hex":
		return hex.AppendEncode(dst, b)
	case "base64":
		return base64.StdEncoding.AppendEncode(dst, b)
	case "json":
		if b == nil {
			return append(dst, "null"...)
		}
		return AppendJSONString(dst, b)
	}
	if f.Safe {
		return appendSafe(dst, b)
	}
	return append(dst, b...)
}

// appendSafe writes bytes for a screen: text as it is, other bytes and control
// characters escaped, so that no message can command the terminal. Line ends
// and tabs stay; what is no text at all stands in hex.
func appendSafe(dst, b []byte) []byte {
	if !utf8.Valid(b) && !mostlyText(b) {
		dst = append(dst, "0x"...)
		return hex.AppendEncode(dst, b)
	}
	for len(b) > 0 {
		i := slices.IndexFunc(b, func(c byte) bool { return c == '\n' || c == '\t' })
		if i < 0 {
			i = len(b)
		}
		dst = append(dst, cli.Printable(string(b[:i]))...)
		if i < len(b) {
			dst = append(dst, b[i])
			i++
		}
		b = b[i:]
	}
	return dst
}

// mostlyText tells whether bytes that are no UTF-8 are easier to read as text
// with escapes than in hex.
func mostlyText(b []byte) bool {
	text := 0
	for _, c := range b {
		if c >= 0x20 && c < 0x7F {
			text++
		}
	}
	return text*4 >= len(b)*3
}
