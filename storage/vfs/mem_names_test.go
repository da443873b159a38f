package vfs

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCreateWithoutSyncDirMayBeLost(t *testing.T) {
	m := NewMem()
	f := create(t, m, "f", "content")
	require.NoError(t, f.Sync())
	seen := outcomes(m, func(image *Mem) string {
		if exists(t, image, "f") {
			return content(t, image, "f")
		}
		return ""
	})
	require.ElementsMatch(t, []string{"", "content"}, keys(seen))

	require.NoError(t, m.SyncDir("."))
	seen = outcomes(m, func(image *Mem) string { return content(t, image, "f") })
	require.Equal(t, map[string]int{"content": seeds}, seen)
}

func TestSyncDirDoesNotSyncContent(t *testing.T) {
	m := NewMem()
	create(t, m, "f", "content")
	require.NoError(t, m.SyncDir("."))
	seen := outcomes(m, func(image *Mem) string { return content(t, image, "f") })
	require.NotZero(t, seen[""])
	require.NotZero(t, seen["content"])
	require.NotZero(t, seen[string(make([]byte, 7))], "the size without the bytes")
}

func TestRenameLeavesOldOrNewNeverNeither(t *testing.T) {
	m := NewMem()
	create(t, m, "MANIFEST", "old")
	require.NoError(t, m.SyncAll())
	f := create(t, m, "tmp", "new")
	require.NoError(t, f.Sync())
	require.NoError(t, m.Rename("tmp", "MANIFEST"))
	see := func(image *Mem) string {
		return content(t, image, "MANIFEST") + " " + names(t, image, "tmp")
	}
	require.ElementsMatch(t, []string{"old ", "old tmp", "new "}, keys(outcomes(m, see)))

	require.NoError(t, m.SyncDir("."))
	require.Equal(t, map[string]int{"new ": seeds}, outcomes(m, see))
}

func TestRenameWithoutSyncMayLeaveAnEmptyFile(t *testing.T) {
	m := NewMem()
	create(t, m, "MANIFEST", "old")
	require.NoError(t, m.SyncAll())
	create(t, m, "tmp", "new") // not synced
	require.NoError(t, m.Rename("tmp", "MANIFEST"))
	require.NoError(t, m.SyncDir("."))
	seen := outcomes(m, func(image *Mem) string { return content(t, image, "MANIFEST") })
	require.NotZero(t, seen[""])
	require.Zero(t, seen["old"])
}

func TestRenameAcrossDirectories(t *testing.T) {
	see := func(image *Mem) string { return names(t, image, "a/f", "b/f") }
	for _, c := range []struct {
		sync []string
		want []string
	}{
		{nil, []string{"a/f", "b/f"}},
		{[]string{"b"}, []string{"b/f", "a/f b/f"}},
		{[]string{"a"}, []string{"b/f"}},
		{[]string{"b", "a"}, []string{"b/f"}},
	} {
		m := NewMem()
		require.NoError(t, m.MkdirAll("a"))
		require.NoError(t, m.MkdirAll("b"))
		create(t, m, "a/f", "content")
		require.NoError(t, m.SyncAll())
		require.NoError(t, m.Rename("a/f", "b/f"))
		for _, dir := range c.sync {
			require.NoError(t, m.SyncDir(dir))
		}
		require.ElementsMatch(t, c.want, keys(outcomes(m, see)), "synced %v", c.sync)
	}
}

func TestRenameIntoALostDirectoryDoesNotLoseTheFile(t *testing.T) {
	see := func(image *Mem) string { return names(t, image, "f", "new/sub/f") }
	for _, sync := range []string{"", "new", "new/sub", "."} {
		m := NewMem()
		create(t, m, "f", "content")
		require.NoError(t, m.SyncAll())
		require.NoError(t, m.MkdirAll("new/sub"))
		require.NoError(t, m.Rename("f", "new/sub/f"))
		if sync != "" {
			require.NoError(t, m.SyncDir(sync))
		}
		seen := outcomes(m, see)
		require.Zero(t, seen[""], "synced %q: %v", sync, seen)
		if sync == "." { // the old name is gone for good, so the new one is there
			require.Equal(t, map[string]int{"new/sub/f": seeds}, seen)
		}
	}
}

func TestDirectoriesNeverEndUpInsideEachOther(t *testing.T) {
	m := NewMem()
	require.NoError(t, m.MkdirAll("a"))
	require.NoError(t, m.MkdirAll("b"))
	create(t, m, "a/in-a", "")
	create(t, m, "b/in-b", "")
	require.NoError(t, m.SyncAll())
	require.NoError(t, m.Rename("a", "b/a"))
	require.NoError(t, m.Rename("b/a", "c"))
	require.NoError(t, m.Rename("b", "c/b"))
	for state := range outcomes(m, func(image *Mem) string {
		return names(t, image, "a/in-a", "b/a/in-a", "c/in-a") + "," + names(t, image, "b/in-b", "c/b/in-b")
	}) {
		inA, inB, _ := strings.Cut(state, ",")
		require.NotEmpty(t, inA, state)
		require.NotEmpty(t, inB, state)
	}
}

func TestOperationsOnOneNameKeepTheirOrder(t *testing.T) {
	m := NewMem()
	create(t, m, "f", "1")
	require.NoError(t, m.SyncAll())
	require.NoError(t, m.Remove("f"))
	f := create(t, m, "f", "2")
	require.NoError(t, f.Sync())
	g := create(t, m, "g", "3")
	require.NoError(t, g.Sync())
	require.NoError(t, m.Rename("g", "f"))
	seen := outcomes(m, func(image *Mem) string {
		if !exists(t, image, "f") {
			return "gone"
		}
		return content(t, image, "f")
	})
	require.ElementsMatch(t, []string{"1", "gone", "2", "3"}, keys(seen))
}

func TestOperationsOnDifferentNamesHaveNoOrder(t *testing.T) {
	m := NewMem()
	create(t, m, "old", "")
	require.NoError(t, m.SyncAll())
	create(t, m, "a", "")
	create(t, m, "b", "")
	require.NoError(t, m.Remove("old"))
	seen := outcomes(m, func(image *Mem) string { return names(t, image, "a", "b", "old") })
	require.ElementsMatch(t, []string{"", "a", "b", "a b", "old", "a old", "b old", "a b old"}, keys(seen))
}

func TestRemovedMayComeBackUntilSyncDir(t *testing.T) {
	m := NewMem()
	require.NoError(t, m.MkdirAll("d/e"))
	create(t, m, "d/e/f", "x")
	require.NoError(t, m.SyncAll())
	require.NoError(t, m.RemoveAll("d"))
	see := func(image *Mem) string { return names(t, image, "d", "d/e", "d/e/f") }
	seen := outcomes(m, see)
	require.NotZero(t, seen["d d/e d/e/f"])
	require.NotZero(t, seen["d d/e"])
	require.NotZero(t, seen[""])
	require.NoError(t, m.SyncDir("."))
	require.Equal(t, map[string]int{"": seeds}, outcomes(m, see))
}

func TestLostDirectoryTakesItsFilesAlong(t *testing.T) {
	m := NewMem()
	require.NoError(t, m.MkdirAll("d"))
	f := create(t, m, "d/f", "x")
	require.NoError(t, f.Sync())
	require.NoError(t, m.SyncDir("d"))
	seen := outcomes(m, func(image *Mem) string { return names(t, image, "d", "d/f") })
	require.ElementsMatch(t, []string{"", "d d/f"}, keys(seen))
}
