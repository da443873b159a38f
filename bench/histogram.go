package bench

import (
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
)

// Layout of the counters. A value below 128 has a counter of its own; above, each
// power of two is cut into 64 counters of equal width:
//
//	counter   0 … 127    128 … 191    192 … 255    …   3648 … 3711
//	values    0 … 127    128 … 255    256 … 511    …   2^62 … 2^63-1
//	width        1           2            4        …      2^56
//
// so the width of a counter is at most 1/64 of the smallest value it counts.
const (
	subBits    = 6
	subCount   = 1 << subBits
	counterMax = (63 - subBits + 1) * subCount
)

// Histogram counts durations in nanoseconds with a relative error of at most 1/64
// (1.57 %) over the whole range of int64. The zero value is empty and ready.
//
// The scheme is the log-linear one of Gil Tene's HdrHistogram
// (https://github.com/HdrHistogram/HdrHistogram), with 64 counters per power of two.
//
// Ownership: one goroutine records; give each recording goroutine its own
// histogram and Merge them when they have stopped.
//
// Bounds: 3712 counters, 29 KiB, fixed. Record allocates nothing. A negative value
// (a wall clock that was set back) counts as 0.
type Histogram struct {
	counts [counterMax]uint64
	n      uint64
	min    int64
	max    int64
}

// counterOf returns the ordinal of the counter that counts v, v >= 0.
func counterOf(v int64) int {
	shift := max(bits.Len64(uint64(v))-subBits-1, 0)
	return shift<<subBits + int(v>>shift)
}

// counterTop returns the largest value that counter i counts.
func counterTop(i int) int64 {
	if i < 2*subCount {
		return int64(i)
	}
	shift := i>>subBits - 1
	return (int64(i)-int64(shift)<<subBits+1)<<shift - 1
}

// Record counts one duration in nanoseconds.
func (h *Histogram) Record(ns int64) {
	ns = max(ns, 0)
	h.counts[counterOf(ns)]++
	if h.n == 0 || ns < h.min {
		h.min = ns
	}
	h.max = max(h.max, ns)
	h.n++
}

// Merge adds everything from counted to h. Merging is exact: the result is what one
// histogram would hold had it recorded both streams.
func (h *Histogram) Merge(from *Histogram) {
	if from.n == 0 {
		return
	}
	for i, c := range from.counts {
		h.counts[i] += c
	}
	if h.n == 0 || from.min < h.min {
		h.min = from.min
	}
	h.max = max(h.max, from.max)
	h.n += from.n
}

// Count returns how many durations were recorded.
func (h *Histogram) Count() uint64 { return h.n }

// Min returns the smallest recorded duration, exactly; 0 when empty.
func (h *Histogram) Min() int64 { return h.min }

// Max returns the largest recorded duration, exactly; 0 when empty.
func (h *Histogram) Max() int64 { return h.max }

// Quantile returns the q-quantile in nanoseconds: the value at place
// floor((count-1)*q) of the sorted recordings, rounded up to the top of its counter
// and never above Max. It is at least the exact value and at most 1/64 above it.
// q below 0 counts as 0, above 1 as 1; an empty histogram answers 0.
func (h *Histogram) Quantile(q float64) int64 {
	if h.n == 0 {
		return 0
	}
	place := quantilePlace(h.n, q)
	var below uint64
	for i := counterOf(h.min); i < counterMax; i++ {
		below += h.counts[i]
		if below > place {
			return min(counterTop(i), h.max)
		}
	}
	panic("bench: histogram counters sum to less than their count")
}

// quantilePlace returns the place of the q-quantile among n > 0 sorted values.
func quantilePlace(n uint64, q float64) uint64 {
	if !(q > 0) {
		return 0
	}
	return min(uint64(math.Floor(float64(n-1)*min(q, 1))), n-1)
}

// Latency is the summary of a histogram that reports print, in microseconds.
type Latency struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// Latency summarizes h in microseconds.
func (h *Histogram) Latency() Latency {
	us := func(ns int64) float64 { return float64(ns) / 1e3 }
	return Latency{
		P50:  us(h.Quantile(0.50)),
		P90:  us(h.Quantile(0.90)),
		P99:  us(h.Quantile(0.99)),
		P999: us(h.Quantile(0.999)),
		Max:  us(h.max),
	}
}

// histogramJSON is the encoded form. Counters are [ordinal, count] pairs in
// ascending order, zero counters left out, so a receipt keeps every recording.
type histogramJSON struct {
	Unit     string     `json:"unit"`
	PerPower int        `json:"counters_per_power"`
	Count    uint64     `json:"count"`
	Min      int64      `json:"min"`
	Max      int64      `json:"max"`
	Counters [][]uint64 `json:"counters"`
}

// MarshalJSON encodes the raw non-zero counters. UnmarshalJSON restores an equal
// histogram from it.
func (h *Histogram) MarshalJSON() ([]byte, error) {
	e := histogramJSON{Unit: "ns", PerPower: subCount, Count: h.n, Min: h.min, Max: h.max, Counters: [][]uint64{}}
	for i, c := range h.counts {
		if c != 0 {
			e.Counters = append(e.Counters, []uint64{uint64(i), c})
		}
	}
	return json.Marshal(e)
}

// UnmarshalJSON decodes what MarshalJSON wrote.
//
// Errors: ErrBadHistogram if the counters do not ascend, do not sum to the count, or
// disagree with min and max; h is left as it was.
func (h *Histogram) UnmarshalJSON(b []byte) error {
	var e histogramJSON
	if err := json.Unmarshal(b, &e); err != nil {
		return fmt.Errorf("%w: %w", ErrBadHistogram, err)
	}
	if e.Unit != "ns" || e.PerPower != subCount {
		return fmt.Errorf("%w: unit %q with %d counters per power of two, want \"ns\" with %d",
			ErrBadHistogram, e.Unit, e.PerPower, subCount)
	}
	d := Histogram{n: e.Count, min: e.Min, max: e.Max}
	var sum uint64
	first, last := -1, -1
	for at, pair := range e.Counters {
		if len(pair) != 2 || pair[0] >= counterMax || int(pair[0]) <= last || pair[1] == 0 || pair[1] > e.Count-sum {
			return fmt.Errorf("%w: counter pair %d of %d", ErrBadHistogram, at, len(e.Counters))
		}
		last = int(pair[0])
		if first < 0 {
			first = last
		}
		d.counts[last] = pair[1]
		sum += pair[1]
	}
	if sum != e.Count {
		return fmt.Errorf("%w: counters sum to %d, count is %d", ErrBadHistogram, sum, e.Count)
	}
	if e.Count == 0 && (e.Min != 0 || e.Max != 0) {
		return fmt.Errorf("%w: empty, but min is %d and max is %d", ErrBadHistogram, e.Min, e.Max)
	}
	if e.Count > 0 && (e.Min < 0 || e.Max < e.Min || counterOf(e.Min) != first || counterOf(e.Max) != last) {
		return fmt.Errorf("%w: min %d and max %d are outside the counters", ErrBadHistogram, e.Min, e.Max)
	}
	*h = d
	return nil
}
