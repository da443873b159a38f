package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/millrace-mq/millrace/client"
	"github.com/millrace-mq/millrace/protocol"
)

// Names of the broker's numbers that the meter reads by itself.
const (
	statPID = "pid"
	statCPU = "cpu_nanos"
	statRSS = "rss_bytes"
)

// pidSlack bounds how far the CPU time of a process may be from what a broker said of
// itself a moment before, for the two to be the same.
const pidSlack = 2 * time.Second

// Place is where a broker's process runs.
type Place int

// The places.
const (
	PlaceUnknown   Place = iota // there is no telling
	PlaceHere                   // on this machine, where this process sees it
	PlaceElsewhere              // on another machine or in another container
)

// meter reads what the broker and this process have used.
type meter struct {
	// immutable
	admin *client.Client
	pid   int // the broker's process; 0 unless place is PlaceHere
	place Place
}

// reading is one look at all counters.
type reading struct {
	at     time.Time
	broker Usage
	self   time.Duration // CPU of this process
	stats  map[string]uint64
}

// newMeter finds out where the broker runs. A pid that STATS names may belong to
// another machine or container: it counts when the process here has used the CPU time
// that the broker says it has.
func newMeter(ctx context.Context, admin *client.Client, pid int) (*meter, error) {
	m := &meter{admin: admin, pid: pid}
	if pid != 0 {
		m.place = PlaceHere
	}
	stats, err := admin.Stats(ctx)
	if errors.Is(err, protocol.Unsupported) {
		return m, nil
	}
	if err != nil {
		return nil, err
	}
	if claimed := stats.Get(statPID); pid == 0 && claimed > 0 && claimed < 1<<31 {
		u, err := ReadUsage(int(claimed))
		off := u.CPU - time.Duration(stats.Get(statCPU))
		switch {
		case err == nil && off > -pidSlack && off < pidSlack:
			m.pid, m.place = int(claimed), PlaceHere
		case err == nil, errors.Is(err, ErrNoProcess):
			m.place = PlaceElsewhere
		}
	}
	return m, nil
}

// read looks at the counters. A broker that does not serve STATS and runs elsewhere
// leaves its part zero.
func (m *meter) read(ctx context.Context) (r reading, err error) {
	stats, err := m.admin.Stats(ctx)
	if err != nil && !errors.Is(err, protocol.Unsupported) {
		return r, fmt.Errorf("reading the broker's counters: %w", err)
	}
	r.stats = make(map[string]uint64, len(stats.Items))
	for _, s := range stats.Items {
		r.stats[s.Name] = s.Value
	}
	r.broker = Usage{CPU: time.Duration(stats.Get(statCPU)), RSSPeak: int64(stats.Get(statRSS))}
	err = m.readProcesses(&r)
	return r, err
}

// readProcesses looks at what needs no answer of the broker.
func (m *meter) readProcesses(r *reading) (err error) {
	if m.pid != 0 {
		if r.broker, err = ReadUsage(m.pid); err != nil {
			return err
		}
	}
	self, err := SelfUsage()
	r.self, r.at = self.CPU, time.Now()
	return err
}

// since is what was used from the reading before to r.
func (r *reading) since(before *reading) Spent {
	return Spent{Broker: r.broker.CPU - before.broker.CPU, RSSPeak: max(r.broker.RSSPeak, before.broker.RSSPeak),
		Client: r.self - before.self}
}

// counters are the broker's raw counters that moved from the reading before to r, and
// its gauges as they stand; names begin with broker_.
func (r *reading) counters(before *reading) map[string]int64 {
	moved := make(map[string]int64)
	for name, v := range maps.All(r.stats) {
		was, known := before.stats[name]
		switch {
		case name == statPID:
		case name == statRSS || name == "heap_bytes" || name == "goroutines":
			moved["broker_"+name] = int64(v)
		case known && v != was:
			moved["broker_"+name] = int64(v - was)
		}
	}
	return moved
}

// Spent is what a phase cost.
type Spent struct {
	Broker  time.Duration // CPU of the broker's process; 0 where unknown
	Client  time.Duration // CPU of the load generator, its child processes included
	RSSPeak int64         // of the broker so far, bytes
}

// Phase is one stretch of a run: a load of one kind from its first message to the last.
type Phase struct {
	Name     string
	Messages uint64 // acknowledged or received
	Elapsed  time.Duration
	Spent
}

// Run is one measurement of one scenario.
type Run struct {
	Messages  uint64 // meant to be sent or read
	Acked     uint64 // acknowledged, or received where nothing is sent
	Elapsed   time.Duration
	Latency   Histogram // what it times is the scenario's matter
	Verify    Verify
	Phases    []Phase
	Spans     []Span                // what was acknowledged, by producer
	Latencies map[string]*Histogram // further recordings
	Counters  map[string]int64      // raw numbers
	Place     Place                 // of the broker's process
}

// Rate is acked messages per second; 0 for an empty run.
func (r *Run) Rate() float64 { return rate(r.Acked, r.Elapsed) }

func rate(n uint64, elapsed time.Duration) float64 {
	if elapsed <= 0 {
		return 0
	}
	return float64(n) / elapsed.Seconds()
}

// spent sums the phases.
func (r *Run) spent() (s Spent) {
	for _, p := range r.Phases {
		s.Broker += p.Broker
		s.Client += p.Client
		s.RSSPeak = max(s.RSSPeak, p.RSSPeak)
	}
	return s
}

// Span is a stretch of messages of one producer.
type Span struct {
	Producer uint32 `json:"producer"`
	From     uint64 `json:"from"` // first sequence number
	N        uint64 `json:"n"`
}
