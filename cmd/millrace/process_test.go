package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/broker/config"
	"github.com/millrace-mq/millrace/client"
	"github.com/millrace-mq/millrace/cmd/millrace/cli"
	"github.com/millrace-mq/millrace/protocol"
)

// program is what is tested, built once.
var program string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "millrace-test-")
	if err != nil {
		panic(err)
	}
	program = filepath.Join(dir, "millrace")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Stderr = os.Stderr
	code := 1
	if err := build.Run(); err == nil {
		code = m.Run()
	}
	if err := os.RemoveAll(dir); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// Patience of the tests: how long what must happen may take, and how often they look.
const (
	patience = 30 * time.Second
	look     = 5 * time.Millisecond
)

// sharedBuffer collects the output of a process while it runs.
type sharedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

// Write takes p.
func (b *sharedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String returns what was written so far.
func (b *sharedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// process is a running program.
type process struct {
	cmd    *exec.Cmd
	stderr sharedBuffer
	ended  chan struct{} // closed when it has
	ports  ports         // of a broker
}

// launch starts the program; it is killed at the end of the test.
func launch(t *testing.T, stdin io.Reader, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(program, args...), ended: make(chan struct{})}
	p.cmd.Stderr, p.cmd.Stdin = &p.stderr, stdin
	for _, line := range os.Environ() {
		if !strings.HasPrefix(line, "MILLRACE_") {
			p.cmd.Env = append(p.cmd.Env, line)
		}
	}
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // its state tells
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.ended
	})
	return p
}

// launchBroker starts a broker and waits until it is ready.
func launchBroker(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	return launchBrokerAt(t, "127.0.0.1:0", dir, args...)
}

func launchBrokerAt(t *testing.T, addr, dir string, args ...string) *process {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ports")
	p := launch(t, nil, append([]string{"server", "--data-dir", dir, "--listen", addr, "--port-file", file}, args...)...)
	p.awaitPorts(t, file)
	return p
}

// awaitPorts reads the port file as soon as it is there, whole.
func (p *process) awaitPorts(t *testing.T, file string) {
	t.Helper()
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(file)
		if err == nil {
			require.NoError(t, json.Unmarshal(text, &p.ports), "%s", text)
		}
		return err == nil || p.over()
	}, patience, look)
	require.False(t, p.over(), p.stderr.String())
	require.Equal(t, p.cmd.Process.Pid, p.ports.PID)
	// what it said before is on its way through a pipe
	require.Eventually(t, func() bool { return strings.Contains(p.stderr.String(), "ready") }, patience, look)
}

func (p *process) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// wait returns the exit code.
func (p *process) wait(t *testing.T) cli.ExitCode {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		require.Fail(t, "the process does not end", p.stderr.String())
	}
	return cli.ExitCode(p.cmd.ProcessState.ExitCode())
}

func (p *process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(s))
}

// ask runs a command line in this process against the broker.
func (p *process) ask(args ...string) outcome {
	return runLine(commands, []string{"MILLRACE_ADDR=" + p.ports.Client}, args...)
}

func TestTerminatedBrokerEndsCleanAndWithZero(t *testing.T) {
	for _, s := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		dir := t.TempDir()
		p := launchBroker(t, dir)
		require.Equal(t, cli.ExitOK, p.ask("produce", "t", "a").code)
		p.signal(t, s)
		require.Equal(t, cli.ExitOK, p.wait(t), p.stderr.String())
		require.Equal(t, cli.ExitUnreachable, p.ask("health").code)
		again := launchBroker(t, dir)
		require.Contains(t, again.stderr.String(), `"clean":true`)
		require.Equal(t, "a\n", again.ask("consume", "t").stdout)
	}
}

func TestPortFileIsThereWhileClientsCanConnect(t *testing.T) {
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "ports")
	require.NoError(t, os.WriteFile(file, []byte(`{"client":"127.0.0.1:1","pid":1}`), 0o600)) // of an earlier run
	p := launch(t, nil, "server", "--data-dir", dir, "--listen", "127.0.0.1:0", "--port-file", file)
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(text), strconv.Itoa(p.cmd.Process.Pid))
	}, patience, look)
	p.awaitPorts(t, file)
	require.Equal(t, cli.ExitOK, p.ask("health").code)
	left, err := filepath.Glob(filepath.Join(filepath.Dir(file), "*"))
	require.NoError(t, err)
	require.Equal(t, []string{file}, left)
	p.signal(t, syscall.SIGTERM)
	require.Equal(t, cli.ExitOK, p.wait(t))
	require.NoFileExists(t, file)
}

func TestSecondBrokerIsRefusedAndToldWhoHoldsTheData(t *testing.T) {
	dir := t.TempDir()
	first := launchBroker(t, dir)
	second := launch(t, nil, "server", "--data-dir", dir, "--listen", "127.0.0.1:0")
	require.Equal(t, cli.ExitRuntime, second.wait(t))
	host, err := os.Hostname()
	require.NoError(t, err)
	require.Contains(t, second.stderr.String(), fmt.Sprintf("pid %d on %s", first.cmd.Process.Pid, host))
	require.Contains(t, second.stderr.String(), dir)
	require.Equal(t, cli.ExitOK, first.ask("health").code)
}

func TestTakenPortIsAnErrorThatLeavesTheDataClean(t *testing.T) {
	first, dir := launchBroker(t, t.TempDir()), t.TempDir()
	second := launch(t, nil, "server", "--data-dir", dir, "--listen", first.ports.Client)
	require.Equal(t, cli.ExitRuntime, second.wait(t))
	require.Contains(t, second.stderr.String(), "listen.client: "+first.ports.Client+" is taken")
	require.Contains(t, second.stderr.String(), "--listen")
	require.Contains(t, second.stderr.String(), "address already in use")
	require.Contains(t, launchBroker(t, dir).stderr.String(), `"clean":true`)
}

func TestCheckConfigListsEveryProblemAndOpensNothing(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "m.conf")
	require.NoError(t, os.WriteFile(file, []byte("topic.segment_bytes = 1GBB\nstorage.fsync = 1\n"), 0o600))
	p := launch(t, nil, "server", "--check-config", "--config", file, "--listen", ":99999", "--data-dir", filepath.Join(dir, "data"))
	require.Equal(t, cli.ExitConfig, p.wait(t))
	for _, want := range []string{"m.conf:1", "m.conf:2", "flag --listen", "3 problems"} {
		require.Contains(t, p.stderr.String(), want)
	}
	p = launch(t, nil, "server", "--config", file)
	require.Equal(t, cli.ExitConfig, p.wait(t))

	p = launch(t, nil, "server", "--check-config", "--data-dir", filepath.Join(dir, "data"))
	require.Equal(t, cli.ExitOK, p.wait(t))
	require.NoDirExists(t, filepath.Join(dir, "data"))

	p = launch(t, nil, "server", "--check-config", "--data-dir", filepath.Join(file, "data"))
	require.Equal(t, cli.ExitConfig, p.wait(t))
	for _, want := range []string{"is not a directory", "1 problem"} {
		require.Contains(t, p.stderr.String(), want)
	}
}

func TestDevLeavesNothingBehindUnlessItIsTold(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ports")
	p := launch(t, nil, "dev", "--listen", "127.0.0.1:0", "--port-file", file)
	p.awaitPorts(t, file)
	require.Equal(t, cli.ExitOK, p.ask("produce", "hello", "world").code)
	require.Contains(t, p.stderr.String(), "millrace consume -a "+p.ports.Client+" hello --from start -n 1")
	_, rest, ok := strings.Cut(p.stderr.String(), "data       ")
	require.True(t, ok, p.stderr.String())
	data, _, _ := strings.Cut(rest, " ")
	require.DirExists(t, data)
	p.signal(t, os.Interrupt)
	require.Equal(t, cli.ExitOK, p.wait(t), p.stderr.String())
	require.NoDirExists(t, data)

	kept := filepath.Join(t.TempDir(), "kept")
	for _, flags := range [][]string{{"--data", kept}, {"--data-dir", kept}} {
		p = launch(t, nil, append([]string{"dev", "--listen", "127.0.0.1:0", "--port-file", file}, flags...)...)
		p.awaitPorts(t, file)
		require.Equal(t, cli.ExitOK, p.ask("produce", "t", "a").code)
		p.signal(t, syscall.SIGTERM)
		require.Equal(t, cli.ExitOK, p.wait(t))
	}
	require.Contains(t, runLine(commands, nil, "verify", kept).stdout, "2 records")
}

// lineFeed is standard input that gives numbered lines until it is stopped.
type lineFeed struct {
	n    atomic.Int64
	stop atomic.Bool
}

const feedPadding = "............................................................"

// Read gives whole lines.
func (f *lineFeed) Read(p []byte) (int, error) {
	if f.stop.Load() {
		return 0, io.EOF
	}
	size := 0
	for len(p)-size > 20+len(feedPadding) {
		size += copy(p[size:], fmt.Sprintf("%d %s\n", f.n.Add(1)-1, feedPadding))
	}
	return size, nil
}

// A producer goes on over a killed broker: what it was told to be durable is
// there after the restart, and in the end every line is, in its order.
func TestAckedSurvivesAKilledBroker(t *testing.T) {
	dir := t.TempDir()
	p := launchBroker(t, dir)
	feed := &lineFeed{}
	producer := launch(t, feed, "produce", "t", "-", "-a", p.ports.Client, "--durable", "durable", "-o", "json", "--timeout", "60s")
	for range 3 {
		before := p.records()
		require.Eventually(t, func() bool { return p.records() > before+1000 }, patience, look)
		p.signal(t, syscall.SIGKILL)
		p.wait(t)
		p = launchBrokerAt(t, p.ports.Client, dir)
	}
	before := p.records()
	require.Eventually(t, func() bool { return p.records() > before }, patience, look)
	feed.stop.Store(true)
	require.Equal(t, cli.ExitOK, producer.wait(t), producer.stderr.String())

	lines := strings.Split(strings.TrimSpace(p.ask("consume", "t").stdout), "\n")
	next := int64(0)
	for _, line := range lines {
		number, _, _ := strings.Cut(line, " ")
		n, err := strconv.ParseInt(number, 10, 64)
		require.NoError(t, err, line)
		require.LessOrEqual(t, n, next, "line %d is missing", next) // a repetition may follow a lost answer
		next = max(next, n+1)
	}
	require.Equal(t, feed.n.Load(), next)
	p.signal(t, syscall.SIGTERM)
	require.Equal(t, cli.ExitOK, p.wait(t))
	got := runLine(commands, nil, "verify", dir, "-o", "json")
	require.Equal(t, cli.ExitOK, got.code, got.stdout)
	require.Contains(t, got.stdout, `"ok":true`)
}

// records counts what readers see of topic t; 0 when it is not there yet.
func (p *process) records() int64 {
	var facts struct{ Partitions []partitionFacts }
	if json.Unmarshal([]byte(p.ask("topics", "show", "t", "-o", "json").stdout), &facts) != nil || len(facts.Partitions) == 0 {
		return 0
	}
	return int64(facts.Partitions[0].Records)
}

// heldConn stops reading when it is told, like a client that hangs.
type heldConn struct {
	net.Conn
	left atomic.Int64 // bytes
	hold chan struct{}
}

// Read reads while there are bytes left.
func (c *heldConn) Read(p []byte) (int, error) {
	if c.left.Load() <= 0 {
		<-c.hold
		return 0, io.EOF
	}
	n, err := c.Conn.Read(p)
	c.left.Add(-int64(n))
	return n, err
}

// awaitStuck waits until the broker has filled every buffer between it and a client that does
// not read: it has sent nothing more at twenty looks in a row.
func awaitStuck(t *testing.T, addr string) {
	t.Helper()
	c, err := client.Open(context.Background(), addr)
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	var sent uint64
	same := 0
	require.Eventually(t, func() bool {
		stats, err := c.Stats(context.Background())
		if now := stats.Get("bytes_sendfile"); err == nil && now == sent && now > 0 {
			same++
		} else {
			sent, same = now, 0
		}
		return same >= 20
	}, patience, look)
}

// A client that takes nothing off its connection keeps a draining broker
// waiting; the second signal does not wait, and what was accepted is safe.
func TestSecondSignalCutsHangingClientsOffAndSyncs(t *testing.T) {
	dir := t.TempDir()
	p := launchBroker(t, dir, "--drain.timeout", "1h", "--durability", "written")
	file := filepath.Join(t.TempDir(), "m")
	require.NoError(t, os.WriteFile(file, make([]byte, 1<<20-1000), 0o600))
	require.Equal(t, cli.ExitOK, p.ask("produce", "t", "--file", file, "--count", "48").code)

	hold := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	cl, err := client.Open(ctx, p.ports.Client, client.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
		nc, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c := &heldConn{Conn: nc, hold: hold}
		c.left.Store(2 << 20)
		return c, nil
	}))
	require.NoError(t, err)
	first, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for _, err := range cl.Read(ctx, "t", client.From(protocol.Start), client.CreditBytes(1<<30)) {
			if err != nil {
				return
			}
			select {
			case <-first:
			default:
				close(first)
			}
		}
	}()
	<-first
	awaitStuck(t, p.ports.Client)
	p.signal(t, syscall.SIGTERM)
	require.Eventually(t, func() bool { return strings.Contains(p.stderr.String(), `"stopping"`) }, patience, look)
	require.Eventually(t, func() bool { _, err := net.Dial("tcp", p.ports.Client); return err != nil }, patience, look)
	require.False(t, p.over())
	p.signal(t, syscall.SIGTERM)
	require.Equal(t, cli.ExitOK, p.wait(t), p.stderr.String())
	require.Contains(t, p.stderr.String(), "second signal")
	close(hold)
	cancel()
	<-done
	require.NoError(t, cl.Close())
	again := launchBroker(t, dir)
	require.Contains(t, again.stderr.String(), `"clean":true`)
	require.Contains(t, again.ask("consume", "t", "--count").stdout, `"records":48,`)
}

// inProcess starts a broker in this process.
func inProcess(t *testing.T) (*running, *cli.Call, *sharedBuffer) {
	stderr := &sharedBuffer{}
	c := &cli.Call{World: cli.World{Stderr: stderr, Now: time.Now}}
	cfg, err := config.Load(config.Sources{Flags: map[string]string{"data-dir": t.TempDir(), "listen": "127.0.0.1:0"}})
	require.NoError(t, err)
	r, err := start(c, cfg, newLog(c, cfg, &recoveryNotes{}, false))
	require.NoError(t, err)
	return r, c, stderr
}

func TestFailedDiskEndsTheBrokerWithItsReason(t *testing.T) {
	r, c, stderr := inProcess(t)
	disk := errors.New("sync t/0: input/output error")
	o := brokerOptions(c, config.Default(), nil, r)
	o.OnStorageError(disk)
	o.OnStorageError(errors.New("another"))
	log := newLog(c, config.Default(), &recoveryNotes{}, false)
	err := r.run(context.Background(), nil, time.Hour, log)
	require.ErrorIs(t, err, disk)
	require.Equal(t, cli.ExitRuntime, cli.CodeOf(err))
	require.Contains(t, stderr.String(), "input/output error")
	_, err = net.Dial("tcp", r.addr)
	require.Error(t, err)
	cfg := config.Default()
	cfg.OnStorageError = "readonly"
	require.Nil(t, brokerOptions(c, cfg, nil, r).OnStorageError)
}

func TestBrokerEndsWithItsContext(t *testing.T) {
	r, c, _ := inProcess(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.NoError(t, r.run(ctx, nil, time.Second, newLog(c, config.Default(), &recoveryNotes{}, false)))
}

func TestConfigurationReachesTheTopics(t *testing.T) {
	p := launchBroker(t, t.TempDir(), "--topic.partitions", "3", "--topic.retention", "2d", "--durability", "written", "--auto_create", "a*")
	require.Equal(t, cli.ExitOK, p.ask("produce", "abc", "x").code)
	require.Equal(t, cli.ExitNotFound, p.ask("produce", "xyz", "x").code)
	var facts topicFacts
	require.NoError(t, json.Unmarshal([]byte(p.ask("topics", "show", "abc", "-o", "json").stdout), &facts))
	require.Len(t, facts.Partitions, 3)
	require.Equal(t, "written", facts.Settings["durability"])
	require.Equal(t, float64(2*24*3600*1000), facts.Settings["retention"])
}
