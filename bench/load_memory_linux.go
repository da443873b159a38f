package bench

// readResident reads the resident set of a process now, bytes.
//
// Errors: ErrNoProcess if pid has ended.
func readResident(pid int) (int64, error) {
	status, err := readProc(pid, "status")
	if err != nil {
		return 0, err
	}
	kib, err := fieldOf(status, "VmRSS:")
	return kib << 10, err
}
