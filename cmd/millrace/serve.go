package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/millrace-mq/millrace/broker"
	"github.com/millrace-mq/millrace/broker/config"
	"github.com/millrace-mq/millrace/broker/server"
	"github.com/millrace-mq/millrace/cmd/millrace/cli"
	"github.com/millrace-mq/millrace/protocol"
	"github.com/millrace-mq/millrace/storage/vfs"
)

// serveOptions are what the command line adds to a configuration.
type serveOptions struct {
	portFile  string
	banner    bool // a summary for people instead of a log line
	dev       bool // with next steps
	temporary bool // the data is removed afterwards
}

// brokerMemory is what a broker uses beside the bytes in flight.
const brokerMemory = 256 << 20

// serve runs a broker until ctx ends, a signal comes or the disk fails.
func serve(ctx context.Context, c *cli.Call, cfg *config.Config, o serveOptions) error {
	began := c.Now()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)

	recovery := &recoveryNotes{}
	log := newLog(c, cfg, recovery, o.banner)
	var facts hostFacts
	facts.openFiles, facts.openFilesErr = raiseOpenFiles()
	facts.memoryLimit = debug.SetMemoryLimit(-1)
	if c.Getenv("GOMEMLIMIT", "") == "" {
		facts.memoryLimit = cfg.Limits.InflightBytes + brokerMemory
		before := debug.SetMemoryLimit(facts.memoryLimit)
		defer debug.SetMemoryLimit(before)
	}
	if err := checkPortFile(o.portFile); err != nil {
		return err
	}
	r, err := start(c, cfg, log)
	if err != nil {
		return err
	}
	recovery.end()
	facts.fileSystem = fileSystem(cfg.Storage.DataDir)
	facts.free, facts.total, facts.spaceErr = r.disk.Space()
	s := summary{build: readBuild(), config: cfg, options: o, host: facts, broker: r.broker, addr: r.addr, recovery: recovery}
	if err := s.tell(c, log, c.Now().Sub(began)); err != nil {
		return errors.Join(err, r.cut())
	}
	if err := writePortFile(o.portFile, r.addr); err != nil {
		return errors.Join(fmt.Errorf("port file: %w", err), r.cut())
	}
	err = r.run(ctx, signals, cfg.DrainTimeout, log)
	if o.portFile != "" {
		err = errors.Join(err, os.Remove(o.portFile))
	}
	return err
}

// running is a broker and its server, from start to end.
type running struct {
	disk   vfs.FS
	broker *broker.Broker
	server *server.Server
	addr   string
	served chan error // why Serve returned
	failed chan error // the first failure of the disk
}

// start opens the data directory and begins to serve.
//
// Errors name the directory and, when it is taken, its holder.
func start(c *cli.Call, cfg *config.Config, log *slog.Logger) (*running, error) {
	r := &running{served: make(chan error, 1), failed: make(chan error, 1)}
	dir := cfg.Storage.DataDir
	disk, err := vfs.OS(dir)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	r.disk = disk
	r.broker, err = broker.Open(brokerOptions(c, cfg, log, r))
	if err != nil {
		if errors.Is(err, vfs.ErrLocked) {
			err = fmt.Errorf("another broker has it: %w", err)
		}
		return nil, errors.Join(fmt.Errorf("data directory %s: %w", dir, err), disk.Close())
	}
	listener, err := net.Listen("tcp", cfg.Listen.Client)
	if err != nil {
		return nil, errors.Join(listenError(cfg.Listen.Client, err), r.broker.Close(), disk.Close())
	}
	r.addr = listener.Addr().String()
	r.server = server.New(r.broker, server.Options{
		Version: readBuild().Version, Log: log, Legacy: cfg.Legacy,
		Connections: cfg.Limits.Connections, InflightBytes: cfg.Limits.InflightBytes, ConnInflightBytes: cfg.Limits.ConnInflightBytes,
		Handles: cfg.Limits.Handles, Subscriptions: cfg.Limits.Subscriptions,
	})
	go func() { r.served <- r.server.Serve(listener) }()
	return r, nil
}

// listenError says what to do about an address that cannot be listened at.
func listenError(addr string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("listen.client: %s is taken (address already in use); another broker may run there: name another address with --listen, "+
			"or ask that one: millrace health -a %s", addr, addr)
	}
	return fmt.Errorf("listen.client: cannot listen at %s: %w; name another address with --listen", addr, err)
}

func brokerOptions(c *cli.Call, cfg *config.Config, log *slog.Logger, r *running) broker.Options {
	host, err := os.Hostname()
	if err != nil {
		host = "an unknown host"
	}
	began := time.Now() // its monotonic part goes on whatever happens to the clock
	o := broker.Options{
		FS: r.disk, Now: func() int64 { return c.Now().UnixNano() }, Log: log,
		Elapsed:     func() int64 { return int64(time.Since(began)) },
		Holder:      fmt.Sprintf("pid %d on %s", os.Getpid(), host),
		WriteBehind: cfg.Storage.WriteBehind, WriteBehindInterval: cfg.Storage.WriteBehindInterval, ParallelSyncs: cfg.Storage.ParallelSyncs,
		Topic: topicDefaults(cfg), AutoCreate: cfg.AutoCreate.Match, Topics: cfg.Limits.Topics, Partitions: cfg.Limits.Partitions,
	}
	if cfg.OnStorageError == "exit" {
		o.OnStorageError = func(err error) {
			select {
			case r.failed <- err:
			default: // the first one ends the process
			}
		}
	}
	return o
}

// topicDefaults are the settings of topics that do not say.
func topicDefaults(cfg *config.Config) protocol.TopicSettings {
	t := &cfg.Topic
	return protocol.TopicSettings{
		{ID: protocol.SettingPartitions, Value: uint64(t.Partitions)},
		{ID: protocol.SettingRetention, Value: uint64(t.Retention / time.Millisecond)},
		{ID: protocol.SettingRetentionBytes, Value: uint64(t.RetentionBytes)},
		{ID: protocol.SettingSegmentBytes, Value: uint64(t.SegmentBytes)},
		{ID: protocol.SettingSegmentAge, Value: uint64(t.SegmentAge / time.Millisecond)},
		{ID: protocol.SettingDurability, Value: uint64(cfg.Durability)},
		{ID: protocol.SettingMaxMessageBytes, Value: uint64(t.MaxMessageBytes)},
	}
}

// signalTwin is how long the first signal may take to come by the second way.
const signalTwin = 100 * time.Millisecond

// run serves until there is a reason to stop, and stops.
func (r *running) run(ctx context.Context, signals <-chan os.Signal, drain time.Duration, log *slog.Logger) error {
	select {
	case err := <-r.failed:
		log.Error("the disk failed; ending, so that the next start finds what is on it", "error", err)
		if cerr := r.cut(); cerr != nil {
			log.Warn("closed after the failure", "error", cerr)
		}
		return fmt.Errorf("storage failed: %w", err)
	case err := <-r.served:
		r.served <- err
		return errors.Join(fmt.Errorf("listener: %w", err), r.cut())
	case <-signals:
	case <-ctx.Done():
		if context.Cause(ctx) != ctx.Err() { // by a signal, which comes to both
			select {
			case <-signals:
			case <-time.After(signalTwin):
			}
		}
	}
	log.Info("stopping", "drain_timeout", drain.String())
	err := r.drain(signals, drain, log)
	log.Info("stopped")
	return err
}

// drain lets clients finish for at most so long; a signal cuts that short. What
// was accepted is synced in any case.
func (r *running) drain(signals <-chan os.Signal, timeout time.Duration, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- r.server.Shutdown(ctx) }()
	var err error
	select {
	case err = <-done:
	case <-signals:
		log.Info("second signal: cutting the clients off")
		cancel()
		err = <-done
	}
	if err != nil { // they were told to leave and had their time
		log.Warn("clients did not leave in time", "error", err)
	}
	return r.close()
}

// cut ends everything without waiting for clients.
func (r *running) cut() error {
	return errors.Join(r.server.Close(), r.close())
}

// close closes the broker under a server that has ended.
func (r *running) close() error {
	if err := <-r.served; !errors.Is(err, net.ErrClosed) {
		return errors.Join(err, r.broker.Close(), r.disk.Close())
	}
	return errors.Join(r.broker.Close(), r.disk.Close())
}
