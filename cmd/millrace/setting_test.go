package main

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/protocol"
)

func TestSettingsTakeTheirUnits(t *testing.T) {
	for text, want := range map[string]uint64{
		"partitions=12": 12, "retention=7d": 7 * 24 * 3600 * 1000, "retention=0": 0, "retention=1500ms": 1500, "retention-bytes=50GiB": 50 << 30,
		"segment_bytes=64k": 64 << 10, "durability=written": uint64(protocol.LevelWritten), " max_message_bytes = 1MB ": 1_000_000,
	} {
		var v settingsValue
		require.NoError(t, v.Set(text), text)
		require.Equal(t, want, v.list[0].Value, text)
		require.NoError(t, v.list.Check())
	}
}

func TestSettingErrorsNameWhatIsPossible(t *testing.T) {
	for text, want := range map[string]string{
		"retention":         "not NAME=VALUE",
		"retnetion=7d":      "did you mean retention?",
		"retention=7":       "no unit",
		"retention=1us":     "whole milliseconds",
		"partitions=0":      "1 to 1024",
		"partitions=2000":   "1 to 1024",
		"segment_bytes=1":   "64KiB to",
		"durability=topic":  "none, written, durable, quorum",
		"durability=durble": "did you mean durable?",
	} {
		var v settingsValue
		require.ErrorContains(t, v.Set(text), want, text)
		require.Empty(t, v.list)
	}
	var v settingsValue
	require.NoError(t, v.Set("partitions=1"))
	require.ErrorContains(t, v.Set("partitions=2"), "given twice")
}

func TestSettingTextIsReadBack(t *testing.T) {
	for i := range protocol.Settings {
		spec := &protocol.Settings[i]
		most := spec.Max
		if spec.Unit == "ms" {
			most = mostMillis
		}
		for _, value := range []uint64{spec.Min, spec.Default, most} {
			s, err := parseSetting(spec, settingText(spec, value))
			require.NoError(t, err, spec.Name)
			require.Equal(t, protocol.Setting{ID: spec.ID, Value: value}, s)
		}
	}
}

func TestEverySettingHasAFlag(t *testing.T) {
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	v := settingFlags(fs)
	require.NoError(t, fs.Parse([]string{"-p", "3", "--retention", "1d", "--retention-bytes=1GiB", "--segment-bytes", "1MiB", "--segment-age", "0",
		"--durability", "none", "--max-message-bytes", "2KiB"}))
	require.Len(t, v.list, len(protocol.Settings))
	require.ErrorContains(t, fs.Parse([]string{"--set", "partitions=4"}), "given twice")
	require.Equal(t, "0 (keep for ever)", settingLine(protocol.SettingByName("retention"), 0))
	require.Equal(t, "none", settingLine(protocol.SettingByName("durability"), 0))
}
