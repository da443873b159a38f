package server_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/broker"
	"github.com/millrace-mq/millrace/broker/brokertest"
	"github.com/millrace-mq/millrace/broker/server"
	"github.com/millrace-mq/millrace/protocol"
)

func (p *peer) info(topic string) (info protocol.TopicInfo) {
	p.t.Helper()
	require.NoError(p.t, info.Decode(p.must(p.call(protocol.OpTopicDescribe, 0, 0, topic, nil))))
	return info
}

func TestTopicsLiveThroughTheirRequests(t *testing.T) {
	b := brokertest.Start(t)
	p := connect(t, b)
	settings := protocol.TopicSettings{{ID: protocol.SettingPartitions, Value: 2}, {ID: protocol.SettingRetention, Value: 60_000}, floor(protocol.LevelWritten)}
	var info protocol.TopicInfo
	require.NoError(t, info.Decode(p.must(p.call(protocol.OpTopicCreate, 0, 0, "t", &settings))))
	require.Equal(t, "t", info.Name)
	require.NotZero(t, info.ID)
	require.Len(t, info.Partitions, 2)
	v, ok := info.Settings.Get(protocol.SettingRetention)
	require.True(t, ok)
	require.Equal(t, uint64(60_000), v)
	first := info.ID

	require.Equal(t, protocol.Exists, p.refused(p.call(protocol.OpTopicCreate, 0, 0, "t", &settings)).Code)
	require.NoError(t, info.Decode(p.must(p.call(protocol.OpTopicCreate, protocol.CreateIfMissing, 0, "t", &protocol.TopicSettings{}))))
	require.Len(t, info.Partitions, 2, "an existing topic is not changed")

	o := p.open("t", 1)
	p.publish(o.Handle, protocol.LevelTopic, "a", "b")
	alter := protocol.TopicSettings{{ID: protocol.SettingPartitions, Value: 4}, floor(protocol.LevelDurable)}
	require.NoError(t, info.Decode(p.must(p.call(protocol.OpTopicAlter, 0, 0, "t", &alter))))
	require.Len(t, info.Partitions, 4)
	v, _ = info.Settings.Get(protocol.SettingRetention)
	require.Equal(t, uint64(60_000), v, "what is not named stays")
	require.Equal(t, protocol.LevelDurable, p.open("t", 3).Floor)
	p.write(run(protocol.LevelTopic, o.Handle, 1, batch("c")))
	h, refused := p.ack(o.Handle)
	require.Nil(t, refused)
	require.Equal(t, protocol.LevelDurable, h.Level(), "handles follow the floor")
	fewer := protocol.TopicSettings{{ID: protocol.SettingPartitions, Value: 3}}
	require.Equal(t, protocol.BadRequest, p.refused(p.call(protocol.OpTopicAlter, 0, 0, "t", &fewer)).Code)

	info = p.info("t")
	require.Equal(t, uint64(3), info.Partitions[1].End)
	require.Equal(t, uint64(3), info.Partitions[1].Durable)
	require.NotZero(t, info.Partitions[1].Bytes)
	require.Zero(t, info.Partitions[0].End)

	p.must(p.call(protocol.OpTopicDelete, 0, 0, "t", nil))
	require.Equal(t, protocol.UnknownTopic, p.refused(p.call(protocol.OpTopicDescribe, 0, 0, "t", nil)).Code)
	require.Equal(t, protocol.UnknownTopic, p.refused(p.call(protocol.OpTopicDelete, 0, 0, "t", nil)).Code)
	p.open("t", 0)
	info = p.info("t")
	require.NotEqual(t, first, info.ID, "a new life has a new id")
	require.Zero(t, info.Partitions[0].End)
}

func TestTopicListComesInPages(t *testing.T) {
	b := brokertest.Start(t)
	p := connect(t, b)
	const topics = 40
	long := strings.Repeat("n", protocol.MaxName-3)
	for i := range topics {
		p.open(fmt.Sprintf("%s%03d", long, i), 0)
	}
	var names []string
	pages := 0
	for list := (protocol.TopicList{Limit: 15}); ; pages++ {
		var reply protocol.TopicListReply
		h, body := p.call(protocol.OpTopicList, 0, 0, "", &list)
		require.NoError(t, reply.Decode(p.must(h, body)))
		require.Equal(t, uint32(len(reply.Items)), h.RecordCount())
		for _, it := range reply.Items {
			names = append(names, it.Name)
			require.Equal(t, uint32(1), it.Partitions)
		}
		if !reply.More {
			break
		}
		list.After = names[len(names)-1]
	}
	require.Equal(t, 2, pages)
	require.Len(t, names, topics)
	require.IsIncreasing(t, names)
}

func TestTopicsAreCreatedOnDemandOnlyWherePolicyAllows(t *testing.T) {
	b := brokertest.Start(t, brokertest.Options{Broker: func(o *broker.Options) {
		o.AutoCreate = func(name string) bool { return strings.HasPrefix(name, "log.") }
		o.Topics, o.Partitions = 3, 5
		o.Topic = protocol.TopicSettings{{ID: protocol.SettingPartitions, Value: 2}}
	}})
	p := connect(t, b)
	require.Equal(t, uint32(2), p.open("log.a", 0).Partitions, "the broker's default")
	e := p.refused(p.call(protocol.OpOpen, 0, 0, "other", &protocol.Open{}))
	require.Equal(t, protocol.UnknownTopic, e.Code)
	require.Contains(t, e.Detail, "auto_create")
	e = p.refused(p.call(protocol.OpOpen, 0, 0, "log.b", &protocol.Open{Flags: protocol.OpenNoCreate}))
	require.Equal(t, protocol.UnknownTopic, e.Code)
	p.create("other")
	e = p.refused(p.call(protocol.OpOpen, 0, 0, "log.c", &protocol.Open{}))
	require.Equal(t, protocol.Quota, e.Code)
	require.Equal(t, "limits.partitions", e.Setting)
	require.Equal(t, [2]uint64{6, 5}, [2]uint64{e.Actual, e.Limit})
	p.create("one", protocol.Setting{ID: protocol.SettingPartitions, Value: 1})
	e = p.refused(p.call(protocol.OpOpen, 0, 0, "log.d", &protocol.Open{}))
	require.Equal(t, protocol.Quota, e.Code)
	require.Equal(t, "limits.topics", e.Setting)
}

func TestBadNamesAreRefusedEverywhere(t *testing.T) {
	b := brokertest.Start(t)
	p := connect(t, b)
	for _, name := range []string{"", ".", "..", "../x", "a/../../x", "/abs", "a\x00b", "a\nb", "_internal", strings.Repeat("n", 201), "ü", "a b"} {
		for op, m := range map[protocol.Opcode]message{protocol.OpOpen: &protocol.Open{}, protocol.OpTopicCreate: &protocol.TopicSettings{},
			protocol.OpTopicAlter: &protocol.TopicSettings{}, protocol.OpTopicDelete: nil, protocol.OpTopicDescribe: nil,
			protocol.OpOffsets: &protocol.Offsets{Items: []protocol.OffsetsItem{{}}}} {
			e := p.refused(p.call(op, 0, 0, name, m))
			require.Equal(t, protocol.BadName, e.Code, "%s %q", op, name)
		}
	}
	require.Empty(t, b.Broker.Topics())
}

func TestRestartKeepsTopicsRecordsAndOffsets(t *testing.T) {
	for _, clean := range []bool{true, false} {
		t.Run(fmt.Sprintf("clean=%v", clean), func(t *testing.T) {
			b := brokertest.Start(t)
			p := connect(t, b)
			p.create("t", protocol.Setting{ID: protocol.SettingPartitions, Value: 3}, protocol.Setting{ID: protocol.SettingMaxMessageBytes, Value: 5000})
			p.open("gone", 0)
			p.must(p.call(protocol.OpTopicDelete, 0, 0, "gone", nil))
			o := p.open("t", 2)
			for i := range 20 {
				p.publish(o.Handle, protocol.LevelTopic, fmt.Sprint(i))
			}
			require.NoError(t, partition(t, b, "t", 2).Commit(t.Context(), "group", 13))
			before := p.info("t")
			b.Restart(clean)
			require.Equal(t, clean, b.Broker.WasClean())
			p = connect(t, b)
			after := p.info("t")
			require.Equal(t, before.ID, after.ID)
			require.Equal(t, before.Settings, after.Settings)
			require.Len(t, after.Partitions, 3)
			require.Equal(t, uint64(20), after.Partitions[2].End)
			committed, ok := partition(t, b, "t", 2).Committed("group")
			require.True(t, ok)
			require.Equal(t, uint64(13), committed)
			o = p.open("t", 2)
			p.subscribe(o.Handle, 1, protocol.Subscribe{From: protocol.At(committed), Credit: 1 << 20})
			list, _ := p.collect(committed, 7)
			require.Equal(t, "13:13", list[0])
			p = connect(t, b)
			o = p.open("t", 2)
			require.Equal(t, uint64(20), p.publish(o.Handle, protocol.LevelTopic, "next"))
			require.Equal(t, protocol.UnknownTopic, p.refused(p.call(protocol.OpTopicDescribe, 0, 0, "gone", nil)).Code)
		})
	}
}

func TestHandlesAreBounded(t *testing.T) {
	b := brokertest.Start(t, brokertest.Options{Server: func(o *server.Options) { o.Handles = 3 }})
	p := connect(t, b)
	for range 3 {
		p.open("t", 0)
	}
	e := p.refused(p.call(protocol.OpOpen, 0, 0, "t", &protocol.Open{}))
	require.Equal(t, protocol.Quota, e.Code)
	require.Equal(t, "limits.handles", e.Setting)
	p.must(p.call(protocol.OpClose, 0, 2, "", nil))
	require.NotContains(t, []uint32{1, 3}, p.open("t", 0).Handle)
}

func TestStatsTellWhatWasDone(t *testing.T) {
	b := brokertest.Start(t)
	p := connect(t, b)
	o := p.open("t", 0)
	p.publish(o.Handle, protocol.LevelTopic, "a", "b")
	var s protocol.Stats
	require.NoError(t, s.Decode(p.must(p.call(protocol.OpStats, 0, 0, "", nil))))
	require.NotZero(t, s.Get("pid"))
	require.NotZero(t, s.Get("cpu_nanos"))
	require.NotZero(t, s.Get("rss_bytes"))
	require.NotZero(t, s.Get("syncs"))
	require.Equal(t, uint64(2), s.Get("records_appended"))
	require.Equal(t, uint64(1), s.Get("frames_appended"))
	require.Equal(t, uint64(1), s.Get("runs"))
	require.Equal(t, uint64(1), s.Get("connections"))
	require.Equal(t, uint64(1), s.Get("topics"))
}
