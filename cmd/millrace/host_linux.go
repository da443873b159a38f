package main

import "golang.org/x/sys/unix"

// raiseOpenFiles sets the soft limit of open files to the hard one and returns it.
func raiseOpenFiles() (uint64, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, err
	}
	if limit.Cur < limit.Max {
		raised := unix.Rlimit{Cur: limit.Max, Max: limit.Max}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &raised); err != nil {
			return limit.Cur, err
		}
	}
	return limit.Max, nil
}

// fileSystems names the magic numbers of statfs(2).
var fileSystems = map[int64]string{
	unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs", unix.F2FS_SUPER_MAGIC: "f2fs",
	0x2FC12FC1: "zfs", unix.TMPFS_MAGIC: "tmpfs", unix.RAMFS_MAGIC: "ramfs", unix.OVERLAYFS_SUPER_MAGIC: "overlay",
	unix.NFS_SUPER_MAGIC: "nfs", unix.CIFS_SUPER_MAGIC: "cifs", unix.SMB2_SUPER_MAGIC: "smb", unix.FUSE_SUPER_MAGIC: "fuse",
	unix.V9FS_MAGIC: "9p",
}

// fileSystem names the file system of dir; empty when it is not known.
func fileSystem(dir string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return ""
	}
	return fileSystems[int64(st.Type)]
}

// checkWritable tells whether this process may make files in dir.
func checkWritable(dir string) error { return unix.Access(dir, unix.W_OK|unix.X_OK) }
