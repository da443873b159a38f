package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/millrace-mq/millrace/client"
	"github.com/millrace-mq/millrace/cmd/millrace/cli"
	"github.com/millrace-mq/millrace/protocol"
)

var topicsLsCommand = cli.Command{
	Name:    "topics ls",
	Args:    "[PATTERN]",
	MaxArgs: 1,
	Summary: "List topics",
	Help:    "PATTERN is a name with * ? and [a-z]. Records and bytes are those kept now, in all partitions.",
	Setup: func(*flag.FlagSet) cli.RunFunc {
		return func(ctx context.Context, c *cli.Call) error {
			pattern := "*"
			if len(c.Args) > 0 {
				pattern = c.Args[0]
			}
			if _, err := path.Match(pattern, ""); err != nil {
				return cli.Usagef("topics ls: pattern %q: %w", pattern, err)
			}
			return withClient(ctx, c, func(cl *client.Client) error { return listTopics(ctx, c, cl, pattern) })
		}
	},
}

func listTopics(ctx context.Context, c *cli.Call, cl *client.Client, pattern string) error {
	out := c.Rows("topic", "partitions", "records", "bytes")
	for t, err := range cl.Topics(ctx) {
		if err != nil {
			return err
		}
		if ok, err := path.Match(pattern, t.Name); err == nil && ok {
			out.Add(t.Name, t.Partitions, t.Records, cli.ByteSize(t.Bytes))
		}
	}
	return out.Flush()
}

var topicsShowCommand = cli.Command{
	Name:    "topics show",
	Args:    "TOPIC",
	MinArgs: 1, MaxArgs: 1,
	Summary: "Show a topic: settings, partitions, where they begin and end",
	Help: "With -o json: {\"topic\",\"id\",\"settings\":{…},\"partitions\":[{\"partition\",\"state\",\"epoch\",\"start\",\"end\",\"durable\",\"records\"," +
		"\"bytes\",\"segments\",\"newest\"}]}; settings are numbers (sizes in bytes, times in milliseconds) but for durability, a name. " +
		"end is behind the last record that readers see, durable behind the last that is on the disk, newest the time of the last append.",
	Setup: func(*flag.FlagSet) cli.RunFunc {
		return func(ctx context.Context, c *cli.Call) error {
			return withClient(ctx, c, func(cl *client.Client) error {
				info, err := cl.DescribeTopic(ctx, c.Args[0])
				if err != nil {
					return err
				}
				return printTopic(c, info)
			})
		}
	},
}

// topicFacts is a topic as JSON shows it.
type topicFacts struct {
	Topic      string           `json:"topic"`
	ID         string           `json:"id"` // 16 hex digits
	Settings   map[string]any   `json:"settings"`
	Partitions []partitionFacts `json:"partitions"`
}

// partitionFacts is a partition as JSON shows it.
type partitionFacts struct {
	Partition int    `json:"partition"`
	State     string `json:"state"`
	Epoch     uint32 `json:"epoch"`
	Start     uint64 `json:"start"`
	End       uint64 `json:"end"`
	Durable   uint64 `json:"durable"`
	Records   uint64 `json:"records"`
	Bytes     uint64 `json:"bytes"`
	Segments  uint32 `json:"segments"`
	Newest    string `json:"newest"` // RFC 3339; empty = no record
}

func topicFactsOf(info protocol.TopicInfo) topicFacts {
	f := topicFacts{Topic: info.Name, ID: fmt.Sprintf("%016x", info.ID), Settings: map[string]any{}, Partitions: []partitionFacts{}}
	for _, s := range info.Settings {
		spec := s.ID.Spec()
		switch {
		case spec == nil:
			f.Settings[fmt.Sprintf("setting_%d", s.ID)] = s.Value // of a newer broker
		case spec.Unit == "level":
			f.Settings[spec.Name] = settingText(spec, s.Value)
		default:
			f.Settings[spec.Name] = s.Value
		}
	}
	for n, p := range info.Partitions {
		newest := ""
		if p.Newest != 0 {
			newest = time.Unix(0, int64(p.Newest)).UTC().Format(time.RFC3339Nano)
		}
		f.Partitions = append(f.Partitions, partitionFacts{Partition: n, State: p.State.String(), Epoch: p.Epoch, Start: p.Start, End: p.End,
			Durable: p.Durable, Records: p.End - min(p.Start, p.End), Bytes: p.Bytes, Segments: p.Segments, Newest: newest})
	}
	return f
}

// printTopic shows a topic in every form; CSV has a row for each partition.
func printTopic(c *cli.Call, info protocol.TopicInfo) error {
	facts := topicFactsOf(info)
	if c.Output == cli.OutputCSV {
		return partitionRows(c, facts.Partitions)
	}
	return c.Object(facts, func(w io.Writer) {
		fmt.Fprintf(w, "%s\n", facts.Topic)
		settings := cli.NewTextTable()
		for _, s := range info.Settings {
			if spec := s.ID.Spec(); spec != nil {
				settings.Add([]string{"  " + spec.Name, settingLine(spec, s.Value)})
			}
		}
		fmt.Fprintf(w, "%s\n", settings)
		inner := &cli.Call{World: cli.World{Stdout: w}}
		_ = partitionRows(inner, facts.Partitions) // w keeps its error
	})
}

// settingLine is a value with what 0 means.
func settingLine(spec *protocol.SettingSpec, value uint64) string {
	if value == 0 && spec.Zero != "" && spec.Unit != "level" {
		return "0 (" + spec.Zero + ")"
	}
	return settingText(spec, value)
}

func partitionRows(c *cli.Call, list []partitionFacts) error {
	out := c.Rows("partition", "state", "epoch", "start", "end", "durable", "records", "bytes", "segments", "newest")
	for _, p := range list {
		out.Add(p.Partition, p.State, p.Epoch, p.Start, p.End, p.Durable, p.Records, cli.ByteSize(p.Bytes), p.Segments, p.Newest)
	}
	return out.Flush()
}

var topicsRmCommand = cli.Command{
	Name:    "topics rm",
	Args:    "TOPIC",
	MinArgs: 1, MaxArgs: 1,
	Summary: "Remove a topic with all of its messages",
	Help:    "Asks for the topic's name on standard input, unless --yes is given. With --dry-run it says what would be removed.",
	Setup: func(fs *flag.FlagSet) cli.RunFunc {
		yes := fs.Bool("yes", false, "do not ask")
		dry := fs.Bool("dry-run", false, "say what would be removed, and do nothing")
		return func(ctx context.Context, c *cli.Call) error {
			return withClient(ctx, c, func(cl *client.Client) error { return removeTopic(ctx, c, cl, *yes, *dry) })
		}
	},
}

func removeTopic(ctx context.Context, c *cli.Call, cl *client.Client, yes, dry bool) error {
	name := c.Args[0]
	info, err := cl.DescribeTopic(ctx, name)
	if err != nil {
		return err
	}
	removed := removal{Topic: name, Partitions: len(info.Partitions), DryRun: dry}
	for _, p := range info.Partitions {
		removed.Records += p.End - min(p.Start, p.End)
		removed.Bytes += p.Bytes
	}
	if !dry && !yes {
		fmt.Fprintf(c.Stderr, "This removes %s with %s and %s (%s) for ever.\nType the topic's name to go on: ",
			name, cli.Plural(removed.Partitions, "partition"), cli.Plural(int(removed.Records), "record"), cli.HumanSize(int64(removed.Bytes)))
		line, err := bufio.NewReader(io.LimitReader(c.Stdin, 4*protocol.MaxName)).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if strings.TrimSpace(line) != name {
			return fmt.Errorf("%q is not the name; nothing was removed", strings.TrimSpace(line))
		}
	}
	if !dry {
		if err := cl.DeleteTopic(ctx, name); err != nil {
			return err
		}
	}
	return c.Object(removed, func(w io.Writer) {
		verb := "removed"
		if dry {
			verb = "would remove"
		}
		fmt.Fprintf(w, "%s %s: %s, %s, %s\n", verb, name, cli.Plural(removed.Partitions, "partition"), cli.Plural(int(removed.Records), "record"), cli.HumanSize(int64(removed.Bytes)))
	})
}

// removal is what "topics rm" did or would do.
type removal struct {
	Topic      string `json:"topic"`
	Partitions int    `json:"partitions"`
	Records    uint64 `json:"records"`
	Bytes      uint64 `json:"bytes"`
	DryRun     bool   `json:"dry_run"`
}
