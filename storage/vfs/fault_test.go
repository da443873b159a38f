package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// everything does each operation once, in the order of its kind, and returns
// the first error.
func everything(fsys FS) (err error) {
	step := func(e error) {
		if err == nil {
			err = e
		}
	}
	open := func(f File, e error) {
		if step(e); e == nil {
			f.Close()
		}
	}
	open(fsys.Create("f"))
	open(fsys.Open("f"))
	open(fsys.OpenWrite("f"))
	step(fsys.MkdirAll("d/e"))
	step(fsys.Rename("f", "d/f"))
	step(fsys.Remove("d/e"))
	_, e := fsys.ReadDir(".")
	step(e)
	_, e = fsys.Stat("d")
	step(e)
	step(fsys.SyncDir("d"))
	step(fsys.SyncAll())
	_, _, e = fsys.Space()
	step(e)
	l, e := fsys.Lock("LOCK", "x")
	if step(e); e == nil {
		step(l.Close())
	}
	sub, e := fsys.Sub("d")
	if step(e); e == nil {
		step(files(sub))
		step(sub.Close())
	}
	step(fsys.RemoveAll("d"))
	return err
}

func files(fsys FS) error {
	f, err := fsys.Create("g")
	if err != nil {
		return err
	}
	_, w := f.WriteAt([]byte("12345"), 0)
	_, wv := f.WritevAt([][]byte{[]byte("67"), []byte("890")}, 5)
	_, r := f.ReadAt(make([]byte, 3), 1)
	_, s := f.Size()
	m, mm := f.Map(10, false)
	if mm == nil {
		mm = m.Close()
	}
	return errors.Join(w, wv, r, s, mm, f.Sync(), f.Truncate(5), f.Allocate(5, 10), f.StartWriteback(1, 2),
		f.DropCache(), f.ReadAhead(3, 4), f.Close())
}

func TestEveryOperationOfEveryKindCanFail(t *testing.T) {
	var c Counter
	require.NoError(t, everything(Fault(NewMem(), c.Decide)))
	require.Greater(t, c.N(), len(opNames))
	sum := 0
	boom := errors.New("boom")
	for k := range OpKind(len(opNames)) {
		require.NotZero(t, c.N(k), k)
		sum += c.N(k)
		for n := 1; n <= c.N(k); n++ {
			hit := 0
			fail := FailNth(n, boom, k)
			everything(Fault(NewMem(), func(op Op) error {
				err := fail(op)
				if err != nil {
					require.Equal(t, k, op.Kind)
					hit++
				}
				return err
			}))
			require.Equal(t, 1, hit, "%v %d", k, n)
		}
		if k != OpClose && k != OpOpen && k != OpOpenWrite && k != OpCreate {
			err := everything(Fault(NewMem(), FailNth(1, boom, k)))
			require.ErrorIs(t, err, boom, k)
			var pe *fs.PathError
			require.ErrorAs(t, err, &pe, k)
			require.NotEmpty(t, pe.Path, k)
			require.Equal(t, k.String(), pe.Op)
		}
	}
	require.Equal(t, c.N(), sum)
	require.Equal(t, c.N(OpOpen)+c.N(OpSync), c.N(OpOpen, OpSync))
}

func TestOpsAreNumberedAndNamed(t *testing.T) {
	var ops []Op
	require.NoError(t, everything(Fault(NewMem(), func(op Op) error {
		ops = append(ops, op)
		return nil
	})))
	var lines []string
	for i, op := range ops {
		require.Equal(t, i+1, op.N)
		lines = append(lines, op.String())
	}
	all := strings.Join(lines, "\n")
	for _, want := range []string{
		"#1 Create f pos 0 size 0",
		" Rename f to d/f pos 0",
		" Write d/g pos 0 size 5",
		" Writev d/g pos 5 size 5",
		" Read d/g pos 1 size 3",
		" Truncate d/g pos 0 size 5",
		" Allocate d/g pos 5 size 10",
		" StartWriteback d/g pos 1 size 2",
		" ReadAhead d/g pos 3 size 4",
		" Map d/g pos 0 size 10",
		" Unlock LOCK ",
		" CloseFS d ",
	} {
		require.Contains(t, all, want)
	}
	require.Equal(t, "OpKind(200)", OpKind(200).String())
}

func TestFailedOperationIsNotDone(t *testing.T) {
	m := NewMem()
	create(t, m, "f", "content")
	faulty := Fault(m, FailFrom(1, syscall.EIO, OpRename, OpRemove, OpRemoveAll, OpWrite, OpWritev, OpTruncate, OpAllocate, OpMkdirAll, OpCreate))
	f, err := faulty.OpenWrite("f")
	require.NoError(t, err)
	require.ErrorIs(t, faulty.Rename("f", "g"), syscall.EIO)
	require.ErrorIs(t, faulty.Remove("f"), syscall.EIO)
	require.ErrorIs(t, faulty.RemoveAll("f"), syscall.EIO)
	require.ErrorIs(t, faulty.MkdirAll("d"), syscall.EIO)
	_, err = faulty.Create("h")
	require.ErrorIs(t, err, syscall.EIO)
	n, err := f.WriteAt([]byte("CONTENT"), 0)
	require.ErrorIs(t, err, syscall.EIO)
	require.Zero(t, n)
	n, err = f.WritevAt([][]byte{[]byte("CONTENT")}, 0)
	require.ErrorIs(t, err, syscall.EIO)
	require.Zero(t, n)
	require.ErrorIs(t, f.Truncate(0), syscall.EIO)
	require.ErrorIs(t, f.Allocate(0, 100), syscall.EIO)
	require.Equal(t, "content", content(t, m, "f"))
	require.Equal(t, "f", names(t, m, "f", "g", "h", "d"))
}

func TestShortWriteWritesItsBytesAndFails(t *testing.T) {
	for _, n := range []int{-1, 0, 1, 4, 7, 100} {
		m := NewMem()
		faulty := Fault(m, FailFrom(1, ShortWrite{N: n, Err: syscall.ENOSPC}, OpWrite, OpWritev))
		want := "1234567"[:max(0, min(n, 7))]
		bufs := [][]byte{[]byte("123"), {}, []byte("45"), []byte("67")}

		f, err := faulty.Create("f")
		require.NoError(t, err)
		got, err := f.WriteAt([]byte("1234567"), 0)
		require.ErrorIs(t, err, syscall.ENOSPC)
		require.True(t, NoSpace(err))
		require.Equal(t, len(want), got)
		require.Equal(t, want, content(t, m, "f"))

		g, err := faulty.Create("g")
		require.NoError(t, err)
		shape := fmt.Sprint(bufs)
		got, err = g.WritevAt(bufs, 0)
		require.ErrorIs(t, err, syscall.ENOSPC)
		require.Equal(t, len(want), got)
		require.Equal(t, want, content(t, m, "g"))
		require.Equal(t, shape, fmt.Sprint(bufs))
	}
	require.ErrorIs(t, ShortWrite{N: 1}, io.ErrShortWrite)
}

func TestFailFromFailsForEver(t *testing.T) {
	faulty := Fault(NewMem(), FailFrom(3, syscall.EIO, OpStat))
	for i := range 6 {
		_, err := faulty.Stat(".")
		require.Equal(t, i >= 2, err != nil, i)
	}
}

func TestFailedCloseStillCloses(t *testing.T) {
	m := NewMem()
	faulty := Fault(m, FailFrom(1, syscall.EIO, OpClose, OpUnlock, OpCloseFS))
	f, err := faulty.Create("f")
	require.NoError(t, err)
	require.ErrorIs(t, f.Close(), syscall.EIO)
	require.ErrorIs(t, f.Sync(), fs.ErrClosed)
	l, err := faulty.Lock("LOCK", "x")
	require.NoError(t, err)
	require.ErrorIs(t, l.Close(), syscall.EIO)
	l, err = m.Lock("LOCK", "y")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	require.ErrorIs(t, faulty.Close(), syscall.EIO)
	_, err = m.Stat("f")
	require.ErrorIs(t, err, fs.ErrClosed)
}

func TestNoSpaceKnowsItsErrors(t *testing.T) {
	require.True(t, NoSpace(&fs.PathError{Op: "write", Path: "f", Err: syscall.ENOSPC}))
	require.True(t, NoSpace(fmt.Errorf("quota: %w", syscall.EDQUOT)))
	require.False(t, NoSpace(syscall.EIO))
	require.False(t, NoSpace(nil))
}
