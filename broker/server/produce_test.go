package server_test

import (
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/broker/brokertest"
	"github.com/millrace-mq/millrace/protocol"
)

func TestPublishedIsDelivered(t *testing.T) {
	for _, level := range []protocol.Level{protocol.LevelNone, protocol.LevelWritten, protocol.LevelDurable, protocol.LevelQuorum} {
		t.Run(level.String(), func(t *testing.T) {
			b := brokertest.Start(t)
			p := connect(t, b)
			p.create("t", floor(level))
			o := p.open("t", 0)
			require.Equal(t, level, o.Floor)
			require.Zero(t, p.publish(o.Handle, max(level, protocol.LevelWritten), "a", "b"))
			r := p.subscribe(o.Handle, 7, protocol.Subscribe{From: protocol.Start, Credit: 1 << 20})
			require.Equal(t, uint64(2), r.End)
			d := p.deliver()
			require.Equal(t, uint32(7), d.sub)
			require.Equal(t, []string{"0:a", "1:b"}, d.records(0))
			require.Equal(t, protocol.DeliverEnd, d.flags)
			require.Equal(t, uint64(2), d.watermark)
		})
	}
}

func TestPipelinedRunsAreAckedInOrder(t *testing.T) {
	b := brokertest.Start(t)
	p := connect(t, b)
	o := p.open("t", 0)
	const runs = 500
	var all []byte
	for i := range runs {
		all = append(all, run(protocol.LevelTopic, o.Handle, uint64(i), batch(fmt.Sprint(2*i), fmt.Sprint(2*i+1)))...)
	}
	go func() { _, err := p.nc.Write(all); requireNoError(t, err) }()
	for i := range runs {
		h, refused := p.ack(o.Handle)
		require.Nil(t, refused)
		require.Equal(t, uint64(2*i), h.Offset())
		require.Equal(t, uint32(2), h.RecordCount())
		require.Equal(t, protocol.LevelDurable, h.Level())
	}
	p.subscribe(o.Handle, 1, protocol.Subscribe{From: protocol.Start, Credit: 1 << 30})
	list, _ := p.collect(0, 2*runs)
	for i, r := range list {
		require.Equal(t, fmt.Sprintf("%d:%d", i, i), r)
	}
}

func requireNoError(t testing.TB, err error) {
	if err != nil {
		t.Error(err)
	}
}

func TestRefusedRunInTheMiddleLeavesTheOthers(t *testing.T) {
	b := brokertest.Start(t)
	p := connect(t, b)
	o := p.open("t", 0)
	bad := batch("x", "y")
	bad[len(bad)/2] ^= 1
	var all []byte
	all = append(all, run(protocol.LevelTopic, o.Handle, 10, batch("a"))...)
	all = append(all, run(protocol.LevelTopic, o.Handle, 11, batch("lost"), bad, batch("lost"))...)
	all = append(all, run(protocol.LevelTopic, o.Handle, 12, batch("b"))...)
	p.write(all)
	h, refused := p.ack(o.Handle)
	require.Nil(t, refused)
	require.Zero(t, h.Offset())
	h, refused = p.ack(o.Handle)
	require.ErrorIs(t, refused, protocol.BadChecksum)
	require.Contains(t, refused.Detail, "frame 1 of the run")
	require.Equal(t, uint64(11), h.Offset(), "the sequence of the refused run")
	h, refused = p.ack(o.Handle)
	require.Nil(t, refused)
	require.Equal(t, uint64(1), h.Offset())

	p.subscribe(o.Handle, 1, protocol.Subscribe{From: protocol.Start, HasTo: true, To: protocol.End, Credit: 1 << 20})
	d := p.deliver()
	require.Equal(t, []string{"0:a", "1:b"}, d.records(0), "nothing of the refused run was appended")
	require.Equal(t, protocol.DeliverEnd|protocol.DeliverDone, d.flags)
}

func TestRunsAreRefusedWithTheirReason(t *testing.T) {
	b := brokertest.Start(t)
	p := connect(t, b)
	p.create("t", protocol.Setting{ID: protocol.SettingMaxMessageBytes, Value: 1 << 10})
	o := p.open("t", 0)
	require.Equal(t, uint32(1<<10), o.MaxMessage)

	flagged := func(flag uint8) []byte {
		x := protocol.Batch{Prelude: protocol.Prelude{Flags: flag}}
		require.NoError(t, x.Add(nil, []byte("v"), nil))
		return append([]byte(nil), x.Seal()...)
	}
	control := protocol.AppendControl(nil, protocol.ControlOffset, nil, nil)
	level := run(9, o.Handle, 1, batch("v"))
	flags := run(protocol.LevelTopic, o.Handle, 1, batch("v"))
	flags[3] = 1
	empty := run(protocol.LevelTopic, o.Handle, 1)
	count := batch("v")
	protocol.HeaderOf(count).SetRecordCount(2)
	protocol.Frame(count).Seal()
	for _, c := range []struct {
		name string
		run  []byte
		code protocol.Code
		text string
	}{
		{"idempotent producer", run(protocol.LevelTopic, o.Handle, 1, flagged(protocol.FlagProducer)), protocol.Unsupported, "idempotent producers"},
		{"deliverAt", run(protocol.LevelTopic, o.Handle, 1, batch("v"), flagged(protocol.FlagDeliverAt)), protocol.Unsupported, "delayed delivery"},
		{"expireAt", run(protocol.LevelTopic, o.Handle, 1, flagged(protocol.FlagExpireAt)), protocol.Unsupported, "expiry"},
		{"lane", run(protocol.LevelTopic, o.Handle, 1, flagged(protocol.FlagLane)), protocol.Unsupported, "priority lanes"},
		{"control record", run(protocol.LevelTopic, o.Handle, 1, control), protocol.Denied, "control record"},
		{"message too large", run(protocol.LevelTopic, o.Handle, 1, sized(1, 2<<10)), protocol.TooLarge, "message 0"},
		{"unknown level", level, protocol.BadRequest, "acks"},
		{"run flags", flags, protocol.Unsupported, "flags"},
		{"empty run", empty, protocol.BadFrame, "no room"},
		{"record count", run(protocol.LevelTopic, o.Handle, 1, count), protocol.BadFrame, "recordCount 2"},
		{"run of several frames too long", run(protocol.LevelTopic, o.Handle, 1, sized(5000, 900), batch("v")), protocol.TooLarge, "run of several frames"},
		{"frame too long", run(protocol.LevelTopic, o.Handle, 1, sized(5000, 900)), protocol.TooLarge, "frame"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p.t = t
			p.write(c.run)
			h, refused := p.ack(o.Handle)
			require.ErrorIs(t, refused, c.code)
			require.Contains(t, refused.Detail, c.text)
			require.Equal(t, uint64(1), h.Offset())
			if c.code == protocol.TooLarge {
				require.Greater(t, refused.Actual, refused.Limit)
				require.NotEmpty(t, refused.Setting)
			}
		})
	}
	p.t = t
	require.Zero(t, p.publish(o.Handle, protocol.LevelTopic, "v"), "the connection still works and nothing was appended")
}

func TestUnknownHandleIsRefusedAndItsRunSkipped(t *testing.T) {
	b := brokertest.Start(t)
	p := connect(t, b)
	o := p.open("t", 0)
	p.write(run(protocol.LevelTopic, 77, 5, sized(1000, 500), batch("v")))
	h, refused := p.ack(77)
	require.ErrorIs(t, refused, protocol.UnknownHandle)
	require.Equal(t, uint64(5), h.Offset())
	require.Zero(t, p.publish(o.Handle, protocol.LevelTopic, "v"))
	p.must(p.call(protocol.OpClose, 0, o.Handle, "", nil))
	p.write(run(protocol.LevelTopic, o.Handle, 6, batch("v")))
	_, refused = p.ack(o.Handle)
	require.ErrorIs(t, refused, protocol.UnknownHandle)
}

func TestAcksOfOneHandleKeepTheirOrderAcrossLevels(t *testing.T) {
	b := brokertest.Start(t)
	p := connect(t, b)
	p.create("t", floor(protocol.LevelNone))
	o := p.open("t", 0)
	levels := []protocol.Level{protocol.LevelDurable, protocol.LevelWritten, protocol.LevelNone, protocol.LevelQuorum, protocol.LevelWritten}
	const rounds = 50
	var all []byte
	for range rounds {
		for _, l := range levels {
			all = append(all, run(l, o.Handle, 0, batch("v"))...)
		}
	}
	p.write(all)
	offset := uint64(0)
	for range rounds {
		for _, l := range levels {
			if l != protocol.LevelNone { // never acknowledged
				h, refused := p.ack(o.Handle)
				require.Nil(t, refused)
				require.Equal(t, offset, h.Offset())
				require.Equal(t, l, h.Level())
			}
			offset++
		}
	}
}

func TestLargeMessagesPassWhole(t *testing.T) {
	b := brokertest.Start(t)
	p := connect(t, b)
	p.create("t", protocol.Setting{ID: protocol.SettingMaxMessageBytes, Value: 20 << 20})
	o := p.open("t", 0)
	big := sized(1, 17<<20)
	p.write(run(protocol.LevelTopic, o.Handle, 1, big))
	p.write(run(protocol.LevelTopic, o.Handle, 2, batch("small")))
	for i := range 2 {
		h, refused := p.ack(o.Handle)
		require.Nil(t, refused)
		require.Equal(t, uint64(i), h.Offset())
	}
	p.subscribe(o.Handle, 1, protocol.Subscribe{From: protocol.Start, Credit: 1})
	d := p.deliver()
	require.Len(t, d.frames, 1, "one whole frame whatever the credit")
	require.Equal(t, len(big), d.size)
	var more protocol.Header
	more.PutCredit(1, 18<<20)
	p.write(more[:])
	require.Equal(t, []string{"1:small"}, func() []string { d := p.deliver(); return d.records(0) }())
	require.Eventually(t, func() bool { return stat(b, "bytes_buffered") == 0 }, patience, tick, "buffers come back")
}

func stat(b *brokertest.Broker, name string) uint64 {
	s := protocol.Stats{Items: b.Server.Stats()}
	return s.Get(name)
}

func TestProducersToSeveralPartitionsShareAConnection(t *testing.T) {
	b := brokertest.Start(t)
	p := connect(t, b)
	p.create("t", protocol.Setting{ID: protocol.SettingPartitions, Value: 3})
	var handles []uint32
	for i := range 3 {
		o := p.open("t", uint32(i))
		require.Equal(t, uint32(3), o.Partitions)
		handles = append(handles, o.Handle)
	}
	var all []byte
	for i := range 30 {
		all = append(all, run(protocol.LevelTopic, handles[i%3], uint64(i), batch(fmt.Sprint(i)))...)
	}
	p.write(all)
	next := map[uint32]uint64{}
	for range 30 {
		h, _ := p.frame()
		require.Equal(t, protocol.MagicAck, h.Magic())
		require.Equal(t, protocol.OK, h.AckStatus())
		require.Equal(t, next[h.Handle()], h.Offset())
		next[h.Handle()]++
	}
	_, refused := p.call(protocol.OpOpen, 0, 0, "t", &protocol.Open{Partition: 3})
	require.Equal(t, protocol.UnknownPartition, errorOf(protocol.UnknownPartition, refused).Code)
}

func TestAPeerThatOnlyShutItsSendingSideGetsItsAcks(t *testing.T) {
	b := brokertest.Start(t)
	p := connect(t, b)
	o := p.open("t", 0)
	var all []byte
	for i := range 100 {
		all = append(all, run(protocol.LevelDurable, o.Handle, uint64(i), batch("v"))...)
	}
	p.write(all)
	require.NoError(t, p.nc.(*net.TCPConn).CloseWrite())
	for i := range 100 {
		h, refused := p.ack(o.Handle)
		require.Nil(t, refused)
		require.Equal(t, uint64(i), h.Offset())
	}
	p.eof()
}
