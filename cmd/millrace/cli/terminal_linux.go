package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

// isDevice tells whether f is a terminal. /dev/null is a character device and none.
func isDevice(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// readable waits up to so many milliseconds for f to have something to read or
// to be at its end.
func readable(f *os.File, millis int) (bool, error) {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}}, millis)
	if err == unix.EINTR {
		return false, nil
	}
	return n > 0, err
}
