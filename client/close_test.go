package client_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/client"
	"github.com/millrace-mq/millrace/client/clienttest"
	"github.com/millrace-mq/millrace/protocol"
)

// allocated is how many bytes were ever allocated.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

func TestCloseDeliversWhatNobodyWaitsFor(t *testing.T) {
	m, c := memory(t, clienttest.MemoryOptions{})
	p := producer(t, c, client.Linger(time.Minute))
	for range 1000 {
		require.NoError(t, p.Async(message("v"), nil))
	}
	require.NoError(t, p.Close(within(t)))
	require.Equal(t, uint64(1000), m.Records("t"))
	require.ErrorIs(t, p.Async(message("late"), nil), client.ErrClosed)
	_, err := p.Send(within(t), message("late"))
	require.ErrorIs(t, err, client.ErrClosed)
	require.NoError(t, p.Close(within(t)))
}

func TestCloseWithAStoppedBrokerResolvesEverythingOnce(t *testing.T) {
	s := clienttest.Listen(t)
	conn, c := dial(t, s)
	p, l := producer(t, c, client.MaxInFlight(1)), newLedger()
	require.NoError(t, p.Async(message("sent"), l.of("sent")))
	conn.Open(1)
	sent := conn.Run()
	for i := range 10_000 {
		require.NoError(t, p.Async(message("queued"), l.of(fmt.Sprint(i))))
	}
	require.NoError(t, p.Async(client.Message{Topic: "other"}, l.of("waiting"))) // its OPEN stays unanswered
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	err := p.Close(ctx)
	require.Len(t, l.order, 10_002, "all callbacks have returned")
	l.await(t, 10_002)
	var left *client.UndeliveredError
	require.ErrorAs(t, err, &left)
	require.Equal(t, 10_001, left.NotSent)
	require.Equal(t, 1, left.Unknown)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, l.errs["sent"], protocol.UnknownOutcome)
	require.ErrorIs(t, l.errs["9999"], client.ErrClosed)
	require.NotErrorIs(t, l.errs["9999"], protocol.UnknownOutcome)
	require.ErrorIs(t, l.errs["waiting"], client.ErrClosed)
	n, bytes := p.Buffered()
	require.Zero(t, n+bytes)
	require.Equal(t, err, p.Close(context.Background()))
	conn.Ack(sent, 0) // too late for anybody, and no harm
	require.NoError(t, c.Close())
}

func TestCloseSendsThoseAwayWhoWaitForRoom(t *testing.T) {
	s := clienttest.Listen(t)
	conn, c := dial(t, s)
	p := producer(t, c, client.MaxBuffered(1, 1<<20), client.DeliveryTimeout(time.Hour))
	require.NoError(t, p.Async(message("a"), nil))
	conn.Open(1)
	a := conn.Run()
	refused := make(chan error, 2)
	go func() { refused <- p.Async(message("b"), nil) }()
	go func() {
		_, err := p.Send(context.Background(), message("c"))
		refused <- err
	}()
	closed := make(chan error, 1)
	go func() { closed <- p.Close(context.Background()) }()
	require.ErrorIs(t, <-refused, client.ErrClosed)
	require.ErrorIs(t, <-refused, client.ErrClosed)
	conn.Ack(a, 0)
	require.NoError(t, <-closed)
}

func TestClientCloseResolvesWhatProducersHold(t *testing.T) {
	s := clienttest.Listen(t)
	conn, c := dial(t, s)
	p, l := producer(t, c), newLedger()
	require.NoError(t, p.Async(message("sent"), l.of("sent")))
	conn.Open(1)
	conn.Run()
	require.NoError(t, p.Async(message("queued"), l.of("queued")))
	var left *client.UndeliveredError
	require.ErrorAs(t, c.Close(), &left)
	require.Equal(t, 1, left.NotSent)
	require.Equal(t, 1, left.Unknown)
	l.await(t, 2)
	require.ErrorIs(t, p.Async(message("late"), nil), client.ErrClosed)
	_, err := c.NewProducer()
	require.ErrorIs(t, err, client.ErrClosed)
	_, err = c.Ping(context.Background())
	require.ErrorIs(t, err, client.ErrClosed)
	_, err = c.Stats(context.Background())
	require.ErrorIs(t, err, client.ErrClosed)
}

func TestCloseWhileDisconnectedReturns(t *testing.T) {
	s := clienttest.Listen(t)
	conn, c := dial(t, s, client.Backoff(time.Hour, time.Hour))
	s.Stop()
	conn.Drop()
	require.NoError(t, c.Close())
}

func TestFailuresWithoutCallbackAreReported(t *testing.T) {
	s := clienttest.Listen(t)
	conn, c := dial(t, s)
	p := producer(t, c)
	flush := func() error {
		done := make(chan error, 1)
		go func() { done <- p.Flush(context.Background()) }()
		conn.RefuseRun(conn.Run(), &protocol.Error{Code: protocol.ReadOnly})
		return <-done
	}
	require.NoError(t, p.Async(message("a"), nil))
	conn.Open(1)
	require.ErrorIs(t, flush(), protocol.ReadOnly)
	require.NoError(t, p.Flush(within(t)), "it is said once")
	require.NoError(t, p.Async(message("a"), nil))
	conn.RefuseRun(conn.Run(), &protocol.Error{Code: protocol.ReadOnly})
	var left *client.UndeliveredError
	require.ErrorAs(t, p.Close(within(t)), &left)
	require.Equal(t, 1, left.Refused)
}

func TestAsyncFromManyDuringCloseIsToldExactlyOnce(t *testing.T) {
	for round := range 10 {
		m, c := memory(t, clienttest.MemoryOptions{Partitions: 3})
		p := producer(t, c, client.MaxBuffered(500, 1<<20))
		var taken, told, acked atomic.Int64
		var wg sync.WaitGroup
		start := make(chan struct{})
		for range 100 {
			wg.Go(func() {
				<-start
				for {
					err := p.Async(message("v"), func(_ client.Ack, err error) {
						told.Add(1)
						if err == nil {
							acked.Add(1)
						}
					})
					if err != nil {
						require.ErrorIs(t, err, client.ErrClosed)
						return
					}
					taken.Add(1)
				}
			})
		}
		close(start)
		require.Eventually(t, func() bool { return acked.Load() > int64(100*round) }, patience, time.Millisecond)
		if round%2 == 1 {
			m.DropConnections()
		}
		require.NoError(t, p.Close(within(t)))
		wg.Wait()
		require.Equal(t, taken.Load(), told.Load())
		require.Equal(t, taken.Load(), acked.Load())
		require.GreaterOrEqual(t, m.Records("t"), uint64(acked.Load()))
		if round%2 == 0 {
			require.Equal(t, uint64(acked.Load()), m.Records("t"))
		}
		require.NoError(t, c.Close())
		m.Close()
	}
}

// TestContextsThatEndWhileTheBufferIsFull: senders queue up for room in a small buffer, give up
// at random, and the connection comes and goes. Nothing hangs, and no room is lost.
func TestContextsThatEndWhileTheBufferIsFull(t *testing.T) {
	m, c := memory(t, clienttest.MemoryOptions{})
	p := producer(t, c, client.MaxBuffered(10, 1<<20))
	var wg sync.WaitGroup
	var acked atomic.Int64
	for g := range 100 {
		rnd := rand.New(rand.NewPCG(1, uint64(g)))
		wg.Go(func() {
			for range 50 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rnd.IntN(300))*time.Microsecond)
				if rnd.IntN(4) == 0 {
					ctx = context.Background()
				}
				_, err := p.Send(ctx, message("v"))
				cancel()
				if err == nil {
					acked.Add(1)
				} else {
					require.ErrorIs(t, err, context.DeadlineExceeded)
				}
				if rnd.IntN(200) == 0 {
					m.DropConnections()
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, p.Flush(within(t)))
	n, bytes := p.Buffered()
	require.Zero(t, n)
	require.Zero(t, bytes)
	require.NoError(t, p.Close(within(t)))
	require.GreaterOrEqual(t, m.Records("t"), uint64(acked.Load()))
}

func TestAsyncAllocatesNothingPerRecord(t *testing.T) {
	_, c := memory(t, clienttest.MemoryOptions{Discard: true})
	p := producer(t, c, client.MaxBuffered(1<<20, 4<<20))
	msg := client.Message{Topic: "t", Key: []byte("key"), Value: make([]byte, 100), Headers: []client.Header{{Name: "n", Value: []byte("v")}}}
	var told atomic.Int64
	done := func(client.Ack, error) { told.Add(1) }
	const records = 20_000
	round := func() {
		for range records {
			if err := p.Async(msg, done); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Flush(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	round()
	require.Less(t, testing.AllocsPerRun(5, round), float64(records)/100)
}

func TestAsyncBatchAllocatesNothingPerRecord(t *testing.T) {
	_, c := memory(t, clienttest.MemoryOptions{Discard: true})
	p := producer(t, c, client.MaxBuffered(1<<20, 4<<20))
	var b client.Batch
	value := make([]byte, 100)
	const batches, records = 100, 200
	round := func() {
		for range batches {
			for range records {
				if err := b.Add(nil, value); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.AsyncBatch("t", 0, &b, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Flush(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	round()
	require.Less(t, testing.AllocsPerRun(5, round), float64(batches*records)/100)
}
