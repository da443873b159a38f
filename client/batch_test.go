package client_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/client"
	"github.com/millrace-mq/millrace/client/clienttest"
	"github.com/millrace-mq/millrace/protocol"
)

func TestSendBatchWaitsForAllOfItsRecords(t *testing.T) {
	m, c := memory(t, clienttest.MemoryOptions{})
	p := producer(t, c)
	var b client.Batch
	for round := range 3 {
		for range 5 {
			require.NoError(t, b.Add(nil, []byte("v")))
		}
		ack, err := p.SendBatch(within(t), "t", 0, &b)
		require.NoError(t, err)
		require.Equal(t, uint64(5*round), ack.Offset)
		require.Zero(t, b.Len(), "its memory was exchanged")
	}
	require.Equal(t, uint64(15), m.Records("t"))
	records, bytes := p.Buffered()
	require.Zero(t, records+bytes)
}

func TestSendBatchReportsRefusalOnce(t *testing.T) {
	_, c := memory(t, clienttest.MemoryOptions{})
	p := producer(t, c)
	var b client.Batch
	_, err := p.SendBatch(within(t), "t", 0, &b)
	require.ErrorIs(t, err, protocol.BadRequest, "empty")
	require.NoError(t, b.Add(nil, []byte("v")))
	require.NoError(t, b.Add(nil, []byte("w")))
	_, err = p.SendBatch(within(t), "t", 7, &b)
	require.ErrorIs(t, err, protocol.UnknownPartition)
	require.NoError(t, p.Flush(within(t)), "the caller was told: nobody is left to be")
	records, bytes := p.Buffered()
	require.Zero(t, records+bytes)
}

func TestCancelledSendBatchIsWithdrawnWhole(t *testing.T) {
	m, c := memory(t, clienttest.MemoryOptions{})
	p := producer(t, c, client.Linger(time.Minute)) // sends nothing by itself
	ctx, cancel := context.WithCancel(within(t))
	var b client.Batch
	for range 3 {
		require.NoError(t, b.Add(nil, []byte("v")))
	}
	go func() {
		for {
			if records, _ := p.Buffered(); records == 3 {
				cancel()
				return
			}
			runtime.Gosched()
		}
	}()
	_, err := p.SendBatch(ctx, "t", 0, &b)
	var d *client.DeliveryError
	require.ErrorAs(t, err, &d)
	require.False(t, d.Sent)
	require.NoError(t, p.Flush(within(t)))
	require.Zero(t, m.Records("t"))
	records, bytes := p.Buffered()
	require.Zero(t, records+bytes)
}
