package protocol

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// ValueSpec names one value of a set, or one bit of a set of flags.
type ValueSpec struct {
	Set   string
	Bit   bool // Value is one bit of flags
	Value uint64
	Name  string
	Text  string
}

// Values is the table of what the numbers of small sets mean. Opcodes, codes, control records
// and settings have tables of their own.
var Values = []ValueSpec{
	{"level", false, uint64(LevelNone), "none", "never acknowledged"},
	{"level", false, uint64(LevelWritten), "written", "handed to the kernel: survives the broker's death"},
	{"level", false, uint64(LevelDurable), "durable", "synced: survives a power cut"},
	{"level", false, uint64(LevelQuorum), "quorum", "durable on a majority; alone the same as durable"},
	{"level", false, uint64(LevelTopic), "topic", "asks for the topic's floor, whatever it is"},
	{"position kind", false, uint64(PositionStart), "start", "the first offset that is kept"},
	{"position kind", false, uint64(PositionEnd), "end", "behind the last visible offset"},
	{"position kind", false, uint64(PositionOffset), "offset", "value is an offset"},
	{"position kind", false, uint64(PositionLast), "last", "value offsets before the end, or the start if that is nearer"},
	{"position kind", false, uint64(PositionTime), "time", "first offset appended at or after value, ns since 1970; the end if none was"},
	{"partition state", false, uint64(PartitionOK), "ok", "reads and writes"},
	{"partition state", false, uint64(PartitionReadOnly), "read-only", "reads; something is missing or damaged"},
	{"partition state", false, uint64(PartitionFailed), "failed", "the disk failed under it: reads up to the durable end"},
	{"layout", false, uint64(LayoutPlain), "plain", "records with key, headers, value"},
	{"layout", false, uint64(LayoutOpaque), "opaque", "the body is the client's; the key is the frame's"},
	{"layout", false, uint64(LayoutSparse), "sparse", "plain after key compaction: each record carries its offset delta"},
	{"prelude flags", true, uint64(FlagProducer), "producer", "producerID, producerEpoch and firstSequence follow"},
	{"prelude flags", true, uint64(FlagDeliverAt), "deliverAt", "deliverAt follows"},
	{"prelude flags", true, uint64(FlagExpireAt), "expireAt", "expireAt follows"},
	{"prelude flags", true, uint64(FlagLane), "lane", "lane follows"},
	{"stamp flags", true, uint64(StampSegmentStart), "segmentStart", "the first frame of a segment"},
	{"deliver flags", true, uint64(DeliverEnd), "end", "the run ends at the high watermark: caught up"},
	{"deliver flags", true, uint64(DeliverDone), "done", "the subscription is over: its stop or its one shot is reached"},
	{"subscribe flags", true, uint64(SubscribeOneShot), "oneShot", "one DELIVER run, after at most the request's timeout, then over"},
	{"open flags", true, uint64(OpenNoCreate), "noCreate", "a topic that does not exist is an error, whatever the policy"},
	{"create flags", true, uint64(CreateIfMissing), "ifMissing", "an existing topic is no error and is not changed"},
	{"features", true, FeatureProducer, "producer", "idempotent producers"},
	{"features", true, FeatureDelay, "delay", "deliverAt"},
	{"features", true, FeatureExpire, "expire", "expireAt"},
	{"features", true, FeatureLanes, "lanes", "priority lanes"},
	{"features", true, FeatureQueues, "queues", "leases and settles"},
	{"features", true, FeatureGroups, "groups", "stream groups"},
	{"legacy kind", false, uint64(LegacyProduce), "produce", ""},
	{"legacy kind", false, uint64(LegacyConsume), "consume", ""},
	{"legacy kind", false, uint64(LegacyCommit), "commit", ""},
	{"legacy status", false, LegacyOK, "appended", ""},
	{"legacy status", false, LegacyRefused, "refused", ""},
	{"bool", false, 0, "false", ""},
	{"bool", false, 1, "true", ""},
}

// ValueText writes a number of a set for people: its name where it has one, and the number.
// Sets are those of Values and time, opcode, code, control, magic, setting, check, keyLen,
// valueLen, lag and stop; "" is a plain number.
func ValueText(set string, v uint64) string {
	switch set {
	case "":
		return itoa(v)
	case "time":
		return timeText(v)
	case "opcode":
		return fmt.Sprintf("%s (0x%02x)", Opcode(v), v)
	case "code":
		return fmt.Sprintf("%s (%d)", Code(v).Name(), v)
	case "control":
		return fmt.Sprintf("%s (%d)", ControlOpcode(v), v)
	case "magic":
		if s := Magic(v).Spec(); s != nil {
			return fmt.Sprintf("%s (0x%02x)", s.Name, v)
		}
		return fmt.Sprintf("unknown (0x%02x)", v)
	case "keyLen":
		return exceptText(v, noKey, "no key")
	case "valueLen":
		return exceptText(v, tombstone, "tombstone")
	case "lag":
		return exceptText(v, LagUnknown, "further back")
	case "stop":
		return exceptText(v, NoStop, "never")
	case "check":
		return fmt.Sprintf("%016x", v)
	case "setting":
		if s := SettingID(v).Spec(); s != nil {
			return fmt.Sprintf("%s (%d)", s.Name, v)
		}
		return fmt.Sprintf("unknown (%d)", v)
	case "layout":
		return fmt.Sprintf("%s, codec %d", nameIn(set, v&0x0F), v>>4)
	}
	for i := range Values {
		if Values[i].Set == set && Values[i].Bit {
			return bitsText(set, v)
		}
	}
	return nameIn(set, v)
}

// exceptText writes a number of which one value is special.
func exceptText(v, special uint64, name string) string {
	if v == special {
		return fmt.Sprintf("%s (%d)", name, v)
	}
	return itoa(v)
}

func nameIn(set string, v uint64) string {
	for i := range Values {
		if Values[i].Set == set && Values[i].Value == v {
			return fmt.Sprintf("%s (%d)", Values[i].Name, v)
		}
	}
	return fmt.Sprintf("unknown (%d)", v)
}

func bitsText(set string, v uint64) string {
	if v == 0 {
		return "none (0)"
	}
	var names []string
	rest := v
	for i := range Values {
		if s := &Values[i]; s.Set == set && v&s.Value != 0 {
			names = append(names, s.Name)
			rest &^= s.Value
		}
	}
	if rest != 0 {
		names = append(names, "unknown")
	}
	return fmt.Sprintf("%s (0x%x)", strings.Join(names, " + "), v)
}

func timeText(ns uint64) string {
	if ns == 0 || ns > math.MaxInt64 {
		return itoa(ns)
	}
	return itoa(ns) + " = " + time.Unix(0, int64(ns)).UTC().Format(time.RFC3339Nano)
}
