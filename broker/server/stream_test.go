package server_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/broker"
	"github.com/millrace-mq/millrace/broker/brokertest"
	"github.com/millrace-mq/millrace/protocol"
)

// clocked is a broker whose records get the times that the test sets.
func clocked(t *testing.T) (*brokertest.Broker, *int64, *sync.Mutex) {
	var mu sync.Mutex
	now := int64(1_000_000)
	b := brokertest.Start(t, brokertest.Options{Broker: func(o *broker.Options) {
		o.Now = func() int64 { mu.Lock(); defer mu.Unlock(); return now }
	}})
	return b, &now, &mu
}

func TestEveryKindOfPositionIsResolved(t *testing.T) {
	b, now, mu := clocked(t)
	p := connect(t, b)
	o := p.open("t", 0)
	for i := range 10 {
		mu.Lock()
		*now = int64(i+1) * 1_000_000
		mu.Unlock()
		p.publish(o.Handle, protocol.LevelTopic, fmt.Sprint(2*i), fmt.Sprint(2*i+1))
	}
	for i, c := range []struct {
		from  protocol.Position
		start uint64
	}{
		{protocol.Start, 0}, {protocol.End, 20}, {protocol.At(0), 0}, {protocol.At(7), 7}, {protocol.At(20), 20},
		{protocol.Last(0), 20}, {protocol.Last(3), 17}, {protocol.Last(20), 0}, {protocol.Last(1 << 63), 0},
		{protocol.Position{Kind: protocol.PositionTime, Value: 0}, 0},
		{protocol.Position{Kind: protocol.PositionTime, Value: 4_000_000}, 6},
		{protocol.Position{Kind: protocol.PositionTime, Value: 4_000_001}, 8},
		{protocol.Position{Kind: protocol.PositionTime, Value: 1 << 63}, 20},
	} {
		r := p.subscribe(o.Handle, uint32(i), protocol.Subscribe{From: c.from, HasTo: true, To: protocol.End, Credit: 1 << 20})
		require.Equal(t, c.start, r.Start, c.from)
		require.Equal(t, uint64(20), r.Stop)
		d := p.deliver()
		list := d.records(r.Start)
		require.Len(t, list, int(20-c.start), c.from)
		if len(list) > 0 {
			require.Equal(t, fmt.Sprintf("%d:%d", c.start, c.start), list[0])
		}
		require.NotZero(t, d.flags&protocol.DeliverDone)
		var reply protocol.OffsetsReply
		q := protocol.Offsets{Items: []protocol.OffsetsItem{{Partition: 0, Position: c.from}}}
		require.NoError(t, reply.Decode(p.must(p.call(protocol.OpOffsets, 0, 0, "t", &q))))
		require.Equal(t, protocol.PartitionOffsets{Offset: c.start, End: 20, Durable: 20, Epoch: r.Epoch}, reply.Items[0])
	}
	e := p.refused(p.call(protocol.OpSubscribe, 0, o.Handle, "", &protocol.Subscribe{Subscription: 99, From: protocol.At(21), Credit: 1}))
	require.Equal(t, protocol.OffsetOutOfRange, e.Code)
	require.Equal(t, [2]uint64{0, 20}, [2]uint64{e.From, e.To})
	q := protocol.Offsets{Items: []protocol.OffsetsItem{{Partition: 0, Position: protocol.At(21)}, {Partition: 5, Position: protocol.Start}}}
	var reply protocol.OffsetsReply
	require.NoError(t, reply.Decode(p.must(p.call(protocol.OpOffsets, 0, 0, "t", &q))))
	require.Equal(t, protocol.OffsetOutOfRange, reply.Items[0].Status)
	require.Equal(t, protocol.UnknownPartition, reply.Items[1].Status)
}

func TestRangesEndBeforeTheirStop(t *testing.T) {
	b := brokertest.Start(t)
	p := connect(t, b)
	o := p.open("t", 0)
	for i := range 10 {
		p.publish(o.Handle, protocol.LevelTopic, fmt.Sprint(2*i), fmt.Sprint(2*i+1))
	}
	for i, c := range []struct{ from, to, last uint64 }{
		{0, 1, 1}, {0, 2, 1}, {0, 3, 3}, {5, 9, 9}, {4, 4, 0}, {9, 4, 0}, {19, 20, 19},
	} {
		p.subscribe(o.Handle, uint32(i), protocol.Subscribe{From: protocol.At(c.from), HasTo: true, To: protocol.At(c.to), Credit: 1 << 20})
		d := p.deliver()
		require.NotZero(t, d.flags&protocol.DeliverDone, c)
		if c.from >= c.to {
			require.Zero(t, d.size)
			continue
		}
		list := d.records(c.from)
		require.Equal(t, fmt.Sprintf("%d:%d", c.last, c.last), list[len(list)-1], "whole batches, none that begins at the stop or behind")
	}
	// A stop in the future is waited for.
	p.subscribe(o.Handle, 50, protocol.Subscribe{From: protocol.End, HasTo: true, To: protocol.At(22), Credit: 1 << 20})
	q := connect(t, b)
	h := q.open("t", 0)
	q.publish(h.Handle, protocol.LevelTopic, "20")
	d := p.deliver()
	require.Equal(t, protocol.DeliverEnd, d.flags)
	q.publish(h.Handle, protocol.LevelTopic, "21")
	d = p.deliver()
	require.Equal(t, protocol.DeliverEnd|protocol.DeliverDone, d.flags)
	q.publish(h.Handle, protocol.LevelTopic, "22")
	p.must(p.call(protocol.OpStats, 0, 0, "", nil)) // nothing was delivered before this answer
}

func TestFollowersOfTheTailGetEveryRecordOnce(t *testing.T) {
	for _, level := range []protocol.Level{protocol.LevelWritten, protocol.LevelDurable} {
		t.Run(level.String(), func(t *testing.T) {
			b := brokertest.Start(t)
			p := connect(t, b)
			p.create("t", floor(level))
			o := p.open("t", 0)
			const followers, records = 8, 300
			var followed sync.WaitGroup
			for range followers {
				c := connect(t, b)
				h := c.open("t", 0)
				c.subscribe(h.Handle, 1, protocol.Subscribe{From: protocol.Start, Credit: 1 << 40})
				followed.Add(1)
				go func() {
					defer followed.Done()
					for i := 0; i < records; {
						f, err := c.r.Next()
						if err != nil {
							t.Error(err)
							return
						}
						if protocol.HeaderOf(f).Magic() != protocol.MagicData {
							continue
						}
						it := protocol.Records(f)
						for it.Next() {
							if it.Record.Offset != uint64(i) || string(it.Record.Value) != fmt.Sprint(i) {
								t.Errorf("record %d: offset %d value %s", i, it.Record.Offset, it.Record.Value)
								return
							}
							i++
						}
					}
				}()
			}
			for i := range records {
				p.publish(o.Handle, protocol.LevelTopic, fmt.Sprint(i))
			}
			followed.Wait()
		})
	}
}

func TestLongPollWaitsForOneRun(t *testing.T) {
	b := brokertest.Start(t)
	p := connect(t, b)
	o := p.open("t", 0)
	fetch := func(id uint32, timeout uint32) {
		m := protocol.Subscribe{Subscription: id, Flags: protocol.SubscribeOneShot, From: protocol.Start, Credit: 1 << 20}
		n := p.send(protocol.OpSubscribe, 0, timeout, o.Handle, "", &m)
		p.must(p.response(protocol.OpSubscribe, n))
	}
	fetch(1, 0)
	d := p.deliver()
	require.Zero(t, d.size, "nothing there and no time to wait")
	require.Equal(t, protocol.DeliverEnd|protocol.DeliverDone, d.flags)

	start := time.Now()
	fetch(2, 50)
	d = p.deliver()
	require.Zero(t, d.size)
	require.Equal(t, protocol.DeliverEnd|protocol.DeliverDone, d.flags)
	require.GreaterOrEqual(t, time.Since(start), 50*time.Millisecond)

	fetch(3, 60_000)
	q := connect(t, b)
	h := q.open("t", 0)
	q.publish(h.Handle, protocol.LevelTopic, "a")
	d = p.deliver()
	require.Equal(t, []string{"0:a"}, d.records(0))
	require.Equal(t, protocol.DeliverEnd|protocol.DeliverDone, d.flags)
	q.publish(h.Handle, protocol.LevelTopic, "b")
	fetch(3, 60_000) // the id is free again, and what is there comes at once
	d = p.deliver()
	require.Equal(t, []string{"0:a", "1:b"}, d.records(0))
	require.Eventually(t, func() bool { return stat(b, "subscriptions") == 0 }, patience, tick)
}

func TestCreditIsRespected(t *testing.T) {
	b := brokertest.Start(t)
	p := connect(t, b)
	o := p.open("t", 0)
	frame := sized(1, 1000)
	for range 100 {
		p.write(run(protocol.LevelTopic, o.Handle, 1, frame))
		_, refused := p.ack(o.Handle)
		require.Nil(t, refused)
	}
	p.subscribe(o.Handle, 1, protocol.Subscribe{From: protocol.Start, Credit: uint64(3 * len(frame))})
	d := p.deliver()
	require.Len(t, d.frames, 3)
	require.Zero(t, d.flags)
	p.must(p.call(protocol.OpStats, 0, 0, "", nil)) // the next frame is this answer: no credit, no run
	var more protocol.Header
	more.PutCredit(1, uint32(len(frame)/2))
	p.write(more[:])
	d = p.deliver()
	require.Len(t, d.frames, 1, "one whole frame although the credit is less")
	p.write(more[:]) // pays for the rest of that frame only
	p.must(p.call(protocol.OpStats, 0, 0, "", nil))
	more.PutCredit(1, uint32(200*len(frame)))
	p.write(more[:])
	n := 4
	for n < 100 {
		d = p.deliver()
		n += len(d.frames)
	}
	require.Equal(t, 100, n)
	require.Equal(t, protocol.DeliverEnd, d.flags)
}

func TestNothingIsDeliveredAfterUnsubscribe(t *testing.T) {
	b := brokertest.Start(t)
	p := connect(t, b)
	o := p.open("t", 0)
	p.subscribe(o.Handle, 1, protocol.Subscribe{From: protocol.Start, Credit: 1 << 20})
	p.must(p.call(protocol.OpUnsubscribe, 0, 0, "", &protocol.Unsubscribe{Subscription: 1}))
	p.publish(o.Handle, protocol.LevelTopic, "a")
	p.must(p.call(protocol.OpUnsubscribe, 0, 0, "", &protocol.Unsubscribe{Subscription: 1}))
	part := partition(t, b, "t", 0)
	require.Zero(t, part.Waiters())

	p.subscribe(o.Handle, 1, protocol.Subscribe{From: protocol.End, Credit: 1 << 20})
	p.must(p.call(protocol.OpClose, 0, o.Handle, "", nil))
	require.Zero(t, part.Waiters(), "CLOSE ends the handle's subscriptions")
}

func partition(t testing.TB, b *brokertest.Broker, topic string, n uint32) *broker.Partition {
	t.Helper()
	tp, err := b.Broker.Topic(topic)
	require.NoError(t, err)
	part, err := tp.Partition(n)
	require.NoError(t, err)
	return part
}

func TestSubscriptionsAreBounded(t *testing.T) {
	b := brokertest.Start(t)
	p := connect(t, b)
	o := p.open("t", 0)
	for i := range protocol.MaxSubscriptions {
		p.subscribe(o.Handle, uint32(i), protocol.Subscribe{From: protocol.End, Credit: 1})
	}
	e := p.refused(p.call(protocol.OpSubscribe, 0, o.Handle, "", &protocol.Subscribe{Subscription: 5000, From: protocol.End}))
	require.Equal(t, protocol.Quota, e.Code)
	require.Equal(t, "limits.subscriptions", e.Setting)
	p.must(p.call(protocol.OpUnsubscribe, 0, 0, "", &protocol.Unsubscribe{Subscription: 7}))
	e = p.refused(p.call(protocol.OpSubscribe, 0, o.Handle, "", &protocol.Subscribe{Subscription: 8, From: protocol.End}))
	require.Equal(t, protocol.Exists, e.Code)
	p.subscribe(o.Handle, 7, protocol.Subscribe{From: protocol.End, Credit: 1})
	// All of them are served: one record, a thousand runs.
	p.write(run(protocol.LevelTopic, o.Handle, 1, batch("v")))
	seen := map[uint32]bool{}
	for len(seen) < protocol.MaxSubscriptions {
		if h, _ := p.frame(); h.Magic() == protocol.MagicDeliver {
			d := p.runOf(h)
			require.False(t, seen[d.sub])
			seen[d.sub] = true
		}
	}
}

func TestWaitingConsumersLeaveWhenTheirClientsLeave(t *testing.T) {
	b := brokertest.Start(t)
	p := connect(t, b)
	p.open("t", 0)
	base := stat(b, "goroutines") // Eventually itself adds up to two
	part := partition(t, b, "t", 0)
	var clients []*peer
	for range 50 {
		c := connect(t, b)
		o := c.open("t", 0)
		c.subscribe(o.Handle, 1, protocol.Subscribe{From: protocol.End, Credit: 1})
		m := protocol.Subscribe{Subscription: 2, Flags: protocol.SubscribeOneShot, From: protocol.End, Credit: 1}
		c.must(c.response(protocol.OpSubscribe, c.send(protocol.OpSubscribe, 0, 60_000, o.Handle, "", &m)))
		clients = append(clients, c)
	}
	require.Eventually(t, func() bool { return part.Waiters() == 100 }, patience, tick)
	require.Eventually(t, func() bool { return stat(b, "goroutines") <= base+52 }, patience, tick, "one goroutine for each idle connection")
	for _, c := range clients {
		require.NoError(t, c.nc.Close())
	}
	require.Eventually(t, func() bool { return part.Waiters() == 0 && stat(b, "subscriptions") == 0 }, patience, tick)
	require.Eventually(t, func() bool { return stat(b, "goroutines") <= base+2 && stat(b, "connections") == 1 }, patience, tick)
}

func TestSubscriptionsEndWhenTheirTopicIsDeleted(t *testing.T) {
	b := brokertest.Start(t)
	p := connect(t, b)
	o := p.open("t", 0)
	m := protocol.Subscribe{Subscription: 1, From: protocol.End, Credit: 1}
	id := p.send(protocol.OpSubscribe, 0, 0, o.Handle, "", &m)
	p.must(p.response(protocol.OpSubscribe, id))
	admin := connect(t, b)
	admin.must(admin.call(protocol.OpTopicDelete, 0, 0, "t", nil))
	e := p.refused(p.response(protocol.OpSubscribe, id))
	require.Equal(t, protocol.UnknownTopic, e.Code)
	p.write(run(protocol.LevelTopic, o.Handle, 1, batch("v")))
	_, refused := p.ack(o.Handle)
	require.ErrorIs(t, refused, protocol.UnknownTopic)
	e = p.refused(p.call(protocol.OpSubscribe, 0, o.Handle, "", &m))
	require.Equal(t, protocol.UnknownTopic, e.Code)
}
