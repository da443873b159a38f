package server_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/broker"
	"github.com/millrace-mq/millrace/broker/brokertest"
	"github.com/millrace-mq/millrace/protocol"
	"github.com/millrace-mq/millrace/storage/vfs"
)

// faulty is a broker whose disk fails as decide says.
func faulty(t *testing.T, decide func(vfs.Op) error) *brokertest.Broker {
	return brokertest.Start(t, brokertest.Options{Broker: func(o *broker.Options) { o.FS = vfs.Fault(o.FS, decide) }})
}

func TestAckIsRefusedWhenTheDiskFailsUnderIt(t *testing.T) {
	var failing atomic.Bool
	b := faulty(t, func(op vfs.Op) error {
		if failing.Load() && op.Kind == vfs.OpSync && strings.HasSuffix(op.Name, ".wal") {
			return syscall.EIO
		}
		return nil
	})
	p := connect(t, b)
	o := p.open("t", 0)
	other := p.open("other", 0)
	p.publish(o.Handle, protocol.LevelTopic, "a")
	p.publish(other.Handle, protocol.LevelTopic, "a")
	failing.Store(true)
	p.write(append(run(protocol.LevelTopic, o.Handle, 41, batch("b")), run(protocol.LevelTopic, o.Handle, 42, batch("c"))...))
	for _, sequence := range []uint64{41, 42} {
		h, refused := p.ack(o.Handle)
		require.ErrorIs(t, refused, protocol.StorageFailed)
		require.Equal(t, sequence, h.Offset())
	}
	failing.Store(false)
	p.write(run(protocol.LevelWritten, o.Handle, 43, batch("d")))
	_, refused := p.ack(o.Handle)
	require.ErrorIs(t, refused, protocol.StorageFailed)
	p.subscribe(o.Handle, 1, protocol.Subscribe{From: protocol.Start, HasTo: true, To: protocol.End, Credit: 1 << 20})
	require.Equal(t, []string{"a"}, values(p.deliver()), "what was durable is read on")
	require.Equal(t, uint64(1), p.publish(other.Handle, protocol.LevelTopic, "b"), "other partitions are untouched")
	require.Equal(t, protocol.PartitionFailed, p.info("t").Partitions[0].State)
}

func TestFullDiskRefusesAndRecoversWithoutRestart(t *testing.T) {
	var full atomic.Bool
	b := faulty(t, func(op vfs.Op) error {
		if full.Load() && op.Kind == vfs.OpWritev {
			return vfs.ShortWrite{N: 10, Err: syscall.ENOSPC}
		}
		return nil
	})
	p := connect(t, b)
	o := p.open("t", 0)
	p.publish(o.Handle, protocol.LevelTopic, "a")
	full.Store(true)
	p.write(run(protocol.LevelTopic, o.Handle, 1, batch("b")))
	_, refused := p.ack(o.Handle)
	require.ErrorIs(t, refused, protocol.NoSpace)
	require.True(t, refused.Retriable())
	full.Store(false)
	require.Equal(t, uint64(1), p.publish(o.Handle, protocol.LevelTopic, "b"))
	b.Restart(false)
	p = connect(t, b)
	o = p.open("t", 0)
	p.subscribe(o.Handle, 1, protocol.Subscribe{From: protocol.Start, HasTo: true, To: protocol.End, Credit: 1 << 20})
	require.Equal(t, []string{"a", "b"}, values(p.deliver()))
}

func TestDamageIsToldAndCanBeSkipped(t *testing.T) {
	b := brokertest.Start(t)
	p := connect(t, b)
	o := p.open("t", 0)
	var sizes []int
	for i := range 10 {
		f := batch(strings.Repeat(string(rune('a'+i)), 1000))
		sizes = append(sizes, len(f))
		p.write(run(protocol.LevelTopic, o.Handle, 1, f))
		_, refused := p.ack(o.Handle)
		require.Nil(t, refused)
	}
	killed := t.TempDir() // what a killed process leaves, then damaged
	require.NoError(t, os.CopyFS(killed, os.DirFS(b.Dir())))
	wals, err := filepath.Glob(filepath.Join(killed, "topics", "*", "0", "*.wal"))
	require.NoError(t, err)
	require.Len(t, wals, 1)
	f, err := os.OpenFile(wals[0], os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("damage"), int64(4*sizes[0]+500))
	require.NoError(t, err)
	require.NoError(t, f.Close())

	b = brokertest.Start(t, brokertest.Options{Dir: killed})
	p = connect(t, b)
	o = p.open("t", 0)
	require.Equal(t, uint64(10), o.End, "what lies behind the damage is kept")
	m := protocol.Subscribe{Subscription: 1, From: protocol.Start, Credit: 1 << 20}
	id := p.send(protocol.OpSubscribe, 0, 0, o.Handle, "", &m)
	p.must(p.response(protocol.OpSubscribe, id))
	d := p.deliver()
	require.Len(t, values(d), 4)
	e := p.refused(p.response(protocol.OpSubscribe, id))
	require.Equal(t, protocol.Corrupt, e.Code)
	require.Equal(t, [2]uint64{4, 5}, [2]uint64{e.From, e.To})
	p.subscribe(o.Handle, 1, protocol.Subscribe{From: protocol.At(e.To), HasTo: true, To: protocol.End, Credit: 1 << 20})
	require.Len(t, values(p.deliver()), 5)
	h := dialHermit(t, b.Addr(), consumeHello("g", "t"))
	for i := range 4 {
		offset, _, _, _ := h.frame()
		require.Equal(t, uint64(i), offset)
	}
	_, err = h.nc.Read(make([]byte, 1))
	require.Error(t, err, "a legacy consumer is cut at damage, never sent past it")
	require.False(t, asTimeout(err, new(net.Error)))
}

func TestRetentionUnderAReaderIsToldAsAPosition(t *testing.T) {
	b := brokertest.Start(t, brokertest.Options{Broker: func(o *broker.Options) { o.Upkeep = time.Hour }})
	p := connect(t, b)
	p.create("t", protocol.Setting{ID: protocol.SettingSegmentBytes, Value: 64 << 10}, protocol.Setting{ID: protocol.SettingRetentionBytes, Value: 100 << 10})
	o := p.open("t", 0)
	publish := func(n int) {
		for range n {
			p.write(run(protocol.LevelTopic, o.Handle, 1, sized(1, 30<<10)))
			_, refused := p.ack(o.Handle)
			require.Nil(t, refused)
		}
	}
	publish(4)
	m := protocol.Subscribe{Subscription: 1, From: protocol.At(1)}
	id := p.send(protocol.OpSubscribe, 0, 0, o.Handle, "", &m)
	p.must(p.response(protocol.OpSubscribe, id))
	publish(20)
	b.Broker.Tend(t.Context())
	start := partition(t, b, "t", 0).Start()
	require.Greater(t, start, uint64(4))
	var more protocol.Header
	more.PutCredit(1, 1<<20)
	p.write(more[:])
	e := p.refused(p.response(protocol.OpSubscribe, id))
	require.Equal(t, protocol.OffsetOutOfRange, e.Code)
	require.Equal(t, start, e.From)
	require.Equal(t, uint64(24), e.To)
	e = p.refused(p.call(protocol.OpSubscribe, 0, o.Handle, "", &m))
	require.Equal(t, protocol.OffsetOutOfRange, e.Code)
	require.Equal(t, uint64(1), e.Actual)
}

func TestFramesLargerThanTheClientTakesEndTheSubscription(t *testing.T) {
	b := brokertest.Start(t)
	q := connect(t, b)
	o := q.open("t", 0)
	q.publish(o.Handle, protocol.LevelTopic, "small")
	q.publish(o.Handle, protocol.LevelTopic, strings.Repeat("x", 100<<10))
	q.publish(o.Handle, protocol.LevelTopic, "last")
	p := dial(t, b.Addr())
	p.must(p.call(protocol.OpHello, 0, 0, "", &protocol.Hello{MinVersion: 1, MaxVersion: 1, MaxFrame: 64 << 10}))
	h := p.open("t", 0)
	m := protocol.Subscribe{Subscription: 1, From: protocol.Start, Credit: 1 << 20}
	id := p.send(protocol.OpSubscribe, 0, 0, h.Handle, "", &m)
	p.must(p.response(protocol.OpSubscribe, id))
	require.Equal(t, []string{"small"}, values(p.deliver()))
	e := p.refused(p.response(protocol.OpSubscribe, id))
	require.Equal(t, protocol.TooLarge, e.Code)
	require.Equal(t, [2]uint64{1, 2}, [2]uint64{e.From, e.To})
	p.subscribe(h.Handle, 1, protocol.Subscribe{From: protocol.At(e.To), Credit: 1 << 20})
	require.Equal(t, []string{"last"}, values(p.deliver()))
}
