package vfs

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"
)

// create makes a file with content and leaves it open to the end of the test.
func create(t *testing.T, fsys FS, name, content string) File {
	t.Helper()
	f, err := fsys.Create(name)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	n, err := f.WriteAt([]byte(content), 0)
	require.NoError(t, err)
	require.Equal(t, len(content), n)
	return f
}

func read(t *testing.T, f File, pos, n int64) []byte {
	t.Helper()
	p := make([]byte, n)
	got, err := f.ReadAt(p, pos)
	if err != io.EOF {
		require.NoError(t, err)
	}
	return p[:got]
}

func content(t *testing.T, fsys FS, name string) string {
	t.Helper()
	f, err := fsys.Open(name)
	require.NoError(t, err)
	defer f.Close()
	size, err := f.Size()
	require.NoError(t, err)
	return string(read(t, f, 0, size))
}

func exists(t *testing.T, fsys FS, name string) bool {
	t.Helper()
	_, err := fsys.Stat(name)
	if err != nil {
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
	return err == nil
}

// TestConformance holds every implementation to the words of the interface.
func TestConformance(t *testing.T) {
	kinds := map[string]func(t *testing.T) FS{
		"OS":    func(t *testing.T) FS { fsys, _ := openOS(t); return fsys },
		"Mem":   func(t *testing.T) FS { return NewMem() },
		"Fault": func(t *testing.T) FS { return Fault(NewMem(), func(Op) error { return nil }) },
		"Sub": func(t *testing.T) FS {
			m := NewMem()
			require.NoError(t, m.MkdirAll("x/y"))
			sub, err := m.Sub("x/y")
			require.NoError(t, err)
			return sub
		},
	}
	cases := map[string]func(t *testing.T, fsys FS){
		"CreateIsExclusive":        testCreateIsExclusive,
		"OpenNeedsAFile":           testOpenNeedsAFile,
		"ReadOnlyIsReadOnly":       testReadOnlyIsReadOnly,
		"ReadAndWriteAtPositions":  testReadAndWriteAtPositions,
		"WritevWritesAllInOrder":   testWritevWritesAllInOrder,
		"TruncateReadsAsZeros":     testTruncateReadsAsZeros,
		"AllocateKeepsContent":     testAllocateKeepsContent,
		"Directories":              testDirectories,
		"RenameReplaces":           testRenameReplaces,
		"OpenHandlesSurvive":       testOpenHandlesSurvive,
		"RemoveAll":                testRemoveAll,
		"NamesStayInside":          testNamesStayInside,
		"SubIsATree":               testSubIsATree,
		"MappingSharesTheFile":     testMappingSharesTheFile,
		"MappingBounds":            testMappingBounds,
		"LockExcludes":             testLockExcludes,
		"SyncsAndHintsSucceed":     testSyncsAndHintsSucceed,
		"ClosedIsClosed":           testClosedIsClosed,
		"NegativeNumbersAreErrors": testNegativeNumbersAreErrors,
	}
	for kind, open := range kinds {
		for name, run := range cases {
			t.Run(kind+"/"+name, func(t *testing.T) { run(t, open(t)) })
		}
	}
}

func testCreateIsExclusive(t *testing.T, fsys FS) {
	create(t, fsys, "f", "one")
	_, err := fsys.Create("f")
	require.ErrorIs(t, err, fs.ErrExist)
	require.ErrorContains(t, err, "f")
	require.NoError(t, fsys.MkdirAll("d"))
	_, err = fsys.Create("d")
	require.ErrorIs(t, err, fs.ErrExist)
	_, err = fsys.Create("missing/f")
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = fsys.Create("f/g")
	require.Error(t, err)
	require.Equal(t, "one", content(t, fsys, "f"))
}

func testOpenNeedsAFile(t *testing.T, fsys FS) {
	require.NoError(t, fsys.MkdirAll("d"))
	for _, open := range []func(string) (File, error){fsys.Open, fsys.OpenWrite} {
		_, err := open("f")
		require.ErrorIs(t, err, fs.ErrNotExist)
		_, err = open("d")
		require.Error(t, err)
	}
	_, err := fsys.Stat("f")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorIs(t, fsys.Remove("f"), fs.ErrNotExist)
	require.ErrorIs(t, fsys.Rename("f", "g"), fs.ErrNotExist)
	require.ErrorIs(t, fsys.SyncDir("f"), fs.ErrNotExist)
	_, err = fsys.ReadDir("f")
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = fsys.Sub("f")
	require.ErrorIs(t, err, fs.ErrNotExist)
	create(t, fsys, "f", "")
	require.Error(t, fsys.SyncDir("f"))
	require.Error(t, fsys.MkdirAll("f"))
	require.Error(t, fsys.MkdirAll("f/g"))
	_, err = fsys.ReadDir("f")
	require.Error(t, err)
	_, err = fsys.Sub("f")
	require.Error(t, err)
}

func testReadOnlyIsReadOnly(t *testing.T, fsys FS) {
	create(t, fsys, "f", "one")
	f, err := fsys.Open("f")
	require.NoError(t, err)
	defer f.Close()
	_, err = f.WriteAt([]byte("two"), 0)
	require.Error(t, err)
	_, err = f.WritevAt([][]byte{[]byte("two")}, 0)
	require.Error(t, err)
	require.Error(t, f.Truncate(0))
	require.Error(t, f.Allocate(0, 100))
	_, err = f.Map(3, true)
	require.Error(t, err)
	require.NoError(t, f.Sync())
	require.Equal(t, "one", content(t, fsys, "f"))

	g, err := fsys.OpenWrite("f")
	require.NoError(t, err)
	defer g.Close()
	_, err = g.WriteAt([]byte("two"), 0)
	require.NoError(t, err)
	require.Equal(t, "two", string(read(t, f, 0, 3)))
}

func testReadAndWriteAtPositions(t *testing.T, fsys FS) {
	f := create(t, fsys, "f", "hello")
	n, err := f.WriteAt([]byte("world"), 1000)
	require.NoError(t, err)
	require.Equal(t, 5, n)
	size, err := f.Size()
	require.NoError(t, err)
	require.EqualValues(t, 1005, size)
	require.Equal(t, make([]byte, 995), read(t, f, 5, 995), "a hole reads as zeros")

	p := make([]byte, 10)
	n, err = f.ReadAt(p, 1000)
	require.Equal(t, io.EOF, err)
	require.Equal(t, "world", string(p[:n]))
	n, err = f.ReadAt(p[:5], 1000)
	require.NoError(t, err)
	require.Equal(t, 5, n)
	n, err = f.ReadAt(p, 1005)
	require.Equal(t, io.EOF, err)
	require.Zero(t, n)
	e, err := fsys.Stat("f")
	require.NoError(t, err)
	require.Equal(t, Entry{Name: "f", Size: 1005}, e)
}

func testWritevWritesAllInOrder(t *testing.T, fsys FS) {
	f := create(t, fsys, "f", "")
	for _, count := range []int{0, 1, 2, 16, 1023, 1024, 1025, 3000} {
		var bufs [][]byte
		var want []byte
		for i := range count {
			b := bytes.Repeat([]byte{byte(i), byte(i >> 8)}, i%7) // every seventh is empty
			bufs = append(bufs, b)
			want = append(want, b...)
		}
		shape := fmt.Sprint(bufs)
		n, err := f.WritevAt(bufs, 10)
		require.NoError(t, err)
		require.Equal(t, len(want), n)
		require.Equal(t, shape, fmt.Sprint(bufs), "the buffers are not modified")
		require.True(t, bytes.Equal(want, read(t, f, 10, int64(len(want)))), "%d buffers", count)
	}
}

func testTruncateReadsAsZeros(t *testing.T, fsys FS) {
	f := create(t, fsys, "f", "0123456789")
	require.NoError(t, f.Truncate(3))
	require.Equal(t, "012", content(t, fsys, "f"))
	require.NoError(t, f.Truncate(6))
	require.Equal(t, "012\x00\x00\x00", content(t, fsys, "f"))
	require.NoError(t, f.Truncate(0))
	require.Equal(t, "", content(t, fsys, "f"))
}

func testAllocateKeepsContent(t *testing.T, fsys FS) {
	f := create(t, fsys, "f", "0123456789")
	require.NoError(t, f.Allocate(0, 5))
	require.Equal(t, "0123456789", content(t, fsys, "f"))
	require.NoError(t, f.Allocate(8, 8192))
	require.NoError(t, f.Allocate(0, 0))
	got := content(t, fsys, "f")
	require.Len(t, got, 8200)
	require.Equal(t, "0123456789"+string(make([]byte, 8190)), got)
}

func testDirectories(t *testing.T, fsys FS) {
	require.NoError(t, fsys.MkdirAll("."))
	require.NoError(t, fsys.MkdirAll("a/b/c"))
	require.NoError(t, fsys.MkdirAll("a/b"))
	create(t, fsys, "a/z", "12345")
	create(t, fsys, "a/m", "")
	entries, err := fsys.ReadDir("a")
	require.NoError(t, err)
	require.Equal(t, []Entry{{"b", 0, true}, {"m", 0, false}, {"z", 5, false}}, entries)
	entries, err = fsys.ReadDir(".")
	require.NoError(t, err)
	require.Equal(t, []Entry{{"a", 0, true}}, entries)
	entries, err = fsys.ReadDir("a/b/c")
	require.NoError(t, err)
	require.Empty(t, entries)
	e, err := fsys.Stat("a/b")
	require.NoError(t, err)
	require.Equal(t, Entry{Name: "b", Dir: true}, e)
	require.Error(t, fsys.Remove("a/b"), "it is not empty")
	require.NoError(t, fsys.Remove("a/b/c"))
	require.NoError(t, fsys.Remove("a/b"))
	require.NoError(t, fsys.Remove("a/z"))
	require.False(t, exists(t, fsys, "a/b"))
	require.False(t, exists(t, fsys, "a/z"))
}

func testRenameReplaces(t *testing.T, fsys FS) {
	create(t, fsys, "old", "old")
	create(t, fsys, "new", "new")
	require.NoError(t, fsys.Rename("new", "old"))
	require.Equal(t, "new", content(t, fsys, "old"))
	require.False(t, exists(t, fsys, "new"))
	require.NoError(t, fsys.Rename("old", "old"))
	require.Equal(t, "new", content(t, fsys, "old"))

	require.NoError(t, fsys.MkdirAll("d/e"))
	require.NoError(t, fsys.Rename("old", "d/f"))
	require.Equal(t, "new", content(t, fsys, "d/f"))
	require.ErrorIs(t, fsys.Rename("d/f", "d/e"), fs.ErrExist, "a file does not replace a directory")
	require.NoError(t, fsys.MkdirAll("d/g"))
	require.ErrorIs(t, fsys.Rename("d/g", "d/e"), fs.ErrExist, "nor does a directory")
	require.Error(t, fsys.Rename("d/e", "d/f"), "a directory does not replace a file")
	require.Error(t, fsys.Rename("d", "d/e/d"), "a directory does not go into itself")
	require.ErrorIs(t, fsys.Rename("d/f", "missing/f"), fs.ErrNotExist)
	require.NoError(t, fsys.Rename("d", "g"))
	require.Equal(t, "new", content(t, fsys, "g/f"))
	require.False(t, exists(t, fsys, "d"))
}

func testOpenHandlesSurvive(t *testing.T, fsys FS) {
	f := create(t, fsys, "f", "first")
	create(t, fsys, "g", "second")
	require.NoError(t, fsys.Rename("g", "f"))
	require.Equal(t, "first", string(read(t, f, 0, 5)))
	require.NoError(t, fsys.Remove("f"))
	_, err := f.WriteAt([]byte("FIRST"), 0)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.Equal(t, "FIRST", string(read(t, f, 0, 5)))
	create(t, fsys, "f", "third")
	require.Equal(t, "third", content(t, fsys, "f"))
}

func testRemoveAll(t *testing.T, fsys FS) {
	require.NoError(t, fsys.MkdirAll("a/b/c"))
	create(t, fsys, "a/b/f", "x")
	create(t, fsys, "a/g", "x")
	require.NoError(t, fsys.RemoveAll("a/b"))
	require.False(t, exists(t, fsys, "a/b"))
	require.NoError(t, fsys.RemoveAll("a/b"))
	require.NoError(t, fsys.RemoveAll("missing/b"))
	require.NoError(t, fsys.RemoveAll("a/g"))
	require.NoError(t, fsys.RemoveAll("a"))
	require.ErrorIs(t, fsys.RemoveAll("."), fs.ErrInvalid)
	require.ErrorIs(t, fsys.Remove("."), fs.ErrInvalid)
	entries, err := fsys.ReadDir(".")
	require.NoError(t, err)
	require.Empty(t, entries)
}

func testNamesStayInside(t *testing.T, fsys FS) {
	require.NoError(t, fsys.MkdirAll("a"))
	create(t, fsys, "ok", "x")
	for _, name := range []string{"", "..", "../x", "a/../../x", "a/../x", "/etc/passwd", "/", "a//x", "./x", "a/.", "a/", "a/..", "a\x00b"} {
		_, err := fsys.Open(name)
		require.ErrorIs(t, err, fs.ErrInvalid, "%q", name)
		_, err = fsys.OpenWrite(name)
		require.ErrorIs(t, err, fs.ErrInvalid, "%q", name)
		_, err = fsys.Create(name)
		require.ErrorIs(t, err, fs.ErrInvalid, "%q", name)
		_, err = fsys.Stat(name)
		require.ErrorIs(t, err, fs.ErrInvalid, "%q", name)
		_, err = fsys.ReadDir(name)
		require.ErrorIs(t, err, fs.ErrInvalid, "%q", name)
		_, err = fsys.Sub(name)
		require.ErrorIs(t, err, fs.ErrInvalid, "%q", name)
		_, err = fsys.Lock(name, "x")
		require.ErrorIs(t, err, fs.ErrInvalid, "%q", name)
		require.ErrorIs(t, fsys.MkdirAll(name), fs.ErrInvalid, "%q", name)
		require.ErrorIs(t, fsys.Remove(name), fs.ErrInvalid, "%q", name)
		require.ErrorIs(t, fsys.RemoveAll(name), fs.ErrInvalid, "%q", name)
		require.ErrorIs(t, fsys.SyncDir(name), fs.ErrInvalid, "%q", name)
		require.ErrorIs(t, fsys.Rename("ok", name), fs.ErrInvalid, "%q", name)
		require.ErrorIs(t, fsys.Rename(name, "ok2"), fs.ErrInvalid, "%q", name)
	}
	require.True(t, exists(t, fsys, "ok"))
}

func testSubIsATree(t *testing.T, fsys FS) {
	require.NoError(t, fsys.MkdirAll("a/b"))
	sub, err := fsys.Sub("a")
	require.NoError(t, err)
	create(t, sub, "b/f", "x")
	require.Equal(t, "x", content(t, fsys, "a/b/f"))
	_, err = sub.Open("../a/b/f")
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.NoError(t, fsys.Rename("a", "moved"))
	require.Equal(t, "x", content(t, sub, "b/f"), "it follows the directory")
	require.NoError(t, sub.SyncDir("b"))
	require.NoError(t, sub.SyncDir("."))
	require.NoError(t, sub.SyncAll())
	require.NoError(t, sub.Close())
	_, err = sub.Open("b/f")
	require.ErrorIs(t, err, fs.ErrClosed)
	require.Equal(t, "x", content(t, fsys, "moved/b/f"))
}

func testMappingSharesTheFile(t *testing.T, fsys FS) {
	f := create(t, fsys, "f", "")
	require.NoError(t, f.Allocate(0, 8192))
	m, err := f.Map(4096, true)
	require.NoError(t, err)
	require.Len(t, m.Bytes(), 4096)
	ro, err := f.Map(8192, false)
	require.NoError(t, err)
	copy(m.Bytes()[10:], "stored")
	require.Equal(t, "stored", string(read(t, f, 10, 6)))
	require.Equal(t, "stored", string(ro.Bytes()[10:16]))
	_, err = f.WriteAt([]byte("written"), 100)
	require.NoError(t, err)
	require.Equal(t, "written", string(m.Bytes()[100:107]))

	require.NoError(t, f.Allocate(8192, 1<<20)) // beyond what any map could have foreseen
	big, err := f.Map(1<<20, true)
	require.NoError(t, err)
	require.Equal(t, "stored", string(big.Bytes()[10:16]))
	copy(m.Bytes()[20:], "late")
	require.Equal(t, "late", string(read(t, f, 20, 4)), "the first mapping is still the file")
	require.Equal(t, "late", string(big.Bytes()[20:24]))
	require.NoError(t, m.Close())
	require.NoError(t, m.Close())
	require.NoError(t, ro.Close())
	require.NoError(t, f.Sync())
	require.NoError(t, f.Close())
	copy(big.Bytes()[30:], "outlives")
	require.Equal(t, "stored", content(t, fsys, "f")[10:16])
	require.Equal(t, "outlives", content(t, fsys, "f")[30:38])
	require.NoError(t, big.Close())
}

func testMappingBounds(t *testing.T, fsys FS) {
	f := create(t, fsys, "f", "12345")
	for _, size := range []int64{-1, 0, 6, 1 << 40} {
		_, err := f.Map(size, false)
		require.ErrorIs(t, err, fs.ErrInvalid, "%d", size)
	}
	m, err := f.Map(5, false)
	require.NoError(t, err)
	require.Equal(t, "12345", string(m.Bytes()))
	require.NoError(t, m.Close())
}

func testLockExcludes(t *testing.T, fsys FS) {
	l, err := fsys.Lock("LOCK", "node one, process 42")
	require.NoError(t, err)
	require.Equal(t, "node one, process 42", content(t, fsys, "LOCK"))
	_, err = fsys.Lock("LOCK", "node two")
	require.ErrorIs(t, err, ErrLocked)
	require.ErrorContains(t, err, "by node one, process 42")
	other, err := fsys.Lock("OTHER", "node two")
	require.NoError(t, err)
	require.NoError(t, other.Close())
	require.NoError(t, l.Close())
	require.True(t, exists(t, fsys, "LOCK"))
	l, err = fsys.Lock("LOCK", "three")
	require.NoError(t, err)
	require.Equal(t, "three", content(t, fsys, "LOCK"))
	require.NoError(t, l.Close())
	_, err = fsys.Lock("LOCK", string(make([]byte, 257)))
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.NoError(t, fsys.MkdirAll("d"))
	_, err = fsys.Lock("d", "x")
	require.Error(t, err)
}

func testSyncsAndHintsSucceed(t *testing.T, fsys FS) {
	f := create(t, fsys, "f", "12345")
	require.NoError(t, f.Sync())
	require.NoError(t, f.StartWriteback(0, 5))
	require.NoError(t, f.StartWriteback(0, 0))
	require.NoError(t, f.DropCache())
	require.NoError(t, f.ReadAhead(0, 5))
	require.NoError(t, fsys.SyncDir("."))
	require.NoError(t, fsys.SyncAll())
	require.Equal(t, "12345", content(t, fsys, "f"))
	free, total, err := fsys.Space()
	require.NoError(t, err)
	require.NotZero(t, total)
	require.LessOrEqual(t, free, total)
}

func testClosedIsClosed(t *testing.T, fsys FS) {
	f := create(t, fsys, "f", "12345")
	require.NoError(t, f.Close())
	_, err := f.ReadAt(make([]byte, 1), 0)
	require.ErrorIs(t, err, fs.ErrClosed)
	_, err = f.WriteAt(make([]byte, 1), 0)
	require.ErrorIs(t, err, fs.ErrClosed)
	_, err = f.WritevAt([][]byte{make([]byte, 1)}, 0)
	require.ErrorIs(t, err, fs.ErrClosed)
	_, err = f.Size()
	require.ErrorIs(t, err, fs.ErrClosed)
	_, err = f.Map(1, false)
	require.ErrorIs(t, err, fs.ErrClosed)
	require.ErrorIs(t, f.Sync(), fs.ErrClosed)
	require.ErrorIs(t, f.Truncate(1), fs.ErrClosed)
	require.ErrorIs(t, f.Allocate(0, 1), fs.ErrClosed)
	require.ErrorIs(t, f.StartWriteback(0, 1), fs.ErrClosed)
	require.ErrorIs(t, f.DropCache(), fs.ErrClosed)
	require.ErrorIs(t, f.ReadAhead(0, 1), fs.ErrClosed)
	require.ErrorIs(t, f.Close(), fs.ErrClosed)
	require.Equal(t, "12345", content(t, fsys, "f"))
}

func testNegativeNumbersAreErrors(t *testing.T, fsys FS) {
	f := create(t, fsys, "f", "12345")
	_, err := f.ReadAt(make([]byte, 1), -1)
	require.ErrorIs(t, err, fs.ErrInvalid)
	_, err = f.WriteAt(make([]byte, 1), -1)
	require.ErrorIs(t, err, fs.ErrInvalid)
	_, err = f.WritevAt([][]byte{make([]byte, 1)}, -1)
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.ErrorIs(t, f.Truncate(-1), fs.ErrInvalid)
	require.ErrorIs(t, f.Allocate(-1, 10), fs.ErrInvalid)
	require.ErrorIs(t, f.Allocate(0, -1), fs.ErrInvalid)
	require.ErrorIs(t, f.Allocate(1<<62, 1<<62), fs.ErrInvalid)
	require.ErrorIs(t, f.StartWriteback(-1, 1), fs.ErrInvalid)
	require.ErrorIs(t, f.ReadAhead(-1, 1), fs.ErrInvalid)
	require.Equal(t, "12345", content(t, fsys, "f"))
}
