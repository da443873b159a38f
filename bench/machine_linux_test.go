package bench

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestMachineIsDescribed(t *testing.T) {
	m, err := ReadMachine()
	require.NoError(t, err)
	require.Contains(t, m.Kernel, "Linux ")
	require.NotEmpty(t, m.CPUModel)
	require.Equal(t, runtime.NumCPU(), m.Cores)
	require.Equal(t, runtime.GOMAXPROCS(0), m.GOMAXPROCS)
	require.Greater(t, m.Memory, int64(1<<20))
}

func TestModelIsReadFromCPUInfo(t *testing.T) {
	require.Equal(t, "AMD EPYC", modelOf([]byte("processor\t: 0\nvendor_id\t: x\nmodel name\t: AMD EPYC\nflags\t\t: a b\n")))
	require.Equal(t, "unknown", modelOf([]byte("processor\t: 0\nmodel\t: 17\n")))
	require.Equal(t, "unknown", modelOf(nil))
}

func TestDiskOfADirectoryIsDescribed(t *testing.T) {
	d, err := ReadDisk(t.TempDir())
	require.NoError(t, err)
	require.NotEmpty(t, d.FileSystem)
	require.NotEmpty(t, d.Device)
	d, err = ReadDisk("/proc")
	require.NoError(t, err)
	require.Equal(t, "0x9fa0", d.FileSystem, "a magic without a name is printed")
	_, err = ReadDisk(filepath.Join(t.TempDir(), "absent"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestFileSystemsAreNamedByMagic(t *testing.T) {
	require.Equal(t, "ext4", fileSystemOf(0xef53))
	require.Equal(t, "tmpfs", fileSystemOf(0x01021994))
	require.Equal(t, "btrfs", fileSystemOf(0x9123683e))
	require.Equal(t, "0xdeadbeef", fileSystemOf(0xdeadbeef))
}

func TestDeviceIsFoundInMountInfo(t *testing.T) {
	info := []byte("22 28 0:21 / /sys rw,nosuid shared:7 - sysfs sysfs rw\n" +
		"28 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n" +
		"99 28 254:16 / /data rw - xfs /dev/vdb rw\n" +
		"broken line\n" +
		"100 28 0:50 / /x rw - tmpfs\n")
	require.Equal(t, "/dev/vda1", deviceOf(info, unix.Mkdev(254, 1)))
	require.Equal(t, "/dev/vdb", deviceOf(info, unix.Mkdev(254, 16)))
	require.Equal(t, "0:50", deviceOf(info, unix.Mkdev(0, 50)))
	require.Equal(t, "8:3", deviceOf(info, unix.Mkdev(8, 3)))
}
