package protocol

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// deepSize is how much memory a decoded value holds, in bytes: what its slices have room for
// and its texts.
func deepSize(v reflect.Value) int {
	switch v.Kind() {
	case reflect.Pointer:
		return int(v.Elem().Type().Size()) + deepSize(v.Elem())
	case reflect.String:
		return v.Len()
	case reflect.Slice:
		n := v.Cap() * int(v.Type().Elem().Size())
		for i := range v.Len() {
			n += deepSize(v.Index(i))
		}
		return n
	case reflect.Struct:
		n := 0
		for i := range v.NumField() {
			n += deepSize(v.Field(i))
		}
		return n
	}
	return 0
}

// fuzzMessage holds a decoder to its promises: memory in proportion to the bytes whatever they
// claim, refusals with BAD_REQUEST, and what is accepted survives encoding and is what the
// table of layouts says.
func fuzzMessage(f *testing.F, name string) {
	sample := samples()[name].AppendTo(nil)
	f.Add(sample)
	f.Add(sample[:len(sample)/2])
	f.Add(append(bytes.Clone(sample), sample...))
	f.Add(bytes.Repeat([]byte{0xFF}, 64))
	for _, r := range messageRejects(f) {
		if r.decoder == name {
			f.Add(r.b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, again, given := messages()[name], messages()[name], bytes.Clone(b)
		err := m.Decode(b)
		require.LessOrEqual(t, deepSize(reflect.ValueOf(m)), 8*len(b)+512)
		if err != nil {
			require.ErrorIs(t, err, BadRequest)
			return
		}
		requireExplained(t, name, b)
		require.Equal(t, given, b)
		encoded := m.AppendTo(nil)
		require.Len(t, encoded, len(b))
		clear(b) // a message is a copy
		require.NoError(t, again.Decode(encoded))
		require.Equal(t, m, again)
	})
}

// requireExplained checks that the table of layouts reads an accepted payload to its end.
func requireExplained(t *testing.T, name string, b []byte) {
	e := explainer{b: b, exact: true, yield: func(p Part) bool {
		require.False(t, p.Wrong, "%s %s", p.Name, p.Value)
		return true
	}}
	e.message(MessageByName(name).Fields, "")
	e.rest()
	require.Equal(t, len(b), e.pos)
}

func FuzzHello(f *testing.F)          { fuzzMessage(f, "Hello") }
func FuzzHelloReply(f *testing.F)     { fuzzMessage(f, "HelloReply") }
func FuzzOpen(f *testing.F)           { fuzzMessage(f, "Open") }
func FuzzOpenReply(f *testing.F)      { fuzzMessage(f, "OpenReply") }
func FuzzSettings(f *testing.F)       { fuzzMessage(f, "Settings") }
func FuzzTopicInfo(f *testing.F)      { fuzzMessage(f, "TopicInfo") }
func FuzzTopicList(f *testing.F)      { fuzzMessage(f, "TopicList") }
func FuzzTopicListReply(f *testing.F) { fuzzMessage(f, "TopicListReply") }
func FuzzOffsets(f *testing.F)        { fuzzMessage(f, "Offsets") }
func FuzzOffsetsReply(f *testing.F)   { fuzzMessage(f, "OffsetsReply") }
func FuzzSubscribe(f *testing.F)      { fuzzMessage(f, "Subscribe") }
func FuzzSubscribeReply(f *testing.F) { fuzzMessage(f, "SubscribeReply") }
func FuzzUnsubscribe(f *testing.F)    { fuzzMessage(f, "Unsubscribe") }
func FuzzStats(f *testing.F)          { fuzzMessage(f, "Stats") }

func FuzzError(f *testing.F) {
	f.Add(uint16(Denied), (&Error{Denied, "detail", 1, 2, "setting", 3, 4, 5, "hint"}).AppendTo(nil))
	f.Add(uint16(0), bytes.Repeat([]byte{0xFF}, 64))
	f.Add(uint16(math.MaxUint16), slicesOf(0, 2, 'h', 'i'))
	f.Fuzz(func(t *testing.T, code uint16, b []byte) {
		var e, again Error
		if err := e.Decode(Code(code), b); err != nil {
			require.ErrorIs(t, err, BadRequest)
			return
		}
		require.NotEmpty(t, e.Error())
		requireExplained(t, "Error", b)
		encoded := e.AppendTo(nil)
		require.LessOrEqual(t, len(encoded), MaxFrameUnauthenticated-HeaderSize)
		require.NoError(t, again.Decode(Code(code), encoded))
		e.Detail, e.Setting, e.Hint = clip(e.Detail), clip(e.Setting), clip(e.Hint)
		require.Equal(t, e, again)
	})
}

func slicesOf(b ...byte) []byte { return b }

func FuzzGroupOffsets(f *testing.F) {
	f.Add(AppendGroupOffsets(nil, []GroupOffset{{"billing", 4999, 0}, {"", math.MaxUint64, 7}}))
	f.Add(AppendGroupOffsets(nil, nil))
	f.Add(bytes.Repeat([]byte{0xFF}, 64))
	f.Fuzz(func(t *testing.T, b []byte) {
		var list []GroupOffset
		err := DecodeGroupOffsets(b, func(g GroupOffset) { list = append(list, g) })
		if err != nil {
			require.ErrorIs(t, err, BadRequest)
			require.Empty(t, list, "nothing of a malformed record is used")
			return
		}
		require.Equal(t, b, AppendGroupOffsets([]byte{}, list))
		requireExplained(t, "GroupOffsets", b)
	})
}

func FuzzLegacyHello(f *testing.F) {
	for _, v := range legacyVectors() {
		if hello, ok := v.w.(legacyHello); ok {
			f.Add(hello.encode())
		}
	}
	f.Add(append([]byte{3, 255}, strings.Repeat("x", 600)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, n, err := ParseLegacyHello(b)
		if err != nil {
			require.ErrorIs(t, err, BadFrame)
			return
		}
		if n == 0 {
			require.Less(t, len(b), 525, "the longest handshake is known to be whole")
			return
		}
		require.Equal(t, b[:n], h.AppendTo(nil))
		for p := range ExplainLegacyHello(b) {
			require.False(t, p.Wrong, p.Value)
		}
	})
}

func FuzzPosition(f *testing.F) {
	for _, s := range []string{"start", "end", "45678", "-100", "-15m", "-1d12h", "@2026-11-30T10:00Z", "@2026-11-30", "@1ns", "@", "-", "18446744073709551616"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePosition(s, noon)
		if err != nil {
			require.ErrorIs(t, err, BadRequest)
			return
		}
		again, err := ParsePosition(p.String(), noon)
		require.NoError(t, err, p.String())
		require.Equal(t, p, again)
		m := Subscribe{From: p}
		require.NoError(t, m.Decode(m.AppendTo(nil)), "what the grammar gives the wire takes")
		require.Equal(t, p, m.From)
	})
}

func FuzzDuration(f *testing.F) {
	for _, s := range []string{"250ms", "7d", "1d12h", "100000d", "100000d2562047h", "-1s", "9999999999h", "d"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseDuration(s)
		if err == nil {
			require.GreaterOrEqual(t, d, d*0)
			require.Equal(t, d, max(d, 0), "%q", s)
		}
	})
}

func FuzzTopicName(f *testing.F) {
	for _, s := range []string{"orders", "..", "a/b", "\x00", "_x", strings.Repeat("a", 201)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		err := ValidTopic(s)
		if errors.Is(err, BadName) {
			require.Error(t, ValidClientTopic(s))
			return
		}
		require.NoError(t, err)
		require.NotContains(t, s, "/")
		require.NotContains(t, s, "\\")
		require.NotContains(t, s, "\x00")
		require.NotContains(t, []string{"", ".", ".."}, s)
		require.LessOrEqual(t, len(s), MaxName)
	})
}
