package bench

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func resultOf() Result {
	return Result{
		Schema: Schema, Scenario: "produce", Messages: 1_000_000, Acked: 999_999, Size: 100, Clients: 10, Batch: 100,
		Level: "durable", Seconds: 0.5, Rate: 1_999_998, ByteRate: 199_999_800,
		LatencyUS: Latency{P50: 250, P90: 300.5, P99: 900, P999: 2500, Max: 4000.25},
		Verify:    Verify{Lost: 1, Duplicated: 2, Reordered: 3, Altered: 4},
		Broker:    Broker{CPUSeconds: 0.06, RSSPeak: 25 << 20},
	}
}

// The names and their order are a promise to scripts.
const resultText = `{"schema":1,"scenario":"produce","messages":1000000,"acked":999999,"size":100,"clients":10,"batch":100,` +
	`"level":"durable","seconds":0.5,"rate":1999998,"bytes_per_second":199999800,` +
	`"latency_us":{"p50":250,"p90":300.5,"p99":900,"p999":2500,"max":4000.25},` +
	`"verify":{"lost":1,"duplicated":2,"reordered":3,"altered":4},` +
	`"broker":{"cpu_seconds":0.06,"rss_peak_bytes":26214400}}`

func evidenceOf(t *testing.T) Evidence {
	t.Helper()
	e, err := NewEvidence([]string{"millrace", "bench", "produce", "-n", "1000000"}, 42, t.TempDir(), time.Unix(1_800_000_000, 5).UTC())
	require.NoError(t, err)
	var h Histogram
	h.Record(250_000)
	h.Record(4_000_250)
	e.Counters = map[string]int64{"acked_records": 999_999, "broker_cpu_ns": 60_000_000}
	e.Latencies = map[string]*Histogram{"ack": &h}
	e.Ceiling = []Measure{{Name: CeilingLoopback, Unit: "bytes/s", Min: 1, Median: 2, Max: 3, Repeats: 3, Latency: &Latency{P50: 1}}}
	return e
}

func TestResultHasTheNamesScriptsReadInOrder(t *testing.T) {
	r := resultOf()
	b, err := json.Marshal(&r)
	require.NoError(t, err)
	require.Equal(t, resultText, string(b))
}

func TestEvidenceFollowsTheResultInOneObject(t *testing.T) {
	r, e := resultOf(), evidenceOf(t)
	r.Evidence = &e
	b, err := json.Marshal(&r)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(b), strings.TrimSuffix(resultText, "}")+","), string(b))

	var names map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(b, &names))
	for _, name := range []string{
		"argv", "seed", "time", "commit", "dirty", "go", "binary_sha256", "kernel", "cpu_model", "cores",
		"gomaxprocs", "memory_bytes", "file_system", "device", "counters", "latencies", "ceiling",
	} {
		require.Contains(t, names, name)
	}
	var back Result
	require.NoError(t, json.Unmarshal(b, &back))
	require.Equal(t, r, back)
}

func TestWriteResultReplacesTheFileWithOneObject(t *testing.T) {
	path := filepath.Join(t.TempDir(), "result.json")
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("x", 4096)), 0o644))
	r := resultOf()
	require.NoError(t, WriteResult(path, &r))
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, resultText+"\n", string(b))
	require.Error(t, WriteResult(filepath.Join(t.TempDir(), "absent", "r.json"), &r))
}

func TestReceiptsAreReadBackAsWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "receipts.jsonl")
	e := evidenceOf(t)
	receipt := Receipt{Schema: Schema, Scenario: "ceiling", Evidence: e}
	result := resultOf()
	result.Evidence = &e
	require.NoError(t, AppendReceipt(path, &receipt))
	require.NoError(t, AppendReceipt(path, &result))
	all, err := ReadReceipts(path)
	require.NoError(t, err)
	require.Equal(t, []Receipt{receipt, {Schema: Schema, Scenario: "produce", Evidence: e}}, all)
}

func TestEvidenceWithoutADataDirectoryNamesNoDisk(t *testing.T) {
	e, err := NewEvidence(nil, 1, "", time.Unix(0, 0))
	require.NoError(t, err)
	require.Equal(t, Disk{FileSystem: "unknown", Device: "unknown"}, e.Disk)
	_, err = NewEvidence(nil, 1, filepath.Join(t.TempDir(), "absent"), time.Unix(0, 0))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestWritersDoNotMixTheirLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "receipts.jsonl")
	receipt := Receipt{Schema: Schema, Scenario: "ceiling", Evidence: evidenceOf(t)}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 10 {
				if err := AppendReceipt(path, &receipt); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	all, err := ReadReceipts(path)
	require.NoError(t, err)
	require.Len(t, all, 40)
}

func TestTornReceiptIsNamedAndKeepsItsLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "receipts.jsonl")
	receipt := Receipt{Schema: Schema, Scenario: "ceiling", Evidence: Evidence{Seed: 7}}
	require.NoError(t, AppendReceipt(path, &receipt))
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString("\n" + `{"schema":1,"scenario":"pro`)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.NoError(t, AppendReceipt(path, &receipt))

	all, err := ReadReceipts(path)
	require.ErrorIs(t, err, ErrBadReceipt)
	require.ErrorContains(t, err, path+":3:")
	require.Equal(t, []Receipt{receipt}, all, "receipts before the torn one")

	b, err := os.ReadFile(path)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	var last Receipt
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &last))
	require.Equal(t, receipt, last, "the torn line did not swallow the next one")
}

func TestForeignLinesAreRefused(t *testing.T) {
	for name, line := range map[string]string{
		"other schema": `{"schema":2,"scenario":"x"}`,
		"no scenario":  `{"schema":1}`,
		"no object":    `[1]`,
		"bad latency":  `{"schema":1,"scenario":"x","latencies":{"ack":{"unit":"us"}}}`,
	} {
		path := filepath.Join(t.TempDir(), "receipts.jsonl")
		require.NoError(t, os.WriteFile(path, []byte(line+"\n"), 0o644))
		_, err := ReadReceipts(path)
		require.ErrorIs(t, err, ErrBadReceipt, name)
		require.ErrorContains(t, err, path+":1:", name)
	}
	_, err := ReadReceipts(filepath.Join(t.TempDir(), "absent"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestOversizedLineIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "receipts.jsonl")
	require.NoError(t, os.WriteFile(path, make([]byte, maxReceipt+4096), 0o644))
	_, err := ReadReceipts(path)
	require.ErrorIs(t, err, ErrBadReceipt)
	receipt := Receipt{Schema: Schema, Scenario: strings.Repeat("x", maxReceipt)}
	require.ErrorIs(t, AppendReceipt(filepath.Join(t.TempDir(), "r"), &receipt), ErrOutOfRange)
}
