package server

import (
	"fmt"

	"github.com/millrace-mq/millrace/broker"
	"github.com/millrace-mq/millrace/protocol"
)

// listBytes is how much of a control frame a page of topics may take.
const listBytes = protocol.MaxControlFrame - 1024

// topicInfo is a TopicInfo as the payload of a response.
func topicInfo(t *broker.Topic) message {
	info := t.Info()
	return &info
}

func doTopicCreate(c *conn, r *request) (message, error) {
	var m protocol.TopicSettings
	if err := m.Decode(r.args); err != nil {
		return nil, err
	}
	t, err := c.server.broker.Create(string(r.key), m)
	if err != nil && r.flags&protocol.CreateIfMissing != 0 && broker.CodeOf(err).Code == protocol.Exists {
		t, err = c.topicOf(r)
	}
	if err != nil {
		return nil, err
	}
	return topicInfo(t), nil
}

func doTopicAlter(c *conn, r *request) (message, error) {
	var m protocol.TopicSettings
	if err := m.Decode(r.args); err != nil {
		return nil, err
	}
	t, err := c.server.broker.Alter(string(r.key), m)
	if err != nil {
		return nil, err
	}
	return topicInfo(t), nil
}

func doTopicDelete(c *conn, r *request) (message, error) {
	if err := r.empty(); err != nil {
		return nil, err
	}
	return nil, c.server.broker.Delete(string(r.key))
}

// topicList is a page of topics.
type topicList struct{ protocol.TopicListReply }

func (l *topicList) items() int { return len(l.Items) }

// doTopicList answers one page, as long as fits a control frame.
func doTopicList(c *conn, r *request) (message, error) {
	var m protocol.TopicList
	if err := m.Decode(r.args); err != nil {
		return nil, err
	}
	limit := int(min(m.Limit, protocol.MaxListItems))
	if limit == 0 {
		limit = protocol.MaxListItems
	}
	page, size := &topicList{}, 0
	for _, t := range c.server.broker.Topics() {
		if t.Name() <= m.After {
			continue
		}
		size += len(t.Name()) + 30
		if len(page.Items) == limit || size > listBytes {
			page.More = true
			break
		}
		page.Items = append(page.Items, t.Summary())
	}
	return page, nil
}

func doTopicDescribe(c *conn, r *request) (message, error) {
	if err := r.empty(); err != nil {
		return nil, err
	}
	t, err := c.topicOf(r)
	if err != nil {
		return nil, err
	}
	return topicInfo(t), nil
}

// offsets is the answer to OFFSETS.
type offsets struct{ protocol.OffsetsReply }

func (l *offsets) items() int { return len(l.Items) }

// doOffsets resolves positions, each for itself: one that cannot be is told in its own item.
func doOffsets(c *conn, r *request) (message, error) {
	var m protocol.Offsets
	if err := m.Decode(r.args); err != nil {
		return nil, err
	}
	t, err := c.topicOf(r)
	if err != nil {
		return nil, err
	}
	if len(m.Items) == 0 {
		return nil, &protocol.Error{Code: protocol.BadRequest, Detail: fmt.Sprintf("%s of topic %s without a partition", r.opcode, t.Name())}
	}
	reply := &offsets{}
	for _, q := range m.Items {
		a := protocol.PartitionOffsets{Partition: q.Partition}
		p, err := t.Partition(q.Partition)
		if err == nil {
			a.Offset, err = p.Resolve(q.Position)
		}
		if err != nil {
			a.Status = broker.CodeOf(err).Code
		} else {
			i := p.Info()
			a.Start, a.End, a.Durable, a.Epoch = i.Start, i.End, i.Durable, i.Epoch
		}
		reply.Items = append(reply.Items, a)
	}
	return reply, nil
}
