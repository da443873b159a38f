package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/millrace-mq/millrace/bench"
	"github.com/millrace-mq/millrace/cmd/millrace/cli"
)

var benchCeilingCommand = cli.Command{
	Name:    "bench ceiling",
	Args:    "[DIR]",
	MaxArgs: 1,
	Offline: true,
	Summary: "Measure this machine's own limits",
	Help: "Loopback TCP, writes, syncs and sendfile of the disk that holds DIR (default: the current directory), and hashing. " +
		"No broker on this machine can be better than these. Needs 336 MiB of disk for a moment.",
	Setup: func(fs *flag.FlagSet) cli.RunFunc {
		var budget time.Duration
		cli.DurationVar(fs, &budget, "budget", bench.DefaultCeilingBudget, "`DURATION` in total")
		file := fs.String("json", "", "write the receipt as one JSON object to `FILE`")
		return func(ctx context.Context, c *cli.Call) error {
			dir := "."
			if len(c.Args) > 0 {
				dir = c.Args[0]
			}
			if err := (&benchFlags{json: *file}).checkFiles(); err != nil {
				return err
			}
			evidence, err := newEvidence(0, dir, c.Now())
			if err != nil {
				return err
			}
			if evidence.Ceiling, err = bench.Ceiling(ctx, dir, budget); err != nil {
				return err
			}
			if *file != "" {
				receipt := &bench.Receipt{Schema: bench.Schema, Scenario: "ceiling", Evidence: evidence}
				if err := bench.WriteReport(*file, receipt); err != nil {
					return err
				}
			}
			out := c.Rows("name", "min", "median", "max", "unit", "what")
			for i := range evidence.Ceiling {
				m := &evidence.Ceiling[i]
				out.Add(m.Name, ceilingFigure{m, m.Min}, ceilingFigure{m, m.Median}, ceilingFigure{m, m.Max}, m.Unit, m.What)
			}
			return out.Flush()
		}
	},
}

// ceilingFigure is one figure of a limit: for people with its unit.
type ceilingFigure struct {
	of    *bench.Measure
	value float64
}

func (f ceilingFigure) Text() string { return f.of.Text(f.value) }

// MarshalJSON returns the plain number.
func (f ceilingFigure) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, "%g", f.value), nil }

var benchRatioCommand = cli.Command{
	Name:    "bench ratio",
	Summary: "Compare with the per-frame method in the same run",
	Help: "Runs the broker and a minimal one that allocates, copies, writes and answers frame by frame in turns over the same machine and disk, and reports " +
		"how many times better the broker is. Starts both with --self; else the broker at --addr is compared.",
	Setup: func(fs *flag.FlagSet) cli.RunFunc {
		f := &benchFlags{set: fs, shape: bench.Shape{Messages: 1_000_000, Clients: 10, Batch: 100}}
		cli.CountVar(fs, &f.messages, "messages", int64(f.shape.Messages), "`N` messages of each comparison: 1000, 1M")
		cli.Alias(fs, "n", "messages")
		cli.SizeVar(fs, &f.size, "size", 100, "`SIZE` of a message: 100, 1KiB")
		fs.IntVar(&f.shape.Clients, "clients", f.shape.Clients, "`N` producers, at most 63")
		fs.IntVar(&f.shape.Batch, "batch", f.shape.Batch, "`N` messages in a frame")
		fs.BoolVar(&f.shape.Lockstep, "lockstep", false, "send the next batch after the answer to the last")
		fs.Uint64Var(&f.shape.Seed, "seed", 1, "`SEED` of the payloads")
		fs.IntVar(&f.repeat, "repeat", 3, "`N` measured repeats; one more comes before")
		fs.StringVar(&f.json, "json", "", "write the report as one JSON object to `FILE`")
		f.registerSelf(fs)
		return func(ctx context.Context, c *cli.Call) error { return benchRatio(ctx, c, f) }
	},
}

func benchRatio(ctx context.Context, c *cli.Call, f *benchFlags) (err error) {
	if err := f.complete(); err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	t, err := newBenchTarget(ctx, c, f)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.stop()) }()
	began := c.Now()
	ratios, err := t.Ratios(ctx, f.shape, f.repeat, f.selfDir, func(dir string) []string {
		return []string{program, benchPerFrameCommand.Name, dir}
	})
	if err != nil {
		return err
	}
	evidence, err := newEvidence(f.shape.Seed, t.dir, began)
	if err != nil {
		return err
	}
	report := &bench.RatioReport{Schema: bench.Schema, Scenario: bench.ScenarioRatio, Messages: f.shape.Messages, Size: f.shape.Size,
		Clients: f.shape.Clients, Batch: f.shape.Batch, Lockstep: f.shape.Lockstep, Ratios: ratios,
		Harness: bench.Caveats(bench.ScenarioRatio, f.shape, t.Addr, bench.PlaceUnknown, runtime.NumCPU()), Evidence: &evidence}
	if f.json != "" {
		if err := bench.WriteReport(f.json, report); err != nil {
			return err
		}
	}
	return printBench(c, report)
}
