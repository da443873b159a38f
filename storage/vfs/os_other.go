//go:build darwin || dragonfly || freebsd

package vfs

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

func (f *osFile) writev(bufs [][]byte, pos int64) (int, error) {
	total := 0
	for _, b := range bufs {
		n, err := f.write(b, pos+int64(total))
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// datasync is a full flush, also of the drive's own cache on darwin.
func (f *osFile) datasync() error { return f.f.Sync() }

func (f *osFile) allocate(pos, n int64) error { return errors.ErrUnsupported }

func (f *osFile) writeback(pos, n int64) error { return nil }

func (f *osFile) dropCache() error { return nil }

func (f *osFile) readAhead(pos, n int64) error { return nil }

// syncAll syncs every file and directory of the tree, as there is no call that
// waits for a whole file system.
func syncAll(root *os.Root, _ *os.File) error {
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() && !d.Type().IsRegular() {
			return ignoreMissing(err)
		}
		f, err := root.Open(name)
		if err != nil {
			return ignoreMissing(err)
		}
		return errors.Join(f.Sync(), f.Close())
	})
}

// ignoreMissing drops the error of a name that was removed meanwhile.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func space(dir *os.File) (free, total uint64, err error) {
	var st unix.Statfs_t
	err = retry(func() error { return unix.Fstatfs(int(dir.Fd()), &st) })
	return uint64(max(0, st.Bavail)) * uint64(st.Bsize), uint64(st.Blocks) * uint64(st.Bsize), err
}
