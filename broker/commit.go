package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace-mq/millrace/protocol"
	"github.com/millrace-mq/millrace/storage"
)

const (
	// maxGroups bounds the groups of one partition.
	maxGroups = 10_000
	// checkpointBytes is how much a log grows before its checkpoint moves although nobody
	// committed: reopening scans at most so much for OFFSET records.
	checkpointBytes = 64 << 20
	// checkpointVersion is the first byte of a checkpoint; the rest is the body of one OFFSET
	// record with every group.
	checkpointVersion = 1
)

// restore rebuilds the table from checkpoint and log.
func (c *commits) restore(log *storage.Log) error {
	index, body, err := log.LoadCheckpoint()
	if err != nil {
		return err
	}
	c.groups = make(map[string]committed)
	put := func(g protocol.GroupOffset) { c.groups[g.Group] = committed{g.Offset, g.Epoch} }
	if index != 0 {
		if len(body) == 0 || body[0] != checkpointVersion {
			return fmt.Errorf("checkpoint at index %d: %w", index, storage.ErrNewer)
		}
		if err := protocol.DecodeGroupOffsets(body[1:], put); err != nil {
			return fmt.Errorf("checkpoint at index %d: %w", index, err)
		}
	}
	c.index, c.saved = index, index
	return log.Controls(index, func(f protocol.Frame) error {
		if f.Opcode() != protocol.ControlOffset {
			return nil
		}
		c.index = f.Index()
		return protocol.DecodeGroupOffsets(f.Body(), put)
	})
}

// save writes a checkpoint of everything up to the durable end when there is something new.
// Commits behind that end may be in it too; replaying them once more changes nothing.
func (c *commits) save(log *storage.Log) error {
	c.mu.Lock()
	index := log.Durable().Index
	size, _ := log.Size()
	if index <= c.saved || c.index <= c.saved && size-c.size < checkpointBytes {
		c.mu.Unlock()
		return nil
	}
	list := make([]protocol.GroupOffset, 0, len(c.groups))
	for name, g := range c.groups {
		list = append(list, protocol.GroupOffset{Group: name, Offset: g.offset, Epoch: g.epoch})
	}
	c.mu.Unlock()
	body := protocol.AppendGroupOffsets([]byte{checkpointVersion}, list)
	if err := log.SaveCheckpoint(index, body); err != nil {
		return err
	}
	c.mu.Lock()
	c.saved, c.size = max(c.saved, index), size
	c.mu.Unlock()
	return nil
}

// Committed returns the next offset that group wants to read; ok is false when it never
// committed.
func (p *Partition) Committed(group string) (offset uint64, ok bool) {
	p.commits.mu.Lock()
	defer p.commits.mu.Unlock()
	g, ok := p.commits.groups[group]
	return g.offset, ok
}

// Commit stores the next offset that group wants to read.
//
// Durability: durable when it returns nil. Bounds: group as ValidGroup says, offset at most the
// visible end, maxGroups groups. Errors: ErrCommitBeyondEnd, those of the log, ctx's.
func (p *Partition) Commit(ctx context.Context, group string, offset uint64) error {
	log, err := p.ready()
	if err != nil {
		return err
	}
	if err := protocol.ValidGroup(group); err != nil {
		return err
	}
	if end := log.Visible().Offset; offset > end {
		return p.at(fmt.Errorf("%w: %w", ErrCommitBeyondEnd,
			&storage.RangeError{Offset: offset, Start: log.Start(), End: end, Epoch: log.Epoch()}))
	}
	index, err := p.commits.add(log, protocol.GroupOffset{Group: group, Offset: offset})
	if err != nil {
		return p.at(err)
	}
	p.topic.broker.counts.commits.Add(1)
	if !p.hidden.Load() {
		p.tail.wake(^uint64(0))
	}
	return p.waitDurable(ctx, index)
}

// add appends the OFFSET record and applies it.
func (c *commits) add(log *storage.Log, g protocol.GroupOffset) (uint64, error) {
	body := protocol.AppendGroupOffsets(nil, []protocol.GroupOffset{g})
	frame := protocol.AppendControl(nil, protocol.ControlOffset, nil, body)
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.groups[g.Group]; !known && len(c.groups) >= maxGroups {
		return 0, &protocol.Error{Code: protocol.Quota, Detail: "groups of the partition",
			Actual: maxGroups + 1, Limit: maxGroups, Setting: "groups"}
	}
	index, err := log.AppendControl(frame, true)
	if err != nil {
		return 0, err
	}
	c.groups[g.Group] = committed{g.Offset, g.Epoch}
	c.index = max(c.index, index)
	return index, nil
}

// waitDurable returns when the log is durable up to index.
func (p *Partition) waitDurable(ctx context.Context, index uint64) error {
	woken := make(chan struct{}, 1)
	w := &Waiter{Wake: func() { woken <- struct{}{} }}
	for {
		now, err := p.DurableIndex()
		if now >= index {
			return nil
		}
		if err != nil {
			return err
		}
		parked, err := p.AwaitDurable(w, index)
		if err != nil {
			return err
		}
		if !parked {
			continue
		}
		select {
		case <-woken:
		case <-ctx.Done():
			p.LeaveDurable(w)
			return p.at(errors.Join(protocol.UnknownOutcome, ctx.Err()))
		}
	}
}
