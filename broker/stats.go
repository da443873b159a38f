package broker

import (
	"sync/atomic"

	"github.com/millrace-mq/millrace/protocol"
)

// counts are the broker's counters since it was opened.
type counts struct {
	appends, appendErrors  atomic.Uint64
	bytes, frames, records atomic.Uint64 // appended
	commits                atomic.Uint64
	created, deleted       atomic.Uint64
	failures               atomic.Uint64 // partitions under which the disk failed
	partitions             atomic.Int64  // open now
	topicCount             atomic.Int64  // now
}

// Stats returns the broker's numbers.
func (b *Broker) Stats() []protocol.Stat {
	c := &b.counts
	s := b.store.Stats()
	damaged, readOnly := b.unwell()
	return []protocol.Stat{
		{Name: "topics", Value: uint64(max(0, c.topicCount.Load()))},
		{Name: "partitions", Value: uint64(max(0, c.partitions.Load()))},
		{Name: "topics_created", Value: c.created.Load()},
		{Name: "topics_deleted", Value: c.deleted.Load()},
		{Name: "appends", Value: c.appends.Load()},
		{Name: "append_errors", Value: c.appendErrors.Load()},
		{Name: "bytes_appended", Value: c.bytes.Load()},
		{Name: "frames_appended", Value: c.frames.Load()},
		{Name: "records_appended", Value: c.records.Load()},
		{Name: "commits", Value: c.commits.Load()},
		{Name: "storage_failures", Value: c.failures.Load()},
		{Name: "partitions_damaged", Value: damaged},
		{Name: "partitions_read_only", Value: readOnly},
		{Name: "syncs", Value: s.Syncs},
		{Name: "sync_nanos", Value: s.SyncNanos},
		{Name: "segments_rolled", Value: s.SegmentsRolled},
		{Name: "segments_removed", Value: s.SegmentsRemoved},
		{Name: "index_rebuilds", Value: s.IndexRebuilds},
		{Name: "sync_alls", Value: s.SyncAlls},
		{Name: "zeroed_bytes", Value: s.ZeroedBytes},
		{Name: "storage_errors", Value: s.Errors},
		{Name: "disk_free_bytes", Value: s.FreeBytes},
		{Name: "disk_full", Value: flag(s.Full)},
		{Name: "clock_ahead", Value: flag(s.ClockAhead)},
	}
}

// unwell counts partitions with known damage, and those that take no appends.
func (b *Broker) unwell() (damaged, readOnly uint64) {
	for _, t := range b.Topics() {
		for _, p := range t.Partitions() {
			log, err := p.ready()
			if err != nil {
				readOnly++
				continue
			}
			if log.Damaged() > 0 {
				damaged++
			}
			if state, _ := log.State(); state != protocol.PartitionOK {
				readOnly++
			}
		}
	}
	return damaged, readOnly
}

func flag(on bool) uint64 {
	if on {
		return 1
	}
	return 0
}
