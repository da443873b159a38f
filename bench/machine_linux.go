package bench

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// openExecutable opens the file that was started, even if it has been replaced since.
func openExecutable() (*os.File, error) { return os.Open("/proc/self/exe") }

// ReadMachine describes this machine.
func ReadMachine() (Machine, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return Machine{}, fmt.Errorf("uname: %w", err)
	}
	var s unix.Sysinfo_t
	if err := unix.Sysinfo(&s); err != nil {
		return Machine{}, fmt.Errorf("sysinfo: %w", err)
	}
	cpuinfo, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return Machine{}, err
	}
	kernel := []string{
		unix.ByteSliceToString(u.Sysname[:]), unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Machine[:]),
	}
	return Machine{
		Kernel:     strings.Join(kernel, " "),
		CPUModel:   modelOf(cpuinfo),
		Cores:      runtime.NumCPU(),
		GOMAXPROCS: runtime.GOMAXPROCS(0),
		Memory:     int64(uint64(s.Totalram) * uint64(s.Unit)),
	}, nil
}

func modelOf(cpuinfo []byte) string {
	for line := range bytes.Lines(cpuinfo) {
		name, value, ok := strings.Cut(string(line), ":")
		if ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return unknown
}

// ReadDisk describes the file system that holds dir, which must exist.
func ReadDisk(dir string) (Disk, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return Disk{}, fmt.Errorf("statfs %s: %w", dir, err)
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return Disk{}, fmt.Errorf("stat %s: %w", dir, err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return Disk{}, err
	}
	// The conversion brings the magic to 32 bits on platforms where its type is signed.
	return Disk{FileSystem: fileSystemOf(uint32(fs.Type)), Device: deviceOf(mounts, uint64(st.Dev))}, nil
}

// fileSystems names the magics of statfs(2) that data directories are likely on.
var fileSystems = map[uint32]string{
	unix.EXT4_SUPER_MAGIC:      "ext4", // ext2 and ext3 share it
	unix.XFS_SUPER_MAGIC:       "xfs",
	unix.BTRFS_SUPER_MAGIC:     "btrfs",
	unix.F2FS_SUPER_MAGIC:      "f2fs",
	unix.TMPFS_MAGIC:           "tmpfs",
	unix.RAMFS_MAGIC:           "ramfs",
	unix.OVERLAYFS_SUPER_MAGIC: "overlay",
	unix.NFS_SUPER_MAGIC:       "nfs",
	unix.FUSE_SUPER_MAGIC:      "fuse",
	unix.V9FS_MAGIC:            "9p",
	unix.CEPH_SUPER_MAGIC:      "ceph",
	unix.MSDOS_SUPER_MAGIC:     "vfat",
	unix.CIFS_SUPER_MAGIC:      "cifs",
	0x2fc12fc1:                 "zfs",
	0xca451a4e:                 "bcachefs",
}

func fileSystemOf(magic uint32) string {
	if name, ok := fileSystems[magic]; ok {
		return name
	}
	return fmt.Sprintf("0x%x", magic)
}

// deviceOf finds the mount of device number dev in the text of /proc/PID/mountinfo:
//
//	36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
//	      major:minor                           type  source
//
// A device mounted at several places has one source; a later line wins, as a later
// mount covers an earlier one. A device that is not listed (a btrfs subvolume) is
// named by its number.
func deviceOf(mountinfo []byte, dev uint64) string {
	number := fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev))
	device := number
	for line := range bytes.Lines(mountinfo) {
		mount, source, ok := strings.Cut(string(line), " - ")
		if !ok {
			continue
		}
		left, right := strings.Fields(mount), strings.Fields(source)
		if len(left) >= 3 && left[2] == number && len(right) >= 2 {
			device = right[1]
		}
	}
	return device
}
