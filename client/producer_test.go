package client_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/client"
	"github.com/millrace-mq/millrace/client/clienttest"
	"github.com/millrace-mq/millrace/protocol"
)

// ledger takes the outcomes of messages by name.
type ledger struct {
	mu    sync.Mutex
	order []string
	acks  map[string]client.Ack
	errs  map[string]error
	calls map[string]int
	news  chan struct{}
}

func newLedger() *ledger {
	return &ledger{acks: map[string]client.Ack{}, errs: map[string]error{}, calls: map[string]int{}, news: make(chan struct{}, 1<<20)}
}

// of returns the callback of a message.
func (l *ledger) of(name string) func(client.Ack, error) {
	return func(a client.Ack, err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.order = append(l.order, name)
		l.acks[name], l.errs[name] = a, err
		l.calls[name]++
		l.news <- struct{}{}
	}
}

// await waits for the outcomes of n messages, each told once.
func (l *ledger) await(t testing.TB, n int) {
	t.Helper()
	for range n {
		select {
		case <-l.news:
		case <-time.After(patience):
			require.FailNow(t, "callbacks are missing", "%d of %d, stacks:\n%s", len(l.order), n, goroutines())
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, n := range l.calls {
		require.Equal(t, 1, n, "callbacks of %s", name)
	}
}

// large is a message that makes a run of its own although others are in flight.
func large(name string) client.Message { return message(name + strings.Repeat("x", 70_000)) }

func names(r clienttest.Run) (list []string) {
	for _, v := range r.Values() {
		list = append(list, strings.TrimRight(v, "x"))
	}
	return list
}

// dial opens a client while the test plays the broker.
func dial(t *testing.T, s *clienttest.Script, opts ...client.Option) (*clienttest.Conn, *client.Client) {
	t.Helper()
	type result struct {
		c   *client.Client
		err error
	}
	opts = append([]client.Option{client.Backoff(time.Millisecond, 10*time.Millisecond)}, opts...)
	opened := make(chan result, 1)
	go func() {
		c, err := client.Open(context.Background(), s.Addr(), opts...)
		opened <- result{c, err}
	}()
	conn := s.Greet()
	r := <-opened
	require.NoError(t, r.err)
	t.Cleanup(func() { end(t, r.c) })
	return conn, r.c
}

func TestMessagesGatherWhileARunIsInFlight(t *testing.T) {
	s := clienttest.Listen(t)
	conn, c := dial(t, s)
	p, l := producer(t, c), newLedger()
	require.NoError(t, p.Async(message("a"), l.of("a")))
	conn.Open(1)
	a := conn.Run()
	for _, v := range []string{"b", "c", "d"} {
		require.NoError(t, p.Async(message(v), l.of(v)))
	}
	conn.Ack(a, 0)
	rest := conn.Run()
	require.Equal(t, []string{"b", "c", "d"}, names(rest))
	require.Len(t, rest.Frames, 1)
	conn.Ack(rest, 1)
	l.await(t, 4)
	require.Equal(t, []string{"a", "b", "c", "d"}, l.order)
	require.Equal(t, client.Ack{Topic: "t", Partition: 0, Offset: 3, Level: protocol.LevelDurable}, l.acks["d"])
}

func TestLostConnectionResendsInOrder(t *testing.T) {
	s := clienttest.Listen(t)
	conn, c := dial(t, s)
	p, l := producer(t, c), newLedger()
	require.NoError(t, p.Async(large("a"), l.of("a")))
	conn.Open(1)
	a := conn.Run()
	require.NoError(t, p.Async(large("b"), l.of("b")))
	require.NoError(t, p.Async(large("c"), l.of("c")))
	conn.Run()
	conn.Ack(a, 0)
	l.await(t, 1)
	conn.Drop()
	require.NoError(t, p.Async(message("d"), l.of("d")))
	conn = s.Greet()
	conn.Open(1)
	var got []string
	for at := uint64(1); len(got) < 3; {
		r := conn.Run()
		got = append(got, names(r)...)
		conn.Ack(r, at)
		at += uint64(r.Records)
	}
	require.Equal(t, []string{"b", "c", "d"}, got)
	l.await(t, 3)
	require.Equal(t, []string{"a", "b", "c", "d"}, l.order)
	require.Equal(t, uint64(3), l.acks["d"].Offset)
}

// TestRefusalInAPipelineKeepsOrder: with four runs in flight the second and those behind it are
// refused; nothing new goes out before all are answered, and then they go in their order.
func TestRefusalInAPipelineKeepsOrder(t *testing.T) {
	for _, code := range []protocol.Code{protocol.Throttled, protocol.NoSpace, protocol.ShuttingDown, protocol.BadChecksum} {
		t.Run(code.Name(), func(t *testing.T) { refuseInAPipeline(t, code) })
	}
}

func refuseInAPipeline(t *testing.T, code protocol.Code) {
	s := clienttest.Listen(t)
	conn, c := dial(t, s)
	p, l := producer(t, c, client.BatchBytes(64<<10)), newLedger() // each message is a batch
	var runs []clienttest.Run
	for i, v := range []string{"a", "b", "c", "d"} {
		require.NoError(t, p.Async(large(v), l.of(v)))
		if i == 0 {
			conn.Open(1)
		}
		runs = append(runs, conn.Run())
	}
	conn.Ack(runs[0], 0)
	conn.RefuseRun(runs[1], &protocol.Error{Code: code})
	settle(t, conn, c)
	require.NoError(t, p.Async(large("e"), l.of("e")))
	conn.RefuseRun(runs[2], &protocol.Error{Code: code})
	conn.RefuseRun(runs[3], &protocol.Error{Code: code})
	var again []string
	for len(again) < 4 {
		r := conn.Run()
		conn.Ack(r, uint64(1+len(again)))
		again = append(again, names(r)...)
	}
	require.Equal(t, []string{"b", "c", "d", "e"}, again)
	l.await(t, 5)
	require.Equal(t, []string{"a", "b", "c", "d", "e"}, l.order)
}

// settle returns when the client has taken in what was sent to it so far.
func settle(t *testing.T, conn *clienttest.Conn, c *client.Client) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := c.Stats(context.Background())
		done <- err
	}()
	conn.Reply(conn.Request(protocol.OpStats), &protocol.Stats{})
	require.NoError(t, <-done)
}

func TestRefusedChecksumIsSentOnceMore(t *testing.T) {
	s := clienttest.Listen(t)
	conn, c := dial(t, s)
	p, l := producer(t, c), newLedger()
	require.NoError(t, p.Async(message("a"), l.of("a")))
	conn.Open(1)
	conn.RefuseRun(conn.Run(), &protocol.Error{Code: protocol.BadChecksum})
	conn.RefuseRun(conn.Run(), &protocol.Error{Code: protocol.BadChecksum})
	l.await(t, 1)
	require.ErrorIs(t, l.errs["a"], protocol.BadChecksum)
}

func TestFinalRefusalIsReported(t *testing.T) {
	s := clienttest.Listen(t)
	conn, c := dial(t, s)
	p, l := producer(t, c), newLedger()
	require.NoError(t, p.Async(message("a"), l.of("a")))
	conn.Open(1)
	conn.RefuseRun(conn.Run(), &protocol.Error{Code: protocol.ReadOnly, Detail: "t/0 is read-only"})
	l.await(t, 1)
	require.ErrorIs(t, l.errs["a"], protocol.ReadOnly)
	require.ErrorContains(t, l.errs["a"], "t/0 is read-only")
	require.NoError(t, p.Async(message("b"), l.of("b")))
	conn.Ack(conn.Run(), 0)
	l.await(t, 1)
	require.NoError(t, l.errs["b"])
}

// TestOneBadFrameDoesNotFailItsRun: a run of several frames is refused whole; the frames are
// sent again alone, and only the guilty one fails.
func TestOneBadFrameDoesNotFailItsRun(t *testing.T) {
	s := clienttest.Listen(t)
	conn, c := dial(t, s)
	p, l := producer(t, c, client.BatchRecords(1)), newLedger()
	require.NoError(t, p.Async(message("first"), l.of("first")))
	conn.Open(1)
	first := conn.Run()
	for _, v := range []string{"a", "b", "c"} {
		require.NoError(t, p.Async(message(v), l.of(v)))
	}
	conn.Ack(first, 0)
	run := conn.Run()
	require.Len(t, run.Frames, 3)
	conn.RefuseRun(run, &protocol.Error{Code: protocol.TooLarge})
	for _, want := range []string{"a", "b", "c"} {
		r := conn.Run()
		require.Equal(t, []string{want}, names(r))
		if want == "b" {
			conn.RefuseRun(r, &protocol.Error{Code: protocol.TooLarge})
		} else {
			conn.Ack(r, 1)
		}
	}
	l.await(t, 4)
	require.Equal(t, []string{"first", "a", "b", "c"}, l.order)
	require.NoError(t, l.errs["a"])
	require.ErrorIs(t, l.errs["b"], protocol.TooLarge)
	require.NoError(t, l.errs["c"])
}

func TestUnknownHandleIsOpenedAgain(t *testing.T) {
	s := clienttest.Listen(t)
	conn, c := dial(t, s)
	p, l := producer(t, c), newLedger()
	require.NoError(t, p.Async(message("a"), l.of("a")))
	conn.Open(1)
	conn.RefuseRun(conn.Run(), &protocol.Error{Code: protocol.UnknownHandle})
	require.Equal(t, uint32(2), conn.Open(1).Handle)
	conn.Ack(conn.Run(), 0)
	l.await(t, 1)
	require.NoError(t, l.errs["a"])
}

func TestHandleIsOpenedAgainOnlyAfterTheAnswersOfTheOld(t *testing.T) {
	s := clienttest.Listen(t)
	conn, c := dial(t, s)
	p, l := producer(t, c), newLedger()
	require.NoError(t, p.Async(large("a"), l.of("a")))
	conn.Open(1)
	a := conn.Run()
	require.NoError(t, p.Async(large("b"), l.of("b")))
	b := conn.Run()
	conn.RefuseRun(a, &protocol.Error{Code: protocol.UnknownHandle})
	settle(t, conn, c)
	require.NoError(t, p.Async(large("c"), l.of("c")))
	settle(t, conn, c) // no OPEN comes before it
	conn.RefuseRun(b, &protocol.Error{Code: protocol.UnknownHandle})
	conn.Open(1)
	for n := uint64(0); n < 3; {
		r := conn.Run()
		conn.Ack(r, n)
		n += uint64(r.Records)
	}
	l.await(t, 3)
	require.Equal(t, []string{"a", "b", "c"}, l.order)
}

func TestRefusedOpenFailsItsMessagesAndIsTriedAgain(t *testing.T) {
	s := clienttest.Listen(t)
	conn, c := dial(t, s)
	p, l := producer(t, c), newLedger()
	require.NoError(t, p.Async(message("a"), l.of("a")))
	require.NoError(t, p.Async(client.Message{Topic: "t", Partition: client.Partition(0), Value: []byte("b")}, l.of("b")))
	conn.Refuse(conn.Request(protocol.OpOpen), &protocol.Error{Code: protocol.UnknownTopic, Detail: "t"})
	l.await(t, 2)
	require.ErrorIs(t, l.errs["a"], protocol.UnknownTopic)
	require.ErrorIs(t, l.errs["b"], protocol.UnknownTopic)
	require.NoError(t, p.Async(message("c"), l.of("c")))
	conn.Refuse(conn.Request(protocol.OpOpen), &protocol.Error{Code: protocol.ShuttingDown})
	conn.Open(1)
	conn.Ack(conn.Run(), 0)
	l.await(t, 1)
	require.NoError(t, l.errs["c"])
}

func TestGoAwayIsFollowedAfterWhatIsInFlight(t *testing.T) {
	s := clienttest.Listen(t)
	conn, c := dial(t, s)
	p, l := producer(t, c), newLedger()
	require.NoError(t, p.Async(message("a"), l.of("a")))
	conn.Open(1)
	a := conn.Run()
	conn.GoAway(protocol.ShuttingDown, time.Hour)
	settle(t, conn, c)
	require.NoError(t, p.Async(message("b"), l.of("b")))
	conn.Ack(a, 0)
	conn.ExpectEnd() // b is not sent here
	l.await(t, 1)
	conn = s.Greet()
	conn.Open(1)
	b := conn.Run()
	require.Equal(t, []string{"b"}, names(b))
	conn.Ack(b, 1)
	l.await(t, 1)
}

func TestGoAwayEndsWithItsDrainTime(t *testing.T) {
	s := clienttest.Listen(t)
	conn, c := dial(t, s)
	p, l := producer(t, c), newLedger()
	require.NoError(t, p.Async(message("a"), l.of("a")))
	conn.Open(1)
	conn.Run()
	conn.GoAway(protocol.ShuttingDown, 10*time.Millisecond)
	conn.AwaitEnd()
	conn = s.Greet()
	conn.Open(1)
	conn.Ack(conn.Run(), 0)
	l.await(t, 1)
	require.NoError(t, l.errs["a"])
}

// hostile are bytes after which a connection cannot go on.
func hostile() map[string][]byte {
	giant := protocol.Header{byte(protocol.MagicResponse)}
	giant.SetSizes(0, 0xFFFFFFFF)
	data := protocol.Header{byte(protocol.MagicData)}
	data.SetSizes(0, 0xFFFFFFF0)
	stray := clienttest.Stored(0, "stray")
	return map[string][]byte{
		"zeros":                make([]byte, 64),
		"text":                 []byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
		"giant response":       giant[:],
		"giant frame":          data[:],
		"a frame outside runs": stray,
		"a run for nobody":     clienttest.DeliverRun(1, 0, 1, stray),
	}
}

func TestHostileBytesEndTheConnectionAndNothingElse(t *testing.T) {
	for name, bytes := range hostile() {
		t.Run(name, func(t *testing.T) {
			s := clienttest.Listen(t)
			conn, c := dial(t, s)
			p, l := producer(t, c), newLedger()
			require.NoError(t, p.Async(message("a"), l.of("a")))
			conn.Open(1)
			conn.Run()
			before := allocated()
			conn.Write(bytes)
			conn.AwaitEnd()
			require.Less(t, allocated()-before, uint64(4<<20), "a length in a header takes no memory")
			conn = s.Greet()
			conn.Open(1)
			conn.Ack(conn.Run(), 0)
			l.await(t, 1)
			require.NoError(t, l.errs["a"])
		})
	}
}

func TestSingleBytesMakeFrames(t *testing.T) {
	s := clienttest.Listen(t)
	conn, c := dial(t, s)
	p, l := producer(t, c), newLedger()
	require.NoError(t, p.Async(message("a"), l.of("a")))
	conn.Open(1)
	r := conn.Run()
	var ack protocol.Header
	ack.PutAck(protocol.LevelDurable, protocol.OK, r.Handle, 7, 1, 0)
	conn.WriteSlow(ack[:])
	l.await(t, 1)
	require.Equal(t, uint64(7), l.acks["a"].Offset)
}

func TestSilentPeerIsGivenUp(t *testing.T) {
	s := clienttest.Listen(t)
	s.Hello.PingMillis = 200
	lost := make(chan error, 100)
	conn, c := dial(t, s, client.WithHooks(client.Hooks{Disconnected: func(_ string, err error, _ time.Duration) { lost <- err }}))
	p, l := producer(t, c), newLedger()
	conn.Pongs = false
	require.NoError(t, p.Async(message("a"), l.of("a")))
	conn.Open(1)
	conn.Run()
	conn.AwaitEnd()
	require.ErrorContains(t, <-lost, "nothing received for 2.5 ping intervals")
	conn = s.Greet()
	conn.Open(1)
	conn.Ack(conn.Run(), 0)
	l.await(t, 1)
}

func TestPingsKeepAnIdleConnection(t *testing.T) {
	s := clienttest.Listen(t)
	s.Hello.PingMillis = 100
	lost := make(chan error, 100)
	conn, c := dial(t, s, client.WithHooks(client.Hooks{Disconnected: func(_ string, err error, _ time.Duration) { lost <- err }}))
	done := make(chan error, 1)
	go func() {
		for range time.Tick(time.Millisecond) {
			if conn.Pings() >= 5 { // twice what silence may last
				break
			}
		}
		_, err := c.Stats(context.Background()) // ends the wait below
		done <- err
	}()
	conn.Reply(conn.Request(protocol.OpStats), &protocol.Stats{})
	require.NoError(t, <-done)
	require.Empty(t, lost)
}

func TestLingerGathersUntilFlush(t *testing.T) {
	s := clienttest.Listen(t)
	conn, c := dial(t, s)
	p, l := producer(t, c, client.Linger(time.Minute)), newLedger()
	for i := range 10 {
		require.NoError(t, p.Async(message(fmt.Sprint(i)), l.of(fmt.Sprint(i))))
	}
	conn.Open(1)
	settle(t, conn, c)
	settle(t, conn, c) // would meet a run before this
	flushed := make(chan error, 1)
	go func() { flushed <- p.Flush(context.Background()) }()
	for n := uint64(0); n < 10; {
		r := conn.Run()
		conn.Ack(r, n)
		n += uint64(r.Records)
	}
	require.NoError(t, <-flushed)
	require.Len(t, l.order, 10, "Flush returns after the callbacks")
}

func TestLingerEndsByItself(t *testing.T) {
	_, c := memory(t, clienttest.MemoryOptions{})
	p := producer(t, c, client.Linger(5*time.Millisecond))
	_, err := p.Send(within(t), message("a"))
	require.NoError(t, err)
}

func TestKeylessMessagesGoRoundByBatches(t *testing.T) {
	_, c := memory(t, clienttest.MemoryOptions{Partitions: 4})
	p := producer(t, c, client.BatchRecords(10))
	used := map[uint32]int{}
	var mu sync.Mutex
	for range 400 {
		require.NoError(t, p.Async(message("v"), func(a client.Ack, err error) {
			mu.Lock()
			defer mu.Unlock()
			used[a.Partition]++
		}))
	}
	require.NoError(t, p.Close(within(t)))
	require.Len(t, used, 4)
	require.Equal(t, 400, used[0]+used[1]+used[2]+used[3])
}

func TestAsyncBatchHandsItsMemoryOver(t *testing.T) {
	s := clienttest.Listen(t)
	conn, c := dial(t, s)
	p, l := producer(t, c), newLedger()
	var b client.Batch
	require.ErrorIs(t, p.AsyncBatch("t", 0, &b, nil), protocol.BadRequest)
	require.NoError(t, b.Add([]byte("k"), []byte("one"), client.Header{Name: "n", Value: []byte("v")}))
	require.NoError(t, b.Add(nil, nil))
	require.NoError(t, p.AsyncBatch("t", 0, &b, l.of("batch")))
	require.Zero(t, b.Len())
	require.NoError(t, b.Add(nil, []byte("overwritten?")))
	conn.Open(1)
	r := conn.Run()
	require.Equal(t, []string{"one", ""}, r.Values())
	conn.Ack(r, 40)
	l.await(t, 1)
	require.Equal(t, uint64(40), l.acks["batch"].Offset)
}

func TestLevelNoneIsDoneWhenItIsWritten(t *testing.T) {
	m, c := memory(t, clienttest.MemoryOptions{})
	p := producer(t, c, client.Durable(protocol.LevelNone))
	ack, err := p.Send(within(t), message("a"))
	require.NoError(t, err)
	require.Equal(t, client.Ack{Topic: "t", Offset: client.NoOffset, Level: protocol.LevelNone}, ack)
	require.NoError(t, p.Close(within(t)))
	require.Eventually(t, func() bool { return m.Records("t") == 1 }, patience, time.Millisecond)
}

func TestLevelNoneWaitsForTheFloor(t *testing.T) {
	s := clienttest.Listen(t)
	conn, c := dial(t, s)
	p, l := producer(t, c, client.Durable(protocol.LevelNone)), newLedger()
	require.NoError(t, p.Async(message("a"), l.of("a")))
	conn.Open(1) // with floor durable
	r := conn.Run()
	require.Equal(t, protocol.LevelDurable, r.Header.Level())
	conn.Ack(r, 5)
	l.await(t, 1)
	require.Equal(t, uint64(5), l.acks["a"].Offset)
}

func TestMessagesAreCheckedBeforeTheyAreTaken(t *testing.T) {
	m, c := memory(t, clienttest.MemoryOptions{})
	p := producer(t, c)
	_, err := p.Send(within(t), message("fine"))
	require.NoError(t, err)
	for _, bad := range []struct {
		m    client.Message
		code protocol.Code
	}{
		{client.Message{Topic: "../t"}, protocol.BadName},
		{client.Message{Topic: "_t"}, protocol.BadName},
		{client.Message{Topic: "t", Key: make([]byte, protocol.MaxKey+1)}, protocol.TooLarge},
		{client.Message{Topic: "t", Value: make([]byte, protocol.DefaultMessageBytes+1)}, protocol.TooLarge},
		{client.Message{Topic: "new", Value: make([]byte, protocol.DefaultMessageBytes+1)}, protocol.TooLarge},
		{client.Message{Topic: "t", Headers: []client.Header{{Name: strings.Repeat("n", 256)}}}, protocol.TooLarge},
		{client.Message{Topic: "t", Headers: []client.Header{{Name: "n", Value: make([]byte, 1<<16)}}}, protocol.TooLarge},
		{client.Message{Topic: "t", Partition: client.Partition(protocol.MaxPartitions)}, protocol.UnknownPartition},
		{client.Message{Topic: "t", Partition: client.Partition(1)}, protocol.UnknownPartition},
	} {
		_, err := p.Send(within(t), bad.m)
		require.ErrorIs(t, err, bad.code)
	}
	require.NoError(t, p.Close(within(t)))
	require.Equal(t, uint64(1), m.Records("t"))
}

func TestHookHearsOfRefusalsThatMayPass(t *testing.T) {
	s := clienttest.Listen(t)
	heard := make(chan error, 10)
	conn, c := dial(t, s, client.WithHooks(client.Hooks{Refused: func(topic string, partition uint32, err error) {
		if topic == "t" && partition == 0 {
			heard <- err
		}
	}}))
	p, l := producer(t, c), newLedger()
	require.NoError(t, p.Async(message("a"), l.of("a")))
	conn.Open(1)
	conn.RefuseRun(conn.Run(), &protocol.Error{Code: protocol.NoSpace, Detail: "disk is full"})
	require.ErrorIs(t, <-heard, protocol.NoSpace)
	conn.Ack(conn.Run(), 0)
	l.await(t, 1)
	require.Empty(t, heard)
}
