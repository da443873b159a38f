package protocol

// Opcode is what a REQUEST asks for.
type Opcode uint16

// The opcodes. Families start at multiples of 16.
const (
	OpHello Opcode = 0x01
	OpAuth  Opcode = 0x02
	OpOpen  Opcode = 0x03
	OpClose Opcode = 0x04

	OpTopicCreate   Opcode = 0x10
	OpTopicAlter    Opcode = 0x11
	OpTopicDelete   Opcode = 0x12
	OpTopicList     Opcode = 0x13
	OpTopicDescribe Opcode = 0x14
	OpTopicTrim     Opcode = 0x15

	OpOffsets   Opcode = 0x20
	OpCommit    Opcode = 0x21
	OpCommitted Opcode = 0x22
	OpSeek      Opcode = 0x23

	OpSubscribe   Opcode = 0x30
	OpUnsubscribe Opcode = 0x31

	OpGroupJoin      Opcode = 0x40
	OpGroupHeartbeat Opcode = 0x41
	OpGroupReleased  Opcode = 0x42
	OpGroupLeave     Opcode = 0x43
	OpGroupList      Opcode = 0x44
	OpGroupDescribe  Opcode = 0x45

	OpQueueSubscribe     Opcode = 0x50
	OpSettle             Opcode = 0x51
	OpPeek               Opcode = 0x52
	OpRedrive            Opcode = 0x53
	OpSubscriptionCreate Opcode = 0x54
	OpSubscriptionDelete Opcode = 0x55

	OpScheduleCancel  Opcode = 0x60
	OpScheduleList    Opcode = 0x61
	OpScheduleFireNow Opcode = 0x62
	OpScheduleMove    Opcode = 0x63

	OpTrace        Opcode = 0x70
	OpProducerInit Opcode = 0x78

	OpStats    Opcode = 0x80
	OpConns    Opcode = 0x81
	OpKill     Opcode = 0x82
	OpVerify   Opcode = 0x83
	OpJobs     Opcode = 0x84
	OpDrain    Opcode = 0x85
	OpConfig   Opcode = 0x86
	OpLogLevel Opcode = 0x87
)

// Right is what a client must hold to use an opcode.
type Right uint8

// The rights. RightNone is for what a stranger may say.
const (
	RightNone     Right = iota // before authentication
	RightSession               // authenticated
	RightRead                  // of the topic
	RightWrite                 // of the topic
	RightCreate                // of the topic
	RightAlter                 // of the topic
	RightDelete                // of the topic
	RightDescribe              // of the topic, group or cluster
	RightAdmin                 // of the broker
)

// String names the right.
func (r Right) String() string {
	names := [...]string{"none", "session", "read", "write", "create", "alter", "delete", "describe", "admin"}
	if int(r) < len(names) {
		return names[r]
	}
	return "right(" + itoa(uint64(r)) + ")"
}

// OpcodeSpec is one row of the opcode table.
type OpcodeSpec struct {
	Opcode Opcode
	Name   string
	Right  Right
	Since  uint8  // protocol version that serves it; 0 = number reserved, answered UNSUPPORTED
	Args   string // what key and payload hold
	Result string // what the response's payload holds
}

// Opcodes is the only table of opcodes. Dispatch, rights, docs and tests are made from it.
var Opcodes = []OpcodeSpec{
	{OpHello, "HELLO", RightNone, 1, "Hello", "HelloReply"},
	{OpAuth, "AUTH", RightNone, 0, "", ""},
	{OpOpen, "OPEN", RightSession, 1, "key topic, Open", "OpenReply"},
	{OpClose, "CLOSE", RightSession, 1, "handle", ""},
	{OpTopicCreate, "TOPIC_CREATE", RightCreate, 1, "key topic, Settings", "TopicInfo"},
	{OpTopicAlter, "TOPIC_ALTER", RightAlter, 1, "key topic, Settings", "TopicInfo"},
	{OpTopicDelete, "TOPIC_DELETE", RightDelete, 1, "key topic", ""},
	{OpTopicList, "TOPIC_LIST", RightDescribe, 1, "TopicList", "TopicListReply"},
	{OpTopicDescribe, "TOPIC_DESCRIBE", RightDescribe, 1, "key topic", "TopicInfo"},
	{OpTopicTrim, "TOPIC_TRIM", RightDelete, 0, "", ""},
	{OpOffsets, "OFFSETS", RightDescribe, 1, "key topic, Offsets", "OffsetsReply"},
	{OpCommit, "COMMIT", RightRead, 0, "", ""},
	{OpCommitted, "COMMITTED", RightRead, 0, "", ""},
	{OpSeek, "SEEK", RightRead, 0, "", ""},
	{OpSubscribe, "SUBSCRIBE", RightRead, 1, "handle, Subscribe", "SubscribeReply, then DELIVER runs; a second response with a status ends it"},
	{OpUnsubscribe, "UNSUBSCRIBE", RightRead, 1, "Unsubscribe", ""},
	{OpGroupJoin, "GROUP_JOIN", RightRead, 0, "", ""},
	{OpGroupHeartbeat, "GROUP_HEARTBEAT", RightRead, 0, "", ""},
	{OpGroupReleased, "GROUP_RELEASED", RightRead, 0, "", ""},
	{OpGroupLeave, "GROUP_LEAVE", RightRead, 0, "", ""},
	{OpGroupList, "GROUP_LIST", RightDescribe, 0, "", ""},
	{OpGroupDescribe, "GROUP_DESCRIBE", RightDescribe, 0, "", ""},
	{OpQueueSubscribe, "QUEUE_SUBSCRIBE", RightRead, 0, "", ""},
	{OpSettle, "SETTLE", RightRead, 0, "", ""},
	{OpPeek, "PEEK", RightRead, 0, "", ""},
	{OpRedrive, "REDRIVE", RightWrite, 0, "", ""},
	{OpSubscriptionCreate, "SUBSCRIPTION_CREATE", RightRead, 0, "", ""},
	{OpSubscriptionDelete, "SUBSCRIPTION_DELETE", RightRead, 0, "", ""},
	{OpScheduleCancel, "SCHEDULE_CANCEL", RightWrite, 0, "", ""},
	{OpScheduleList, "SCHEDULE_LIST", RightDescribe, 0, "", ""},
	{OpScheduleFireNow, "SCHEDULE_FIRE_NOW", RightWrite, 0, "", ""},
	{OpScheduleMove, "SCHEDULE_MOVE", RightWrite, 0, "", ""},
	{OpTrace, "TRACE", RightRead, 0, "", ""},
	{OpProducerInit, "PRODUCER_INIT", RightWrite, 0, "", ""},
	{OpStats, "STATS", RightDescribe, 1, "", "Stats"},
	{OpConns, "CONNS", RightAdmin, 0, "", ""},
	{OpKill, "KILL", RightAdmin, 0, "", ""},
	{OpVerify, "VERIFY", RightAdmin, 0, "", ""},
	{OpJobs, "JOBS", RightAdmin, 0, "", ""},
	{OpDrain, "DRAIN", RightAdmin, 0, "", ""},
	{OpConfig, "CONFIG", RightAdmin, 0, "", ""},
	{OpLogLevel, "LOG_LEVEL", RightAdmin, 0, "", ""},
}

var opcodes = func() map[Opcode]*OpcodeSpec {
	m := make(map[Opcode]*OpcodeSpec, len(Opcodes))
	for i := range Opcodes {
		m[Opcodes[i].Opcode] = &Opcodes[i]
	}
	return m
}()

// Spec returns the opcode's row, nil for a number that no row has.
func (o Opcode) Spec() *OpcodeSpec { return opcodes[o] }

// String names the opcode.
func (o Opcode) String() string {
	if s := opcodes[o]; s != nil {
		return s.Name
	}
	return "OPCODE_" + itoa(uint64(o))
}
