// Package vfs is the disk as a small interface: one directory tree of files
// that are read and written at explicit positions, with the few operations a
// log needs to know what is durable.
//
// There are three implementations. OS is a real directory. Mem keeps a tree in
// memory, remembers what was synced, and can produce what a power cut would
// have left. Fault wraps another FS and fails the operations it is told to.
//
// # Durability
//
// Nothing written is durable until File.Sync (or FS.SyncAll) has returned nil,
// and no create, rename or removal is until FS.SyncDir of the directory (or
// FS.SyncAll) has. The two are independent: a new file needs both.
//
// # Failure of a sync
//
// A failed Sync, SyncDir or SyncAll says nothing about what reached the disk,
// and the kernel may have forgotten the dirty pages: a later nil does not cover
// the bytes of the failed one. Callers treat it as final.
package vfs

import "io"

// FS is one directory tree.
//
// Names are slash-separated and relative, in the form fs.ValidPath accepts
// ("." is the root of the tree); others are refused with fs.ErrInvalid before
// the disk is asked. A name never leads out of the tree, not even through a
// symbolic link planted in it.
//
// *Ownership*: an FS is safe for concurrent use. Files opened from it outlive
// its Close.
//
// *Errors* name the path and match fs.ErrNotExist and fs.ErrExist where those
// apply.
type FS interface {
	// Open opens an existing file for reading.
	Open(name string) (File, error)

	// OpenWrite opens an existing file for reading and writing.
	OpenWrite(name string) (File, error)

	// Create makes a new file with mode 0600 and opens it for reading and
	// writing. *Durability*: the file may vanish until SyncDir of its directory.
	// *Errors*: fs.ErrExist if the name is taken.
	Create(name string) (File, error)

	// MkdirAll makes a directory with mode 0700 and the parents it lacks. One
	// that exists already is no error.
	MkdirAll(name string) error

	// Rename gives from the name to and replaces the file that had it. A
	// directory is not replaced: fs.ErrExist. *Durability*: after a power cut before SyncDir, to is the old or the new
	// file, whole.
	Rename(from, to string) error

	// Remove removes a file or an empty directory. Open handles keep working.
	Remove(name string) error

	// RemoveAll removes name and all below it. A name that does not exist is no
	// error. The root itself is refused with fs.ErrInvalid.
	RemoveAll(name string) error

	// ReadDir lists a directory, sorted by name.
	ReadDir(name string) ([]Entry, error)

	// Stat describes a file or directory.
	Stat(name string) (Entry, error)

	// SyncDir makes the creates, renames and removals done in the directory so
	// far durable. It says nothing about the content of the files.
	SyncDir(name string) error

	// SyncAll makes everything durable that was written so far to the file
	// system the tree lies on.
	SyncAll() error

	// Space tells how many bytes of the disk are free for this process and how
	// many the disk has.
	Space() (free, total uint64, err error)

	// Lock takes the exclusive lock on the file name, made if it is missing,
	// and writes holder into it. It never waits. Close of the result gives the
	// lock up, and so does the end of the process however it comes; the file
	// stays. *Bounds*: holder has at most 256 bytes. *Errors*: ErrLocked, with
	// what the present holder wrote.
	Lock(name, holder string) (io.Closer, error)

	// Sub returns the tree below a directory that exists. It is an FS of its
	// own, closed on its own.
	Sub(name string) (FS, error)

	// Close gives up what the FS itself holds.
	Close() error
}

// Entry describes one name of a directory.
type Entry struct {
	Name string // the last element of the path
	Size int64  // bytes; 0 for a directory
	Dir  bool
}

// File is an open file, read and written at explicit positions.
//
// *Ownership*: safe for concurrent use, except that Close must not run beside
// another call. Buffers passed in are not kept and not modified.
//
// *Errors*: fs.ErrClosed after Close. A write to a file from FS.Open fails.
type File interface {
	io.ReaderAt
	io.Closer

	// WriteAt writes p at pos, all of it or an error with how many bytes went.
	// *Durability*: none before Sync. *Bounds*: no allocation.
	WriteAt(p []byte, pos int64) (int, error)

	// WritevAt writes the buffers one after the other from pos on, all of them
	// or an error with how many bytes went. *Durability*: none before Sync.
	// *Bounds*: no allocation; any number of buffers, empty ones too. One call
	// is one system call up to 1024 buffers.
	WritevAt(bufs [][]byte, pos int64) (int, error)

	// Sync makes the content written so far and the size durable. The name is
	// made durable by FS.SyncDir.
	Sync() error

	// Truncate sets the size. A longer file reads as zeros in the new part,
	// which has no blocks.
	Truncate(size int64) error

	// Size returns the size in bytes.
	Size() (int64, error)

	// Allocate takes disk blocks for n bytes from pos on and extends the size
	// to pos+n if it was less. New bytes read as zeros, old ones stay. *Errors*:
	// NoSpace tells a full disk; blocks taken before that may stay taken.
	Allocate(pos, n int64) error

	// StartWriteback hints that the range should go to the disk now. It
	// promises nothing and reports no durability. *Bounds*: n = 0 means to the
	// end of the file.
	StartWriteback(pos, n int64) error

	// DropCache hints that clean cached pages of the file are not needed, so
	// that the next reads come from the disk.
	DropCache() error

	// ReadAhead hints that the range will be read soon. *Bounds*: n = 0 means
	// to the end of the file.
	ReadAhead(pos, n int64) error

	// Map maps the first size bytes. *Bounds*: size is greater than 0 and at
	// most the size of the file. *Ownership*: the mapping outlives Close of the
	// file and is closed on its own; the file is not truncated below size
	// before that.
	Map(size int64, writable bool) (Mapping, error)

	// Fd returns the descriptor for sendfile and the like, valid until Close.
	// ok is false where there is none, then callers copy.
	Fd() (fd uintptr, ok bool)
}

// Mapping is a part of a file mapped into memory.
type Mapping interface {
	// Bytes returns the memory. Stores to it reach the file if the mapping is
	// writable and fault otherwise. *Durability*: none before File.Sync.
	Bytes() []byte

	// Close unmaps. The memory must not be touched afterwards. A second Close
	// does nothing.
	Close() error
}
