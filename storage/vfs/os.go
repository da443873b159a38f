//go:build linux || darwin || dragonfly || freebsd

package vfs

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// OS returns the tree below the directory dir, which is made with mode 0700 if
// it is missing. Names are resolved by os.Root, which keeps them inside.
//
// *Durability*: a directory made here is durable in its parents on return.
//
// *Bounds*: the tree costs two descriptors, a Sub of it one.
func OS(dir string) (FS, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, pathError("open", dir, err)
	}
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, pathError("open", dir, err)
	}
	d, err := openDisk(root, dir)
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &osFS{root: root, dir: dir, disk: d}, nil
}

// makeDir makes dir and the parents it lacks, and syncs what it made.
func makeDir(dir string) error {
	_, err := os.Stat(dir)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return pathError("open", dir, err)
	}
	parent := filepath.Dir(dir)
	if err := makeDir(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return pathError("mkdir", dir, err)
	}
	f, err := os.Open(parent)
	if err != nil {
		return pathError("open", parent, err)
	}
	return pathError("syncdir", parent, errors.Join(f.Sync(), f.Close()))
}

// osFS is a tree of the real disk.
type osFS struct {
	// immutable
	root *os.Root
	dir  string // where the tree lay when it was opened, for errors
	disk *disk  // shared with the trees this one was taken from

	// atomic
	closed atomic.Bool
}

// disk is the file system a tree lies on. Trees of one file system share it.
//
// The descriptor stays open for its whole life because the kernel reports a
// failed write to syncfs only if it came after the descriptor was opened.
type disk struct {
	// immutable
	dir *os.File
	dev uint64

	// guarded by mu
	mu     sync.Mutex
	refs   int
	failed error // what SyncAll failed with; final
}

func openDisk(root *os.Root, dir string) (*disk, error) {
	f, err := root.Open(".")
	if err != nil {
		return nil, pathError("open", dir, err)
	}
	fi, err := f.Stat()
	if err != nil {
		return nil, pathError("stat", dir, errors.Join(err, f.Close()))
	}
	return &disk{dir: f, dev: device(fi), refs: 1}, nil
}

func device(fi fs.FileInfo) uint64 {
	return uint64(fi.Sys().(*syscall.Stat_t).Dev)
}

func (d *disk) retain() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refs++
}

func (d *disk) release() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refs--; d.refs == 0 {
		return d.dir.Close()
	}
	return nil
}

func (o *osFS) path(name string) string { return filepath.Join(o.dir, name) }

func (o *osFS) err(op, name string, err error) error {
	return pathError(op, o.path(name), err)
}

func (o *osFS) Open(name string) (File, error) {
	return o.open("open", name, os.O_RDONLY)
}

func (o *osFS) OpenWrite(name string) (File, error) {
	return o.open("open", name, os.O_RDWR)
}

func (o *osFS) Create(name string) (File, error) {
	return o.open("create", name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

// open opens a regular file and nothing else.
func (o *osFS) open(op, name string, flag int) (File, error) {
	if err := checkName(op, name); err != nil {
		return nil, err
	}
	f, err := o.root.OpenFile(name, flag, 0o600)
	if err != nil {
		return nil, o.err(op, name, err)
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fs.ErrInvalid
		if fi.IsDir() {
			err = syscall.EISDIR
		}
	}
	if err != nil {
		return nil, o.err(op, name, errors.Join(err, f.Close()))
	}
	return newOSFile(f, o.path(name)), nil
}

func (o *osFS) MkdirAll(name string) error {
	if err := checkName("mkdir", name); err != nil {
		return err
	}
	return o.err("mkdir", name, o.root.MkdirAll(name, 0o700))
}

func (o *osFS) Rename(from, to string) error {
	if err := checkName("rename", from); err != nil {
		return err
	}
	if err := checkName("rename", to); err != nil {
		return err
	}
	if from == "." || to == "." {
		return o.err("rename", from, fs.ErrInvalid)
	}
	return renameError(o.path(from), o.path(to), o.root.Rename(from, to))
}

func (o *osFS) Remove(name string) error {
	if err := checkName("remove", name); err != nil {
		return err
	}
	if name == "." {
		return o.err("remove", name, fs.ErrInvalid)
	}
	return o.err("remove", name, o.root.Remove(name))
}

func (o *osFS) RemoveAll(name string) error {
	if err := checkName("remove", name); err != nil {
		return err
	}
	if name == "." {
		return o.err("remove", name, fs.ErrInvalid)
	}
	return o.err("remove", name, o.root.RemoveAll(name))
}

func (o *osFS) ReadDir(name string) ([]Entry, error) {
	if err := checkName("readdir", name); err != nil {
		return nil, err
	}
	d, err := o.root.OpenRoot(name)
	if err != nil {
		return nil, o.err("readdir", name, err)
	}
	entries, err := readRoot(d)
	if err = errors.Join(err, d.Close()); err != nil {
		return nil, o.err("readdir", name, err)
	}
	return entries, nil
}

func readRoot(d *os.Root) ([]Entry, error) {
	f, err := d.Open(".")
	if err != nil {
		return nil, err
	}
	names, err := f.Readdirnames(-1)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	entries := make([]Entry, 0, len(names))
	for _, name := range names {
		fi, err := d.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since the names were read
		}
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry(name, fi))
	}
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return entries, nil
}

func entry(name string, fi fs.FileInfo) Entry {
	e := Entry{Name: path.Base(name), Dir: fi.IsDir()}
	if !e.Dir {
		e.Size = fi.Size()
	}
	return e
}

func (o *osFS) Stat(name string) (Entry, error) {
	if err := checkName("stat", name); err != nil {
		return Entry{}, err
	}
	fi, err := o.root.Stat(name)
	if err != nil {
		return Entry{}, o.err("stat", name, err)
	}
	return entry(name, fi), nil
}

func (o *osFS) SyncDir(name string) error {
	if err := checkName("syncdir", name); err != nil {
		return err
	}
	f, err := o.root.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return o.err("syncdir", name, err)
	}
	return o.err("syncdir", name, errors.Join(f.Sync(), f.Close()))
}

// SyncAll is final once it failed: the kernel tells a failure one time only,
// and the trees of one file system share the descriptor it is told to.
func (o *osFS) SyncAll() error {
	o.disk.mu.Lock()
	defer o.disk.mu.Unlock()
	if o.disk.failed == nil {
		o.disk.failed = syncAll(o.root, o.disk.dir)
	}
	return o.err("syncall", ".", o.disk.failed)
}

func (o *osFS) Space() (free, total uint64, err error) {
	free, total, err = space(o.disk.dir)
	return free, total, o.err("statfs", ".", err)
}

func (o *osFS) Sub(name string) (FS, error) {
	if err := checkName("sub", name); err != nil {
		return nil, err
	}
	root, err := o.root.OpenRoot(name)
	if err != nil {
		return nil, o.err("sub", name, err)
	}
	d, err := o.diskOf(root, o.path(name))
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &osFS{root: root, dir: o.path(name), disk: d}, nil
}

// diskOf returns the disk of a tree below o: the same unless another file
// system is mounted there.
func (o *osFS) diskOf(root *os.Root, dir string) (*disk, error) {
	fi, err := root.Stat(".")
	if err != nil {
		return nil, pathError("stat", dir, err)
	}
	if device(fi) != o.disk.dev {
		return openDisk(root, dir)
	}
	o.disk.retain()
	return o.disk, nil
}

func (o *osFS) Close() error {
	if o.closed.Swap(true) {
		return o.err("close", ".", fs.ErrClosed)
	}
	return o.err("close", ".", errors.Join(o.root.Close(), o.disk.release()))
}
