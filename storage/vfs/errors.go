package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// ErrLocked means that another holder has the lock of a FS.Lock.
var ErrLocked = errors.New("vfs: locked")

// maxHolder is the most bytes of a lock file that are written or read.
const maxHolder = 256

// NoSpace tells whether err means that the disk or the quota is full.
func NoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// pathError names the operation and the path in err, once.
func pathError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	switch e := err.(type) {
	case *fs.PathError:
		err = e.Err
	case *os.LinkError:
		err = e.Err
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// renameError names both paths of a rename in err.
func renameError(from, to string, err error) error {
	if err == nil {
		return nil
	}
	err = pathError("rename", from, err).(*fs.PathError).Err
	return &fs.PathError{Op: "rename", Path: from + " to " + to, Err: err}
}

// checkName refuses names that are not in the one form FS takes.
func checkName(op, name string) error {
	if !fs.ValidPath(name) || strings.IndexByte(name, 0) >= 0 {
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	return nil
}

// locked is the refusal of a lock that somebody else has.
func locked(name, holder string) error {
	if holder == "" {
		return pathError("lock", name, ErrLocked)
	}
	return pathError("lock", name, fmt.Errorf("%w by %s", ErrLocked, holder))
}

// both returns the errors there are of two.
func both(a, b error) error {
	if a != nil && b != nil {
		return errors.Join(a, b)
	}
	if a == nil {
		return b
	}
	return a
}
