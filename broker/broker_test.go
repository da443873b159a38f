package broker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/protocol"
	"github.com/millrace-mq/millrace/storage"
	"github.com/millrace-mq/millrace/storage/vfs"
)

// clock is a time that the test sets.
type clock struct{ ns atomic.Int64 }

func (c *clock) now() int64 { return c.ns.Load() }

func options(disk vfs.FS) Options {
	var ns atomic.Int64
	return Options{FS: disk, Now: func() int64 { return ns.Add(1000) }, Upkeep: time.Hour}
}

func open(t testing.TB, o Options) *Broker {
	t.Helper()
	b, err := Open(o)
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := b.Close(); err != nil && !errors.Is(err, fs.ErrClosed) {
			t.Log(err)
		}
	})
	return b
}

func entry(t testing.TB, values ...string) []storage.Entry {
	t.Helper()
	var batch protocol.Batch
	for _, v := range values {
		require.NoError(t, batch.Add(nil, []byte(v), nil))
	}
	run, err := protocol.CheckRun(append([]byte(nil), batch.Seal()...), protocol.DefaultMessageBytes)
	require.NoError(t, err)
	return []storage.Entry{{Run: run}}
}

func publish(t testing.TB, p *Partition, values ...string) storage.End {
	t.Helper()
	end, err := p.Append(entry(t, values...), true)
	require.NoError(t, err)
	require.NoError(t, p.waitDurable(context.Background(), end.Index))
	return end
}

// contents reads every value of the partition.
func contents(t testing.TB, p *Partition) (list []string) {
	t.Helper()
	c, err := p.Seek(p.Start())
	require.NoError(t, err)
	for {
		s, err := p.Next(&c, protocol.NoStop, 1<<20)
		require.NoError(t, err)
		if s.Size == 0 {
			return list
		}
		b := make([]byte, s.Size)
		n, err := s.File().ReadAt(b, s.Pos())
		require.Equal(t, len(b), n, err)
		s.Release()
		for len(b) > 0 {
			n, err := protocol.CheckStored(b, protocol.MaxDataFrame)
			require.NoError(t, err)
			for it := protocol.Records(protocol.Frame(b[:n])); it.Next(); {
				list = append(list, string(it.Record.Value))
			}
			b = b[n:]
		}
	}
}

func obtain(t testing.TB, b *Broker, topic string) *Partition {
	t.Helper()
	tp, err := b.Obtain(topic)
	require.NoError(t, err)
	p, err := tp.Partition(0)
	require.NoError(t, err)
	return p
}

// state is what a test knows to be acknowledged.
type state struct {
	step    string
	topics  map[string]int // partitions
	values  int            // in topic keep
	offset  uint64         // committed by group g in topic keep
	pending string         // the topic that the next step is about
}

// TestAckedCatalogAndCommitsSurvivePowerCuts cuts the power after every sync of a life of
// topics and opens what is left: what was answered is there, and what was under way is there
// as a whole or not at all.
func TestAckedCatalogAndCommitsSurvivePowerCuts(t *testing.T) {
	disk := vfs.NewMem()
	var mu sync.Mutex
	acked := state{topics: map[string]int{}}
	rng := rand.New(rand.NewPCG(7, 7))
	type image struct {
		disk  *vfs.Mem
		acked state
		at    string
	}
	var images []image
	disk.OnSync(func(op, name string) {
		mu.Lock()
		defer mu.Unlock()
		copied := acked
		copied.topics = map[string]int{}
		for k, v := range acked.topics {
			copied.topics[k] = v
		}
		images = append(images, image{disk.Crash(rng), copied, fmt.Sprintf("%s, after %s of %s", acked.step, op, name)})
	})
	step := func(name, topic string, do func(), done func(*state)) {
		mu.Lock()
		acked.step, acked.pending = name, topic
		mu.Unlock()
		do()
		mu.Lock()
		done(&acked)
		mu.Unlock()
	}
	b := open(t, options(disk))
	var keep *Partition
	step("create", "keep", func() { keep = obtain(t, b, "keep") }, func(s *state) { s.topics["keep"] = 1 })
	for i := range 3 {
		step("publish", "", func() { publish(t, keep, fmt.Sprint(i)) }, func(s *state) { s.values++ })
		step("commit", "", func() { require.NoError(t, keep.Commit(context.Background(), "g", uint64(i+1))) }, func(s *state) { s.offset = uint64(i + 1) })
	}
	step("tend", "", func() { b.Tend(context.Background()) }, func(*state) {})
	step("create other", "other", func() { obtain(t, b, "other") }, func(s *state) { s.topics["other"] = 1 })
	raise := protocol.TopicSettings{{ID: protocol.SettingPartitions, Value: 3}}
	step("alter", "other", func() { _, err := b.Alter("other", raise); require.NoError(t, err) }, func(s *state) { s.topics["other"] = 3 })
	step("delete", "other", func() { require.NoError(t, b.Delete("other")) }, func(s *state) { delete(s.topics, "other") })
	step("close", "", func() { require.NoError(t, b.Close()) }, func(*state) {})
	disk.OnSync(nil)
	require.Greater(t, len(images), 30)
	for _, im := range images {
		b, err := Open(options(im.disk))
		require.NoError(t, err, im.at)
		requireState(t, b, &im.acked, im.at)
		obtain(t, b, "other")
		require.NoError(t, b.Close(), im.at)
	}
}

// requireState compares a broker with what was acknowledged before the power was cut.
func requireState(t *testing.T, b *Broker, acked *state, at string) {
	t.Helper()
	for _, tp := range b.Topics() {
		n, known := acked.topics[tp.Name()]
		switch {
		case known && acked.pending != tp.Name():
			require.Len(t, tp.Partitions(), n, at)
		case !known:
			require.Equal(t, acked.pending, tp.Name(), at)
		}
	}
	for _, tp := range b.Topics() {
		for n := range tp.Partitions() {
			_, err := tp.Partition(uint32(n))
			require.NoError(t, err, "%s: what a crash interrupted heals by itself", at)
		}
	}
	for name := range acked.topics {
		if _, err := b.Topic(name); acked.pending != name {
			require.NoError(t, err, at)
		}
	}
	if acked.topics["keep"] == 0 {
		return
	}
	p := obtain(t, b, "keep")
	list := contents(t, p)
	require.GreaterOrEqual(t, len(list), acked.values, at)
	for i, v := range list {
		require.Equal(t, fmt.Sprint(i), v, at)
	}
	offset, _ := p.Committed("g")
	require.GreaterOrEqual(t, offset, acked.offset, at)
	require.LessOrEqual(t, offset, uint64(len(list)), at)
}

func TestTopicWithoutReadableSettingsIsKeptAndRefused(t *testing.T) {
	disk := vfs.NewMem()
	b := open(t, options(disk))
	p := obtain(t, b, "t")
	publish(t, p, "a")
	dir := p.topic.dir
	require.NoError(t, b.Close())
	f, err := disk.OpenWrite(dir + "/" + topicFile)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("x"), 60)
	require.NoError(t, err)
	require.NoError(t, f.Close())

	b = open(t, options(disk))
	_, err = b.Obtain("t")
	require.ErrorIs(t, err, ErrDamagedTopic, "an empty topic in its place would hide its records")
	require.Contains(t, err.Error(), dir)
	_, err = b.Create("t", nil)
	require.ErrorIs(t, err, ErrDamagedTopic)
	require.ErrorIs(t, b.Delete("t"), ErrDamagedTopic)
	obtain(t, b, "other")
	list, err := disk.ReadDir(dir)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(list), 2, "nothing was removed")
}

func TestForeignDirectoriesAreLeftAlone(t *testing.T) {
	disk := vfs.NewMem()
	for _, dir := range []string{"topics/notes", "topics/x.y", "topics/t.0000000000000000", "topics/../topics2", "topics/a b.00000000000000aa"} {
		if err := disk.MkdirAll(dir); err != nil {
			require.ErrorIs(t, err, fs.ErrInvalid)
		}
	}
	b := open(t, options(disk))
	require.Empty(t, b.Topics())
	list, err := disk.ReadDir(topicsDir)
	require.NoError(t, err)
	require.Len(t, list, 4)
}

func TestCommitsBeyondTheEndAreRefused(t *testing.T) {
	b := open(t, options(vfs.NewMem()))
	p := obtain(t, b, "t")
	publish(t, p, "a", "b")
	ctx := context.Background()
	require.NoError(t, p.Commit(ctx, "g", 2))
	err := p.Commit(ctx, "g", 3)
	require.ErrorIs(t, err, ErrCommitBeyondEnd)
	require.Equal(t, uint64(2), CodeOf(err).To)
	require.ErrorIs(t, p.Commit(ctx, "", 0), protocol.BadName)
	require.ErrorIs(t, p.Commit(ctx, "a\x00", 0), protocol.BadName)
	offset, ok := p.Committed("g")
	require.True(t, ok)
	require.Equal(t, uint64(2), offset)
	require.NoError(t, p.Commit(ctx, "g", 0), "a group may go back")
	// The names of the original collided: a:b + c == a + b:c.
	require.NoError(t, p.Commit(ctx, "a:b", 1))
	_, ok = p.Committed("a")
	require.False(t, ok)
}

func TestGroupsArePartOfTheirCheckpointWhenRetentionTakesTheirRecords(t *testing.T) {
	disk := vfs.NewMem()
	var c clock
	c.ns.Store(int64(time.Hour))
	o := options(disk)
	o.Now = c.now
	o.Topic = protocol.TopicSettings{{ID: protocol.SettingRetention, Value: 60_000}, {ID: protocol.SettingSegmentBytes, Value: 64 << 10}}
	b := open(t, o)
	p := obtain(t, b, "t")
	publish(t, p, "old")
	require.NoError(t, p.Commit(context.Background(), "g", 1))
	for range 3 {
		publish(t, p, strings.Repeat("x", 60<<10))
	}
	c.ns.Add(int64(2 * time.Minute))
	publish(t, p, "new")
	b.Tend(context.Background())
	require.NotZero(t, p.Start(), "retention removed the records of the commit")
	require.NoError(t, b.Close())
	b = open(t, o)
	offset, ok := obtain(t, b, "t").Committed("g")
	require.True(t, ok)
	require.Equal(t, uint64(1), offset)
}

func TestFailedDiskIsReportedAndStopsAcks(t *testing.T) {
	var failing atomic.Bool
	disk := vfs.Fault(vfs.NewMem(), func(op vfs.Op) error {
		if failing.Load() && op.Kind == vfs.OpSync && strings.HasSuffix(op.Name, ".wal") {
			return syscall.EIO
		}
		return nil
	})
	reported := make(chan error, 10)
	o := options(disk)
	o.OnStorageError = func(err error) { reported <- err }
	b := open(t, o)
	p, other := obtain(t, b, "t"), obtain(t, b, "other")
	publish(t, p, "a")
	publish(t, other, "a")
	woken := make(chan struct{}, 1)
	w := &Waiter{Wake: func() { woken <- struct{}{} }}
	failing.Store(true)
	end, err := p.Append(entry(t, "b"), true)
	require.NoError(t, err)
	parked, err := p.AwaitDurable(w, end.Index)
	require.NoError(t, err)
	if parked {
		<-woken
	}
	err = <-reported
	require.ErrorIs(t, err, storage.ErrFailed)
	require.Contains(t, err.Error(), "topic t, partition 0")
	index, err := p.DurableIndex()
	require.ErrorIs(t, err, storage.ErrFailed)
	require.Less(t, index, end.Index)
	_, err = p.Append(entry(t, "c"), true)
	require.Equal(t, protocol.StorageFailed, CodeOf(err).Code)
	require.Equal(t, []string{"a"}, contents(t, p), "reads go on up to the durable end")
	failing.Store(false)
	_, err = p.Append(entry(t, "c"), true)
	require.Equal(t, protocol.StorageFailed, CodeOf(err).Code, "an fsync that failed once is never believed again")
	publish(t, other, "b")
	require.Equal(t, protocol.PartitionFailed, p.Info().State)
}

func TestWaitersAreWokenOnceAndLeave(t *testing.T) {
	o := options(vfs.NewMem())
	o.Topic = protocol.TopicSettings{{ID: protocol.SettingDurability, Value: uint64(protocol.LevelWritten)}}
	b := open(t, o)
	p := obtain(t, b, "t")
	var woken [3]atomic.Int32
	var waiters [3]*Waiter
	for i := range waiters {
		waiters[i] = &Waiter{Wake: func() { woken[i].Add(1) }}
		parked, err := p.AwaitVisible(waiters[i], p.Visible())
		require.NoError(t, err)
		require.True(t, parked)
	}
	require.True(t, p.LeaveVisible(waiters[1]))
	require.False(t, p.LeaveVisible(waiters[1]))
	before := p.Visible()
	publish(t, p, "a")
	require.Equal(t, [3]int32{1, 0, 1}, [3]int32{woken[0].Load(), woken[1].Load(), woken[2].Load()})
	require.Zero(t, p.Waiters())
	parked, err := p.AwaitVisible(waiters[0], before)
	require.NoError(t, err)
	require.False(t, parked, "the end has moved already")
	parked, err = p.AwaitVisible(waiters[0], p.Visible())
	require.NoError(t, err)
	require.True(t, parked)
	require.NoError(t, b.Delete("t"))
	require.Equal(t, int32(2), woken[0].Load(), "a deletion wakes too")
	parked, err = p.AwaitVisible(waiters[0], storage.End{Index: 1 << 60})
	require.NoError(t, err)
	require.False(t, parked, "nobody parks in what is gone")
	_, err = p.Append(entry(t, "b"), false)
	require.ErrorIs(t, err, ErrDeleted)
	_, err = p.Seek(0)
	require.Equal(t, protocol.UnknownTopic, CodeOf(err).Code)
}

func TestConcurrentFirstUsesCreateOneTopic(t *testing.T) {
	b := open(t, options(vfs.NewMem()))
	var wait sync.WaitGroup
	ids := make([]uint64, 16)
	for i := range ids {
		wait.Go(func() {
			tp, err := b.Obtain("t")
			if err == nil {
				ids[i] = tp.ID()
			}
		})
	}
	wait.Wait()
	for _, id := range ids {
		require.Equal(t, ids[0], id)
	}
	require.NotZero(t, ids[0])
	require.Len(t, b.Topics(), 1)
}

func TestASecondBrokerIsRefusedWithTheNameOfTheFirst(t *testing.T) {
	disk := vfs.NewMem()
	o := options(disk)
	o.Holder = "pid 1234"
	b := open(t, o)
	_, err := Open(options(disk))
	require.ErrorIs(t, err, vfs.ErrLocked)
	require.Contains(t, err.Error(), "pid 1234")
	require.NoError(t, b.Close())
	require.NoError(t, b.Close(), "a second Close does nothing")
	_, err = b.Obtain("t")
	require.Equal(t, protocol.ShuttingDown, CodeOf(err).Code)
	open(t, options(disk))
}

// TestFailedCreationLeavesNothing fails each operation of a creation in turn.
func TestFailedCreationLeavesNothing(t *testing.T) {
	for n := 1; ; n++ {
		require.Less(t, n, 500)
		mem := vfs.NewMem()
		var armed atomic.Bool
		var seen atomic.Int32
		disk := vfs.Fault(mem, func(op vfs.Op) error {
			if armed.Load() && op.Kind != vfs.OpRemoveAll && op.Kind != vfs.OpClose && op.Kind != vfs.OpCloseFS && op.Kind != vfs.OpSpace && int(seen.Add(1)) == n {
				return syscall.EIO
			}
			return nil
		})
		b := open(t, options(disk))
		armed.Store(true)
		_, err := b.Create("t", nil)
		armed.Store(false)
		if err == nil {
			require.Greater(t, n, 5)
			return
		}
		require.Equal(t, int64(0), b.counts.partitions.Load())
		_, err = b.Topic("t")
		require.ErrorIs(t, err, ErrUnknownTopic, "failed operation %d", n)
		publish(t, obtain(t, b, "t"), "a")
		require.NoError(t, b.Close())
		b = open(t, options(mem.CrashClean()))
		require.Equal(t, []string{"a"}, contents(t, obtain(t, b, "t")))
	}
}

// TestPositionsInALostSuffixAreToldAsSuch cuts the power under a topic whose floor is written
// until a suffix is lost.
func TestPositionsInALostSuffixAreToldAsSuch(t *testing.T) {
	disk := vfs.NewMem()
	o := options(disk)
	o.Topic = protocol.TopicSettings{{ID: protocol.SettingDurability, Value: uint64(protocol.LevelWritten)}}
	o.WriteBehindInterval = time.Hour
	b := open(t, o)
	p := obtain(t, b, "t")
	publish(t, p, "durable")
	for range 5 {
		_, err := p.Append(entry(t, "written"), false)
		require.NoError(t, err)
	}
	require.Equal(t, uint64(6), p.Visible().Offset)
	for seed := range uint64(100) {
		o.FS = disk.Crash(rand.New(rand.NewPCG(seed, seed)))
		after := open(t, o)
		q := obtain(t, after, "t")
		end := q.Visible().Offset
		require.GreaterOrEqual(t, end, uint64(1), "what was durable is kept")
		if end == 6 {
			continue
		}
		_, err := q.Resolve(protocol.At(6))
		e := CodeOf(err)
		require.Equal(t, protocol.LostSuffix, e.Code)
		require.Equal(t, end, e.To)
		require.NotZero(t, e.Epoch)
		require.Equal(t, q.Epoch(), e.Epoch)
		return
	}
	t.Fatal("no crash lost anything")
}
