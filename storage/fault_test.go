package storage

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/storage/vfs"
)

// TestIndexThatIsCutWhileItIsMappedIsReplaced takes the pages away from under the mappings of a
// log that appends and reads. That is a fault of the processor, which must end in a rebuilt
// index and not in the end of the process.
func TestIndexThatIsCutWhileItIsMappedIsReplaced(t *testing.T) {
	dir := t.TempDir()
	fsys, err := vfs.OS(dir)
	require.NoError(t, err)
	s, l, _ := testLog(t, fsys, newClock(), LogOptions{SegmentBytes: 1 << 20})
	for i := range 200 {
		appendRun(t, l, runOf(t, 3, 10, 300, uint64(i)))
	}
	want := readAll(t, l, 0, 100<<10)
	_, segments := l.Size()
	require.Greater(t, segments, 1)
	held, err := l.Seek(0) // keeps nothing open; the sealed segments' files are in the cache
	require.NoError(t, err)
	list, err := filepath.Glob(filepath.Join(dir, testDir, "*"+idxSuffix))
	require.NoError(t, err)
	require.Len(t, list, segments)
	for _, name := range list {
		require.NoError(t, os.Truncate(name, 0))
	}
	require.Equal(t, want, readAll(t, l, 0, 100<<10))
	require.Equal(t, uint64(0), held.Offset)
	for i := range 50 {
		appendRun(t, l, runOf(t, 3, 10, 300, uint64(i)))
	}
	require.Len(t, readAll(t, l, 0, 100<<10), len(want)+50*30)
	require.Positive(t, s.Stats().IndexRebuilds)
	require.NoError(t, l.Close())
	require.NoError(t, s.Close())

	s, l, rep := testLog(t, fsys, newClock(), LogOptions{SegmentBytes: 1 << 20})
	require.True(t, rep.Clean, rep.String())
	require.Len(t, readAll(t, l, 0, 100<<10), len(want)+50*30)
	require.NoError(t, l.Close())
	require.NoError(t, s.Close())
}
