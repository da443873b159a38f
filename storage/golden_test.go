package storage

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/protocol"
	"github.com/millrace-mq/millrace/storage/vfs"
)

var update = flag.Bool("update", false, "write testdata/wal again: only for a new format version, which gets a folder of its own")

const goldenDir = "../testdata/wal"

// goldenLog fills a log with everything that version 1 writes: several segments, control
// records, a checkpoint, every layout that a broker stores today.
func goldenLog(t *testing.T, fsys vfs.FS) (*Store, *Log) {
	t.Helper()
	s, l, _ := testLog(t, fsys, newClock(), LogOptions{SegmentBytes: 64 << 10, Durable: true})
	for i := range 30 {
		appendRun(t, l, runOf(t, 2, 4, 300, uint64(i)))
	}
	_, err := l.AppendControl(protocol.AppendControl(nil, protocol.ControlOffset, nil,
		protocol.AppendGroupOffsets(nil, []protocol.GroupOffset{{Group: "billing", Offset: 17}})), false)
	require.NoError(t, err)
	opaque, err := protocol.AppendOpaque(nil, []byte("key"), []byte("a body of a legacy client\n"), 2)
	require.NoError(t, err)
	run, err := protocol.CheckRun(opaque, 1<<20)
	require.NoError(t, err)
	appendRun(t, l, run)
	require.NoError(t, l.Sync(context.Background()))
	require.NoError(t, l.SaveCheckpoint(l.Durable().Index, []byte("built by control records")))
	return s, l
}

// TestDataOfVersion1OpensForEver opens data directories that the first release wrote.
func TestDataOfVersion1OpensForEver(t *testing.T) {
	clean, torn := filepath.Join(goldenDir, "v1"), filepath.Join(goldenDir, "torn")
	if *update {
		writeGolden(t, clean, torn)
	}
	fsys := copyOf(t, clean)
	s, l, rep := testLog(t, fsys, newClock(), LogOptions{SegmentBytes: 64 << 10, Durable: true})
	require.True(t, rep.Clean, rep.String())
	require.Zero(t, s.Stats().IndexRebuilds)
	checkGolden(t, l, 30)
	index, body, err := l.LoadCheckpoint()
	require.NoError(t, err)
	require.Equal(t, l.Written().Index, index)
	require.Equal(t, "built by control records", string(body))
	require.NoError(t, l.Close())
	require.NoError(t, s.Close())
	r, err := Check(fsys, testDir, nil)
	require.NoError(t, err)
	require.True(t, r.OK(), "%+v", r)

	fsys = copyOf(t, torn)
	_, l, rep = testLog(t, fsys, newClock(), LogOptions{SegmentBytes: 64 << 10, Durable: true})
	require.False(t, rep.Clean)
	require.Positive(t, rep.TornBytes)
	require.Positive(t, rep.TornFrames)
	require.Empty(t, rep.Damage)
	checkGolden(t, l, 30)
	require.NoError(t, l.Close())
}

// checkGolden compares the first runs of a log with what goldenLog wrote.
func checkGolden(t *testing.T, l *Log, runs int) {
	t.Helper()
	got := readAll(t, l, 0, 1<<20)
	for i := range runs {
		for f := range 2 {
			for r := range 4 {
				want := fmt.Sprintf("%d/%d/%d", i, f, r)
				require.Equal(t, want, strings.TrimRight(got[uint64(i*8+f*4+r)], "\x00"))
			}
		}
	}
	require.Equal(t, "a body of a legacy client\n", got[uint64(runs*8)])
	var groups []protocol.GroupOffset
	require.NoError(t, l.Controls(0, func(f protocol.Frame) error {
		return protocol.DecodeGroupOffsets(f.Body(), func(g protocol.GroupOffset) { groups = append(groups, g) })
	}))
	require.Equal(t, []protocol.GroupOffset{{Group: "billing", Offset: 17}}, groups)
}

func writeGolden(t *testing.T, clean, torn string) {
	t.Helper()
	require.NoError(t, os.RemoveAll(clean))
	require.NoError(t, os.RemoveAll(torn))
	fsys, err := vfs.OS(clean)
	require.NoError(t, err)
	s, l := goldenLog(t, fsys)
	require.NoError(t, l.Close())
	require.NoError(t, s.Close())
	m := vfs.NewMem()
	_, l = goldenLog(t, m)
	for i := range 3 { // never synced; the second one is damaged, so the third goes with it
		appendRun(t, l, runOf(t, 1, 2, 300, uint64(500+i)))
	}
	img := m.CrashClean()
	flip(t, img, walOf(t, img, 0), l.writtenMark().pos-900, 2)
	to, err := vfs.OS(torn)
	require.NoError(t, err)
	copyTree(t, img, to, ".")
}

// copyOf copies a golden directory to where it may be changed.
func copyOf(t *testing.T, dir string) vfs.FS {
	t.Helper()
	from, err := vfs.OS(dir)
	require.NoError(t, err)
	to := vfs.NewMem()
	copyTree(t, from, to, ".")
	return to
}

func copyTree(t *testing.T, from, to vfs.FS, dir string) {
	t.Helper()
	list, err := from.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range list {
		name := filepath.ToSlash(filepath.Join(dir, e.Name))
		if e.Dir {
			require.NoError(t, to.MkdirAll(name))
			copyTree(t, from, to, name)
			continue
		}
		b, err := readFile(from, name)
		require.NoError(t, err)
		if strings.HasSuffix(name, walSuffix) { // prepared space is no content
			b = []byte(strings.TrimRight(string(b), "\x00"))
		}
		require.NoError(t, writeFile(to, name, b))
	}
}

// TestRecoveryThatFailsAtAnyOperationCanBeRepeated opens what a crash left, has each operation of
// that fail in turn, and compares what a start without failures then finds with what it had
// found at once.
func TestRecoveryThatFailsAtAnyOperationCanBeRepeated(t *testing.T) {
	c := newClock()
	o := LogOptions{SegmentBytes: 64 << 10, Durable: true}
	_, l, _ := testLog(t, copyOf(t, filepath.Join(goldenDir, "torn")), c, o)
	want := readAll(t, l, 0, 1<<20)
	for what, fault := range map[string]error{"EIO": syscall.EIO, "ENOSPC": syscall.ENOSPC, "short": vfs.ShortWrite{N: 10, Err: syscall.ENOSPC}} {
		for n := 1; ; n++ {
			m := copyOf(t, filepath.Join(goldenDir, "torn")).(*vfs.Mem)
			var counter vfs.Counter
			fail := vfs.FailNth(n, fault)
			faulty := vfs.Fault(m, func(op vfs.Op) error {
				if err := counter.Decide(op); err != nil {
					return err
				}
				return fail(op)
			})
			if s, err := OpenStore(faulty, StoreOptions{Now: c.now}); err == nil {
				if l, _, err := s.OpenLog(testDir, o); err == nil {
					readSome(l)
				}
			}
			s := openStore(t, m.CrashClean(), c)
			l, rep, err := s.OpenLog(testDir, o)
			require.NoError(t, err, "%s at operation %d", what, n)
			require.False(t, rep.ReadOnly, "%s at operation %d: %s", what, n, rep.String())
			require.Equal(t, want, readAll(t, l, 0, 1<<20), "%s at operation %d", what, n)
			if n > counter.N() {
				require.Greater(t, n, 20, what)
				break
			}
		}
	}
}

// readSome reads from a log whose disk may fail.
func readSome(l *Log) {
	if c, err := l.Seek(0); err == nil {
		if s, err := l.Next(&c, protocol.NoStop, 1000); err == nil && s.Size > 0 {
			s.Release()
		}
	}
}
