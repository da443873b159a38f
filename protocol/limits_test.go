package protocol

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTopicNamesThatCouldLeaveTheDirectoryAreRefused(t *testing.T) {
	for _, name := range []string{"", ".", "..", "../x", "a/b", "/etc/passwd", `a\b`, "%2e", "%2e%2e%2f", "a\x00b", "\x00", "a b", " a", "a\n", "\ta",
		"ü", "topic\u202e", "Å", "a:b", "a*", "~", "a\xffb", "a\x7f", strings.Repeat("a", MaxName+1), strings.Repeat("a", 70_000)} {
		require.ErrorIs(t, ValidTopic(name), BadName, "%.40q", name)
		require.ErrorIs(t, ValidClientTopic(name), BadName, "%.40q", name)
	}
	for _, name := range []string{"a", "A-Z.a_z-0.9", "...", "..a", "a..", "-", "-rf", "0", strings.Repeat("a", MaxName), "con", "a.wal"} {
		require.NoError(t, ValidTopic(name), name)
		require.NoError(t, ValidClientTopic(name), name)
	}
	for _, name := range []string{"_", "_offsets", "__x"} {
		require.NoError(t, ValidTopic(name), name)
		require.ErrorIs(t, ValidClientTopic(name), BadName, name)
	}
}

func TestNameRefusalsCarryActualAndLimitAndFitAnAnswer(t *testing.T) {
	e := AsError(ValidTopic(strings.Repeat("a", 201)))
	require.Equal(t, Error{Code: BadName, Detail: "topic name has 201 bytes", Actual: 201, Limit: MaxName, Setting: "name"}, *e)
	e = AsError(ValidGroup(strings.Repeat("g", 256)))
	require.Equal(t, Error{Code: BadName, Detail: "group name has 256 bytes", Actual: 256, Limit: MaxGroup, Setting: "group"}, *e)
	require.Equal(t, "BAD_NAME: topic name is empty", ValidTopic("").Error(), "0 bytes are not over a limit")
	require.Equal(t, "BAD_NAME: group name is empty", ValidGroup("").Error())
	require.Less(t, len(ValidTopic(strings.Repeat("\x00", MaxName)).Error()), maxErrorText)
}

func TestGroupNames(t *testing.T) {
	for _, name := range []string{"g", "../x", "billing ü", strings.Repeat("g", MaxGroup), "a/b"} {
		require.NoError(t, ValidGroup(name), name)
	}
	for _, name := range []string{"", "a\x00", "a\nb", "\x1b[2J", "a\x7f", strings.Repeat("g", MaxGroup+1)} {
		require.ErrorIs(t, ValidGroup(name), BadName, "%.40q", name)
	}
}

func TestEachLimitHasOneRowWithUnitAndReason(t *testing.T) {
	rows := map[string]uint64{}
	for _, l := range Limits {
		require.NotContains(t, rows, l.Name)
		require.NotZero(t, l.Value, l.Name)
		require.NotEmpty(t, l.Unit, l.Name)
		require.NotEmpty(t, l.Reason, l.Name)
		rows[l.Name] = l.Value
	}
	// Settings and names that refusals of this package cite are rows.
	for _, name := range []string{"control_frame", "data_frame", "max_message_bytes", "key", "headers", "header_name", "records_per_frame", "records_per_run", "name", "group"} {
		require.Contains(t, rows, name)
	}
	// A message of the largest size, with the largest key and headers, fits a DATA frame.
	require.LessOrEqual(t, MaxMessageBytes+MinFrame+preludeSize(flagsKnown)+recordPrefix, MaxDataFrame)
	require.LessOrEqual(t, DefaultMessageBytes, MaxRun)
	require.LessOrEqual(t, MaxRun, MaxConnInflight)
	require.LessOrEqual(t, MaxConnInflight, MaxInflight)
	require.Less(t, MaxKey, noKey)
}

func TestSettingDefaultsLieWithinTheirBounds(t *testing.T) {
	names := map[string]bool{}
	for i, s := range Settings {
		require.Equal(t, SettingID(i+1), s.ID)
		require.False(t, names[s.Name])
		names[s.Name] = true
		require.NoError(t, s.Check(s.Default), s.Name)
		require.NoError(t, s.Check(s.Min), s.Name)
		require.NoError(t, s.Check(s.Max), s.Name)
		require.ErrorIs(t, s.Check(s.Max+1), BadRequest, s.Name)
		if s.Min > 0 {
			require.ErrorIs(t, s.Check(s.Min-1), BadRequest, s.Name)
		} else {
			require.NotEmpty(t, s.Zero, "%s says what 0 means", s.Name)
		}
		require.Contains(t, []string{"count", "ms", "bytes", "level"}, s.Unit)
		require.NotEmpty(t, s.Text)
		require.Same(t, &Settings[i], s.ID.Spec())
		require.Same(t, &Settings[i], SettingByName(s.Name))
	}
	require.Equal(t, constants(t, "SettingID"), len(Settings))
	require.Nil(t, SettingID(99).Spec())
	require.Nil(t, SettingByName("colour"))
}

func TestTopicSettingsAreChecked(t *testing.T) {
	good := TopicSettings{{SettingPartitions, 4}, {SettingRetention, 0}}
	require.NoError(t, good.Check())
	v, ok := good.Get(SettingPartitions)
	require.True(t, ok)
	require.Equal(t, uint64(4), v)
	_, ok = good.Get(SettingDurability)
	require.False(t, ok)
	for _, bad := range []TopicSettings{{{99, 1}}, {{SettingPartitions, 0}}, {{SettingPartitions, MaxPartitions + 1}}, {{SettingRetention, 1}, {SettingRetention, 1}}} {
		require.ErrorIs(t, bad.Check(), BadRequest)
	}
}
