package main

import (
	"context"
	"flag"

	"github.com/millrace-mq/millrace/cmd/millrace/cli"
	"github.com/millrace-mq/millrace/cmd/millrace/inspect"
)

var verifyCommand = cli.Command{
	Name:    "verify",
	Offline: true,
	Args:    "DIR",
	MinArgs: 1, MaxArgs: 1,
	Summary: "Check every byte of a data directory",
	Help: "DIR is a data directory, or one topic or partition in it. Every frame's check, the order of frames, manifests, indexes and checkpoints " +
		"are compared; nothing is changed. A data directory that a broker holds is refused.\n" +
		"With -o json: {\"ok\",\"partitions\",\"segments\",\"frames\",\"records\",\"bytes\",\"damage\":[{\"file\",\"pos\",\"from\",\"to\",\"kind\"}],\"notes\":[]}; " +
		"from and to are the offsets [from, to) that cannot be read, to = from where the end is not known. Notes are what the next start puts right.\n" +
		"Exit code 6 when there is damage.",
	Setup: func(*flag.FlagSet) cli.RunFunc {
		return func(ctx context.Context, c *cli.Call) error {
			facts, err := inspect.Verify(ctx, c, c.Args[0])
			if err != nil {
				return err
			}
			if err := c.Object(facts, facts.Print); err != nil || facts.OK {
				return err
			}
			return cli.WithCode(cli.ExitDamage, nil)
		}
	},
}
