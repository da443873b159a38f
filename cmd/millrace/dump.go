package main

import (
	"context"
	"flag"

	"github.com/millrace-mq/millrace/cmd/millrace/cli"
	"github.com/millrace-mq/millrace/cmd/millrace/inspect"
)

var dumpCommand = cli.Command{
	Name:    "dump",
	Offline: true,
	Args:    "FILE | DIR",
	MinArgs: 1, MaxArgs: 1,
	Summary: "Explain a file of the data directory",
	Help: "FILE is a log (.wal), an index (.idx) or one of the small sealed files (NODE, MANIFEST, TOPIC, .state); DIR lists what is in it. " +
		"Nothing is written and no lock is taken, so it may be used beside a running broker; the end of a log that grows may then look torn.\n" +
		"A log is shown frame by frame: position in the file, first offset, index, term, records, bytes, time, kind, and whether its check holds. " +
		"After damage the next frame that can follow is looked for. An entry of an index is compared with the frame that it points at.\n" +
		"Exit code 6 when something does not hold, 3 when a log ends before --at.",
	Setup: func(fs *flag.FlagSet) cli.RunFunc {
		var o inspect.Options
		fs.BoolVar(&o.Records, "records", false, "show keys, values and headers; of control records what they say")
		fs.BoolVar(&o.Hex, "hex", false, "show the bytes of each frame, field by field (text only)")
		fs.Uint64Var(&o.At, "at", 0, "begin with the frame that holds `OFFSET`")
		fs.Int64Var(&o.Most, "n", 0, "show `N` frames or entries at most; 0 = all")
		return func(ctx context.Context, c *cli.Call) error {
			if o.Hex && c.Output != cli.OutputText && c.Output != "" {
				return cli.Usagef("dump: --hex goes with -o text only")
			}
			if o.Most < 0 {
				return cli.Usagef("dump: -n %d: not a number of frames", o.Most)
			}
			return inspect.Dump(ctx, c, c.Args[0], o)
		}
	},
}
