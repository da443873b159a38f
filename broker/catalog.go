package broker

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/millrace-mq/millrace/protocol"
	"github.com/millrace-mq/millrace/storage"
)

// Directories below the data directory:
//
//	topics/<name>.<id>        a topic; TOPIC is its sealed settings file, <number>/ its logs
//	topics/<name>.<id>.new    a creation that was interrupted: it was never visible
//	topics/<name>.<id>.gone   a deletion that was interrupted: it is not visible any more
const (
	topicsDir  = "topics"
	suffixNew  = ".new"
	suffixGone = ".gone"
)

// load reads the catalog and opens every partition.
func (b *Broker) load() error {
	disk := b.store.FS()
	if err := disk.MkdirAll(topicsDir); err != nil {
		return err
	}
	if err := disk.SyncDir("."); err != nil {
		return err
	}
	entries, err := disk.ReadDir(topicsDir)
	if err != nil {
		return err
	}
	var parts []*Partition
	for _, e := range entries {
		dir := path.Join(topicsDir, e.Name)
		switch {
		case !e.Dir:
			b.log.Warn("a file among the topics is left alone", "file", dir)
		case strings.HasSuffix(e.Name, suffixNew), strings.HasSuffix(e.Name, suffixGone):
			if err := disk.RemoveAll(dir); err != nil {
				b.log.Warn("what is left of an interrupted creation or deletion stays", "dir", dir, "error", err)
			}
		default:
			parts = append(parts, b.loadTopic(e.Name)...)
		}
	}
	b.counts.partitions.Store(int64(len(parts)))
	err = each(parts, func(p *Partition) error {
		if err := p.reopen(b.store, p.topic.Settings()); err != nil {
			p.opened = err
			b.log.Error("partition is not served", "topic", p.topic.name, "partition", p.number, "error", err)
		}
		return nil
	})
	for _, t := range b.Topics() {
		t.noteMade()
	}
	return err
}

// loadTopic reads one topic's settings and makes it visible. A directory that cannot be read
// stays as it is; its name is refused until somebody looks.
func (b *Broker) loadTopic(entry string) []*Partition {
	dir := path.Join(topicsDir, entry)
	name, id, ok := splitEntry(entry)
	if !ok {
		b.log.Warn("a directory among the topics is not one and left alone", "dir", dir)
		return nil
	}
	b.ids[id] = true
	refuse := func(err error) []*Partition {
		b.damaged[name] = atTopic(name, fmt.Errorf("%w: %s: %w", ErrDamagedTopic, dir, err))
		b.log.Error("topic is not served", "topic", name, "dir", dir, "error", err)
		return nil
	}
	body, _, err := storage.ReadSealed(b.store.FS(), path.Join(dir, topicFile), topicKind, topicVersion)
	if err != nil {
		return refuse(err)
	}
	saved, err := decodeTopic(body)
	if err != nil {
		return refuse(err)
	}
	if saved.name != name || saved.id != id {
		return refuse(fmt.Errorf("settings are those of topic %s, id %s", saved.name, formatID(saved.id)))
	}
	t := &Topic{broker: b, name: name, id: id, dir: dir, made: saved.made}
	parts := t.newPartitions(0, saved.settings.Partitions)
	t.settings.Store(&saved.settings)
	t.parts.Store(&parts)
	if _, twice := b.topics.LoadOrStore(name, t); twice {
		b.log.Error("a second directory of the same topic is left alone", "topic", name, "dir", dir)
		return nil
	}
	b.counts.topicCount.Add(1)
	return parts
}

// splitEntry reads <name>.<id>.
func splitEntry(entry string) (name string, id uint64, ok bool) {
	i := strings.LastIndexByte(entry, '.')
	if i < 0 {
		return "", 0, false
	}
	id, err := parseID(entry[i+1:])
	name = entry[:i]
	return name, id, err == nil && protocol.ValidTopic(name) == nil
}

// Topics returns all topics in the order of their names.
func (b *Broker) Topics() []*Topic {
	var list []*Topic
	b.topics.Range(func(_, v any) bool {
		list = append(list, v.(*Topic))
		return true
	})
	slices.SortFunc(list, func(x, y *Topic) int { return cmp.Compare(x.name, y.name) })
	return list
}

// Topic returns the topic of that name.
//
// Errors: protocol.BadName, ErrUnknownTopic, ErrDamagedTopic, ErrClosed.
func (b *Broker) Topic(name string) (*Topic, error) {
	if t, ok := b.topics.Load(name); ok {
		return t.(*Topic), nil
	}
	if err := protocol.ValidClientTopic(name); err != nil {
		return nil, err
	}
	b.admin.Lock()
	defer b.admin.Unlock()
	return b.find(name)
}

// find is Topic under admin.
func (b *Broker) find(name string) (*Topic, error) {
	if b.closed.Load() {
		return nil, atTopic(name, ErrClosed)
	}
	if t, ok := b.topics.Load(name); ok {
		return t.(*Topic), nil
	}
	if err := b.damaged[name]; err != nil {
		return nil, err
	}
	return nil, atTopic(name, ErrUnknownTopic)
}

// Obtain returns the topic of that name and creates it where policy allows.
//
// Errors: those of Topic and Create.
func (b *Broker) Obtain(name string) (*Topic, error) {
	t, err := b.Topic(name)
	if !errors.Is(err, ErrUnknownTopic) {
		return t, err
	}
	if !b.options.AutoCreate(name) {
		return nil, atTopic(name, fmt.Errorf("%w, and auto_create does not match it", ErrUnknownTopic))
	}
	t, err = b.Create(name, nil)
	if errors.Is(err, ErrTopicExists) { // somebody was faster
		return b.Topic(name)
	}
	return t, err
}

// Create creates a topic. What settings does not name gets the broker's defaults.
//
// Durability: the topic survives a power cut when it returns. Errors: protocol.BadName,
// BadRequest and Quota, ErrTopicExists, ErrDamagedTopic, ErrClosed, those of the disk; nothing
// is left behind then.
func (b *Broker) Create(name string, settings protocol.TopicSettings) (*Topic, error) {
	if err := protocol.ValidClientTopic(name); err != nil {
		return nil, err
	}
	s, err := settingsOf(settings, b.options.Topic)
	if err != nil {
		return nil, err
	}
	b.admin.Lock()
	defer b.admin.Unlock()
	if _, err := b.find(name); err == nil {
		return nil, atTopic(name, ErrTopicExists)
	} else if !errors.Is(err, ErrUnknownTopic) {
		return nil, err
	}
	if n := int(b.counts.topicCount.Load()); n >= b.options.Topics {
		return nil, &protocol.Error{Code: protocol.Quota, Detail: "topics", Actual: uint64(n) + 1, Limit: uint64(b.options.Topics), Setting: "limits.topics"}
	}
	if err := b.room(s.Partitions); err != nil {
		return nil, err
	}
	t := &Topic{broker: b, name: name, id: b.newID()}
	t.dir = path.Join(topicsDir, name+"."+formatID(t.id))
	t.settings.Store(&s)
	if err := b.makeDir(t, &s); err != nil {
		return nil, b.undo(t, err)
	}
	parts := t.newPartitions(0, s.Partitions)
	t.parts.Store(&parts)
	if err := b.openNew(parts, &s); err != nil {
		return nil, b.undo(t, err)
	}
	if err := t.save(t.dir, &s, s.Partitions); err != nil {
		return nil, b.undo(t, errors.Join(err, b.closeNew(parts)))
	}
	b.topics.Store(name, t)
	b.counts.topicCount.Add(1)
	b.counts.created.Add(1)
	b.log.Info("topic created", "topic", name, "id", formatID(t.id), "partitions", s.Partitions, "durability", s.Floor.String())
	return t, nil
}

// undo takes back a creation that failed with err. Where even that fails the name is refused:
// a second directory of the same name would hide the first.
func (b *Broker) undo(t *Topic, err error) error {
	if left := b.bury(t); left != nil {
		err = errors.Join(err, left)
		b.damaged[t.name] = atTopic(t.name, fmt.Errorf("%w: %s is left of a creation that failed: %w", ErrDamagedTopic, t.dir, left))
	}
	return atTopic(t.name, err)
}

// room refuses n more partitions than the limit leaves.
func (b *Broker) room(n int) error {
	if have := int(b.counts.partitions.Load()); have+n > b.options.Partitions {
		return &protocol.Error{Code: protocol.Quota, Detail: "partitions of all topics", Actual: uint64(have + n),
			Limit: uint64(b.options.Partitions), Setting: "limits.partitions"}
	}
	return nil
}

// newID draws an id that no directory has.
func (b *Broker) newID() uint64 {
	for {
		var raw [8]byte
		rand.Read(raw[:]) // never fails
		if id := binary.BigEndian.Uint64(raw[:]); id != 0 && !b.ids[id] {
			b.ids[id] = true
			return id
		}
	}
}

// makeDir makes the topic's directory with its TOPIC file, both or neither.
func (b *Broker) makeDir(t *Topic, s *Settings) error {
	disk, fresh := b.store.FS(), t.dir+suffixNew
	err := disk.MkdirAll(fresh)
	if err == nil {
		err = t.save(fresh, s, 0)
	}
	if err == nil {
		err = disk.Rename(fresh, t.dir)
	}
	if err != nil {
		return errors.Join(err, disk.RemoveAll(fresh))
	}
	return disk.SyncDir(topicsDir)
}

// openNew opens the logs of new partitions, all or none, and counts them.
func (b *Broker) openNew(parts []*Partition, s *Settings) error {
	err := each(parts, func(p *Partition) error { return p.open(b.store, s) })
	if err != nil {
		return errors.Join(err, each(parts, func(p *Partition) error { return p.close(ErrDeleted) }))
	}
	b.counts.partitions.Add(int64(len(parts)))
	return nil
}

// closeNew takes back what openNew did.
func (b *Broker) closeNew(parts []*Partition) error {
	b.counts.partitions.Add(-int64(len(parts)))
	return each(parts, func(p *Partition) error { return p.close(ErrDeleted) })
}

// Alter changes settings of a topic; those not named stay. Partitions can only be raised.
//
// Durability: the change survives a power cut when it returns. Errors: those of Topic,
// ErrFewerPartitions, protocol.BadRequest and Quota, those of the disk.
func (b *Broker) Alter(name string, settings protocol.TopicSettings) (*Topic, error) {
	if err := protocol.ValidClientTopic(name); err != nil {
		return nil, err
	}
	b.admin.Lock()
	defer b.admin.Unlock()
	t, err := b.find(name)
	if err != nil {
		return nil, err
	}
	old := t.Settings()
	s, err := settingsOf(settings, old.List())
	if err != nil {
		return nil, err
	}
	if s.Partitions < old.Partitions {
		return nil, atTopic(name, fmt.Errorf("%w: %d to %d", ErrFewerPartitions, old.Partitions, s.Partitions))
	}
	if err := b.room(s.Partitions - old.Partitions); err != nil {
		return nil, err
	}
	made := t.made
	if made == old.Partitions {
		made = s.Partitions
	}
	more := t.newPartitions(old.Partitions, s.Partitions)
	if err := b.openNew(more, &s); err != nil {
		return nil, atTopic(name, err)
	}
	if err := t.save(t.dir, &s, made); err != nil {
		return nil, atTopic(name, errors.Join(err, b.closeNew(more)))
	}
	parts := append(slices.Clone(t.Partitions()), more...)
	t.settings.Store(&s)
	t.parts.Store(&parts)
	for _, p := range parts {
		p.set(&s)
	}
	b.log.Info("topic altered", "topic", name, "partitions", s.Partitions, "durability", s.Floor.String())
	return t, nil
}

// Delete removes a topic and its records. Subscriptions to it end with ErrDeleted.
//
// Durability: once it returns the topic does not come back. Errors: those of Topic and of the
// disk; after the latter the topic is out of service until the broker starts again.
func (b *Broker) Delete(name string) error {
	if err := protocol.ValidClientTopic(name); err != nil {
		return err
	}
	b.admin.Lock()
	defer b.admin.Unlock()
	t, err := b.find(name)
	if err != nil {
		return err
	}
	for _, p := range t.Partitions() {
		p.gone.CompareAndSwap(nil, &errDeleted) // refuse before the logs close
	}
	closing := each(t.Partitions(), func(p *Partition) error { return p.close(ErrDeleted) })
	if closing != nil {
		b.log.Warn("closing a deleted topic", "topic", name, "error", closing)
	}
	if err := b.bury(t); err != nil {
		b.damaged[name] = atTopic(name, fmt.Errorf("%w: %s could not be removed: %w", ErrDamagedTopic, t.dir, err))
	} else {
		b.counts.deleted.Add(1)
	}
	b.topics.Delete(name)
	b.counts.topicCount.Add(-1)
	b.counts.partitions.Add(-int64(len(t.Partitions())))
	b.log.Info("topic deleted", "topic", name, "id", formatID(t.id))
	return b.damaged[name]
}

var errDeleted = ErrDeleted

// bury renames the topic's directory durably, so that it is not found again, and removes it.
func (b *Broker) bury(t *Topic) error {
	disk, gone := b.store.FS(), t.dir+suffixGone
	if err := disk.Rename(t.dir, gone); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := disk.SyncDir(topicsDir); err != nil {
		return err
	}
	if err := disk.RemoveAll(gone); err != nil {
		b.log.Warn("a deleted topic's files remain until the next start", "dir", gone, "error", err)
	}
	return nil
}
