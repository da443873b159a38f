package broker

import (
	"context"
	"time"

	"github.com/millrace-mq/millrace/protocol"
)

// upkeep is the one goroutine that looks after all partitions: it saves checkpoints, rolls
// segments that are old enough and removes those past retention.
func (b *Broker) upkeep(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		b.Tend(ctx)
	}
}

// Tend does one round of upkeep now. The broker's own goroutine calls it regularly.
func (b *Broker) Tend(ctx context.Context) {
	for _, t := range b.Topics() {
		s := t.Settings()
		for _, p := range t.Partitions() {
			if ctx.Err() != nil {
				return
			}
			if err := p.tend(s); err != nil && p.Gone() == nil {
				b.log.Error("upkeep failed", "topic", t.name, "partition", p.number, "error", err)
			}
		}
	}
}

// tend saves the checkpoint first: what retention removes may hold OFFSET records.
func (p *Partition) tend(s *Settings) error {
	log, err := p.ready()
	if err != nil {
		return nil // reported when it could not be opened
	}
	if state, _ := log.State(); state != protocol.PartitionOK {
		return nil
	}
	err = p.commits.save(log)
	if err != nil || s.Retention == 0 && s.RetentionBytes == 0 && s.SegmentAge == 0 {
		return err
	}
	removed, err := log.Retain(s.Retention, s.RetentionBytes)
	if removed > 0 {
		p.topic.broker.log.Info("retention removed segments", "topic", p.topic.name, "partition", p.number, "segments", removed)
	}
	return err
}
