package broker

import (
	"fmt"
	"path"
	"strconv"
	"sync/atomic"

	"github.com/millrace-mq/millrace/protocol"
	"github.com/millrace-mq/millrace/storage"
)

// Topic is a name for a set of partitions and what they are set to.
//
// Ownership: safe for concurrent use. Settings and partitions change only through the broker.
type Topic struct {
	// immutable
	broker *Broker
	name   string
	id     uint64
	dir    string // below the data directory

	// atomic, published under the broker's admin lock
	settings atomic.Pointer[Settings]
	parts    atomic.Pointer[[]*Partition]

	made int // guarded by the broker's admin lock: partitions that TOPIC says were made
}

// Name is the topic's name.
func (t *Topic) Name() string { return t.name }

// ID is unique for ever: a topic that was deleted and created again has another.
func (t *Topic) ID() uint64 { return t.id }

// Settings returns what the topic is set to now. The result is not changed by anybody.
func (t *Topic) Settings() *Settings { return t.settings.Load() }

// Partitions returns the partitions by number. The slice is not changed by anybody.
func (t *Topic) Partitions() []*Partition { return *t.parts.Load() }

// Partition returns the partition of that number.
//
// Errors: ErrUnknownPartition; ErrUnavailable when its log could not be opened.
func (t *Topic) Partition(number uint32) (*Partition, error) {
	parts := t.Partitions()
	if uint64(number) >= uint64(len(parts)) {
		return nil, &PlaceError{Topic: t.name, Partition: int(number),
			Err: fmt.Errorf("%w: the topic has %d", ErrUnknownPartition, len(parts))}
	}
	p := parts[number]
	_, err := p.ready()
	return p, err
}

// Info describes the topic and its partitions.
func (t *Topic) Info() protocol.TopicInfo {
	info := protocol.TopicInfo{Name: t.name, ID: t.id, Settings: t.Settings().List()}
	for _, p := range t.Partitions() {
		info.Partitions = append(info.Partitions, p.Info())
	}
	return info
}

// Summary is the topic as a line of a list.
func (t *Topic) Summary() protocol.TopicSummary {
	s := protocol.TopicSummary{Name: t.name, ID: t.id}
	for _, p := range t.Partitions() {
		i := p.Info()
		s.Partitions++
		s.Bytes += i.Bytes
		s.Records += i.End - min(i.Start, i.End)
	}
	return s
}

// newPartitions makes partitions [from, to) without opening them.
func (t *Topic) newPartitions(from, to int) []*Partition {
	list := make([]*Partition, 0, to-from)
	for n := from; n < to; n++ {
		list = append(list, &Partition{topic: t, number: uint32(n), dir: path.Join(t.dir, strconv.Itoa(n))})
	}
	return list
}

// save writes the TOPIC file in dir: s, and that the first made partitions were made.
//
// Durability: the file survives a power cut when it returns nil.
func (t *Topic) save(dir string, s *Settings, made int) error {
	saved := savedTopic{name: t.name, id: t.id, made: made, settings: *s}
	body, err := saved.encode()
	if err != nil {
		return err
	}
	if err := storage.WriteSealed(t.broker.store.FS(), path.Join(dir, topicFile), topicKind, topicVersion, body); err != nil {
		return err
	}
	t.made = made
	return nil
}

// noteMade records that all partitions were made where TOPIC does not say so though their logs
// are open: a creation was interrupted, or an earlier version did not count.
func (t *Topic) noteMade() {
	s := t.Settings()
	if t.made == s.Partitions {
		return
	}
	for _, p := range t.Partitions()[t.made:] {
		if p.log == nil {
			return
		}
	}
	if err := t.save(t.dir, s, s.Partitions); err != nil {
		t.broker.log.Warn("settings of the topic cannot be written", "topic", t.name, "dir", t.dir, "error", err)
	}
}
