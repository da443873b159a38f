//go:build linux || darwin || dragonfly || freebsd

package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// osLock holds a lock of flock(2), which the kernel ties to the open file: it
// ends with the process, and a second open of this process counts as another.
type osLock struct {
	f    *os.File
	path string
}

func (o *osFS) Lock(name, holder string) (io.Closer, error) {
	if err := checkName("lock", name); err != nil {
		return nil, err
	}
	if len(holder) > maxHolder {
		return nil, o.err("lock", name, fs.ErrInvalid)
	}
	f, err := o.root.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, o.err("lock", name, err)
	}
	l := &osLock{f: f, path: o.path(name)}
	if err := l.take(holder); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return l, nil
}

func (l *osLock) take(holder string) error {
	err := retry(func() error { return unix.Flock(int(l.f.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
	if err == unix.EWOULDBLOCK {
		b := make([]byte, maxHolder)
		n, err := l.f.ReadAt(b, 0)
		if err != nil && err != io.EOF {
			return pathError("lock", l.path, err)
		}
		return locked(l.path, string(b[:n]))
	}
	if err == nil {
		err = l.f.Truncate(0)
	}
	if err == nil {
		_, err = l.f.WriteAt([]byte(holder), 0)
	}
	return pathError("lock", l.path, err)
}

// Close empties the file and gives the lock up. The unlock is explicit because
// a child just being started may still share the descriptor.
func (l *osLock) Close() error {
	err := l.f.Truncate(0)
	if err == nil {
		err = retry(func() error { return unix.Flock(int(l.f.Fd()), unix.LOCK_UN) })
	}
	return pathError("unlock", l.path, errors.Join(err, l.f.Close()))
}
