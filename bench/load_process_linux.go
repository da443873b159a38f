package bench

import "syscall"

// dieWithParent makes a child process end with this one, however this one ends.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
