package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace-mq/millrace/protocol"
)

// Kind is the type of a key's value.
type Kind uint8

// The kinds, each with the form of its text.
const (
	KindString   Kind = iota // any text without control characters
	KindInt                  // 10, 1_000_000
	KindSize                 // 4096, 64KiB, 1GB
	KindDuration             // 250ms, 30s, 7d, 0
	KindLevel                // none, written, durable, quorum
	KindAddress              // host:port, :port, [::1]:port
	KindChoice               // one of Key.Choices
	KindTopics               // on, off, or topic patterns with commas between
)

var kindNames = [...]string{"text", "number", "size", "duration", "level", "address", "choice", "topics"}

// String names the kind as the documents do.
func (k Kind) String() string { return kindNames[k] }

// Key is one row of the settings table.
type Key struct {
	Name       string   // as in the file: section.name
	Flag       string   // short flag name without dashes; empty = only --Name
	Kind       Kind     // type of the value
	Default    string   // as it would stand in a file
	Min, Max   int64    // bounds of numbers, bytes or nanoseconds, both included
	Zero       string   // what 0 means; empty = 0 is checked against Min as any value
	Unit       string   // what a number counts
	Choices    []string // the values of KindChoice; words besides an address
	Reloadable bool     // a running broker may take a new value
	Reserved   bool     // checked and without effect: what it sets is not in this release
	Doc        string   // one or two sentences

	field func(*Config) any // pointer to the typed value
}

// Env returns the name of the key's environment variable.
func (k *Key) Env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(k.Name, ".", "_"))
}

// Bounds returns what values the key takes besides those that its kind says:
// "1 to 256 syncs", "exit, readonly", or empty.
func (k *Key) Bounds() string {
	switch {
	case k.Kind == KindChoice:
		return strings.Join(k.Choices, ", ")
	case k.Kind == KindLevel:
		return strings.Join(levelNames(), ", ")
	case k.Max == 0:
		return ""
	}
	show := func(n int64) string { return fmt.Sprint(n) }
	unit := ""
	switch k.Kind {
	case KindSize:
		show = FormatSize
	case KindDuration:
		show = formatNanoseconds
	default:
		unit = " " + k.Unit
	}
	text := show(k.Min) + " to " + show(k.Max) + unit
	if k.Zero != "" {
		text += "; 0 = " + k.Zero
	}
	return text
}

const (
	kib  = int64(1) << 10
	mib  = int64(1) << 20
	gib  = int64(1) << 30
	tib  = int64(1) << 40
	year = 365 * day
	day  = 24 * time.Hour
)

// Keys returns the settings table in the order of the documents. The caller owns the slice.
func Keys() []Key { return slices.Clone(keys) }

// Lookup returns the row of a key.
func Lookup(name string) (Key, bool) {
	if k := lookup(name); k != nil {
		return *k, true
	}
	return Key{}, false
}

func lookup(name string) *Key {
	for i := range keys {
		if keys[i].Name == name {
			return &keys[i]
		}
	}
	return nil
}

// keys is the settings table. Defaults pass the same checks as any other value.
var keys = []Key{
	{Name: "storage.data_dir", Flag: "data-dir", Kind: KindString, Default: "./data",
		Doc:   "Directory of the logs. Made when it does not exist; one broker at a time may hold it.",
		field: func(c *Config) any { return &c.Storage.DataDir }},
	{Name: "storage.write_behind", Kind: KindSize, Default: "8MiB", Min: 64 * kib, Max: gib, Unit: "bytes",
		Doc:   "Start writing dirty pages of a segment to the disk after so many bytes, so that a later sync finds little left to do.",
		field: func(c *Config) any { return &c.Storage.WriteBehind }},
	{Name: "storage.write_behind_interval", Kind: KindDuration, Default: "25ms", Min: int64(time.Millisecond), Max: int64(time.Minute),
		Doc:   "Start writing dirty pages at least this often while a segment is written to.",
		field: func(c *Config) any { return &c.Storage.WriteBehindInterval }},
	{Name: "storage.parallel_syncs", Kind: KindInt, Default: "8", Min: 1, Max: 256, Unit: "syncs",
		Doc:   "Syncs that may run at the same time, over all partitions.",
		field: func(c *Config) any { return &c.Storage.ParallelSyncs }},

	{Name: "listen.client", Flag: "listen", Kind: KindAddress, Default: "127.0.0.1:7654",
		Doc:   "Address for clients. Port 0 takes a free one.",
		field: func(c *Config) any { return &c.Listen.Client }},
	{Name: "listen.http", Flag: "http", Kind: KindAddress, Default: "127.0.0.1:7655", Choices: []string{"off"},
		Reserved: true,
		Doc:      "Not in this release: there is no HTTP listener. The key is checked and has no effect. Later the address for health, metrics and diagnosis over HTTP, or off.",
		field:    func(c *Config) any { return &c.Listen.HTTP }},

	{Name: "durability", Flag: "durability", Kind: KindLevel, Default: "durable", Reloadable: true,
		Doc:   "What an acknowledgement means at least, for topics made from now on: none, written (handed to the kernel), durable (on the disk) or quorum (on the disk of a majority; alone the same as durable).",
		field: func(c *Config) any { return &c.Durability }},
	{Name: "auto_create", Flag: "auto-create", Kind: KindTopics, Default: "on", Reloadable: true,
		Doc:   "Whether the first use of a topic creates it: on, off, or patterns such as logs.*,events with * ? and [a-z].",
		field: func(c *Config) any { return &c.AutoCreate }},
	{Name: "on_storage_error", Flag: "on-storage-error", Kind: KindChoice, Default: "exit", Choices: []string{"exit", "readonly"},
		Doc:   "When a partition stops because a sync failed, or a failed write could not be taken back: exit and let recovery decide what is on the disk, or go on serving reads of it only. A write that failed and left no trace is answered STORAGE_FAILED and stops nothing.",
		field: func(c *Config) any { return &c.OnStorageError }},
	{Name: "legacy", Kind: KindChoice, Default: "auto", Choices: []string{"auto", "on", "off"},
		Doc:   "The HermitMQ v1 protocol on the client port: auto tells it from the native one by a connection's first byte and is off where clients must authenticate; on allows it always; off never.",
		field: func(c *Config) any { return &c.Legacy }},

	{Name: "topic.partitions", Kind: KindInt, Default: "1", Min: 1, Max: protocol.MaxPartitions, Unit: "partitions", Reloadable: true,
		Doc:   "Partitions of a topic that does not say how many.",
		field: func(c *Config) any { return &c.Topic.Partitions }},
	{Name: "topic.retention", Kind: KindDuration, Default: "7d", Min: int64(time.Second), Max: int64(100 * year), Zero: "keep for ever", Reloadable: true,
		Doc:   "Remove segments whose newest message is older than this.",
		field: func(c *Config) any { return &c.Topic.Retention }},
	{Name: "topic.retention_bytes", Kind: KindSize, Default: "0", Min: 64 * kib, Max: 1024 * tib, Zero: "no limit", Unit: "bytes", Reloadable: true,
		Doc:   "Remove the oldest segments of a partition while it is larger than this.",
		field: func(c *Config) any { return &c.Topic.RetentionBytes }},
	{Name: "topic.segment_bytes", Kind: KindSize, Default: "1GiB", Min: 64 * kib, Max: protocol.MaxSegmentBytes, Unit: "bytes", Reloadable: true,
		Doc:   "Size at which a partition starts a new segment file.",
		field: func(c *Config) any { return &c.Topic.SegmentBytes }},
	{Name: "topic.segment_age", Kind: KindDuration, Default: "7d", Min: int64(time.Second), Max: int64(100 * year), Zero: "never by age", Reloadable: true,
		Doc:   "Age at which a partition starts a new segment file, so that retention can remove the old one.",
		field: func(c *Config) any { return &c.Topic.SegmentAge }},
	{Name: "topic.max_message_bytes", Kind: KindSize, Default: "1MiB", Min: kib, Max: protocol.MaxMessageBytes, Unit: "bytes", Reloadable: true,
		Doc:   "Largest message that a topic takes; a batch of smaller ones has the same bound.",
		field: func(c *Config) any { return &c.Topic.MaxMessageBytes }},

	{Name: "limits.connections", Kind: KindInt, Default: "10000", Min: 1, Max: 1_000_000, Unit: "connections", Reloadable: true,
		Doc:   "Client connections at the same time. One more is answered with an error and closed.",
		field: func(c *Config) any { return &c.Limits.Connections }},
	{Name: "limits.inflight_bytes", Kind: KindSize, Default: "256MiB", Min: mib, Max: tib, Unit: "bytes", Reloadable: true,
		Doc:   "Bytes read from all clients and not yet appended; an eighth of it is for what is read from files to be delivered. At the limit the broker stops reading until there is room.",
		field: func(c *Config) any { return &c.Limits.InflightBytes }},
	{Name: "limits.conn_inflight_bytes", Kind: KindSize, Default: "8MiB", Min: 64 * kib, Max: tib, Unit: "bytes", Reloadable: true,
		Doc:   "The same for one connection; raised to one frame where messages are larger.",
		field: func(c *Config) any { return &c.Limits.ConnInflightBytes }},
	{Name: "limits.topics", Kind: KindInt, Default: "10000", Min: 1, Max: 1_000_000, Unit: "topics", Reloadable: true,
		Doc:   "Topics of the broker.",
		field: func(c *Config) any { return &c.Limits.Topics }},
	{Name: "limits.partitions", Kind: KindInt, Default: "100000", Min: 1, Max: 1_000_000, Unit: "partitions", Reloadable: true,
		Doc:   "Partitions of all topics.",
		field: func(c *Config) any { return &c.Limits.Partitions }},
	{Name: "limits.subscriptions", Kind: KindInt, Default: "1000", Min: 1, Max: 100_000, Unit: "subscriptions", Reloadable: true,
		Doc:   "Subscriptions of one connection.",
		field: func(c *Config) any { return &c.Limits.Subscriptions }},
	{Name: "limits.handles", Kind: KindInt, Default: "10000", Min: 1, Max: 1_000_000, Unit: "handles", Reloadable: true,
		Doc:   "Open partition handles of one connection.",
		field: func(c *Config) any { return &c.Limits.Handles }},

	{Name: "log.level", Kind: KindChoice, Default: "info", Choices: []string{"debug", "info", "warn", "error"}, Reloadable: true,
		Doc:   "Least level of the lines that are logged. Payloads are never logged.",
		field: func(c *Config) any { return &c.Log.Level }},
	{Name: "log.format", Kind: KindChoice, Default: "auto", Choices: []string{"auto", "text", "json"},
		Doc:   "Form of the log: auto is text on a terminal and JSON elsewhere.",
		field: func(c *Config) any { return &c.Log.Format }},
	{Name: "drain.timeout", Kind: KindDuration, Default: "10s", Min: int64(time.Millisecond), Max: int64(time.Hour), Zero: "do not wait", Reloadable: true,
		Doc:   "How long a stopping broker lets clients finish. What was accepted is synced in any case.",
		field: func(c *Config) any { return &c.DrainTimeout }},
}
