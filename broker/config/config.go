// Package config reads the settings of a broker from a file, the environment
// and flags, and checks all of them before anything is opened.
//
// The package is pure: it is given the text of the file, the environment as a
// slice and the flags as a map, and returns a Config or every problem found.
// One table (Keys) drives the parser, the documents, the example file and the
// flags of the command line.
package config

import (
	"time"

	"github.com/millrace-mq/millrace/protocol"
)

// Config is a complete, checked set of settings. It does not change after Load.
// Sizes are in bytes; the meaning of zero is that of the key's row in Keys.
type Config struct {
	Storage        Storage
	Listen         Listen
	Durability     protocol.Level // floor of topics made from now on; never LevelTopic
	AutoCreate     TopicPatterns  // topics that a first use may create
	OnStorageError string         // "exit" or "readonly"
	Legacy         string         // "auto", "on" or "off"
	Topic          Topic
	Limits         Limits
	Log            Log
	DrainTimeout   time.Duration

	origins map[string]Origin // by key; every key has one
}

// Storage holds the keys storage.*.
type Storage struct {
	DataDir             string
	WriteBehind         int64
	WriteBehindInterval time.Duration
	ParallelSyncs       int
}

// Listen holds the keys listen.*: addresses as host:port, or "off" for HTTP.
type Listen struct {
	Client string
	HTTP   string
}

// Topic holds the keys topic.*: the settings of topics that do not name their own.
type Topic struct {
	Partitions      int
	Retention       time.Duration
	RetentionBytes  int64
	SegmentBytes    int64
	SegmentAge      time.Duration
	MaxMessageBytes int64
}

// Limits holds the keys limits.*.
type Limits struct {
	Connections       int
	InflightBytes     int64
	ConnInflightBytes int64
	Topics            int
	Partitions        int
	Subscriptions     int
	Handles           int
}

// Log holds the keys log.*.
type Log struct {
	Level  string // "debug", "info", "warn" or "error"
	Format string // "auto", "text" or "json"
}

// Origin says where the value of key came from; for a key that does not exist
// it is the zero Origin.
func (c *Config) Origin(key string) Origin { return c.origins[key] }

// Text returns the value of key in the form that a configuration file takes.
// For a key that does not exist it is empty.
func (c *Config) Text(key string) string {
	k := lookup(key)
	if k == nil {
		return ""
	}
	return format(k.field(c))
}
