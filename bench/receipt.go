package bench

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Schema is the version of the JSON objects Receipt and Result. Names that exist keep
// their meaning within a version; new names may appear.
const Schema = 1

// maxReceipt bounds one line of a receipts file, bytes.
const maxReceipt = 16 << 20

// Evidence is what is needed to judge a figure and to measure it again.
type Evidence struct {
	Argv []string  `json:"argv"`
	Seed uint64    `json:"seed"`
	Time time.Time `json:"time"` // when the run began, UTC
	Build
	Machine
	Disk

	// Counters holds the raw numbers figures are computed from. A name says its
	// unit: acked_records, log_bytes, broker_cpu_ns.
	Counters map[string]int64 `json:"counters,omitempty"`
	// Latencies holds every recording, by what was timed.
	Latencies map[string]*Histogram `json:"latencies,omitempty"`
	// Ceiling holds the limits of this machine, measured in the same run.
	Ceiling []Measure `json:"ceiling,omitempty"`
}

// Receipt records one run, whatever it measured. A file of receipts holds all runs,
// not the best ones.
type Receipt struct {
	Schema   int    `json:"schema"`
	Scenario string `json:"scenario"`
	Evidence
}

// Result is what one load scenario measured, in the form scripts rely on; the fields
// of its Evidence follow in the same object, so a Result reads as a Receipt too.
type Result struct {
	Schema    int     `json:"schema"`
	Scenario  string  `json:"scenario"`
	Messages  uint64  `json:"messages"` // meant to be sent or read
	Acked     uint64  `json:"acked"`    // acknowledged, or received where nothing is sent
	Size      int     `json:"size"`     // bytes of one value
	Clients   int     `json:"clients"`
	Batch     int     `json:"batch"` // records in one frame at most
	Level     string  `json:"level"` // durability asked for: none, written, durable, quorum, topic
	Seconds   float64 `json:"seconds"`
	Rate      float64 `json:"rate"`             // acked messages per second
	ByteRate  float64 `json:"bytes_per_second"` // acked value bytes per second
	LatencyUS Latency `json:"latency_us"`
	Verify    Verify  `json:"verify"`
	Broker    Broker  `json:"broker"`
	*Evidence
}

// Broker is what the broker's process used for a scenario; zero where it runs on
// another machine.
type Broker struct {
	CPUSeconds float64 `json:"cpu_seconds"` // spent during the scenario
	RSSPeak    int64   `json:"rss_peak_bytes"`
}

// NewEvidence gathers the evidence for a run that began at the given time over the
// data directory dir. An empty dir leaves the disk unknown, for a broker elsewhere.
func NewEvidence(argv []string, seed uint64, dir string, at time.Time) (Evidence, error) {
	e := Evidence{Argv: argv, Seed: seed, Time: at.UTC(), Disk: Disk{FileSystem: unknown, Device: unknown}}
	var err error
	if e.Build, err = ReadBuild(); err != nil {
		return Evidence{}, err
	}
	if e.Machine, err = ReadMachine(); err != nil {
		return Evidence{}, err
	}
	if dir == "" {
		return e, nil
	}
	if e.Disk, err = ReadDisk(dir); err != nil {
		return Evidence{}, err
	}
	return e, nil
}

// WriteResult writes r to the file at path as one JSON object and a line feed,
// replacing what was there.
func WriteResult(path string, r *Result) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("result of %s: %w", r.Scenario, err)
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

// AppendReceipt adds a line with r, a *Receipt or a *Result, to the JSON lines file
// at path and creates the file if need be. A torn last line, left by a writer that
// died, keeps a line of its own.
//
// Durability: the line is on disk when AppendReceipt returns nil.
func AppendReceipt[R *Receipt | *Result](path string, r R) (err error) {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("receipt for %s: %w", path, err)
	}
	if len(b) > maxReceipt {
		return fmt.Errorf("%w: receipt of %d bytes for %s, limit %d", ErrOutOfRange, len(b), path, maxReceipt)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	torn, err := endsTorn(f)
	if err != nil {
		return fmt.Errorf("receipts %s: %w", path, err)
	}
	if torn {
		b = append([]byte{'\n'}, b...)
	}
	// One write, so that lines of several writers do not mix.
	if _, err := f.Write(append(b, '\n')); err != nil {
		return err
	}
	return f.Sync()
}

func endsTorn(f *os.File) (bool, error) {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 || !info.Mode().IsRegular() {
		return false, err
	}
	var last [1]byte
	if _, err := f.ReadAt(last[:], info.Size()-1); err != nil {
		return false, err
	}
	return last[0] != '\n', nil
}

// ReadReceipts reads all receipts of the JSON lines file at path, empty lines left
// out.
//
// Bounds: a line is at most 16 MiB.
//
// Errors: ErrBadReceipt with the line number for a line that is no receipt of this
// schema; the receipts before it are returned too.
func ReadReceipts(path string) ([]Receipt, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []Receipt
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxReceipt+2)
	n := 1
	for ; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		var r Receipt
		if err := json.Unmarshal(line, &r); err != nil {
			return all, fmt.Errorf("%w: %s:%d: %w", ErrBadReceipt, path, n, err)
		}
		if r.Schema != Schema || r.Scenario == "" {
			return all, fmt.Errorf("%w: %s:%d: schema %d, scenario %q, want schema %d and a scenario",
				ErrBadReceipt, path, n, r.Schema, r.Scenario, Schema)
		}
		all = append(all, r)
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return all, fmt.Errorf("%w: %s:%d: line longer than %d bytes", ErrBadReceipt, path, n, maxReceipt)
	case err != nil && !errors.Is(err, io.EOF):
		return all, fmt.Errorf("receipts %s: %w", path, err)
	}
	return all, nil
}
