package main

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/broker/config"
	"github.com/millrace-mq/millrace/cmd/millrace/cli"
)

func loaded(t *testing.T, flags ...string) *config.Config {
	values := map[string]string{}
	for i := 0; i < len(flags); i += 2 {
		values[flags[i]] = flags[i+1]
	}
	cfg, err := config.Load(config.Sources{Flags: values})
	require.NoError(t, err)
	return cfg
}

func TestLogTakesTheFormOfTheConfiguration(t *testing.T) {
	for _, test := range []struct {
		format   string
		terminal bool
		want     string
	}{
		{"auto", false, `{"time"`}, {"auto", true, "time="}, {"text", false, "time="}, {"json", true, `{"time"`},
	} {
		var stderr bytes.Buffer
		log := newLog(&cli.Call{World: cli.World{Stderr: &stderr, Terminal: test.terminal}}, loaded(t, "log.format", test.format, "log.level", "warn"), &recoveryNotes{}, false)
		log.Info("not this")
		log.Warn("this")
		require.True(t, strings.HasPrefix(stderr.String(), test.want), stderr.String())
		require.Equal(t, 1, strings.Count(stderr.String(), "\n"))
	}
}

func TestNotesOfTheStartGoToTheBannerAndLaterOnesToTheLog(t *testing.T) {
	var stderr bytes.Buffer
	notes := &recoveryNotes{}
	log := newLog(&cli.Call{World: cli.World{Stderr: &stderr}}, loaded(t), notes, true)
	at := log.With("topic", "orders", "partition", 3)
	at.Info("log opened", "found", "scanned 7 frames", "elapsed", 41*time.Millisecond)
	log.Warn("bad name", "topic", "x\x1b[2J")
	log.Info("unrelated", "file", "f")
	at.Debug("too fine")
	require.Equal(t, []string{"orders/3: scanned 7 frames elapsed=41ms", `x\u001b[2J: bad name`}, notes.end())
	require.Equal(t, 1, strings.Count(stderr.String(), "\n"))
	require.Contains(t, stderr.String(), "unrelated")
	at.Info("log recovered")
	require.Contains(t, stderr.String(), `"topic":"orders","partition":3`)

	full := &recoveryNotes{}
	for i := range mostNotes + 5 {
		require.Equal(t, i < mostNotes, full.add("x"))
	}
	require.Len(t, full.end(), mostNotes)
}

func TestWithoutABannerNotesAreLogged(t *testing.T) {
	var stderr bytes.Buffer
	log := newLog(&cli.Call{World: cli.World{Stderr: &stderr}}, loaded(t), &recoveryNotes{}, false)
	log.Info("log recovered", "topic", "t")
	require.Contains(t, stderr.String(), "log recovered")
}

func TestBrokerWarnsOfWhatEndangersIt(t *testing.T) {
	plenty := hostFacts{openFiles: 1 << 20, fileSystem: "ext4", free: 50, total: 100}
	warnings := func(host hostFacts, addr string, cfg *config.Config) string {
		s := summary{host: host, addr: addr, config: cfg}
		return strings.Join(s.warnings(), "\n")
	}
	require.Empty(t, warnings(plenty, "127.0.0.1:7654", loaded(t)))
	require.Empty(t, warnings(plenty, "[::1]:7654", loaded(t, "listen.http", "off")))
	for want, change := range map[string]func(h *hostFacts){
		"at most 1024 open files":         func(h *hostFacts) { h.openFiles = 1024 },
		"could not be raised":             func(h *hostFacts) { h.openFilesErr = errors.New("denied") },
		"keeps the data in memory":        func(h *hostFacts) { h.fileSystem = "tmpfs" },
		"sync on nfs":                     func(h *hostFacts) { h.fileSystem = "nfs" },
		"the disk has 5 B free of 100 B":  func(h *hostFacts) { h.free = 5 },
		"the free space is not known: no": func(h *hostFacts) { h.spaceErr = errors.New("no") },
	} {
		h := plenty
		change(&h)
		require.Contains(t, warnings(h, "127.0.0.1:1", loaded(t)), want)
	}
	require.Contains(t, warnings(plenty, "0.0.0.0:7654", loaded(t)), "without authentication")
	require.Contains(t, warnings(plenty, "[::]:7654", loaded(t)), "without authentication")
	require.Contains(t, warnings(plenty, "127.0.0.1:1", loaded(t, "http", "127.0.0.1:80")), "listen.http (flag --http) has no effect")
}

func TestBannerSaysWhatRecoveryFound(t *testing.T) {
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "ports")
	p := launchBroker(t, dir)
	require.Equal(t, cli.ExitOK, p.ask("produce", "t", "a").code)
	p.signal(t, syscall.SIGKILL)
	p.wait(t)
	p = launch(t, nil, "dev", "--data", dir, "--listen", "127.0.0.1:0", "--port-file", file)
	p.awaitPorts(t, file)
	banner := p.stderr.String()
	require.Regexp(t, `(?m)^  data +`+dir+`, .*1 topic, 1 partition$`, banner)
	require.Regexp(t, `(?m)^  recovery +t/0: scanned 1 frame, \d+ bytes`, banner)
	require.Regexp(t, `(?m)^  durability durable: .*power cut$`, banner)
	require.Regexp(t, `(?m)^  clients +`+p.ports.Client, banner)
	require.Regexp(t, `(?m)^  limits +open files \d+, GOMAXPROCS \d+, memory limit 512 MiB$`, banner)
	require.Equal(t, cli.ExitOK, p.ask("produce", "t", "b").code)
	p.signal(t, syscall.SIGTERM)
	require.Equal(t, cli.ExitOK, p.wait(t))

	p = launch(t, nil, "dev", "--data", dir, "--listen", "127.0.0.1:0", "--port-file", file)
	p.awaitPorts(t, file)
	require.Contains(t, p.stderr.String(), "clean stop")
}
