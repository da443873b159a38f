package main

import (
	"context"
	"flag"
	"os"

	"github.com/millrace-mq/millrace/bench"
	"github.com/millrace-mq/millrace/cmd/millrace/cli"
)

const benchHelp = "Payloads prove themselves by their seed. The report has percentiles, the CPU that broker and load generator spent per million messages, " +
	"and the broker's peak memory; -o json and --json FILE give everything with its evidence: commit, command line, kernel, file system, raw counters.\n" +
	"Load generator and broker share this machine when the broker runs here: rates are those of both ends together, the broker's CPU is not.\n" +
	"With --repeat above 1 one run comes first that does not count: memory and files that it was the first to touch would distort the others.\n" +
	"A run that is cut short, by a signal or a dead broker, still reports what was acknowledged and ends with exit code 1; where its topic could not be deleted, it says how to."

var benchProduceCommand = cli.Command{
	Name:    "bench produce",
	Summary: "Measure publishing",
	Help: "Publishes -n messages by --clients producers in batches, pipelined or, with --lockstep, one after the answer to the last. " +
		"With level none the time runs until the broker has everything.\n" + benchHelp,
	Setup: func(fs *flag.FlagSet) cli.RunFunc {
		f := &benchFlags{shape: bench.Shape{Messages: 1_000_000, Clients: 10, Batch: 100}}
		f.register(fs)
		f.registerLoad(fs)
		return func(ctx context.Context, c *cli.Call) error {
			return runBench(ctx, c, bench.ScenarioProduce, f, func(ctx context.Context, b *bench.Bench) (*bench.Run, error) {
				return b.Produce(ctx, f.shape)
			})
		}
	},
}

var benchConsumeCommand = cli.Command{
	Name:    "bench consume",
	Summary: "Measure catching up",
	Help: "Reads --topic from its start to its end as of now by --clients consumers, each of them everything, and checks every record. " +
		"Without --topic one is filled with -n messages before. With --topic, -n bounds what is read (default: all).\n" +
		"--expect FILE takes the report of a bench produce and fails records that it had acknowledged and that are missing, also after a crash of the broker.\n" + benchHelp,
	Setup: func(fs *flag.FlagSet) cli.RunFunc {
		f := &benchFlags{shape: bench.Shape{Clients: 1, Batch: 100}, reads: true}
		f.register(fs)
		f.registerLoad(fs)
		expect := fs.String("expect", "", "`FILE` that bench produce --json wrote: what must be there")
		return func(ctx context.Context, c *cli.Call) error {
			var spans []bench.Span
			if f.shape.Topic == "" && !cli.Given(fs, "n") && !cli.Given(fs, "messages") {
				f.messages = 1_000_000
			}
			if *expect != "" {
				var size int
				var err error
				if spans, f.shape.Seed, size, err = bench.ReadSpans(*expect); err != nil {
					return err
				}
				f.size = int64(size)
			}
			return runBench(ctx, c, bench.ScenarioConsume, f, func(ctx context.Context, b *bench.Bench) (*bench.Run, error) {
				return b.Consume(ctx, f.shape, spans)
			})
		}
	},
}

var benchE2ECommand = cli.Command{
	Name:    "bench e2e",
	Summary: "Publish and read back, every message checked",
	Help: "Publishes -n messages by --clients producers, then a consumer process of its own reads all of them back and checks each one: its bytes, " +
		"that it comes once, and its place among those of its producer. --simultaneous consumes while messages are published.\n" + benchHelp,
	Setup: func(fs *flag.FlagSet) cli.RunFunc {
		f := &benchFlags{shape: bench.Shape{Messages: 1_000_000, Clients: 10, Batch: 100}}
		f.register(fs)
		f.registerLoad(fs)
		simultaneous := fs.Bool("simultaneous", false, "consume while messages are published")
		return func(ctx context.Context, c *cli.Call) error {
			program, err := os.Executable()
			if err != nil {
				return err
			}
			return runBench(ctx, c, bench.ScenarioE2E, f, func(ctx context.Context, b *bench.Bench) (*bench.Run, error) {
				return b.E2E(ctx, f.shape, *simultaneous, program, benchConsumerCommand.Name)
			})
		}
	},
}

var benchLatencyCommand = cli.Command{
	Name:    "bench latency",
	Summary: "Measure the way of single messages to a waiting consumer",
	Help: "Publishes one message at a time at --rate to a consumer that waits for it. Each message counts from when it was due, " +
		"so a stall makes all behind it late (no coordinated omission).\n" + benchHelp,
	Setup: func(fs *flag.FlagSet) cli.RunFunc {
		f := &benchFlags{shape: bench.Shape{Messages: 50_000, Clients: 1, Batch: 1, Rate: bench.DefaultLatencyRate}}
		f.register(fs)
		f.registerLoad(fs)
		return func(ctx context.Context, c *cli.Call) error {
			if f.shape.Clients != 1 || f.shape.Batch != 1 || f.shape.Partitions != 1 || f.shape.Lockstep {
				return cli.Usagef("bench latency sends single messages from one client to one partition")
			}
			return runBench(ctx, c, bench.ScenarioLatency, f, func(ctx context.Context, b *bench.Bench) (*bench.Run, error) {
				return b.Latency(ctx, f.shape)
			})
		}
	},
}

var benchIdleCommand = cli.Command{
	Name:    "bench idle",
	Summary: "Measure what idle connections cost the broker",
	Help: "Opens --clients connections that say HELLO and nothing more, and reports by how much the broker's resident memory grew for each. " +
		"The broker must run on this machine.",
	Setup: func(fs *flag.FlagSet) cli.RunFunc {
		f := &benchFlags{shape: bench.Shape{Clients: 1000, Batch: 1}, size: 100}
		fs.IntVar(&f.shape.Clients, "clients", f.shape.Clients, "`N` connections")
		f.registerRun(fs)
		return func(ctx context.Context, c *cli.Call) error {
			return runBench(ctx, c, bench.ScenarioIdle, f, func(ctx context.Context, b *bench.Bench) (*bench.Run, error) {
				return b.Idle(ctx, f.shape)
			})
		}
	},
}

// benchConsumerCommand is the consumer process of bench e2e. It has one word, so that
// it is none of the verbs of bench.
var benchConsumerCommand = cli.Command{
	Name:    "bench-consumer-process",
	Summary: "Consume for bench e2e, by JSON on stdin and stdout",
	Hidden:  true,
	Offline: true,
	Setup: func(*flag.FlagSet) cli.RunFunc {
		return func(ctx context.Context, c *cli.Call) error { return bench.ConsumerMain(ctx, c.Stdin, c.Stdout) }
	},
}

// benchPerFrameCommand is the broker that bench ratio compares with.
var benchPerFrameCommand = cli.Command{
	Name:    "bench-per-frame-broker",
	Args:    "DIR",
	MinArgs: 1, MaxArgs: 1,
	Summary: "Run the broker of bench ratio until stdin ends",
	Hidden:  true,
	Offline: true,
	Setup: func(*flag.FlagSet) cli.RunFunc {
		return func(_ context.Context, c *cli.Call) error { return bench.PerFrameMain(c.Args[0], c.Stdin, c.Stdout) }
	},
}
