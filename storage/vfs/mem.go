package vfs

import (
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// Mem is a tree in memory that remembers what was synced.
//
// # The crash model
//
// Crash returns what a power cut at this moment could have left. It takes, at
// random:
//
//   - per 512-byte sector written since the last Sync of its file: the synced
//     bytes, the written bytes, or seldom a torn mix of the two (cut at a byte,
//     or byte by byte). Sectors are independent of each other.
//   - per file the synced size, the present size, or any size between the least
//     and the greatest it had since its last Sync. Bytes that were never written
//     are zeros, allocated or not.
//   - per create, rename, or removal since the last SyncDir of its directory:
//     it happened or it did not. Operations on one name keep their order, those
//     on different names do not. A rename takes both names or none, also across
//     directories; after SyncDir of the directory it went to alone, the old name
//     may still be there too. A directory whose own creation is lost takes all
//     below it along, whatever was synced there, except what was durable
//     elsewhere and moved into it: that stays where it was.
//   - every sector of a file that a writable mapping has ever covered counts as
//     written.
//
// What was synced is never lost, and the image is itself fully durable. A Sync
// that Fault made fail loses what it should have synced for good: it stays
// readable, a later Sync does not make it durable unless it is written again,
// as with a kernel that marks the pages clean.
//
// Not covered: intermediate versions of a sector written more than once between
// two syncs; bytes that are neither the old nor the new ones; decay of synced
// sectors; a drive that lies about a sync; a failed sync of mapped memory, which
// the next one makes good.
//
// CrashClean returns what the end of the process alone leaves: everything
// written, with what was synced and what not as it was.
//
// The idea of the strict model is that of ALICE (Pillai et al., "All File
// Systems Are Not Created Equal", OSDI 2014) and of the strict MemFS of Pebble.
//
// *Ownership*: safe for concurrent use. Trees from Sub share the disk of the
// Mem; Sub(".") is the whole tree again, with a Close of its own. Crash and
// CrashClean work after Close. Handles and mappings stay with the Mem they come
// from.
type Mem struct{ memTree }

// NewMem returns an empty tree.
func NewMem() *Mem {
	return newMem(&memDisk{root: newMemDir(), total: 1 << 40, free: 1 << 40})
}

func newMem(d *memDisk) *Mem {
	d.locks = make(map[*memNode]bool)
	return &Mem{memTree{disk: d, base: d.root}}
}

// OnSync sets a function that is called after every Sync, SyncDir and SyncAll
// that succeeded, with the name of the method and the path it was for. It may
// call anything, Crash too. nil removes it.
func (m *Mem) OnSync(hook func(op, name string)) { m.disk.hook.Store(&hook) }

// SetSpace sets what Space reports. Nothing is refused for want of space.
func (m *Mem) SetSpace(free, total uint64) {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	m.disk.free, m.disk.total = free, total
}

// memDisk is what the trees of one Mem share.
type memDisk struct {
	// atomic
	hook atomic.Pointer[func(op, name string)]

	// guarded by mu, as all nodes and changes are
	mu          sync.Mutex
	root        *memNode
	pending     []*change // not durable yet, oldest first
	locks       map[*memNode]bool
	free, total uint64
}

func (d *memDisk) synced(op, name string) {
	if hook := d.hook.Load(); hook != nil && *hook != nil {
		(*hook)(op, name)
	}
}

// memTree is a FS of a memDisk.
type memTree struct {
	// immutable
	disk *memDisk
	base *memNode
	name string // path of base below the root when it was opened

	// guarded by disk.mu
	closed bool
}

func (t *memTree) err(op, name string, err error) error {
	return pathError(op, path.Join(t.name, name), err)
}

// enter begins an operation; t.disk.mu.Unlock ends it if the result is nil.
func (t *memTree) enter(op string, names ...string) error {
	for _, name := range names {
		if err := checkName(op, name); err != nil {
			return err
		}
	}
	t.disk.mu.Lock()
	if t.closed {
		t.disk.mu.Unlock()
		return t.err(op, names[0], fs.ErrClosed)
	}
	return nil
}

// find returns the node of a name.
func (t *memTree) find(name string) (*memNode, error) {
	n := t.base
	if name == "." {
		return n, nil
	}
	for part := range strings.SplitSeq(name, "/") {
		if !n.dir {
			return nil, syscall.ENOTDIR
		}
		if n = n.names[part]; n == nil {
			return nil, fs.ErrNotExist
		}
	}
	return n, nil
}

// findDir is find for a directory.
func (t *memTree) findDir(name string) (*memNode, error) {
	n, err := t.find(name)
	if err == nil && !n.dir {
		err = syscall.ENOTDIR
	}
	return n, err
}

// parent returns the directory a name is in, and its last element. The name
// itself need not exist.
func (t *memTree) parent(name string) (*memNode, string, error) {
	if name == "." {
		return nil, "", fs.ErrInvalid
	}
	dir, err := t.findDir(path.Dir(name))
	if err == nil && dir.removed {
		err = fs.ErrNotExist
	}
	return dir, path.Base(name), err
}

func (t *memTree) Open(name string) (File, error) { return t.open(name, false) }

func (t *memTree) OpenWrite(name string) (File, error) { return t.open(name, true) }

func (t *memTree) open(name string, writable bool) (File, error) {
	if err := t.enter("open", name); err != nil {
		return nil, err
	}
	defer t.disk.mu.Unlock()
	n, err := t.find(name)
	if err == nil && n.dir {
		err = syscall.EISDIR
	}
	if err != nil {
		return nil, t.err("open", name, err)
	}
	return &memFile{disk: t.disk, node: n, path: path.Join(t.name, name), writable: writable}, nil
}

func (t *memTree) Create(name string) (File, error) {
	if err := t.enter("create", name); err != nil {
		return nil, err
	}
	defer t.disk.mu.Unlock()
	n, err := t.create(name)
	if err != nil {
		return nil, t.err("create", name, err)
	}
	return &memFile{disk: t.disk, node: n, path: path.Join(t.name, name), writable: true}, nil
}

func (t *memTree) create(name string) (*memNode, error) {
	if name == "." {
		return nil, fs.ErrExist
	}
	dir, last, err := t.parent(name)
	if err != nil {
		return nil, err
	}
	if dir.names[last] != nil {
		return nil, fs.ErrExist
	}
	n := &memNode{}
	t.disk.link(dir, last, n)
	return n, nil
}

func (t *memTree) MkdirAll(name string) error {
	if err := t.enter("mkdir", name); err != nil {
		return err
	}
	defer t.disk.mu.Unlock()
	if name == "." {
		return nil
	}
	dir := t.base
	for part := range strings.SplitSeq(name, "/") {
		n := dir.names[part]
		switch {
		case dir.removed:
			return t.err("mkdir", name, fs.ErrNotExist)
		case n == nil:
			n = newMemDir()
			t.disk.link(dir, part, n)
		case !n.dir:
			return t.err("mkdir", name, syscall.ENOTDIR)
		}
		dir = n
	}
	return nil
}

func (t *memTree) Rename(from, to string) error {
	if err := t.enter("rename", from, to); err != nil {
		return err
	}
	defer t.disk.mu.Unlock()
	return renameError(path.Join(t.name, from), path.Join(t.name, to), t.rename(from, to))
}

func (t *memTree) rename(from, to string) error {
	fromDir, fromLast, err := t.parent(from)
	if err != nil {
		return err
	}
	toDir, toLast, err := t.parent(to)
	if err != nil {
		return err
	}
	n, old := fromDir.names[fromLast], toDir.names[toLast]
	switch {
	case n == nil:
		return fs.ErrNotExist
	case old != nil && old.dir:
		return fs.ErrExist
	case n == old:
		return nil
	case n.dir && strings.HasPrefix(to, from+"/"):
		return fs.ErrInvalid
	case old != nil && n.dir:
		return syscall.ENOTDIR
	}
	t.disk.move(fromDir, fromLast, toDir, toLast)
	return nil
}

func (t *memTree) Remove(name string) error {
	if err := t.enter("remove", name); err != nil {
		return err
	}
	defer t.disk.mu.Unlock()
	dir, last, err := t.parent(name)
	if err == nil {
		switch n := dir.names[last]; {
		case n == nil:
			err = fs.ErrNotExist
		case len(n.names) > 0:
			err = syscall.ENOTEMPTY
		default:
			t.disk.unlink(dir, last)
		}
	}
	return t.err("remove", name, err)
}

func (t *memTree) RemoveAll(name string) error {
	if err := t.enter("remove", name); err != nil {
		return err
	}
	defer t.disk.mu.Unlock()
	dir, last, err := t.parent(name)
	if err == nil && dir.names[last] != nil {
		t.disk.unlinkAll(dir, last)
	}
	if err == fs.ErrNotExist {
		err = nil
	}
	return t.err("remove", name, err)
}

func (t *memTree) ReadDir(name string) ([]Entry, error) {
	if err := t.enter("readdir", name); err != nil {
		return nil, err
	}
	defer t.disk.mu.Unlock()
	dir, err := t.findDir(name)
	if err != nil {
		return nil, t.err("readdir", name, err)
	}
	entries := make([]Entry, 0, len(dir.names))
	for last, n := range dir.names {
		entries = append(entries, n.entry(last))
	}
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return entries, nil
}

func (t *memTree) Stat(name string) (Entry, error) {
	if err := t.enter("stat", name); err != nil {
		return Entry{}, err
	}
	defer t.disk.mu.Unlock()
	n, err := t.find(name)
	if err != nil {
		return Entry{}, t.err("stat", name, err)
	}
	return n.entry(path.Base(name)), nil
}

func (t *memTree) SyncDir(name string) error {
	if err := t.enter("syncdir", name); err != nil {
		return err
	}
	dir, err := t.findDir(name)
	if err == nil {
		t.disk.commitDir(dir)
	}
	t.disk.mu.Unlock()
	if err != nil {
		return t.err("syncdir", name, err)
	}
	t.disk.synced("SyncDir", path.Join(t.name, name))
	return nil
}

func (t *memTree) SyncAll() error {
	if err := t.enter("syncall", "."); err != nil {
		return err
	}
	t.disk.commitAll()
	t.disk.mu.Unlock()
	t.disk.synced("SyncAll", path.Join(t.name, "."))
	return nil
}

// failSyncAll is SyncAll of a disk that fails: see memNode.forget.
func (t *memTree) failSyncAll() {
	t.disk.mu.Lock()
	defer t.disk.mu.Unlock()
	t.disk.root.walk(func(n *memNode) { n.forget() })
}

func (t *memTree) Space() (free, total uint64, err error) {
	if err := t.enter("statfs", "."); err != nil {
		return 0, 0, err
	}
	defer t.disk.mu.Unlock()
	return t.disk.free, t.disk.total, nil
}

func (t *memTree) Sub(name string) (FS, error) {
	if err := t.enter("sub", name); err != nil {
		return nil, err
	}
	defer t.disk.mu.Unlock()
	dir, err := t.findDir(name)
	if err != nil {
		return nil, t.err("sub", name, err)
	}
	return &memTree{disk: t.disk, base: dir, name: path.Join(t.name, name)}, nil
}

func (t *memTree) Close() error {
	if err := t.enter("close", "."); err != nil {
		return err
	}
	defer t.disk.mu.Unlock()
	t.closed = true
	return nil
}

func (t *memTree) Lock(name, holder string) (io.Closer, error) {
	if err := t.enter("lock", name); err != nil {
		return nil, err
	}
	defer t.disk.mu.Unlock()
	if len(holder) > maxHolder {
		return nil, t.err("lock", name, fs.ErrInvalid)
	}
	n, err := t.find(name)
	if err == fs.ErrNotExist {
		n, err = t.create(name)
	}
	if err == nil && n.dir {
		err = syscall.EISDIR
	}
	if err != nil {
		return nil, t.err("lock", name, err)
	}
	if t.disk.locks[n] {
		return nil, locked(path.Join(t.name, name), string(n.data[:min(len(n.data), maxHolder)]))
	}
	t.disk.locks[n] = true
	n.resize(0)
	n.write([]byte(holder), 0)
	return &memLock{disk: t.disk, node: n, path: path.Join(t.name, name)}, nil
}

// memLock is a lock held on a file.
type memLock struct {
	// immutable
	disk *memDisk
	node *memNode
	path string

	// guarded by disk.mu
	closed bool
}

func (l *memLock) Close() error {
	l.disk.mu.Lock()
	defer l.disk.mu.Unlock()
	if l.closed {
		return pathError("unlock", l.path, fs.ErrClosed)
	}
	l.closed = true
	l.node.resize(0)
	delete(l.disk.locks, l.node)
	return nil
}
