package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/protocol"
)

var update = flag.Bool("update", false, "write the golden files anew")

func testRun(acked uint64, elapsed time.Duration) *Run {
	r := &Run{Messages: 1000, Acked: acked, Elapsed: elapsed, Spans: []Span{{0, 0, acked}},
		Counters:  map[string]int64{"produce_messages": int64(acked)},
		Latencies: map[string]*Histogram{},
		Phases: []Phase{{Name: ScenarioProduce, Messages: acked, Elapsed: elapsed,
			Spent: Spent{Broker: 40 * time.Microsecond, Client: 60 * time.Microsecond, RSSPeak: 5 << 20}}}}
	for i := range int64(100) {
		r.Latency.Record(i * 10_000)
	}
	return r
}

func testEvidence() *Evidence {
	return &Evidence{Argv: []string{"millrace", "bench", "produce"}, Seed: 7, Time: time.Unix(1_796_000_000, 0).UTC(),
		Build:   Build{Commit: "0123456789ab", Go: "go1.26", SHA256: "00ff"},
		Machine: Machine{Kernel: "Linux 6", CPUModel: "cpu", Cores: 2, GOMAXPROCS: 2, Memory: 1 << 30},
		Disk:    Disk{FileSystem: "ext4", Device: "/dev/vda"}}
}

func testShape() Shape {
	return Shape{Messages: 1000, Size: 100, Clients: 10, Batch: 100, Partitions: 1, Level: protocol.LevelDurable, Seed: 7}
}

// Scripts rely on the names and their order at the front.
func TestReportIsTheObjectScriptsRelyOn(t *testing.T) {
	r := NewReport(ScenarioProduce, testShape(), []*Run{testRun(1000, time.Millisecond)}, testEvidence(), nil)
	r.Harness = []string{"shared cores"}
	path := filepath.Join(t.TempDir(), "report.json")
	require.NoError(t, WriteReport(path, r))
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	var pretty bytes.Buffer
	require.NoError(t, json.Indent(&pretty, got, "", "  "))
	golden := filepath.Join("testdata", "report.json")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(golden, pretty.Bytes(), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), pretty.String())

	spans, seed, size, err := ReadSpans(path)
	require.NoError(t, err)
	require.Equal(t, []Span{{0, 0, 1000}}, spans)
	require.Equal(t, uint64(7), seed)
	require.Equal(t, 100, size)
}

func TestReportIsOfTheRunInTheMiddle(t *testing.T) {
	runs := []*Run{testRun(1000, 4*time.Millisecond), testRun(1000, 2*time.Millisecond), testRun(1000, 8*time.Millisecond)}
	runs[0].Verify = Verify{Lost: 1}
	runs[2].Verify = Verify{Lost: 2, Altered: 1}
	r := NewReport(ScenarioE2E, testShape(), runs, testEvidence(), nil)
	require.InDelta(t, 250_000, r.Rate, 1)
	require.InDelta(t, 25e6, r.ByteRate, 100)
	require.Equal(t, Spread{Min: 125_000, Median: 250_000, Max: 500_000}, r.Spread.Rate)
	require.Len(t, r.Repeats, 3)
	require.InDelta(t, 500_000, r.Repeats[1].Rate, 1, "repeats stay in their order")
	require.Equal(t, Verify{Lost: 3, Altered: 1}, r.Verify, "no flaw of any run is left out")
	require.InDelta(t, 40, r.Phases[0].Broker, 1e-9, "ms of CPU per million messages")
}

func TestReportOfARatedLoadIsOfTheMiddleByLatency(t *testing.T) {
	shape := testShape()
	shape.Rate = 5000
	var runs []*Run
	for i, ms := range []int64{9, 3, 5} {
		run := &Run{Acked: 10, Elapsed: time.Second + time.Duration(i)}
		run.Latency.Record(ms * 1e6)
		runs = append(runs, run)
	}
	require.InDelta(t, 5000, NewReport(ScenarioLatency, shape, runs, testEvidence(), nil).LatencyUS.P50, 100)
}

func TestReportOfACutRunIsOfThatRun(t *testing.T) {
	runs := []*Run{testRun(1000, time.Millisecond), testRun(300, time.Millisecond)}
	r := NewReport(ScenarioProduce, testShape(), runs, testEvidence(), errors.New("connection lost"))
	require.Equal(t, uint64(300), r.Acked)
	require.Equal(t, uint64(1000), r.Messages)
	require.Equal(t, "connection lost", r.Error)
	require.Equal(t, []Span{{0, 0, 300}}, r.Spans)

	path := filepath.Join(t.TempDir(), "cut.json")
	require.NoError(t, WriteReport(path, NewReport(ScenarioProduce, testShape(), []*Run{{Messages: 9}}, testEvidence(), errors.New("at once"))))
	spans, _, _, err := ReadSpans(path)
	require.NoError(t, err, "nothing acknowledged is an answer too")
	require.Empty(t, spans)
}

func TestTheWarmUpDoesNotCount(t *testing.T) {
	n := 0
	measure := func(context.Context) (*Run, error) {
		n++
		return &Run{Acked: uint64(n)}, nil
	}
	runs, err := Repeat(t.Context(), 2, true, measure)
	require.NoError(t, err)
	require.Len(t, runs, 2)
	require.Equal(t, uint64(2), runs[0].Acked)
	runs, err = Repeat(t.Context(), 1, false, measure)
	require.NoError(t, err)
	require.Len(t, runs, 1)

	dead := errors.New("dead")
	runs, err = Repeat(t.Context(), 3, true, func(context.Context) (*Run, error) { return &Run{Acked: 7}, dead })
	require.ErrorIs(t, err, dead)
	require.Len(t, runs, 1, "what was acknowledged counts even in the warm-up")
	runs, err = Repeat(t.Context(), 3, true, func(context.Context) (*Run, error) { return nil, dead })
	require.ErrorIs(t, err, dead)
	require.Empty(t, runs)
}

func TestReadSpansRefusesOtherFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"torn": `{"schema":1,`, "schema": `{"schema":2,"seed":1}`, "no evidence": `{"schema":1}`, "no spans": `{"schema":1,"seed":1,"acked":5}`} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, _, _, err := ReadSpans(path)
		require.ErrorIs(t, err, ErrBadReceipt, name)
	}
}

func TestReportForPeopleNamesFiguresAndCaveats(t *testing.T) {
	shape := testShape()
	runs := []*Run{testRun(1000, 4*time.Millisecond), testRun(1000, 2*time.Millisecond), testRun(1000, 8*time.Millisecond)}
	runs[0].Phases = append(runs[0].Phases, Phase{Name: ScenarioConsume, Messages: 1000, Elapsed: time.Millisecond})
	r := NewReport(ScenarioE2E, shape, runs, testEvidence(), nil)
	r.Harness = Caveats(ScenarioE2E, shape, "127.0.0.1:7654", PlaceHere, 2)
	var b bytes.Buffer
	require.NoError(t, r.Text(&b))
	for _, want := range []string{
		"e2e  1.00k of 1.00k messages, 100 B each, 10 clients, batches of 100, durable, 96 in flight each\n",
		"rate       250k msg/s, 25.0MB/s; 125k to 500k in 3 runs\n",
		"  consume  1.00M msg/s, CPU per million: broker -, client -\n",
		"latency    p50 492 µs  p90",
		"broker     40.0 ms CPU per million messages, peak memory 5.00 MiB\n",
		"verify     0 lost, 0 doubled, 0 reordered, 0 altered\n",
		"note       load generator and broker share 2 cores",
	} {
		require.Contains(t, b.String(), want)
	}
	require.NotContains(t, b.String(), "mean")
}

func TestCaveatsSayWhatIsNotMeasured(t *testing.T) {
	shape := testShape()
	require.Len(t, Caveats(ScenarioProduce, shape, "10.1.1.1:7654", PlaceElsewhere, 2), 2)
	shape.Level, shape.Batch = protocol.LevelNone, 1
	all := Caveats(ScenarioProduce, shape, "localhost:7654", PlaceHere, 2)
	text := strings.Join(all, "\n")
	require.Contains(t, text, "nothing is acknowledged")
	require.Contains(t, text, "one batch of 32 is timed")
}

func TestReportOfIdleConnectionsCountsConnections(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, NewReport(ScenarioIdle, testShape(), []*Run{testRun(1000, time.Millisecond)}, testEvidence(), nil).Text(&b))
	require.Contains(t, b.String(), "CPU per million connections")
	require.NotContains(t, b.String(), "messages")
}

func TestCaveatsAreFewAndShort(t *testing.T) {
	shape := testShape()
	shape.Level, shape.Batch = protocol.LevelNone, 1
	for _, scenario := range []string{ScenarioProduce, ScenarioConsume, ScenarioE2E, ScenarioLatency, ScenarioIdle, ScenarioRatio} {
		all := Caveats(scenario, shape, "127.0.0.1:7654", PlaceHere, 128)
		require.LessOrEqual(t, len(all), 3, scenario)
		for _, line := range all {
			require.LessOrEqual(t, len(line), 110, line)
		}
	}
}

// Only a run that looked for the broker's process says that it is not to be seen.
func TestAnUnknownPlaceIsNoCaveat(t *testing.T) {
	for place, want := range map[Place]bool{PlaceUnknown: false, PlaceHere: false, PlaceElsewhere: true} {
		text := strings.Join(Caveats(ScenarioProduce, testShape(), "127.0.0.1:7654", place, 2), "\n")
		require.Equal(t, want, strings.Contains(text, "not visible"), place)
	}
}

func TestProcessorTimeIsGivenInTheUnitThatFits(t *testing.T) {
	require.Equal(t, "81.7 s", cpuText(81_700))
	require.Equal(t, "131 ms", cpuText(131))
	require.Equal(t, "-", cpuText(0))
}

func TestCheckWritableLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	require.ErrorIs(t, CheckWritable(filepath.Join(dir, "none", "x")), fs.ErrNotExist)
	require.Error(t, CheckWritable(dir))
	path := filepath.Join(dir, "x")
	require.NoError(t, CheckWritable(path))
	require.NoFileExists(t, path)
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	require.NoError(t, CheckWritable(path))
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "old", string(got))
}

func TestSpreadNamesARun(t *testing.T) {
	require.Equal(t, Spread{Min: 1, Median: 2, Max: 9}, spreadOf([]float64{9, 2, 1, 3}))
	require.Zero(t, spreadOf(nil))
}

func TestRatioSaysHowManyTimesBetter(t *testing.T) {
	pairs := []pair{{100, 500}, {200, 600}, {100, 400}}
	require.Equal(t, Spread{Min: 3, Median: 4, Max: 5}, newRatio("ingest", "", "msg/s", false, pairs).Ratio)
	less := newRatio("cpu", "", "ns/msg", true, []pair{{90, 30}})
	require.Equal(t, Spread{Min: 3, Median: 3, Max: 3}, less.Ratio)
	r := RatioReport{Ratios: []Ratio{less}, Harness: []string{"x"}}
	var b bytes.Buffer
	require.NoError(t, r.Text(&b))
	require.Contains(t, b.String(), "cpu")
	require.Contains(t, b.String(), "3.0")
}

func TestFiguresForPeople(t *testing.T) {
	for _, c := range []struct{ want, got string }{
		{"0", countText(0)}, {"999", countText(999)}, {"1.00k", countText(999.6)}, {"12.5M", countText(12_500_000)},
		{"100 B", sizeText(100)}, {"1.00 KiB", sizeText(1024)}, {"2.50 GiB", sizeText(5 << 29)},
		{"1.50 µs", microsText(1.5)}, {"87 µs", microsText(87)}, {"1.25 ms", microsText(1250)}, {"2.10 s", microsText(2.1e6)},
	} {
		require.Equal(t, c.want, c.got)
	}
}
