package server

import (
	"fmt"
	"strings"

	"github.com/millrace-mq/millrace/broker"
	"github.com/millrace-mq/millrace/protocol"
	"github.com/millrace-mq/millrace/storage"
)

// handle is one open partition of a connection.
type handle struct {
	// immutable
	conn   *conn
	id     uint32
	part   *broker.Partition
	waiter broker.Waiter

	// owned by the reader
	batch *batch // runs of this read; nil = none

	acks acks // guarded by the outbox's mu
}

// run is what is known of a run until it is answered.
type run struct {
	sequence uint64
	level    protocol.Level
	refused  *protocol.Error
}

// produce takes the PRODUCE run at the start of b: it verifies the whole run in place and
// leaves it to be appended with the others of this read. used is how many bytes of b are done
// with; 0 means that the run is not yet whole.
//
// A run that is refused by its header is not waited for: its bytes are thrown away as they
// come, so that a refusal costs no memory.
func (c *conn) produce(h *protocol.Header, b []byte) (used int, err error) {
	if !c.greeted.Load() {
		return 0, &protocol.Error{Code: protocol.Unauthenticated, Detail: "PRODUCE before HELLO"}
	}
	if h.KeySize() != 0 || h.PayloadSize() != 0 {
		return 0, &protocol.Error{Code: protocol.BadFrame, Detail: "PRODUCE header with key or payload"}
	}
	size := h.RunBytes()
	d := c.handles[h.Handle()]
	r := run{sequence: h.Offset(), level: h.Level()}
	if d == nil {
		r.refused = &protocol.Error{Code: protocol.UnknownHandle, Detail: fmt.Sprintf("handle %d", h.Handle())}
		c.answerUnknown(h.Handle(), r)
		c.skip = uint64(size)
		return protocol.HeaderSize, nil
	}
	settings := d.part.Topic().Settings()
	refused, more := c.refuseRun(h, b, settings)
	if more {
		return 0, nil
	}
	total := protocol.HeaderSize + int(size)
	if refused == nil && len(b) < total {
		return 0, nil
	}
	d.touch()
	c.lastRun.Store(r.sequence)
	c.server.counts.runs.Add(1)
	if refused != nil {
		r.refused = refused
		d.batch.runs = append(d.batch.runs, r)
		c.skip = uint64(size)
		return protocol.HeaderSize, nil
	}
	whole, err := protocol.CheckRun(b[protocol.HeaderSize:total:total], settings.MaxMessageBytes)
	if err == nil && whole.Flags != 0 {
		err = unsupported(whole.Flags)
	}
	if err != nil {
		r.refused = protocol.AsError(err)
	} else {
		r.level = settings.Effective(r.level)
		d.batch.sync = d.batch.sync || r.level >= protocol.LevelDurable
		d.batch.entries = append(d.batch.entries, storage.Entry{Run: whole})
	}
	d.batch.runs = append(d.batch.runs, r)
	return total, nil
}

// refuseRun judges a run by its header, and by that of its first frame when the run is longer
// than runs of several frames may be. more means that this header has not arrived yet.
func (c *conn) refuseRun(h *protocol.Header, b []byte, s *broker.Settings) (refused *protocol.Error, more bool) {
	size := h.RunBytes()
	switch level := h.Level(); {
	case c.server.draining.Load():
		return &protocol.Error{Code: protocol.ShuttingDown}, false
	case level > protocol.LevelQuorum && level != protocol.LevelTopic:
		return &protocol.Error{Code: protocol.BadRequest, Detail: "acks of a run: " + level.String()}, false
	case h.RunFlags() != 0:
		return &protocol.Error{Code: protocol.Unsupported, Detail: fmt.Sprintf("flags 0x%06x of a run", h.RunFlags())}, false
	case size < protocol.MinFrame:
		return &protocol.Error{Code: protocol.BadFrame, Detail: fmt.Sprintf("run of %d bytes has no room for a frame", size)}, false
	case size <= protocol.MaxRun:
		return nil, false
	case len(b) < 2*protocol.HeaderSize:
		return nil, true
	}
	frame, err := protocol.SizeStored(b[protocol.HeaderSize:], protocol.MaxDataFrame)
	if err != nil {
		return protocol.AsError(err), false
	}
	if frame != int(size) {
		return &protocol.Error{Code: protocol.TooLarge, Detail: "run of several frames", Actual: uint64(size), Limit: protocol.MaxRun, Setting: "run"}, false
	}
	if limit := uint64(s.MaxMessageBytes) + frameSlack; uint64(size) > limit {
		return &protocol.Error{Code: protocol.TooLarge, Detail: "frame", Actual: uint64(size), Limit: limit, Setting: "max_message_bytes"}, false
	}
	return nil, false
}

// frameSlack is what a frame of one message may have beside it: key, headers, prelude, tail.
const frameSlack = protocol.MaxDataFrame - protocol.MaxMessageBytes

// features are the prelude flags that later versions serve. To ignore one would be to deliver a
// delayed message at once, or a duplicate twice.
var features = []struct {
	flag uint8
	name string
}{
	{protocol.FlagProducer, "idempotent producers"},
	{protocol.FlagDeliverAt, "delayed delivery"},
	{protocol.FlagExpireAt, "expiry"},
	{protocol.FlagLane, "priority lanes"},
}

func unsupported(flags uint8) error {
	var names []string
	for _, f := range features {
		if flags&f.flag != 0 {
			names = append(names, f.name)
		}
	}
	return &protocol.Error{Code: protocol.Unsupported, Detail: "this broker does not serve " + strings.Join(names, ", ")}
}

// touch makes room for one more run of d in this read.
func (d *handle) touch() {
	c := d.conn
	if d.batch != nil && len(d.batch.runs) >= maxBatch || d.batch == nil && len(c.touched) >= maxTouched {
		c.appendRuns()
	}
	if d.batch == nil {
		d.batch = c.server.spares.batch()
		c.touched = append(c.touched, d)
	}
}

// appendRuns appends what this read brought, one call per handle, and queues the answers.
func (c *conn) appendRuns() {
	for i, d := range c.touched {
		d.appendRuns()
		c.touched[i] = nil
	}
	c.touched = c.touched[:0]
}

func (d *handle) appendRuns() {
	var end storage.End
	var failed *protocol.Error
	b := d.batch
	if len(b.entries) > 0 {
		var err error
		if end, err = d.part.Append(b.entries, b.sync); err != nil {
			failed = broker.CodeOf(err)
		}
	}
	o := &d.conn.out
	o.mu.Lock()
	next := 0
	for i := range b.runs {
		a := d.answer(&b.runs[i], end, failed, &next)
		if a.refused != nil || a.level != protocol.LevelNone {
			d.acks.add(o, d, a)
		}
	}
	wait := d.acks.startWaiting()
	o.mu.Unlock()
	d.batch = nil
	d.conn.server.spares.keepBatch(b)
	if wait {
		d.settle()
	}
}

// answer makes the acknowledgement of a run after the append. next counts the entries that were
// answered: refused runs have none.
func (d *handle) answer(r *run, end storage.End, failed *protocol.Error, next *int) ack {
	if r.refused == nil {
		e := &d.batch.entries[*next]
		*next++
		if failed == nil {
			a := ack{base: e.Base, sequence: r.sequence, records: uint32(e.Run.Records), level: r.level}
			if r.level >= protocol.LevelDurable {
				a.target = end.Index
			}
			return a
		}
		r.refused = failed
	}
	d.conn.server.counts.refusedRuns.Add(1)
	return ack{sequence: r.sequence, refused: r.refused}
}

// answerUnknown refuses a run whose handle does not exist.
func (c *conn) answerUnknown(id uint32, r run) {
	c.server.counts.refusedRuns.Add(1)
	c.out.mu.Lock()
	c.out.putAck(id, ack{sequence: r.sequence, refused: r.refused})
	c.out.mu.Unlock()
}
