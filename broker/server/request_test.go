package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/broker/brokertest"
	"github.com/millrace-mq/millrace/protocol"
)

func TestUndefinedFlagsOfRequestsAreRefusedByName(t *testing.T) {
	b := brokertest.Start(t)
	p := connect(t, b)
	o := p.open("t", 0)
	for _, spec := range protocol.Opcodes {
		if spec.Since == 0 || spec.Opcode == protocol.OpHello {
			continue
		}
		e := p.refused(p.call(spec.Opcode, 0x8002, o.Handle, "new", nil))
		require.Equal(t, protocol.Unsupported, e.Code, spec.Name)
		require.Contains(t, e.Detail, "0x8002", spec.Name)
		require.Contains(t, e.Detail, spec.Name)
	}
	none := protocol.TopicSettings{}
	e := p.refused(p.call(protocol.OpTopicCreate, protocol.CreateIfMissing|0x4000, 0, "new", &none))
	require.Equal(t, protocol.Unsupported, e.Code)
	require.Contains(t, e.Detail, "0x4000", "only what is undefined is named")
	e = p.refused(p.call(protocol.OpOpen, 0, 0, "new", &protocol.Open{Flags: protocol.OpenNoCreate | 0x82}))
	require.Equal(t, protocol.Unsupported, e.Code)
	require.Contains(t, e.Detail, "0x82")
	e = p.refused(p.call(protocol.OpSubscribe, 0, o.Handle, "", &protocol.Subscribe{Flags: protocol.SubscribeOneShot | 0x8000}))
	require.Contains(t, e.Detail, "0x8000")
	require.Len(t, b.Broker.Topics(), 1, "nothing that was refused was done")
	p.must(p.call(protocol.OpTopicCreate, protocol.CreateIfMissing, 0, "t", &none))

	q := dial(t, b.Addr())
	e = q.refused(q.call(protocol.OpHello, 1, 0, "", &protocol.Hello{MinVersion: 1, MaxVersion: 1}))
	require.Equal(t, protocol.Unsupported, e.Code)
}

func TestStatsCountsItsItemsInTheHeader(t *testing.T) {
	b := brokertest.Start(t)
	p := connect(t, b)
	h, body := p.call(protocol.OpStats, 0, 0, "", nil)
	var reply protocol.Stats
	require.NoError(t, reply.Decode(p.must(h, body)))
	require.NotEmpty(t, reply.Items)
	require.Equal(t, uint32(len(reply.Items)), h.RecordCount())
}
