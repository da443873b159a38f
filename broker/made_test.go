package broker

import (
	"bytes"
	"context"
	"log/slog"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/protocol"
	"github.com/millrace-mq/millrace/storage"
	"github.com/millrace-mq/millrace/storage/vfs"
)

// saved reads what the topic's TOPIC file says.
func saved(t *testing.T, disk vfs.FS, dir string) (savedTopic, string) {
	t.Helper()
	body, _, err := storage.ReadSealed(disk, path.Join(dir, topicFile), topicKind, topicVersion)
	require.NoError(t, err)
	s, err := decodeTopic(body)
	require.NoError(t, err)
	return s, string(body)
}

func TestAPartitionThatIsGoneIsNotReplacedByAnEmptyLog(t *testing.T) {
	empty := func(disk vfs.FS, dir string) error { return disk.MkdirAll(dir) }
	for name, after := range map[string]func(vfs.FS, string) error{"removed": nil, "emptied": empty} {
		for _, raised := range []bool{false, true} {
			t.Run(name+map[bool]string{true: " of a raise"}[raised], func(t *testing.T) {
				disk := vfs.NewMem()
				o := options(disk)
				var log bytes.Buffer
				o.Log = slog.New(slog.NewTextHandler(&log, nil))
				b := open(t, o)
				three := protocol.TopicSettings{{ID: protocol.SettingPartitions, Value: 3}}
				if raised {
					_, err := b.Create("t", nil)
					require.NoError(t, err)
					_, err = b.Alter("t", three)
					require.NoError(t, err)
				} else {
					_, err := b.Create("t", three)
					require.NoError(t, err)
				}
				for _, p := range b.Topics()[0].Partitions() {
					publish(t, p, "kept")
				}
				lost := b.Topics()[0].Partitions()[2].dir
				require.NoError(t, b.Close())
				require.NoError(t, disk.RemoveAll(lost))
				if after != nil {
					require.NoError(t, after(disk, lost))
				}
				for range 2 { // a start that found it missing changes nothing for the next
					b = open(t, o)
					topic, err := b.Topic("t")
					require.NoError(t, err)
					_, err = topic.Partition(2)
					require.ErrorIs(t, err, ErrUnavailable)
					e := CodeOf(err)
					require.Equal(t, protocol.StorageFailed, e.Code)
					require.Contains(t, e.Detail, lost)
					require.Contains(t, log.String(), lost)
					log.Reset()
					p := topic.Partitions()[2]
					_, err = p.Append(entry(t, "new"), true)
					require.ErrorIs(t, err, ErrUnavailable)
					_, err = p.Seek(0)
					require.ErrorIs(t, err, ErrUnavailable)
					require.ErrorIs(t, p.Commit(context.Background(), "g", 0), ErrUnavailable)
					require.Equal(t, protocol.PartitionFailed, topic.Info().Partitions[2].State)
					for _, other := range topic.Partitions()[:2] {
						require.Equal(t, []string{"kept"}, contents(t, other), "the others are served")
					}
					_, err = b.Alter("t", protocol.TopicSettings{{ID: protocol.SettingRetention, Value: 1 << 40}})
					require.NoError(t, err)
					require.NoError(t, b.Close())
				}
				b = open(t, o)
				require.NoError(t, b.Delete("t"), "to delete the topic is the way out")
				publish(t, obtain(t, b, "t"), "anew")
			})
		}
	}
}

func TestADataDirectoryThatDidNotCountPartitionsIsServedAndCounts(t *testing.T) {
	disk := vfs.NewMem()
	b := open(t, options(disk))
	_, err := b.Create("t", protocol.TopicSettings{{ID: protocol.SettingPartitions, Value: 2}})
	require.NoError(t, err)
	publish(t, obtain(t, b, "t"), "a")
	dir := b.Topics()[0].dir
	require.NoError(t, b.Close())
	s, body := saved(t, disk, dir)
	require.Equal(t, 2, s.made)
	before := strings.Replace(body, " \"made\": 2,\n", "", 1)
	require.NotEqual(t, body, before)
	require.NoError(t, storage.WriteSealed(disk, path.Join(dir, topicFile), topicKind, topicVersion, []byte(before)))
	require.NoError(t, disk.RemoveAll(path.Join(dir, "1"))) // as after a crash before it was made

	b = open(t, options(disk))
	require.Equal(t, []string{"a"}, contents(t, obtain(t, b, "t")))
	publish(t, b.Topics()[0].Partitions()[1], "b")
	require.NoError(t, b.Close())
	s, _ = saved(t, disk, dir)
	require.Equal(t, 2, s.made)
	require.NoError(t, disk.RemoveAll(path.Join(dir, "1")))

	b = open(t, options(disk))
	_, err = b.Topics()[0].Partition(1)
	require.ErrorIs(t, err, ErrUnavailable, "from now on it is missed")
}

func TestSettingsThatClaimMorePartitionsThanThereAreRefused(t *testing.T) {
	for _, made := range []string{"-1", "5"} {
		_, err := decodeTopic([]byte(`{"name":"t","id":"00000000000000aa","made":` + made + `,"settings":{"partitions":4}}`))
		require.Error(t, err, made)
	}
}
