package vfs

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// seeds is how many power cuts a test takes where it must see every outcome.
const seeds = 1000

// outcomes crashes m under many seeds and counts what see makes of the images.
func outcomes(m *Mem, see func(image *Mem) string) map[string]int {
	seen := make(map[string]int)
	for seed := range uint64(seeds) {
		seen[see(m.Crash(rand.New(rand.NewPCG(seed, 1))))]++
	}
	return seen
}

// names lists what exists of a few names, in their order.
func names(t *testing.T, fsys FS, candidates ...string) string {
	var got []string
	for _, name := range candidates {
		if exists(t, fsys, name) {
			got = append(got, name)
		}
	}
	return strings.Join(got, " ")
}

func keys(seen map[string]int) []string {
	var all []string
	for k := range maps.Keys(seen) {
		all = append(all, k)
	}
	return all
}

func TestSyncedSurvivesEveryPowerCut(t *testing.T) {
	for _, how := range []string{"Sync and SyncDir", "SyncAll"} {
		m := NewMem()
		require.NoError(t, m.MkdirAll("a/b"))
		want := strings.Repeat("synced bytes ", 1000)
		f := create(t, m, "a/b/f", want)
		if how == "SyncAll" {
			require.NoError(t, m.SyncAll())
		} else {
			require.NoError(t, f.Sync())
			for _, dir := range []string{".", "a", "a/b"} {
				require.NoError(t, m.SyncDir(dir))
			}
		}
		_, err := f.WriteAt(bytes.Repeat([]byte("unsynced "), 1000), int64(len(want)))
		require.NoError(t, err)
		create(t, m, "a/b/g", "unsynced")
		seen := outcomes(m, func(image *Mem) string {
			got := content(t, image, "a/b/f")
			require.GreaterOrEqual(t, len(got), len(want))
			return got[:len(want)]
		})
		require.Equal(t, map[string]int{want: seeds}, seen, how)
	}
}

func TestUnsyncedSectorsAreKeptOrLostEachByItself(t *testing.T) {
	m := NewMem()
	f := create(t, m, "f", strings.Repeat("-", 3*sectorSize))
	require.NoError(t, m.SyncAll())
	_, err := f.WriteAt(bytes.Repeat([]byte("+"), 3*sectorSize), 0)
	require.NoError(t, err)
	seen := outcomes(m, func(image *Mem) string {
		got := content(t, image, "f")
		require.Len(t, got, 3*sectorSize)
		var state []byte
		for i := range 3 {
			sector := got[i*sectorSize : (i+1)*sectorSize]
			switch plus := strings.Count(sector, "+"); {
			case plus == 0:
				state = append(state, '-')
			case plus == sectorSize:
				state = append(state, '+')
			default:
				require.Equal(t, sectorSize-plus, strings.Count(sector, "-"), "a torn sector has no other bytes")
				state = append(state, '?')
			}
		}
		return string(state)
	})
	for _, state := range []string{"---", "+++", "+-+", "-+-", "--+", "+--", "?--", "?++"} {
		require.NotZero(t, seen[state], "%s in %v", state, seen)
	}
	require.Greater(t, seen["---"]+seen["+++"], seen["???"], "torn sectors are seldom")
}

func TestUnsyncedSizeIsAnyBetween(t *testing.T) {
	m := NewMem()
	f := create(t, m, "f", "0123456789")
	require.NoError(t, m.SyncAll())
	require.NoError(t, f.Truncate(4))
	_, err := f.WriteAt([]byte("x"), 15)
	require.NoError(t, err)
	seen := outcomes(m, func(image *Mem) string {
		e, err := image.Stat("f")
		require.NoError(t, err)
		return fmt.Sprint(e.Size)
	})
	for size := 4; size <= 16; size++ {
		require.NotZero(t, seen[fmt.Sprint(size)], "%d in %v", size, seen)
	}
	require.Len(t, seen, 13)
}

func TestTruncatedBytesDoNotComeBackAfterSync(t *testing.T) {
	m := NewMem()
	f := create(t, m, "f", strings.Repeat("x", 2000))
	require.NoError(t, m.SyncAll())
	require.NoError(t, f.Truncate(100))
	require.NoError(t, f.Sync())
	require.NoError(t, f.Allocate(0, 2000))
	outcomes(m, func(image *Mem) string {
		got := content(t, image, "f")
		require.Equal(t, strings.Repeat("x", 100), got[:100])
		require.Empty(t, strings.Trim(got[100:], "\x00"), "allocated bytes are zeros")
		return ""
	})
}

func TestMappedSectorsCountAsWritten(t *testing.T) {
	m := NewMem()
	f := create(t, m, "f", "")
	require.NoError(t, f.Allocate(0, 4096))
	require.NoError(t, m.SyncAll())
	w, err := f.Map(4096, true)
	require.NoError(t, err)
	copy(w.Bytes(), bytes.Repeat([]byte("+"), 4096))
	plus := func(image *Mem) string {
		return fmt.Sprint(strings.Count(content(t, image, "f"), "+") / sectorSize)
	}
	seen := outcomes(m, plus)
	require.NotZero(t, seen["0"])
	require.NotZero(t, seen["3"])
	require.NotZero(t, seen["8"])
	require.NoError(t, f.Sync())
	require.Equal(t, map[string]int{"8": seeds}, outcomes(m, plus))
	copy(w.Bytes(), bytes.Repeat([]byte("-"), 4096))
	require.NoError(t, w.Close())
	require.NotZero(t, outcomes(m, plus)["0"], "also after the mapping was closed")
	require.Equal(t, strings.Repeat("-", 4096), content(t, m.CrashClean(), "f"))
}

func TestCrashIsTheSameForTheSameSeed(t *testing.T) {
	build := func() *Mem {
		m := NewMem()
		for i := range 20 {
			require.NoError(t, m.MkdirAll(fmt.Sprint("d", i)))
			create(t, m, fmt.Sprint("d", i, "/f"), strings.Repeat("x", 5000))
		}
		require.NoError(t, m.SyncDir("."))
		return m
	}
	dump := func(m *Mem) string {
		var b strings.Builder
		for i := range 20 {
			if name := fmt.Sprint("d", i, "/f"); exists(t, m, name) {
				fmt.Fprintf(&b, "%d %x\n", i, content(t, m, name))
			}
		}
		return b.String()
	}
	for seed := range uint64(20) {
		one := dump(build().Crash(rand.New(rand.NewPCG(seed, 0))))
		require.Equal(t, one, dump(build().Crash(rand.New(rand.NewPCG(seed, 0)))))
	}
}

func TestCrashIsAWorldOfItsOwn(t *testing.T) {
	m := NewMem()
	f := create(t, m, "f", "before")
	_, err := m.Lock("LOCK", "old")
	require.NoError(t, err)
	require.NoError(t, m.SyncAll())
	for _, image := range []*Mem{m.Crash(rand.New(rand.NewPCG(1, 1))), m.CrashClean()} {
		_, err := f.WriteAt([]byte("after!"), 0)
		require.NoError(t, err)
		require.NoError(t, f.Sync())
		require.Equal(t, "before", content(t, image, "f"))
		require.Equal(t, "after!", content(t, m, "f"))
		l, err := image.Lock("LOCK", "new")
		require.NoError(t, err, "no lock outlives its process")
		require.NoError(t, l.Close())
		_, err = f.WriteAt([]byte("before"), 0)
		require.NoError(t, err)
		require.NoError(t, f.Sync())
	}
}

func TestCrashImageIsDurable(t *testing.T) {
	m := NewMem()
	create(t, m, "f", strings.Repeat("x", 5000))
	create(t, m, "g", strings.Repeat("x", 5000))
	image := m.Crash(rand.New(rand.NewPCG(3, 3)))
	require.NotEmpty(t, names(t, image, "f", "g"))
	all := func(m *Mem) string {
		s := names(t, m, "f", "g")
		for name := range strings.FieldsSeq(s) {
			s += content(t, m, name)
		}
		return s
	}
	require.Equal(t, map[string]int{all(image): seeds}, outcomes(image, all))
}

func TestProcessEndKeepsEverythingButMakesNothingDurable(t *testing.T) {
	m := NewMem()
	require.NoError(t, m.MkdirAll("d"))
	create(t, m, "d/f", "synced")
	require.NoError(t, m.SyncAll())
	f, err := m.OpenWrite("d/f")
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("written"), 0)
	require.NoError(t, err)
	require.NoError(t, m.Rename("d/f", "g"))
	require.NoError(t, m.SyncDir(".")) // the old name may linger
	image := m.CrashClean()
	require.Equal(t, "written", content(t, image, "g"))
	require.False(t, exists(t, image, "d/f"))
	see := func(m *Mem) string { return names(t, m, "d/f", "g") + " " + content(t, m, "g")[:6] }
	seen := outcomes(image, see)
	require.NotZero(t, seen["d/f g synced"])
	require.NotZero(t, seen["g writte"])
	require.Equal(t, outcomes(m, see), seen, "a power cut after it is as one without")
	require.NoError(t, image.SyncDir("d"))
	for state := range outcomes(image, see) {
		require.NotContains(t, state, "d/f")
	}
}

func TestHookSeesEverySyncAndMayCrash(t *testing.T) {
	m := NewMem()
	var calls []string
	m.OnSync(func(op, name string) {
		image := m.Crash(rand.New(rand.NewPCG(1, uint64(len(calls)))))
		if op == "Sync" {
			require.NoError(t, m.SyncDir(".")) // the hook may do anything
		}
		calls = append(calls, op+" "+name+" "+names(t, image, "d/f"))
	})
	require.NoError(t, m.MkdirAll("d"))
	sub, err := m.Sub("d")
	require.NoError(t, err)
	f := create(t, sub, "f", "x")
	require.NoError(t, f.Sync())
	require.NoError(t, sub.SyncDir("."))
	require.NoError(t, sub.SyncAll())
	require.Error(t, m.SyncDir("missing"))
	m.OnSync(nil)
	require.NoError(t, m.SyncAll())
	require.Len(t, calls, 4)
	require.Equal(t, []string{"SyncDir . ", "SyncDir d d/f", "SyncAll d d/f"}, []string{calls[0][:10], calls[2], calls[3]})
	require.Contains(t, calls[1], "Sync d/f")
}

func TestFailedSyncLosesItsBytesForGood(t *testing.T) {
	m := NewMem()
	f := create(t, m, "f", strings.Repeat("-", 1024))
	require.NoError(t, m.SyncAll())
	for _, all := range []bool{false, true} {
		fail := true
		faulty := Fault(Fault(m, func(Op) error { return nil }), func(op Op) error {
			if fail && (op.Kind == OpSync || op.Kind == OpSyncAll) {
				return syscall.EIO
			}
			return nil
		})
		g, err := faulty.OpenWrite("f")
		require.NoError(t, err)
		_, err = g.WriteAt(bytes.Repeat([]byte("+"), 512), 0)
		require.NoError(t, err)
		if all {
			require.ErrorIs(t, faulty.SyncAll(), syscall.EIO)
		} else {
			require.ErrorIs(t, g.Sync(), syscall.EIO)
		}
		fail = false
		_, err = g.WriteAt([]byte("synced"), 512)
		require.NoError(t, err)
		require.NoError(t, g.Sync(), "the lie of the kernel")
		require.NoError(t, faulty.SyncAll())
		require.Equal(t, strings.Repeat("+", 512)+"synced", content(t, faulty, "f")[:518])
		seen := outcomes(m, func(image *Mem) string {
			got := content(t, image, "f")
			require.Equal(t, "synced", got[512:518])
			return fmt.Sprint(strings.Count(got[:512], "-"))
		})
		require.NotZero(t, seen["512"])
		require.NotZero(t, seen["0"])

		_, err = f.WriteAt(bytes.Repeat([]byte("-"), 512), 0) // written again
		require.NoError(t, err)
		require.NoError(t, f.Sync())
		for state := range outcomes(m, func(image *Mem) string { return content(t, image, "f")[:512] }) {
			require.Equal(t, strings.Repeat("-", 512), state)
		}
		require.NoError(t, g.Close())
	}
}

func TestSpaceIsWhatWasSet(t *testing.T) {
	m := NewMem()
	m.SetSpace(3, 10)
	free, total, err := m.Space()
	require.NoError(t, err)
	require.Equal(t, []uint64{3, 10}, []uint64{free, total})
	free, _, err = m.Crash(rand.New(rand.NewPCG(1, 1))).Space()
	require.NoError(t, err)
	require.EqualValues(t, 3, free)
}

func TestRemovedDirectoryTakesNoNames(t *testing.T) {
	for _, open := range []func(t *testing.T) FS{
		func(*testing.T) FS { return NewMem() },
		func(t *testing.T) FS { fsys, _ := openOS(t); return fsys },
	} {
		fsys := open(t)
		require.NoError(t, fsys.MkdirAll("d"))
		sub, err := fsys.Sub("d")
		require.NoError(t, err)
		require.NoError(t, fsys.RemoveAll("d"))
		_, err = sub.Create("f")
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.ErrorIs(t, sub.MkdirAll("e"), fs.ErrNotExist)
		require.NoError(t, sub.Close())
	}
}

func TestMemRefusesAFileThatWouldNotFit(t *testing.T) {
	m := NewMem()
	f := create(t, m, "f", "")
	_, err := f.WriteAt([]byte("x"), 1<<50)
	require.ErrorIs(t, err, syscall.EFBIG)
	require.ErrorIs(t, f.Truncate(1<<50), syscall.EFBIG)
	require.ErrorIs(t, f.Allocate(0, 1<<50), syscall.EFBIG)
}

// TestMappingIsStoredToWhileTheTreeIsUsed is for the race detector.
func TestMappingIsStoredToWhileTheTreeIsUsed(t *testing.T) {
	m := NewMem()
	f := create(t, m, "f", "")
	require.NoError(t, f.Allocate(0, 4096))
	w, err := f.Map(4096, true)
	require.NoError(t, err)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		b := w.Bytes()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				b[i%4096]++
			}
		}
	})
	wg.Go(func() {
		defer close(stop)
		rng := rand.New(rand.NewPCG(1, 1))
		p := make([]byte, 8192)
		for i := range 100 {
			f.WriteAt(p[:1], int64(i))
			f.ReadAt(p, 0)
			f.Allocate(0, int64(4096+i*1000)) // outgrows the mapping on the way
			f.Sync()
			m.Crash(rng)
			m.CrashClean()
		}
	})
	wg.Wait()
	require.NoError(t, w.Close())
}

func TestMemIsUsedByManyAtOnce(t *testing.T) {
	m := NewMem()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			dir := fmt.Sprint("d", i%2)
			name := fmt.Sprint(dir, "/", i)
			m.MkdirAll(dir)
			f, err := m.Create(name)
			if err != nil {
				panic(err)
			}
			for j := range 50 {
				f.WriteAt([]byte("content"), int64(j*7))
				f.Sync()
				m.SyncDir(dir)
				m.ReadDir(dir)
				m.Crash(rand.New(rand.NewPCG(uint64(i), uint64(j))))
				m.Rename(name, name+"x")
				m.Rename(name+"x", name)
			}
		})
	}
	wg.Wait()
	for i := range 8 {
		require.Equal(t, strings.Repeat("content", 50), content(t, m, fmt.Sprintf("d%d/%d", i%2, i)))
	}
}

func BenchmarkCrash(b *testing.B) {
	m := NewMem()
	for i := range 10 {
		f, err := m.Create(fmt.Sprint(i))
		require.NoError(b, err)
		_, err = f.WriteAt(make([]byte, 16<<10), 0)
		require.NoError(b, err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for b.Loop() {
		m.Crash(rng)
	}
}
