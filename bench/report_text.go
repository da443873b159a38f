package bench

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// Text writes the report for people.
func (r *Report) Text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintln(&b, r.shapeText())
	if r.Error != "" {
		fmt.Fprintf(&b, "cut short  %s\n", r.Error)
	}
	r.rateText(&b)
	if len(r.Phases) > 1 {
		for _, p := range r.Phases {
			fmt.Fprintf(&b, "  %-8s %s msg/s, CPU per million: broker %s, client %s\n", p.Name, countText(p.Rate), cpuText(p.Broker), cpuText(p.Client))
		}
	}
	if l := r.LatencyUS; l.Max > 0 {
		fmt.Fprintf(&b, "latency    %s", l.text())
		if s := r.Spread.P50; len(r.Repeats) > 1 {
			fmt.Fprintf(&b, "; p50 %s to %s", microsText(s.Min), microsText(s.Max))
		}
		fmt.Fprintln(&b)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Latencies)) {
		if name != r.Scenario {
			fmt.Fprintf(&b, "  %s  %s\n", name, r.Latencies[name].Latency().text())
		}
	}
	r.costsText(&b)
	if r.Verify != (Verify{}) || r.Scenario != ScenarioProduce && r.Scenario != ScenarioIdle {
		fmt.Fprintf(&b, "verify     %s\n", r.Verify)
	}
	for _, m := range r.Ceiling {
		fmt.Fprintf(&b, "ceiling    %s: %s (%s)\n", m.Name, m.Text(m.Median), m.What)
	}
	for _, line := range r.Harness {
		fmt.Fprintf(&b, "note       %s\n", line)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// shapeText is the first line: what was done.
func (r *Report) shapeText() string {
	if r.Scenario == ScenarioIdle {
		return fmt.Sprintf("idle  %s", plural(r.Clients, "connection"))
	}
	text := fmt.Sprintf("%s  %s of %s messages, %s each, %s", r.Scenario, countText(float64(r.Acked)), countText(float64(r.Messages)),
		sizeText(int64(r.Size)), plural(r.Clients, "client"))
	if r.Scenario == ScenarioConsume {
		return text
	}
	if r.Conns != r.Clients {
		text += " on " + plural(r.Conns, "connection")
	}
	text += fmt.Sprintf(", batches of %d, %s", r.Batch, r.Level)
	switch {
	case r.Scenario == ScenarioLatency:
	case r.Lockstep:
		text += ", lockstep"
	default:
		text += fmt.Sprintf(", %d in flight each", r.Window)
	}
	if r.TargetRate > 0 {
		text += fmt.Sprintf(", %s/s asked for", countText(r.TargetRate))
	}
	if r.Partitions > 1 {
		text += ", " + plural(r.Partitions, "partition")
	}
	return text
}

func (r *Report) rateText(w io.Writer) {
	if r.Scenario == ScenarioIdle {
		return
	}
	fmt.Fprintf(w, "rate       %s msg/s, %sB/s", countText(r.Rate), countText(r.ByteRate))
	if s := r.Spread.Rate; len(r.Repeats) > 1 {
		fmt.Fprintf(w, "; %s to %s in %d runs", countText(s.Min), countText(s.Max), len(r.Repeats))
	}
	fmt.Fprintln(w)
}

func (r *Report) costsText(w io.Writer) {
	counted := "messages"
	if r.Scenario == ScenarioIdle {
		counted = "connections"
	}
	if n, ok := r.Counters[counterPerConnection]; ok {
		fmt.Fprintf(w, "memory     %s of the broker per connection\n", sizeText(n))
	}
	if r.Broker.RSSPeak > 0 {
		fmt.Fprintf(w, "broker     %s CPU per million %s, peak memory %s\n", cpuText(r.Spread.Broker.Median), counted, sizeText(r.Broker.RSSPeak))
	}
	if r.Client.CPUSeconds > 0 {
		fmt.Fprintf(w, "client     %s CPU per million %s\n", cpuText(r.Spread.Client.Median), counted)
	}
}

// cpuText writes milliseconds in the unit that fits; unknown as a dash.
func cpuText(ms float64) string {
	if ms == 0 {
		return "-"
	}
	return microsText(ms * 1e3)
}

func (l Latency) text() string {
	return fmt.Sprintf("p50 %s  p90 %s  p99 %s  p99.9 %s  max %s",
		microsText(l.P50), microsText(l.P90), microsText(l.P99), microsText(l.P999), microsText(l.Max))
}

// microsText writes 87 µs, 1.25 ms or 2.1 s.
func microsText(us float64) string {
	switch {
	case us < 9.995:
		return fmt.Sprintf("%.2f µs", us)
	case us < 999.5:
		return fmt.Sprintf("%.0f µs", us)
	case us < 999.5e3:
		return fmt.Sprintf("%.*f ms", decimals(us/1e3), us/1e3)
	}
	return fmt.Sprintf("%.*f s", decimals(us/1e6), us/1e6)
}

// String says it in words.
func (v Verify) String() string {
	text := fmt.Sprintf("%d lost, %d doubled, %d reordered, %d altered", v.Lost, v.Duplicated, v.Reordered, v.Altered)
	if v.Foreign > 0 {
		text += fmt.Sprintf(", %d from elsewhere", v.Foreign)
	}
	return text
}

// Text writes the comparison for people.
func (r *RatioReport) Text(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\tPER FRAME\tMILLRACE\tTIMES BETTER\tMIN\tMAX\tWHAT")
	for _, x := range r.Ratios {
		fmt.Fprintf(t, "%s\t%s %s\t%s %s\t%.1f\t%.1f\t%.1f\t%s\n", x.Name, countText(x.PerFrame.Median), x.Unit,
			countText(x.Millrace.Median), x.Unit, x.Ratio.Median, x.Ratio.Min, x.Ratio.Max, x.What)
	}
	for _, line := range r.Harness {
		fmt.Fprintf(t, "note       %s\n", line)
	}
	return t.Flush()
}

// Text writes a figure of m, one of Min, Median and Max, with its unit.
func (m *Measure) Text(figure float64) string {
	if m.Unit == UnitMicroseconds {
		return microsText(figure)
	}
	return countText(figure) + "B/s"
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// sizeText writes bytes by powers of 1024, countText numbers by powers of 1000.
func sizeText(n int64) string { return scaled(float64(n), 1024, " B", " KiB", " MiB", " GiB") }

func countText(n float64) string { return scaled(n, 1000, "", "k", "M", "G", "T") }

// scaled writes three digits and the unit that makes them enough.
func scaled(n, step float64, units ...string) string {
	i := 0
	for ; n >= step-0.5 && i < len(units)-1; i++ {
		n /= step
	}
	if i == 0 {
		return fmt.Sprintf("%.0f%s", n, units[0])
	}
	return fmt.Sprintf("%.*f%s", decimals(n), n, units[i])
}

func decimals(n float64) int {
	switch {
	case n >= 99.95:
		return 0
	case n >= 9.995:
		return 1
	}
	return 2
}
