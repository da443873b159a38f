package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"time"

	"github.com/millrace-mq/millrace/bench"
	"github.com/millrace-mq/millrace/client"
	"github.com/millrace-mq/millrace/cmd/millrace/cli"
	"github.com/millrace-mq/millrace/protocol"
)

// benchFlags are the flags that load scenarios share.
type benchFlags struct {
	set      *flag.FlagSet // nil = the scenario sends no messages
	shape    bench.Shape
	reads    bool // the scenario reads the topic it is given
	messages int64
	size     int64
	rate     int64
	level    *string
	repeat   int
	warmUp   *string
	verify   bool
	json     string
	receipts string
	ceiling  bool
	self     bool
	selfDir  string
}

// register declares the flags; the shape as it is holds the defaults.
func (f *benchFlags) register(fs *flag.FlagSet) {
	f.set = fs
	cli.CountVar(fs, &f.messages, "messages", int64(f.shape.Messages), "`N` messages: 1000, 1M")
	cli.Alias(fs, "n", "messages")
	cli.SizeVar(fs, &f.size, "size", 100, "`SIZE` of a message: 100, 1KiB")
	fs.IntVar(&f.shape.Clients, "clients", f.shape.Clients, "`N` producers or consumers")
	fs.Uint64Var(&f.shape.Seed, "seed", 1, "`SEED` of the payloads")
	f.registerRun(fs)
}

// registerLoad declares the flags of scenarios that publish.
func (f *benchFlags) registerLoad(fs *flag.FlagSet) {
	fs.IntVar(&f.shape.Conns, "connections", 0, "`N` connections that the producers share; 0 = each has its own")
	fs.IntVar(&f.shape.Batch, "batch", f.shape.Batch, "`N` messages in a frame; 1 = each alone; as many as fit where these do not")
	fs.IntVar(&f.shape.Window, "window", 0, "`N` batches a client may have unanswered; 0 = as many as hold 1 MiB, at least 64")
	fs.BoolVar(&f.shape.Lockstep, "lockstep", false, "send the next batch after the answer to the last")
	cli.DurationVar(fs, &f.shape.Linger, "linger", 0, "wait for company before sending, `DURATION`")
	f.level = cli.ChoiceVar(fs, "durable", "durable", "`LEVEL` of the topic and of acknowledgements: durable, written, none or quorum", "written", "none", "quorum")
	fs.IntVar(&f.shape.Partitions, "partitions", 1, "`N` partitions of the topic")
	cli.CountVar(fs, &f.rate, "rate", int64(f.shape.Rate), "`N` messages per second of all clients together; 0 = as fast as they are acknowledged")
	fs.StringVar(&f.shape.Topic, "topic", "", "`TOPIC` to use, made if it is missing; without, one of its own that is deleted at the end, also of an interrupted run")
	fs.BoolVar(&f.shape.Keep, "keep", false, "do not delete the topic")
}

// registerRun declares what every scenario takes.
func (f *benchFlags) registerRun(fs *flag.FlagSet) {
	fs.IntVar(&f.repeat, "repeat", 1, "`N` measured runs; figures are those of the one in the middle, with the range of all")
	f.warmUp = cli.ChoiceVar(fs, "warm-up", "auto", "`MODE`: one run before that does not count; auto = with --repeat above 1, on or off", "on", "off")
	fs.BoolVar(&f.verify, "verify", false, "fail when a message was lost, doubled, reordered or altered")
	fs.StringVar(&f.json, "json", "", "write the report as one JSON object to `FILE`")
	fs.StringVar(&f.receipts, "receipts", "", "append the result with its evidence to `FILE`, one JSON object a line")
	fs.BoolVar(&f.ceiling, "ceiling", false, "measure this machine's own limits after the runs (20 s) and report them too")
	f.registerSelf(fs)
}

func (f *benchFlags) registerSelf(fs *flag.FlagSet) {
	fs.BoolVar(&f.self, "self", false, "start a broker for the runs, with data that are removed afterwards, instead of using --addr")
	fs.StringVar(&f.selfDir, "self-dir", "", "`DIR` in which that broker has its data; the disk matters (default: the directory for temporary files)")
}

// complete moves the flags of other types into the shape.
func (f *benchFlags) complete() error {
	s := &f.shape
	s.Messages, s.Size, s.Rate = uint64(f.messages), int(min(f.size, math.MaxInt32)), float64(f.rate)
	s.Partitions = max(s.Partitions, 1)
	if f.level != nil {
		level, ok := protocol.ParseLevel(*f.level)
		if !ok {
			return cli.Usagef("--durable %s is no level", *f.level)
		}
		s.Level = level
	}
	if f.repeat < 1 || f.repeat > 1000 {
		return cli.Usagef("--repeat %d: want 1 to 1000", f.repeat)
	}
	if f.noMessages() {
		return cli.Usagef("-n 0: nothing to measure, want 1 to %d", bench.MaxMessages)
	}
	if err := f.fitBatch(); err != nil {
		return err
	}
	if err := s.Validate(); err != nil {
		return cli.Usagef("%w", err)
	}
	return f.checkFiles()
}

// noMessages says that none were asked for. Of a topic that is read, 0 are all.
func (f *benchFlags) noMessages() bool {
	return f.messages == 0 && f.set != nil && !(f.reads && f.shape.Topic != "")
}

// fitBatch limits batches to what a client has to send and a frame holds; one that was
// asked for and does not fit a frame is refused.
func (f *benchFlags) fitBatch() error {
	s := &f.shape
	most := bench.MaxBatch(s.Size)
	if s.Batch > most && f.set != nil && cli.Given(f.set, "batch") {
		return cli.Usagef("--batch %d: a frame holds at most %s of %d bytes; --batch %d fits", s.Batch, cli.Plural(most, "message"), s.Size, most)
	}
	if s.Messages > 0 && s.Clients > 0 {
		most = min(most, int(min(s.MaxShare(), protocol.MaxRecords)))
	}
	if s.Batch > 1 {
		s.Batch = min(s.Batch, max(most, 1))
	}
	return nil
}

// checkFiles finds out before a run whether its report can be written.
func (f *benchFlags) checkFiles() error {
	if f.json != "" {
		if err := bench.CheckWritable(f.json); err != nil {
			return cli.Usagef("--json: %w", err)
		}
	}
	if f.receipts != "" {
		if err := bench.CheckWritable(f.receipts); err != nil {
			return cli.Usagef("--receipts: %w", err)
		}
	}
	return nil
}

// warms says that one run comes before those that count.
func (f *benchFlags) warms() bool { return *f.warmUp == "on" || *f.warmUp == "auto" && f.repeat > 1 }

// benchTarget is the broker that is measured.
type benchTarget struct {
	*bench.Bench
	child *bench.BrokerProcess // nil = it was there before
	dir   string               // of its data; "" = unknown
}

// newBenchTarget connects the scenario's progress and starts the broker of --self.
func newBenchTarget(ctx context.Context, c *cli.Call, f *benchFlags) (*benchTarget, error) {
	t := &benchTarget{Bench: &bench.Bench{Addr: c.Addr, Progress: func(phase string, total uint64) (func(uint64), func()) {
		p := c.StartProgress(phase, "messages", int64(total))
		return func(n uint64) { p.Add(int64(n)) }, p.Finish
	}}}
	if !f.self {
		t.Left = func(topic string, err error) {
			fmt.Fprintf(c.Stderr, "millrace: the topic of this run may be left: %v\nto delete it: %s\n", err, deletion(c, topic))
		}
		return t, nil
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	t.child, err = bench.StartBroker(ctx, f.selfDir, func(dataDir, portFile string) []string {
		return []string{program, "server", "--data-dir", dataDir, "--listen", "127.0.0.1:0", "--http", "off",
			"--durability", f.floor(), "--log.level", "warn", "--port-file", portFile}
	})
	if err != nil {
		return nil, err
	}
	t.Addr, t.PID, t.dir = t.child.Addr(), t.child.PID(), t.child.DataDir()
	return t, nil
}

// deletion is the command line that deletes a topic.
func deletion(c *cli.Call, topic string) string {
	line := "millrace topics rm " + topic + " --yes"
	if c.Addr != client.DefaultAddr {
		line += " --addr " + c.Addr
	}
	return line
}

func (f *benchFlags) floor() string {
	if f.level == nil {
		return protocol.LevelWritten.String()
	}
	return *f.level
}

// stop ends the broker of --self.
func (t *benchTarget) stop() error {
	if t.child == nil {
		return nil
	}
	return t.child.Stop()
}

// runBench measures a scenario as often as the flags say and reports it.
func runBench(ctx context.Context, c *cli.Call, scenario string, f *benchFlags, measure func(ctx context.Context, b *bench.Bench) (*bench.Run, error)) (err error) {
	if err := f.complete(); err != nil {
		return err
	}
	t, err := newBenchTarget(ctx, c, f)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.stop()) }()
	began := c.Now()
	runs, cut := bench.Repeat(ctx, f.repeat, f.warms(), func(ctx context.Context) (*bench.Run, error) { return measure(ctx, t.Bench) })
	if cut != nil && t.child != nil {
		cut = fmt.Errorf("%w; the end of the broker's log: %s", cut, t.child.LogTail())
	}
	if errors.Is(cut, protocol.TooLarge) {
		cut = fmt.Errorf("%w; a smaller --size or --batch may fit, or a larger max_message_bytes of the topic", cut)
	}
	if len(runs) == 0 {
		return cut
	}
	report, err := reportBench(ctx, c, scenario, f, t, runs, began, cut)
	if err != nil {
		return errors.Join(cut, err)
	}
	switch {
	case cut != nil:
		return cli.WithCode(cli.ExitRuntime, fmt.Errorf("bench %s was cut short after %s acked: %w", scenario, cli.Plural(int(report.Acked), "message"), cut))
	case !report.Verify.OK() && f.verify:
		return cli.WithCode(cli.ExitRuntime, fmt.Errorf("%w: %s", bench.ErrFlawed, report.Verify))
	case !report.Verify.OK():
		c.Notice("warning: %s", report.Verify)
	}
	return nil
}

// reportBench writes and prints what was measured.
func reportBench(ctx context.Context, c *cli.Call, scenario string, f *benchFlags, t *benchTarget, runs []*bench.Run, began time.Time, cut error) (*bench.Report, error) {
	evidence, err := benchEvidence(ctx, f, t, began, cut == nil)
	if err != nil {
		return nil, err
	}
	report := bench.NewReport(scenario, f.shape, runs, &evidence, cut)
	report.Harness = bench.Caveats(scenario, f.shape, t.Addr, runs[len(runs)-1].Place, runtime.NumCPU())
	if f.json != "" {
		err = bench.WriteReport(f.json, report)
	}
	if f.receipts != "" {
		err = errors.Join(err, bench.AppendReceipt(f.receipts, &report.Result))
	}
	return report, errors.Join(err, printBench(c, report))
}

// printBench prints a report in the form that -o asks for.
func printBench(c *cli.Call, report interface{ Text(io.Writer) error }) error {
	var text error
	err := c.Object(report, func(w io.Writer) { text = report.Text(w) })
	return errors.Join(err, text)
}

// benchEvidence describes build, machine and disk, and of whole runs the machine's
// limits where they are asked for.
func benchEvidence(ctx context.Context, f *benchFlags, t *benchTarget, began time.Time, whole bool) (bench.Evidence, error) {
	evidence, err := newEvidence(f.shape.Seed, t.dir, began)
	if err != nil || !f.ceiling || !whole {
		return evidence, err
	}
	dir := t.dir
	if dir == "" {
		dir = os.TempDir()
	}
	evidence.Ceiling, err = bench.Ceiling(ctx, dir, 0)
	return evidence, err
}

// newEvidence adds the commit that the linker was given to what the build info knows.
func newEvidence(seed uint64, dir string, began time.Time) (bench.Evidence, error) {
	evidence, err := bench.NewEvidence(os.Args, seed, dir, began)
	if revision != "" {
		evidence.Commit = revision
	}
	return evidence, err
}
