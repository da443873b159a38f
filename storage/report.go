package storage

import (
	"fmt"
	"strings"
	"time"
)

// Report is what opening a log found and did.
type Report struct {
	Clean         bool // closed in order: nothing was scanned
	ReadOnly      bool
	Reason        string // why it is read-only
	ScannedBytes  int64
	ScannedFrames int64
	TornBytes     int64 // cut off behind the last whole settled stretch and put into quarantine
	TornFrames    int64 // whole frames among them: they were written and never durable
	LostSuffix    bool  // the epoch rose
	Damage        []Damage
	IndexRebuilt  int
	SetAside      []string // files that no manifest names, put into quarantine
	Epoch         uint32
	Elapsed       time.Duration
}

// String says the report in one line, for the log of the broker; a clean one is short.
func (r *Report) String() string {
	if r.Clean && !r.ReadOnly && len(r.Damage) == 0 && len(r.SetAside) == 0 {
		return "clean"
	}
	var p []string
	if r.ScannedBytes > 0 {
		p = append(p, fmt.Sprintf("scanned %s, %s in %v", count(r.ScannedFrames, "frame"), count(r.ScannedBytes, "byte"), r.Elapsed.Round(time.Microsecond)))
	}
	if r.TornBytes > 0 {
		p = append(p, fmt.Sprintf("torn tail: cut %s with %s that nothing showed to be durable (kept in %s)", count(r.TornBytes, "byte"), count(r.TornFrames, "whole frame"), quarantineDir))
	}
	if r.LostSuffix {
		p = append(p, fmt.Sprintf("a suffix that was never durable may be lost: epoch %d", r.Epoch))
	}
	for _, d := range r.Damage {
		p = append(p, fmt.Sprintf("DAMAGE in segment %d at %d: offsets [%d, %d): %s", d.Segment, d.Pos, d.From, d.To, d.Kind))
	}
	for _, f := range r.SetAside {
		p = append(p, "put aside "+f)
	}
	if r.ReadOnly {
		p = append(p, "READ-ONLY: "+r.Reason)
	}
	if len(p) == 0 {
		return "empty"
	}
	return strings.Join(p, "; ")
}

// count is a number of things in words.
func count(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
