package protocol

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func TestPositionGrammar(t *testing.T) {
	at := func(s string) Position {
		p, err := time.Parse(time.RFC3339Nano, s)
		require.NoError(t, err)
		return Since(p)
	}
	for s, want := range map[string]Position{
		"start":                           Start,
		"end":                             End,
		"0":                               At(0),
		"45678":                           At(45678),
		"007":                             At(7),
		"18446744073709551615":            At(math.MaxUint64),
		"-0":                              Last(0),
		"-100":                            Last(100),
		"-15m":                            Since(noon.Add(-15 * time.Minute)),
		"-1d12h":                          Since(noon.Add(-36 * time.Hour)),
		"-7d":                             Since(noon.Add(-7 * 24 * time.Hour)),
		"-1.5s":                           Since(noon.Add(-1500 * time.Millisecond)),
		"-100000d":                        {PositionTime, 0},
		"@2026-11-30":                     at("2026-11-30T00:00:00Z"),
		"@2026-11-30T10:00":               at("2026-11-30T10:00:00Z"),
		"@2026-11-30T10:00Z":              at("2026-11-30T10:00:00Z"),
		"@2026-11-30T10:00+01:00":         at("2026-11-30T09:00:00Z"),
		"@2026-11-30T10:00:05":            at("2026-11-30T10:00:05Z"),
		"@2026-11-30T10:00:05.25":         at("2026-11-30T10:00:05.25Z"),
		"@2026-11-30T10:00:05.000000001Z": at("2026-11-30T10:00:05.000000001Z"),
		"@1970-01-01":                     {PositionTime, 0},
		"@17ns":                           {PositionTime, 17},
		"@18446744073709551615ns":         {PositionTime, math.MaxUint64},
	} {
		got, err := ParsePosition(s, noon)
		require.NoError(t, err, s)
		require.Equal(t, want, got, s)
	}
}

func TestBadPositionsAreRefusedWithTheGrammar(t *testing.T) {
	for _, s := range []string{"", "-", "@", "+1", "1_000", "0x10", " 1", "1 ", "begin", "START", "1.5", "18446744073709551616",
		"-15x", "--15m", "-+15m", "-1d-5h", "-1d+5h", "-200000d", "-1e3", "@1969-12-31", "@2263-01-01", "@tomorrow", "@2026-13-01", "@-1ns", "@ns", "@1.5ns",
		"-100000d2562047h"} {
		_, err := ParsePosition(s, noon)
		require.ErrorIs(t, err, BadRequest, s)
		require.NotEmpty(t, AsError(err).Hint, s)
	}
}

func TestPositionTextReadsBack(t *testing.T) {
	for _, p := range []Position{Start, End, At(0), At(math.MaxUint64), Last(0), Last(9), Last(math.MaxUint64), Since(noon),
		{PositionTime, 0}, {PositionTime, 1}, {PositionTime, math.MaxInt64}, {PositionTime, math.MaxInt64 + 1}, {PositionTime, math.MaxUint64}} {
		got, err := ParsePosition(p.String(), noon)
		require.NoError(t, err, p.String())
		require.Equal(t, p, got, p.String())
	}
	require.Equal(t, "position(9)", Position{Kind: 9}.String())
}

func TestSinceCountsFarTimesAsTheNearestThatFits(t *testing.T) {
	require.Equal(t, Position{PositionTime, 0}, Since(time.Time{}))
	require.Equal(t, Position{PositionTime, 0}, Since(time.Date(1600, 1, 1, 0, 0, 0, 0, time.UTC)))
	require.Equal(t, Position{PositionTime, math.MaxInt64}, Since(time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC)))
	require.Equal(t, Position{PositionTime, math.MaxInt64}, Since(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)))
}

func TestDurationGrammar(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"0": 0, "250ms": 250 * time.Millisecond, "30s": 30 * time.Second, "7d": 7 * 24 * time.Hour, "1d12h": 36 * time.Hour, "1d0s": 24 * time.Hour,
		"100000d": 100_000 * 24 * time.Hour, "1.5h": 90 * time.Minute, "2us": 2 * time.Microsecond, "2µs": 2 * time.Microsecond,
	} {
		got, err := ParseDuration(s)
		require.NoError(t, err, s)
		require.Equal(t, want, got, s)
	}
	for _, s := range []string{"", "d", "5", "-5s", "+5s", "1d-5h", "1d+5h", "100001d", "1d2d", "12h1d", "1.5d", "9999999999999h", "100000d2562047h"} {
		_, err := ParseDuration(s)
		require.Error(t, err, s)
	}
}
