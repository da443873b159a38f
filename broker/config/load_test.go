package config

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/protocol"
)

func TestDefaultsAreTheDocumentedOnes(t *testing.T) {
	c, err := Load(Sources{})
	require.NoError(t, err)
	require.Equal(t, "./data", c.Storage.DataDir)
	require.Equal(t, "127.0.0.1:7654", c.Listen.Client)
	require.Equal(t, "127.0.0.1:7655", c.Listen.HTTP)
	require.Equal(t, protocol.LevelDurable, c.Durability)
	require.True(t, c.AutoCreate.Match("anything"))
	require.Equal(t, 7*24*time.Hour, c.Topic.Retention)
	require.Equal(t, int64(1)<<30, c.Topic.SegmentBytes)
	require.Equal(t, 25*time.Millisecond, c.Storage.WriteBehindInterval)
	require.Equal(t, "default", c.Origin("durability").String())
	require.Equal(t, c, Default())
}

func TestFlagOverridesEnvOverridesFileOverridesDefault(t *testing.T) {
	src := Sources{File: "m.conf"}
	step := func(want, origin string) {
		t.Helper()
		c, err := Load(src)
		require.NoError(t, err)
		require.Equal(t, want, c.Storage.DataDir)
		require.Equal(t, origin, c.Origin("storage.data_dir").String())
		require.Equal(t, want, c.Text("storage.data_dir"))
	}
	step("./data", "default")
	src.Text = []byte("# here\nstorage.data_dir = /from/file # and why\n")
	step("/from/file", "m.conf:2")
	src.Env = []string{"HOME=/root", "MILLRACE_STORAGE_DATA_DIR=/from/env", "MILLRACE_ADDR=x:1", "MILLRACE_CONFIG=m.conf"}
	step("/from/env", "env MILLRACE_STORAGE_DATA_DIR")
	src.Flags = map[string]string{"data-dir": "/from/flag"}
	step("/from/flag", "flag --data-dir")
	src.Flags = map[string]string{"storage.data_dir": "/from/long"}
	step("/from/long", "flag --storage.data_dir")
}

func TestEveryProblemIsReportedAtOnceWithItsOrigin(t *testing.T) {
	_, err := Load(Sources{
		File: "m.conf",
		Text: []byte("topic.segment_bytes = 1GBB\n" +
			"storage.data_dri = /x\n" +
			"[listen]\n" +
			"no equals sign\n" +
			"log.level = inf\n" +
			"log.level = info\n" +
			"topic.segment_bytes = 1GiB\n"),
		Env: []string{"MILLRACE_LISTEN_CLIENT=:99999", "MILLRACE_DURABILTY=none", "MILLRACE_DRAIN_TIMEOUT=10"},
		Flags: map[string]string{"data-dri": "x", "listen": "a:1", "listen.client": "b:1",
			"limits.connections": "0"},
	})
	var problems Problems
	require.ErrorAs(t, err, &problems)
	require.Equal(t, strings.TrimSpace(`
m.conf:1: topic.segment_bytes = "1GBB": not a size (unknown unit "GBB"; try "1GiB")
m.conf:2: storage.data_dri: unknown key; did you mean storage.data_dir?
m.conf:3: "[listen]": there are no sections; write the full key on each line, as in "listen.client = …"
m.conf:4: no equals sign: no "="; a line is "key = value"
m.conf:5: log.level = "inf": not one of debug, info, warn, error; did you mean info?
m.conf:6: log.level = "info": set twice (first on line 5)
m.conf:7: topic.segment_bytes = "1GiB": set twice (first on line 1)
env MILLRACE_DRAIN_TIMEOUT: drain.timeout = "10": not a duration (no unit; try "10s")
env MILLRACE_DURABILTY: unknown variable; did you mean MILLRACE_DURABILITY?
env MILLRACE_LISTEN_CLIENT: listen.client = ":99999": port 99999 is out of range: 0 to 65535
flag --data-dri: unknown flag; did you mean data-dir?
flag --limits.connections: limits.connections = "0": 0 is out of range: 1 to 1000000 connections
flag --listen.client: listen.client = "b:1": given twice (also as --listen)`), err.Error())
}

func TestProblemsComeInTheOrderOfTheFile(t *testing.T) {
	_, err := Load(Sources{File: "f", Text: []byte("log.level = x\nnonsense\nlog.format = y\n")})
	var problems Problems
	require.ErrorAs(t, err, &problems)
	require.Len(t, problems, 3)
	for i, p := range problems {
		require.Equal(t, i+1, p.Origin.Line)
	}
}

func TestAnOverriddenValueIsCheckedToo(t *testing.T) {
	_, err := Load(Sources{File: "f", Text: []byte("drain.timeout = soon"), Flags: map[string]string{"drain.timeout": "1s"}})
	require.ErrorContains(t, err, "f:1: drain.timeout")
}

func TestProblemsAreBounded(t *testing.T) {
	_, err := Load(Sources{File: "f", Text: []byte(strings.Repeat("x\n", 100_000))})
	var problems Problems
	require.ErrorAs(t, err, &problems)
	require.Len(t, problems, maxProblems)
	_, err = Load(Sources{File: "f", Text: make([]byte, MaxFileBytes+1)})
	require.ErrorContains(t, err, "1048577 bytes, at most 1048576")
	_, err = Load(Sources{File: "f", Text: []byte("log.level = " + strings.Repeat("x", 100_000))})
	require.Less(t, len(err.Error()), 300)
}

func TestValuesAreCheckedAgainstEachOther(t *testing.T) {
	_, err := Load(Sources{
		Env:   []string{"MILLRACE_LIMITS_INFLIGHT_BYTES=1MiB"},
		Flags: map[string]string{"listen": "h:1", "http": "h:1"},
	})
	require.ErrorContains(t, err, "limits.inflight_bytes is 1MiB (env MILLRACE_LIMITS_INFLIGHT_BYTES)")
	require.ErrorContains(t, err, "flag --http: listen.http")
	_, err = Load(Sources{Flags: map[string]string{"listen": "h:0", "http": "h:0"}})
	require.NoError(t, err)
}

func TestEachKeyHasOneNameOfEachSort(t *testing.T) {
	names, envs, flags := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, k := range Keys() {
		require.False(t, names[k.Name], k.Name)
		require.False(t, envs[k.Env()], k.Env())
		names[k.Name], envs[k.Env()] = true, true
		require.NotContains(t, otherEnv, k.Env())
		require.NotEmpty(t, k.Doc)
		if k.Kind == KindInt || k.Kind == KindSize || k.Kind == KindDuration {
			require.Positive(t, k.Max, k.Name)
		}
	}
	for _, f := range FlagNames() {
		require.False(t, flags[f], f)
		flags[f] = true
	}
	require.Equal(t, "MILLRACE_STORAGE_DATA_DIR", keys[0].Env())
}

// Two keys that wrote one field would pass every other test.
func TestEachKeySetsAFieldOfItsOwn(t *testing.T) {
	c := Default()
	owner := map[any]string{}
	for _, k := range Keys() {
		field := k.field(c)
		require.Empty(t, owner[field], "%s shares its field", k.Name)
		owner[field] = k.Name
	}
}

func TestTextOfEveryValueIsReadBackTheSame(t *testing.T) {
	c, err := Load(Sources{Flags: map[string]string{
		"auto_create": "logs.*, events", "topic.retention": "1w12h", "topic.segment_bytes": "1_000_000", "listen.http": "off",
		"durability": "written", "limits.connections": "10k",
	}})
	require.NoError(t, err)
	var file strings.Builder
	for _, k := range Keys() {
		file.WriteString(k.Name + " = " + c.Text(k.Name) + "\n")
	}
	again, err := Load(Sources{File: "f", Text: []byte(file.String())})
	require.NoError(t, err)
	for _, k := range Keys() {
		require.Equal(t, c.Text(k.Name), again.Text(k.Name), k.Name)
		require.Equal(t, SourceFile, again.Origin(k.Name).Source)
	}
	require.Equal(t, 7*24*time.Hour+12*time.Hour, again.Topic.Retention)
	require.Equal(t, 10_000, again.Limits.Connections)
}

func TestLookupKnowsOnlyKeys(t *testing.T) {
	k, ok := Lookup("topic.segment_bytes")
	require.True(t, ok)
	require.Equal(t, "64KiB to 4032MiB", k.Bounds())
	_, ok = Lookup("topic")
	require.False(t, ok)
	require.Empty(t, Default().Text("topic"))
}

func TestDashedFlagsAndTheReservedListenerAreAccepted(t *testing.T) {
	c, err := Load(Sources{Flags: map[string]string{"auto-create": "off", "on-storage-error": "readonly", "listen": "127.0.0.1:7655"}})
	require.NoError(t, err, "a listener that there is not takes no address")
	require.Equal(t, "off", c.AutoCreate.String())
	require.Equal(t, "readonly", c.OnStorageError)
	c, err = Load(Sources{Flags: map[string]string{"auto_create": "logs.*", "on_storage_error": "exit", "http": "127.0.0.1:1"}})
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:1", c.Listen.HTTP)
	k, ok := Lookup("listen.http")
	require.True(t, ok && k.Reserved)
	require.Contains(t, k.Doc, "Not in this release")
}
