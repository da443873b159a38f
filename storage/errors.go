package storage

import (
	"errors"
	"fmt"
)

var (
	// ErrClosed means that the log or store was closed.
	ErrClosed = errors.New("storage: closed")
	// ErrFailed means that a write or sync failed in a way that leaves the log's end unknown: it
	// serves reads up to its durable end until the store is opened again.
	ErrFailed = errors.New("storage: disk failed")
	// ErrRefused means that the disk refused a step and nothing happened; a later append may
	// succeed.
	ErrRefused = errors.New("storage: disk refused")
	// ErrNoSpace means that the disk is full. Nothing was appended; a later append may succeed.
	ErrNoSpace = errors.New("storage: no space")
	// ErrReadOnly means that something of the log is missing; it serves what is there.
	ErrReadOnly = errors.New("storage: read-only")
	// ErrNewer means that a file was written by a later version; nothing was touched.
	ErrNewer = errors.New("storage: written by a newer version")

	errGone = errors.New("storage: segment removed")
)

// CorruptError reports damaged bytes.
type CorruptError struct {
	Path string // of the file, below the store's directory
	Pos  int64  // where the damage begins
	From uint64 // first offset that cannot be read
	To   uint64 // first offset behind the damage; Seek(To) goes on there
	Err  error  // what is wrong with the bytes
}

// Error names file, position and offsets.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("storage: %s damaged at %d, offsets [%d, %d): %v", e.Path, e.Pos, e.From, e.To, e.Err)
}

// Unwrap returns what is wrong with the bytes.
func (e *CorruptError) Unwrap() error { return e.Err }

// RangeError reports an offset that the log does not have.
type RangeError struct {
	Offset uint64
	Start  uint64 // first offset kept
	End    uint64 // behind the last visible one
	Epoch  uint32
	Lost   bool // the log has lost a suffix in its life and the offset may lie in it
}

// Error names the offset and the range.
func (e *RangeError) Error() string {
	if e.Lost {
		return fmt.Sprintf("storage: offset %d beyond end %d of a log that lost a suffix (epoch %d)", e.Offset, e.End, e.Epoch)
	}
	return fmt.Sprintf("storage: offset %d outside [%d, %d]", e.Offset, e.Start, e.End)
}
