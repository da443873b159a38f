package client_test

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/client"
	"github.com/millrace-mq/millrace/client/clienttest"
	"github.com/millrace-mq/millrace/protocol"
)

func benchmarkAsync(b *testing.B, opts ...client.ProducerOption) {
	_, c := memory(b, clienttest.MemoryOptions{Discard: true})
	p := producer(b, c, opts...)
	msg := client.Message{Topic: "t", Value: make([]byte, 100)}
	var acked atomic.Int64
	done := func(client.Ack, error) { acked.Add(1) }
	for range 200_000 {
		require.NoError(b, p.Async(msg, done))
	}
	require.NoError(b, p.Flush(within(b)))
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if err := p.Async(msg, done); err != nil {
			b.Fatal(err)
		}
	}
	require.NoError(b, p.Flush(within(b)))
}

func BenchmarkAsync(b *testing.B)             { benchmarkAsync(b) }
func BenchmarkAsyncSingleRecord(b *testing.B) { benchmarkAsync(b, client.BatchRecords(1)) }

// BenchmarkAsyncGive is the caller's share alone: nothing is sent.
func BenchmarkAsyncGive(b *testing.B) {
	_, c := memory(b, clienttest.MemoryOptions{Discard: true})
	p := producer(b, c)
	msg := client.Message{Topic: "t", Value: make([]byte, 100)}
	done := func(client.Ack, error) {}
	b.ReportAllocs()
	for i := range b.N {
		if i%100_000 == 0 {
			b.StopTimer()
			require.NoError(b, p.Flush(within(b)))
			b.StartTimer()
		}
		if err := p.Async(msg, done); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
}

func BenchmarkAsyncBatch(b *testing.B) {
	_, c := memory(b, clienttest.MemoryOptions{Discard: true})
	p := producer(b, c)
	var batch client.Batch
	value := make([]byte, 100)
	done := func(client.Ack, error) {}
	b.ReportAllocs()
	for range b.N / 100 {
		for range 100 {
			if err := batch.Add(nil, value); err != nil {
				b.Fatal(err)
			}
		}
		if err := p.AsyncBatch("t", 0, &batch, done); err != nil {
			b.Fatal(err)
		}
	}
	require.NoError(b, p.Flush(within(b)))
}

func BenchmarkSend(b *testing.B) {
	_, c := memory(b, clienttest.MemoryOptions{Discard: true})
	p := producer(b, c)
	msg := client.Message{Topic: "t", Value: make([]byte, 100)}
	ctx := within(b)
	b.ReportAllocs()
	for range b.N {
		if _, err := p.Send(ctx, msg); err != nil {
			b.Fatal(err)
		}
	}
}

// stream starts a broker that delivers n frames of 100 records of 100 bytes each.
func stream(t testing.TB, frames int) (*clienttest.Memory, *client.Client) {
	m, c := memory(t, clienttest.MemoryOptions{})
	p := producer(t, c)
	var batch client.Batch
	for range frames {
		for range 100 {
			require.NoError(t, batch.Add(nil, make([]byte, 100)))
		}
		require.NoError(t, p.AsyncBatch("t", 0, &batch, nil))
	}
	require.NoError(t, p.Close(within(t)))
	return m, c
}

func BenchmarkRead(b *testing.B) {
	_, c := stream(b, 20_000)
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; {
		for rec, err := range c.Read(within(b), "t", client.Until(protocol.End), client.MaxRecords(uint64(b.N-n))) {
			if err != nil || len(rec.Value) != 100 {
				b.Fatal(err)
			}
			n++
		}
	}
}
