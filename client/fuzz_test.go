package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/client"
	"github.com/millrace-mq/millrace/client/clienttest"
	"github.com/millrace-mq/millrace/protocol"
)

// responseTo is a successful response with the correlation number given.
func responseTo(op protocol.Opcode, correlation uint64, m clienttest.Message) []byte {
	payload := m.AppendTo(nil)
	var h protocol.Header
	h.PutResponse(op, protocol.OK, 0, correlation, 0, len(payload))
	return append(h[:], payload...)
}

// FuzzBroker lets a broker answer HELLO and then say anything, to a producer with a message in
// hand and to a running Read. Whatever it is, nothing panics, the message is told of exactly
// once, and everything ends.
func FuzzBroker(f *testing.F) {
	opened := responseTo(protocol.OpOpen, 1, &protocol.OpenReply{Handle: 1, Partitions: 1})
	subscribed := responseTo(protocol.OpSubscribe, 1<<32|1, &protocol.SubscribeReply{Stop: protocol.NoStop})
	var ack, refused, away protocol.Header
	ack.PutAck(protocol.LevelDurable, protocol.OK, 1, 0, 1, 0)
	refused.PutAck(protocol.LevelNone, protocol.Throttled, 1, 1, 0, 0)
	away.PutGoAway(protocol.ShuttingDown, 1, 0, 0)
	f.Add(append(append([]byte(nil), opened...), ack[:]...))
	f.Add(append(append(append([]byte(nil), opened...), refused[:]...), ack[:]...))
	f.Add(append(append(append([]byte(nil), opened...), subscribed...), clienttest.DeliverRun(1, protocol.DeliverDone, 2, clienttest.Stored(0, "a"), clienttest.Stored(1, "b"))...))
	f.Add(append(append([]byte(nil), opened...), away[:]...))
	for _, b := range hostile() {
		f.Add(append(append([]byte(nil), opened...), b...))
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		stuck := time.AfterFunc(5*time.Second, func() { panic(goroutines()) })
		defer stuck.Stop()
		var told atomic.Int32
		c, err := client.Open(context.Background(), "pipe", client.Backoff(time.Hour, time.Hour), client.Dialer(talker(said)))
		if errors.Is(err, context.DeadlineExceeded) {
			return
		}
		require.NoError(t, err)
		p, err := c.NewProducer()
		require.NoError(t, err)
		require.NoError(t, p.Async(message("v"), func(client.Ack, error) { told.Add(1) }))
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
		defer cancel()
		for _, err := range c.Read(ctx, "t", client.OfPartition(0)) {
			if err != nil {
				break
			}
		}
		closed, done := context.WithCancel(context.Background())
		done()
		if err := p.Close(closed); err != nil {
			var left *client.UndeliveredError
			require.ErrorAs(t, err, &left)
		}
		require.Equal(t, int32(1), told.Load())
		require.NoError(t, c.Close())
	})
}

// talker dials a broker that answers HELLO, says its text and hangs up.
func talker(said []byte) func(context.Context, string, string) (net.Conn, error) {
	hello := responseTo(protocol.OpHello, 0, &protocol.HelloReply{Version: protocol.Version})
	return func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		go func() {
			defer theirs.Close()
			if _, err := theirs.Write(hello); err != nil {
				return
			}
			_, _ = theirs.Write(said)
		}()
		return ours, nil
	}
}
