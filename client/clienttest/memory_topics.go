package clienttest

import (
	"slices"

	"github.com/millrace-mq/millrace/protocol"
)

// topicRequest answers the requests about topics. With mu.
func (m *Memory) topicRequest(op protocol.Opcode, name string, args []byte) (Message, error) {
	switch op {
	case protocol.OpTopicCreate:
		var s protocol.TopicSettings
		if err := s.Decode(args); err != nil {
			return nil, err
		}
		if m.topics[name] != nil {
			return nil, &protocol.Error{Code: protocol.Exists, Detail: name}
		}
		n, _ := s.Get(protocol.SettingPartitions)
		if _, err := m.obtain(name, true, int(n)); err != nil {
			return nil, err
		}
		return m.info(name)
	case protocol.OpTopicAlter:
		return m.alter(name, args)
	case protocol.OpTopicDescribe:
		return m.info(name)
	case protocol.OpTopicDelete:
		_, err := m.obtain(name, false, 0)
		delete(m.topics, name)
		return nil, err
	case protocol.OpTopicList:
		return m.list(args)
	case protocol.OpOffsets:
		return m.offsets(name, args)
	}
	return nil, &protocol.Error{Code: protocol.Unsupported, Detail: op.String()}
}

func (m *Memory) info(name string) (Message, error) {
	t, err := m.obtain(name, false, 0)
	if err != nil {
		return nil, err
	}
	info := &protocol.TopicInfo{Name: name, ID: t.id, Settings: protocol.TopicSettings{{ID: protocol.SettingPartitions, Value: uint64(len(t.parts))}}}
	for _, p := range t.parts {
		info.Partitions = append(info.Partitions, protocol.PartitionInfo{End: p.end, Durable: p.end, Segments: 1})
	}
	return info, nil
}

// alter raises the number of partitions.
func (m *Memory) alter(name string, args []byte) (Message, error) {
	var s protocol.TopicSettings
	if err := s.Decode(args); err != nil {
		return nil, err
	}
	t, err := m.obtain(name, false, 0)
	if err != nil {
		return nil, err
	}
	if n, ok := s.Get(protocol.SettingPartitions); ok {
		for uint64(len(t.parts)) < n {
			t.parts = append(t.parts, &memoryPart{})
		}
	}
	return m.info(name)
}

func (m *Memory) list(args []byte) (Message, error) {
	var ask protocol.TopicList
	if err := ask.Decode(args); err != nil {
		return nil, err
	}
	limit := int(ask.Limit)
	if limit == 0 {
		limit = 100
	}
	var names []string
	for name := range m.topics {
		if name > ask.After {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	reply := &protocol.TopicListReply{More: len(names) > limit}
	for _, name := range names[:min(limit, len(names))] {
		t := m.topics[name]
		it := protocol.TopicSummary{Name: name, ID: t.id, Partitions: uint32(len(t.parts))}
		for _, p := range t.parts {
			it.Records += p.end
		}
		reply.Items = append(reply.Items, it)
	}
	return reply, nil
}

func (m *Memory) offsets(name string, args []byte) (Message, error) {
	var ask protocol.Offsets
	if err := ask.Decode(args); err != nil {
		return nil, err
	}
	t, err := m.obtain(name, false, 0)
	if err != nil {
		return nil, err
	}
	reply := new(protocol.OffsetsReply)
	for _, it := range ask.Items {
		po := protocol.PartitionOffsets{Partition: it.Partition}
		if int(it.Partition) >= len(t.parts) {
			po.Status = protocol.UnknownPartition
		} else {
			p := t.parts[it.Partition]
			po.End, po.Durable = p.end, p.end
			if po.Offset, err = p.resolve(it.Position); err != nil {
				po.Status = protocol.AsError(err).Code
			}
		}
		reply.Items = append(reply.Items, po)
	}
	return reply, nil
}
