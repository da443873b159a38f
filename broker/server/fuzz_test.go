package server_test

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/millrace-mq/millrace/broker"
	"github.com/millrace-mq/millrace/broker/brokertest"
	"github.com/millrace-mq/millrace/protocol"
	"github.com/millrace-mq/millrace/storage/vfs"
)

// fuzzed is a broker that is told anything, with its data in memory.
func fuzzed(f *testing.F) *pipes {
	b := brokertest.Start(f, brokertest.Options{Broker: func(o *broker.Options) {
		o.FS, o.Topics, o.Partitions = vfs.NewMem(), 20, 40
		o.Topic = protocol.TopicSettings{{ID: protocol.SettingDurability, Value: uint64(protocol.LevelWritten)},
			{ID: protocol.SettingSegmentBytes, Value: 64 << 10}, {ID: protocol.SettingRetentionBytes, Value: 128 << 10}}
	}})
	l := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	served := make(chan error, 1)
	go func() { served <- b.Server.Serve(l) }()
	f.Cleanup(func() { b.Stop(); <-served })
	return l
}

// say writes prefix and data to a new connection, reads whatever comes, and requires that the
// broker then ends the connection and serves another.
func say(t *testing.T, l *pipes, data []byte) {
	near, far := net.Pipe()
	l.conns <- far
	if err := near.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	var read sync.WaitGroup
	read.Go(func() {
		buf := make([]byte, 4096)
		for {
			if _, err := near.Read(buf); err != nil {
				return
			}
		}
	})
	near.Write(data) // may fail: the broker may have hung up
	near.Close()
	read.Wait()
}

func FuzzConnection(f *testing.F) {
	l := fuzzed(f)
	hello := request(protocol.OpHello, 0, 0, 1, 0, "", &protocol.Hello{MinVersion: 1, MaxVersion: 1})
	openT := request(protocol.OpOpen, 0, 0, 2, 0, "t", &protocol.Open{})
	f.Add([]byte{}, false)
	f.Add(run(protocol.LevelTopic, 1, 0, batch("a", "b"), batch("c")), true)
	f.Add(request(protocol.OpSubscribe, 0, 10, 3, 1, "", &protocol.Subscribe{Subscription: 1, Flags: 1, Credit: 1 << 20}), true)
	f.Add(request(protocol.OpTopicCreate, 0, 0, 3, 0, "u", &protocol.TopicSettings{floor(1)}), true)
	f.Add(request(protocol.OpTopicList, 0, 0, 3, 0, "", &protocol.TopicList{}), true)
	f.Add(request(protocol.OpOffsets, 0, 0, 3, 0, "t", &protocol.Offsets{Items: []protocol.OffsetsItem{{}}}), true)
	for _, c := range hostile(1) {
		f.Add(c.bytes, true)
	}
	f.Add((&protocol.LegacyHello{Kind: protocol.LegacyProduce, Topic: "t"}).AppendTo(nil), false)
	f.Add(append((&protocol.LegacyHello{Kind: protocol.LegacyProduce, Topic: "t"}).AppendTo(nil), legacyFrame("k", "v", 1)...), false)
	f.Add((&protocol.LegacyHello{Kind: protocol.LegacyConsume, Group: "g", Topic: "t"}).AppendTo(nil), false)
	f.Add((&protocol.LegacyHello{Kind: protocol.LegacyCommit, Group: "g", Topic: "t"}).AppendTo(nil), false)
	f.Fuzz(func(t *testing.T, data []byte, greeted bool) {
		if greeted {
			data = append(append(append([]byte(nil), hello...), openT...), data...)
		}
		say(t, l, data)
	})
}
