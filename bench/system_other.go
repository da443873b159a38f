//go:build unix && !linux

package bench

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

func openExecutable() (*os.File, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return os.Open(path)
}

// ReadMachine describes this machine as far as the Go runtime knows it.
func ReadMachine() (Machine, error) {
	return Machine{
		Kernel:     runtime.GOOS + " " + runtime.GOARCH,
		CPUModel:   unknown,
		Cores:      runtime.NumCPU(),
		GOMAXPROCS: runtime.GOMAXPROCS(0),
	}, nil
}

// ReadDisk says that the file system that holds dir, which must exist, is unknown.
func ReadDisk(dir string) (Disk, error) {
	if _, err := os.Stat(dir); err != nil {
		return Disk{}, err
	}
	return Disk{FileSystem: unknown, Device: unknown}, nil
}

// ReadUsage returns errors.ErrUnsupported.
func ReadUsage(pid int) (Usage, error) {
	return Usage{}, fmt.Errorf("usage of pid %d: %w", pid, errors.ErrUnsupported)
}

// ReadCalls returns errors.ErrUnsupported.
func ReadCalls(pid int) (Calls, error) {
	return Calls{}, fmt.Errorf("system calls of pid %d: %w", pid, errors.ErrUnsupported)
}

// SelfUsage reads the processor time of this process through getrusage(2). The peak
// of its memory is left 0: its unit differs between systems.
func SelfUsage() (Usage, error) {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		return Usage{}, fmt.Errorf("getrusage: %w", err)
	}
	return Usage{CPU: time.Duration(r.Utime.Nano() + r.Stime.Nano())}, nil
}

// datasync flushes the data of f, by the full flush of this system.
func datasync(f *os.File) error { return f.Sync() }

// fileSender sends ranges of a file through the net package, which uses sendfile where
// this system has it.
type fileSender struct {
	file *os.File
	pos  int64
}

func (s *fileSender) send(to *net.TCPConn, size int64) (sent int64, err error) {
	if _, err := s.file.Seek(s.pos, io.SeekStart); err != nil {
		return 0, err
	}
	sent, err = io.CopyN(to, s.file, size)
	s.pos += sent
	return sent, err
}
