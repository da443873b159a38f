package main

import (
	"fmt"
	"io"

	"github.com/millrace-mq/millrace/bench"
)

// benchText writes a report for people.
func benchText(r *bench.Report) func(w io.Writer) {
	return func(w io.Writer) {
		fmt.Fprintln(w, shapeText(r))
		if r.Error != "" {
			fmt.Fprintf(w, "cut short  %s\n", r.Error)
		}
		rateText(w, r)
		if len(r.Phases) > 1 {
			for _, p := range r.Phases {
				fmt.Fprintf(w, "  %-8s %s msg/s, CPU ms per million: broker %s, client %s\n", p.Name, humanCount(p.Rate), cpu(p.Broker), cpu(p.Client))
			}
		}
		if l := r.LatencyUS; l.Max > 0 {
			fmt.Fprintf(w, "latency    %s\n", latencyText(l))
		}
		for name, h := range r.Latencies {
			if name != r.Scenario {
				fmt.Fprintf(w, "  %s  %s\n", name, latencyText(h.Latency()))
			}
		}
		costsText(w, r)
		if r.Verify != (bench.Verify{}) || r.Scenario != bench.ScenarioProduce && r.Scenario != bench.ScenarioIdle {
			fmt.Fprintf(w, "verify     %s\n", verifyText(r.Verify))
		}
		for _, m := range r.Ceiling {
			fmt.Fprintf(w, "ceiling    %s: %s\n", m.Name, figure{m.Median, m.Unit}.text())
		}
		for _, line := range r.Harness {
			fmt.Fprintf(w, "note       %s\n", line)
		}
	}
}

// shapeText is the first line: what was done.
func shapeText(r *bench.Report) string {
	if r.Scenario == bench.ScenarioIdle {
		return fmt.Sprintf("idle  %s", plural(r.Clients, "connection"))
	}
	text := fmt.Sprintf("%s  %s of %s messages, %s each, %s", r.Scenario, humanCount(float64(r.Acked)), humanCount(float64(r.Messages)),
		humanSize(int64(r.Size)), plural(r.Clients, "client"))
	if r.Scenario == bench.ScenarioConsume {
		return text
	}
	text += fmt.Sprintf(", batches of %d, %s", r.Batch, r.Level)
	switch {
	case r.Scenario == bench.ScenarioLatency:
	case r.Lockstep:
		text += ", lockstep"
	default:
		text += fmt.Sprintf(", %d in flight each", r.Window)
	}
	if r.TargetRate > 0 {
		text += fmt.Sprintf(", %s/s asked for", humanCount(r.TargetRate))
	}
	if r.Partitions > 1 {
		text += ", " + plural(r.Partitions, "partition")
	}
	return text
}

func rateText(w io.Writer, r *bench.Report) {
	if r.Scenario == bench.ScenarioIdle {
		return
	}
	fmt.Fprintf(w, "rate       %s msg/s, %sB/s", humanCount(r.Rate), humanCount(r.ByteRate))
	if s := r.Spread.Rate; len(r.Repeats) > 1 {
		fmt.Fprintf(w, "; %s to %s in %d runs", humanCount(s.Min), humanCount(s.Max), len(r.Repeats))
	}
	fmt.Fprintln(w)
}

func costsText(w io.Writer, r *bench.Report) {
	if n, ok := r.Counters["broker_rss_per_connection_bytes"]; ok {
		fmt.Fprintf(w, "memory     %s of the broker per connection\n", humanSize(n))
	}
	if r.Broker.RSSPeak > 0 {
		fmt.Fprintf(w, "broker     %s ms CPU per million messages, peak memory %s\n", cpu(r.Spread.Broker.Median), humanSize(r.Broker.RSSPeak))
	}
	if r.Client.CPUSeconds > 0 {
		fmt.Fprintf(w, "client     %s ms CPU per million messages\n", cpu(r.Spread.Client.Median))
	}
}

// cpu writes milliseconds; unknown as a dash.
func cpu(ms float64) string {
	if ms == 0 {
		return "-"
	}
	return humanCount(ms)
}

func latencyText(l bench.Latency) string {
	return fmt.Sprintf("p50 %s  p90 %s  p99 %s  p99.9 %s  max %s",
		humanMicros(l.P50), humanMicros(l.P90), humanMicros(l.P99), humanMicros(l.P999), humanMicros(l.Max))
}

// humanMicros writes 87 µs, 1.25 ms or 2.1 s.
func humanMicros(us float64) string {
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

func verifyText(v bench.Verify) string {
	text := fmt.Sprintf("%d lost, %d doubled, %d reordered, %d altered", v.Lost, v.Duplicated, v.Reordered, v.Altered)
	if v.Foreign > 0 {
		text += fmt.Sprintf(", %d from elsewhere", v.Foreign)
	}
	return text
}
