package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "4096": 4096, "1_000_000": 1_000_000, "64k": 65536, "64K": 65536, "64KiB": 65536, "64kib": 65536,
		"64kB": 64000, "8MiB": 8 << 20, "8 MiB": 8 << 20, "1GB": 1_000_000_000, "1g": 1 << 30, "2TiB": 2 << 40, "7B": 7,
		"9223372036854775807": 1<<63 - 1,
	} {
		got, err := ParseSize(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
		again, err := ParseSize(FormatSize(got))
		require.NoError(t, err)
		require.Equal(t, got, again)
	}
	for _, text := range []string{"", "MiB", "-1", "1.5GiB", "1__0", "_1", "1_", "1GBB", "9223372036854775808", "8388608TiB", "0x10", "1 2"} {
		_, err := ParseSize(text)
		require.Error(t, err, text)
	}
	_, err := ParseSize("64 KiBs")
	require.EqualError(t, err, `not a size (unknown unit " KiBs"; try "64KiB")`)
}

func TestCountsArePowersOfTen(t *testing.T) {
	for text, want := range map[string]int64{"12": 12, "1_000_000": 1e6, "1M": 1e6, "10k": 1e4, "2G": 2e9} {
		got, err := ParseCount(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "k", "1MiB", "1e6", "-3"} {
		_, err := ParseCount(text)
		require.Error(t, err, text)
	}
}

func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "250ms": 250 * time.Millisecond, "30s": 30 * time.Second, "7d": 168 * time.Hour, "1w1d": 192 * time.Hour,
		"1h30m": 90 * time.Minute, "1_000us": time.Millisecond, "5µs": 5 * time.Microsecond, "0s": 0,
	} {
		got, err := ParseDuration(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
		again, err := ParseDuration(FormatDuration(got))
		require.NoError(t, err)
		require.Equal(t, got, again)
	}
	for _, text := range []string{"", "10", "s", "-1s", "1.5h", "1m1h", "1s1s", "300y", "200000d", "106751d24h", "1h 30m"} {
		_, err := ParseDuration(text)
		require.Error(t, err, text)
	}
	require.Equal(t, "1d1h1m1s1ms1us1ns", FormatDuration(25*time.Hour+time.Minute+time.Second+time.Millisecond+time.Microsecond+1))
}

func TestAddresses(t *testing.T) {
	for _, text := range []string{"127.0.0.1:7654", ":0", "localhost:1", "[::1]:7654", "[fe80::1%eth0]:1", "broker-1.example.org:65535"} {
		require.NoError(t, checkAddress(text), text)
	}
	for _, text := range []string{"localhost", "a:b", ":65536", "::1:7654", "[::1:7654", "[127.0.0.1]:1", "a b:1", "/tmp/x:1", "ho\x00st:1", "a:-1", "a:"} {
		require.Error(t, checkAddress(text), text)
	}
}

func TestTopicPatterns(t *testing.T) {
	var zero TopicPatterns
	require.False(t, zero.Match("x"))
	require.Equal(t, "off", zero.String())
	p, err := ParseTopicPatterns("logs.* , e[0-9]")
	require.NoError(t, err)
	require.Equal(t, "logs.*,e[0-9]", p.String())
	require.True(t, p.Match("logs.web"))
	require.True(t, p.Match("e7"))
	require.False(t, p.Match("e77"))
	for _, bad := range []string{"a,,b", "[", ","} {
		_, err := ParseTopicPatterns(bad)
		require.Error(t, err, bad)
	}
}

func TestZeroIsTakenOnlyWhereItHasAMeaning(t *testing.T) {
	for _, k := range Keys() {
		if k.Max == 0 || k.Min <= 0 {
			continue
		}
		err := k.assign(Default(), "0")
		if k.Zero != "" {
			require.NoError(t, err, k.Name)
		} else {
			require.ErrorContains(t, err, "out of range", k.Name)
		}
	}
}

func TestNearest(t *testing.T) {
	names := []string{"storage.data_dir", "storage.write_behind", "durability", "legacy"}
	require.Equal(t, "storage.data_dir", Nearest("storage.datadir", names))
	require.Equal(t, "storage.data_dir", Nearest("data-dir", names))
	require.Equal(t, "durability", Nearest("Durabilty", names))
	require.Empty(t, Nearest("x", names))
	require.Empty(t, Nearest("", names))
	require.Empty(t, Nearest("completely.different", names))
	require.Equal(t, 3, distance("kitten", "sitting"))
	require.Equal(t, 3, distance("", "abc"))
}

func TestWordsForYesAndNoAreNoTopicPatterns(t *testing.T) {
	for text, want := range map[string]string{
		"true": "did you mean on?", "YES": "did you mean on?", "1": "did you mean on?", "enabled": "did you mean on?", "On": "did you mean on?",
		"false": "did you mean off?", "no": "did you mean off?", "0": "did you mean off?", "Disabled": "did you mean off?",
		"maybe": "did you mean on or off?", "logs.*,on": "on stands alone", "off, events": "off stands alone", "logs.*,true": "did you mean on?",
		"two words": "nor the name of a topic", "_own": "nor the name of a topic", "a/b": "nor the name of a topic",
	} {
		_, err := ParseTopicPatterns(text)
		require.ErrorContains(t, err, want, text)
	}
	for _, text := range []string{"on", "off", "orders", "logs.*,events", "[t]rue", "[_]x*", "?"} {
		_, err := ParseTopicPatterns(text)
		require.NoError(t, err, text)
	}
	p, err := ParseTopicPatterns("[t]rue")
	require.NoError(t, err)
	require.True(t, p.Match("true"))
}

func TestNearestOfEqualsSharesMost(t *testing.T) {
	require.Equal(t, "key", Nearest("ky", []string{"H", "k", "key"}))
	require.Equal(t, "count", Nearest("cout", []string{"coat", "count"}))
}
