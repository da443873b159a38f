package vfs

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// writeCalls returns how many write system calls the process has made.
func writeCalls(t *testing.T) int {
	b, err := os.ReadFile("/proc/self/io")
	require.NoError(t, err)
	var rchar, wchar, syscr, syscw int
	_, err = fmt.Sscanf(string(b), "rchar: %d\nwchar: %d\nsyscr: %d\nsyscw: %d", &rchar, &wchar, &syscr, &syscw)
	require.NoError(t, err)
	return syscw
}

func TestWritevIsOneSystemCall(t *testing.T) {
	fsys, _ := openOS(t)
	f, err := fsys.Create("f")
	require.NoError(t, err)
	defer f.Close()
	for count, calls := range map[int]int{1: 1, 16: 1, 1024: 1, 1025: 2, 3000: 3} {
		bufs := make([][]byte, count)
		for i := range bufs {
			bufs[i] = []byte("12345")
		}
		before := writeCalls(t)
		_, err := f.WritevAt(bufs, 0)
		require.NoError(t, err)
		require.Equal(t, calls, writeCalls(t)-before, "%d buffers", count)
	}
}

func TestShortWriteIsToldWithItsBytes(t *testing.T) {
	fsys, _ := openOS(t)
	f, err := fsys.Create("f")
	require.NoError(t, err)
	defer f.Close()
	bufs := make([][]byte, 16)
	for i := range bufs {
		bufs[i] = make([]byte, 512)
		for j := range bufs[i] {
			bufs[i][j] = byte(i)
		}
	}
	// The kernel writes up to the limit first and refuses the rest when asked again.
	var old unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &old))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1808, Max: old.Max}))
	n, err := f.WritevAt(bufs, 100)
	one, errOne := f.WriteAt(make([]byte, 5000), 1000)
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &old))
	require.ErrorIs(t, err, syscall.EFBIG)
	require.ErrorContains(t, err, "/f: ")
	require.Equal(t, 1708, n)
	require.ErrorIs(t, errOne, syscall.EFBIG)
	require.Equal(t, 808, one)
	size, err := f.Size()
	require.NoError(t, err)
	require.EqualValues(t, 1808, size)
	require.Equal(t, byte(1), read(t, f, 100+512, 1)[0])
}

func TestHintsThatAreUnknownAreNoErrors(t *testing.T) {
	require.NoError(t, hint(syscall.ENOSYS))
	require.NoError(t, hint(syscall.EOPNOTSUPP))
	require.ErrorIs(t, hint(syscall.EIO), syscall.EIO)
}

func TestInterruptedCallsAreRepeated(t *testing.T) {
	left := 3
	require.NoError(t, retry(func() error {
		if left--; left > 0 {
			return syscall.EINTR
		}
		return nil
	}))
	require.Zero(t, left)
}
