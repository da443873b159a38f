package vfs

import (
	"bytes"
	"maps"
	"slices"
)

// sectorSize is what a disk writes whole or not at all, mostly.
const sectorSize = 512

// memNode is a file or a directory of a Mem. Everything of it is guarded by
// the mutex of its memDisk, except that mapped memory is stored to by whoever
// holds the mapping: see copyBytes.
//
//	file       synced  ──Sync── data        the two differ only in sectors that
//	                                        are dirty or below mapped
//	directory  durable ──SyncDir── names    the two differ only by the pending
//	                                        changes of the disk
type memNode struct {
	// immutable
	dir bool

	// of a directory
	names   map[string]*memNode // as seen now
	durable map[string]*memNode // as a power cut leaves it
	placed  *change             // the last that gave the directory its name; nil for a root
	removed bool                // nothing can be made in it any more

	// of a file
	data   []byte // as read now; zeros from its length to its capacity
	synced []byte // as of the last Sync
	dirty  sectorSet
	lost   sectorSet // dirty sectors that Sync passes over: see forget
	low    int       // the least size since the last Sync
	high   int       // the greatest size since the last Sync
	mapped int       // bytes a writable mapping has ever covered
	shared bool      // a mapping of any kind was made
	maps   []*memMapping
}

func newMemDir() *memNode {
	return &memNode{dir: true, names: make(map[string]*memNode), durable: make(map[string]*memNode)}
}

func (n *memNode) entry(name string) Entry {
	return Entry{Name: name, Size: int64(len(n.data)), Dir: n.dir}
}

// walk calls visit for every file and directory from n on, by name.
func (n *memNode) walk(visit func(*memNode)) {
	visit(n)
	for _, name := range slices.Sorted(maps.Keys(n.names)) {
		n.names[name].walk(visit)
	}
}

func (n *memNode) write(p []byte, pos int) {
	if len(p) == 0 {
		return
	}
	n.absorb()
	end := pos + len(p)
	if end > len(n.data) {
		n.resize(end)
	}
	n.copyBytes(n.data[pos:end], p)
	n.dirty.set(pos, end)
	n.lost.unset(pos, end)
}

// resize sets the size; new bytes are zeros.
func (n *memNode) resize(size int) {
	n.absorb()
	old := len(n.data)
	if size < old {
		n.copyBytes(n.data[size:], make([]byte, old-size))
		n.dirty.set(size, old)
		n.lost.unset(size, old)
	}
	if size > cap(n.data) {
		n.move(max(size, 2*cap(n.data)))
	}
	n.data = n.data[:size]
	n.low, n.high = min(n.low, size), max(n.high, size)
}

// move gives the content an array of another capacity. Mappings stay with the
// old one; absorb brings in what is stored to them.
func (n *memNode) move(capacity int) {
	data := make([]byte, len(n.data), capacity)
	n.copyBytes(data, n.data)
	for _, m := range n.maps {
		if m.base == nil {
			m.base = bytes.Clone(data[:len(m.mem)])
		}
	}
	n.data = data
}

// absorb takes over what was stored to mappings of arrays the file outgrew.
func (n *memNode) absorb() {
	for _, m := range n.maps {
		if m.base == nil || !m.writable {
			continue
		}
		now := make([]byte, len(m.mem))
		n.copyBytes(now, m.mem)
		if bytes.Equal(now, m.base) {
			continue
		}
		for i, b := range now[:min(len(now), len(n.data))] {
			if b != m.base[i] {
				n.copyBytes(n.data[i:i+1], now[i:i+1])
			}
		}
		m.base = now
	}
}

// sync makes the content durable.
func (n *memNode) sync() {
	n.absorb()
	n.synced = resized(n.synced, len(n.data))
	for pos := 0; pos < len(n.data); pos += sectorSize {
		if end := min(pos+sectorSize, len(n.data)); n.unsynced(pos) && !n.lost.has(pos) {
			n.copyBytes(n.synced[pos:end], n.data[pos:end])
		}
	}
	n.dirty = slices.Clone(n.lost)
	n.low, n.high = len(n.data), len(n.data)
}

// forget is a sync that failed: the sectors it was for stay readable and are
// never written, unless somebody writes them again.
func (n *memNode) forget() { n.lost = slices.Clone(n.dirty) }

// unsynced tells whether the sector at pos may differ from its synced bytes.
func (n *memNode) unsynced(pos int) bool { return pos < n.mapped || n.dirty.has(pos) }

// resized returns b with another size; new bytes are zeros.
func resized(b []byte, size int) []byte {
	if size <= len(b) {
		return b[:size:size]
	}
	grown := make([]byte, size)
	copy(grown, b)
	return grown
}

// copyBytes copies content. Where a mapping was made, its holder may load and
// store at the same time, as with a real disk; the race detector is not to
// blame it for what the tree does in the place of the kernel.
func (n *memNode) copyBytes(dst, src []byte) {
	if n.shared {
		copyUnseen(dst, src)
		return
	}
	copy(dst, src)
}

// copyUnseen is a loop because the detector also watches the built-in copy.
//
//go:norace
func copyUnseen(dst, src []byte) {
	for i := range min(len(dst), len(src)) {
		dst[i] = src[i]
	}
}

// sectorSet is a set of sectors, one bit each, addressed by positions.
type sectorSet []uint64

// set adds the sectors from pos up to end.
func (s *sectorSet) set(pos, end int) {
	if pos >= end {
		return
	}
	last := (end - 1) / sectorSize
	for len(*s) <= last/64 {
		*s = append(*s, 0)
	}
	for i := pos / sectorSize; i <= last; i++ {
		(*s)[i/64] |= 1 << (i % 64)
	}
}

// unset takes the sectors from pos up to end out.
func (s sectorSet) unset(pos, end int) {
	if pos >= end {
		return
	}
	for i := pos / sectorSize; i <= (end-1)/sectorSize && i/64 < len(s); i++ {
		s[i/64] &^= 1 << (i % 64)
	}
}

func (s sectorSet) has(pos int) bool {
	i := pos / sectorSize
	return i/64 < len(s) && s[i/64]&(1<<(i%64)) != 0
}
