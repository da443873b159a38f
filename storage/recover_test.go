package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/protocol"
	"github.com/millrace-mq/millrace/storage/vfs"
)

const testDir = "topics/t.1/0"

func testLog(t testing.TB, fsys vfs.FS, c *clock, o LogOptions) (*Store, *Log, Report) {
	t.Helper()
	s := openStore(t, fsys, c)
	l, rep, err := s.OpenLog(testDir, o)
	require.NoError(t, err)
	return s, l, rep
}

// kill leaves a store as SIGKILL does: what was written stays in the page cache.
func kill(t testing.TB, m *vfs.Mem) *vfs.Mem { t.Helper(); return m.CrashClean() }

// walOf returns the name of the n-th segment file from the end.
func walOf(t testing.TB, fsys vfs.FS, back int) string {
	t.Helper()
	list, err := fsys.ReadDir(testDir)
	require.NoError(t, err)
	var names []string
	for _, e := range list {
		if strings.HasSuffix(e.Name, walSuffix) {
			names = append(names, path.Join(testDir, e.Name))
		}
	}
	return names[len(names)-1-back]
}

func edit(t testing.TB, fsys vfs.FS, name string, f func(vfs.File)) {
	t.Helper()
	file, err := fsys.OpenWrite(name)
	require.NoError(t, err)
	f(file)
	require.NoError(t, file.Close())
}

func flip(t testing.TB, fsys vfs.FS, name string, pos int64, bit uint) {
	t.Helper()
	edit(t, fsys, name, func(f vfs.File) {
		var b [1]byte
		_, err := f.ReadAt(b[:], pos)
		require.NoError(t, err)
		b[0] ^= 1 << bit
		_, err = f.WriteAt(b[:], pos)
		require.NoError(t, err)
	})
}

// durably appends runs of one record each and waits until they are durable.
func durably(t testing.TB, l *Log, n int) {
	t.Helper()
	for i := range n {
		appendRun(t, l, runOf(t, 1, 1, 50, uint64(i)))
		require.NoError(t, l.Sync(context.Background()))
	}
}

func TestTornTailIsCutAtEveryByteAndNothingBeforeIt(t *testing.T) {
	c := newClock()
	m := vfs.NewMem()
	_, l, _ := testLog(t, m, c, LogOptions{Durable: true})
	durably(t, l, 10)
	start := l.writtenMark().pos
	for i := range 4 { // never synced
		appendRun(t, l, runOf(t, 1, 2, 60, uint64(100+i)))
	}
	end := l.writtenMark().pos
	for cut := start; cut <= end; cut++ {
		img := kill(t, m)
		edit(t, img, walOf(t, img, 0), func(f vfs.File) { require.NoError(t, f.Truncate(cut)) })
		_, l2, rep := testLog(t, img, c, LogOptions{Durable: true})
		require.False(t, rep.ReadOnly, rep.Reason)
		require.Empty(t, rep.Damage)
		got := readAll(t, l2, 0, 1<<20)
		require.GreaterOrEqual(t, len(got), 10)
		require.Equal(t, uint64(len(got)), l2.Written().Offset)
		whole := (l2.writtenMark().pos - start)
		require.LessOrEqual(t, rep.TornBytes, cut-start-whole) // zeros at its end are not told from free space
		appendRun(t, l2, runOf(t, 1, 1, 10, 5))
		require.Len(t, readAll(t, l2, 0, 1<<20), len(got)+0) // durable topic: not visible before its sync
		require.NoError(t, l2.Sync(context.Background()))
		require.Len(t, readAll(t, l2, 0, 1<<20), len(got)+1)
	}
}

func TestAnyFlippedBitInTheLastGroupNeverReachesAReader(t *testing.T) {
	c := newClock()
	m := vfs.NewMem()
	_, l, _ := testLog(t, m, c, LogOptions{Durable: true})
	durably(t, l, 5)
	start := l.writtenMark().pos
	appendRun(t, l, runOf(t, 2, 1, 20, 9))
	end := l.writtenMark().pos
	for pos := start; pos < end; pos++ {
		img := kill(t, m)
		flip(t, img, walOf(t, img, 0), pos, uint(pos%8))
		_, l2, rep := testLog(t, img, c, LogOptions{Durable: true})
		require.Empty(t, rep.Damage, "pos %d", pos)
		require.Positive(t, rep.TornBytes)
		n := len(readAll(t, l2, 0, 1<<20))
		require.True(t, n == 5 || n == 6, "%d", n)
		require.NoError(t, l2.Close())
	}
}

func TestDamageBelowTheSettledIndexIsKeptAndReported(t *testing.T) {
	c := newClock()
	m := vfs.NewMem()
	_, l, _ := testLog(t, m, c, LogOptions{Durable: true})
	durably(t, l, 30)
	want := readAll(t, l, 0, 1<<20)
	c2, err := l.Seek(10)
	require.NoError(t, err)
	size := (l.writtenMark().pos) / 30
	for field, at := range map[string]int64{"magic": 0, "timestamp": 5, "keySize": 17, "payloadSize": 22, "count": 26, "body": 60, "check": size - 1} {
		img := kill(t, m)
		flip(t, img, walOf(t, img, 0), c2.pos+at, 3)
		for range 2 { // recovering twice changes nothing
			s, l2, rep := testLog(t, img, c, LogOptions{Durable: true})
			require.False(t, rep.ReadOnly, rep.Reason)
			require.Len(t, rep.Damage, 1, field)
			require.Equal(t, uint64(10), rep.Damage[0].From, field)
			require.Equal(t, uint64(11), rep.Damage[0].To, field)
			require.Zero(t, rep.TornBytes)
			require.Equal(t, uint64(30), l2.Written().Offset)
			cur, err := l2.Seek(0)
			require.NoError(t, err)
			sec, err := l2.Next(&cur, protocol.NoStop, 1<<20)
			require.NoError(t, err)
			require.Equal(t, uint64(10), cur.Offset)
			sec.Release()
			_, err = l2.Next(&cur, protocol.NoStop, 1<<20)
			var bad *CorruptError
			require.ErrorAs(t, err, &bad)
			require.Equal(t, uint64(11), bad.To)
			got := readAll(t, l2, bad.To, 1<<20)
			require.Len(t, got, 19)
			for o, v := range got {
				require.Equal(t, want[o], v)
			}
			r, err := Check(img, testDir, nil)
			require.NoError(t, err)
			require.Len(t, r.Damage, 1)
			require.NoError(t, l2.Close())
			require.NoError(t, s.Close())
		}
	}
}

// indexMutations are the ways in which an index file can be wrong.
func indexMutations(t testing.TB) map[string]func(img *vfs.Mem, name string) {
	return map[string]func(img *vfs.Mem, name string){
		"missing": func(img *vfs.Mem, n string) { require.NoError(t, img.Remove(n)) },
		"empty":   func(img *vfs.Mem, n string) { edit(t, img, n, func(f vfs.File) { require.NoError(t, f.Truncate(0)) }) },
		"odd":     func(img *vfs.Mem, n string) { edit(t, img, n, func(f vfs.File) { require.NoError(t, f.Truncate(61)) }) },
		"short": func(img *vfs.Mem, n string) {
			edit(t, img, n, func(f vfs.File) { require.NoError(t, f.Truncate(indexSize(1))) })
		},
		"zeros": func(img *vfs.Mem, n string) {
			edit(t, img, n, func(f vfs.File) {
				_, err := f.WriteAt(make([]byte, 4096), indexHeader)
				require.NoError(t, err)
			})
		},
		"random": func(img *vfs.Mem, n string) {
			edit(t, img, n, func(f vfs.File) {
				rng := rand.New(rand.NewPCG(3, 4))
				b := make([]byte, 100)
				for i := range b {
					b[i] = byte(rng.Uint32())
				}
				_, err := f.WriteAt(b, indexHeader+indexEntry)
				require.NoError(t, err)
			})
		},
		"entry too many": func(img *vfs.Mem, n string) {
			edit(t, img, n, func(f vfs.File) {
				size, err := f.Size()
				require.NoError(t, err)
				b := make([]byte, indexEntry)
				b[7], b[3] = 0xFF, 0xFF
				_, err = f.WriteAt(b, size)
				require.NoError(t, err)
			})
		},
		"foreign": func(img *vfs.Mem, n string) { flip(t, img, n, 9, 1) },
	}
}

func TestIndexIsRebuiltWhateverHappenedToIt(t *testing.T) {
	c := newClock()
	m := vfs.NewMem()
	s, l, _ := testLog(t, m, c, LogOptions{SegmentBytes: 150 << 10})
	for i := range 40 {
		appendRun(t, l, runOf(t, 3, 10, 400, uint64(i)))
	}
	want := readAll(t, l, 0, 1<<20)
	require.NoError(t, l.Close())
	require.NoError(t, s.Close())
	clean := kill(t, m)
	idx := map[string][]byte{}
	list, err := clean.ReadDir(testDir)
	require.NoError(t, err)
	for _, e := range list {
		if strings.HasSuffix(e.Name, idxSuffix) {
			b, err := readFile(clean, path.Join(testDir, e.Name))
			require.NoError(t, err)
			idx[e.Name] = b
		}
	}
	require.Greater(t, len(idx), 2)
	for what, mutate := range indexMutations(t) {
		img := kill(t, clean)
		for name := range idx {
			mutate(img, path.Join(testDir, name))
		}
		s, l, rep := testLog(t, img, c, LogOptions{SegmentBytes: 150 << 10})
		require.False(t, rep.ReadOnly, what)
		require.Equal(t, want, readAll(t, l, 0, 1<<20), what)
		for o := range uint64(len(want)) {
			cur, err := l.Seek(o)
			require.NoError(t, err, what)
			require.LessOrEqual(t, cur.Offset, o)
		}
		require.NoError(t, l.Close())
		require.NoError(t, s.Close())
		for name, b := range idx {
			got, err := readFile(img, path.Join(testDir, name))
			require.NoError(t, err)
			require.Equal(t, b, got, "%s: %s is not what the appends made", what, name)
		}
	}
}

func TestStaleOrMissingManifestLosesNothing(t *testing.T) {
	c := newClock()
	m := vfs.NewMem()
	_, l, _ := testLog(t, m, c, LogOptions{SegmentBytes: 64 << 10})
	var images [][]byte
	for i := range 60 {
		appendRun(t, l, runOf(t, 2, 5, 500, uint64(i)))
		b, err := readFile(m, path.Join(testDir, manifestName))
		require.NoError(t, err)
		images = append(images, b)
	}
	want := readAll(t, l, 0, 1<<20)
	put := func(img *vfs.Mem, b []byte) {
		for _, n := range []string{manifestName, manifestName + ".prev"} {
			require.NoError(t, ignoreMissing(img.Remove(path.Join(testDir, n))))
		}
		if b != nil {
			require.NoError(t, writeFile(img, path.Join(testDir, manifestName), b))
		}
	}
	for i, b := range append(images, nil, []byte("garbage"), images[5][:40]) {
		img := kill(t, m)
		put(img, b)
		s, l2, rep := testLog(t, img, c, LogOptions{SegmentBytes: 64 << 10})
		require.False(t, rep.ReadOnly, "%d: %s", i, rep.String())
		require.Equal(t, want, readAll(t, l2, 0, 1<<20), "%d: %s", i, rep.String())
		require.Equal(t, uint64(len(want)), appendRun(t, l2, runOf(t, 1, 1, 1, 1)))
		require.NoError(t, l2.Close())
		require.NoError(t, s.Close())
	}
}

func TestMissingOrShortSealedSegmentIsReadOnlyOrDamageNeverAnEmptyLog(t *testing.T) {
	c := newClock()
	m := vfs.NewMem()
	_, l, _ := testLog(t, m, c, LogOptions{SegmentBytes: 64 << 10})
	for i := range 60 {
		appendRun(t, l, runOf(t, 2, 5, 500, uint64(i)))
	}
	want := readAll(t, l, 0, 1<<20)
	img := kill(t, m)
	require.NoError(t, img.Remove(walOf(t, img, 2)))
	_, l2, rep := testLog(t, img, c, LogOptions{SegmentBytes: 64 << 10})
	require.True(t, rep.ReadOnly)
	require.Contains(t, rep.Reason, "missing")
	_, err := l2.Append([]Entry{{Run: runOf(t, 1, 1, 1, 1)}}, false)
	require.ErrorIs(t, err, ErrReadOnly)
	require.Equal(t, uint64(len(want)), l2.Written().Offset)

	img = kill(t, m)
	edit(t, img, walOf(t, img, 2), func(f vfs.File) { require.NoError(t, f.Truncate(30_001)) })
	_, l2, rep = testLog(t, img, c, LogOptions{SegmentBytes: 64 << 10})
	require.False(t, rep.ReadOnly)
	require.Len(t, rep.Damage, 1)
	got := map[uint64]string{}
	for from := uint64(0); ; {
		cur, err := l2.Seek(from)
		require.NoError(t, err)
		sec, err := l2.Next(&cur, protocol.NoStop, 1<<20)
		var bad *CorruptError
		if errors.As(err, &bad) {
			from = bad.To
			continue
		}
		require.NoError(t, err)
		if sec.Size == 0 {
			break
		}
		b := make([]byte, sec.Size)
		_, err = sec.File().ReadAt(b, sec.Pos())
		require.NoError(t, err)
		sec.Release()
		for len(b) > 0 {
			n, err := protocol.CheckStored(b, protocol.MaxDataFrame)
			require.NoError(t, err)
			it := protocol.Records(protocol.Frame(b[:n]))
			for it.Next() {
				got[it.Record.Offset] = string(it.Record.Value)
			}
			b = b[n:]
		}
		from = cur.Offset
	}
	lost := rep.Damage[0].To - rep.Damage[0].From
	require.Len(t, got, len(want)-int(lost))
	require.Less(t, lost, uint64(100)) // the rest of one segment, not more
}

func TestLostSuffixRaisesTheEpochAndNamesThePosition(t *testing.T) {
	c := newClock()
	m := vfs.NewMem()
	_, l, _ := testLog(t, m, c, LogOptions{})
	durably(t, l, 5)
	appendRun(t, l, runOf(t, 1, 5, 10, 1))
	img := kill(t, m)
	pos := l.writtenMark().pos
	edit(t, img, walOf(t, img, 0), func(f vfs.File) { require.NoError(t, f.Truncate(pos-3)) })
	_, l2, rep := testLog(t, img, c, LogOptions{})
	require.True(t, rep.LostSuffix)
	require.Equal(t, uint32(1), l2.Epoch())
	_, err := l2.Seek(9)
	var r *RangeError
	require.ErrorAs(t, err, &r)
	require.True(t, r.Lost)
	require.Equal(t, uint64(5), r.End)
}

func TestNewerFormatIsRefusedWithoutWriting(t *testing.T) {
	c := newClock()
	m := vfs.NewMem()
	s, l, _ := testLog(t, m, c, LogOptions{})
	durably(t, l, 3)
	require.NoError(t, l.Close())
	require.NoError(t, s.Close())
	require.NoError(t, WriteSealed(m, path.Join(testDir, manifestName), "manifest", Version+1, []byte("{}")))
	s = openStore(t, m, c)
	_, _, err := s.OpenLog(testDir, LogOptions{})
	require.ErrorIs(t, err, ErrNewer)
	_, v, err := readSealed(m, path.Join(testDir, manifestName), "manifest", Version+1)
	require.NoError(t, err)
	require.Equal(t, Version+1, v)
}

func TestSecondStoreIsRefusedAndNamesTheHolder(t *testing.T) {
	m := vfs.NewMem()
	c := newClock()
	s := openStore(t, m, c)
	_, err := OpenStore(m, StoreOptions{Now: c.now, Holder: "other"})
	require.ErrorIs(t, err, vfs.ErrLocked)
	require.Contains(t, err.Error(), "test")
	require.NoError(t, s.Close())
	require.NoError(t, openStore(t, m, c).Close())
}

func TestFilesOfNoManifestArePutAsideNeverDeleted(t *testing.T) {
	c := newClock()
	m := vfs.NewMem()
	s, l, _ := testLog(t, m, c, LogOptions{SegmentBytes: 64 << 10})
	for i := range 40 {
		appendRun(t, l, runOf(t, 2, 5, 500, uint64(i)))
	}
	require.NoError(t, l.Close())
	require.NoError(t, s.Close())
	stray := path.Join(testDir, stem(0, 0)+"x")
	require.NoError(t, writeFile(m, stray, []byte("hello")))
	left := path.Join(testDir, fmt.Sprintf("%020d-%d%s", 77, 1, walSuffix)) // id 1 was given to another file
	require.NoError(t, writeFile(m, left, []byte("leftover")))
	_, _, rep := testLog(t, m, c, LogOptions{SegmentBytes: 64 << 10})
	require.Len(t, rep.SetAside, 1)
	b, err := readFile(m, path.Join(testDir, quarantineDir, path.Base(left)))
	require.NoError(t, err)
	require.Equal(t, "leftover", string(b))
	_, err = m.Stat(stray)
	require.False(t, errors.Is(err, fs.ErrNotExist))
}
