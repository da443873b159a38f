package client

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/millrace-mq/millrace/protocol"
)

// minCredit is the least window of a partition in bytes.
const minCredit = 64 << 10

// How a reader gets its connection and its subscriptions, and gets them again.

// more waits until there are pieces, connecting and subscribing as needed.
//
// Errors: io.EOF when every partition is read to its end; those of Read.
func (r *reader) more() error {
	for {
		if err := r.over(); err != nil {
			return err
		}
		if r.conn == nil || r.idle() {
			if err := r.prepare(); err != nil {
				return err
			}
			continue
		}
		pieces, err := r.inbox.take(r.pieces)
		if err != nil {
			r.lost(err)
			continue
		}
		r.pieces, r.at, r.pos = pieces, 0, 0
		if len(pieces) > 0 {
			r.pause.reset()
			return nil
		}
		select {
		case <-r.inbox.wake:
		case <-r.ctx.Done():
		case <-r.c.ctx.Done():
		}
	}
}

// over is the error of a reader that must not go on; io.EOF when everything is read.
func (r *reader) over() error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	if r.c.ctx.Err() != nil {
		return ErrClosed
	}
	if r.parts == nil {
		return nil
	}
	for _, p := range r.parts {
		if p.started && p.next >= p.stop {
			p.done = true
		}
		if !p.done {
			return nil
		}
	}
	return io.EOF
}

// idle tells that nothing is subscribed although something is left: the next partition of a
// bounded read is due.
func (r *reader) idle() bool {
	for _, p := range r.parts {
		if p.sub != 0 && !p.done {
			return false
		}
	}
	return true
}

// active lists the partitions to be subscribed: all that are left, or with Until the next one.
func (r *reader) active() (list []*part) {
	for _, p := range r.parts {
		if p.done {
			continue
		}
		list = append(list, p)
		if r.cfg.bounded {
			break
		}
	}
	return list
}

// prepare connects and subscribes. After a failure that passes it pauses, and returns nil too.
func (r *reader) prepare() error {
	var err error
	final := false
	if r.conn == nil {
		err = r.connect()
		final = err != nil && hopeless(err)
	}
	if err == nil {
		err = r.subscribe()
		var refused *protocol.Error
		final = errors.As(err, &refused) && !retriable(err)
	}
	switch {
	case err == nil:
		return nil
	case r.c.ctx.Err() != nil:
		return ErrClosed
	case r.ctx.Err() != nil:
		return r.ctx.Err()
	case final:
		return fmt.Errorf("client: read %s: %w", r.topic, err)
	}
	r.lost(err)
	return nil
}

// lost drops the connection, which failed with err, and pauses.
func (r *reader) lost(err error) {
	r.disconnect()
	d := r.pause.next()
	r.c.report(err, d)
	r.c.pause(r.ctx, d)
}

// connect makes the reader's connection.
func (r *reader) connect() error {
	r.inbox = newInbox(r.cfg.credit + 2*protocol.MaxDeliver)
	cn, err := connect(r.ctx, &r.c.cfg, r.c.addr, r.inbox)
	if err != nil {
		return err
	}
	r.c.mu.Lock()
	closed := r.c.closed
	if !closed {
		r.c.streams[cn] = struct{}{}
	}
	r.c.mu.Unlock()
	r.conn = cn
	if closed {
		r.disconnect()
		return ErrClosed
	}
	r.c.greeted(cn)
	return nil
}

// disconnect ends the connection and drops what it brought; every partition is to be subscribed
// again where its next offset says.
func (r *reader) disconnect() {
	if r.conn == nil {
		return
	}
	r.conn.fail(ErrClosed)
	r.conn.join()
	r.c.mu.Lock()
	delete(r.c.streams, r.conn)
	r.c.mu.Unlock()
	r.conn, r.inbox = nil, nil
	r.pieces, r.at, r.pos = nil, 0, 0
	for _, p := range r.parts {
		p.sub, p.owed = 0, 0
	}
}

// subscribe opens and subscribes the active partitions.
func (r *reader) subscribe() error {
	ctx, cancel := context.WithTimeout(r.ctx, r.c.cfg.requestTimeout)
	defer cancel()
	if err := r.learnParts(ctx); err != nil {
		return err
	}
	active := r.active()
	calls := make([]*call, len(active))
	for i, p := range active {
		calls[i] = r.startOpen(p.number)
	}
	for i, p := range active {
		reply, err := openReply(ctx, calls[i])
		if err != nil {
			return fmt.Errorf("partition %d: %w", p.number, err)
		}
		p.handle = reply.Handle
	}
	for i, p := range active {
		calls[i] = r.startSubscribe(p, len(active))
	}
	for i, p := range active {
		if err := p.subscribed(ctx, calls[i]); err != nil {
			return fmt.Errorf("partition %d: %w", p.number, err)
		}
	}
	return nil
}

// learnParts makes the list of partitions, and on a new connection adds those that are new.
func (r *reader) learnParts(ctx context.Context) error {
	if r.cfg.one {
		if r.parts == nil {
			r.parts = []*part{{number: r.cfg.partition, from: r.cfg.from, stop: protocol.NoStop}}
		}
		return nil
	}
	if r.parts != nil && (r.cfg.bounded || !r.idle()) {
		return nil
	}
	reply, err := openReply(ctx, r.startOpen(0))
	if err != nil {
		return err
	}
	for n := uint32(len(r.parts)); n < reply.Partitions; n++ {
		p := &part{number: n, from: r.cfg.from, stop: protocol.NoStop}
		if len(r.parts) > 0 && r.parts[0].started { // the topic grew while it was read
			p.from = protocol.Start
		}
		r.parts = append(r.parts, p)
	}
	return nil
}

func (r *reader) startOpen(partition uint32) *call {
	m := protocol.Open{Partition: partition, Flags: protocol.OpenNoCreate}
	return r.conn.start(newCall(), protocol.OpOpen, 0, 0, r.topic, m.AppendTo(nil))
}

func openReply(ctx context.Context, k *call) (reply protocol.OpenReply, err error) {
	payload, _, err := k.wait(ctx)
	if err != nil {
		return reply, err
	}
	if err := reply.Decode(payload); err != nil {
		return reply, err
	}
	if reply.Handle == 0 || reply.Partitions == 0 || reply.Partitions > protocol.MaxPartitions {
		return reply, &protocol.Error{Code: protocol.BadFrame, Detail: fmt.Sprintf("OPEN answered handle %d, %d partitions", reply.Handle, reply.Partitions)}
	}
	return reply, nil
}

func (r *reader) startSubscribe(p *part, sharers int) *call {
	r.lastSub++
	p.sub, p.owed = r.lastSub, 0
	p.window = max(uint64(r.cfg.credit/sharers), minCredit)
	m := protocol.Subscribe{Subscription: p.sub, From: p.from, HasTo: r.cfg.bounded, To: r.cfg.to, Credit: p.window}
	if p.started {
		m.From = protocol.At(p.next)
		if p.stop != protocol.NoStop {
			m.To = protocol.At(p.stop)
		}
	}
	return r.conn.start(newCall(), protocol.OpSubscribe, subscriptionBit|uint64(p.sub), p.handle, "", m.AppendTo(nil))
}

// subscribed takes the answer to SUBSCRIBE. The first one resolves the positions for good.
func (p *part) subscribed(ctx context.Context, k *call) error {
	payload, _, err := k.wait(ctx)
	if err != nil {
		return err
	}
	var reply protocol.SubscribeReply
	if err := reply.Decode(payload); err != nil {
		return err
	}
	if !p.started {
		p.started, p.next, p.stop = true, reply.Start, reply.Stop
	}
	return nil
}
