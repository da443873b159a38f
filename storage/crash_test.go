package storage

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/protocol"
	"github.com/millrace-mq/millrace/storage/vfs"
)

// journal is what a client of a log knows.
type journal struct {
	mu      sync.Mutex      // sync hooks run on the syncer's workers
	sent    map[string]bool // values that were handed to Append
	refused map[string]bool // values of appends that were answered "nothing happened"
	acks    []ack           // known durable, in the order in which that became known
	start   uint64          // what retention was allowed to take
	images  []image
	disk    *vfs.Mem // where set, an image is kept of what is there after each refused append
}

type ack struct {
	off   uint64
	value string
}

// image is what a power cut leaves, and how many acks the client had at that time.
type image struct {
	disk *vfs.Mem
	acks int
	note string
}

func newJournal() *journal { return &journal{sent: map[string]bool{}, refused: map[string]bool{}} }

// snap takes an image; it is checked later, on the test's goroutine.
func (j *journal) snap(m *vfs.Mem, rng *rand.Rand, note string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.images = append(j.images, image{m.Crash(rng), len(j.acks), note})
}

// check opens what is left of a log and compares: acked ⊆ readable ⊆ sent, same offset, same
// bytes, dense.
func (j *journal) check(t testing.TB, fsys vfs.FS, c *clock, o LogOptions, acks []ack, note string) {
	t.Helper()
	s, err := OpenStore(fsys, StoreOptions{Now: c.now})
	require.NoError(t, err, note)
	for round := range 2 {
		l, rep, err := s.OpenLog(testDir, o)
		require.NoError(t, err, note)
		require.False(t, rep.ReadOnly, "%s: %s", note, rep.String())
		require.Empty(t, rep.Damage, note)
		if round == 1 {
			require.Zero(t, rep.TornBytes, "%s: recovering twice", note)
		}
		got := readAll(t, l, l.Start(), 1<<20)
		for _, a := range acks {
			off, v := a.off, a.value
			if off < l.Start() {
				require.LessOrEqual(t, off, j.start, "%s: offset %d was not to be removed", note, off)
				continue
			}
			if got[off] != v {
				t.Fatalf("%s: acked offset %d is %q, want %q; %s", note, off, got[off], v, rep.String())
			}
		}
		for off := l.Start(); off < l.Written().Offset; off++ {
			v, ok := got[off]
			if !ok || !j.sent[v] {
				t.Fatalf("%s: offset %d of [%d, %d) holds %q", note, off, l.Start(), l.Written().Offset, v)
			}
			if j.refused[v] {
				t.Fatalf("%s: offset %d holds %q, which was refused", note, off, v)
			}
		}
		if round == 1 { // and it goes on: the next offset, readable
			end := l.Written().Offset
			e := []Entry{{Run: runOf(t, 1, 1, 20, 4711)}}
			_, err := l.Append(e, false)
			require.NoError(t, err, note)
			require.Equal(t, end, e[0].Base, note)
			require.NoError(t, l.Sync(context.Background()), note)
			require.Len(t, readAll(t, l, end, 1<<20), 1, note)
		}
		require.NoError(t, l.Close(), note)
	}
	require.NoError(t, s.Close(), note)
}

// values builds a run and its values.
func values(t testing.TB, rng *rand.Rand, id int) (protocol.Run, []string) {
	t.Helper()
	var out []byte
	var b protocol.Batch
	var vs []string
	for f := range 1 + rng.IntN(4) {
		b.Reset()
		for r := range 1 + rng.IntN(6) {
			v := fmt.Sprintf("%d.%d.%d-%0*d", id, f, r, 1+rng.IntN(900), id)
			vs = append(vs, v)
			require.NoError(t, b.Add(nil, []byte(v), nil))
		}
		out = append(out, b.Seal()...)
	}
	run, err := protocol.CheckRun(out, 1<<20)
	require.NoError(t, err)
	return run, vs
}

// refuse notes values of an append that was answered "nothing happened".
func (j *journal) refuse(values []string) {
	for _, v := range values {
		j.refused[v] = true
	}
	if j.disk != nil {
		j.mu.Lock()
		j.images = append(j.images, image{j.disk.CrashClean(), len(j.acks), "killed after the refusal"})
		j.mu.Unlock()
	}
}

// scenario appends, syncs, rolls, retains, checkpoints, closes and reopens; it goes on after
// errors as a broker does and stops at a log that failed.
func (j *journal) scenario(t testing.TB, fsys vfs.FS, c *clock, o LogOptions, seed uint64, steps int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 77))
	s, err := OpenStore(fsys, StoreOptions{Now: c.now, WriteBehindInterval: time.Hour})
	if err != nil {
		return
	}
	var l *Log
	defer func() {
		if l != nil {
			l.Close() // may fail: that is the point
		}
		s.Close()
	}()
	if l, _, err = s.OpenLog(testDir, o); err != nil {
		l = nil
		return
	}
	waiting := map[uint64]string{}
	for i := range steps {
		run, vs := values(t, rng, i)
		for _, v := range vs {
			j.sent[v] = true
		}
		e := []Entry{{Run: run}}
		_, err := l.Append(e, false)
		switch {
		case err == nil:
			for k, v := range vs {
				waiting[e[0].Base+uint64(k)] = v
			}
		case errors.Is(err, ErrFailed) || errors.Is(err, ErrClosed):
			return
		default:
			j.refuse(vs)
		}
		if rng.IntN(3) == 0 && l.Sync(context.Background()) == nil {
			j.mu.Lock()
			for off, v := range waiting {
				j.acks = append(j.acks, ack{off, v})
			}
			j.mu.Unlock()
			clear(waiting)
		}
		if i%17 == 16 {
			j.start = l.Written().Offset // any sealed segment may go
			if _, err := l.Retain(0, 200<<10); err != nil && errors.Is(err, ErrFailed) {
				return
			}
		}
		if i%11 == 10 {
			if err := l.SaveCheckpoint(l.Durable().Index, []byte("state")); err != nil && errors.Is(err, ErrFailed) {
				return
			}
		}
		if i%23 == 22 {
			if err := l.Close(); err != nil {
				l = nil
				return
			}
			if l, _, err = s.OpenLog(testDir, o); err != nil {
				l = nil
				return
			}
		}
	}
}

func TestAckedSurvivesPowerCutAtEverySync(t *testing.T) {
	images := 0
	for seed := range uint64(12) {
		c := newClock()
		m := vfs.NewMem()
		j := newJournal()
		rng := rand.New(rand.NewPCG(seed, 5))
		o := LogOptions{SegmentBytes: 64 << 10, Durable: seed%2 == 0}
		m.OnSync(func(op, name string) {
			for range 2 {
				j.snap(m, rng, op+" "+name)
			}
		})
		j.scenario(t, m, c, o, seed, 60)
		m.OnSync(nil)
		for range 20 {
			j.snap(m, rng, "the end")
		}
		for i, img := range j.images {
			j.check(t, img.disk, c, o, j.acks[:img.acks], fmt.Sprintf("seed %d, image %d at %s", seed, i, img.note))
		}
		images += len(j.images)
	}
	require.Greater(t, images, 500)
	t.Logf("%d crash images", images)
}

func TestEveryFailingOperationIsSurvived(t *testing.T) {
	o := LogOptions{SegmentBytes: 64 << 10, Durable: true}
	faults := map[string]error{
		"EIO":    syscall.EIO,
		"ENOSPC": syscall.ENOSPC,
		"short":  vfs.ShortWrite{N: 100, Err: syscall.ENOSPC},
		"half":   vfs.ShortWrite{N: 1500, Err: syscall.EIO}, // whole frames among what was written
	}
	for what, fault := range faults {
		for n := 1; ; n++ {
			c := newClock()
			m := vfs.NewMem()
			var counter vfs.Counter
			fail := vfs.FailNth(n, fault)
			j := newJournal()
			j.disk = m
			j.scenario(t, vfs.Fault(m, func(op vfs.Op) error {
				if err := counter.Decide(op); err != nil {
					return err
				}
				err := fail(op)
				if err != nil { // the process may also die right here
					j.mu.Lock()
					j.images = append(j.images, image{m.CrashClean(), len(j.acks), "killed at the failure"})
					j.mu.Unlock()
				}
				return err
			}), c, o, 3, 50)
			for _, img := range j.images {
				j.check(t, img.disk, c, o, j.acks[:img.acks], fmt.Sprintf("%s at operation %d, %s", what, n, img.note))
			}
			j.check(t, m.CrashClean(), c, o, j.acks, fmt.Sprintf("%s at operation %d", what, n))
			rng := rand.New(rand.NewPCG(uint64(n), 9))
			j.check(t, m.Crash(rng), c, o, j.acks, fmt.Sprintf("%s at operation %d and a power cut", what, n))
			if n > counter.N() {
				require.Greater(t, n, 200, what)
				break
			}
		}
	}
}

func TestNothingIsAcknowledgedAfterAFailedSync(t *testing.T) {
	c := newClock()
	m := vfs.NewMem()
	var fail atomic.Bool
	fsys := vfs.Fault(m, func(op vfs.Op) error {
		if fail.Load() && op.Kind == vfs.OpSync {
			return syscall.EIO
		}
		return nil
	})
	s := openStore(t, fsys, c)
	var told atomic.Int32
	durable := make(chan End, 100)
	l, _, err := s.OpenLog(testDir, LogOptions{Durable: true, OnFail: func(error) { told.Add(1) }, OnDurable: func(e End) { durable <- e }})
	require.NoError(t, err)
	durably(t, l, 5)
	end := l.Durable()
	fail.Store(true)
	appendRun(t, l, runOf(t, 1, 1, 10, 1))
	require.ErrorIs(t, l.Sync(context.Background()), ErrFailed)
	fail.Store(false)
	require.ErrorIs(t, l.Sync(context.Background()), ErrFailed, "a later sync that works proves nothing")
	_, err = l.Append([]Entry{{Run: runOf(t, 1, 1, 10, 1)}}, true)
	require.ErrorIs(t, err, ErrFailed)
	require.Equal(t, end, l.Durable())
	require.Equal(t, int32(1), told.Load())
	state, _ := l.State()
	require.Equal(t, protocol.PartitionFailed, state)
	require.Len(t, readAll(t, l, 0, 1<<20), 5, "reads go on up to the durable end")
}

func TestStaleSuffixIsNeverAdopted(t *testing.T) {
	lost := 0
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := newClock()
		m := vfs.NewMem()
		_, l, _ := testLog(t, m, c, LogOptions{})
		for i := range 10 {
			appendRun(t, l, runOf(t, 1, 1, 600, uint64(i)))
		}
		require.NoError(t, l.Sync(context.Background()))
		require.NoError(t, l.TruncateFrom(6))
		require.Equal(t, End{5, 5}, l.Written())
		l.SetTerm(2)
		for i := range 5 { // same sizes, same indexes, same offsets as what was removed
			appendRun(t, l, runOf(t, 1, 1, 600, uint64(100+i)))
		}
		_, l2, rep := testLog(t, m.Crash(rng), c, LogOptions{})
		require.False(t, rep.ReadOnly, rep.Reason)
		require.Empty(t, rep.Damage)
		got := readAll(t, l2, 0, 1<<20)
		require.GreaterOrEqual(t, len(got), 5)
		for off, v := range got {
			want := fmt.Sprintf("%d/0/0", off)
			if off >= 5 {
				want = fmt.Sprintf("%d/0/0", 100+off-5)
			}
			require.Equal(t, want, v[:len(want)], "seed %d offset %d", seed, off)
		}
		if len(got) < 10 {
			lost++
		}
	}
	require.Positive(t, lost, "no image lost anything: the test shows nothing")
}

func TestTruncateFromAnyIndexThenAppendAndReopen(t *testing.T) {
	for from := uint64(1); from <= 62; from += 3 {
		c := newClock()
		m := vfs.NewMem()
		s, l, _ := testLog(t, m, c, LogOptions{SegmentBytes: 64 << 10})
		for i := range 60 {
			appendRun(t, l, runOf(t, 1, 3, 1500, uint64(i)))
		}
		want := readAll(t, l, 0, 1<<20)
		require.NoError(t, l.TruncateFrom(from))
		keep := min(from-1, 60)
		require.Equal(t, End{keep * 3, keep}, l.Written())
		if from <= 60 {
			require.Equal(t, l.Written(), l.Durable())
		}
		require.Equal(t, keep*3, appendRun(t, l, runOf(t, 1, 3, 1500, 999)))
		got := readAll(t, l, 0, 1<<20)
		require.Len(t, got, int(keep*3+3))
		for off := range keep * 3 {
			require.Equal(t, want[off], got[off])
		}
		require.NoError(t, l.Close())
		require.NoError(t, s.Close())
		_, l, rep := testLog(t, m, c, LogOptions{SegmentBytes: 64 << 10})
		require.True(t, rep.Clean)
		require.Equal(t, got, readAll(t, l, 0, 1<<20))
		r, err := Check(m, testDir, nil)
		require.NoError(t, err)
		require.True(t, r.OK(), "%+v", r.Damage)
	}
}
