package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// brokerStart bounds the wait for a broker to say that it is ready.
const brokerStart = 30 * time.Second

// brokerPoll is how often its port file is looked for.
const brokerPoll = 2 * time.Millisecond

// BrokerProcess is a broker that runs as a child process over a temporary directory of
// its own.
//
// Ownership: one goroutine calls Stop, after everything else is done with the broker.
type BrokerProcess struct {
	// immutable
	cmd    *exec.Cmd
	dir    string // holds data and the port file
	addr   string
	log    *os.File
	exited chan struct{} // closed when the process is gone

	// set before exited is closed
	waited error
}

// StartBroker makes a directory within parent ("" = the system's for temporary files),
// starts the command that argv makes of a data directory and a port file, and waits
// until the port file is there: one JSON object whose "client" is the address. The
// process is killed when ctx ends; call Stop in any case.
//
// Bounds: waits 30 s. Errors: that the process ended first, with the end of its log.
func StartBroker(ctx context.Context, parent string, argv func(dataDir, portFile string) []string) (_ *BrokerProcess, err error) {
	dir, err := os.MkdirTemp(parent, "millrace-bench-")
	if err != nil {
		return nil, err
	}
	b := &BrokerProcess{dir: dir, exited: make(chan struct{})}
	portFile := filepath.Join(dir, "port")
	line := argv(b.DataDir(), portFile)
	b.cmd = exec.CommandContext(ctx, line[0], line[1:]...)
	if b.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	b.cmd.Stdout, b.cmd.Stderr = b.log, b.log
	b.cmd.SysProcAttr = dieWithParent()
	if err := b.cmd.Start(); err != nil {
		return nil, errors.Join(err, b.log.Close(), os.RemoveAll(dir))
	}
	go func() {
		b.waited = b.cmd.Wait()
		close(b.exited)
	}()
	if b.addr, err = b.awaitPort(ctx, portFile); err != nil {
		return nil, errors.Join(err, b.Kill(), b.Stop())
	}
	return b, nil
}

func (b *BrokerProcess) awaitPort(ctx context.Context, portFile string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, brokerStart, fmt.Errorf("%s is not ready after %v", b.cmd.Path, brokerStart))
	defer cancel()
	ticker := time.NewTicker(brokerPoll)
	defer ticker.Stop()
	for {
		text, err := os.ReadFile(portFile)
		var ports struct {
			Client string `json:"client"`
		}
		switch {
		case err == nil && json.Unmarshal(text, &ports) == nil && ports.Client != "":
			return ports.Client, nil
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return "", err
		}
		select {
		case <-ticker.C:
		case <-b.exited:
			return "", fmt.Errorf("%s ended before it was ready (%w): %s", b.cmd.Path, errors.Join(b.waited, errEnded), b.LogTail())
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

var errEnded = errors.New("the process is over")

// Addr returns where the broker listens for clients.
func (b *BrokerProcess) Addr() string { return b.addr }

// PID returns the broker's process.
func (b *BrokerProcess) PID() int { return b.cmd.Process.Pid }

// DataDir returns the broker's data directory.
func (b *BrokerProcess) DataDir() string { return filepath.Join(b.dir, "data") }

// logTail is how much of a broker's log an error quotes, bytes.
const logTail = 2 << 10

// LogTail returns the end of what the broker wrote to stdout and stderr.
func (b *BrokerProcess) LogTail() string {
	info, err := b.log.Stat()
	if err != nil {
		return err.Error()
	}
	tail := io.NewSectionReader(b.log, max(0, info.Size()-logTail), logTail)
	text, err := io.ReadAll(tail)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text))
}

// Kill ends the broker at once, as a crash would, and waits until it is gone. Its data
// stay until Stop.
func (b *BrokerProcess) Kill() error {
	err := b.cmd.Process.Kill()
	<-b.exited
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// Stop ends the broker if it still runs and removes its directory.
//
// Bounds: kills it after 10 s.
func (b *BrokerProcess) Stop() error {
	err := b.cmd.Process.Signal(syscall.SIGTERM)
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	late := time.NewTimer(stopTimeout)
	defer late.Stop()
	select {
	case <-b.exited:
	case <-late.C:
		err = errors.Join(err, b.Kill())
	}
	return errors.Join(err, b.log.Close(), os.RemoveAll(b.dir))
}
