package protocol

import (
	"testing"
)

// at is the time of all vectors: 2026-11-30T10:00:00Z in ns since 1970.
const at = 1_796_032_800_000_000_000

func goldenVectors(testing.TB) map[string][]vector {
	return map[string][]vector{
		"session.txt": sessionVectors(),
		"topics.txt":  topicVectors(),
		"stream.txt":  streamVectors(),
		"produce.txt": produceVectors(),
		"data.txt":    dataVectors(),
		"legacy.txt":  legacyVectors(),
	}
}

func sessionVectors() []vector {
	return []vector{
		{"hello", "the first request of a connection",
			request{Opcode: OpHello, Correlation: 1, Message: &Hello{MinVersion: 1, MaxVersion: 1, MaxFrame: 1 << 20,
				Features: FeatureProducer | FeatureExpire, Client: "example", ClientVersion: "0.1.0"}}},
		{"hello-reply", "version 1 is chosen; none of the features asked is served",
			response{Opcode: OpHello, Correlation: 1, Message: &HelloReply{Version: 1, MaxFrame: MaxDataFrame, MaxControl: MaxControlFrame, MaxRun: MaxRun,
				PingMillis: 10_000, NodeID: 0x0123456789ABCDEF, Clock: at, Server: "millrace", ServerVersion: "0.1.0"}}},
		{"hello-refused", "no version in common; the payload is an Error",
			response{Opcode: OpHello, Status: Unsupported, Correlation: 1, Error: &Error{Code: Unsupported, Detail: "versions 2 to 3", Actual: 2, Limit: 1,
				Setting: "version", Hint: "use a client that speaks version 1"}}},
		{"open", "partition 3 of orders, which must exist",
			request{Opcode: OpOpen, Correlation: 2, Key: "orders", Message: &Open{Partition: 3, Flags: OpenNoCreate}}},
		{"open-reply", "handle 1 on a partition with offsets 1,000 to 4,999",
			response{Opcode: OpOpen, Correlation: 2, Message: &OpenReply{Handle: 1, Partitions: 4, Floor: LevelDurable, MaxMessage: DefaultMessageBytes,
				Epoch: 2, Start: 1000, End: 5000}}},
		{"open-refused", "the topic does not exist and is not created",
			response{Opcode: OpOpen, Status: UnknownTopic, Correlation: 2, Error: &Error{Code: UnknownTopic, Detail: "topic orders", Hint: "create it"}}},
		{"close", "handle 1 is not used any more", request{Opcode: OpClose, Correlation: 3, Handle: 1}},
		{"close-reply", "success without payload", response{Opcode: OpClose, Correlation: 3}},
		{"throttled", "a refusal that asks for a pause of 250 ms",
			response{Opcode: OpOpen, Status: Throttled, ThrottleMillis: 250, Correlation: 4, Error: &Error{Code: Throttled, Detail: "bytes in flight",
				Actual: 9 << 20, Limit: MaxConnInflight, Setting: "limits.conn_inflight_bytes"}}},
		{"error-every-field", "a refusal whose payload sets every field",
			response{Opcode: OpSubscribe, Status: LostSuffix, Correlation: 5, Error: &Error{Code: LostSuffix, Detail: "orders/3: offset 6000", Actual: 6000, Limit: 5000,
				Setting: "end", From: 1000, To: 5000, Epoch: 2, Hint: "continue at 5000 — or at „end“"}}},
		{"stats", "asks for the broker's numbers", request{Opcode: OpStats, Correlation: 6}},
		{"stats-reply", "three numbers; items is repeated in the header",
			response{Opcode: OpStats, Correlation: 6, Items: 3, Message: &Stats{[]Stat{{"pid", 4242}, {"cpu_ns", 1_500_000_000}, {"frames_in", 1 << 40}}}}},
		{"ping", "either side asks whether the other is there", ping{MagicPing, at, 7}},
		{"pong", "repeats clock and id", ping{MagicPong, at, 7}},
		{"go-away", "the broker stops in five seconds; runs up to sequence 41 will be answered",
			goAway{ShuttingDown, 5000, 41, &Error{Code: ShuttingDown, Detail: "the broker is stopping"}}},
		{"go-away-bare", "the same without a text", goAway{Status: ShuttingDown, DrainMillis: 5000, Last: 41}},
		{"skip-peer", "a class from 8 to F that the receiver does not know is hopped over", skipped{MagicPeer, "k", []byte("\x00\x01\x02")}},
		{"skip-unknown", "so is one that nobody has defined yet", skipped{0xF2, "", []byte("later")}},
	}
}

func topicVectors() []vector {
	settings := TopicSettings{{SettingPartitions, 2}, {SettingRetention, 3_600_000}, {SettingDurability, uint64(LevelWritten)}}
	info := &TopicInfo{Name: "orders", ID: 77, Settings: settings, Partitions: []PartitionInfo{
		{State: PartitionOK, Epoch: 1, Start: 10, End: 500, Durable: 490, Bytes: 65_536, Segments: 2, Newest: at},
		{State: PartitionReadOnly, Epoch: 4, Segments: 1}}}
	return []vector{
		{"topic-create", "two partitions, one hour of retention, acknowledged when written; no error when it exists",
			request{Opcode: OpTopicCreate, Flags: CreateIfMissing, TimeoutMillis: 1000, Correlation: 1, Key: "orders", Message: &settings}},
		{"topic-create-defaults", "no settings at all", request{Opcode: OpTopicCreate, Correlation: 2, Key: "orders", Message: new(TopicSettings)}},
		{"topic-create-reply", "the topic with its partitions", response{Opcode: OpTopicCreate, Correlation: 1, Message: info}},
		{"topic-alter", "retention for ever", request{Opcode: OpTopicAlter, Correlation: 3, Key: "orders", Message: &TopicSettings{{SettingRetention, 0}}}},
		{"topic-alter-reply", "the topic as it is now", response{Opcode: OpTopicAlter, Correlation: 3, Message: info}},
		{"topic-delete", "by the name in the key", request{Opcode: OpTopicDelete, Correlation: 4, Key: "orders"}},
		{"topic-delete-reply", "success without payload", response{Opcode: OpTopicDelete, Correlation: 4}},
		{"topic-list", "at most 2 names behind billing", request{Opcode: OpTopicList, Correlation: 5, Message: &TopicList{After: "billing", Limit: 2}}},
		{"topic-list-reply", "a page, and more behind it", response{Opcode: OpTopicList, Correlation: 5, Items: 2, Message: &TopicListReply{More: true, Items: []TopicSummary{
			{"events", 78, 1, 1 << 33, 12_345_678}, {"orders", 77, 2, 65_536, 490}}}}},
		{"topic-describe", "by the name in the key", request{Opcode: OpTopicDescribe, Correlation: 6, Key: "orders"}},
		{"topic-describe-reply", "a topic without settings of its own", response{Opcode: OpTopicDescribe, Correlation: 6, Message: &TopicInfo{Name: "a.b_c-D", ID: 1,
			Partitions: []PartitionInfo{{State: PartitionFailed, Start: 1, End: 1, Durable: 1}}}}},
	}
}

func streamVectors() []vector {
	stored := data{Timestamp: at, Offset: 4998, RecordCount: 2, Records: []dataRecord{{Key: []byte("k"), Value: []byte("one")}, {RelOffset: 1, Value: []byte("two")}},
		Index: 901, Term: 1, SettledLag: 2}
	control := data{Timestamp: at, Offset: 5000, Prelude: Prelude{Opcode: ControlOffset}, Positions: []GroupOffset{{"billing", 4999, 0}}, Index: 902, Term: 1, SettledLag: 1}
	return []vector{
		{"offsets", "where the start, the end, offset 7, the last 100 and a time lie",
			request{Opcode: OpOffsets, Correlation: 1, Key: "orders", Message: &Offsets{[]OffsetsItem{{0, Start}, {0, End}, {1, At(7)}, {1, Last(100)},
				{2, Position{PositionTime, at}}}}}},
		{"offsets-reply", "answers in the order of the questions; the topic has no partition 2",
			response{Opcode: OpOffsets, Correlation: 1, Items: 2, Message: &OffsetsReply{[]PartitionOffsets{
				{Partition: 1, Offset: 1000, Start: 1000, End: 5000, Durable: 4990, Epoch: 2}, {Partition: 2, Status: UnknownPartition}}}}},
		{"subscribe", "from the last hundred on, for ever, 1 MiB of credit",
			request{Opcode: OpSubscribe, Correlation: 2, Handle: 1, Message: &Subscribe{Subscription: 9, From: Last(100), Credit: 1 << 20}}},
		{"subscribe-one-shot", "one run from offset 1,000, not beyond the end of now, after at most half a second",
			request{Opcode: OpSubscribe, TimeoutMillis: 500, Correlation: 3, Handle: 1, Message: &Subscribe{Subscription: 10, Flags: SubscribeOneShot, From: At(1000),
				HasTo: true, To: End, Credit: 65_536}}},
		{"subscribe-reply", "what the positions came to; no stop",
			response{Opcode: OpSubscribe, Correlation: 2, Message: &SubscribeReply{Start: 4900, Stop: NoStop, End: 5000, Epoch: 2}}},
		{"subscribe-ended", "a second response with a status ends a subscription",
			response{Opcode: OpSubscribe, Status: UnknownTopic, Correlation: 2, Error: &Error{Code: UnknownTopic, Detail: "topic orders was removed"}}},
		{"unsubscribe", "after its answer no DELIVER of it follows", request{Opcode: OpUnsubscribe, Correlation: 4, Message: &Unsubscribe{9}}},
		{"unsubscribe-reply", "success without payload", response{Opcode: OpUnsubscribe, Correlation: 4}},
		{"credit", "64 KiB more for subscription 9", credit{9, 65_536}},
		{"deliver", "a run of two stored frames, a control record among them; the consumer has caught up",
			deliver{Subscription: 9, Flags: DeliverEnd, Epoch: 2, Watermark: 5000, RunBytes: runBytes(stored, control), Frames: []data{stored, control}}},
		{"deliver-done", "nothing is left before the stop: an empty run that ends the subscription",
			deliver{Subscription: 10, Flags: DeliverEnd | DeliverDone, Epoch: 2, Watermark: 5000}},
	}
}

// runBytes is the size of a run.
func runBytes(frames ...data) uint32 { return uint32(len(appendFrames(nil, frames))) }

func produceVectors() []vector {
	one := data{RecordCount: 1, Records: []dataRecord{{Value: []byte("hello")}}}
	two := data{RecordCount: 2, Records: []dataRecord{{Key: []byte("a"), Value: []byte("first")}, {RelOffset: 1, Key: []byte("b"), Value: []byte("second")}}}
	return []vector{
		{"produce", "a run of one frame with one record, acknowledged when durable", produce{LevelDurable, 1, 41, runBytes(one), []data{one}}},
		{"produce-two-frames", "a run is appended whole or not at all; the topic's floor decides when it is acknowledged",
			produce{LevelTopic, 1, 42, runBytes(one, two), []data{one, two}}},
		{"produce-no-ack", "level none: no ACK follows", produce{LevelNone, 1, 43, runBytes(one), []data{one}}},
		{"ack", "the run got offset 5,000 and is durable", ack{Level: LevelDurable, Handle: 1, Offset: 5000, Records: 1}},
		{"ack-refused", "nothing of run 42 was appended; offset is its sequence",
			ack{Status: NoSpace, Handle: 1, Offset: 42, Error: &Error{Code: NoSpace, Detail: "orders/3: no space left on device", Hint: "free space; retry"}}},
		{"ack-refused-bare", "a refusal may come without payload", ack{Status: UnknownHandle, Handle: 7, Offset: 44}},
	}
}

func dataVectors() []vector {
	every := Prelude{Flags: flagsKnown, ProducerID: 0x1122334455667788, ProducerEpoch: 3, FirstSequence: 100, DeliverAt: at, ExpireAt: at + 60_000_000_000, Lane: 7}
	value := []dataRecord{{Value: []byte("hello")}}
	return []vector{
		{"data-plain", "one record without key, as a client sends it", data{RecordCount: 1, Records: value}},
		{"data-stamped", "the same frame after the broker gave it a place: timestamp, offset, tail and check differ, nothing else",
			data{Timestamp: at, Offset: 5000, RecordCount: 1, Records: value, Index: 903, Term: 1, StampFlags: StampSegmentStart, SettledLag: 3}},
		{"data-lag-unknown", "settled further back than the field can tell",
			data{Timestamp: at, Offset: 5001, RecordCount: 1, Records: value, Index: 1 << 33, Term: 2, SettledLag: LagUnknown}},
		{"data-keys", "keys: one, an empty one, none", data{RecordCount: 3, Records: []dataRecord{{Key: []byte("key"), Value: []byte("a")},
			{RelOffset: 1, Key: []byte{}, Value: []byte("b")}, {RelOffset: 2, Value: []byte("c")}}}},
		{"data-tombstone", "no value, and for contrast an empty one", data{RecordCount: 2, Records: []dataRecord{{Key: []byte("key")}, {RelOffset: 1, Key: []byte("key"), Value: []byte{}}}}},
		{"data-headers", "headers keep their order; a name may come twice and a value be empty", data{RecordCount: 1, Records: []dataRecord{{Key: []byte("k"), Value: []byte("v"),
			Headers: []dataHeader{{"trace", []byte("\x01\x02")}, {"to", []byte("a")}, {"to", []byte{}}}}}}},
		{"data-every-flag", "every field of the prelude", data{RecordCount: 1, Prelude: every, Records: value}},
		{"data-producer", "an idempotent producer's batch", data{RecordCount: 1, Prelude: Prelude{Flags: FlagProducer, ProducerID: 9, ProducerEpoch: 1, FirstSequence: 5}, Records: value}},
		{"data-lane", "the fields of a prelude close ranks: lane alone", data{RecordCount: 1, Prelude: Prelude{Flags: FlagLane, Lane: 1}, Records: value}},
		{"data-codec", "codec 5: the body is compressed by the client and not looked into", data{RecordCount: 100, Prelude: Prelude{Codec: 5}, Body: []byte("\x28\xb5\x2f\xfd…")}},
		{"data-opaque", "a message of the legacy protocol: one body under a frame key, three offsets", data{RecordCount: 3, Key: []byte("key"), Prelude: Prelude{Layout: LayoutOpaque},
			Body: []byte("three records in a form that only the client knows")}},
		{"data-opaque-stamped", "the same in a log", data{Timestamp: at, Offset: 5000, RecordCount: 1, Prelude: Prelude{Layout: LayoutOpaque}, Body: []byte("x"), Index: 5, Term: 1}},
		{"data-sparse", "after compaction records 0 and 7 of 10 are left", data{Timestamp: at, Offset: 4000, RecordCount: 10, Prelude: Prelude{Layout: LayoutSparse},
			Records: []dataRecord{{RelOffset: 0, Key: []byte("a"), Value: []byte("old")}, {RelOffset: 7, Key: []byte("b"), Value: []byte("new")}}, Index: 88, Term: 1}},
		{"control-noop", "begins a term; takes a place in the log and no offset", data{Timestamp: at, Offset: 5000, Prelude: Prelude{Opcode: ControlNoop}, Index: 904, Term: 2}},
		{"control-offset", "positions that two groups committed", data{Timestamp: at, Offset: 5000, Prelude: Prelude{Opcode: ControlOffset},
			Positions: []GroupOffset{{"billing", 4999, 0}, {"mail ü", 1 << 40, 7}}, Index: 905, Term: 2, SettledLag: 1}},
	}
}

func legacyVectors() []vector {
	return []vector{
		{"legacy-hello-produce", "a producer of partition 0 of orders; frames follow", legacyHello{Kind: LegacyProduce, Topic: "orders"}},
		{"legacy-hello-consume", "a consumer: frames are pushed from the group's position", legacyHello{Kind: LegacyConsume, Group: "billing", Topic: "orders", Partition: 3}},
		{"legacy-hello-commit", "the group wants to read offset 5,000 next; answered by the byte 01",
			legacyHello{Kind: LegacyCommit, Group: "billing", Topic: "orders", Partition: 3, Offset: 5000}},
		{"legacy-frame", "what a producer sends", legacyFrame{Key: "key", Payload: []byte("payload"), RecordCount: 1}},
		{"legacy-frame-count-0", "0 records count as one", legacyFrame{Payload: []byte("payload")}},
		{"legacy-frame-delivered", "what a consumer gets: no prelude and no tail", legacyFrame{Timestamp: at, Offset: 5000, Key: "key", Payload: []byte("payload"), RecordCount: 1}},
		{"legacy-ack", "appended at offset 5,000", legacyAck{LegacyOK, 5000}},
		{"legacy-refused", "not appended", legacyAck{LegacyRefused, 0}},
	}
}
