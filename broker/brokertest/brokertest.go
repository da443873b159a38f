// Package brokertest runs the real broker with its server inside a test: real files in a
// temporary directory, a real TCP port, closed and checked for leaked goroutines at the end.
package brokertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-mq/millrace/broker"
	"github.com/millrace-mq/millrace/broker/server"
	"github.com/millrace-mq/millrace/storage/vfs"
)

// patience is how long things that must happen may take on a busy machine.
const patience = 30 * time.Second

// Options change what Start runs. The zero value is a broker with all defaults.
type Options struct {
	Broker func(*broker.Options) // changes the broker's options, each time one is opened
	Server func(*server.Options) // changes the server's options
	Log    io.Writer             // where the log goes; nil = nowhere
	Dir    string                // data directory, which must exist; empty = a new one
}

// Broker is a running broker.
type Broker struct {
	t       testing.TB
	options Options
	dir     string
	addr    string

	// Broker and Server are what runs now; Restart replaces them.
	Broker *broker.Broker
	Server *server.Server

	disk   vfs.FS
	served chan error
}

// running counts the brokers of this process: goroutines are looked for when the last one ended.
var running atomic.Int32

// Start runs a broker until the test ends.
func Start(t testing.TB, o ...Options) *Broker {
	t.Helper()
	b := &Broker{t: t, addr: "127.0.0.1:0"}
	if len(o) > 0 {
		b.options = o[0]
	}
	if b.dir = b.options.Dir; b.dir == "" {
		b.dir = t.TempDir()
	}
	running.Add(1)
	t.Cleanup(func() {
		b.Stop()
		if running.Add(-1) == 0 {
			checkGoroutines(t)
		}
	})
	b.open()
	return b
}

// Addr is where clients connect; it stays the same over Restart.
func (b *Broker) Addr() string { return b.addr }

// Dir is the data directory; Restart(false) moves to another.
func (b *Broker) Dir() string { return b.dir }

func (b *Broker) open() {
	b.t.Helper()
	disk, err := vfs.OS(b.dir)
	b.must("open the directory", err)
	writer := b.options.Log
	if writer == nil {
		writer = io.Discard
	}
	log := slog.New(slog.NewTextHandler(writer, &slog.HandlerOptions{Level: slog.LevelDebug}))
	bo := broker.Options{FS: disk, Now: func() int64 { return time.Now().UnixNano() }, Log: log, Holder: fmt.Sprintf("pid %d", os.Getpid())}
	if b.options.Broker != nil {
		b.options.Broker(&bo)
	}
	so := server.Options{Log: log}
	if b.options.Server != nil {
		b.options.Server(&so)
	}
	b.disk = disk
	b.Broker, err = broker.Open(bo)
	b.must("open the broker", err)
	listener, err := net.Listen("tcp", b.addr)
	b.must("listen", err)
	b.addr = listener.Addr().String()
	b.Server = server.New(b.Broker, so)
	srv, served := b.Server, make(chan error, 1)
	b.served = served
	go func() { served <- srv.Serve(listener) }()
}

// Stop ends the broker as SIGTERM does. A second Stop does nothing.
func (b *Broker) Stop() {
	b.t.Helper()
	if b.Broker == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	b.must("shut the server down", b.Server.Shutdown(ctx))
	b.close()
}

func (b *Broker) close() {
	b.t.Helper()
	if err := <-b.served; !errors.Is(err, net.ErrClosed) {
		b.t.Errorf("brokertest: serve: %v", err)
	}
	b.must("close the broker", b.Broker.Close())
	b.must("close the directory", b.disk.Close())
	b.Broker, b.Server = nil, nil
}

// Restart ends the broker and starts it again on the same port. With clean false the new one
// finds what a killed process would have left: the files as they are while the broker still
// runs, without its closing marks.
func (b *Broker) Restart(clean bool) {
	b.t.Helper()
	if clean {
		b.Stop()
		b.open()
		return
	}
	b.must("cut the connections", b.Server.Close())
	left := filepath.Join(b.t.TempDir(), "killed")
	b.must("copy the directory", copyTree(left, b.dir))
	b.close()
	b.dir = left
	b.open()
}

func (b *Broker) must(what string, err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatalf("brokertest: %s: %v", what, err)
	}
}

// copyTree copies regular files and directories. A file that goes away meanwhile is left out.
func copyTree(to, from string) error {
	return filepath.WalkDir(from, func(name string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && name != from {
			return nil
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		if e.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		if err := copyFile(filepath.Join(to, rel), name); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return errors.Join(err, in.Close())
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close(), in.Close())
}

// checkGoroutines fails the test when goroutines of the broker are left.
func checkGoroutines(t testing.TB) {
	t.Helper()
	var left string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); runtime.Gosched() {
		if left = brokerGoroutines(); left == "" {
			return
		}
	}
	t.Errorf("brokertest: goroutines are left:\n%s", left)
}

// brokerGoroutines returns the stacks of goroutines that run the broker's code.
func brokerGoroutines() string {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	var left []string
	for _, stack := range strings.Split(string(buf), "\n\n") {
		for _, room := range []string{"/broker.", "/broker/server.", "/storage."} {
			if strings.Contains(stack, "millrace-mq/millrace"+room) && !strings.Contains(stack, "testing.tRunner") {
				left = append(left, stack)
				break
			}
		}
	}
	return strings.Join(left, "\n\n")
}
