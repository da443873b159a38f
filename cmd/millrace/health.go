package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/millrace-mq/millrace/client"
	"github.com/millrace-mq/millrace/protocol"
)

var healthCommand = command{
	name:    "health",
	summary: "Ask a broker whether it is well",
	help: "Connects, measures a round trip and reads the broker's numbers. Exit code 0 when it answers and no disk failed under it, " +
		"5 when it cannot be reached, 1 when partitions have failed. With -o json all of its numbers are printed under \"stats\".",
	setup: func(*flag.FlagSet) runFunc {
		return func(ctx context.Context, c *call) error { return health(ctx, c) }
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

func health(ctx context.Context, c *call) error {
	facts := healthFacts{Addr: c.addr, Stats: map[string]uint64{}}
	cl, err := c.open(ctx)
	if err != nil {
		return withCode(exitUnreachable, err)
	}
	err = askHealth(ctx, cl, &facts)
	if err = errors.Join(err, cl.Close()); err != nil {
		return withCode(exitUnreachable, err)
	}
	facts.Failed = facts.Stats["storage_failures"]
	facts.OK = facts.Failed == 0
	if err := c.object(facts, facts.print); err != nil || facts.OK {
		return err
	}
	return withCode(exitRuntime, nil)
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
		state = fmt.Sprintf("FAILED: the disk failed under %s", plural(int(f.Failed), "partition"))
	}
	fmt.Fprintf(w, "%s  %s  %s %s  ping %.2f ms  %d topics  %d partitions  %d connections\n", state, f.Addr,
		printable(f.Server), printable(f.Version), f.PingMS, f.Stats["topics"], f.Stats["partitions"], f.Stats["connections"])
}
