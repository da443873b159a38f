package protocol

import "fmt"

// SettingID names a topic setting on the wire.
type SettingID uint16

// The topic settings.
const (
	SettingPartitions      SettingID = 1
	SettingRetention       SettingID = 2
	SettingRetentionBytes  SettingID = 3
	SettingSegmentBytes    SettingID = 4
	SettingSegmentAge      SettingID = 5
	SettingDurability      SettingID = 6
	SettingMaxMessageBytes SettingID = 7
)

// SettingSpec is one row of the topic setting table. All values are u64.
type SettingSpec struct {
	ID       SettingID
	Name     string
	Unit     string // count, ms, bytes or level
	Default  uint64
	Min, Max uint64
	Zero     string // what 0 means where Min is 0
	Text     string
}

// Settings is the only table of topic settings. A broker's configuration may give other
// defaults.
var Settings = []SettingSpec{
	{SettingPartitions, "partitions", "count", 1, 1, MaxPartitions, "", "partitions; can be raised later, never lowered"},
	{SettingRetention, "retention", "ms", 7 * 24 * 3600 * 1000, 0, 1 << 53, "keep for ever", "sealed segments whose newest record is older are removed"},
	{SettingRetentionBytes, "retention_bytes", "bytes", 0, 0, 1 << 60, "no limit", "oldest sealed segments of a partition beyond so much are removed"},
	{SettingSegmentBytes, "segment_bytes", "bytes", 1 << 30, 64 << 10, MaxSegmentBytes, "", "a segment is sealed at this size"},
	{SettingSegmentAge, "segment_age", "ms", 7 * 24 * 3600 * 1000, 0, 1 << 53, "never", "a segment is sealed when its first record is so old"},
	{SettingDurability, "durability", "level", uint64(LevelDurable), uint64(LevelNone), uint64(LevelQuorum), "none", "least level that an acknowledgement grants; durable and quorum also hide records until they are durable"},
	{SettingMaxMessageBytes, "max_message_bytes", "bytes", DefaultMessageBytes, 1 << 10, MaxMessageBytes, "", "key + headers + value of a message"},
}

// Spec returns the setting's row, nil for an unknown id.
func (id SettingID) Spec() *SettingSpec {
	for i := range Settings {
		if Settings[i].ID == id {
			return &Settings[i]
		}
	}
	return nil
}

// SettingByName returns the row with that name, nil if there is none.
func SettingByName(name string) *SettingSpec {
	for i := range Settings {
		if Settings[i].Name == name {
			return &Settings[i]
		}
	}
	return nil
}

// Check refuses a value outside the setting's range.
func (s *SettingSpec) Check(v uint64) error {
	if v < s.Min {
		return &Error{Code: BadRequest, Detail: fmt.Sprintf("%s = %d is less than %d %s", s.Name, v, s.Min, s.Unit), Setting: s.Name}
	}
	if v > s.Max {
		return &Error{Code: BadRequest, Detail: s.Name + " in " + s.Unit, Actual: v, Limit: s.Max, Setting: s.Name}
	}
	return nil
}

// Setting is one value of a topic.
type Setting struct {
	ID    SettingID
	Value uint64
}

// TopicSettings is a list of settings; what is not named keeps its value or default.
//
//	count u32 | count × ( id u16 | value u64 )
type TopicSettings []Setting

// Get returns the value of id, and whether it is set.
func (m TopicSettings) Get(id SettingID) (uint64, bool) {
	for _, s := range m {
		if s.ID == id {
			return s.Value, true
		}
	}
	return 0, false
}

// Check refuses unknown ids, values out of range and a setting named twice.
func (m TopicSettings) Check() error {
	for i, s := range m {
		spec := s.ID.Spec()
		if spec == nil {
			return &Error{Code: BadRequest, Detail: fmt.Sprintf("unknown topic setting %d", s.ID)}
		}
		if err := spec.Check(s.Value); err != nil {
			return err
		}
		if _, twice := m[:i].Get(s.ID); twice {
			return &Error{Code: BadRequest, Detail: "topic setting " + spec.Name + " is given twice"}
		}
	}
	return nil
}

// AppendTo appends the message to dst.
func (m TopicSettings) AppendTo(dst []byte) []byte {
	dst = appendU32(dst, uint32(len(m)))
	for _, s := range m {
		dst = appendU64(appendU16(dst, uint16(s.ID)), s.Value)
	}
	return dst
}

// Decode reads the message from src.
func (m *TopicSettings) Decode(src []byte) error {
	c := cursor{b: src}
	*m = c.settings()
	return c.done("topic settings")
}

func (c *cursor) settings() (m TopicSettings) {
	for range c.count(256, 10) {
		m = append(m, Setting{SettingID(c.u16()), c.u64()})
	}
	return m
}

// Flags of the TOPIC_CREATE request header.
const (
	CreateIfMissing uint16 = 1 << iota // an existing topic is no error and is not changed
)

// PartitionState says what a partition serves.
type PartitionState uint8

// The states of a partition.
const (
	PartitionOK       PartitionState = 0 // reads and writes
	PartitionReadOnly PartitionState = 1 // reads; something is missing or damaged
	PartitionFailed   PartitionState = 2 // the disk failed under it: reads up to the durable end
)

// String names the state.
func (s PartitionState) String() string {
	switch s {
	case PartitionOK:
		return "ok"
	case PartitionReadOnly:
		return "read-only"
	case PartitionFailed:
		return "failed"
	}
	return "state(" + itoa(uint64(s)) + ")"
}

// TopicInfo describes a topic and its partitions.
//
//	name str | id u64 | settings | count u32 | count × ( state u8 | epoch u32 | start u64 | end u64 |
//	durable u64 | bytes u64 | segments u32 | newest u64 )
type TopicInfo struct {
	Name       string
	ID         uint64 // unique for ever: a topic that was removed and created again has another
	Settings   TopicSettings
	Partitions []PartitionInfo // by number
}

// PartitionInfo describes one partition.
type PartitionInfo struct {
	State    PartitionState
	Epoch    uint32
	Start    uint64
	End      uint64 // visible end
	Durable  uint64 // durable end
	Bytes    uint64 // of log kept
	Segments uint32
	Newest   uint64 // append time of the newest frame, ns since 1970; 0 = empty
}

// AppendTo appends the message to dst.
func (m *TopicInfo) AppendTo(dst []byte) []byte {
	dst = appendU64(appendString(dst, m.Name), m.ID)
	dst = m.Settings.AppendTo(dst)
	dst = appendU32(dst, uint32(len(m.Partitions)))
	for i := range m.Partitions {
		p := &m.Partitions[i]
		dst = appendU32(append(dst, uint8(p.State)), p.Epoch)
		dst = appendU64(appendU64(dst, p.Start), p.End)
		dst = appendU64(appendU64(dst, p.Durable), p.Bytes)
		dst = appendU64(appendU32(dst, p.Segments), p.Newest)
	}
	return dst
}

// Decode reads the message from src.
func (m *TopicInfo) Decode(src []byte) error {
	c := cursor{b: src}
	*m = TopicInfo{Name: c.str(), ID: c.u64(), Settings: c.settings()}
	for range c.count(MaxPartitions, 49) {
		m.Partitions = append(m.Partitions, PartitionInfo{State: PartitionState(c.u8()), Epoch: c.u32(), Start: c.u64(),
			End: c.u64(), Durable: c.u64(), Bytes: c.u64(), Segments: c.u32(), Newest: c.u64()})
	}
	return c.done("topic info")
}

// TopicList asks for a page of topic names in ascending order.
//
//	after str | limit u32
type TopicList struct {
	After string // names behind this one; empty = from the first
	Limit uint32 // 0 = MaxListItems
}

// AppendTo appends the message to dst.
func (m *TopicList) AppendTo(dst []byte) []byte {
	return appendU32(appendString(dst, m.After), m.Limit)
}

// Decode reads the message from src.
func (m *TopicList) Decode(src []byte) error {
	c := cursor{b: src}
	*m = TopicList{After: c.str(), Limit: c.u32()}
	return c.done("TOPIC_LIST")
}

// TopicListReply is one page; More tells that another one follows.
//
//	more u8 | count u32 | count × ( name str | id u64 | partitions u32 | bytes u64 | records u64 )
type TopicListReply struct {
	More  bool
	Items []TopicSummary
}

// TopicSummary is one topic of a list.
type TopicSummary struct {
	Name       string
	ID         uint64
	Partitions uint32
	Bytes      uint64 // of log kept
	Records    uint64 // offsets kept
}

// AppendTo appends the message to dst.
func (m *TopicListReply) AppendTo(dst []byte) []byte {
	dst = appendU32(append(dst, b2u(m.More)), uint32(len(m.Items)))
	for i := range m.Items {
		it := &m.Items[i]
		dst = appendU64(appendString(dst, it.Name), it.ID)
		dst = appendU64(appendU32(dst, it.Partitions), it.Bytes)
		dst = appendU64(dst, it.Records)
	}
	return dst
}

// Decode reads the message from src.
func (m *TopicListReply) Decode(src []byte) error {
	c := cursor{b: src}
	*m = TopicListReply{More: c.u8() != 0}
	for range c.count(MaxListItems, 30) {
		m.Items = append(m.Items, TopicSummary{c.str(), c.u64(), c.u32(), c.u64(), c.u64()})
	}
	return c.done("TOPIC_LIST reply")
}
