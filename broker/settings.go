package broker

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/millrace-mq/millrace/protocol"
	"github.com/millrace-mq/millrace/storage"
)

// Settings is what a topic is set to, complete.
type Settings struct {
	Partitions      int
	Retention       time.Duration // 0 = keep for ever
	RetentionBytes  int64         // of a partition; 0 = no limit
	SegmentBytes    int64
	SegmentAge      time.Duration  // 0 = never
	Floor           protocol.Level // never LevelTopic
	MaxMessageBytes uint32
}

// settingsOf completes list with defaults, then with the table's own.
//
// Errors: those of TopicSettings.Check.
func settingsOf(list, defaults protocol.TopicSettings) (Settings, error) {
	if err := list.Check(); err != nil {
		return Settings{}, err
	}
	value := func(id protocol.SettingID) uint64 {
		if v, ok := list.Get(id); ok {
			return v
		}
		if v, ok := defaults.Get(id); ok {
			return v
		}
		return id.Spec().Default
	}
	return Settings{
		Partitions:      int(value(protocol.SettingPartitions)),
		Retention:       millis(value(protocol.SettingRetention)),
		RetentionBytes:  int64(value(protocol.SettingRetentionBytes)),
		SegmentBytes:    int64(value(protocol.SettingSegmentBytes)),
		SegmentAge:      millis(value(protocol.SettingSegmentAge)),
		Floor:           protocol.Level(value(protocol.SettingDurability)),
		MaxMessageBytes: uint32(value(protocol.SettingMaxMessageBytes)),
	}, nil
}

// millis turns a setting into a duration; what a duration cannot hold is its maximum, 292 years.
func millis(v uint64) time.Duration {
	const most = uint64(1<<63-1) / uint64(time.Millisecond)
	return time.Duration(min(v, most)) * time.Millisecond
}

// List is the settings as they travel, in the order of protocol.Settings.
func (s *Settings) List() protocol.TopicSettings {
	return protocol.TopicSettings{
		{ID: protocol.SettingPartitions, Value: uint64(s.Partitions)},
		{ID: protocol.SettingRetention, Value: uint64(s.Retention / time.Millisecond)},
		{ID: protocol.SettingRetentionBytes, Value: uint64(s.RetentionBytes)},
		{ID: protocol.SettingSegmentBytes, Value: uint64(s.SegmentBytes)},
		{ID: protocol.SettingSegmentAge, Value: uint64(s.SegmentAge / time.Millisecond)},
		{ID: protocol.SettingDurability, Value: uint64(s.Floor)},
		{ID: protocol.SettingMaxMessageBytes, Value: uint64(s.MaxMessageBytes)},
	}
}

// Durable tells whether the floor is durable or more: records are then hidden until they are.
func (s *Settings) Durable() bool { return s.Floor >= protocol.LevelDurable }

// logOptions is what the topic's logs are opened with; the callbacks are the partition's.
func (s *Settings) logOptions() storage.LogOptions {
	return storage.LogOptions{SegmentBytes: s.SegmentBytes, SegmentAge: s.SegmentAge, Durable: s.Durable()}
}

// Effective is the level at which a run that asks for one is acknowledged: the topic's floor
// or more.
func (s *Settings) Effective(asked protocol.Level) protocol.Level {
	if asked == protocol.LevelTopic {
		return s.Floor
	}
	return max(asked, s.Floor)
}

// The TOPIC file of a topic's directory is a sealed file of this kind. Its body is JSON:
//
//	{"name":"orders","id":"00c5…","made":4,"settings":{"partitions":4,"durability":2,…}}
//
// made counts the partitions, from the first, whose logs are known to have been made: a directory
// of theirs that is gone was lost, and is not made anew. It is absent until the first logs were
// made, and in files of versions that did not count.
const (
	topicFile    = "TOPIC"
	topicKind    = "topic"
	topicVersion = 1
)

type topicRecord struct {
	Name     string            `json:"name"`
	ID       string            `json:"id"` // 16 hex digits
	Made     int               `json:"made,omitempty"`
	Settings map[string]uint64 `json:"settings"`
}

// savedTopic is what a TOPIC file says.
type savedTopic struct {
	name     string
	id       uint64
	made     int
	settings Settings
}

func (t *savedTopic) encode() ([]byte, error) {
	r := topicRecord{Name: t.name, ID: formatID(t.id), Made: t.made, Settings: make(map[string]uint64)}
	for _, v := range t.settings.List() {
		r.Settings[v.ID.Spec().Name] = v.Value
	}
	return json.MarshalIndent(&r, "", " ")
}

// decodeTopic reads a TOPIC body. A setting that this version does not know is an error: it
// would be lost when the file is written again.
func decodeTopic(body []byte) (t savedTopic, err error) {
	var r topicRecord
	if err := json.Unmarshal(body, &r); err != nil {
		return t, err
	}
	if t.id, err = parseID(r.ID); err != nil {
		return t, err
	}
	if err := protocol.ValidTopic(r.Name); err != nil {
		return t, err
	}
	var list protocol.TopicSettings
	for key, v := range r.Settings {
		spec := protocol.SettingByName(key)
		if spec == nil {
			return t, fmt.Errorf("unknown setting %q", key)
		}
		list = append(list, protocol.Setting{ID: spec.ID, Value: v})
	}
	if t.settings, err = settingsOf(list, nil); err != nil {
		return t, err
	}
	if r.Made < 0 || r.Made > t.settings.Partitions {
		return t, fmt.Errorf("%d of %d partitions are said to have been made", r.Made, t.settings.Partitions)
	}
	t.name, t.made = r.Name, r.Made
	return t, nil
}

func formatID(id uint64) string { return fmt.Sprintf("%016x", id) }

func parseID(s string) (uint64, error) {
	if len(s) != 16 {
		return 0, fmt.Errorf("topic id %q has not 16 digits", s)
	}
	id, err := strconv.ParseUint(s, 16, 64)
	if err == nil && (id == 0 || formatID(id) != s) {
		err = fmt.Errorf("topic id %q", s)
	}
	return id, err
}
