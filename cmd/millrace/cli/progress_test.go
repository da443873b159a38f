package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// work runs a job of 30.05 s that does 1000 units each 100 ms, and returns what
// was printed about it.
func work(t *testing.T, terminal bool, mode progressMode, quiet bool) string {
	var stderr bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		c := &Call{World: World{Stderr: &stderr, Terminal: terminal, Now: time.Now}, progress: mode, Quiet: quiet}
		p := c.StartProgress("produce", "records", 600_000)
		<-time.After(50 * time.Millisecond) // between the reports, not at the same time
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for range 300 {
			<-tick.C
			p.Add(1000)
		}
		p.Finish()
		p.Finish()
	})
	return stderr.String()
}

func TestTerminalLineIsRewrittenAtMostFiveTimesASecond(t *testing.T) {
	printed := work(t, true, "", false)
	require.InDelta(t, 150, strings.Count(printed, "\r"), 2)
	require.Equal(t, 1, strings.Count(printed, "\n"))
	require.Contains(t, printed, "\rproduce  99.0k of 600k records  16%  10.0k/s  10 s  ETA 50 s")
	require.True(t, strings.HasSuffix(strings.TrimRight(printed, " \n"), "300k of 600k records  50%  9.98k/s  30 s  ETA 30 s"))
}

func TestElsewhereALineEveryTenSeconds(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(work(t, false, "", false)), "\n")
	require.InDelta(t, 3, len(lines), 1)
	require.Regexp(t, `^produce  99\.0k of 600k records  16%  9\.90k/s  10 s  ETA 51 s$`, lines[0])
	require.NotContains(t, lines[0], "\r")
}

func TestProgressAsJSONIsALineASecondEvenWhenQuiet(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(work(t, true, progressJSON, true)), "\n")
	require.InDelta(t, 30, len(lines), 1)
	var last state
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &last))
	require.Equal(t, int64(300_000), last.Done)
	require.Equal(t, int64(600_000), last.Total)
	require.InDelta(t, 10_000, last.Rate, 1000)
	require.InDelta(t, 30, last.ETA, 3)
}

func TestQuietAndNeverPrintNothing(t *testing.T) {
	require.Empty(t, work(t, true, "", true))
	require.Empty(t, work(t, true, progressNever, false))
}

func TestProgressWithoutATotalHasNoPercentage(t *testing.T) {
	require.Equal(t, "scan  7 files  0/s  0.5 s", state{Label: "scan", Unit: "files", Done: 7, Seconds: 0.5}.String())
	require.Equal(t, "2m30s", HumanSeconds(150))
	var stderr bytes.Buffer
	c := &Call{World: World{Stderr: &stderr, Now: time.Now, Terminal: true}}
	p := c.StartProgress("scan", "files", 0)
	p.Add(41)
	p.Finish()
	require.Contains(t, stderr.String(), "scan  41 files")
	require.Contains(t, state{Unit: "bytes", Rate: 553e6}.String(), "553MB/s")
}

func TestShortWorkSaysNothingOffTheTerminalUnlessAsked(t *testing.T) {
	for mode, want := range map[progressMode]int{"": 0, progressJSON: 1} {
		var stderr bytes.Buffer
		p := (&Call{World: World{Stderr: &stderr, Now: time.Now}, progress: mode}).StartProgress("scan", "files", 0)
		p.Finish()
		require.Equal(t, want, strings.Count(stderr.String(), "\n"))
	}
}
