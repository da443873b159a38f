package protocol

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRecordLengthsThatDoNotFitAnIntAreRefused(t *testing.T) {
	for _, v := range []uint32{math.MaxInt32, math.MaxInt32 + 1, math.MaxUint32 - 1, math.MaxUint32 - 8} {
		b := appendU32([]byte{0xFF, 0xFF, 0, 0}, v)
		_, _, _, _, ok := splitRecord(b)
		require.False(t, ok, "valueLen %d", v)
		require.ErrorIs(t, checkRecords(b, 1, math.MaxUint32), BadFrame)
	}
	require.NoError(t, checkRecords(appendRecord(nil, nil, []byte("v"), nil), 1, math.MaxUint32), "no message limit at all")
}

func TestHeadersReadBackInOrder(t *testing.T) {
	var h Headers
	var err error
	for _, name := range []string{"a", "", "b", "a"} {
		h, err = h.Append(name, []byte("value of "+name))
		require.NoError(t, err)
	}
	var names []string
	for k, v, rest, ok := h.Next(); ok; k, v, rest, ok = rest.Next() {
		names = append(names, string(k))
		require.Equal(t, "value of "+string(k), string(v))
		require.Equal(t, len(k), cap(k), "a name must not be appended to over its value")
		require.Equal(t, len(v), cap(v))
	}
	require.Equal(t, []string{"a", "", "b", "a"}, names)
	_, ok := h.Get("c")
	require.False(t, ok)
	v, ok := h.Get("b")
	require.True(t, ok)
	require.Equal(t, "value of b", string(v))
}

func TestHeaderRefusalsNameTheLimitThatWasPassed(t *testing.T) {
	_, err := Headers(nil).Append(strings.Repeat("n", 256), nil)
	require.Equal(t, &Error{Code: TooLarge, Detail: "header name", Actual: 256, Limit: MaxHeaderName, Setting: "header_name"}, err)
	h, err := Headers(nil).Append("n", make([]byte, MaxHeaders-4))
	require.NoError(t, err)
	require.Len(t, h, MaxHeaders)
	same, err := h.Append("", nil)
	require.Equal(t, &Error{Code: TooLarge, Detail: "headers", Actual: MaxHeaders + 3, Limit: MaxHeaders, Setting: "headers"}, err)
	require.Equal(t, h, same)
}

// sparseFrame builds a sealed frame of sparse records with the relative offsets given.
func sparseFrame(count uint32, rel ...uint32) Frame {
	var body []byte
	for _, r := range rel {
		body = appendRecord(appendU32(body, r), []byte("k"), []byte("v"), nil)
	}
	f := Frame(appendFrame(nil, Prelude{Layout: LayoutSparse}, nil, body, count))
	new(Stamp{Offset: 100, Index: 1, Term: 1}).Apply(f)
	return f
}

func TestSparseRecordsStayWithinTheirFrame(t *testing.T) {
	read := func(f Frame) (offsets []uint64, err error) {
		it := Records(f)
		for it.Next() {
			offsets = append(offsets, it.Record.Offset)
		}
		return offsets, it.Err()
	}
	got, err := read(sparseFrame(10, 0, 3, 9))
	require.NoError(t, err)
	require.Equal(t, []uint64{100, 103, 109}, got)
	got, err = read(sparseFrame(10))
	require.NoError(t, err, "all of its records were compacted away")
	require.Empty(t, got)
	for _, bad := range [][]uint32{{10}, {0, 0}, {3, 2}, {math.MaxUint32}} {
		_, err = read(sparseFrame(10, bad...))
		require.ErrorIs(t, err, BadFrame, "%v", bad)
	}
}

func TestBytesBehindTheLastRecordAreNoticed(t *testing.T) {
	body := append(appendRecord(nil, nil, []byte("v"), nil), 0)
	it := Records(Frame(appendFrame(nil, Prelude{}, nil, body, 1)))
	require.True(t, it.Next())
	require.False(t, it.Next())
	require.ErrorIs(t, it.Err(), BadFrame)
}

func TestAppendingToAViewNeverReachesTheFrame(t *testing.T) {
	opaque, err := AppendOpaque(nil, []byte("key"), []byte("body"), 1)
	require.NoError(t, err)
	before := bytes.Clone(opaque)
	it := Records(opaque)
	require.True(t, it.Next())
	for _, view := range [][]byte{it.Record.Key, it.Record.Value, Frame(opaque).Body(), Frame(opaque).Key()} {
		require.Equal(t, len(view), cap(view))
		_ = append(view, "overwritten"...)
	}
	require.Equal(t, before, opaque)
}

func TestCloneOutlivesTheFrameAndKeepsNil(t *testing.T) {
	var b Batch
	h, err := Headers(nil).Append("n", []byte("v"))
	require.NoError(t, err)
	require.NoError(t, b.Add([]byte("key"), []byte("value"), h))
	require.NoError(t, b.Add(nil, nil, nil))
	require.NoError(t, b.Add([]byte{}, []byte{}, nil))
	f := b.Seal()
	var clones []Record
	for it := Records(f); it.Next(); {
		clones = append(clones, it.Record.Clone())
	}
	clear(f)
	require.Equal(t, []Record{
		{Offset: 0, Key: []byte("key"), Value: []byte("value"), Headers: h, Span: 1},
		{Offset: 1, Span: 1},
		{Offset: 2, Key: []byte{}, Value: []byte{}, Span: 1},
	}, clones)
}
