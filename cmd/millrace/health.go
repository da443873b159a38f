package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/millrace-mq/millrace/client"
	"github.com/millrace-mq/millrace/cmd/millrace/cli"
	"github.com/millrace-mq/millrace/protocol"
)

var healthCommand = cli.Command{
	Name:    "health",
	Summary: "Ask a broker whether it is well",
	Help: "Connects, measures a round trip and reads the broker's numbers. Exit code 0 when it answers and no disk failed under it, " +
		"5 when it cannot be reached, 1 when partitions have failed. With -o json all of its numbers are printed under \"stats\".",
	Setup: func(*flag.FlagSet) cli.RunFunc {
		return func(ctx context.Context, c *cli.Call) error { return health(ctx, c) }
	},
}

// healthFacts is what "health" says.
type healthFacts struct {
	OK      bool              `json:"ok"`
	Addr    string            `json:"addr"`
	Server  string            `json:"server"`
	Version string            `json:"version"`
	NodeID  string            `json:"node_id"` // 16 hex digits
	PingMS  float64           `json:"ping_ms"`
	Failed  uint64            `json:"failed_partitions"`
	Stats   map[string]uint64 `json:"stats"`
}

func health(ctx context.Context, c *cli.Call) error {
	facts := healthFacts{Addr: c.Addr, Stats: map[string]uint64{}}
	cl, err := open(ctx, c)
	if err != nil {
		return cli.WithCode(cli.ExitUnreachable, err)
	}
	err = askHealth(ctx, cl, &facts)
	if err = errors.Join(err, cl.Close()); err != nil {
		return cli.WithCode(cli.ExitUnreachable, err)
	}
	facts.Failed = facts.Stats["storage_failures"]
	facts.OK = facts.Failed == 0
	if err := c.Object(facts, facts.print); err != nil || facts.OK {
		return err
	}
	return cli.WithCode(cli.ExitRuntime, nil)
}

func askHealth(ctx context.Context, cl *client.Client, facts *healthFacts) error {
	hello, err := cl.Broker(ctx)
	if err != nil {
		return err
	}
	ping, err := cl.Ping(ctx)
	if err != nil {
		return err
	}
	var stats protocol.Stats
	if stats, err = cl.Stats(ctx); err != nil {
		return err
	}
	facts.Server, facts.Version, facts.NodeID = hello.Server, hello.ServerVersion, fmt.Sprintf("%016x", hello.NodeID)
	facts.PingMS = float64(ping.Microseconds()) / 1000
	for _, s := range stats.Items {
		facts.Stats[s.Name] = s.Value
	}
	return nil
}

func (f healthFacts) print(w io.Writer) {
	state := "ok"
	if !f.OK {
		state = fmt.Sprintf("FAILED: the disk failed under %s", cli.Plural(int(f.Failed), "partition"))
	}
	fmt.Fprintf(w, "%s  %s  %s %s  ping %.2f ms  %d topics  %d partitions  %d connections\n", state, f.Addr,
		cli.Printable(f.Server), cli.Printable(f.Version), f.PingMS, f.Stats["topics"], f.Stats["partitions"], f.Stats["connections"])
}
