package bench

import (
	"errors"

	"golang.org/x/sys/unix"
)

// sharpenTimer lets sleeps of this thread end on time: by default the kernel may add
// 50 us to gather wake-ups (prctl(2), PR_SET_TIMERSLACK).
func sharpenTimer() {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // without it sleeps are only less exact
}

// bluntTimer takes sharpenTimer back; 0 stands for the default.
func bluntTimer() {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) // the thread then only stays sharper than others
}

// nap sleeps for ns by nanosleep(2): the timers of the Go runtime round short waits up
// to 1 ms.
func nap(ns int64) {
	left := unix.NsecToTimespec(ns)
	for {
		err := unix.Nanosleep(&left, &left)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
