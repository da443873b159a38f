package bench

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Sizes of the files a run keeps or makes, bytes. A new file is as large as freshRate
// bytes per second of the time given allow, so that two of them, the first into memory
// not touched before, take about that time.
const (
	sourceSize  = 64 << 20
	prezeroSize = 16 << 20
	freshSize   = 256 << 20
	freshRate   = 512 << 20
)

const syncedChunk = 10 << 10

// prepare makes the files that all repeats share. Both are synced, so that no
// write-back of theirs falls into a measurement.
func (c *ceiling) prepare() (err error) {
	if c.prezeros, err = c.filled("prezeroed", prezeroSize); err != nil {
		return err
	}
	for i := range c.buf {
		c.buf[i] = byte(i * 7)
	}
	c.source, err = c.filled("source", sourceSize)
	return err
}

// filled makes a file of size bytes, a multiple of the buffer's size, out of copies
// of the buffer.
func (c *ceiling) filled(name string, size int64) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(c.dir, name), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for pos := int64(0); pos < size; pos += int64(len(c.buf)) {
		if _, err := f.WriteAt(c.buf, pos); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	if err := f.Sync(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (c *ceiling) close() error {
	var errs []error
	for _, f := range []*os.File{c.source, c.prezeros} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// fresh runs measure on a new file, which has no page in the cache and no block on
// the disk, and removes the file. Closing and removing are not timed.
func (c *ceiling) fresh(measure func(f *os.File) (work, error)) (work, error) {
	path := filepath.Join(c.dir, "fresh")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return work{}, err
	}
	w, err := measure(f)
	return w, errors.Join(err, f.Close(), os.Remove(path))
}

func (c *ceiling) writeLarge(slice time.Duration) (work, error) { return c.write(slice, 1<<20) }

func (c *ceiling) writeSmall(slice time.Duration) (work, error) { return c.write(slice, 10<<10) }

// write fills a new file whose size follows from the time given, at least one chunk.
func (c *ceiling) write(slice time.Duration, chunk int) (work, error) {
	size := min(max(int64(slice.Seconds()*freshRate), 1<<20), freshSize)
	return c.fresh(func(f *os.File) (w work, err error) {
		began := time.Now()
		for w.ops == 0 || w.bytes+int64(chunk) <= size {
			if _, err := f.WriteAt(c.buf[:chunk], w.bytes); err != nil {
				return w, err
			}
			w.ops++
			w.bytes += int64(chunk)
		}
		w.elapsed = time.Since(began)
		return w, nil
	})
}

func (c *ceiling) syncAppend(slice time.Duration) (work, error) {
	return c.fresh(func(f *os.File) (work, error) { return c.synced(f, slice, freshSize) })
}

func (c *ceiling) syncPrezeroed(slice time.Duration) (work, error) {
	return c.synced(c.prezeros, slice, prezeroSize)
}

// synced writes chunk after chunk, from the start again when size is reached, and
// times the sync of each alone.
func (c *ceiling) synced(f *os.File, slice time.Duration, size int64) (work, error) {
	w := work{latency: new(Histogram)}
	pos := int64(0)
	for began := time.Now(); w.elapsed < slice || w.ops == 0; w.elapsed = time.Since(began) {
		if pos+syncedChunk > size {
			pos = 0
		}
		if _, err := f.WriteAt(c.buf[:syncedChunk], pos); err != nil {
			return w, err
		}
		from := time.Now()
		if err := datasync(f); err != nil {
			return w, err
		}
		w.latency.Record(int64(time.Since(from)))
		w.ops++
		w.bytes += syncedChunk
		pos += syncedChunk
	}
	return w, nil
}

func (c *ceiling) hashSmall(slice time.Duration) (work, error) { return c.hash(slice, 100), nil }

func (c *ceiling) hashLarge(slice time.Duration) (work, error) { return c.hash(slice, 10<<10), nil }

// hash sums blocks in a row. Each pass covers the same 100 KiB, which stay in the
// core's cache as a block just received does, and the clock is read once a pass.
func (c *ceiling) hash(slice time.Duration, block int) (w work) {
	const pass = 100 << 10
	var all uint64
	for began := time.Now(); w.elapsed < slice || w.ops == 0; w.elapsed = time.Since(began) {
		for pos := 0; pos+block <= pass; pos += block {
			all ^= xxhash.Sum64(c.buf[pos : pos+block])
			w.ops++
			w.bytes += int64(block)
		}
	}
	// Use the sums, or the compiler may leave them out.
	c.buf[len(c.buf)-1] = byte(all)
	return w
}
