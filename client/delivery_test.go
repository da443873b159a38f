package client_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/client"
	"github.com/millrace-mq/millrace/client/clienttest"
	"github.com/millrace-mq/millrace/protocol"
)

// What becomes of messages that are not simply acknowledged.

func TestNoRetryReportsUnknownOutcome(t *testing.T) {
	s := clienttest.Listen(t)
	conn, c := dial(t, s)
	p, l := producer(t, c, client.NoRetry()), newLedger()
	require.NoError(t, p.Async(message("a"), l.of("a")))
	conn.Open(1)
	conn.Run()
	require.NoError(t, p.Async(message("b"), l.of("b")))
	conn.Drop()
	l.await(t, 1)
	require.ErrorIs(t, l.errs["a"], protocol.UnknownOutcome)
	require.ErrorIs(t, l.errs["a"], client.ErrDisconnected)
	conn = s.Greet() // b was never sent, so it is now
	conn.Open(1)
	b := conn.Run()
	require.Equal(t, []string{"b"}, names(b))
	conn.RefuseRun(b, &protocol.Error{Code: protocol.Throttled})
	l.await(t, 1)
	require.ErrorIs(t, l.errs["b"], protocol.Throttled)
}

func TestDeliveryTimeoutSaysWhetherItWasSent(t *testing.T) {
	s := clienttest.Listen(t)
	conn, c := dial(t, s)
	p, l := producer(t, c, client.DeliveryTimeout(500*time.Millisecond)), newLedger()
	require.NoError(t, p.Async(message("sent"), l.of("sent")))
	conn.Open(1)
	sent := conn.Run()
	require.NoError(t, p.Async(message("queued"), l.of("queued")))
	l.await(t, 2)
	require.ErrorIs(t, l.errs["sent"], protocol.UnknownOutcome)
	require.NotErrorIs(t, l.errs["sent"], protocol.Timeout)
	require.ErrorIs(t, l.errs["queued"], protocol.Timeout)
	require.NotErrorIs(t, l.errs["queued"], protocol.UnknownOutcome)
	require.ErrorIs(t, l.errs["queued"], context.DeadlineExceeded)
	conn.Ack(sent, 0) // too late, and no second callback
	l2 := newLedger()
	q := producer(t, c)
	require.NoError(t, q.Async(message("next"), l2.of("next")))
	conn.Open(1)
	conn.Ack(conn.Run(), 1)
	l2.await(t, 1)
	require.Eventually(t, func() bool { n, bytes := p.Buffered(); return n+bytes == 0 }, patience, time.Millisecond)
	require.Empty(t, l.news)
}

func TestRefusedUntilTheDeadlineWasNotAppended(t *testing.T) {
	s := clienttest.Listen(t)
	conn, c := dial(t, s, client.Backoff(time.Hour, time.Hour)) // so that the deadline comes before the next attempt
	p, l := producer(t, c, client.DeliveryTimeout(500*time.Millisecond)), newLedger()
	require.NoError(t, p.Async(message("a"), l.of("a")))
	conn.Open(1)
	conn.RefuseRun(conn.Run(), &protocol.Error{Code: protocol.NoSpace})
	l.await(t, 1)
	require.ErrorIs(t, l.errs["a"], protocol.Timeout)
	require.ErrorIs(t, l.errs["a"], protocol.NoSpace)
	require.NotErrorIs(t, l.errs["a"], protocol.UnknownOutcome)
}

func TestMessagesForAnUnreachableTopicTimeOut(t *testing.T) {
	s := clienttest.Listen(t)
	conn, c := dial(t, s)
	s.Stop()
	conn.Drop()
	p := producer(t, c, client.DeliveryTimeout(30*time.Millisecond))
	_, err := p.Send(within(t), message("a"))
	require.ErrorIs(t, err, protocol.Timeout)
	_, err = p.Send(within(t), client.Message{Topic: "t", Partition: client.Partition(1), Value: []byte("b")})
	require.ErrorIs(t, err, protocol.Timeout)
	require.ErrorContains(t, err, "t/1")
}

func TestCancelledSendIsWithdrawnIfItWasNotSent(t *testing.T) {
	s := clienttest.Listen(t)
	conn, c := dial(t, s)
	p, l := producer(t, c), newLedger()
	require.NoError(t, p.Async(message("a"), l.of("a")))
	conn.Open(1)
	a := conn.Run()
	require.NoError(t, p.Async(message("b"), l.of("b")))
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() {
		_, err := p.Send(ctx, message("withdrawn"))
		result <- err
	}()
	require.Eventually(t, func() bool { n, _ := p.Buffered(); return n == 3 }, patience, time.Millisecond)
	require.NoError(t, p.Async(message("c"), l.of("c")))
	cancel()
	err := <-result
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, protocol.UnknownOutcome)
	conn.Ack(a, 0)
	rest := conn.Run()
	require.Equal(t, []string{"b", "c"}, names(rest))
	conn.Ack(rest, 1)
	l.await(t, 3)
	require.Equal(t, uint64(2), l.acks["c"].Offset)

	ctx, cancel = context.WithCancel(context.Background())
	go func() {
		_, err := p.Send(ctx, message("in flight"))
		result <- err
	}()
	conn.Run()
	cancel()
	require.ErrorIs(t, <-result, protocol.UnknownOutcome)
}

func TestCancelledSendLeavesNoEmptyBatch(t *testing.T) {
	s := clienttest.Listen(t)
	conn, c := dial(t, s)
	p := producer(t, c)
	for range 2 { // waiting for the topic, then as the only one of its batch
		ctx, cancel := context.WithCancel(context.Background())
		result := make(chan error, 1)
		go func() {
			_, err := p.Send(ctx, message("withdrawn"))
			result <- err
		}()
		require.Eventually(t, func() bool { n, _ := p.Buffered(); return n > 0 }, patience, time.Millisecond)
		cancel()
		require.ErrorIs(t, <-result, context.Canceled)
	}
	n, bytes := p.Buffered()
	require.Zero(t, n+bytes)
	flushed := make(chan error, 1)
	go func() { flushed <- p.Flush(context.Background()) }()
	conn.Open(1)
	require.NoError(t, <-flushed)
}

func TestFullBufferFailsAtOnceWhenAsked(t *testing.T) {
	s := clienttest.Listen(t)
	_, c := dial(t, s)
	p := producer(t, c, client.MaxBuffered(2, 1<<20), client.FailWhenFull())
	require.NoError(t, p.Async(message("a"), nil))
	require.NoError(t, p.Async(message("b"), nil))
	require.ErrorIs(t, p.Async(message("c"), nil), client.ErrBufferFull)
	_, err := p.Send(within(t), message("c"))
	require.ErrorIs(t, err, client.ErrBufferFull)
	require.ErrorIs(t, p.Async(message(strings.Repeat("x", 1<<20)), nil), protocol.TooLarge)
	n, _ := p.Buffered()
	require.Equal(t, 2, n)
}

func TestFullBufferWaitsNoLongerThanTheDeliveryTimeout(t *testing.T) {
	s := clienttest.Listen(t)
	_, c := dial(t, s)
	q := producer(t, c, client.MaxBuffered(1, 1<<20), client.DeliveryTimeout(40*time.Millisecond))
	block := make(chan struct{})
	require.NoError(t, q.Async(message("a"), func(client.Ack, error) { <-block }))
	require.ErrorIs(t, q.Async(message("b"), nil), client.ErrBufferFull, "the callback of a keeps its room")
	close(block)
	require.NoError(t, q.Flush(within(t)))
}
