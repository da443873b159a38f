//go:build linux || darwin || dragonfly || freebsd

package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"

	"github.com/edsrzf/mmap-go"
	"golang.org/x/sys/unix"
)

// maxWrite is the most bytes of one write call; some systems refuse 2 GiB.
const maxWrite = 1 << 30

// osFile is a file of the real disk.
type osFile struct {
	// immutable
	f    *os.File
	fd   int
	path string

	// mu is held for reading by every call that uses fd, and for writing by
	// Close, so that no call can reach a descriptor that has been given to
	// another file. guarded by mu
	mu     sync.RWMutex
	closed bool

	// guarded by syncMu
	syncMu sync.Mutex
	failed error // what Sync failed with; final
}

func newOSFile(f *os.File, path string) *osFile {
	return &osFile{f: f, fd: int(f.Fd()), path: path}
}

func (f *osFile) err(op string, err error) error { return pathError(op, f.path, err) }

// enter begins a call that uses the descriptor; f.mu.RUnlock ends it if the
// result is nil.
func (f *osFile) enter(op string, pos, n int64) error {
	if pos < 0 || n < 0 || pos+n < 0 {
		return f.err(op, fs.ErrInvalid)
	}
	f.mu.RLock()
	if f.closed {
		f.mu.RUnlock()
		return f.err(op, fs.ErrClosed)
	}
	return nil
}

func (f *osFile) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return f.err("close", f.f.Close())
}

func (f *osFile) ReadAt(p []byte, pos int64) (int, error) {
	if pos < 0 {
		return 0, f.err("read", fs.ErrInvalid)
	}
	return f.f.ReadAt(p, pos)
}

func (f *osFile) WriteAt(p []byte, pos int64) (int, error) {
	if err := f.enter("write", pos, int64(len(p))); err != nil {
		return 0, err
	}
	defer f.mu.RUnlock()
	n, err := f.write(p, pos)
	return n, f.err("write", err)
}

// write writes all of p. os.File.WriteAt does not count what a write did before
// it failed. The caller holds f.mu.
func (f *osFile) write(p []byte, pos int64) (int, error) {
	total := 0
	for total < len(p) {
		n, err := unix.Pwrite(f.fd, p[total:min(len(p), total+maxWrite)], pos+int64(total))
		switch {
		case err == unix.EINTR:
		case err != nil:
			return total, err
		case n == 0:
			return total, io.ErrShortWrite
		default:
			total += n
		}
	}
	return total, nil
}

func (f *osFile) WritevAt(bufs [][]byte, pos int64) (int, error) {
	if err := f.enter("write", pos, 0); err != nil {
		return 0, err
	}
	defer f.mu.RUnlock()
	n, err := f.writev(bufs, pos)
	return n, f.err("write", err)
}

// Sync is final once it failed: the kernel tells a failure one time only and
// may have dropped the bytes, so a later success would be a lie.
func (f *osFile) Sync() error {
	if err := f.enter("sync", 0, 0); err != nil {
		return err
	}
	defer f.mu.RUnlock()
	f.syncMu.Lock()
	defer f.syncMu.Unlock()
	if f.failed == nil {
		f.failed = f.datasync()
	}
	return f.err("sync", f.failed)
}

func (f *osFile) Truncate(size int64) error {
	if err := f.enter("truncate", 0, size); err != nil {
		return err
	}
	defer f.mu.RUnlock()
	return f.err("truncate", f.f.Truncate(size))
}

func (f *osFile) Size() (int64, error) {
	fi, err := f.f.Stat()
	if err != nil {
		return 0, f.err("stat", err)
	}
	return fi.Size(), nil
}

func (f *osFile) Allocate(pos, n int64) error {
	if err := f.enter("allocate", pos, n); err != nil {
		return err
	}
	err := f.allocate(pos, n)
	f.mu.RUnlock()
	if errors.Is(err, errors.ErrUnsupported) {
		err = f.zeroTo(pos + n)
	}
	return f.err("allocate", err)
}

// zeroTo writes zeros from the end of the file to size, where the file system
// cannot allocate. It keeps writers out, whose bytes it could overwrite. Holes
// below the end stay holes.
func (f *osFile) zeroTo(size int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	end, err := f.Size()
	if err != nil {
		return err
	}
	zeros := make([]byte, max(0, min(size-end, 256<<10)))
	for end < size {
		n, err := f.write(zeros[:min(size-end, int64(len(zeros)))], end)
		if err != nil {
			return err
		}
		end += int64(n)
	}
	return nil
}

func (f *osFile) StartWriteback(pos, n int64) error {
	if err := f.enter("writeback", pos, n); err != nil {
		return err
	}
	defer f.mu.RUnlock()
	return f.err("writeback", f.writeback(pos, n))
}

func (f *osFile) DropCache() error {
	if err := f.enter("dropcache", 0, 0); err != nil {
		return err
	}
	defer f.mu.RUnlock()
	return f.err("dropcache", f.dropCache())
}

func (f *osFile) ReadAhead(pos, n int64) error {
	if err := f.enter("readahead", pos, n); err != nil {
		return err
	}
	defer f.mu.RUnlock()
	return f.err("readahead", f.readAhead(pos, n))
}

func (f *osFile) Map(size int64, writable bool) (Mapping, error) {
	if err := f.enter("map", 0, size); err != nil {
		return nil, err
	}
	defer f.mu.RUnlock()
	end, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size == 0 || size > end || int64(int(size)) != size {
		return nil, f.err("map", fs.ErrInvalid)
	}
	prot := mmap.RDONLY
	if writable {
		prot = mmap.RDWR
	}
	m, err := mmap.MapRegion(f.f, int(size), prot, 0, 0)
	if err != nil {
		return nil, f.err("map", err)
	}
	return &osMapping{m: m, path: f.path}, nil
}

func (f *osFile) Fd() (fd uintptr, ok bool) { return uintptr(f.fd), true }

// osMapping is mapped memory.
type osMapping struct {
	m    mmap.MMap // owned by the caller; nil once closed
	path string    // immutable
}

func (m *osMapping) Bytes() []byte { return m.m }

func (m *osMapping) Close() error {
	if m.m == nil {
		return nil
	}
	return pathError("unmap", m.path, m.m.Unmap())
}

// retry repeats a system call for as long as a signal interrupts it.
func retry(call func() error) error {
	for {
		if err := call(); err != syscall.EINTR {
			return err
		}
	}
}
