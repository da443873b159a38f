package protocol

import (
	"fmt"
	"strconv"
)

// The limits of version 1. Each is a row of Limits, with its unit and reason.
const (
	MaxFrameUnauthenticated = 4 << 10                 // bytes
	MaxControlFrame         = 64 << 10                // bytes
	MaxMessageBytes         = 50 << 20                // bytes; upper end of max_message_bytes
	DefaultMessageBytes     = 1 << 20                 // bytes
	MaxDataFrame            = MaxMessageBytes + 1<<17 // bytes; message, key, headers, prelude, tail
	MaxKey                  = 64<<10 - 2              // bytes; 65535 announces "no key"
	MaxHeaders              = 64<<10 - 1              // bytes of all headers of a record
	MaxHeaderName           = 255                     // bytes of one header's name
	MaxRecords              = 1 << 20                 // records of one frame
	MaxRunRecords           = 1<<32 - 1               // records of one run
	MaxRun                  = 4 << 20                 // bytes; a single larger frame may be a run alone
	MaxDeliver              = 1 << 20                 // bytes; a single larger frame is delivered alone
	MaxName                 = 200                     // bytes of a topic name
	MaxGroup                = 255                     // bytes of a group name
	MaxPartitions           = 1024                    // partitions of one topic
	MaxConnInflight         = 8 << 20                 // bytes
	MaxInflight             = 256 << 20               // bytes
	MaxHandles              = 10_000                  // open handles of one connection
	MaxSubscriptions        = 1_000                   // subscriptions of one connection
	MaxListItems            = 1_000                   // items of one answer
	MaxSegmentBytes         = 4<<30 - 64<<20          // bytes; positions in an index are 32 bits, and a frame must fit behind
)

// LimitSpec is one row of the limit table.
type LimitSpec struct {
	Name   string // as refusals name it
	Value  uint64
	Unit   string
	Reason string
}

// Limits lists every bound of the protocol. Where a setting can lower or raise one, the reason
// names the setting.
var Limits = []LimitSpec{
	{"frame_unauthenticated", MaxFrameUnauthenticated, "bytes", "before HELLO (and AUTH where it is on) a stranger decides nothing about memory"},
	{"control_frame", MaxControlFrame, "bytes", "requests and responses are small; bulk travels as DATA"},
	{"data_frame", MaxDataFrame, "bytes", "hard cap; the topic setting max_message_bytes is the working limit"},
	{"max_message_bytes", DefaultMessageBytes, "bytes", "default of the topic setting; at most 50 MiB"},
	{"key", MaxKey, "bytes", "u16 length; 65535 announces a record without key"},
	{"headers", MaxHeaders, "bytes", "u16 length of all headers of a record"},
	{"header_name", MaxHeaderName, "bytes", "u8 length of the name"},
	{"records_per_frame", MaxRecords, "records", "bounds how far one frame moves the offset"},
	{"records_per_run", MaxRunRecords, "records", "an acknowledgement counts them in a u32; only frames with a codec can reach it"},
	{"run", MaxRun, "bytes", "a run is appended whole or not at all, so it is buffered whole; one larger frame may stand alone"},
	{"deliver", MaxDeliver, "bytes", "credit, deadline and fairness are looked at again after so much; one larger frame is delivered alone"},
	{"name", MaxName, "bytes", "names become directory names"},
	{"group", MaxGroup, "bytes", "u8 length in the legacy protocol"},
	{"partitions_per_topic", MaxPartitions, "partitions", "each costs files; use more topics beyond"},
	{"limits.conn_inflight_bytes", MaxConnInflight, "bytes", "read and not yet appended, per connection; raised to one frame where messages are larger"},
	{"limits.inflight_bytes", MaxInflight, "bytes", "read and not yet appended, all connections"},
	{"limits.handles", MaxHandles, "handles", "per connection"},
	{"limits.subscriptions", MaxSubscriptions, "subscriptions", "per connection"},
	{"list_items", MaxListItems, "items", "longer lists are read in pages"},
}

// ValidTopic checks a topic name: 1 to 200 of A–Z a–z 0–9 . _ -, and neither "." nor "..".
// A leading underscore is for the broker's own topics; ValidClientTopic refuses it too.
func ValidTopic(name string) error {
	if name == "" {
		return &Error{Code: BadName, Detail: "topic name is empty"}
	}
	if len(name) > MaxName {
		return &Error{Code: BadName, Detail: fmt.Sprintf("topic name has %d bytes", len(name)),
			Actual: uint64(len(name)), Limit: MaxName, Setting: "name"}
	}
	if name == "." || name == ".." {
		return &Error{Code: BadName, Detail: "topic name " + strconv.Quote(name) + " is a directory"}
	}
	for i := range len(name) {
		c := name[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-' {
			continue
		}
		return &Error{Code: BadName, Detail: fmt.Sprintf("topic name %q has byte 0x%02x at %d; allowed are A-Z a-z 0-9 . _ -", name, c, i)}
	}
	return nil
}

// ValidClientTopic is ValidTopic for names that come from a client: a leading underscore,
// kept for the broker's own topics, is refused.
func ValidClientTopic(name string) error {
	if err := ValidTopic(name); err != nil {
		return err
	}
	if name[0] == '_' {
		return &Error{Code: BadName, Detail: fmt.Sprintf("topic name %q starts with an underscore, which is for the broker's own topics", name)}
	}
	return nil
}

// ValidGroup checks a group name: 1 to 255 bytes, no control characters. It never becomes part
// of a path.
func ValidGroup(name string) error {
	if name == "" {
		return &Error{Code: BadName, Detail: "group name is empty"}
	}
	if len(name) > MaxGroup {
		return &Error{Code: BadName, Detail: fmt.Sprintf("group name has %d bytes", len(name)),
			Actual: uint64(len(name)), Limit: MaxGroup, Setting: "group"}
	}
	for i := range len(name) {
		if name[i] < 0x20 || name[i] == 0x7F {
			return &Error{Code: BadName, Detail: fmt.Sprintf("group name %q has a control character at %d", name, i)}
		}
	}
	return nil
}

func itoa(v uint64) string { return strconv.FormatUint(v, 10) }
