package bench

// RatioReport compares the broker with the per-frame method.
type RatioReport struct {
	Schema   int      `json:"schema"`
	Scenario string   `json:"scenario"`
	Messages uint64   `json:"messages"`
	Size     int      `json:"size"`
	Clients  int      `json:"clients"`
	Batch    int      `json:"batch"`
	Lockstep bool     `json:"lockstep"`
	Ratios   []Ratio  `json:"ratios"`
	Harness  []string `json:"harness"`
	*Evidence
}

// Ratio is one comparison over the same repeats.
type Ratio struct {
	Name     string `json:"name"`
	What     string `json:"what"`
	Unit     string `json:"unit"`
	PerFrame Spread `json:"per_frame"`
	Millrace Spread `json:"millrace"`
	Ratio    Spread `json:"ratio"` // how many times better, repeat by repeat
}

// The comparisons of RatioReport, in their order.
const (
	ratioIngest    = "ingest"
	ratioUnbatched = "unbatched"
	ratioIngestCPU = "ingest_cpu"
	ratioServeCPU  = "serve_cpu"
)

// pair is one repeat of one comparison.
type pair struct{ perFrame, millrace float64 }

// newRatio makes a comparison of its repeats. less tells that the smaller figure is the
// better one.
func newRatio(name, what, unit string, less bool, pairs []pair) Ratio {
	var a, b, by []float64
	for _, p := range pairs {
		a, b = append(a, p.perFrame), append(b, p.millrace)
		better, worse := p.millrace, p.perFrame
		if less {
			better, worse = worse, better
		}
		if worse > 0 {
			by = append(by, better/worse)
		}
	}
	return Ratio{Name: name, What: what, Unit: unit, PerFrame: spreadOf(a), Millrace: spreadOf(b), Ratio: spreadOf(by)}
}
