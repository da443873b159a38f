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

var topicsCreateCommand = cli.Command{
	Name:    "topics create",
	Args:    "TOPIC [NAME=VALUE ...]",
	MinArgs: 1, MaxArgs: -1,
	Summary: "Create a topic",
	Help: "Settings are given as --NAME VALUE, --set NAME=VALUE or NAME=VALUE: millrace topics create orders -p 12 --retention 7d segment_bytes=64MiB. " +
		"What is not named takes the broker's default. Prints the topic as topics show does. --dry-run asks the broker whether the name is free " +
		"and ends as the real run would.",
	Setup: func(fs *flag.FlagSet) cli.RunFunc {
		settings := settingFlags(fs)
		missing := fs.Bool("if-missing", false, "no error when the topic exists with the settings that are named")
		dry := fs.Bool("dry-run", false, "make every check that needs no change, and do nothing")
		return func(ctx context.Context, c *cli.Call) error {
			name := c.Args[0]
			if err := settings.arguments("topics create", c.Args[1:]); err != nil {
				return err
			}
			if err := protocol.ValidClientTopic(name); err != nil {
				return cli.WithCode(cli.ExitUsage, err)
			}
			return withClient(ctx, c, func(cl *client.Client) error {
				if *dry {
					return tryCreate(ctx, c, cl, settings.list, *missing)
				}
				info, err := cl.CreateTopic(ctx, name, settings.list, *missing)
				if err != nil {
					return err
				}
				return printTopic(c, info)
			})
		}
	},
}

var topicsSetCommand = cli.Command{
	Name:    "topics set",
	Args:    "TOPIC [NAME=VALUE ...]",
	MinArgs: 1, MaxArgs: -1,
	Summary: "Change settings of a topic",
	Help: "Settings are given as NAME=VALUE, --NAME VALUE or --set NAME=VALUE: millrace topics set orders retention=30d partitions=24. " +
		"Prints what each was before. Partitions can be raised, not lowered.",
	Setup: func(fs *flag.FlagSet) cli.RunFunc {
		settings := settingFlags(fs)
		dry := fs.Bool("dry-run", false, "say what would change, and do nothing")
		return func(ctx context.Context, c *cli.Call) error {
			if err := settings.arguments("topics set", c.Args[1:]); err != nil {
				return err
			}
			if len(settings.list) == 0 {
				return cli.Usagef("topics set: no setting to change; give NAME=VALUE")
			}
			return withClient(ctx, c, func(cl *client.Client) error { return alterTopic(ctx, c, cl, settings.list, *dry) })
		}
	},
}

// arguments reads settings that are given as NAME=VALUE without a flag.
func (v *settingsValue) arguments(verb string, args []string) error {
	for _, arg := range args {
		if err := v.Set(arg); err != nil {
			return cli.Usagef("%s: %w", verb, err)
		}
	}
	return nil
}

func alterTopic(ctx context.Context, c *cli.Call, cl *client.Client, settings protocol.TopicSettings, dry bool) error {
	before, err := cl.DescribeTopic(ctx, c.Args[0])
	if err != nil {
		return err
	}
	if dry {
		if err := checkAlter(c.Args[0], before.Settings, settings); err != nil {
			return err
		}
		return printChanges(c, changesOf(before.Settings, settings))
	}
	after, err := cl.AlterTopic(ctx, c.Args[0], settings)
	if err != nil {
		return err
	}
	var now protocol.TopicSettings
	for _, s := range settings {
		if v, ok := after.Settings.Get(s.ID); ok {
			s.Value = v
		}
		now = append(now, s)
	}
	return printChanges(c, changesOf(before.Settings, now))
}

// tryCreate makes the checks of a creation: the errors are those of the real one.
func tryCreate(ctx context.Context, c *cli.Call, cl *client.Client, settings protocol.TopicSettings, ifMissing bool) error {
	name := c.Args[0]
	info, err := cl.DescribeTopic(ctx, name)
	switch {
	case errors.Is(err, protocol.UnknownTopic):
		return printChanges(c, changesOf(nil, settings))
	case err != nil:
		return err
	case !ifMissing:
		return &protocol.Error{Code: protocol.Exists, Detail: "topic " + name + ": topic exists"}
	}
	for _, s := range settings {
		if v, ok := info.Settings.Get(s.ID); ok && v != s.Value {
			spec := s.ID.Spec()
			return fmt.Errorf("%w: %s has %s = %s, asked for %s", client.ErrTopicDiffers, name, spec.Name, settingText(spec, v), settingText(spec, s.Value))
		}
	}
	return printTopic(c, info)
}

// checkAlter makes the checks of a change that the broker would make.
func checkAlter(name string, have, asked protocol.TopicSettings) error {
	if err := protocol.ValidClientTopic(name); err != nil {
		return err
	}
	was, _ := have.Get(protocol.SettingPartitions)
	if n, ok := asked.Get(protocol.SettingPartitions); ok && n < was {
		return &protocol.Error{Code: protocol.BadRequest, Detail: fmt.Sprintf("topic %s: partitions can be raised, not lowered: %d to %d", name, was, n),
			Hint: "delete the topic and create it again to have fewer"}
	}
	return asked.Check()
}

// change is a setting before and after.
type change struct {
	spec          *protocol.SettingSpec
	before, after string // before is empty where there was nothing
}

func changesOf(before, after protocol.TopicSettings) []change {
	var list []change
	for _, s := range after {
		spec := s.ID.Spec()
		was := ""
		if v, ok := before.Get(s.ID); ok {
			was = settingText(spec, v)
		}
		list = append(list, change{spec, was, settingText(spec, s.Value)})
	}
	return list
}

func printChanges(c *cli.Call, list []change) error {
	if len(list) == 0 {
		return c.Object(map[string]bool{"ok": true}, func(w io.Writer) { fmt.Fprintln(w, "ok: the broker's defaults") })
	}
	out := c.Rows("setting", "before", "after")
	for _, ch := range list {
		out.Add(ch.spec.Name, ch.before, ch.after)
	}
	return out.Flush()
}
