package server_test

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/broker/brokertest"
	"github.com/millrace-mq/millrace/protocol"
)

func sized(records, size int) []byte {
	var b protocol.Batch
	for range records {
		if err := b.Add(nil, make([]byte, size), nil); err != nil {
			panic(err)
		}
	}
	return append([]byte(nil), b.Seal()...)
}

// benchProduce has producers send runs of one batch, window runs in flight each.
func benchProduce(b *testing.B, level protocol.Level, producers, records, window int) {
	br := brokertest.Start(b)
	admin := connect(b, br)
	admin.create("t", floor(level))
	frame := sized(records, 100)
	each := b.N/(producers*records) + 1
	done := make(chan error, 2*producers)
	var start []chan struct{}
	for range producers {
		p := connect(b, br)
		o := p.open("t", 0)
		require.NoError(b, p.nc.SetDeadline(noDeadline))
		one := run(protocol.LevelTopic, o.Handle, 0, frame)
		chunk := max(1, min(window/2, 256<<10/len(one)))
		var all []byte
		for range chunk {
			all = append(all, one...)
		}
		room := make(chan struct{}, (window+chunk-1)/chunk)
		go0 := make(chan struct{})
		start = append(start, go0)
		chunks := (each + chunk - 1) / chunk
		go func() {
			<-go0
			for range chunks {
				room <- struct{}{}
				if _, err := p.nc.Write(all); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
		go func() {
			acks := make([]byte, protocol.HeaderSize*chunk)
			for range chunks {
				if _, err := io.ReadFull(p.nc, acks); err != nil {
					done <- err
					return
				}
				<-room
			}
			done <- nil
		}()
	}
	b.ReportAllocs()
	b.ResetTimer()
	for _, c := range start {
		close(c)
	}
	for range 2 * producers {
		require.NoError(b, <-done)
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mmsg/s")
	s := protocol.Stats{Items: br.Server.Stats()}
	b.ReportMetric(float64(s.Get("appends"))/float64(max(1, s.Get("syncs"))), "appends/sync")
	b.ReportMetric(float64(s.Get("sync_nanos"))/float64(max(1, s.Get("syncs")))/1e3, "µs/sync")
	b.ReportMetric(float64(s.Get("runs"))/float64(max(1, s.Get("appends"))), "runs/append")
	b.ReportMetric(float64(s.Get("runs"))/float64(max(1, s.Get("reads"))), "runs/read")
}

func BenchmarkProduceWritten10x100(b *testing.B) { benchProduce(b, protocol.LevelWritten, 10, 100, 64) }
func BenchmarkProduceDurable10x100(b *testing.B) { benchProduce(b, protocol.LevelDurable, 10, 100, 64) }
func BenchmarkProduceWritten10x1(b *testing.B) {
	benchProduce(b, protocol.LevelWritten, 10, 1, 1024)
}
func BenchmarkLockstepWritten10x100(b *testing.B) {
	benchProduce(b, protocol.LevelWritten, 10, 100, 1)
}
func BenchmarkLockstepDurable10x100(b *testing.B) {
	benchProduce(b, protocol.LevelDurable, 10, 100, 1)
}
func BenchmarkLockstepDurable100x1(b *testing.B) { benchProduce(b, protocol.LevelDurable, 100, 1, 1) }

// benchConsume has consumers read a full log from its start and throw it away.
func benchConsume(b *testing.B, consumers, records int) {
	br := brokertest.Start(b)
	p := connect(b, br)
	require.NoError(b, p.nc.SetDeadline(noDeadline))
	p.create("t", floor(protocol.LevelWritten))
	o := p.open("t", 0)
	frame := sized(records, 100)
	frames := b.N/records + 1
	one := run(protocol.LevelTopic, o.Handle, 0, frame)
	for range frames {
		p.write(one)
		_, refused := p.ack(o.Handle)
		require.Nil(b, refused)
	}
	want := int64(frames) * int64(len(frame))
	done := make(chan error, consumers)
	b.ReportAllocs()
	b.ResetTimer()
	for range consumers {
		c := connect(b, br)
		h := c.open("t", 0)
		require.NoError(b, c.nc.SetDeadline(noDeadline))
		c.subscribe(h.Handle, 1, protocol.Subscribe{From: protocol.Start, Credit: 1 << 60})
		go func() {
			for left := want; left > 0; {
				f, err := c.r.Next()
				if err != nil {
					done <- err
					return
				}
				if protocol.HeaderOf(f).Magic() == protocol.MagicData {
					left -= int64(len(f))
				}
			}
			done <- nil
		}()
	}
	for range consumers {
		require.NoError(b, <-done)
	}
	b.StopTimer()
	b.ReportMetric(float64(consumers)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mmsg/s")
}

func BenchmarkConsume1(b *testing.B) { benchConsume(b, 1, 100) }
func BenchmarkConsume4(b *testing.B) { benchConsume(b, 4, 100) }

// BenchmarkPush is the way of one record: published, appended, pushed to a waiting consumer.
func BenchmarkPush(b *testing.B) {
	br := brokertest.Start(b)
	p := connect(b, br)
	p.create("t", floor(protocol.LevelWritten))
	o := p.open("t", 0)
	one := run(protocol.LevelTopic, o.Handle, 0, sized(1, 100))
	c := connect(b, br)
	h := c.open("t", 0)
	require.NoError(b, p.nc.SetDeadline(noDeadline))
	require.NoError(b, c.nc.SetDeadline(noDeadline))
	c.subscribe(h.Handle, 1, protocol.Subscribe{From: protocol.Start, Credit: 1 << 60})
	ack, pushed := make([]byte, protocol.HeaderSize), make([]byte, len(one))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.nc.Write(one); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c.nc, pushed); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(p.nc, ack); err != nil {
			b.Fatal(err)
		}
	}
}
