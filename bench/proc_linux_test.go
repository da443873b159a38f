package bench

import (
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestUsageOfAProcessGrowsWithItsWork(t *testing.T) {
	before, err := ReadUsage(os.Getpid())
	require.NoError(t, err)
	self, err := SelfUsage()
	require.NoError(t, err)
	require.Positive(t, before.RSSPeak)
	require.Positive(t, self.RSSPeak)
	require.GreaterOrEqual(t, self.CPU+20*time.Millisecond, before.CPU, "both clocks count the same process")

	held := make([]byte, 48<<20)
	for i := range held {
		held[i] = byte(i)
	}
	require.Eventually(t, func() bool {
		after, err := ReadUsage(os.Getpid())
		return err == nil && after.CPU > before.CPU
	}, 10*time.Second, time.Millisecond)
	after, err := ReadUsage(os.Getpid())
	require.NoError(t, err)
	require.GreaterOrEqual(t, after.RSSPeak, int64(len(held)))
	runtime.KeepAlive(held)
}

func TestTicksAgreeWithTheClock(t *testing.T) {
	stat, err := os.ReadFile("/proc/self/stat")
	require.NoError(t, err)
	ticks, err := ticksOf(stat)
	require.NoError(t, err)
	self, err := SelfUsage()
	require.NoError(t, err)
	require.LessOrEqual(t, ticks, self.CPU+20*time.Millisecond)
}

func TestEndedProcessIsNamed(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	require.NoError(t, cmd.Run())
	_, err := ReadUsage(cmd.Process.Pid)
	require.ErrorIs(t, err, ErrNoProcess)
	_, err = ReadCalls(cmd.Process.Pid)
	require.ErrorIs(t, err, ErrNoProcess)

	_, err = ReadUsage(0)
	require.ErrorIs(t, err, ErrOutOfRange)
	_, err = ReadUsage(-1)
	require.ErrorIs(t, err, ErrOutOfRange)
}

func TestZombieIsNoProcess(t *testing.T) {
	_, err := peakOf([]byte("Name:\tx\nState:\tZ (zombie)\n"))
	require.ErrorIs(t, err, ErrNoProcess)
}

func TestCallsCountEveryWrite(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	before, err := ReadCalls(os.Getpid())
	require.NoError(t, err)
	for range 100 {
		_, err := f.Write([]byte{1})
		require.NoError(t, err)
	}
	after, err := ReadCalls(os.Getpid())
	require.NoError(t, err)
	require.GreaterOrEqual(t, after.Writes-before.Writes, int64(100))
	require.NoError(t, f.Close())
}

func TestStatIsParsedBehindAHostileCommand(t *testing.T) {
	tail := " S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0\n"
	for _, command := range []string{"(millrace)", "(a b)", "(x) S 9 9)", "())"} {
		cpu, err := ticksOf([]byte("42 " + command + tail))
		require.NoError(t, err, command)
		require.Equal(t, 3*time.Second, cpu, command)
	}
	for _, s := range []string{"", "42 millrace S 1", "42 (x) S 1 2 3", "42 (x) S 1 2 3 4 5 6 7 8 9 10 -1 50 0", "42 (x) S 1 2 3 4 5 6 7 8 9 10 1 y 0"} {
		_, err := ticksOf([]byte(s))
		require.ErrorIs(t, err, ErrBadProc, s)
	}
}

func TestMalformedFieldIsNamed(t *testing.T) {
	for _, s := range []string{"", "VmHWM:", "VmHWM: \n", "VmHWM: x kB", "VmHWM: -4 kB", "XVmHWM: 4 kB"} {
		_, err := fieldOf([]byte(s), "VmHWM:")
		require.ErrorIs(t, err, ErrBadProc, s)
	}
	n, err := fieldOf([]byte("VmPeak:\t 1 kB\nVmHWM:\t 17 kB\n"), "VmHWM:")
	require.NoError(t, err)
	require.Equal(t, int64(17), n)
}
