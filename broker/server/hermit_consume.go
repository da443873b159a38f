package server

import (
	"github.com/millrace-mq/millrace/protocol"
)

// legacyConsumer is what a subscription of the legacy protocol needs beside its cursor.
//
// Ownership: the owner of the write side.
type legacyConsumer struct {
	from   uint64 // records before it are not sent
	writer legacyWriter
}

func newLegacyConsumer(c *conn, from uint64) *legacyConsumer {
	l := &legacyConsumer{from: from}
	l.writer.conn, l.writer.to = c, l
	l.writer.tryFunc = l.writer.try
	return l
}

// deliverLegacy is deliver for a legacy consumer.
func (c *conn) deliverLegacy(s *subscription) error {
	seen := s.part.Visible()
	section, err := s.part.Next(&s.cursor, s.stop, protocol.MaxDeliver)
	if err != nil {
		c.log().Info("legacy consumer stopped", "error", err)
		return err
	}
	if section.Size == 0 {
		c.parkSubscription(s, seen)
		return nil
	}
	err = s.legacy.writer.send(&section)
	section.Release()
	if err != nil {
		c.log().Warn("legacy delivery failed", "error", err)
		return err
	}
	c.server.counts.delivers.Add(1)
	c.again(s)
	return nil
}
