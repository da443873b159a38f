package cli

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// progressMode is the flag --progress.
type progressMode string

const (
	progressAuto  progressMode = "auto"
	progressNever progressMode = "never"
	progressJSON  progressMode = "json"
)

// Set takes auto, never or json.
func (m *progressMode) Set(text string) error {
	switch mode := progressMode(text); mode {
	case progressAuto, progressNever, progressJSON:
		*m = mode
		return nil
	}
	return fmt.Errorf("not one of %s, %s, %s", progressAuto, progressNever, progressJSON)
}

// String returns the mode; auto where none was given.
func (m *progressMode) String() string {
	if m == nil || *m == "" {
		return string(progressAuto)
	}
	return string(*m)
}

// How often progress is printed: a terminal's line is rewritten, others get new lines.
const (
	terminalEvery = 200 * time.Millisecond
	linesEvery    = 10 * time.Second
	jsonEvery     = time.Second
)

// Progress reports on stderr how far a long work is. The work only adds to a
// counter; a goroutine prints until Finish.
type Progress struct {
	// immutable
	label, unit string
	total       int64 // 0 = unknown
	mode        progressMode
	terminal    bool
	out         io.Writer
	now         func() time.Time
	began       time.Time
	stop        chan struct{}
	stopped     chan struct{} // closed when the goroutine is gone
	once        sync.Once

	done atomic.Int64

	// owned by the goroutine, after it by Finish
	window []sample // of the last seconds, for the rate
	width  int      // of the line on the terminal
}

// sample is a count at a time.
type sample struct {
	at   time.Time
	done int64
}

// StartProgress begins to report on a work of total units (0 = unknown). The
// caller must call Finish.
func (c *Call) StartProgress(label, unit string, total int64) *Progress {
	p := &Progress{label: label, unit: unit, total: total, mode: c.progress, terminal: c.Terminal, out: c.Stderr, now: c.Now,
		stop: make(chan struct{}), stopped: make(chan struct{})}
	p.began = p.now()
	p.window = []sample{{p.began, 0}}
	every := linesEvery
	switch {
	case p.mode == progressJSON:
		every = jsonEvery
	case c.Quiet || p.mode == progressNever:
		p.mode = progressNever
		close(p.stopped)
		return p
	case p.terminal:
		every = terminalEvery
	}
	go p.report(every)
	return p
}

// Add counts n more units; it may be called by many goroutines.
func (p *Progress) Add(n int64) { p.done.Add(n) }

// Finish ends the reports, on a terminal and as JSON with a last one. Elsewhere
// the command's own result says the same.
func (p *Progress) Finish() {
	p.once.Do(func() {
		close(p.stop)
		<-p.stopped
		if p.mode == progressNever || !p.terminal && p.mode != progressJSON {
			return
		}
		p.window = []sample{{p.began, 0}} // the last rate is that of the whole work
		p.print()
		if p.terminal && p.mode != progressJSON {
			fmt.Fprintln(p.out)
		}
	})
}

func (p *Progress) report(every time.Duration) {
	defer close(p.stopped)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-ticker.C:
			p.print()
		}
	}
}

// state is one report.
type state struct {
	Label   string  `json:"label"`
	Unit    string  `json:"unit"`
	Done    int64   `json:"done"`
	Total   int64   `json:"total,omitempty"`
	Rate    float64 `json:"rate"` // units a second: of the last seconds, in the end of all
	Seconds float64 `json:"seconds"`
	ETA     float64 `json:"eta_seconds,omitempty"` // 0 = unknown
}

// rateWindow is how many samples the rate spans.
const rateWindow = 16

// measure takes a sample and says how the work stands.
func (p *Progress) measure() state {
	now := sample{p.now(), p.done.Load()}
	first := p.window[0]
	p.window = append(p.window, now)
	if len(p.window) > rateWindow {
		p.window = p.window[1:]
	}
	s := state{Label: p.label, Unit: p.unit, Done: now.done, Total: p.total, Seconds: now.at.Sub(p.began).Seconds()}
	if span := now.at.Sub(first.at).Seconds(); span > 0 {
		s.Rate = float64(now.done-first.done) / span
	}
	if left := p.total - now.done; p.total > 0 && left > 0 && s.Rate > 0 {
		s.ETA = float64(left) / s.Rate
	}
	return s
}

func (p *Progress) print() {
	s := p.measure()
	switch {
	case p.mode == progressJSON:
		if line, err := MarshalLine(s); err == nil {
			fmt.Fprintf(p.out, "%s", line)
		}
	case p.terminal:
		line := s.String()
		pad := strings.Repeat(" ", max(0, p.width-len(line)))
		p.width = len(line)
		fmt.Fprintf(p.out, "\r%s%s", line, pad)
	default:
		fmt.Fprintln(p.out, s)
	}
}

// String returns "produce  476k of 1.00M records  48%  230k/s  2.1 s  ETA 2.3 s".
func (s state) String() string {
	text := s.Label + "  " + HumanCount(float64(s.Done))
	if s.Total > 0 {
		text += fmt.Sprintf(" of %s %s  %d%%", HumanCount(float64(s.Total)), s.Unit, 100*min(s.Done, s.Total)/s.Total)
	} else {
		text += " " + s.Unit
	}
	unit := ""
	if s.Unit == "bytes" {
		unit = "B"
	}
	text += fmt.Sprintf("  %s%s/s  %s", HumanCount(s.Rate), unit, HumanSeconds(s.Seconds))
	if s.ETA > 0 {
		text += "  ETA " + HumanSeconds(s.ETA)
	}
	return text
}

// HumanSeconds writes 2.1 s, 48 s or 12m30s.
func HumanSeconds(seconds float64) string {
	switch {
	case seconds < 10:
		return fmt.Sprintf("%.1f s", seconds)
	case seconds < 120:
		return fmt.Sprintf("%.0f s", seconds)
	}
	return (time.Duration(seconds) * time.Second).String()
}
