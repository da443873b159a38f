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
	Help: "Connects, measures a round trip and reads the broker's numbers. Exit code 0 when it answers and is well, 5 when it cannot be reached, " +
		"1 when a disk failed under it, a disk is full, or partitions are damaged; each is named. With -o json all of its numbers are printed " +
		"under \"stats\", and what is wrong under \"problems\".",
	Setup: func(*flag.FlagSet) cli.RunFunc {
		return func(ctx context.Context, c *cli.Call) error { return health(ctx, c) }
	},
}

// healthFacts is what "health" says.
type healthFacts struct {
	OK      bool    `json:"ok"`
	Addr    string  `json:"addr"`
	Server  string  `json:"server"`
	Version string  `json:"version"`
	NodeID  string  `json:"node_id"` // 16 hex digits
	PingMS  float64 `json:"ping_ms"`
	Failed  uint64  `json:"failed_partitions"`

	Problems []string `json:"problems"`

	Stats map[string]uint64 `json:"stats"`
}

func health(ctx context.Context, c *cli.Call) error {
	facts := healthFacts{Addr: c.Addr, Stats: map[string]uint64{}, Problems: []string{}}
	cl, err := open(ctx, c)
	if errors.Is(err, client.ErrAddr) {
		return err
	}
	if err != nil {
		return cli.WithCode(cli.ExitUnreachable, err)
	}
	err = askHealth(ctx, cl, &facts)
	if err = errors.Join(err, cl.Close()); err != nil {
		return cli.WithCode(cli.ExitUnreachable, err)
	}
	facts.judge()
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

// judge finds what is wrong in the broker's numbers. A number that it does not
// have is 0.
func (f *healthFacts) judge() {
	f.Failed = f.Stats["storage_failures"]
	if f.Failed > 0 {
		f.Problems = append(f.Problems, fmt.Sprintf("the disk failed under %s: restart the broker, recovery finds what is on the disk (storage_failures)",
			cli.Plural(int(f.Failed), "partition")))
	}
	if f.Stats["disk_full"] > 0 {
		f.Problems = append(f.Problems, "the disk is full: free space or lower retention (disk_full)")
	}
	if n := f.Stats["partitions_damaged"]; n > 0 {
		f.Problems = append(f.Problems, fmt.Sprintf("%s damaged: millrace verify names the places once the broker is stopped (partitions_damaged)",
			cli.Plural(int(n), "partition")))
	}
	f.OK = len(f.Problems) == 0
}

func (f healthFacts) print(w io.Writer) {
	table := cli.NewTextTable()
	line := func(name, value string) { table.Add([]string{name, cli.Printable(value)}) }
	state := "ok"
	if !f.OK {
		state = "NOT OK"
	}
	line("state", state)
	for _, p := range f.Problems {
		line("problem", p)
	}
	line("address", f.Addr)
	line("broker", f.Server+" "+f.Version)
	line("node", f.NodeID)
	line("ping", fmt.Sprintf("%.2f ms", f.PingMS))
	for _, name := range []string{"topics", "partitions", "connections"} {
		line(name, fmt.Sprint(f.Stats[name]))
	}
	if free, ok := f.Stats["disk_free_bytes"]; ok {
		line("disk free", cli.HumanSize(int64(free)))
	}
	fmt.Fprint(w, table)
}
