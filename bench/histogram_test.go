package bench

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

var quantiles = []float64{-1, 0, 0.001, 0.25, 0.5, 0.9, 0.95, 0.99, 0.999, 0.9999, 1, 2, math.NaN()}

// requireQuantiles compares h with the sorted values it recorded.
func requireQuantiles(t *testing.T, h *Histogram, sorted []int64) {
	t.Helper()
	require.Equal(t, uint64(len(sorted)), h.Count())
	require.Equal(t, sorted[0], h.Min())
	require.Equal(t, sorted[len(sorted)-1], h.Max())
	for _, q := range quantiles {
		exact := sorted[quantilePlace(uint64(len(sorted)), q)]
		got := h.Quantile(q)
		require.GreaterOrEqual(t, got, exact, "q=%v", q)
		require.LessOrEqual(t, got-exact, exact/64, "q=%v exact=%d got=%d", q, exact, got)
	}
	require.Equal(t, sorted[len(sorted)-1], h.Quantile(1))
}

func TestCountersTileTheRange(t *testing.T) {
	next := int64(0)
	for i := range counterMax {
		require.Equal(t, i, counterOf(next), "smallest value of counter %d", i)
		top := counterTop(i)
		require.Equal(t, i, counterOf(top), "largest value of counter %d", i)
		require.LessOrEqual(t, top-next, next/64, "counter %d is wider than 1/64 of its smallest value", i)
		next = top + 1
	}
	require.Equal(t, int64(math.MinInt64), next, "the last counter ends at the largest int64")
}

func TestQuantilesWithinOne64thOfExact(t *testing.T) {
	shapes := map[string]func(*rand.Rand) int64{
		"uniform":     func(r *rand.Rand) int64 { return r.Int64N(5_000_000) },
		"exponential": func(r *rand.Rand) int64 { return int64(r.ExpFloat64() * 150_000) },
		"two modes": func(r *rand.Rand) int64 {
			if r.IntN(100) == 0 {
				return 20_000_000 + r.Int64N(1_000_000)
			}
			return 90_000 + r.Int64N(10_000)
		},
		"every magnitude": func(r *rand.Rand) int64 { return r.Int64() >> r.IntN(63) },
		"constant":        func(*rand.Rand) int64 { return 123_457 },
		"small":           func(r *rand.Rand) int64 { return r.Int64N(200) },
	}
	for name, draw := range shapes {
		t.Run(name, func(t *testing.T) {
			for _, n := range []int{1, 2, 3, 100, 20_000} {
				r := rand.New(rand.NewPCG(7, uint64(n)))
				var h Histogram
				values := make([]int64, n)
				for i := range values {
					values[i] = draw(r)
					h.Record(values[i])
				}
				slices.Sort(values)
				requireQuantiles(t, &h, values)
			}
		})
	}
}

func TestSmallValuesAreExact(t *testing.T) {
	var h Histogram
	for v := range int64(128) {
		h.Record(v)
	}
	for v := range int64(128) {
		require.Equal(t, v, h.Quantile(float64(v)/127))
	}
}

func TestEmptyHistogramAnswersZero(t *testing.T) {
	var h Histogram
	require.Zero(t, h.Count())
	require.Zero(t, h.Quantile(0.5))
	require.Equal(t, Latency{}, h.Latency())
}

func TestNegativeDurationCountsAsZero(t *testing.T) {
	var h Histogram
	h.Record(-5)
	h.Record(math.MinInt64)
	require.Equal(t, uint64(2), h.Count())
	require.Zero(t, h.Min())
	require.Zero(t, h.Max())
}

func TestMergeEqualsRecordingBoth(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var whole, left, right, empty Histogram
	for i := range 10_000 {
		v := r.Int64() >> r.IntN(63)
		whole.Record(v)
		if i%3 == 0 {
			left.Record(v)
		} else {
			right.Record(v)
		}
	}
	left.Merge(&empty)
	left.Merge(&right)
	require.Equal(t, whole, left)
	empty.Merge(&whole)
	require.Equal(t, whole, empty)
}

func TestLatencyIsInMicroseconds(t *testing.T) {
	var h Histogram
	for range 1000 {
		h.Record(100_000)
	}
	h.Record(2_500_000)
	l := h.Latency()
	require.InDelta(t, 100, l.P50, 100.0/64)
	require.InDelta(t, 100, l.P99, 100.0/64)
	require.Equal(t, 2500.0, l.Max)
}

func TestRecordAllocatesNothing(t *testing.T) {
	var h Histogram
	v := int64(1)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		h.Record(v)
		v = v*3 + 1
	}))
}

func TestHistogramJSONKeepsEveryCounter(t *testing.T) {
	var h, back Histogram
	b, err := json.Marshal(&h)
	require.NoError(t, err)
	back.Record(9)
	require.NoError(t, json.Unmarshal(b, &back))
	require.Equal(t, h, back)

	for _, v := range []int64{0, 1, 127, 128, 255, 256, 1_000_000, math.MaxInt64} {
		h.Record(v)
	}
	b, err = json.Marshal(&h)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &back))
	require.Equal(t, h, back)
}

func TestHistogramJSONRefusesContradictions(t *testing.T) {
	var kept Histogram
	kept.Record(42)
	for name, s := range map[string]string{
		"no json":             `{`,
		"other unit":          `{"unit":"us","counters_per_power":64,"count":1,"min":3,"max":3,"counters":[[3,1]]}`,
		"other resolution":    `{"unit":"ns","counters_per_power":128,"count":1,"min":3,"max":3,"counters":[[3,1]]}`,
		"ordinal too large":   `{"unit":"ns","counters_per_power":64,"count":1,"min":3,"max":3,"counters":[[3712,1]]}`,
		"descending":          `{"unit":"ns","counters_per_power":64,"count":2,"min":2,"max":3,"counters":[[3,1],[2,1]]}`,
		"repeated":            `{"unit":"ns","counters_per_power":64,"count":2,"min":3,"max":3,"counters":[[3,1],[3,1]]}`,
		"zero counter":        `{"unit":"ns","counters_per_power":64,"count":0,"min":0,"max":0,"counters":[[3,0]]}`,
		"sum below count":     `{"unit":"ns","counters_per_power":64,"count":2,"min":3,"max":3,"counters":[[3,1]]}`,
		"sum above count":     `{"unit":"ns","counters_per_power":64,"count":1,"min":3,"max":4,"counters":[[3,1],[4,1]]}`,
		"sum overflows":       `{"unit":"ns","counters_per_power":64,"count":1,"min":3,"max":4,"counters":[[3,18446744073709551615],[4,2]]}`,
		"half a pair":         `{"unit":"ns","counters_per_power":64,"count":1,"min":3,"max":3,"counters":[[3]]}`,
		"min outside":         `{"unit":"ns","counters_per_power":64,"count":1,"min":2,"max":3,"counters":[[3,1]]}`,
		"max outside":         `{"unit":"ns","counters_per_power":64,"count":1,"min":3,"max":4,"counters":[[3,1]]}`,
		"negative min":        `{"unit":"ns","counters_per_power":64,"count":1,"min":-3,"max":3,"counters":[[3,1]]}`,
		"min above max":       `{"unit":"ns","counters_per_power":64,"count":2,"min":129,"max":128,"counters":[[128,2]]}`,
		"empty with extremes": `{"unit":"ns","counters_per_power":64,"count":0,"min":1,"max":1,"counters":[]}`,
	} {
		t.Run(name, func(t *testing.T) {
			h := kept
			require.ErrorIs(t, h.UnmarshalJSON([]byte(s)), ErrBadHistogram)
			require.Equal(t, kept, h, "a refused encoding must not change the histogram")
		})
	}
}

func FuzzHistogramQuantiles(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8})
	f.Add(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, 127), 128))
	f.Fuzz(func(t *testing.T, b []byte) {
		var h Histogram
		var values []int64
		for ; len(b) >= 8 && len(values) < 4096; b = b[8:] {
			v := int64(binary.BigEndian.Uint64(b))
			h.Record(v)
			values = append(values, max(v, 0))
		}
		if len(values) == 0 {
			return
		}
		slices.Sort(values)
		requireQuantiles(t, &h, values)
	})
}

func FuzzHistogramJSON(f *testing.F) {
	f.Add([]byte(`{"unit":"ns","counters_per_power":64,"count":2,"min":3,"max":200,"counters":[[3,1],[164,1]]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var h, back Histogram
		if h.UnmarshalJSON(b) != nil {
			return
		}
		for _, q := range quantiles {
			v := h.Quantile(q)
			require.GreaterOrEqual(t, v, h.Min())
			require.LessOrEqual(t, v, h.Max())
		}
		again, err := h.MarshalJSON()
		require.NoError(t, err)
		require.NoError(t, back.UnmarshalJSON(again))
		require.Equal(t, h, back)
	})
}

func BenchmarkHistogramRecord(b *testing.B) {
	var h Histogram
	v := uint64(1)
	b.ReportAllocs()
	for b.Loop() {
		v = v*6364136223846793005 + 1442695040888963407
		h.Record(int64(v >> 44))
	}
}
