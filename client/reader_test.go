package client_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/client"
	"github.com/millrace-mq/millrace/client/clienttest"
	"github.com/millrace-mq/millrace/protocol"
)

// reading is a loop over Read on a goroutine of its own.
type reading struct {
	events chan string // "partition@offset=value", or "error: …"; closed at the end
	errs   chan error
}

func startReading(ctx context.Context, c *client.Client, topic string, opts ...client.ReadOption) *reading {
	r := &reading{events: make(chan string, 1000), errs: make(chan error, 100)}
	go func() {
		defer close(r.events)
		for rec, err := range c.Read(ctx, topic, opts...) {
			if err != nil {
				r.errs <- err
				r.events <- "error"
				continue
			}
			r.events <- fmt.Sprintf("%d@%d=%s", rec.Partition, rec.Offset, rec.Value)
		}
	}()
	return r
}

// expect waits for events in order.
func (r *reading) expect(t *testing.T, want ...string) {
	t.Helper()
	for _, w := range want {
		select {
		case e, ok := <-r.events:
			require.True(t, ok, "the loop ended before %s", w)
			require.Equal(t, w, e)
		case <-time.After(patience):
			require.FailNow(t, "nothing came", "instead of %s", w)
		}
	}
}

// ends waits for the end of the loop.
func (r *reading) ends(t *testing.T) {
	t.Helper()
	select {
	case e, ok := <-r.events:
		require.False(t, ok, "%s instead of the end", e)
	case <-time.After(patience):
		require.FailNow(t, "the loop does not end")
	}
}

// read opens a client and a loop of it; conn is the loop's connection, with its partition opened.
func read(t *testing.T, s *clienttest.Script, opts ...client.ReadOption) (*clienttest.Conn, *reading) {
	t.Helper()
	_, c := dial(t, s)
	ctx, cancel := context.WithCancel(context.Background())
	r := startReading(ctx, c, "t", append([]client.ReadOption{client.OfPartition(0)}, opts...)...)
	t.Cleanup(func() {
		cancel()
		for range r.events {
		}
	})
	conn := s.Greet()
	conn.Open(1)
	return conn, r
}

func TestReadGoesOnAfterALostConnectionWithoutGapOrRepetition(t *testing.T) {
	s := clienttest.Listen(t)
	conn, r := read(t, s, client.From(protocol.Last(10)))
	m := conn.Subscribe(protocol.SubscribeReply{Start: 1, Stop: protocol.NoStop, End: 5})
	require.Equal(t, protocol.Last(10), m.From)
	require.False(t, m.HasTo)
	run := clienttest.DeliverRun(m.Subscription, 0, 5, clienttest.Stored(0, "a", "b", "c"), clienttest.Stored(3, "d", "e"))
	conn.WriteSlow(run[:len(run)-10]) // the second frame is cut off
	r.expect(t, "0@1=b", "0@2=c")
	conn.Drop()
	conn = s.Greet()
	conn.Open(1)
	m = conn.Subscribe(protocol.SubscribeReply{Start: 3, Stop: protocol.NoStop, End: 5})
	require.Equal(t, protocol.At(3), m.From)
	conn.Deliver(m.Subscription, protocol.DeliverEnd, 5, clienttest.Stored(0, "a", "b", "c", "d"), clienttest.Stored(4, "e"))
	r.expect(t, "0@3=d", "0@4=e")
}

func TestReadEndsBeforeItsStop(t *testing.T) {
	s := clienttest.Listen(t)
	conn, r := read(t, s, client.Until(protocol.End))
	m := conn.Subscribe(protocol.SubscribeReply{Start: 0, Stop: 3, End: 3})
	require.True(t, m.HasTo)
	require.Equal(t, protocol.End, m.To)
	conn.Deliver(m.Subscription, 0, 3, clienttest.Stored(0, "a"))
	r.expect(t, "0@0=a")
	conn.Drop()
	conn = s.Greet()
	conn.Open(1)
	m = conn.Subscribe(protocol.SubscribeReply{Start: 1, Stop: 3, End: 99})
	require.Equal(t, protocol.At(3), m.To, "the end is resolved once")
	conn.Deliver(m.Subscription, protocol.DeliverDone, 99, clienttest.Stored(1, "b", "c", "d", "e"))
	r.expect(t, "0@1=b", "0@2=c")
	r.ends(t)
	conn.AwaitEnd()
}

func TestReadOfAnEmptyRangeEnds(t *testing.T) {
	s := clienttest.Listen(t)
	conn, r := read(t, s, client.Until(protocol.End))
	conn.Subscribe(protocol.SubscribeReply{Start: 7, Stop: 7, End: 7})
	r.ends(t)
}

func TestReadEndsWhenTheBrokerSaysDone(t *testing.T) {
	s := clienttest.Listen(t)
	conn, r := read(t, s, client.Until(protocol.At(10)))
	m := conn.Subscribe(protocol.SubscribeReply{Start: 0, Stop: 10, End: 10})
	conn.Deliver(m.Subscription, protocol.DeliverDone, 10, clienttest.Stored(0, "a"))
	r.expect(t, "0@0=a")
	r.ends(t)
}

func TestBoundedReadTakesOnePartitionAfterTheOther(t *testing.T) {
	s := clienttest.Listen(t)
	_, c := dial(t, s)
	r := startReading(within(t), c, "t", client.Until(protocol.End))
	conn := s.Greet()
	conn.Open(2) // learns how many there are
	for n := range uint32(2) {
		require.Equal(t, n, conn.Open(2).Partition)
		m := conn.Subscribe(protocol.SubscribeReply{Stop: 1, End: 1})
		conn.Deliver(m.Subscription, protocol.DeliverDone, 1, clienttest.Stored(0, "v"))
		r.expect(t, fmt.Sprintf("%d@0=v", n))
	}
	r.ends(t)
}

func TestFollowedPartitionsComeTogether(t *testing.T) {
	s := clienttest.Listen(t)
	_, c := dial(t, s)
	ctx, cancel := context.WithCancel(context.Background())
	r := startReading(ctx, c, "t", client.CreditBytes(1<<20), client.From(protocol.End))
	conn := s.Greet()
	conn.Open(2)
	conn.Open(2)
	conn.Open(2)
	a := conn.Subscribe(protocol.SubscribeReply{Stop: protocol.NoStop})
	b := conn.Subscribe(protocol.SubscribeReply{Stop: protocol.NoStop})
	require.Equal(t, uint64(1<<19), a.Credit, "the credit is shared")
	conn.Deliver(b.Subscription, 0, 1, clienttest.Stored(0, "b"))
	conn.Deliver(a.Subscription, 0, 1, clienttest.Stored(0, "a"))
	conn.Deliver(b.Subscription, 0, 2, clienttest.Stored(1, "c"))
	r.expect(t, "1@0=b", "0@0=a", "1@1=c")

	conn.Drop() // the topic grew meanwhile
	conn = s.Greet()
	conn.Open(3)
	conn.Open(3)
	conn.Open(3)
	require.Equal(t, uint32(2), conn.Open(3).Partition)
	require.Equal(t, protocol.At(1), conn.Subscribe(protocol.SubscribeReply{Start: 1, Stop: protocol.NoStop}).From)
	require.Equal(t, protocol.At(2), conn.Subscribe(protocol.SubscribeReply{Start: 2, Stop: protocol.NoStop}).From)
	grown := conn.Subscribe(protocol.SubscribeReply{Stop: protocol.NoStop})
	require.Equal(t, protocol.Start, grown.From)
	conn.Deliver(grown.Subscription, 0, 1, clienttest.Stored(0, "new"))
	r.expect(t, "2@0=new")
	cancel()
	r.expect(t, "error")
	require.ErrorIs(t, <-r.errs, context.Canceled)
	r.ends(t)
	conn.AwaitEnd()
}

// flip damages a byte of a frame's records.
func flip(f protocol.Frame) protocol.Frame {
	f[protocol.HeaderSize+protocol.PreludeSize+9] ^= 1
	return f
}

func TestFrameAlteredOnTheWayIsAskedForAgain(t *testing.T) {
	s := clienttest.Listen(t)
	conn, r := read(t, s)
	m := conn.Subscribe(protocol.SubscribeReply{Stop: protocol.NoStop})
	conn.Deliver(m.Subscription, 0, 2, clienttest.Stored(0, "a"), flip(clienttest.Stored(1, "bcd")))
	r.expect(t, "0@0=a")
	conn = s.Greet()
	conn.Open(1)
	m = conn.Subscribe(protocol.SubscribeReply{Start: 1, Stop: protocol.NoStop})
	require.Equal(t, protocol.At(1), m.From)
	conn.Deliver(m.Subscription, 0, 2, clienttest.Stored(1, "bcd"))
	r.expect(t, "0@1=bcd")
}

func TestDamageIsReportedAndCanBeSkipped(t *testing.T) {
	for _, skip := range []bool{false, true} {
		t.Run(fmt.Sprint("skip=", skip), func(t *testing.T) {
			s := clienttest.Listen(t)
			var opts []client.ReadOption
			if skip {
				opts = append(opts, client.SkipCorrupt())
			}
			conn, r := read(t, s, opts...)
			for i := range 2 {
				if i == 1 {
					conn = s.Greet()
					conn.Open(1)
				}
				m := conn.Subscribe(protocol.SubscribeReply{Stop: protocol.NoStop})
				conn.Deliver(m.Subscription, 0, 4, flip(clienttest.Stored(0, "bad", "bad", "bad")), clienttest.Stored(3, "good"))
			}
			r.expect(t, "error")
			err := <-r.errs
			var damage *client.CorruptError
			require.ErrorAs(t, err, &damage)
			require.Equal(t, "t/0 [0, 3)", fmt.Sprintf("%s/%d [%d, %d)", damage.Topic, damage.Partition, damage.From, damage.To))
			require.ErrorIs(t, err, protocol.Corrupt)
			if !skip {
				r.ends(t)
				return
			}
			conn = s.Greet()
			conn.Open(1)
			m := conn.Subscribe(protocol.SubscribeReply{Start: 3, Stop: protocol.NoStop})
			require.Equal(t, protocol.At(3), m.From)
			conn.Deliver(m.Subscription, 0, 4, clienttest.Stored(3, "good"))
			r.expect(t, "0@3=good")
		})
	}
}

func TestDamageThatTheBrokerKnowsIsSkipped(t *testing.T) {
	s := clienttest.Listen(t)
	conn, r := read(t, s, client.SkipCorrupt())
	m, request := conn.AwaitSubscribe()
	conn.Reply(request, &protocol.SubscribeReply{Stop: protocol.NoStop})
	conn.Deliver(m.Subscription, 0, 10, clienttest.Stored(0, "a"))
	conn.Refuse(request, &protocol.Error{Code: protocol.Corrupt, From: 1, To: 8})
	r.expect(t, "0@0=a", "error")
	var damage *client.CorruptError
	require.ErrorAs(t, <-r.errs, &damage)
	require.Equal(t, []uint64{1, 8}, []uint64{damage.From, damage.To})
	conn = s.Greet()
	conn.Open(1)
	require.Equal(t, protocol.At(8), conn.Subscribe(protocol.SubscribeReply{Start: 8, Stop: protocol.NoStop}).From)
}

func TestMissingRecordsAreNotPassedOver(t *testing.T) {
	s := clienttest.Listen(t)
	conn, r := read(t, s, client.SkipCorrupt())
	m := conn.Subscribe(protocol.SubscribeReply{Stop: protocol.NoStop})
	conn.Deliver(m.Subscription, 0, 10, clienttest.Stored(0, "a"), clienttest.Stored(5, "b"), clienttest.Stored(0, "a"))
	r.expect(t, "0@0=a", "error", "0@5=b")
	require.ErrorContains(t, <-r.errs, "[1, 5)")
}

func TestFinalErrorsOfASubscriptionEndTheLoop(t *testing.T) {
	for _, e := range []*protocol.Error{
		{Code: protocol.OffsetOutOfRange, From: 100, To: 200},
		{Code: protocol.LostSuffix, To: 50, Epoch: 2},
	} {
		t.Run(e.Code.Name(), func(t *testing.T) {
			s := clienttest.Listen(t)
			conn, r := read(t, s, client.From(protocol.At(7)))
			conn.Refuse(conn.Request(protocol.OpSubscribe), e)
			r.expect(t, "error")
			err := <-r.errs
			require.ErrorIs(t, err, e.Code)
			var refused *protocol.Error
			require.ErrorAs(t, err, &refused)
			require.Equal(t, e.To, refused.To)
			r.ends(t)
			conn.AwaitEnd()
		})
		t.Run("later "+e.Code.Name(), func(t *testing.T) {
			s := clienttest.Listen(t)
			conn, r := read(t, s)
			_, request := conn.AwaitSubscribe()
			conn.Reply(request, &protocol.SubscribeReply{Stop: protocol.NoStop})
			conn.Refuse(request, e)
			r.expect(t, "error")
			require.ErrorIs(t, <-r.errs, e.Code)
			r.ends(t)
		})
	}
}

func TestPassingRefusalsAreRetriedInside(t *testing.T) {
	s := clienttest.Listen(t)
	conn, r := read(t, s)
	conn.Refuse(conn.Request(protocol.OpSubscribe), &protocol.Error{Code: protocol.Throttled})
	conn = s.Greet()
	conn.Refuse(conn.Request(protocol.OpOpen), &protocol.Error{Code: protocol.ShuttingDown})
	conn = s.Greet()
	conn.Open(1)
	m, request := conn.AwaitSubscribe()
	conn.Reply(request, &protocol.SubscribeReply{Stop: protocol.NoStop})
	conn.Deliver(m.Subscription, 0, 1, clienttest.Stored(0, "a"))
	r.expect(t, "0@0=a")
	conn.Refuse(request, &protocol.Error{Code: protocol.NotLeader})
	conn = s.Greet()
	conn.Open(1)
	m = conn.Subscribe(protocol.SubscribeReply{Start: 1, Stop: protocol.NoStop})
	conn.GoAway(protocol.ShuttingDown, time.Hour)
	conn.AwaitEnd()
	conn = s.Greet()
	conn.Open(1)
	m = conn.Subscribe(protocol.SubscribeReply{Start: 1, Stop: protocol.NoStop})
	conn.Deliver(m.Subscription, 0, 2, clienttest.Stored(1, "b"))
	r.expect(t, "0@1=b")
}

func TestHostileBytesOnlyInterruptARead(t *testing.T) {
	cases := hostile()
	delete(cases, "a run for nobody")
	cases["a frame over the end of its run"] = clienttest.DeliverRun(1, 0, 1, clienttest.Stored(0, "a"))[:protocol.HeaderSize-1]
	cases["a frame over the end of its run"] = append(cases["a frame over the end of its run"], 1)
	cases["a frame over the end of its run"] = append(cases["a frame over the end of its run"], clienttest.Stored(0, "abc")...)
	for name, bytes := range cases {
		t.Run(name, func(t *testing.T) {
			s := clienttest.Listen(t)
			conn, r := read(t, s)
			conn.Subscribe(protocol.SubscribeReply{Stop: protocol.NoStop})
			before := allocated()
			conn.Write(bytes)
			conn.AwaitEnd()
			require.Less(t, allocated()-before, uint64(4<<20))
			conn = s.Greet()
			conn.Open(1)
			m := conn.Subscribe(protocol.SubscribeReply{Stop: protocol.NoStop})
			conn.Deliver(m.Subscription, 0, 1, clienttest.Stored(0, "a"))
			r.expect(t, "0@0=a")
		})
	}
}

func TestAnnouncedFrameTakesNoMemoryBeforeItsBytesCome(t *testing.T) {
	s := clienttest.Listen(t)
	conn, _ := read(t, s)
	conn.Subscribe(protocol.SubscribeReply{Stop: protocol.NoStop})
	var run, data protocol.Header
	run.PutDeliver(1, 0, 0, 1, 50<<20)
	data[0] = byte(protocol.MagicData)
	data.SetSizes(0, 49<<20)
	data.SetRecordCount(1)
	before := allocated()
	conn.Write(run[:], data[:], make([]byte, 100_000))
	conn.Drop()
	s.Greet() // everything was read, and the connection given up
	require.Less(t, allocated()-before, uint64(8<<20))
}

func TestCreditIsGivenBackByHalves(t *testing.T) {
	s := clienttest.Listen(t)
	conn, r := read(t, s, client.CreditBytes(64<<10))
	m := conn.Subscribe(protocol.SubscribeReply{Stop: protocol.NoStop})
	require.Equal(t, uint64(64<<10), m.Credit)
	f := clienttest.Stored(0, strings.Repeat("v", 20_000))
	conn.Deliver(m.Subscription, 0, 1, f)
	g := clienttest.Stored(1, strings.Repeat("v", 20_000))
	conn.Deliver(m.Subscription, 0, 2, g)
	r.expect(t, "0@0="+strings.Repeat("v", 20_000), "0@1="+strings.Repeat("v", 20_000))
	credit := protocol.HeaderOf(conn.Next())
	require.Equal(t, protocol.MagicCredit, credit.Magic())
	require.Equal(t, uint32(len(f)+len(g)), credit.RecordCount())
	require.Equal(t, m.Subscription, credit.Subscription())
}

func TestOpaqueFramesAreOneRecordAndControlRecordsNone(t *testing.T) {
	s := clienttest.Listen(t)
	conn, r := read(t, s)
	m := conn.Subscribe(protocol.SubscribeReply{Start: 2, Stop: protocol.NoStop})
	opaque, err := protocol.AppendOpaque(nil, []byte("key"), []byte("opaque body"), 4)
	require.NoError(t, err)
	stamp := protocol.Stamp{Timestamp: 1, Offset: 0, Index: 1, Term: 1}
	stamp.Apply(opaque)
	control := protocol.Frame(protocol.AppendControl(nil, protocol.ControlNoop, nil, nil))
	stamp = protocol.Stamp{Timestamp: 1, Offset: 4, Index: 2, Term: 1}
	stamp.Apply(control)
	conn.Deliver(m.Subscription, 0, 5, opaque, control, clienttest.Stored(4, "plain"))
	r.expect(t, "0@0=opaque body", "0@4=plain")
}

func TestReadOfWhatItCannotDecodeSaysSo(t *testing.T) {
	s := clienttest.Listen(t)
	conn, r := read(t, s)
	m := conn.Subscribe(protocol.SubscribeReply{Stop: protocol.NoStop})
	b := protocol.Batch{Prelude: protocol.Prelude{Codec: 3}}
	require.NoError(t, b.Add(nil, []byte("compressed"), nil))
	conn.Deliver(m.Subscription, 0, 1, b.Seal())
	r.expect(t, "error")
	require.ErrorIs(t, <-r.errs, protocol.Unsupported)
	r.ends(t)
}

func TestReadCreatesNoTopic(t *testing.T) {
	_, c := memory(t, clienttest.MemoryOptions{})
	for _, err := range c.Read(within(t), "typo") {
		require.ErrorIs(t, err, protocol.UnknownTopic)
	}
	for _, err := range c.Read(within(t), "../typo") {
		require.ErrorIs(t, err, protocol.BadName)
	}
	for _, err := range c.Read(within(t), "t", client.CreditBytes(1)) {
		require.ErrorIs(t, err, protocol.BadRequest)
	}
	for range c.Topics(within(t)) {
		require.FailNow(t, "there is a topic")
	}
}

func TestSlowLoopDelaysNothingElse(t *testing.T) {
	_, c := stream(t, 100)
	n := 0
	for _, err := range c.Read(within(t), "t", client.Until(protocol.End)) {
		require.NoError(t, err)
		if n++; n == 1 { // the loop stands still
			p := producer(t, c)
			_, err := p.Send(within(t), message("meanwhile"))
			require.NoError(t, err)
			_, err = c.Ping(within(t))
			require.NoError(t, err)
		}
	}
	require.Equal(t, 10_000, n)
}

func TestSilentPeerOfAReaderIsGivenUp(t *testing.T) {
	s := clienttest.Listen(t)
	_, c := dial(t, s)
	s.Hello.PingMillis = 200
	ctx, cancel := context.WithCancel(context.Background())
	r := startReading(ctx, c, "t", client.OfPartition(0))
	for range 2 {
		conn := s.Greet()
		conn.Pongs = false
		conn.Open(1)
		conn.Subscribe(protocol.SubscribeReply{Stop: protocol.NoStop})
		conn.AwaitEnd()
	}
	cancel()
	r.expect(t, "error")
	r.ends(t)
}

func TestBrokenOffLoopsEndTheirConnections(t *testing.T) {
	_, c := stream(t, 100)
	for range 20 {
		for _, err := range c.Read(within(t), "t") {
			require.NoError(t, err)
			break
		}
	}
	n := 0
	for _, err := range c.Read(within(t), "t", client.MaxRecords(150)) {
		require.NoError(t, err)
		n++
	}
	require.Equal(t, 150, n)
	require.Eventually(t, func() bool { return strings.Count(goroutines(), "(*conn).read(") == 1 }, patience, time.Millisecond)
}

func TestCloseEndsLoops(t *testing.T) {
	s := clienttest.Listen(t)
	_, c := dial(t, s)
	r := startReading(context.Background(), c, "t", client.OfPartition(0))
	conn := s.Greet()
	conn.Open(1)
	conn.Subscribe(protocol.SubscribeReply{Stop: protocol.NoStop})
	require.NoError(t, c.Close())
	r.expect(t, "error")
	require.ErrorIs(t, <-r.errs, client.ErrClosed)
	r.ends(t)
	for _, err := range c.Read(context.Background(), "t") {
		require.ErrorIs(t, err, client.ErrClosed)
	}
}

func TestRecordsStayWhenCloned(t *testing.T) {
	_, c := memory(t, clienttest.MemoryOptions{})
	p := producer(t, c)
	for i := range 100 {
		_, err := p.Send(within(t), client.Message{Topic: "t", Key: []byte{byte(i)}, Value: []byte(fmt.Sprint(i))})
		require.NoError(t, err)
	}
	var kept []*client.Record
	for rec, err := range c.Read(within(t), "t", client.Until(protocol.End)) {
		require.NoError(t, err)
		kept = append(kept, rec.Clone())
	}
	for i, rec := range kept {
		require.Equal(t, fmt.Sprint(i), string(rec.Value))
		require.Equal(t, []byte{byte(i)}, rec.Key)
		require.Equal(t, uint64(i), rec.Offset)
		require.Equal(t, "t", rec.Topic)
		require.Equal(t, int64(1), rec.Time().UnixNano())
	}
}

func TestFramesAreWhole(t *testing.T) {
	_, c := stream(t, 10)
	var spans []string
	for f, err := range c.Frames(within(t), "t", client.From(protocol.At(150)), client.Until(protocol.At(420))) {
		require.NoError(t, err)
		base, end := f.Span()
		spans = append(spans, fmt.Sprintf("%d-%d", base, end))
	}
	require.Equal(t, []string{"100-200", "200-300", "300-400", "400-500"}, spans)
	n := 0
	for _, err := range c.Frames(within(t), "t", client.MaxRecords(250)) {
		require.NoError(t, err)
		n++
	}
	require.Equal(t, 3, n)
}

func TestReadSurvivesDroppedConnections(t *testing.T) {
	m, c := stream(t, 2000)
	next := uint64(0)
	for rec, err := range c.Read(within(t), "t", client.Until(protocol.End), client.CreditBytes(64<<10)) {
		require.NoError(t, err)
		require.Equal(t, next, rec.Offset)
		if next++; next%20_000 == 0 {
			m.DropConnections()
		}
	}
	require.Equal(t, uint64(200_000), next)
}

// TestReadAllocatesNothingPerRecord reads a stream whose bytes were made before: what is
// allocated is the client's.
func TestReadAllocatesNothingPerRecord(t *testing.T) {
	s := clienttest.Listen(t)
	conn, c := dial(t, s)
	_ = conn
	const frames, records = 200, 100
	var stored []protocol.Frame
	for i := range frames {
		values := make([]string, records)
		stored = append(stored, clienttest.Stored(uint64(i*records), values...))
	}
	start := make(chan uint64)
	counted := make(chan uint64, 1)
	go func() {
		n := 0
		for _, err := range c.Read(context.Background(), "t", client.Until(protocol.At(frames*records))) {
			if err != nil {
				break
			}
			if n++; n == records {
				start <- allocations()
			}
		}
		counted <- allocations()
	}()
	reader := s.Greet()
	reader.Open(1)
	reader.Open(1)
	m := reader.Subscribe(protocol.SubscribeReply{Stop: frames * records, End: frames * records})
	run := clienttest.DeliverRun(m.Subscription, protocol.DeliverDone, frames*records, stored...)
	first := len(stored[0]) + protocol.HeaderSize
	reader.Write(run[:first])
	before := <-start
	reader.Write(run[first:])
	require.Less(t, <-counted-before, uint64(frames*records/100))
}
