package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace-mq/millrace/broker/config"
	"github.com/millrace-mq/millrace/client"
	"github.com/millrace-mq/millrace/cmd/millrace/cli"
	"github.com/millrace-mq/millrace/protocol"
)

// advised is an error whose text says what to do about it.
type advised struct {
	text string
	err  error // the cause, for its code
}

// Error returns the text.
func (a *advised) Error() string { return a.text }

// Unwrap returns the cause.
func (a *advised) Unwrap() error { return a.err }

// advise says of an error about a topic what to do: of one that is not there
// which name was probably meant and how to make it, of a message that is too
// large which setting to raise. Other errors stay as they are.
func advise(ctx context.Context, c *cli.Call, cl *client.Client, topic string, err error) error {
	var before *advised
	var wire *protocol.Error
	var delivery *client.DeliveryError
	if errors.As(err, &before) || errors.As(err, &delivery) || !errors.As(err, &wire) {
		return err
	}
	switch {
	case wire.Code == protocol.UnknownTopic:
		return &advised{unknownTopicText(ctx, c, cl, topic), wire}
	case wire.Code == protocol.TooLarge && wire.Setting == "max_message_bytes" && wire.Limit < protocol.MaxMessageBytes:
		text := fmt.Sprintf("TOO_LARGE: a message of %d bytes is more than %s takes (max_message_bytes = %s)",
			wire.Actual, topic, config.FormatSize(int64(wire.Limit)))
		if wire.Actual <= protocol.MaxMessageBytes {
			text += fmt.Sprintf("; raise it with: millrace topics set %s max_message_bytes=%s", topic, config.FormatSize(roundedUp(wire.Actual)))
		}
		return &advised{text, wire}
	case wire.Code == protocol.UnknownPartition && wire.Detail != "":
		return &advised{fmt.Sprintf("UNKNOWN_PARTITION: %s; millrace topics show %s lists them", wire.Detail, topic), wire}
	case wire.Code == protocol.OffsetOutOfRange && wire.Detail != "":
		return &advised{fmt.Sprintf("OFFSET_OUT_OF_RANGE: %s [%d, %d)", wire.Detail, wire.From, wire.To), wire}
	}
	return err
}

// roundedUp is a size that a message of n bytes fits, in whole KiB or MiB.
func roundedUp(n uint64) int64 {
	unit := uint64(1 << 10)
	if n >= 1<<20 {
		unit = 1 << 20
	}
	return int64(min((n+unit-1)/unit*unit, protocol.MaxMessageBytes))
}

// unknownTopicText says that a topic is not there and what to do.
func unknownTopicText(ctx context.Context, c *cli.Call, cl *client.Client, topic string) string {
	text := fmt.Sprintf("UNKNOWN_TOPIC: there is no topic %q", topic)
	ctx, cancel := c.Deadline(ctx)
	defer cancel()
	var names []string
	for t, err := range cl.Topics(ctx) {
		if err != nil {
			break // without a suggestion
		}
		names = append(names, t.Name)
	}
	text += cli.Suggestion(topic, names, "")
	if protocol.ValidClientTopic(topic) == nil {
		text += "; to make it: millrace topics create " + topic
	}
	return text
}
