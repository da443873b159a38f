package bench

import (
	"context"
	"runtime"
	"time"
)

// pace says when a publisher's next batch is due. Due times follow from the rate
// alone: a batch that had to wait for those before it is late, and its latency counts
// from when it was due (Tene, "How not to measure latency": coordinated omission).
//
// Ownership: one goroutine, which keeps its thread until end.
type pace struct {
	// immutable
	began    time.Time
	interval float64 // ns between batches; 0 = no rate
	first    float64 // ns: clients take turns

	n float64 // batches so far
}

// newPace makes the pace of the calling goroutine, whose batches are due each interval
// (ns; 0 = no rate) from first on.
func newPace(began time.Time, interval, first float64) *pace {
	if interval > 0 {
		runtime.LockOSThread()
		sharpenTimer()
	}
	return &pace{began: began, interval: interval, first: first}
}

// end gives the thread back. It must not end with its goroutine instead: children that
// are to die with their parent die with the thread that started them.
func (c *pace) end() {
	if c.interval > 0 {
		bluntTimer()
		runtime.UnlockOSThread()
	}
}

// wait sleeps until the next batch is due and returns that time in ns since the load
// began; -1 without a rate.
func (c *pace) wait(ctx context.Context) int64 {
	if c.interval == 0 {
		return -1
	}
	due := int64(c.first + c.n*c.interval)
	c.n++
	for {
		left := due - int64(time.Since(c.began))
		if left <= 0 || ctx.Err() != nil {
			return due
		}
		nap(min(left, int64(maxNap)))
	}
}

// maxNap bounds one sleep, so that the end of a context is noticed.
const maxNap = 50 * time.Millisecond
