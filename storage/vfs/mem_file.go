package vfs

import (
	"io"
	"io/fs"
	"math"
	"slices"
	"syscall"
)

// maxMemFile is the greatest size of a file of a Mem.
const maxMemFile = math.MaxInt32

// memFile is an open file of a Mem.
type memFile struct {
	// immutable
	disk     *memDisk
	node     *memNode
	path     string
	writable bool

	// guarded by disk.mu
	closed bool
}

func (f *memFile) err(op string, err error) error { return pathError(op, f.path, err) }

// enter begins an operation; f.disk.mu.Unlock ends it if the result is nil.
func (f *memFile) enter(op string, pos, n int64, write bool) error {
	if pos < 0 || n < 0 || pos > math.MaxInt64-n {
		return f.err(op, fs.ErrInvalid)
	}
	f.disk.mu.Lock()
	var err error
	switch {
	case f.closed:
		err = fs.ErrClosed
	case write && !f.writable:
		err = syscall.EBADF
	case write && pos+n > maxMemFile:
		err = syscall.EFBIG
	default:
		return nil
	}
	f.disk.mu.Unlock()
	return f.err(op, err)
}

func (f *memFile) Close() error {
	if err := f.enter("close", 0, 0, false); err != nil {
		return err
	}
	defer f.disk.mu.Unlock()
	f.closed = true
	return nil
}

func (f *memFile) ReadAt(p []byte, pos int64) (int, error) {
	if err := f.enter("read", pos, 0, false); err != nil {
		return 0, err
	}
	defer f.disk.mu.Unlock()
	n := f.node
	n.absorb()
	if pos >= int64(len(n.data)) {
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	got := min(len(p), len(n.data)-int(pos))
	n.copyBytes(p[:got], n.data[pos:])
	if got < len(p) {
		return got, io.EOF
	}
	return got, nil
}

func (f *memFile) WriteAt(p []byte, pos int64) (int, error) {
	if err := f.enter("write", pos, int64(len(p)), true); err != nil {
		return 0, err
	}
	defer f.disk.mu.Unlock()
	f.node.write(p, int(pos))
	return len(p), nil
}

func (f *memFile) WritevAt(bufs [][]byte, pos int64) (int, error) {
	total := 0
	for _, b := range bufs {
		total += len(b)
	}
	if err := f.enter("write", pos, int64(total), true); err != nil {
		return 0, err
	}
	defer f.disk.mu.Unlock()
	for _, b := range bufs {
		f.node.write(b, int(pos))
		pos += int64(len(b))
	}
	return total, nil
}

func (f *memFile) Sync() error {
	if err := f.enter("sync", 0, 0, false); err != nil {
		return err
	}
	f.node.sync()
	f.disk.mu.Unlock()
	f.disk.synced("Sync", f.path)
	return nil
}

// failSync is Sync of a disk that fails: see memNode.forget.
func (f *memFile) failSync() {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	f.node.forget()
}

func (f *memFile) Truncate(size int64) error {
	if err := f.enter("truncate", 0, size, true); err != nil {
		return err
	}
	defer f.disk.mu.Unlock()
	f.node.resize(int(size))
	return nil
}

func (f *memFile) Size() (int64, error) {
	if err := f.enter("stat", 0, 0, false); err != nil {
		return 0, err
	}
	defer f.disk.mu.Unlock()
	return int64(len(f.node.data)), nil
}

func (f *memFile) Allocate(pos, n int64) error {
	if err := f.enter("allocate", pos, n, true); err != nil {
		return err
	}
	defer f.disk.mu.Unlock()
	if end := int(pos + n); n > 0 && end > len(f.node.data) {
		f.node.resize(end)
	}
	return nil
}

// hint is an operation that does nothing.
func (f *memFile) hint(op string, pos, n int64) error {
	if err := f.enter(op, pos, n, false); err != nil {
		return err
	}
	f.disk.mu.Unlock()
	return nil
}

func (f *memFile) StartWriteback(pos, n int64) error { return f.hint("writeback", pos, n) }

func (f *memFile) DropCache() error { return f.hint("dropcache", 0, 0) }

func (f *memFile) ReadAhead(pos, n int64) error { return f.hint("readahead", pos, n) }

func (f *memFile) Fd() (fd uintptr, ok bool) { return 0, false }

func (f *memFile) Map(size int64, writable bool) (Mapping, error) {
	if err := f.enter("map", 0, size, writable); err != nil {
		return nil, err
	}
	defer f.disk.mu.Unlock()
	n := f.node
	n.absorb()
	if size == 0 || size > int64(len(n.data)) {
		return nil, f.err("map", fs.ErrInvalid)
	}
	n.shared = true
	if want := min(4*size, size+4<<20); len(n.maps) == 0 && int64(cap(n.data)) < want {
		n.move(int(want)) // room to grow before the mapping is left behind
	}
	m := &memMapping{disk: f.disk, node: n, mem: n.data[:size:size], writable: writable}
	n.maps = append(n.maps, m)
	if writable {
		n.mapped = max(n.mapped, int(size))
	}
	return m, nil
}

// memMapping is a mapping of a file: a part of the array of its content. When
// the file outgrows the array, what is stored to the mapping still reaches the
// file, at its next operation; what is written to the file afterwards is not
// seen in the mapping any more.
type memMapping struct {
	// immutable
	disk     *memDisk
	node     *memNode
	writable bool

	// guarded by disk.mu
	mem  []byte // nil once closed
	base []byte // what the file has taken over; nil while the array is the file's
}

func (m *memMapping) Bytes() []byte {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	return m.mem
}

func (m *memMapping) Close() error {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	if m.mem == nil {
		return nil
	}
	m.node.absorb()
	m.node.maps = slices.DeleteFunc(m.node.maps, func(o *memMapping) bool { return o == m })
	m.mem = nil
	return nil
}
