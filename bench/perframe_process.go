package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"
)

// perFrameStart bounds the wait for a per-frame broker to announce its address, and
// perFrameStop the wait for it to end.
const (
	perFrameStart = 30 * time.Second
	perFrameStop  = 10 * time.Second
)

// PerFrameMain is the main function of a process that runs the per-frame broker on a
// free loopback port over dir. It writes "host:port" and a line feed to out when ready
// and ends when in ends, so that it does not outlive the process that started it.
//
// If the broker fails first, a goroutine is left reading from in; the caller is about
// to exit.
func PerFrameMain(dir string, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	go func() {
		// Nothing is said over in; its end is the message, and so is its failure.
		_, err := io.Copy(io.Discard, in)
		cancel(err)
	}()
	return PerFrameServe(ctx, "127.0.0.1:0", dir, func(addr string) {
		if _, err := fmt.Fprintln(out, addr); err != nil {
			cancel(fmt.Errorf("announce %s: %w", addr, err))
		}
	})
}

// PerFrame is a per-frame broker that runs as a process of its own, so that its CPU
// time and memory are told from those of the load.
//
// Ownership: one goroutine calls Stop, after the others' calls have returned.
type PerFrame struct {
	// immutable
	addr string
	cmd  *exec.Cmd
	in   io.Closer
}

// StartPerFrame starts argv, a command that calls PerFrameMain with its standard input
// and output, and waits for its address. The process is killed when ctx ends; call
// Stop in any case.
//
// Bounds: waits 30 s for the address.
func StartPerFrame(ctx context.Context, argv ...string) (_ *PerFrame, err error) {
	if len(argv) == 0 {
		return nil, fmt.Errorf("%w: no command", ErrOutOfRange)
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &PerFrame{cmd: cmd, in: in}
	late := time.AfterFunc(perFrameStart, p.kill)
	defer late.Stop()
	line, err := bufio.NewReader(io.LimitReader(out, 256)).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s announced no address: %w", argv[0], err), p.Stop())
	}
	p.addr = strings.TrimSuffix(line, "\n")
	if _, err := netip.ParseAddrPort(p.addr); err != nil {
		return nil, errors.Join(fmt.Errorf("%s announced no address: %w", argv[0], err), p.Stop())
	}
	return p, nil
}

// kill ends the process at once. That it has ended already is no error.
func (p *PerFrame) kill() {
	if err := p.cmd.Process.Kill(); err != nil {
		return
	}
}

// Addr returns where the broker listens.
func (p *PerFrame) Addr() string { return p.addr }

// PID returns the process of the broker.
func (p *PerFrame) PID() int { return p.cmd.Process.Pid }

// Load runs PerFrameLoad and adds what the broker used for it.
func (p *PerFrame) Load(ctx context.Context, shape PerFrameShape) (PerFrameReport, error) {
	return p.metered(func() (PerFrameReport, error) { return PerFrameLoad(ctx, p.addr, shape) })
}

// Drain runs PerFrameDrain and adds what the broker used for it.
func (p *PerFrame) Drain(ctx context.Context, frames int64) (PerFrameReport, error) {
	return p.metered(func() (PerFrameReport, error) { return PerFrameDrain(ctx, p.addr, frames) })
}

func (p *PerFrame) metered(run func() (PerFrameReport, error)) (PerFrameReport, error) {
	before, err := ReadUsage(p.PID())
	if err != nil {
		return PerFrameReport{}, err
	}
	r, err := run()
	if err != nil {
		return r, err
	}
	after, err := ReadUsage(p.PID())
	if err != nil {
		return r, err
	}
	r.Server = Usage{CPU: after.CPU - before.CPU, RSSPeak: after.RSSPeak}
	return r, nil
}

// Stop asks the broker to end, by ending its standard input, and waits for it.
//
// Bounds: kills it after 10 s.
func (p *PerFrame) Stop() error {
	closed := p.in.Close()
	late := time.AfterFunc(perFrameStop, p.kill)
	defer late.Stop()
	return errors.Join(closed, p.cmd.Wait())
}
