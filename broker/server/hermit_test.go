package server_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/broker/brokertest"
	"github.com/millrace-mq/millrace/broker/server"
	"github.com/millrace-mq/millrace/protocol"
)

func produceHello(topic string, part uint32) protocol.LegacyHello {
	return protocol.LegacyHello{Kind: protocol.LegacyProduce, Topic: topic, Partition: part}
}

func consumeHello(group, topic string) protocol.LegacyHello {
	return protocol.LegacyHello{Kind: protocol.LegacyConsume, Group: group, Topic: topic}
}

// commitHermit commits as HermitMQ's client does: a connection for each, one byte in answer.
func commitHermit(t *testing.T, addr, group, topic string, offset uint64) error {
	c := dialHermit(t, addr, protocol.LegacyHello{Kind: protocol.LegacyCommit, Group: group, Topic: topic, Offset: offset})
	defer c.nc.Close()
	var b [1]byte
	if _, err := io.ReadFull(c.nc, b[:]); err != nil {
		return err
	}
	require.Equal(t, byte(1), b[0])
	_, err := c.nc.Read(b[:])
	require.ErrorIs(t, err, io.EOF, "nothing follows the answer")
	return nil
}

func TestHermitClientsProduceConsumeAndCommit(t *testing.T) {
	b := brokertest.Start(t)
	p := dialHermit(t, b.Addr(), produceHello("t", 0))
	big := strings.Repeat("x", 300<<10)
	frames := []struct {
		key, payload string
		count        uint32
		offset       uint64
	}{{"", "one", 1, 0}, {"k", "two\nthree\n", 2, 1}, {"", big, 100, 3}, {strings.Repeat("K", protocol.MaxKey), big, 1, 103}, {"", "", 0, 104}, {"z", "last", 1, 105}}
	var all []byte
	for _, f := range frames {
		all = append(all, legacyFrame(f.key, f.payload, f.count)...)
	}
	go func() { _, err := p.nc.Write(all); requireNoError(t, err) }()
	for _, f := range frames {
		status, offset := p.ack()
		require.Zero(t, status)
		require.Equal(t, f.offset, offset, "acks come in order")
	}
	read := func(c *hermit, from int) {
		for _, f := range frames[from:] {
			offset, key, payload, count := c.frame()
			require.Equal(t, f.offset, offset)
			require.True(t, f.key == key && f.payload == payload, "frame at %d is altered", offset)
			require.Equal(t, max(1, f.count), count)
		}
	}
	c := dialHermit(t, b.Addr(), consumeHello("g", "t"))
	read(c, 0)
	require.Eventually(t, func() bool { return stat(b, "bytes_sendfile") > 0 }, patience, tick, "large bodies come straight from the file")
	require.NoError(t, commitHermit(t, b.Addr(), "g", "t", 103))
	read(dialHermit(t, b.Addr(), consumeHello("g", "t")), 3)
	read(dialHermit(t, b.Addr(), consumeHello("other", "t")), 0)
	require.NoError(t, commitHermit(t, b.Addr(), "g2", "t", 50))
	read(dialHermit(t, b.Addr(), consumeHello("g2", "t")), 2) // a batch is sent again whole

	// The tail is pushed.
	p.nc.Write(legacyFrame("", "new", 1))
	_, offset := p.ack()
	got, _, payload, _ := c.frame()
	require.Equal(t, offset, got)
	require.Equal(t, "new", payload)
	for _, clean := range []bool{true, false} {
		b.Restart(clean)
		read(dialHermit(t, b.Addr(), consumeHello("g", "t")), 3)
	}
}

func TestHermitErrorsCloseAndAppendNothing(t *testing.T) {
	b := brokertest.Start(t)
	p := dialHermit(t, b.Addr(), produceHello("t", 0))
	p.nc.Write(legacyFrame("", "v", 1))
	p.ack()
	closed := func(c *hermit) {
		t.Helper()
		n, err := io.Copy(io.Discard, c.nc)
		require.Zero(t, n)
		if err != nil {
			require.NotErrorIs(t, err, net.ErrClosed)
			require.False(t, asTimeout(err, new(net.Error)), "the broker did not hang up")
		}
	}
	require.Error(t, commitHermit(t, b.Addr(), "g", "t", 2), "beyond the end")
	require.Error(t, commitHermit(t, b.Addr(), "g", "nothing", 0))
	require.Error(t, commitHermit(t, b.Addr(), "g\n", "t", 0))
	closed(dialHermit(t, b.Addr(), produceHello("t", 1)))
	closed(dialHermit(t, b.Addr(), produceHello("../t", 0)))
	closed(dialHermit(t, b.Addr(), consumeHello("g", "_internal")))
	for name, bytes := range map[string][]byte{
		"magic":         append([]byte{2}, legacyFrame("", "v", 1)[1:]...),
		"records":       legacyFrame("", "v", 1<<31),
		"oversize":      legacyFrame("", strings.Repeat("v", 1<<20+1), 1),
		"key":           legacyFrame(strings.Repeat("k", protocol.MaxKey+1), "v", 1),
		"declares 4 GB": func() []byte { var h protocol.Header; h.PutLegacy(0, 0, 1<<31, 1<<31, 1); return h[:] }(),
	} {
		t.Run(name, func(t *testing.T) {
			c := dialHermit(t, b.Addr(), produceHello("t", 0))
			c.nc.Write(bytes)
			closed(c)
		})
	}
	half := dialHermit(t, b.Addr(), produceHello("t", 0))
	f := legacyFrame("", "never whole", 1)
	half.nc.Write(f[:len(f)-1])
	half.nc.Close()
	require.Equal(t, uint64(1), partition(t, b, "t", 0).Visible().Offset)
	require.Len(t, b.Broker.Topics(), 1)
}

func TestHermitAndNativeClientsReadEachOther(t *testing.T) {
	b := brokertest.Start(t)
	p := connect(t, b)
	o := p.open("t", 0)
	h := dialHermit(t, b.Addr(), produceHello("t", 0))
	p.publish(o.Handle, protocol.LevelTopic, "a", "b")
	h.nc.Write(legacyFrame("k", "body", 3))
	_, offset := h.ack()
	require.Equal(t, uint64(2), offset)
	require.NoError(t, commitHermit(t, b.Addr(), "g", "t", 1)) // a control record in between
	p.publish(o.Handle, protocol.LevelTopic, "c")

	p.subscribe(o.Handle, 1, protocol.Subscribe{From: protocol.Start, Credit: 1 << 20})
	list, runs := p.collect(0, 4)
	require.Equal(t, []string{"0:a", "1:b", "2:body", "5:c"}, list)
	it := protocol.Records(runs[0].frames[1])
	require.True(t, it.Next())
	require.Equal(t, "k", string(it.Record.Key))
	require.Equal(t, uint32(3), it.Record.Span)

	c := dialHermit(t, b.Addr(), consumeHello("g", "t"))
	for _, want := range []struct {
		offset       uint64
		key, payload string
		count        uint32
	}{{1, "", "b", 1}, {2, "k", "body", 3}, {5, "", "c", 1}} {
		offset, key, payload, count := c.frame()
		require.Equal(t, want.offset, offset, "records before the group's position are not sent")
		require.Equal(t, want.payload, payload)
		require.Equal(t, want.key, key)
		require.Equal(t, want.count, count)
	}
}

func TestHermitLoadIsPipelinedAndWholeBatchesComeBack(t *testing.T) {
	for _, level := range []protocol.Level{protocol.LevelWritten, protocol.LevelDurable} {
		t.Run(level.String(), func(t *testing.T) {
			b := brokertest.Start(t)
			admin := connect(t, b)
			admin.create("load_test", floor(level))
			const producers, batches, records = 10, 50, 100
			var acked sync.WaitGroup
			defer acked.Wait()
			for i := range producers {
				p := dialHermit(t, b.Addr(), produceHello("load_test", 0))
				go func() {
					for j := range batches {
						body := strings.Repeat(fmt.Sprintf("%d/%d\n", i, j), records)
						_, err := p.nc.Write(legacyFrame("", body, records))
						requireNoError(t, err)
					}
				}()
				acked.Add(1)
				go func() {
					defer acked.Done()
					for range batches {
						if status, _ := p.ack(); status != 0 {
							t.Error("refused")
						}
					}
				}()
			}
			c := dialHermit(t, b.Addr(), consumeHello("stress", "load_test"))
			next := uint64(0)
			seen := map[string]int{}
			for range producers * batches {
				offset, _, payload, count := c.frame()
				require.Equal(t, next, offset)
				next += uint64(count)
				line, _, _ := strings.Cut(payload, "\n")
				seen[line]++
				require.Equal(t, strings.Repeat(line+"\n", records), payload)
			}
			require.Len(t, seen, producers*batches)
		})
	}
}

func TestLegacyOffClosesLegacyConnections(t *testing.T) {
	b := brokertest.Start(t, brokertest.Options{Server: func(o *server.Options) { o.Legacy = "off" }})
	c := dialHermit(t, b.Addr(), produceHello("t", 0))
	_, err := c.nc.Read(make([]byte, 1))
	require.Error(t, err)
	require.False(t, asTimeout(err, new(net.Error)))
	require.Empty(t, b.Broker.Topics())
	connect(t, b).open("t", 0)
}
