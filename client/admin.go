package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/millrace-mq/millrace/protocol"
)

// Broker is what the broker said of itself in its last HELLO: name, version, limits.
//
// Errors: those of waiting for a connection.
func (c *Client) Broker(ctx context.Context) (protocol.HelloReply, error) {
	cn, err := c.connection(ctx)
	if err != nil {
		return protocol.HelloReply{}, err
	}
	return cn.hello, nil
}

// Ping measures one round trip on the shared connection.
func (c *Client) Ping(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.requestTimeout)
	defer cancel()
	cn, err := c.connection(ctx)
	if err != nil {
		return 0, fmt.Errorf("client: ping: %w", err)
	}
	since := time.Now()
	if _, _, err := cn.ping(newCall()).wait(ctx); err != nil {
		return 0, fmt.Errorf("client: ping: %w", err)
	}
	return time.Since(since), nil
}

// CreateTopic creates a topic. Settings that are not named take the broker's defaults. With
// ifMissing a topic that exists is returned as it is.
//
// Errors: protocol.Exists; with ifMissing ErrTopicDiffers, beside the topic as it is, when a
// setting that was named has another value; protocol.UnknownOutcome when the connection ended
// before the answer, with ifMissing only when repeating did not help.
func (c *Client) CreateTopic(ctx context.Context, name string, settings protocol.TopicSettings, ifMissing bool) (protocol.TopicInfo, error) {
	if err := protocol.ValidClientTopic(name); err != nil {
		return protocol.TopicInfo{}, err
	}
	if err := settings.Check(); err != nil {
		return protocol.TopicInfo{}, err
	}
	payload := settings.AppendTo(nil)
	info, err := c.topicInfo(ctx, protocol.OpTopicCreate, name, payload)
	if !ifMissing {
		return info, err
	}
	if errors.Is(err, protocol.UnknownOutcome) {
		info, err = c.topicInfo(ctx, protocol.OpTopicCreate, name, payload)
	}
	if !errors.Is(err, protocol.Exists) {
		return info, err
	}
	if info, err = c.DescribeTopic(ctx, name); err != nil {
		return info, err
	}
	for _, s := range settings {
		if v, ok := info.Settings.Get(s.ID); ok && v != s.Value {
			return info, fmt.Errorf("%w: %s has %s = %d, asked for %d", ErrTopicDiffers, name, s.ID.Spec().Name, v, s.Value)
		}
	}
	return info, nil
}

// AlterTopic changes the settings named; the others keep their values.
func (c *Client) AlterTopic(ctx context.Context, name string, settings protocol.TopicSettings) (protocol.TopicInfo, error) {
	if err := settings.Check(); err != nil {
		return protocol.TopicInfo{}, err
	}
	return c.topicInfo(ctx, protocol.OpTopicAlter, name, settings.AppendTo(nil))
}

// DeleteTopic removes a topic with all of its records.
func (c *Client) DeleteTopic(ctx context.Context, name string) error {
	if err := protocol.ValidTopic(name); err != nil {
		return err
	}
	_, err := c.request(ctx, protocol.OpTopicDelete, name, nil)
	return err
}

// DescribeTopic returns a topic's settings and where its partitions begin and end.
func (c *Client) DescribeTopic(ctx context.Context, name string) (protocol.TopicInfo, error) {
	return c.topicInfo(ctx, protocol.OpTopicDescribe, name, nil)
}

// topicInfo makes a request that is answered with a topic.
func (c *Client) topicInfo(ctx context.Context, op protocol.Opcode, name string, payload []byte) (info protocol.TopicInfo, err error) {
	if err := protocol.ValidTopic(name); err != nil {
		return info, err
	}
	reply, err := c.request(ctx, op, name, payload)
	if err != nil {
		return info, err
	}
	err = info.Decode(reply)
	return info, err
}

// Topics lists all topics by name. An error is yielded last.
func (c *Client) Topics(ctx context.Context) iter.Seq2[protocol.TopicSummary, error] {
	return func(yield func(protocol.TopicSummary, error) bool) {
		ask, page := protocol.TopicList{}, protocol.TopicListReply{More: true}
		for page.More {
			reply, err := c.request(ctx, protocol.OpTopicList, "", ask.AppendTo(nil))
			if err == nil {
				err = page.Decode(reply)
			}
			if err == nil && page.More && len(page.Items) == 0 {
				err = &protocol.Error{Code: protocol.BadFrame, Detail: "TOPIC_LIST: an empty page with more to come"}
			}
			if err != nil {
				yield(protocol.TopicSummary{}, err)
				return
			}
			for _, it := range page.Items {
				if !yield(it, nil) {
					return
				}
				ask.After = it.Name
			}
		}
	}
}

// Offsets resolves a position in partitions of a topic, in their order; without partitions, in
// all of them.
func (c *Client) Offsets(ctx context.Context, topic string, pos protocol.Position, partitions ...uint32) ([]protocol.PartitionOffsets, error) {
	if err := protocol.ValidTopic(topic); err != nil {
		return nil, err
	}
	if len(partitions) == 0 {
		info, err := c.DescribeTopic(ctx, topic)
		if err != nil {
			return nil, err
		}
		for n := range info.Partitions {
			partitions = append(partitions, uint32(n))
		}
	}
	var ask protocol.Offsets
	for _, n := range partitions {
		ask.Items = append(ask.Items, protocol.OffsetsItem{Partition: n, Position: pos})
	}
	if n := len(ask.Items); n > protocol.MaxPartitions {
		return nil, &protocol.Error{Code: protocol.TooLarge, Detail: "partitions of one request", Actual: uint64(n), Limit: protocol.MaxPartitions, Setting: "partitions_per_topic"}
	}
	reply, err := c.request(ctx, protocol.OpOffsets, topic, ask.AppendTo(nil))
	if err != nil {
		return nil, err
	}
	var m protocol.OffsetsReply
	err = m.Decode(reply)
	return m.Items, err
}

// Stats returns the broker's numbers.
func (c *Client) Stats(ctx context.Context) (protocol.Stats, error) {
	var m protocol.Stats
	reply, err := c.request(ctx, protocol.OpStats, "", nil)
	if err == nil {
		err = m.Decode(reply)
	}
	return m, err
}
