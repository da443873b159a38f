package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/millrace-mq/millrace/protocol"
)

// Report is the Result of one or more runs of one shape: of the run in the middle by
// rate, or by median latency where a rate was asked for, or of the one that was cut
// short. Verify counts the flaws of all runs. What
// follows the Result's own fields in the same object says more.
type Report struct {
	Result
	Partitions int            `json:"partitions"`
	Conns      int            `json:"connections"` // of the producers or consumers
	Window     int            `json:"window"`      // batches a producer may have unanswered
	Lockstep   bool           `json:"lockstep"`
	LingerUS   int64          `json:"linger_us"`
	TargetRate float64        `json:"target_rate,omitempty"` // messages per second asked for
	Topic      string         `json:"topic,omitempty"`
	Client     ClientReport   `json:"client"`
	Phases     []PhaseReport  `json:"phases"`
	Spread     SpreadReport   `json:"spread"`
	Repeats    []RepeatReport `json:"repeats"` // each measured run, in their order
	Spans      []Span         `json:"acked_spans,omitempty"`
	Harness    []string       `json:"harness"`         // what the figures do not say
	Error      string         `json:"error,omitempty"` // what cut the last run short
}

// ClientReport is what the load generator used.
type ClientReport struct {
	CPUSeconds float64 `json:"cpu_seconds"`
}

// PhaseReport is one phase of the run in the middle.
type PhaseReport struct {
	Name     string  `json:"name"`
	Messages uint64  `json:"messages"`
	Seconds  float64 `json:"seconds"`
	Rate     float64 `json:"rate"`
	Costs
}

// Costs are CPU milliseconds per million messages; 0 where unknown.
type Costs struct {
	Broker float64 `json:"broker_cpu_ms_per_million"`
	Client float64 `json:"client_cpu_ms_per_million"`
}

// RepeatReport is one measured run.
type RepeatReport struct {
	Acked     uint64  `json:"acked"`
	Seconds   float64 `json:"seconds"`
	Rate      float64 `json:"rate"`
	LatencyUS Latency `json:"latency_us"`
	Costs
	Phases []PhaseReport `json:"phases"`
}

// SpreadReport is the range of figures over all measured runs.
type SpreadReport struct {
	Rate   Spread `json:"rate"`
	P50    Spread `json:"p50_us"`
	P99    Spread `json:"p99_us"`
	Broker Spread `json:"broker_cpu_ms_per_million"`
	Client Spread `json:"client_cpu_ms_per_million"`
}

// Spread is a figure over repeats.
type Spread struct {
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	Max    float64 `json:"max"`
}

// spreadOf returns the spread of figures; the median of an even number is the lower of
// the two in the middle, so that it belongs to a run.
func spreadOf(figures []float64) Spread {
	if len(figures) == 0 {
		return Spread{}
	}
	f := slices.Sorted(slices.Values(figures))
	return Spread{Min: f[0], Median: f[(len(f)-1)/2], Max: f[len(f)-1]}
}

// NewReport puts the runs of one scenario and shape together; there must be one. cut is
// the error that ended the last of them early, nil if all are whole.
//
// Ownership: evidence becomes part of the report and gets the counters and recordings
// of the run that is reported.
func NewReport(scenario string, shape Shape, runs []*Run, evidence *Evidence, cut error) *Report {
	if len(runs) == 0 {
		panic("bench: a report of no run")
	}
	middle := runs[len(runs)-1]
	if cut == nil {
		middle = middleOf(runs, shape.Rate > 0)
	}
	spent := middle.spent()
	r := &Report{
		Result: Result{
			Schema: Schema, Scenario: scenario, Messages: middle.Messages, Acked: middle.Acked, Size: shape.Size,
			Clients: shape.Clients, Batch: shape.Batch, Level: shape.Level.String(), Seconds: middle.Elapsed.Seconds(),
			Rate: middle.Rate(), ByteRate: middle.Rate() * float64(shape.Size), LatencyUS: middle.Latency.Latency(),
			Broker:   Broker{CPUSeconds: spent.Broker.Seconds(), RSSPeak: spent.RSSPeak},
			Evidence: evidence,
		},
		Partitions: shape.Partitions, Conns: cmp.Or(shape.Conns, shape.Clients), Window: shape.window(), Lockstep: shape.Lockstep, LingerUS: shape.Linger.Microseconds(),
		TargetRate: shape.Rate, Topic: shape.Topic, Client: ClientReport{spent.Client.Seconds()},
		Phases: reportPhases(middle), Spans: middle.Spans,
	}
	for _, run := range runs {
		r.Verify.add(run.Verify)
		r.Repeats = append(r.Repeats, reportRepeat(run))
	}
	r.Spread = reportSpread(r.Repeats)
	evidence.Counters = maps.Clone(middle.Counters)
	evidence.Latencies = map[string]*Histogram{}
	maps.Copy(evidence.Latencies, middle.Latencies)
	if middle.Latency.Count() > 0 {
		evidence.Latencies[scenario] = &middle.Latency
	}
	if cut != nil {
		r.Error = cut.Error()
	}
	return r
}

// middleOf returns the run in the middle by rate, or where the rate was given by median
// latency.
func middleOf(runs []*Run, rated bool) *Run {
	sorted := slices.SortedStableFunc(slices.Values(runs), func(a, b *Run) int {
		if rated {
			return cmp.Compare(a.Latency.Quantile(0.5), b.Latency.Quantile(0.5))
		}
		return cmp.Compare(a.Rate(), b.Rate())
	})
	return sorted[(len(sorted)-1)/2]
}

// Repeat measures n times, and once before that if warm says so: that run does not
// count, because it pays for memory and files that later ones find in place, several
// times over in a virtual machine. A run that was cut short is the last one and counts,
// whichever it is.
func Repeat(ctx context.Context, n int, warm bool, measure func(context.Context) (*Run, error)) (runs []*Run, err error) {
	first := 0
	if warm {
		first = -1
	}
	for i := first; i < n; i++ {
		run, err := measure(ctx)
		if run != nil && (i >= 0 || err != nil) {
			runs = append(runs, run)
		}
		if err != nil {
			return runs, err
		}
	}
	return runs, nil
}

func reportPhases(run *Run) []PhaseReport {
	phases := make([]PhaseReport, 0, len(run.Phases))
	for _, p := range run.Phases {
		phases = append(phases, PhaseReport{Name: p.Name, Messages: p.Messages, Seconds: p.Elapsed.Seconds(),
			Rate: rate(p.Messages, p.Elapsed), Costs: costsOf(p.Spent, p.Messages)})
	}
	return phases
}

func costsOf(s Spent, messages uint64) Costs {
	if messages == 0 {
		return Costs{}
	}
	millions := float64(messages) / 1e6
	return Costs{Broker: s.Broker.Seconds() * 1e3 / millions, Client: s.Client.Seconds() * 1e3 / millions}
}

func reportRepeat(run *Run) RepeatReport {
	return RepeatReport{Acked: run.Acked, Seconds: run.Elapsed.Seconds(), Rate: run.Rate(), LatencyUS: run.Latency.Latency(),
		Costs: costsOf(run.spent(), run.Acked), Phases: reportPhases(run)}
}

func reportSpread(repeats []RepeatReport) SpreadReport {
	over := func(figure func(*RepeatReport) float64) Spread {
		figures := make([]float64, len(repeats))
		for i := range repeats {
			figures[i] = figure(&repeats[i])
		}
		return spreadOf(figures)
	}
	return SpreadReport{
		Rate:   over(func(r *RepeatReport) float64 { return r.Rate }),
		P50:    over(func(r *RepeatReport) float64 { return r.LatencyUS.P50 }),
		P99:    over(func(r *RepeatReport) float64 { return r.LatencyUS.P99 }),
		Broker: over(func(r *RepeatReport) float64 { return r.Broker }),
		Client: over(func(r *RepeatReport) float64 { return r.Client }),
	}
}

// Caveats says in short lines what the figures of a scenario do not tell: what loads
// the same cores, and what is timed. place is where the broker's process runs.
func Caveats(scenario string, shape Shape, addr string, place Place, cores int) []string {
	var all []string
	if near := loopback(addr); near || place == PlaceHere {
		shared := fmt.Sprintf("load generator and broker share %s: rates are of both together", plural(cores, "core"))
		if control := congestionControl(); near && control != "" {
			shared += " (loopback, " + control + ")"
		}
		all = append(all, shared)
	}
	if place == PlaceElsewhere {
		all = append(all, "the broker's CPU and memory are what it reports: its process is not visible here")
	}
	switch scenario {
	case ScenarioProduce, ScenarioE2E:
		all = append(all, "latency is "+timedText(&shape))
		if shape.Level == protocol.LevelNone {
			all = append(all, "nothing is acknowledged: the time runs until the broker has everything")
		}
	case ScenarioLatency:
		all = append(all, "latency is from due to checked by the consumer; send_lateness is the harness's part")
	}
	return all
}

// timedText says what the latency of a publishing load is.
func timedText(s *Shape) string {
	text := "from batch made to acknowledged, waiting in the client included"
	if s.Rate > 0 {
		text = "from batch due to acknowledged"
	}
	if s.every() > 1 {
		text += fmt.Sprintf("; one batch of %d is timed", s.every())
	}
	return text
}

// congestionControl returns the TCP default of this machine, "" where there is no
// telling. One that paces (bbr) costs the sending side CPU even over loopback.
func congestionControl() string {
	b, err := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// CheckWritable tells beforehand whether a file at path can be written. It leaves the
// file as it was, or does not leave one.
func CheckWritable(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err == nil {
		return errors.Join(f.Close(), os.Remove(path))
	}
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if f, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0); err != nil {
		return err
	}
	return f.Close()
}

// WriteReport writes r to the file at path as one JSON object and a line feed,
// replacing what was there.
func WriteReport[R *Report | *RatioReport | *Receipt](path string, r R) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("report for %s: %w", path, err)
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

// ReadSpans reads what was acknowledged from a report that WriteReport wrote, and the
// seed and size of the payloads.
//
// Errors: ErrBadReceipt for what is no report with spans.
func ReadSpans(path string) (spans []Span, seed uint64, size int, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, 0, 0, err
	}
	var r Report
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, 0, 0, fmt.Errorf("%w: %s: %w", ErrBadReceipt, path, err)
	}
	if r.Schema != Schema || r.Evidence == nil || r.Spans == nil && r.Acked > 0 {
		return nil, 0, 0, fmt.Errorf("%w: %s says nothing about what was acknowledged", ErrBadReceipt, path)
	}
	return r.Spans, r.Seed, r.Size, nil
}
