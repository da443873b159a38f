package server_test

import (
	"fmt"
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
