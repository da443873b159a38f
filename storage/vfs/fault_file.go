package vfs

import "errors"

// faultFile is a file whose operations are checked. Fd passes through.
type faultFile struct {
	File
	faults *faults
	name   string
}

func (f *faultFile) check(kind OpKind, pos, size int64) error {
	return f.faults.check(Op{Kind: kind, Name: f.name, Pos: pos, Size: size})
}

func (f *faultFile) ReadAt(p []byte, pos int64) (int, error) {
	if err := f.check(OpRead, pos, int64(len(p))); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, pos)
}

func (f *faultFile) WriteAt(p []byte, pos int64) (int, error) {
	if err := f.check(OpWrite, pos, int64(len(p))); err != nil {
		n, wrote := f.File.WriteAt(p[:shortened(err, len(p))], pos)
		return n, both(err, wrote)
	}
	return f.File.WriteAt(p, pos)
}

func (f *faultFile) WritevAt(bufs [][]byte, pos int64) (int, error) {
	total := 0
	for _, b := range bufs {
		total += len(b)
	}
	if err := f.check(OpWritev, pos, int64(total)); err != nil {
		left := shortened(err, total)
		var some [][]byte
		for _, b := range bufs {
			b = b[:min(len(b), left)]
			left -= len(b)
			some = append(some, b)
		}
		n, wrote := f.File.WritevAt(some, pos)
		return n, both(err, wrote)
	}
	return f.File.WritevAt(bufs, pos)
}

// shortened returns how many bytes of size a write that fails with err writes.
func shortened(err error, size int) int {
	var short ShortWrite
	if errors.As(err, &short) {
		return max(0, min(short.N, size))
	}
	return 0
}

func (f *faultFile) Sync() error {
	if err := f.check(OpSync, 0, 0); err != nil {
		f.failSync()
		return err
	}
	return f.File.Sync()
}

// failSync tells a file of a Mem below that a Sync failed.
func (f *faultFile) failSync() {
	if m, ok := f.File.(interface{ failSync() }); ok {
		m.failSync()
	}
}

func (f *faultFile) Truncate(size int64) error {
	if err := f.check(OpTruncate, 0, size); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *faultFile) Size() (int64, error) {
	if err := f.check(OpSize, 0, 0); err != nil {
		return 0, err
	}
	return f.File.Size()
}

func (f *faultFile) Allocate(pos, n int64) error {
	if err := f.check(OpAllocate, pos, n); err != nil {
		return err
	}
	return f.File.Allocate(pos, n)
}

func (f *faultFile) StartWriteback(pos, n int64) error {
	if err := f.check(OpStartWriteback, pos, n); err != nil {
		return err
	}
	return f.File.StartWriteback(pos, n)
}

func (f *faultFile) DropCache() error {
	if err := f.check(OpDropCache, 0, 0); err != nil {
		return err
	}
	return f.File.DropCache()
}

func (f *faultFile) ReadAhead(pos, n int64) error {
	if err := f.check(OpReadAhead, pos, n); err != nil {
		return err
	}
	return f.File.ReadAhead(pos, n)
}

func (f *faultFile) Map(size int64, writable bool) (Mapping, error) {
	if err := f.check(OpMap, 0, size); err != nil {
		return nil, err
	}
	return f.File.Map(size, writable)
}

func (f *faultFile) Close() error {
	return both(f.check(OpClose, 0, 0), f.File.Close())
}
