//go:build linux || darwin || dragonfly || freebsd

package vfs

import (
	"bufio"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// lockEnv makes the test binary a process that takes a lock and waits.
const lockEnv = "VFS_TEST_LOCK_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(lockEnv); dir != "" {
		os.Exit(holdLock(dir))
	}
	os.Exit(m.Run())
}

// holdLock takes the lock, says so, and keeps it until it is killed or its
// standard input ends.
func holdLock(dir string) int {
	fsys, err := OS(dir)
	if err == nil {
		_, err = fsys.Lock("LOCK", "child")
	}
	if err != nil {
		os.Stdout.WriteString(err.Error() + "\n")
		return 1
	}
	os.Stdout.WriteString("locked\n")
	io.Copy(io.Discard, os.Stdin)
	return 0
}

func openOS(t *testing.T) (FS, string) {
	dir := filepath.Join(t.TempDir(), "made", "data")
	fsys, err := OS(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, fsys.Close()) })
	return fsys, dir
}

func TestLockIsFreeAfterItsHolderWasKilled(t *testing.T) {
	fsys, dir := openOS(t)
	exe, err := os.Executable()
	require.NoError(t, err)
	child := exec.Command(exe)
	child.Env = append(os.Environ(), lockEnv+"="+dir)
	in, err := child.StdinPipe()
	require.NoError(t, err)
	defer in.Close()
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "locked\n", line)

	_, err = fsys.Lock("LOCK", "parent")
	require.ErrorIs(t, err, ErrLocked)
	require.ErrorContains(t, err, "by child")

	require.NoError(t, child.Process.Kill())
	require.Error(t, child.Wait())
	l, err := fsys.Lock("LOCK", "parent")
	require.NoError(t, err)
	b, err := os.ReadFile(filepath.Join(dir, "LOCK"))
	require.NoError(t, err)
	require.Equal(t, "parent", string(b))
	require.NoError(t, l.Close())
}

func TestLockHoldsBetweenTwoTreesOfOneProcess(t *testing.T) {
	one, dir := openOS(t)
	two, err := OS(dir)
	require.NoError(t, err)
	defer two.Close()
	l, err := one.Lock("LOCK", "one")
	require.NoError(t, err)
	_, err = two.Lock("LOCK", "two")
	require.ErrorIs(t, err, ErrLocked)
	require.ErrorContains(t, err, "by one")
	require.NoError(t, l.Close())
	l, err = two.Lock("LOCK", "two")
	require.NoError(t, err)
	require.NoError(t, l.Close())
}

func TestModesKeepOthersOut(t *testing.T) {
	fsys, dir := openOS(t)
	require.NoError(t, fsys.MkdirAll("a/b"))
	create(t, fsys, "a/b/f", "")
	for name, mode := range map[string]fs.FileMode{"": 0o700, "a": 0o700, "a/b": 0o700, "a/b/f": 0o600} {
		fi, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, mode, fi.Mode().Perm(), name)
	}
}

func TestSymlinksDoNotLeadOut(t *testing.T) {
	fsys, dir := openOS(t)
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	require.NoError(t, os.WriteFile(secret, []byte("secret"), 0o600))
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "dir")))
	require.NoError(t, os.Symlink(secret, filepath.Join(dir, "file")))
	require.NoError(t, os.Symlink("../../..", filepath.Join(dir, "up")))
	create(t, fsys, "inside", "x")

	for _, name := range []string{"file", "dir/secret", "up/x", "dir", "up"} {
		_, err := fsys.Open(name)
		require.Error(t, err, name)
		_, err = fsys.OpenWrite(name)
		require.Error(t, err, name)
		_, err = fsys.Stat(name)
		require.Error(t, err, name)
		_, err = fsys.Lock(name, "x")
		require.Error(t, err, name)
		_, err = fsys.Sub(name)
		require.Error(t, err, name)
		_, err = fsys.ReadDir(name)
		require.Error(t, err, name)
		require.Error(t, fsys.SyncDir(name), name)
	}
	for _, name := range []string{"dir/new", "up/new"} {
		_, err := fsys.Create(name)
		require.Error(t, err, name)
		require.Error(t, fsys.MkdirAll(name), name)
		require.Error(t, fsys.Rename("inside", name), name)
	}
	require.Error(t, fsys.Remove("dir/secret"))
	require.Error(t, fsys.RemoveAll("dir/secret"))
	require.NoError(t, fsys.RemoveAll("dir"), "the link itself goes")
	b, err := os.ReadFile(secret)
	require.NoError(t, err)
	require.Equal(t, "secret", string(b))
	entries, err := os.ReadDir(outside)
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

func TestWritesDoNotAllocate(t *testing.T) {
	fsys, _ := openOS(t)
	f, err := fsys.Create("f")
	require.NoError(t, err)
	defer f.Close()
	p := make([]byte, 512)
	bufs := make([][]byte, 16)
	for i := range bufs {
		bufs[i] = make([]byte, 100+i)
	}
	require.Zero(t, testing.AllocsPerRun(200, func() {
		if _, err := f.WriteAt(p, 4096); err != nil {
			panic(err)
		}
	}))
	require.Zero(t, testing.AllocsPerRun(200, func() {
		if _, err := f.WritevAt(bufs, 8192); err != nil {
			panic(err)
		}
	}))
	require.Zero(t, testing.AllocsPerRun(20, func() {
		if err := f.Sync(); err != nil {
			panic(err)
		}
	}))
}

func TestAllocateTakesBlocks(t *testing.T) {
	fsys, dir := openOS(t)
	f, err := fsys.Create("f")
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.Allocate(0, 1<<20))
	fi, err := os.Stat(filepath.Join(dir, "f"))
	require.NoError(t, err)
	require.EqualValues(t, 1<<20, fi.Size())
	require.GreaterOrEqual(t, fi.Sys().(*syscall.Stat_t).Blocks*512, int64(1<<20))
}

func TestZeroToLeavesTheContent(t *testing.T) {
	fsys, _ := openOS(t)
	f, err := fsys.Create("f")
	require.NoError(t, err)
	defer f.Close()
	_, err = f.WriteAt([]byte("content"), 0)
	require.NoError(t, err)
	for _, size := range []int64{3, 1 << 20, 300<<10 + 1<<20} {
		require.NoError(t, f.(*osFile).zeroTo(size))
		got, err := f.Size()
		require.NoError(t, err)
		require.Equal(t, max(7, size), got)
	}
	require.Equal(t, "content\x00", string(read(t, f, 0, 8)))
}

func TestCallsAfterCloseDoNotReachAnotherFile(t *testing.T) {
	fsys, _ := openOS(t)
	f, err := fsys.Create("old")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	g, err := fsys.Create("new") // takes the descriptor's number
	require.NoError(t, err)
	defer g.Close()
	_, err = f.WritevAt([][]byte{[]byte("lost")}, 0)
	require.ErrorIs(t, err, fs.ErrClosed)
	require.ErrorIs(t, f.Truncate(100), fs.ErrClosed)
	require.ErrorIs(t, f.Allocate(0, 100), fs.ErrClosed)
	require.ErrorIs(t, f.Sync(), fs.ErrClosed)
	size, err := g.Size()
	require.NoError(t, err)
	require.Zero(t, size)
}

func TestFailedSyncIsFinal(t *testing.T) {
	fsys, _ := openOS(t)
	f, err := fsys.Create("f")
	require.NoError(t, err)
	defer f.Close()
	f.(*osFile).failed = syscall.EIO
	require.ErrorIs(t, f.Sync(), syscall.EIO)

	sub := fsys
	require.NoError(t, fsys.MkdirAll("d"))
	sub, err = fsys.Sub("d")
	require.NoError(t, err)
	require.NoError(t, sub.SyncAll())
	fsys.(*osFS).disk.failed = syscall.EIO
	require.ErrorIs(t, sub.SyncAll(), syscall.EIO, "trees of one disk share its fate")
	require.NoError(t, sub.Close())
	require.ErrorIs(t, sub.Close(), fs.ErrClosed)
	_, _, err = fsys.Space()
	require.NoError(t, err, "the disk outlives the Sub")
}

func TestFdIsTheFile(t *testing.T) {
	fsys, dir := openOS(t)
	f := create(t, fsys, "f", "content")
	fd, ok := f.Fd()
	require.True(t, ok)
	var st syscall.Stat_t
	require.NoError(t, syscall.Fstat(int(fd), &st))
	fi, err := os.Stat(filepath.Join(dir, "f"))
	require.NoError(t, err)
	require.Equal(t, fi.Sys().(*syscall.Stat_t).Ino, st.Ino)
}
