//go:build !linux

package cli

import "os"

// isDevice tells whether f looks like a terminal: a character device that is not
// the null device.
func isDevice(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

// readable lets the read itself wait.
func readable(*os.File, int) (bool, error) { return true, nil }
