package record

import (
	"encoding/base64"
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/protocol"
)

func headersOf(t *testing.T, pairs ...string) protocol.Headers {
	var h protocol.Headers
	for i := 0; i < len(pairs); i += 2 {
		var err error
		h, err = h.Append(pairs[i], []byte(pairs[i+1]))
		require.NoError(t, err)
	}
	return h
}

// stamp is 2026-11-30T10:00:00.5Z.
const stamp = 1796032800_500000000

func TestFormatLetters(t *testing.T) {
	r := &Placed{"orders", 3, &protocol.Record{Offset: 41, Timestamp: stamp, Key: []byte("k1"), Value: []byte("a\"b\n"), Headers: headersOf(t, "x", "1", "y", "")}}
	for format, want := range map[string]string{
		"":                            "",
		"plain":                       "plain",
		`%t/%p@%o`:                    "orders/3@41",
		`%k=%s|%v\n`:                  "k1=a\"b\n|a\"b\n\n",
		`%K %S`:                       "2 4",
		`%d`:                          "2026-11-30T10:00:00.5Z",
		`%d{rfc3339}`:                 "2026-11-30T10:00:00.5Z",
		`%d{unix}.%d{ns}`:             "1796032800.1796032800500000000",
		`%k{hex} %s{base64} %v{json}`: `6b31 YSJiCg== "a\"b\n"`,
		`%h`:                          "x=1,y=",
		`%h{json}`:                    `[{"name":"x","value":"1"},{"name":"y","value":""}]`,
		`%h{hex}`:                     "x=31,y=",
		`100%%\t\\\x41\0\r`:           "100%\t\\A\x00\r",
		`{%o}`:                        "{41}",
	} {
		f, err := ParseFormat(format)
		require.NoError(t, err, format)
		require.Equal(t, want, string(f.Append(nil, r)), format)
	}
}

func TestFormatOfWhatIsNotThere(t *testing.T) {
	f, err := ParseFormat(`[%k][%s][%K][%S][%k{json}][%s{hex}][%h]`)
	require.NoError(t, err)
	require.Equal(t, "[][][-1][-1][null][][]", string(f.Append(nil, &Placed{"t", 0, &protocol.Record{}})))
}

func TestFormatErrorsSayWhatThereIs(t *testing.T) {
	for format, want := range map[string]string{
		`%`:         "write %% for a percent sign",
		`a\`:        `ends in \`,
		`\q`:        `\n \t`,
		`\xZZ`:      "no escape",
		`\x4`:       "no escape",
		`%y`:        "%t topic",
		`%k{hexx}`:  "did you mean hex?",
		`%k{}`:      "takes {hex}",
		`%k{hex`:    "has no }",
		`%t{hex}`:   "%t takes nothing in braces",
		`%d{human}`: "{rfc3339}, {unix}, {ns}",
	} {
		_, err := ParseFormat(format)
		require.ErrorContains(t, err, want, format)
	}
}

func TestScreenNeverGetsControlCharactersOfAMessage(t *testing.T) {
	for value, want := range map[string]string{
		"plain":                   "plain",
		"two\nlines\tand a tab":   "two\nlines\tand a tab",
		"\x1b[2Jclear":            `\u001b[2Jclear`,
		"grüße":                   "grüße",
		"\xff\xfe\x00\x01":        "0xfffe0001",
		"mostly text, but \xff":   `mostly text, but \xff`,
		"bell\x07 and back\x08\r": `bell\u0007 and back\u0008\u000d`,
		"":                        "",
	} {
		f := Format{Safe: true}
		require.Equal(t, want, string(f.appendBytes(nil, []byte(value), "")))
		f.Safe = false
		require.Equal(t, value, string(f.appendBytes(nil, []byte(value), "")))
	}
}

func TestRecordAsJSON(t *testing.T) {
	r := &protocol.Record{Offset: 7, Timestamp: stamp, Key: []byte("k"), Value: []byte("v<&>"), Headers: headersOf(t, "h", "\xff")}
	require.Equal(t, `{"topic":"t","partition":2,"offset":7,"timestamp":"2026-11-30T10:00:00.5Z","key":"k","value":"v<&>",`+
		`"headers":[{"name":"h","value_base64":"/w=="}]}`+"\n", string(AppendJSON(nil, "t", 2, r)))
	r = &protocol.Record{Key: []byte{0xff}, Value: []byte{}}
	require.Equal(t, `{"topic":"t","partition":0,"offset":0,"timestamp":"1970-01-01T00:00:00Z","key_base64":"/w==","value":"","headers":[]}`+"\n",
		string(AppendJSON(nil, "t", 0, r)))
	r = &protocol.Record{Timestamp: 1 << 63}
	require.Contains(t, string(AppendJSON(nil, "t", 0, r)), `"timestamp":"9223372036854775808","key":null,"value":null,"headers":[]`)
}

func TestJSONOfARecordTakesNoMemory(t *testing.T) {
	r := &protocol.Record{Offset: 7, Timestamp: stamp, Key: []byte("k"), Value: []byte("value \" with escapes\n")}
	buf := make([]byte, 0, 512)
	f, err := ParseFormat(`%t/%p@%o %k=%s\n`)
	require.NoError(t, err)
	placed := &Placed{"t", 0, r}
	// The time of a record is formatted by package time, which allocates its text.
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { buf = AppendJSON(buf[:0], "t", 0, r) }), 2.0)
	require.Zero(t, testing.AllocsPerRun(100, func() { buf = f.Append(buf[:0], placed) }))
}

// FuzzRecordJSON: whatever bytes a message has, its line is JSON that gives them back.
func FuzzRecordJSON(f *testing.F) {
	f.Add([]byte("key"), []byte("value"))
	f.Add([]byte("\x00\x1f\"\\\u2028"), []byte("\xff\xfe"))
	f.Add([]byte(nil), []byte("\xed\xa0\x80"))
	f.Fuzz(func(t *testing.T, key, value []byte) {
		line := AppendJSON(nil, "t", 0, &protocol.Record{Key: key, Value: value})
		var got struct {
			Key         *string `json:"key"`
			KeyBase64   *string `json:"key_base64"`
			Value       *string `json:"value"`
			ValueBase64 *string `json:"value_base64"`
		}
		require.NoError(t, json.Unmarshal(line, &got), "%s", line)
		for _, field := range []struct {
			want       []byte
			text, base *string
		}{{key, got.Key, got.KeyBase64}, {value, got.Value, got.ValueBase64}} {
			switch {
			case field.want == nil:
				require.Nil(t, field.text)
			case utf8.Valid(field.want):
				require.Equal(t, string(field.want), *field.text)
			default:
				decoded, err := base64.StdEncoding.DecodeString(*field.base)
				require.NoError(t, err)
				require.Equal(t, field.want, decoded)
			}
		}
		require.True(t, utf8.Valid(appendSafe(nil, value)))
		require.NotContains(t, string(appendSafe(nil, value)), "\x1b")
	})
}
