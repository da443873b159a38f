package vfs

import (
	"errors"
	"io"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxVectors is IOV_MAX of Linux, the most buffers of one system call.
const maxVectors = 1024

// vector is a list of buffers in the form the kernel takes.
type vector struct{ iov []unix.Iovec }

// vectors keeps lists for reuse. A list in it holds no pointers.
var vectors = sync.Pool{New: func() any { return &vector{iov: make([]unix.Iovec, 0, 64)} }}

// fill lists the buffers from skip bytes into bufs[0] on, up to maxVectors.
func (v *vector) fill(bufs [][]byte, skip int) {
	v.iov = v.iov[:0]
	for _, b := range bufs {
		if b = b[skip:]; len(b) > 0 {
			e := unix.Iovec{Base: unsafe.SliceData(b)}
			e.SetLen(len(b))
			v.iov = append(v.iov, e)
		}
		if skip = 0; len(v.iov) == maxVectors {
			return
		}
	}
}

// writev writes all of bufs at pos. The caller holds f.mu for reading.
func (f *osFile) writev(bufs [][]byte, pos int64) (int, error) {
	v := vectors.Get().(*vector)
	total, skip := 0, 0
	var err error
	for err == nil {
		for len(bufs) > 0 && skip >= len(bufs[0]) {
			skip -= len(bufs[0])
			bufs = bufs[1:]
		}
		if len(bufs) == 0 {
			break
		}
		v.fill(bufs, skip)
		var n int
		if n, err = pwritev(f.fd, v.iov, pos+int64(total)); n == 0 && err == nil {
			err = io.ErrShortWrite
		}
		total += n
		skip += n
	}
	clear(v.iov)
	vectors.Put(v)
	return total, err
}

// pwritev is one system call. unix.Pwritev builds its list anew every time.
func pwritev(fd int, iov []unix.Iovec, pos int64) (int, error) {
	lo := uintptr(pos)
	hi := uintptr(uint64(pos) >> (8*unix.SizeofLong - 1) >> 1) // 0 where a word holds pos
	for {
		n, _, e := unix.Syscall6(unix.SYS_PWRITEV, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(iov))),
			uintptr(len(iov)), lo, hi, 0)
		switch e {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, e
		}
	}
}

// datasync loops by hand for want of a closure that would be allocated.
func (f *osFile) datasync() error {
	for {
		if err := unix.Fdatasync(f.fd); err != unix.EINTR {
			return err
		}
	}
}

func (f *osFile) allocate(pos, n int64) error {
	if n == 0 {
		return nil
	}
	return retry(func() error { return unix.Fallocate(f.fd, 0, pos, n) })
}

func (f *osFile) writeback(pos, n int64) error {
	return hint(retry(func() error {
		return unix.SyncFileRange(f.fd, pos, n, unix.SYNC_FILE_RANGE_WRITE)
	}))
}

func (f *osFile) dropCache() error {
	return hint(retry(func() error { return unix.Fadvise(f.fd, 0, 0, unix.FADV_DONTNEED) }))
}

func (f *osFile) readAhead(pos, n int64) error {
	return hint(retry(func() error { return unix.Fadvise(f.fd, pos, n, unix.FADV_WILLNEED) }))
}

// hint drops the error of a kernel or file system that does not know the call.
func hint(err error) error {
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

// syncAll syncs the whole file system dir lies on.
func syncAll(_ *os.Root, dir *os.File) error {
	return control(dir, func(fd int) error { return unix.Syncfs(fd) })
}

func space(dir *os.File) (free, total uint64, err error) {
	var st unix.Statfs_t
	err = control(dir, func(fd int) error { return unix.Fstatfs(fd, &st) })
	return st.Bavail * uint64(st.Frsize), st.Blocks * uint64(st.Frsize), err
}

// control makes a system call with the descriptor of f while f is open.
func control(f *os.File, call func(fd int) error) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = c.Control(func(fd uintptr) { failed = retry(func() error { return call(int(fd)) }) })
	if err != nil {
		return err
	}
	return failed
}
