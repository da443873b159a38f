//go:build linux || darwin || dragonfly || freebsd

package vfs

import (
	"fmt"
	"math/rand/v2"
	"path"
	"testing"

	"github.com/stretchr/testify/require"
)

// tree tells all names and contents of a tree.
func tree(t *testing.T, fsys FS, dir string) []string {
	entries, err := fsys.ReadDir(dir)
	require.NoError(t, err)
	var all []string
	for _, e := range entries {
		name := path.Join(dir, e.Name)
		if e.Dir {
			all = append(all, name+"/")
			all = append(all, tree(t, fsys, name)...)
			continue
		}
		all = append(all, fmt.Sprintf("%s %d %x", name, e.Size, content(t, fsys, name)))
	}
	return all
}

// randomOp does one operation chosen by rng and tells whether it succeeded.
func randomOp(rng *rand.Rand, fsys FS) (string, bool) {
	name := func() string {
		s := string(rune('a' + rng.IntN(3)))
		for rng.IntN(2) == 0 {
			s += "/" + string(rune('a'+rng.IntN(3)))
		}
		return s
	}
	kind, a, b, pos, n := rng.IntN(12), name(), name(), rng.IntN(3000), rng.IntN(2000)
	op := fmt.Sprint(kind, " ", a, " ", b, " ", pos, " ", n)
	file := func(f File, err error, do func(File) error) bool {
		if err != nil {
			return false
		}
		err = do(f)
		return f.Close() == nil && err == nil
	}
	switch kind {
	case 0, 1:
		f, err := fsys.Create(a)
		return op, file(f, err, func(File) error { return nil })
	case 2, 3:
		return op, fsys.MkdirAll(a) == nil
	case 4:
		return op, fsys.Rename(a, b) == nil
	case 5:
		return op, fsys.Remove(a) == nil
	case 6:
		return op, rng.IntN(4) > 0 || fsys.RemoveAll(a) == nil
	case 7:
		return op, fsys.SyncDir(a) == nil
	}
	f, err := fsys.OpenWrite(a)
	return op, file(f, err, func(f File) error {
		switch kind {
		case 8:
			return f.Truncate(int64(n))
		case 9:
			return f.Allocate(int64(pos), int64(n))
		case 10:
			_, err := f.WritevAt([][]byte{[]byte(a), nil, []byte(b)}, int64(pos))
			return err
		}
		_, err := f.WriteAt(make([]byte, n%5), int64(pos))
		return err
	})
}

// TestMemDoesWhatTheRealDiskDoes compares them after each of many operations.
func TestMemDoesWhatTheRealDiskDoes(t *testing.T) {
	for seed := range uint64(20) {
		real, _ := openOS(t)
		mem := NewMem()
		one, two := rand.New(rand.NewPCG(seed, 0)), rand.New(rand.NewPCG(seed, 0))
		done := 0
		for range 150 {
			op, want := randomOp(one, real)
			_, got := randomOp(two, mem)
			require.Equal(t, want, got, "seed %d: %s", seed, op)
			if want {
				done++
			}
			require.Equal(t, tree(t, real, "."), tree(t, mem, "."), "seed %d: %s", seed, op)
		}
		require.Greater(t, done, 20)
		require.Equal(t, tree(t, mem, "."), tree(t, mem.CrashClean(), "."))
		require.NoError(t, mem.SyncAll())
		require.Equal(t, tree(t, mem, "."), tree(t, mem.Crash(one), "."))
	}
}
