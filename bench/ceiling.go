package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// Names of the measures of Ceiling, in the order they are reported.
const (
	CeilingLoopback      = "loopback"
	CeilingPingPong      = "ping_pong"
	CeilingWriteLarge    = "pwrite_1MiB"
	CeilingWriteSmall    = "pwrite_10KiB"
	CeilingSyncAppend    = "fdatasync_append"
	CeilingSyncPrezeroed = "fdatasync_prezeroed"
	CeilingSendfile      = "sendfile"
	CeilingReadWrite     = "pread_write"
	CeilingHashSmall     = "xxhash64_100B"
	CeilingHashLarge     = "xxhash64_10KiB"
)

// DefaultCeilingBudget is the time Ceiling takes when it is given none.
const DefaultCeilingBudget = 20 * time.Second

// ceilingRepeats is how often each measure is taken. Repeats are outermost, so that
// something else running for a moment spoils one repeat of each and not one measure.
const ceilingRepeats = 3

// Units of a Measure.
const (
	UnitBytesPerSecond = "bytes/s"
	UnitMicroseconds   = "us"
)

// Measure is one limit of this machine.
type Measure struct {
	Name string `json:"name"`
	What string `json:"what"`
	Unit string `json:"unit"` // UnitBytesPerSecond, or UnitMicroseconds for the median of a repeat

	// Min, Median and Max are over the repeats.
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	Max    float64 `json:"max"`

	Repeats int      `json:"repeats"`
	Latency *Latency `json:"latency_us,omitempty"` // of single operations over all repeats

	// Raw sums over all repeats. CPU is that of this process, both ends of a
	// connection included.
	Ops        int64   `json:"ops"`
	Bytes      int64   `json:"bytes"`
	Seconds    float64 `json:"seconds"`
	CPUSeconds float64 `json:"cpu_seconds"`
}

// work is what one repeat of one limit did.
type work struct {
	ops     int64
	bytes   int64
	elapsed time.Duration
	latency *Histogram // nil where single operations are not timed
}

// limit is one way to load the machine. run works for about the given time, at least
// one operation.
type limit struct {
	name string
	what string
	unit string
	run  func(c *ceiling, slice time.Duration) (work, error)

	// warm asks for a run before each repeat that does not count. A virtual machine
	// gets memory from its host when it first touches a page, which is several times
	// slower than a write itself; the repeat finds the pages the run before gave back.
	warm bool
}

var limits = []limit{
	{name: CeilingLoopback, unit: UnitBytesPerSecond, run: (*ceiling).loopback,
		what: "TCP over loopback, one way, 256 KiB writes and reads, both ends in this process"},
	{name: CeilingPingPong, unit: UnitMicroseconds, run: (*ceiling).pingPong,
		what: "TCP over loopback, 129 B there and back, both ends in this process"},
	{name: CeilingWriteLarge, unit: UnitBytesPerSecond, run: (*ceiling).writeLarge, warm: true,
		what: "pwrite of 1 MiB at a time to a new file, memory touched before, no sync"},
	{name: CeilingWriteSmall, unit: UnitBytesPerSecond, run: (*ceiling).writeSmall, warm: true,
		what: "pwrite of 10 KiB at a time to a new file, memory touched before, no sync"},
	{name: CeilingSyncAppend, unit: UnitMicroseconds, run: (*ceiling).syncAppend,
		what: "fdatasync after a 10 KiB append that grows the file"},
	{name: CeilingSyncPrezeroed, unit: UnitMicroseconds, run: (*ceiling).syncPrezeroed,
		what: "fdatasync after a 10 KiB write within a file written with zeros before"},
	{name: CeilingSendfile, unit: UnitBytesPerSecond, run: (*ceiling).sendfile,
		what: "sendfile of 1 MiB at a time from the page cache to loopback, read in this process"},
	{name: CeilingReadWrite, unit: UnitBytesPerSecond, run: (*ceiling).readWrite,
		what: "pread of 256 KiB from the page cache and write to loopback, read in this process"},
	{name: CeilingHashSmall, unit: UnitBytesPerSecond, run: (*ceiling).hashSmall,
		what: "xxhash64 of 100 B blocks, one core"},
	{name: CeilingHashLarge, unit: UnitBytesPerSecond, run: (*ceiling).hashLarge,
		what: "xxhash64 of 10 KiB blocks, one core"},
}

// ceiling is the state of one run of Ceiling. One goroutine owns it.
type ceiling struct {
	dir      string   // of this run alone
	source   *os.File // sourceSize bytes, synced and cached: what is served
	prezeros *os.File // prezeroSize bytes of zeros, synced: where syncs find no metadata to write
	buf      []byte   // 1 MiB
}

// Ceiling measures what this machine itself can do, by doing it: each limit at least
// three times, interleaved, for about budget in total (0 means 20 s). dir is a
// directory on the disk in question; it must exist.
//
// Sender and receiver of the network limits are goroutines of this process, so the
// two share its scheduler, and ping-pong includes two wake-ups of a goroutine.
//
// Bounds: takes up to 336 MiB of disk in a directory of its own within dir, which is
// removed before Ceiling returns; some 2 MiB of memory.
//
// Errors: ErrOutOfRange for a negative budget; the error of the context when it ends,
// which is looked at between repeats; the system's errors with the limit's name.
func Ceiling(ctx context.Context, dir string, budget time.Duration) (measures []Measure, err error) {
	if budget < 0 {
		return nil, fmt.Errorf("%w: budget %v, want 0 or more", ErrOutOfRange, budget)
	}
	if budget == 0 {
		budget = DefaultCeilingBudget
	}
	own, err := os.MkdirTemp(dir, "millrace-ceiling-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(own)) }()
	began := time.Now()
	c := &ceiling{dir: own, buf: make([]byte, 1<<20)}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := c.prepare(); err != nil {
		return nil, fmt.Errorf("ceiling: prepare: %w", err)
	}
	left := max(budget-time.Since(began), budget/2)
	slice := left / time.Duration(len(limits)*ceilingRepeats)

	taken := make([]sums, len(limits))
	for range ceilingRepeats {
		for i, l := range limits {
			if err := ctx.Err(); err != nil {
				return nil, fmt.Errorf("ceiling: %w", context.Cause(ctx))
			}
			if err := taken[i].take(c, l, slice); err != nil {
				return nil, fmt.Errorf("ceiling: %s: %w", l.name, err)
			}
		}
	}
	for i, l := range limits {
		measures = append(measures, taken[i].measure(l))
	}
	return measures, nil
}

// sums gathers the repeats of one limit.
type sums struct {
	values  []float64
	total   work
	cpu     time.Duration
	latency Histogram
}

func (s *sums) take(c *ceiling, l limit, slice time.Duration) error {
	if l.warm {
		if _, err := l.run(c, slice); err != nil {
			return err
		}
	}
	before, err := SelfUsage()
	if err != nil {
		return err
	}
	w, err := l.run(c, slice)
	if err != nil {
		return err
	}
	after, err := SelfUsage()
	if err != nil {
		return err
	}
	switch l.unit {
	case UnitBytesPerSecond:
		s.values = append(s.values, float64(w.bytes)/w.elapsed.Seconds())
	case UnitMicroseconds:
		s.values = append(s.values, float64(w.latency.Quantile(0.5))/1e3)
	default:
		panic("bench: limit with unit " + l.unit)
	}
	if w.latency != nil {
		s.latency.Merge(w.latency)
	}
	s.total.ops += w.ops
	s.total.bytes += w.bytes
	s.total.elapsed += w.elapsed
	s.cpu += after.CPU - before.CPU
	return nil
}

func (s *sums) measure(l limit) Measure {
	slices.Sort(s.values)
	m := Measure{
		Name: l.name, What: l.what, Unit: l.unit, Repeats: len(s.values),
		Min: s.values[0], Median: s.values[len(s.values)/2], Max: s.values[len(s.values)-1],
		Ops: s.total.ops, Bytes: s.total.bytes, Seconds: s.total.elapsed.Seconds(), CPUSeconds: s.cpu.Seconds(),
	}
	if s.latency.Count() > 0 {
		latency := s.latency.Latency()
		m.Latency = &latency
	}
	return m
}
