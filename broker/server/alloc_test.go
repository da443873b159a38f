package server_test

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/broker/brokertest"
	"github.com/millrace-mq/millrace/protocol"
)

// allocations runs f often and returns the allocations of the whole process for each call:
// client, reader, pump, syncer and all.
func allocations(t *testing.T, f func()) float64 {
	t.Helper()
	for range 200 { // buffers reach their sizes
		f()
	}
	return testing.AllocsPerRun(1000, f)
}

func readExactly(t *testing.T, r io.Reader, b []byte) {
	if _, err := io.ReadFull(r, b); err != nil {
		t.Fatal(err)
	}
}

func TestIngestAllocatesNothingPerFrame(t *testing.T) {
	for _, level := range []protocol.Level{protocol.LevelWritten, protocol.LevelDurable} {
		t.Run(level.String(), func(t *testing.T) {
			b := brokertest.Start(t)
			p := connect(t, b)
			p.create("t", floor(level))
			o := p.open("t", 0)
			var all []byte
			for range 10 {
				all = append(all, run(protocol.LevelTopic, o.Handle, 0, batch("a", "b"), batch("c"))...)
			}
			acks := make([]byte, 10*protocol.HeaderSize)
			require.Zero(t, allocations(t, func() {
				if _, err := p.nc.Write(all); err != nil {
					t.Fatal(err)
				}
				readExactly(t, p.nc, acks)
			}))
			require.Equal(t, protocol.OK, protocol.HeaderOf(acks).AckStatus())
		})
	}
}

func TestHermitIngestAllocatesNothingPerFrame(t *testing.T) {
	b := brokertest.Start(t)
	p := dialHermit(t, b.Addr(), produceHello("t", 0))
	var all []byte
	for range 10 {
		all = append(all, legacyFrame("k", "some\nrecords\n", 2)...)
	}
	acks := make([]byte, 10*protocol.LegacyAckSize)
	require.Zero(t, allocations(t, func() {
		if _, err := p.nc.Write(all); err != nil {
			t.Fatal(err)
		}
		readExactly(t, p.nc, acks)
	}))
}

func TestPushAllocatesNothingPerRun(t *testing.T) {
	b := brokertest.Start(t)
	p := connect(t, b)
	p.create("t", floor(protocol.LevelWritten))
	o := p.open("t", 0)
	one := run(protocol.LevelTopic, o.Handle, 0, batch("a", "b"))
	c := connect(t, b)
	h := c.open("t", 0)
	c.subscribe(h.Handle, 1, protocol.Subscribe{From: protocol.Start, Credit: 1 << 40})
	ack, pushed := make([]byte, protocol.HeaderSize), make([]byte, len(one))
	require.Zero(t, allocations(t, func() {
		if _, err := p.nc.Write(one); err != nil {
			t.Fatal(err)
		}
		readExactly(t, p.nc, ack)
		readExactly(t, c.nc, pushed)
	}))
	require.Equal(t, protocol.MagicDeliver, protocol.HeaderOf(pushed).Magic())
}

func TestSendfileAllocatesNothingPerRun(t *testing.T) {
	b := brokertest.Start(t)
	p := connect(t, b)
	o := p.open("t", 0)
	frame := sized(100, 1000)
	for range 1300 {
		p.write(run(protocol.LevelTopic, o.Handle, 0, frame))
		_, refused := p.ack(o.Handle)
		require.Nil(t, refused)
	}
	p.subscribe(o.Handle, 1, protocol.Subscribe{From: protocol.Start, Credit: 0})
	var more protocol.Header
	more.PutCredit(1, uint32(len(frame)))
	pushed := make([]byte, protocol.HeaderSize+len(frame))
	require.Zero(t, allocations(t, func() {
		if _, err := p.nc.Write(more[:]); err != nil {
			t.Fatal(err)
		}
		readExactly(t, p.nc, pushed)
	}))
	require.Eventually(t, func() bool { return stat(b, "bytes_sendfile") >= uint64(1200*len(frame)) }, patience, tick)
	require.Zero(t, stat(b, "bytes_copied"))
}
