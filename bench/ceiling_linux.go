package bench

import (
	"errors"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// datasync flushes the data of f and what is needed to read it back.
func datasync(f *os.File) error {
	return os.NewSyscallError("fdatasync", unix.Fdatasync(int(f.Fd())))
}

// fileSender sends ranges of a file with sendfile(2) at an explicit position, which
// leaves the file's own position alone.
type fileSender struct {
	file *os.File
	pos  int64
}

func (s *fileSender) send(to *net.TCPConn, size int64) (sent int64, err error) {
	raw, err := to.SyscallConn()
	if err != nil {
		return 0, err
	}
	file := int(s.file.Fd()) // s keeps the file open for the call
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		for sent < size {
			n, err := unix.Sendfile(int(fd), file, &s.pos, int(size-sent))
			sent += int64(max(n, 0))
			switch {
			case errors.Is(err, unix.EAGAIN):
				return false
			case errors.Is(err, unix.EINTR):
			case err != nil:
				failed = os.NewSyscallError("sendfile", err)
				return true
			case n == 0:
				failed = io.ErrUnexpectedEOF
				return true
			}
		}
		return true
	})
	return sent, errors.Join(failed, err)
}
