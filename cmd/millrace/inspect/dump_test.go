package inspect

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/cmd/millrace/cli"
	"github.com/millrace-mq/millrace/cmd/millrace/record"
	"github.com/millrace-mq/millrace/protocol"
)

// stamp is 2026-11-30T10:00:00.5Z.
const stamp = 1796032800_500000000

// outcome is what a dump left behind.
type outcome struct {
	code           cli.ExitCode
	stdout, stderr string
}

// runDump explains a file in the form that -o would ask for.
func runDump(form cli.OutputForm, name string, o Options) outcome {
	var stdout, stderr bytes.Buffer
	c := &cli.Call{World: cli.World{Stdout: &stdout, Stderr: &stderr, Now: time.Now}, Output: form}
	err := Dump(context.Background(), c, name, o)
	if err != nil {
		fmt.Fprintln(&stderr, err)
	}
	return outcome{cli.CodeOf(err), stdout.String(), stderr.String()}
}

// testLog builds a log frame by frame, as a broker stamps it.
type testLog struct {
	bytes  []byte
	starts []int // of the frames
	offset uint64
}

// add appends a frame of messages.
func (l *testLog) add(t testing.TB, values ...string) *testLog {
	var b protocol.Batch
	for _, v := range values {
		require.NoError(t, b.Add([]byte("k"), []byte(v), nil))
	}
	return l.append(b.Seal())
}

// commit appends a control record.
func (l *testLog) commit(group string, offset uint64) *testLog {
	body := protocol.AppendGroupOffsets(nil, []protocol.GroupOffset{{Group: group, Offset: offset}})
	return l.append(protocol.AppendControl(nil, protocol.ControlOffset, nil, body))
}

func (l *testLog) append(f protocol.Frame) *testLog {
	stamp := protocol.Stamp{Timestamp: stamp + uint64(len(l.starts)), Offset: l.offset, Index: uint64(len(l.starts)) + 1, Term: 1}
	stamp.Apply(f)
	_, l.offset = f.Span()
	l.starts = append(l.starts, len(l.bytes))
	l.bytes = append(l.bytes, f...)
	return l
}

// write makes a file of it, with zeros behind.
func (l *testLog) write(t testing.TB, zeros int) string {
	name := filepath.Join(t.TempDir(), "00000000000000000000-0.wal")
	require.NoError(t, os.WriteFile(name, append(l.bytes[:len(l.bytes):len(l.bytes)], make([]byte, zeros)...), 0o600))
	return name
}

func sampleLog(t testing.TB) *testLog {
	return new(testLog).add(t, "a", "b", "c").commit("g", 2).add(t, "d").add(t, strings.Repeat("e", 300)).add(t, "f", "g")
}

// frameRow is a row of "dump -o json".
type frameRow struct {
	Pos      int64             `json:"pos"`
	Offset   *uint64           `json:"offset"`
	Index    *uint64           `json:"index"`
	Records  *uint32           `json:"records"`
	Bytes    int64             `json:"bytes"`
	Kind     string            `json:"kind"`
	Check    string            `json:"check"`
	Messages []json.RawMessage `json:"messages"`
}

func dumpRows(t testing.TB, code cli.ExitCode, name string, o Options) []frameRow {
	got := runDump(cli.OutputJSON, name, o)
	require.Equal(t, code, got.code, got.stderr)
	var rows []frameRow
	for line := range strings.Lines(got.stdout) {
		var row frameRow
		require.NoError(t, json.Unmarshal([]byte(line), &row), line)
		rows = append(rows, row)
	}
	return rows
}

func kindsOf(rows []frameRow) (kinds []string) {
	for _, r := range rows {
		kinds = append(kinds, r.Kind)
	}
	return kinds
}

func TestDumpShowsEveryFrameOfALog(t *testing.T) {
	l := sampleLog(t)
	name := l.write(t, 4096)
	rows := dumpRows(t, cli.ExitOK, name, Options{Records: true})
	require.Equal(t, []string{"messages", "OFFSET", "messages", "messages", "messages", "prepared"}, kindsOf(rows))
	require.Equal(t, int64(l.starts[3]), rows[3].Pos)
	require.Equal(t, uint64(4), *rows[3].Offset)
	require.Equal(t, uint64(4), *rows[3].Index)
	require.Equal(t, "holds", rows[3].Check)
	require.Equal(t, uint32(3), *rows[0].Records)
	require.JSONEq(t, `{"offset":1,"key":"k","value":"b","headers":[]}`, string(rows[0].Messages[1]))
	require.JSONEq(t, `{"group":"g","offset":2}`, string(rows[1].Messages[0]))
	require.Equal(t, int64(4096), rows[5].Bytes)

	got := runDump(cli.OutputText, name, Options{Records: true})
	require.Equal(t, cli.ExitOK, got.code)
	require.Contains(t, got.stdout, "@2  key \"k\"  \"c\"\n")
	require.Contains(t, got.stdout, "group \"g\" at 2\n")
	require.Contains(t, got.stdout, "… (300 bytes)\n")
	require.Contains(t, got.stderr, "5 frames, 7 records")
	require.Contains(t, got.stderr, "4.00 KiB prepared")
}

func TestDumpBeginsAndEndsWhereItIsTold(t *testing.T) {
	name := sampleLog(t).write(t, 0)
	require.Len(t, dumpRows(t, cli.ExitOK, name, Options{Most: 2}), 2)
	rows := dumpRows(t, cli.ExitOK, name, Options{Most: 1, At: 2})
	require.Equal(t, uint64(0), *rows[0].Offset)
	rows = dumpRows(t, cli.ExitOK, name, Options{At: 3})
	require.Equal(t, uint64(3), *rows[0].Offset)
	require.Len(t, rows, 3)
	require.Empty(t, dumpRows(t, cli.ExitNotFound, name, Options{At: 700}))
	require.Contains(t, runDump(cli.OutputText, name, Options{At: 7}).stderr, "offset 7 is beyond the end, its last one is 6")
}

func TestDumpExplainsTheBytesOfAFrame(t *testing.T) {
	name := sampleLog(t).write(t, 0)
	got := runDump(cli.OutputText, name, Options{Hex: true, Most: 1})
	require.Equal(t, cli.ExitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, "recordCount             3")
	require.Contains(t, got.stdout, "check                   holds")
}

func TestDumpGoesOnBehindDamage(t *testing.T) {
	for name, test := range map[string]struct {
		harm  func(l *testLog)
		code  cli.ExitCode
		kinds []string
		check string // of the bad row
	}{
		"a flipped bit": {
			func(l *testLog) { l.bytes[l.starts[2]+40] ^= 1 },
			cli.ExitDamage, []string{"messages", "OFFSET", "damage", "messages", "messages"}, "no frame: BAD_CHECKSUM"},
		"a size that is too large": {
			func(l *testLog) { l.bytes[l.starts[2]+21] = 0xFF },
			cli.ExitDamage, []string{"messages", "OFFSET", "damage", "messages", "messages"}, "no frame: TOO_LARGE"},
		"zeros inside": {
			func(l *testLog) { clear(l.bytes[l.starts[1]:l.starts[3]]) },
			cli.ExitDamage, []string{"messages", "damage", "messages", "messages"}, "magic 0x00"},
		"a torn tail": {
			func(l *testLog) { l.bytes = l.bytes[:len(l.bytes)-3] },
			cli.ExitOK, []string{"messages", "OFFSET", "messages", "messages", "tail"}, "the file has"},
		"a tail cut in the header": {
			func(l *testLog) { l.bytes = l.bytes[:l.starts[4]+7] },
			cli.ExitOK, []string{"messages", "OFFSET", "messages", "messages", "tail"}, "the file has 7 more"},
		"a frame twice": {
			func(l *testLog) { l.bytes = append(l.bytes, l.bytes[l.starts[4]:]...) },
			cli.ExitDamage, []string{"messages", "OFFSET", "messages", "messages", "messages", "messages"}, "index 5 where 6 should follow"},
		"a frame missing": {
			func(l *testLog) { l.bytes = append(l.bytes[:l.starts[2]], l.bytes[l.starts[3]:]...) },
			cli.ExitDamage, []string{"messages", "OFFSET", "messages", "messages"}, "index 4 where 3 should follow"},
		"nothing but rubbish": {
			func(l *testLog) { l.bytes = bytes.Repeat([]byte{1, 2, 3}, 1000) },
			cli.ExitOK, []string{"tail"}, "no frame"},
	} {
		t.Run(name, func(t *testing.T) {
			l := sampleLog(t)
			test.harm(l)
			file := l.write(t, 0)
			rows := dumpRows(t, test.code, file, Options{})
			require.Equal(t, test.kinds, kindsOf(rows))
			found := false
			for _, r := range rows {
				found = found || strings.Contains(r.Check, test.check)
			}
			require.True(t, found, rows)
			require.Equal(t, test.code, runDump(cli.OutputText, file, Options{Records: true}).code)
		})
	}
}

// A file that looks like the start of a frame at every byte must not be read
// again for each of them.
func TestSearchBehindDamageReadsAFileOnce(t *testing.T) {
	f := &countingFile{Reader: bytes.NewReader(bytes.Repeat([]byte{1}, 8<<20))}
	k := newWalk(f, f.Size())
	s, ok, err := k.next()
	require.NoError(t, err)
	require.True(t, ok)
	require.True(t, s.tail)
	require.LessOrEqual(t, f.read, 2*f.Size())
}

// A file made so that candidates pass the cheap tests costs a bounded effort.
func TestSearchBehindDamageGivesUpAtItsBudget(t *testing.T) {
	l := new(testLog).add(t, "a")
	good := len(l.bytes)
	big := new(testLog).add(t, strings.Repeat("x", 4096))
	lie := bytes.Clone(big.bytes[:protocol.HeaderSize])
	protocol.HeaderOf(lie).SetOffset(1)
	for range 2000 {
		l.bytes = append(l.bytes, lie...)
	}
	k := newWalk(bytes.NewReader(l.bytes), int64(len(l.bytes)))
	k.budget = 64 << 10
	_, _, err := k.next()
	require.NoError(t, err)
	require.Equal(t, int64(good), k.pos)
	s, ok, err := k.next()
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, int64(len(l.bytes)), s.end)
	require.Negative(t, k.budget)
}

type countingFile struct {
	*bytes.Reader
	read int64
}

func (f *countingFile) ReadAt(p []byte, pos int64) (int, error) {
	n, err := f.Reader.ReadAt(p, pos)
	f.read += int64(n)
	return n, err
}

// FuzzDump: no bytes make a dump fail in another way than by its exit code, and
// the stretches cover the file without gap.
func FuzzDump(f *testing.F) {
	l := sampleLog(f)
	f.Add(l.bytes)
	f.Add(l.bytes[5:])
	f.Add(append(l.bytes[:90:90], l.bytes...))
	f.Add([]byte(indexMagic + "\x00\x00\x00\x01"))
	f.Add([]byte("millrace node 1 2 0123456789abcdef\n{}"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		k := newWalk(bytes.NewReader(b), int64(len(b)))
		pos := int64(0)
		for {
			s, ok, err := k.next()
			require.NoError(t, err)
			if !ok {
				break
			}
			require.Equal(t, pos, s.pos)
			require.Greater(t, s.end, s.pos)
			pos = s.end
		}
		require.Equal(t, int64(len(b)), pos)
		for _, suffix := range []string{logSuffix, indexSuffix, ".state"} {
			name := filepath.Join(dir, "f"+suffix)
			require.NoError(t, os.WriteFile(name, b, 0o600))
			for _, got := range []outcome{runDump(cli.OutputText, name, Options{Records: true}), runDump(cli.OutputText, name, Options{Hex: true}),
				runDump(cli.OutputJSON, name, Options{Records: true})} {
				require.Contains(t, []cli.ExitCode{cli.ExitOK, cli.ExitDamage, cli.ExitUsage}, got.code, got.stderr)
			}
		}
	})
}

func TestDumpOfAnIndexComparesItWithItsLog(t *testing.T) {
	l := sampleLog(t)
	name := l.write(t, 0)
	index := strings.TrimSuffix(name, logSuffix) + indexSuffix
	entry := func(offset, pos, at uint64, ordinal uint32, flags byte) []byte {
		b := []byte{0, 0, 0, byte(offset), 0, 0, byte(pos >> 8), byte(pos)}
		b = append(b, byte(at>>56), byte(at>>48), byte(at>>40), byte(at>>32), byte(at>>24), byte(at>>16), byte(at>>8), byte(at))
		return append(b, 0, 0, 0, byte(ordinal), 0, 0, 0, flags)
	}
	head := append([]byte(indexMagic), 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1)
	good := append(append(head, entry(0, 0, stamp, 0, 1)...), entry(3, uint64(l.starts[2]), stamp+2, 2, 0)...)
	require.NoError(t, os.WriteFile(index, append(good, make([]byte, 100)...), 0o600))
	got := runDump(cli.OutputJSON, index, Options{})
	require.Equal(t, cli.ExitOK, got.code, got.stderr)
	lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
	require.Len(t, lines, 2)
	require.JSONEq(t, fmt.Sprintf(`{"entry":1,"offset":3,"index":3,"pos":%d,"timestamp":"2026-11-30T10:00:00.500000002Z","flags":"-","log":"agrees"}`, l.starts[2]), lines[1])
	require.Contains(t, lines[0], `"flags":"control"`)

	bad := append(good[:len(good)-24:len(good)-24], entry(4, uint64(l.starts[2]), stamp+2, 2, 0)...)
	require.NoError(t, os.WriteFile(index, bad, 0o600))
	got = runDump(cli.OutputText, index, Options{})
	require.Equal(t, cli.ExitDamage, got.code)
	require.Contains(t, got.stdout, "the frame has offset 3, index 3")
	require.NoError(t, os.Remove(name))
	got = runDump(cli.OutputText, index, Options{})
	require.Equal(t, cli.ExitOK, got.code)
	require.Contains(t, got.stdout, "no log beside the index")
}

func TestDumpRefusesWhatItDoesNotKnow(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "notes")
	require.NoError(t, os.WriteFile(text, []byte("hello"), 0o600))
	require.Equal(t, cli.ExitUsage, runDump(cli.OutputText, text, Options{}).code)
	require.Equal(t, cli.ExitNotFound, runDump(cli.OutputText, filepath.Join(dir, "none.wal"), Options{}).code)
	got := runDump(cli.OutputText, os.DevNull, Options{})
	require.Equal(t, cli.ExitRuntime, got.code)
	require.Contains(t, got.stderr, "no regular file")
}

func TestTimesBeyondTheClockAreNumbers(t *testing.T) {
	require.Equal(t, "9223372036854775808", record.RFC3339(1<<63))
	require.Equal(t, time.Unix(0, 1<<63-1).UTC().Format(time.RFC3339Nano), record.RFC3339(1<<63-1))
}
