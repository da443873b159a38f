package protocol

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLayoutsAreTheOnesDrawnAboveTheCodecs compares the table with the doc comments: the
// drawing that a reader of the code sees is the one that the documents print.
func TestLayoutsAreTheOnesDrawnAboveTheCodecs(t *testing.T) {
	var comments strings.Builder
	for _, f := range sources(t) {
		for _, c := range f.Comments {
			comments.WriteString(" \n " + strings.Join(strings.Fields(strings.ReplaceAll(c.Text(), "\n", " ")), " "))
		}
	}
	for _, m := range Messages {
		layout := m.Layout()
		require.Contains(t, comments.String(), " "+layout, "%s is drawn otherwise", m.Name)
	}
}

func TestMessageTableIsComplete(t *testing.T) {
	names := map[string]bool{}
	for i, m := range Messages {
		require.False(t, names[m.Name], m.Name)
		names[m.Name] = true
		require.NotEmpty(t, m.Text, m.Name)
		require.NotEmpty(t, m.Fields, m.Name)
		require.Same(t, &Messages[i], MessageByName(strings.ToLower(m.Name)))
		requireFields(t, m.Name, m.Fields)
	}
	require.Nil(t, MessageByName("Nothing"))
	for _, o := range Opcodes { // what the opcode table names is in the message table
		for _, text := range []string{o.Args, o.Result} {
			for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return strings.ContainsRune(" ,;", r) }) {
				if strings.ToUpper(word[:1]) == word[:1] && strings.ToUpper(word) != word {
					require.True(t, names[word], "%s names %s, which is no message", o.Name, word)
				}
			}
		}
	}
	require.Equal(t, "Subscribe", OpSubscribe.ArgsOf().Name)
	require.Equal(t, "SubscribeReply", OpSubscribe.ResultOf().Name)
	require.Nil(t, OpClose.ArgsOf())
	require.Nil(t, Opcode(0xFFFF).ArgsOf())
	require.Nil(t, Opcode(0xFFFF).ResultOf())
}

func requireFields(t *testing.T, name string, fields []MessageField) {
	for _, f := range fields {
		switch f.Type {
		case "u8", "u16", "u32", "u64":
			requireSet(t, name+"."+f.Name, f.Means)
		case "str":
		case "list":
			require.NotEmpty(t, f.Items)
			requireFields(t, name+"."+f.Name, f.Items)
		default:
			require.NotNil(t, MessageByName(f.Type), "%s.%s", name, f.Name)
		}
	}
}

// requireSet checks that a field's set of values exists.
func requireSet(t *testing.T, field, set string) {
	switch set {
	case "", "time", "opcode", "code", "control", "magic", "setting", "check", "keyLen", "valueLen", "lag", "stop":
		return
	}
	for _, v := range Values {
		if v.Set == set {
			return
		}
	}
	require.Fail(t, "no such set of values", "%s: %q", field, set)
}

func TestDataFieldTablesAgreeWithTheCodec(t *testing.T) {
	every := Prelude{Layout: 0x0A, Codec: 0x0B, Flags: flagsKnown, Opcode: 0x0C0D, ProducerID: 1, ProducerEpoch: 2, FirstSequence: 3, DeliverAt: 4, ExpireAt: 5, Lane: 6}
	for flags := range flagsKnown + 1 {
		every.Flags = flags
		size := 0
		for _, f := range PreludeFields {
			if f.Flag&flags == f.Flag {
				size += f.Size
			}
		}
		require.Equal(t, size, preludeSize(flags))
		require.Len(t, every.AppendTo(nil), size)
	}
	sum := func(fields []DataField) (n int) {
		for _, f := range fields {
			n += f.Size
			requireSet(t, f.Name, f.Means)
		}
		return n
	}
	require.Equal(t, TailSize, sum(TailFields))
	require.Equal(t, recordPrefix, sum(RecordFields))
	require.Equal(t, preludeSize(flagsKnown), sum(PreludeFields))
	require.Equal(t, reflect.TypeFor[Stamp]().NumField()-2+1, len(TailFields), "the tail is the stamp without timestamp and offset, and the check")
}

func TestValuesAreUniqueInTheirSets(t *testing.T) {
	numbers, names := map[[2]any]bool{}, map[[2]any]bool{}
	count := map[string]int{}
	for _, v := range Values {
		require.False(t, numbers[[2]any{v.Set, v.Value}], "%s %d", v.Set, v.Value)
		require.False(t, names[[2]any{v.Set, v.Name}], "%s %s", v.Set, v.Name)
		numbers[[2]any{v.Set, v.Value}], names[[2]any{v.Set, v.Name}] = true, true
		count[v.Set]++
		if v.Bit {
			require.Zero(t, v.Value&(v.Value-1), "%s %s is one bit", v.Set, v.Name)
		}
	}
	for set, typ := range map[string]string{"level": "Level", "position kind": "PositionKind", "partition state": "PartitionState", "layout": "Layout", "deliver flags": "DeliverFlags"} {
		require.Equal(t, constants(t, typ), count[set], "each constant of %s has a row", typ)
	}
	for _, v := range Values {
		switch v.Set {
		case "level":
			require.Equal(t, Level(v.Value).String(), v.Name)
		case "partition state":
			require.Equal(t, PartitionState(v.Value).String(), v.Name)
		}
	}
}

func TestValueText(t *testing.T) {
	for _, c := range []struct {
		set  string
		v    uint64
		want string
	}{
		{"", 7, "7"}, {"level", 2, "durable (2)"}, {"level", 9, "unknown (9)"}, {"opcode", 3, "OPEN (0x03)"}, {"opcode", 0x999, "OPCODE_2457 (0x999)"},
		{"code", 7, "UNKNOWN_TOPIC (7)"}, {"control", 1, "NOOP (1)"}, {"magic", 1, "DATA (0x01)"}, {"magic", 2, "unknown (0x02)"},
		{"setting", 2, "retention (2)"}, {"setting", 99, "unknown (99)"}, {"layout", 0x51, "opaque (1), codec 5"}, {"check", 255, "00000000000000ff"},
		{"prelude flags", 0, "none (0)"}, {"prelude flags", 0x89, "producer + lane + unknown (0x89)"}, {"bool", 1, "true (1)"},
		{"keyLen", 65535, "no key (65535)"}, {"keyLen", 5, "5"}, {"valueLen", 0xFFFFFFFF, "tombstone (4294967295)"}, {"lag", LagUnknown, "further back (4294967295)"},
		{"stop", NoStop, "never (18446744073709551615)"}, {"time", 0, "0"}, {"time", 1 << 63, "9223372036854775808"},
		{"time", at, "1796032800000000000 = 2026-11-30T10:00:00Z"},
	} {
		require.Equal(t, c.want, ValueText(c.set, c.v))
	}
}
