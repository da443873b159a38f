package client_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/client"
	"github.com/millrace-mq/millrace/client/clienttest"
	"github.com/millrace-mq/millrace/protocol"
)

// allocations is how often memory was ever allocated.
func allocations() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

func TestTopicsAreManaged(t *testing.T) {
	_, c := memory(t, clienttest.MemoryOptions{})
	ctx := within(t)
	three := protocol.TopicSettings{{ID: protocol.SettingPartitions, Value: 3}}
	info, err := c.CreateTopic(ctx, "orders", three, false)
	require.NoError(t, err)
	require.Len(t, info.Partitions, 3)
	_, err = c.CreateTopic(ctx, "orders", three, false)
	require.ErrorIs(t, err, protocol.Exists)
	info, err = c.CreateTopic(ctx, "orders", three, true)
	require.NoError(t, err)
	require.Len(t, info.Partitions, 3)
	_, err = c.CreateTopic(ctx, "orders", protocol.TopicSettings{{ID: protocol.SettingPartitions, Value: 4}}, true)
	require.ErrorIs(t, err, client.ErrTopicDiffers)
	require.ErrorContains(t, err, "partitions = 3, asked for 4")
	_, err = c.CreateTopic(ctx, "bad name", nil, true)
	require.ErrorIs(t, err, protocol.BadName)
	_, err = c.CreateTopic(ctx, "t", protocol.TopicSettings{{ID: protocol.SettingPartitions, Value: 0}}, true)
	require.ErrorIs(t, err, protocol.BadRequest)

	info, err = c.AlterTopic(ctx, "orders", protocol.TopicSettings{{ID: protocol.SettingPartitions, Value: 5}})
	require.NoError(t, err)
	require.Len(t, info.Partitions, 5)

	p := producer(t, c)
	_, err = p.Send(ctx, client.Message{Topic: "orders", Partition: client.Partition(4), Value: []byte("v")})
	require.NoError(t, err)
	offsets, err := c.Offsets(ctx, "orders", protocol.End)
	require.NoError(t, err)
	require.Len(t, offsets, 5)
	require.Equal(t, uint64(1), offsets[4].Offset)
	offsets, err = c.Offsets(ctx, "orders", protocol.Last(1), 4, 9)
	require.NoError(t, err)
	require.Equal(t, uint64(0), offsets[0].Offset)
	require.Equal(t, protocol.UnknownPartition, offsets[1].Status)

	require.NoError(t, c.DeleteTopic(ctx, "orders"))
	_, err = c.DescribeTopic(ctx, "orders")
	require.ErrorIs(t, err, protocol.UnknownTopic)
	require.ErrorIs(t, c.DeleteTopic(ctx, "orders"), protocol.UnknownTopic)
	stats, err := c.Stats(ctx)
	require.NoError(t, err)
	require.Zero(t, stats.Get("topics"))
}

func TestTopicsComeInPages(t *testing.T) {
	_, c := memory(t, clienttest.MemoryOptions{})
	for i := range 250 {
		_, err := c.CreateTopic(within(t), fmt.Sprintf("t%03d", i), nil, false)
		require.NoError(t, err)
	}
	n := 0
	for it, err := range c.Topics(within(t)) {
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("t%03d", n), it.Name)
		n++
	}
	require.Equal(t, 250, n)
}

func TestPingMeasuresARoundTrip(t *testing.T) {
	_, c := memory(t, clienttest.MemoryOptions{})
	rtt, err := c.Ping(within(t))
	require.NoError(t, err)
	require.Positive(t, rtt)
	hello, err := c.Broker(within(t))
	require.NoError(t, err)
	require.Equal(t, "memory", hello.Server)
}

// ask runs a call while the test plays the broker.
func ask[T any](call func() (T, error)) func() (T, error) {
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		v, err := call()
		done <- result{v, err}
	}()
	return func() (T, error) {
		r := <-done
		return r.v, r.err
	}
}

func TestRepeatableRequestsOutliveAConnection(t *testing.T) {
	s := clienttest.Listen(t)
	conn, c := dial(t, s)
	stats := ask(func() (protocol.Stats, error) { return c.Stats(context.Background()) })
	conn.Request(protocol.OpStats)
	conn.Drop()
	conn = s.Greet()
	conn.Refuse(conn.Request(protocol.OpStats), &protocol.Error{Code: protocol.Throttled})
	conn.Reply(conn.Request(protocol.OpStats), &protocol.Stats{Items: []protocol.Stat{{Name: "n", Value: 7}}})
	got, err := stats()
	require.NoError(t, err)
	require.Equal(t, uint64(7), got.Get("n"))
}

func TestRequestsThatAreNotRepeatableReportUnknownOutcome(t *testing.T) {
	s := clienttest.Listen(t)
	conn, c := dial(t, s)
	deleted := ask(func() (int, error) { return 0, c.DeleteTopic(context.Background(), "t") })
	conn.Request(protocol.OpTopicDelete)
	conn.Drop()
	_, err := deleted()
	require.ErrorIs(t, err, protocol.UnknownOutcome)
	require.ErrorIs(t, err, client.ErrDisconnected)
}

func TestRequestsEndByTheirDeadline(t *testing.T) {
	s := clienttest.Listen(t)
	conn, c := dial(t, s, client.RequestTimeout(30*time.Millisecond))
	_, err := c.Stats(context.Background())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	conn.Pongs = false
	_, err = c.Ping(context.Background())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	s.Stop()
	conn.Drop()
	_, err = c.Stats(context.Background())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = c.Stats(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

func TestResponsesThatComeLateOrUnaskedAreDropped(t *testing.T) {
	s := clienttest.Listen(t)
	conn, c := dial(t, s, client.RequestTimeout(500*time.Millisecond))
	_, err := c.Stats(context.Background())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	late := conn.Request(protocol.OpStats)
	conn.Reply(late, &protocol.Stats{})
	conn.Reply(late, &protocol.Stats{})
	settle(t, conn, c)
}

func TestMalformedResponsesAreErrors(t *testing.T) {
	s := clienttest.Listen(t)
	conn, c := dial(t, s)
	stats := ask(func() (protocol.Stats, error) { return c.Stats(context.Background()) })
	conn.Reply(conn.Request(protocol.OpStats), &protocol.Unsubscribe{Subscription: 0xFFFFFFFF})
	_, err := stats()
	require.ErrorIs(t, err, protocol.BadRequest)
	list := ask(func() (n int, err error) {
		for _, err = range c.Topics(context.Background()) {
			n++
		}
		return n, err
	})
	conn.Reply(conn.Request(protocol.OpTopicList), &protocol.TopicListReply{More: true})
	_, err = list()
	require.ErrorIs(t, err, protocol.BadFrame)
}
