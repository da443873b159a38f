package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"unsafe"

	"github.com/millrace-mq/millrace/storage/vfs"
)

// An index file:
//
//	header 32: magic u32 "MRIX" | version u32 | segment id u64 | base offset u64 | first index u64
//	entry  24: relOffset u32 | pos u32 | timestamp u64 | relIndex u32 | flags u32
//
// An entry describes the frame at pos; relOffset and relIndex count from the header's base and
// first index. All columns but flags ascend, so one file answers offsets, times and indexes.
// The block of an entry reaches to the next entry; flags say what is in it. Zero bytes follow
// the last entry; an entry behind the first has pos > 0, so the first zero pos ends the list.
const (
	indexHeader = 32
	indexEntry  = 24
	indexMagic  = 0x4D524958
	indexStart  = 4 << 10 // bytes; first size of a growing index

	// blockControl: the block holds a control record. A block without it is only messages.
	blockControl uint32 = 1
)

// entry is one decoded index entry.
type entry struct {
	offset uint64
	index  uint64
	pos    int64
	ts     uint64
	flags  uint32
}

// errIndex means that index bytes do not make sense; the index is rebuilt from the log.
var errIndex = errors.New("index does not agree with the log")

// errFault means that a mapped page cannot be accessed.
var errFault = errors.New("mapped page cannot be accessed")

// index is the mapped index of one segment.
//
// Ownership: add and setFlags belong to the log's append lock; lookups run anywhere while the
// segment is held. Entries below count never change but for the flags of the last one.
// Errors: a mapped page that cannot be read or written (disk failure, a file cut short by
// somebody else) is an error of the call, not a fault of the process.
type index struct {
	// immutable
	base, first uint64
	writable    bool

	// atomic, published by add
	view  atomic.Pointer[[]byte] // header and room for entries
	count atomic.Uint32

	// owned by the append lock
	file vfs.File      // nil = in memory only
	maps []vfs.Mapping // all views ever mapped: readers may still be inside an old one
	heap bool          // the view is in memory because the file's pages cannot be accessed
}

func indexSize(n int) int64 { return indexHeader + int64(n)*indexEntry }

// createIndex makes the index file of a new segment, in place of one that a crash left behind
// when it took the log file of the same id with it.
func createIndex(fsys vfs.FS, name string, id, base, first uint64) (*index, error) {
	if err := ignoreMissing(fsys.Remove(name)); err != nil {
		return nil, err
	}
	f, err := fsys.Create(name)
	if err != nil {
		return nil, err
	}
	x := &index{base: base, first: first, writable: true, file: f}
	if err := x.grow(indexStart); err != nil {
		return nil, errors.Join(err, x.close(), fsys.Remove(name))
	}
	b := *x.view.Load()
	err = guard(func() {
		putIndexHeader(b, id, base, first)
	})
	if err != nil {
		return nil, errors.Join(err, x.close(), fsys.Remove(name))
	}
	return x, nil
}

// openIndex maps an existing index and checks that it belongs to the segment and that its
// entries ascend below size. It does not look at the log.
func openIndex(fsys vfs.FS, name string, id, base, first uint64, size int64, writable bool) (*index, error) {
	open := fsys.Open
	if writable {
		open = fsys.OpenWrite
	}
	f, err := open(name)
	if err != nil {
		return nil, err
	}
	x := &index{base: base, first: first, writable: writable, file: f}
	n, err := f.Size()
	if err == nil && n < indexHeader {
		err = fmt.Errorf("%w: %d bytes", errIndex, n)
	}
	if err == nil {
		err = x.mapSize(n)
	}
	if err == nil {
		err = x.validate(id, size)
	}
	if err != nil {
		return nil, errors.Join(err, x.close())
	}
	return x, nil
}

// validate checks header and entries and finds the count.
func (x *index) validate(id uint64, size int64) (err error) {
	b := *x.view.Load()
	gerr := guard(func() {
		if binary.BigEndian.Uint32(b) != indexMagic || binary.BigEndian.Uint32(b[4:]) != Version ||
			binary.BigEndian.Uint64(b[8:]) != id || binary.BigEndian.Uint64(b[16:]) != x.base ||
			binary.BigEndian.Uint64(b[24:]) != x.first {
			err = fmt.Errorf("%w: foreign header", errIndex)
			return
		}
		var prev entry
		n := (len(b) - indexHeader) / indexEntry
		for i := range n {
			e := x.decode(b, i)
			if e.pos == 0 && i > 0 {
				n = i
				break
			}
			if i > 0 && (e.pos <= prev.pos || e.offset < prev.offset || e.ts < prev.ts || e.index <= prev.index) || e.pos >= size {
				err = fmt.Errorf("%w: entry %d", errIndex, i)
				return
			}
			prev = e
		}
		if size == 0 {
			n = 0
		}
		x.count.Store(uint32(n))
	})
	return errors.Join(err, gerr)
}

// mapSize maps the first n bytes of the file and publishes them as the view.
func (x *index) mapSize(n int64) error {
	m, err := x.file.Map(n, x.writable)
	if err != nil {
		return err
	}
	x.maps = append(x.maps, m)
	b := m.Bytes()
	x.view.Store(&b)
	return nil
}

// grow takes real blocks for n bytes, so that a store into the mapping cannot meet a full disk,
// and maps them. The old mapping stays for readers that are inside it.
func (x *index) grow(n int64) error {
	if x.file == nil || x.heap {
		b := make([]byte, n)
		copy(b, *x.view.Load())
		x.view.Store(&b)
		return nil
	}
	if err := x.file.Allocate(0, n); err != nil {
		return err
	}
	return x.mapSize(n)
}

// reserve makes room for n more entries.
func (x *index) reserve(n int) error {
	need := indexSize(int(x.count.Load()) + n)
	size := int64(len(*x.view.Load()))
	if need <= size {
		return nil
	}
	for size < need {
		size *= 2
	}
	return x.grow(size)
}

// add appends an entry; reserve made the room.
func (x *index) add(e entry) {
	b := *x.view.Load()
	i := int(x.count.Load())
	p := b[indexHeader+i*indexEntry:][:indexEntry]
	binary.BigEndian.PutUint32(p, uint32(e.offset-x.base))
	binary.BigEndian.PutUint32(p[4:], uint32(e.pos))
	binary.BigEndian.PutUint64(p[8:], e.ts)
	binary.BigEndian.PutUint32(p[16:], uint32(e.index-x.first))
	storeFlags(p[20:], e.flags)
	x.count.Store(uint32(i) + 1)
}

// orFlags adds flags to the last entry.
func (x *index) orFlags(flags uint32) {
	b := *x.view.Load()
	p := b[indexHeader+(int(x.count.Load())-1)*indexEntry:][:indexEntry]
	storeFlags(p[20:], loadFlags(p[20:])|flags)
}

// storeFlags and loadFlags access the one word that changes under readers. The word lies at a
// multiple of 4 of a page-aligned mapping.
func storeFlags(p []byte, v uint32) {
	var t [4]byte
	binary.BigEndian.PutUint32(t[:], v)
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&p[0])), *(*uint32)(unsafe.Pointer(&t[0])))
}

func loadFlags(p []byte) uint32 {
	v := atomic.LoadUint32((*uint32)(unsafe.Pointer(&p[0])))
	return binary.BigEndian.Uint32((*[4]byte)(unsafe.Pointer(&v))[:])
}

func (x *index) decode(b []byte, i int) entry {
	p := b[indexHeader+i*indexEntry:][:indexEntry]
	return entry{
		offset: x.base + uint64(binary.BigEndian.Uint32(p)),
		pos:    int64(binary.BigEndian.Uint32(p[4:])),
		ts:     binary.BigEndian.Uint64(p[8:]),
		index:  x.first + uint64(binary.BigEndian.Uint32(p[16:])),
		flags:  loadFlags(p[20:]),
	}
}

// column is what a lookup compares.
type column uint8

const (
	byOffset column = iota
	byTime
	byPos
	byIndex
)

func (x *index) key(b []byte, i int, c column) uint64 {
	p := b[indexHeader+i*indexEntry:][:indexEntry]
	switch c {
	case byOffset:
		return x.base + uint64(binary.BigEndian.Uint32(p))
	case byTime:
		return binary.BigEndian.Uint64(p[8:])
	case byPos:
		return uint64(binary.BigEndian.Uint32(p[4:]))
	}
	return x.first + uint64(binary.BigEndian.Uint32(p[16:]))
}

// floor returns the last entry whose column is at most v, and its ordinal; ordinal −1 when
// there is none.
func (x *index) floor(c column, v uint64) (e entry, at int, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer recoverFault(&err)
	n := int(x.count.Load())
	b := *x.view.Load()
	lo, hi := 0, n // the first entry above v is in [lo, hi]
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if x.key(b, mid, c) <= v {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 {
		return entry{}, -1, nil
	}
	return x.decode(b, lo-1), lo - 1, nil
}

// at returns entry i.
func (x *index) at(i int) (e entry, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer recoverFault(&err)
	if i < 0 || i >= int(x.count.Load()) {
		return entry{}, fmt.Errorf("%w: no entry %d", errIndex, i)
	}
	return x.decode(*x.view.Load(), i), nil
}

// cut drops the entries from ordinal n on.
func (x *index) cut(n int) error {
	old := int(x.count.Load())
	x.count.Store(uint32(n))
	b := *x.view.Load()
	return guard(func() { clear(b[indexSize(n):indexSize(old)]) })
}

// touch reads a byte of every page.
func (x *index) touch() {
	b := *x.view.Load()
	var sum byte
	for i := 0; i < len(b); i += 4 << 10 {
		sum += b[i]
	}
	touched.Store(uint32(sum))
}

var touched atomic.Uint32 // keeps touch from being optimised away

// replace takes over the view of x2, which is in memory.
func (x *index) replace(x2 *index) {
	x.heap = true
	x.view.Store(x2.view.Load())
	x.count.Store(x2.count.Load())
}

// sync makes the file durable; one that is only in memory is built again when it is needed.
func (x *index) sync() error {
	if x.file == nil || x.heap {
		return nil
	}
	return x.file.Sync()
}

// close unmaps and closes. A writable index is cut to the entries that it has, so that the
// file is the same as one built from scratch.
func (x *index) close() error {
	var err error
	for _, m := range x.maps {
		err = errors.Join(err, m.Close())
	}
	x.maps = nil
	if x.file == nil {
		return err
	}
	if x.writable && !x.heap && x.view.Load() != nil {
		err = errors.Join(err, x.file.Truncate(indexSize(int(x.count.Load()))))
	}
	return errors.Join(err, x.file.Close())
}

// guard runs f, which touches mapped memory, and turns a fault into an error.
func guard(f func()) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer recoverFault(&err)
	f()
	return nil
}

// recoverFault turns the panic of a faulting access into an error; other panics go on.
func recoverFault(err *error) {
	r := recover()
	if r == nil {
		return
	}
	if f, ok := r.(interface{ Addr() uintptr }); ok {
		*err = fmt.Errorf("%w: %#x", errFault, f.Addr())
		return
	}
	panic(r)
}
