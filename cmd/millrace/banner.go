package main

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"time"

	"github.com/millrace-mq/millrace/broker"
	"github.com/millrace-mq/millrace/broker/config"
	"github.com/millrace-mq/millrace/client"
	"github.com/millrace-mq/millrace/cmd/millrace/cli"
	"github.com/millrace-mq/millrace/protocol"
)

// summary says what a broker that is ready works with.
type summary struct {
	build    buildFacts
	config   *config.Config
	options  serveOptions
	host     hostFacts
	broker   *broker.Broker
	addr     string
	recovery *recoveryNotes
}

// tell prints the summary for people, or logs it in one line.
func (s *summary) tell(c *cli.Call, log *slog.Logger, took time.Duration) error {
	warnings := s.warnings()
	if s.options.banner {
		_, err := io.WriteString(c.Stderr, s.banner(warnings, took))
		return err
	}
	for _, w := range warnings {
		log.Warn(w)
	}
	topics, partitions := s.counts()
	log.Info("ready", "version", s.build.Version, "client", s.addr, "data_dir", s.config.Storage.DataDir,
		"file_system", s.host.fileSystem, "free_bytes", s.host.free, "topics", topics, "partitions", partitions,
		"clean", s.broker.WasClean(), "durability", s.config.Durability.String(), "open_files", s.host.openFiles,
		"gomaxprocs", runtime.GOMAXPROCS(0), "memory_limit", s.host.memoryLimit, "elapsed", took.String())
	return nil
}

func (s *summary) counts() (topics, partitions int) {
	for _, t := range s.broker.Topics() {
		topics++
		partitions += len(t.Partitions())
	}
	return topics, partitions
}

// durabilityText says what an acknowledgement of a level means.
var durabilityText = map[protocol.Level]string{
	protocol.LevelNone:    "no acknowledgement: messages can be lost",
	protocol.LevelWritten: "acknowledged when handed to the kernel: survives the broker's death, not a power cut",
	protocol.LevelDurable: "acknowledged when synced to the disk: survives a power cut",
	protocol.LevelQuorum:  "acknowledged when synced to the disk; alone the same as durable",
}

// banner is the summary for people.
func (s *summary) banner(warnings []string, took time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "millrace %s\n", s.build)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "  %-10s %s\n", name, cli.Printable(fmt.Sprintf(format, args...)))
	}
	topics, partitions := s.counts()
	line("data", "%s", strings.Join(s.dataFacts(cli.Plural(topics, "topic"), cli.Plural(partitions, "partition")), ", "))
	notes := s.recovery.end()
	switch {
	case len(notes) > 0:
	case topics == 0:
		line("recovery", "nothing there to recover")
	case s.broker.WasClean():
		line("recovery", "clean stop: nothing to do")
	default:
		line("recovery", "unclean stop: every partition is whole")
	}
	for i, note := range notes {
		name := ""
		if i == 0 {
			name = "recovery"
		}
		line(name, "%s", note)
	}
	line("durability", "%s: %s", s.config.Durability, durabilityText[s.config.Durability])
	line("clients", "%s  plaintext, no authentication", s.addr)
	line("limits", "open files %d, GOMAXPROCS %d, memory limit %s", s.host.openFiles, runtime.GOMAXPROCS(0), cli.HumanSize(s.host.memoryLimit))
	for _, w := range warnings {
		line("warning", "%s", w)
	}
	fmt.Fprintf(&b, "ready in %s\n", took.Round(time.Millisecond))
	if s.options.dev {
		b.WriteString(s.nextSteps())
	}
	return b.String()
}

// dataFacts are the data directory and what is known of it, then more.
func (s *summary) dataFacts(more ...string) []string {
	facts := []string{s.config.Storage.DataDir}
	if s.options.temporary {
		facts[0] += " (temporary: removed at the end)"
	}
	if s.host.fileSystem != "" {
		facts = append(facts, s.host.fileSystem)
	}
	if s.host.spaceErr == nil {
		facts = append(facts, cli.HumanSize(int64(s.host.free))+" free")
	}
	return append(facts, more...)
}

// nextSteps are commands to try.
func (s *summary) nextSteps() string {
	addr := ""
	if s.addr != client.DefaultAddr {
		addr = " -a " + s.addr
	}
	return fmt.Sprintf("\nIn another terminal:\n"+
		"  millrace produce%[1]s hello world\n"+
		"  millrace consume%[1]s hello --from start -n 1\n"+
		"Ctrl-C ends it.\n", addr)
}

// warnings are what somebody should look at.
func (s *summary) warnings() []string {
	var list []string
	h := &s.host
	if h.openFilesErr != nil {
		list = append(list, fmt.Sprintf("the limit of open files could not be raised: %v", h.openFilesErr))
	}
	if h.openFiles > 0 && h.openFiles < enoughFiles {
		list = append(list, fmt.Sprintf("at most %d open files; %d or more are better for many clients and partitions (ulimit -n)", h.openFiles, enoughFiles))
	}
	switch h.fileSystem {
	case "tmpfs", "ramfs":
		list = append(list, h.fileSystem+" keeps the data in memory: a restart of the machine loses all of it")
	case "nfs", "cifs", "smb", "fuse", "9p":
		list = append(list, "what a sync on "+h.fileSystem+" promises is up to the other side; use a local disk")
	}
	switch {
	case h.spaceErr != nil:
		list = append(list, fmt.Sprintf("the free space is not known: %v", h.spaceErr))
	case h.free < h.total/10:
		list = append(list, fmt.Sprintf("the disk has %s free of %s", cli.HumanSize(int64(h.free)), cli.HumanSize(int64(h.total))))
	}
	if host, _, err := net.SplitHostPort(s.addr); err == nil && !net.ParseIP(host).IsLoopback() {
		list = append(list, "clients of other machines can connect, in plain text and without authentication")
	}
	if from := s.config.Origin("listen.http"); from.Source != config.SourceDefault && s.config.Listen.HTTP != "off" {
		list = append(list, fmt.Sprintf("listen.http (%s) has no effect: there is no HTTP listener in this release", from))
	}
	return list
}
