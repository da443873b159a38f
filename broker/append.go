package broker

import (
	"errors"

	"github.com/millrace-mq/millrace/storage"
)

// Append appends verified runs, all of them or none, and wakes who waits for the end of a
// partition whose records are visible when written. Each entry's Base is set.
//
// Durability: written to the kernel when it returns; with sync the disk is asked to make it
// durable now, and AwaitDurable(end.Index) tells when it is. Ownership: the runs' bytes are
// stamped in place and not kept. Bounds: no allocation. Errors: those of the log, with the
// place; nothing was appended then.
func (p *Partition) Append(entries []storage.Entry, sync bool) (storage.End, error) {
	log, err := p.ready()
	if err != nil {
		return storage.End{}, err
	}
	end, err := log.Append(entries, sync)
	c := &p.topic.broker.counts
	if err != nil {
		c.appendErrors.Add(1)
		err = p.at(err)
		if errors.Is(err, storage.ErrNoSpace) && p.topic.broker.noSpace.CompareAndSwap(false, true) {
			p.topic.broker.log.Warn("append refused", "error", err)
		}
		return storage.End{}, err
	}
	if p.topic.broker.noSpace.Load() && p.topic.broker.noSpace.CompareAndSwap(true, false) {
		p.topic.broker.log.Info("appends work again", "topic", p.topic.name, "partition", p.number)
	}
	var size, frames, records uint64
	for i := range entries {
		r := &entries[i].Run
		size += uint64(len(r.Bytes))
		frames += uint64(r.Frames)
		records += r.Records
	}
	c.appends.Add(1)
	c.bytes.Add(size)
	c.frames.Add(frames)
	c.records.Add(records)
	if !p.hidden.Load() {
		p.tail.wake(^uint64(0))
	}
	return end, nil
}
