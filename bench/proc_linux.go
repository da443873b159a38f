package bench

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// ReadUsage reads the usage of a running process. Processor time has nanoseconds
// where the kernel offers the process's CPU clock (clock_getcpuclockid(3)), else the
// 10 ms ticks of /proc/PID/stat.
//
// Errors: ErrNoProcess if pid has ended, a zombie included.
func ReadUsage(pid int) (Usage, error) {
	status, err := readProc(pid, "status")
	if err != nil {
		return Usage{}, err
	}
	peak, err := peakOf(status)
	if err != nil {
		return Usage{}, fmt.Errorf("pid %d: %w", pid, err)
	}
	cpu, err := readCPU(pid)
	if err != nil {
		return Usage{}, err
	}
	return Usage{CPU: cpu, RSSPeak: peak}, nil
}

// SelfUsage reads the usage of this process through getrusage(2).
func SelfUsage() (Usage, error) {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		return Usage{}, fmt.Errorf("getrusage: %w", err)
	}
	// Linux counts ru_maxrss in KiB.
	return Usage{CPU: time.Duration(r.Utime.Nano() + r.Stime.Nano()), RSSPeak: int64(r.Maxrss) << 10}, nil
}

// ReadCalls reads the system call counters of a process of the same user.
//
// Errors: ErrNoProcess if pid has ended.
func ReadCalls(pid int) (Calls, error) {
	b, err := readProc(pid, "io")
	if err != nil {
		return Calls{}, err
	}
	reads, err := fieldOf(b, "syscr:")
	if err != nil {
		return Calls{}, fmt.Errorf("pid %d: %w", pid, err)
	}
	writes, err := fieldOf(b, "syscw:")
	if err != nil {
		return Calls{}, fmt.Errorf("pid %d: %w", pid, err)
	}
	return Calls{Reads: reads, Writes: writes}, nil
}

func readProc(pid int, name string) ([]byte, error) {
	if pid <= 0 {
		return nil, fmt.Errorf("%w: pid %d, want at least 1", ErrOutOfRange, pid)
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return nil, fmt.Errorf("%w: pid %d", ErrNoProcess, pid)
	}
	return b, err
}

// readCPU reads the CPU clock of a process. Its id is the inverted pid above a
// three-bit clock type, 2 being scheduler time (include/linux/posix-timers.h).
func readCPU(pid int) (time.Duration, error) {
	var ts unix.Timespec
	err := unix.ClockGettime(int32(^pid<<3|2), &ts)
	if err == nil {
		return time.Duration(ts.Nano()), nil
	}
	if !errors.Is(err, unix.EINVAL) {
		return 0, fmt.Errorf("cpu clock of pid %d: %w", pid, err)
	}
	b, err := readProc(pid, "stat")
	if err != nil {
		return 0, err
	}
	cpu, err := ticksOf(b)
	if err != nil {
		return 0, fmt.Errorf("pid %d: %w", pid, err)
	}
	return cpu, nil
}

// ticksOf sums utime and stime, fields 14 and 15 of /proc/PID/stat. Field 2 is the
// command in parentheses and may itself hold spaces and parentheses, so fields are
// counted from the last one. A tick is 10 ms (USER_HZ) wherever Go runs on Linux.
func ticksOf(stat []byte) (time.Duration, error) {
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 {
		return 0, fmt.Errorf("%w: stat without a command", ErrBadProc)
	}
	fields := bytes.Fields(stat[end+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("%w: stat has %d fields after the command, want at least 13", ErrBadProc, len(fields))
	}
	var ticks uint64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseUint(string(f), 10, 48)
		if err != nil {
			return 0, fmt.Errorf("%w: stat: %w", ErrBadProc, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

// peakOf reads VmHWM of /proc/PID/status. A zombie has none.
func peakOf(status []byte) (int64, error) {
	kib, err := fieldOf(status, "VmHWM:")
	if errors.Is(err, errNoField) {
		return 0, ErrNoProcess
	}
	return kib << 10, err
}

var errNoField = fmt.Errorf("%w: field is missing", ErrBadProc)

// fieldOf returns the first number of the line that starts with name.
func fieldOf(b []byte, name string) (int64, error) {
	for line := range bytes.Lines(b) {
		rest, ok := bytes.CutPrefix(line, []byte(name))
		if !ok {
			continue
		}
		fields := bytes.Fields(rest)
		if len(fields) == 0 {
			break
		}
		n, err := strconv.ParseUint(string(fields[0]), 10, 50)
		if err != nil {
			return 0, fmt.Errorf("%w: %s %w", ErrBadProc, name, err)
		}
		return int64(n), nil
	}
	return 0, fmt.Errorf("%s %w", name, errNoField)
}
