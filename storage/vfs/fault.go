package vfs

import (
	"fmt"
	"io"
	"path"
	"slices"
	"sync/atomic"
)

// OpKind is what an operation does.
type OpKind uint8

const (
	OpOpen           OpKind = iota // FS.Open
	OpOpenWrite                    // FS.OpenWrite
	OpCreate                       // FS.Create
	OpMkdirAll                     // FS.MkdirAll
	OpRename                       // FS.Rename
	OpRemove                       // FS.Remove
	OpRemoveAll                    // FS.RemoveAll
	OpReadDir                      // FS.ReadDir
	OpStat                         // FS.Stat
	OpSyncDir                      // FS.SyncDir
	OpSyncAll                      // FS.SyncAll
	OpSpace                        // FS.Space
	OpLock                         // FS.Lock
	OpUnlock                       // Close of a lock
	OpSub                          // FS.Sub
	OpCloseFS                      // FS.Close
	OpRead                         // File.ReadAt
	OpWrite                        // File.WriteAt
	OpWritev                       // File.WritevAt
	OpSync                         // File.Sync
	OpTruncate                     // File.Truncate
	OpSize                         // File.Size
	OpAllocate                     // File.Allocate
	OpStartWriteback               // File.StartWriteback
	OpDropCache                    // File.DropCache
	OpReadAhead                    // File.ReadAhead
	OpMap                          // File.Map
	OpClose                        // File.Close
)

var opNames = [...]string{
	"Open", "OpenWrite", "Create", "MkdirAll", "Rename", "Remove", "RemoveAll", "ReadDir", "Stat", "SyncDir",
	"SyncAll", "Space", "Lock", "Unlock", "Sub", "CloseFS", "Read", "Write", "Writev", "Sync", "Truncate", "Size",
	"Allocate", "StartWriteback", "DropCache", "ReadAhead", "Map", "Close",
}

// String returns the name of the kind.
func (k OpKind) String() string {
	if int(k) < len(opNames) {
		return opNames[k]
	}
	return fmt.Sprintf("OpKind(%d)", uint8(k))
}

// Op is an operation about to be done.
type Op struct {
	N    int // its number among all of the Fault, its Subs and files, from 1
	Kind OpKind
	Name string // the path below the root of the Fault; of a file that it was opened under
	To   string // the new path of a Rename
	Pos  int64  // where in the file
	Size int64  // bytes of a read, write, hint, allocation or mapping; the size Truncate sets
}

// String tells the operation in one line.
func (o Op) String() string {
	name := o.Name
	if o.To != "" {
		name += " to " + o.To
	}
	return fmt.Sprintf("#%d %s %s pos %d size %d", o.N, o.Kind, name, o.Pos, o.Size)
}

// ShortWrite is what a decide function returns to have a WriteAt or WritevAt
// write N bytes and then fail with Err. Of other operations it is a plain
// failure.
type ShortWrite struct {
	N   int
	Err error // nil means io.ErrShortWrite
}

func (s ShortWrite) Error() string { return fmt.Sprintf("%v after %d bytes", s.Unwrap(), s.N) }

// Unwrap returns what the write fails with.
func (s ShortWrite) Unwrap() error {
	if s.Err == nil {
		return io.ErrShortWrite
	}
	return s.Err
}

// Fault returns fsys with decide asked before every operation. If decide
// returns an error the operation is not done and fails with it. decide may also
// block, to delay the operation.
//
// A Close that fails gives up what it closes all the same. A Sync or SyncAll
// that fails on a Mem loses the bytes it was for, as Mem describes. The memory
// of a mapping, its Close, and what is done with a descriptor are not
// intercepted.
//
// *Ownership*: decide is called from whatever goroutine does the operation.
func Fault(fsys FS, decide func(Op) error) FS {
	return &faultFS{fsys: fsys, faults: &faults{decide: decide}, name: "."}
}

// FailNth returns a decide function that fails the n-th operation of the kinds
// given, or of any kind if none is, and lets all others pass.
func FailNth(n int, err error, kinds ...OpKind) func(Op) error {
	return failIf(func(seen int) bool { return seen == n }, err, kinds)
}

// FailFrom is FailNth for the n-th operation and all later ones.
func FailFrom(n int, err error, kinds ...OpKind) func(Op) error {
	return failIf(func(seen int) bool { return seen >= n }, err, kinds)
}

func failIf(hit func(seen int) bool, err error, kinds []OpKind) func(Op) error {
	var seen atomic.Int64
	return func(op Op) error {
		if len(kinds) > 0 && !slices.Contains(kinds, op.Kind) {
			return nil
		}
		if hit(int(seen.Add(1))) {
			return err
		}
		return nil
	}
}

// Counter counts operations: how many a scenario has tells how many times
// FailNth must be tried.
type Counter struct {
	counts [len(opNames)]atomic.Int64 // atomic
}

// Decide is a decide function that counts the operation and lets it pass.
func (c *Counter) Decide(op Op) error {
	c.counts[op.Kind].Add(1)
	return nil
}

// N returns how many operations of the kinds given there were, or of all if
// none is.
func (c *Counter) N(kinds ...OpKind) int {
	n := int64(0)
	for k := range c.counts {
		if len(kinds) == 0 || slices.Contains(kinds, OpKind(k)) {
			n += c.counts[k].Load()
		}
	}
	return int(n)
}

// faults is what a Fault, its Subs and files share.
type faults struct {
	decide func(Op) error // immutable
	n      atomic.Int64   // operations so far
}

func (f *faults) check(op Op) error {
	op.N = int(f.n.Add(1))
	if err := f.decide(op); err != nil {
		return pathError(op.Kind.String(), op.Name, err)
	}
	return nil
}

// faultFS is a tree whose operations are checked.
type faultFS struct {
	fsys   FS
	faults *faults
	name   string // path below the root of the Fault
}

func (t *faultFS) check(kind OpKind, name string) error {
	return t.faults.check(Op{Kind: kind, Name: path.Join(t.name, name)})
}

func (t *faultFS) open(kind OpKind, name string, open func(string) (File, error)) (File, error) {
	if err := t.check(kind, name); err != nil {
		return nil, err
	}
	f, err := open(name)
	if err != nil {
		return nil, err
	}
	return &faultFile{File: f, faults: t.faults, name: path.Join(t.name, name)}, nil
}

func (t *faultFS) Open(name string) (File, error) { return t.open(OpOpen, name, t.fsys.Open) }

func (t *faultFS) OpenWrite(name string) (File, error) {
	return t.open(OpOpenWrite, name, t.fsys.OpenWrite)
}

func (t *faultFS) Create(name string) (File, error) { return t.open(OpCreate, name, t.fsys.Create) }

func (t *faultFS) MkdirAll(name string) error {
	if err := t.check(OpMkdirAll, name); err != nil {
		return err
	}
	return t.fsys.MkdirAll(name)
}

func (t *faultFS) Rename(from, to string) error {
	op := Op{Kind: OpRename, Name: path.Join(t.name, from), To: path.Join(t.name, to)}
	if err := t.faults.check(op); err != nil {
		return err
	}
	return t.fsys.Rename(from, to)
}

func (t *faultFS) Remove(name string) error {
	if err := t.check(OpRemove, name); err != nil {
		return err
	}
	return t.fsys.Remove(name)
}

func (t *faultFS) RemoveAll(name string) error {
	if err := t.check(OpRemoveAll, name); err != nil {
		return err
	}
	return t.fsys.RemoveAll(name)
}

func (t *faultFS) ReadDir(name string) ([]Entry, error) {
	if err := t.check(OpReadDir, name); err != nil {
		return nil, err
	}
	return t.fsys.ReadDir(name)
}

func (t *faultFS) Stat(name string) (Entry, error) {
	if err := t.check(OpStat, name); err != nil {
		return Entry{}, err
	}
	return t.fsys.Stat(name)
}

func (t *faultFS) SyncDir(name string) error {
	if err := t.check(OpSyncDir, name); err != nil {
		return err
	}
	return t.fsys.SyncDir(name)
}

func (t *faultFS) SyncAll() error {
	if err := t.check(OpSyncAll, "."); err != nil {
		t.failSyncAll()
		return err
	}
	return t.fsys.SyncAll()
}

// failSyncAll tells a Mem below that a SyncAll failed.
func (t *faultFS) failSyncAll() {
	if m, ok := t.fsys.(interface{ failSyncAll() }); ok {
		m.failSyncAll()
	}
}

func (t *faultFS) Space() (free, total uint64, err error) {
	if err := t.check(OpSpace, "."); err != nil {
		return 0, 0, err
	}
	return t.fsys.Space()
}

func (t *faultFS) Lock(name, holder string) (io.Closer, error) {
	if err := t.check(OpLock, name); err != nil {
		return nil, err
	}
	l, err := t.fsys.Lock(name, holder)
	if err != nil {
		return nil, err
	}
	return &faultLock{lock: l, faults: t.faults, name: path.Join(t.name, name)}, nil
}

func (t *faultFS) Sub(name string) (FS, error) {
	if err := t.check(OpSub, name); err != nil {
		return nil, err
	}
	sub, err := t.fsys.Sub(name)
	if err != nil {
		return nil, err
	}
	return &faultFS{fsys: sub, faults: t.faults, name: path.Join(t.name, name)}, nil
}

func (t *faultFS) Close() error {
	return both(t.check(OpCloseFS, "."), t.fsys.Close())
}

// faultLock is a lock whose Close is checked.
type faultLock struct {
	lock   io.Closer
	faults *faults
	name   string
}

func (l *faultLock) Close() error {
	return both(l.faults.check(Op{Kind: OpUnlock, Name: l.name}), l.lock.Close())
}
