package main

import (
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/millrace-mq/millrace/broker/config"
	"github.com/millrace-mq/millrace/cmd/millrace/cli"
	"github.com/millrace-mq/millrace/protocol"
)

// parseSetting reads the value of a topic setting with its unit: 7d, 1GiB,
// durable, 12.
func parseSetting(spec *protocol.SettingSpec, text string) (protocol.Setting, error) {
	var value uint64
	var err error
	switch spec.Unit {
	case "level":
		level, ok := protocol.ParseLevel(text)
		if !ok || level == protocol.LevelTopic {
			return protocol.Setting{}, fmt.Errorf("%s = %q: not one of %s%s", spec.Name, text, strings.Join(levelNames, ", "), cli.Suggestion(text, levelNames, ""))
		}
		value = uint64(level)
	case "ms":
		var d time.Duration
		d, err = config.ParseDuration(text)
		if err == nil && d%time.Millisecond != 0 {
			err = fmt.Errorf("whole milliseconds only")
		}
		value = uint64(d / time.Millisecond)
	case "bytes":
		var n int64
		n, err = config.ParseSize(text)
		value = uint64(n)
	default:
		var n int64
		n, err = config.ParseCount(text)
		value = uint64(n)
	}
	if err != nil {
		return protocol.Setting{}, fmt.Errorf("%s = %q: %w", spec.Name, text, err)
	}
	if value < spec.Min || value > spec.Max {
		return protocol.Setting{}, fmt.Errorf("%s = %q: out of range: %s", spec.Name, text, settingBounds(spec))
	}
	return protocol.Setting{ID: spec.ID, Value: value}, nil
}

// levelNames are the levels that a topic can have.
var levelNames = []string{protocol.LevelNone.String(), protocol.LevelWritten.String(), protocol.LevelDurable.String(), protocol.LevelQuorum.String()}

// mostMillis is the longest time that a duration can tell, 292 years.
const mostMillis = uint64(1<<63-1) / uint64(time.Millisecond)

// settingText writes a value as parseSetting reads it.
func settingText(spec *protocol.SettingSpec, value uint64) string {
	switch spec.Unit {
	case "level":
		return protocol.Level(value).String()
	case "ms":
		return config.FormatDuration(time.Duration(min(value, mostMillis)) * time.Millisecond)
	case "bytes":
		return config.FormatSize(int64(min(value, 1<<62)))
	}
	return fmt.Sprint(value)
}

// settingBounds says which values a setting takes.
func settingBounds(spec *protocol.SettingSpec) string {
	text := settingText(spec, spec.Min) + " to " + settingText(spec, spec.Max)
	if spec.Max >= 1<<53 { // a bound of the format, not of use
		text = settingText(spec, spec.Min) + " or more"
	}
	if spec.Zero != "" && spec.Unit != "level" {
		text += "; 0 = " + spec.Zero
	}
	return text
}

// settingsValue collects topic settings from flags and arguments.
type settingsValue struct {
	list protocol.TopicSettings
}

// put adds one; a setting that was given before is an error.
func (v *settingsValue) put(spec *protocol.SettingSpec, text string) error {
	s, err := parseSetting(spec, text)
	if err != nil {
		return err
	}
	if _, twice := v.list.Get(s.ID); twice {
		return fmt.Errorf("%s is given twice", spec.Name)
	}
	v.list = append(v.list, s)
	return nil
}

// Set reads NAME=VALUE.
func (v *settingsValue) Set(text string) error {
	name, value, ok := strings.Cut(text, "=")
	if !ok {
		return fmt.Errorf("%q is not NAME=VALUE", text)
	}
	name = strings.ReplaceAll(strings.TrimSpace(name), "-", "_")
	spec := protocol.SettingByName(name)
	if spec == nil {
		return fmt.Errorf("unknown setting %q%s", name, cli.Suggestion(name, settingNames(), ""))
	}
	return v.put(spec, strings.TrimSpace(value))
}

// String is empty: there is no default.
func (v *settingsValue) String() string { return "" }

// oneSetting is the flag of one setting.
type oneSetting struct {
	all  *settingsValue
	spec *protocol.SettingSpec
}

// Set reads the value.
func (o *oneSetting) Set(text string) error { return o.all.put(o.spec, text) }

// String is empty: there is no default.
func (o *oneSetting) String() string { return "" }

func settingNames() []string {
	var names []string
	for i := range protocol.Settings {
		names = append(names, protocol.Settings[i].Name)
	}
	return names
}

// settingFlags registers --set NAME=VALUE and a flag for every topic setting.
func settingFlags(fs *flag.FlagSet) *settingsValue {
	all := &settingsValue{}
	fs.Var(all, "set", "`NAME=VALUE` of a setting; may be given for each")
	for i := range protocol.Settings {
		spec := &protocol.Settings[i]
		usage := fmt.Sprintf("%s, `%s` (%s; a broker's default: %s)", spec.Text, settingArgument(spec), settingBounds(spec), settingText(spec, spec.Default))
		if spec.Unit == "level" {
			usage = fmt.Sprintf("%s, `%s` (%s; a broker's default: %s)", spec.Text, settingArgument(spec), strings.Join(levelNames, ", "), settingText(spec, spec.Default))
		}
		name := strings.ReplaceAll(spec.Name, "_", "-")
		fs.Var(&oneSetting{all, spec}, name, usage)
	}
	cli.Alias(fs, "p", "partitions")
	return all
}

// settingArgument is what help calls a value.
func settingArgument(spec *protocol.SettingSpec) string {
	switch spec.Unit {
	case "level":
		return "LEVEL"
	case "ms":
		return "DURATION"
	case "bytes":
		return "SIZE"
	}
	return "N"
}
