package protocol

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// sources parses the package's files without its tests.
func sources(t testing.TB) []*ast.File {
	t.Helper()
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	var files []*ast.File
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
			require.NoError(t, err)
			files = append(files, f)
		}
	}
	return files
}

// constants counts the constants that the package declares of a type.
func constants(t testing.TB, typ string) (n int) {
	t.Helper()
	for _, f := range sources(t) {
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			of := ""
			for _, s := range g.Specs {
				v := s.(*ast.ValueSpec)
				if id, ok := v.Type.(*ast.Ident); ok {
					of = id.Name
				} else if len(v.Values) > 0 {
					of = ""
				}
				if of == typ {
					n += len(v.Names)
				}
			}
		}
	}
	return n
}

func TestClassFieldsCoverTheHeaderWithoutGapOrOverlap(t *testing.T) {
	magics, names := map[Magic]bool{}, map[string]bool{}
	for i := range Classes {
		c := &Classes[i]
		require.False(t, magics[c.Magic] || names[c.Name], c.Name)
		magics[c.Magic], names[c.Name] = true, true
		require.Equal(t, Magic(1), c.Magic&0x0F, "the low nibble is the version")
		require.NotEmpty(t, c.Body)
		pos := 0
		fieldNames := map[string]bool{}
		for _, f := range c.Fields {
			require.Equal(t, pos, f.Pos, "%s.%s", c.Name, f.Name)
			require.Positive(t, f.Size)
			require.NotEmpty(t, f.Text, "%s.%s", c.Name, f.Name)
			require.False(t, fieldNames[f.Name], "%s.%s", c.Name, f.Name)
			fieldNames[f.Name] = true
			pos += f.Size
		}
		require.Equal(t, HeaderSize, pos, c.Name)
		require.Same(t, c, c.Magic.Spec())
		require.Equal(t, c.Name, c.Magic.String())
	}
	require.Equal(t, constants(t, "Magic"), len(Classes))
	require.Nil(t, Magic(0).Spec())
	require.Equal(t, "magic 0x00", Magic(0).String())
}

// TestAccessorsReadTheBytesThatTheTableNames writes a different byte at each place of a header
// and compares what the accessors see with what the table's fields say.
func TestAccessorsReadTheBytesThatTheTableNames(t *testing.T) {
	var h Header
	for i := range h {
		h[i] = byte(0x10 + i)
	}
	accessors := map[string]uint64{
		"DATA.timestamp": h.Timestamp(), "DATA.offset": h.Offset(), "DATA.recordCount": uint64(h.RecordCount()),
		"REQUEST.opcode": uint64(h.Opcode()), "REQUEST.flags": uint64(h.Flags()), "REQUEST.timeoutMillis": uint64(h.TimeoutMillis()),
		"REQUEST.correlation": h.Correlation(), "REQUEST.handle": uint64(h.RequestHandle()),
		"RESPONSE.opcode": uint64(h.Opcode()), "RESPONSE.status": uint64(h.Status()), "RESPONSE.throttleMillis": uint64(h.ThrottleMillis()),
		"RESPONSE.correlation": h.Correlation(), "RESPONSE.items": uint64(h.RecordCount()),
		"PRODUCE.acks": uint64(h.Level()), "PRODUCE.flags": uint64(h.RunFlags()), "PRODUCE.handle": uint64(h.Handle()),
		"PRODUCE.sequence": h.Offset(), "PRODUCE.runBytes": uint64(h.RunBytes()),
		"ACK.level": uint64(h.Level()), "ACK.status": uint64(h.AckStatus()), "ACK.handle": uint64(h.Handle()), "ACK.offset": h.Offset(),
		"ACK.records":          uint64(h.RecordCount()),
		"DELIVER.subscription": uint64(h.Subscription()), "DELIVER.flags": uint64(h.DeliverFlags()), "DELIVER.epoch": uint64(h.Epoch()),
		"DELIVER.watermark": h.Offset(), "DELIVER.runBytes": uint64(h.RunBytes()),
		"CREDIT.subscription": uint64(h.Subscription()), "CREDIT.flags": uint64(h.CreditFlags()), "CREDIT.offset": h.Offset(), "CREDIT.credit": uint64(h.RecordCount()),
		"GOAWAY.status": uint64(h.GoAwayStatus()), "GOAWAY.drainMillis": uint64(h.DrainMillis()), "GOAWAY.last": h.Offset(),
		"PING.clock": h.Timestamp(), "PING.correlation": h.Correlation(), "PONG.clock": h.Timestamp(), "PONG.correlation": h.Correlation(),
		"PEER.runBytes": uint64(h.RunBytes()),
	}
	unread := map[string]bool{"ACK.flags": true, "GOAWAY.reserved": true, "GOAWAY.reserved2": true, "PING.reserved": true, "PONG.reserved": true, "PEER.reserved": true}
	seen := 0
	for _, c := range Classes {
		for _, f := range c.Fields {
			name := c.Name + "." + f.Name
			var want uint64
			for _, b := range h[f.Pos : f.Pos+f.Size] {
				want = want<<8 | uint64(b)
			}
			switch f.Name {
			case "magic":
				require.Equal(t, want, uint64(h.Magic()))
				continue
			case "keySize":
				require.Equal(t, want, uint64(h.KeySize()))
				continue
			case "payloadSize":
				require.Equal(t, want, uint64(h.PayloadSize()))
				continue
			}
			got, ok := accessors[name]
			require.True(t, ok || unread[name], "%s has no accessor in this test", name)
			if ok {
				require.Equal(t, want, got, name)
				seen++
			}
		}
	}
	require.Equal(t, len(accessors), seen, "an accessor of this test is of no field")
}

func TestOpcodeNumbersAndNamesAreUnique(t *testing.T) {
	numbers, names := map[Opcode]bool{}, map[string]bool{}
	for i, o := range Opcodes {
		require.False(t, numbers[o.Opcode] || names[o.Name], o.Name)
		numbers[o.Opcode], names[o.Name] = true, true
		require.NotZero(t, o.Opcode)
		require.LessOrEqual(t, o.Since, uint8(Version))
		if o.Since > 0 {
			require.NotEmpty(t, o.Args+o.Result, "%s says what it carries", o.Name)
		} else {
			require.Empty(t, o.Args+o.Result, "%s is not served", o.Name)
		}
		require.NotContains(t, o.Right.String(), "(", o.Name)
		require.Same(t, &Opcodes[i], o.Opcode.Spec())
		require.Equal(t, o.Name, o.Opcode.String())
		if o.Right == RightNone {
			require.Contains(t, []Opcode{OpHello, OpAuth}, o.Opcode, "a stranger may say no more than this")
		}
	}
	require.Equal(t, constants(t, "Opcode"), len(Opcodes))
	require.Nil(t, Opcode(0).Spec())
	require.Equal(t, "OPCODE_65535", Opcode(0xFFFF).String())
	require.Equal(t, "right(99)", Right(99).String())
}

func TestControlRecordNumbersAndNamesAreUnique(t *testing.T) {
	names := map[string]bool{}
	for i, c := range Controls {
		require.Equal(t, ControlOpcode(i), c.Opcode)
		require.False(t, names[c.Name])
		names[c.Name] = true
		require.NotEmpty(t, c.Text)
		require.Equal(t, c.Name, c.Opcode.String())
	}
	require.Equal(t, constants(t, "ControlOpcode"), len(Controls))
	require.Equal(t, "CONTROL_99", ControlOpcode(99).String())
}

func TestLevelsReadBack(t *testing.T) {
	for _, l := range []Level{LevelNone, LevelWritten, LevelDurable, LevelQuorum, LevelTopic} {
		got, ok := ParseLevel(l.String())
		require.True(t, ok)
		require.Equal(t, l, got)
	}
	_, ok := ParseLevel("level(7)")
	require.False(t, ok)
	require.Equal(t, "level(7)", Level(7).String())
	require.Equal(t, "state(7)", PartitionState(7).String())
}
