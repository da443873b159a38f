package protocol

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBatchRefusesWhatTheBrokerWouldRefuseAndStaysUnchanged(t *testing.T) {
	var b Batch
	require.NoError(t, b.Add([]byte("k"), []byte("v"), nil))
	size := b.Size()
	for _, c := range []struct {
		key, value []byte
		headers    Headers
		want       Code
	}{
		{make([]byte, MaxKey+1), nil, nil, TooLarge},
		{nil, nil, make(Headers, MaxHeaders+1), TooLarge},
		{nil, nil, Headers{5, 0, 0}, BadFrame},
		{nil, nil, Headers{0}, BadFrame},
		{nil, make([]byte, MaxDataFrame), nil, TooLarge},
	} {
		require.ErrorIs(t, b.Add(c.key, c.value, c.headers), c.want)
		require.Equal(t, size, b.Size())
		require.Equal(t, 1, b.Len())
	}
	_, err := CheckFrame(b.Seal(), DefaultMessageBytes)
	require.NoError(t, err)
	require.Equal(t, size, len(b.Seal()), "Size told it beforehand")
}

func TestBatchHoldsAsManyRecordsAsAFrameMay(t *testing.T) {
	var b Batch
	b.Grow(MaxRecords * recordPrefix)
	for range MaxRecords {
		if err := b.Add(nil, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	require.ErrorIs(t, b.Add(nil, nil, nil), TooLarge)
	_, err := CheckFrame(b.Seal(), DefaultMessageBytes)
	require.NoError(t, err)
}

func TestSealedBatchGoesOnGrowing(t *testing.T) {
	var b Batch
	b.Prelude = Prelude{Flags: FlagLane, Lane: 3}
	require.Equal(t, MinFrame+1, b.Size())
	for i := range 5 {
		require.NoError(t, b.Add(nil, []byte("value"), nil))
		f := b.Seal()
		_, err := CheckFrame(f, 100)
		require.NoError(t, err)
		require.Equal(t, uint32(i+1), f.Header().RecordCount())
		require.Equal(t, uint8(3), f.Prelude().Lane)
	}
	b.Reset()
	require.Zero(t, b.Len())
	require.Panics(t, func() { b.Seal() })
}

func TestOpaqueFramesThatAreWrittenCanBeReadBack(t *testing.T) {
	body := make([]byte, 2<<20)
	for _, c := range []struct {
		key   int
		count uint32
		want  error
	}{
		{0, 1, nil}, {3, MaxRecords, nil}, {MaxKey, 1, nil},
		{0, 0, BadFrame}, {0, MaxRecords + 1, TooLarge}, {0, math.MaxUint32, TooLarge}, {MaxKey + 1, 1, TooLarge},
	} {
		dst, err := AppendOpaque([]byte("prefix"), make([]byte, c.key), body, c.count)
		if c.want != nil {
			require.ErrorIs(t, err, c.want, "count %d", c.count)
			require.Equal(t, "prefix", string(dst))
			continue
		}
		require.NoError(t, err)
		_, err = CheckFrame(dst[6:], MaxMessageBytes)
		require.NoError(t, err)
	}
	_, err := AppendOpaque(nil, nil, []byte("abc"), 4)
	require.ErrorIs(t, err, BadFrame, "more records than bytes")
	_, err = AppendOpaque(nil, nil, nil, 1)
	require.NoError(t, err, "an empty message is a message")
	_, err = AppendOpaque(nil, nil, make([]byte, MaxDataFrame-MinFrame+1), 1)
	require.ErrorIs(t, err, TooLarge)
}

func TestRunsThatAnAckCannotCountAreRefused(t *testing.T) {
	var run []byte
	for range 4096 { // 4096 × 2^20 = 2^32
		run = appendFrame(run, Prelude{Codec: 1}, nil, nil, MaxRecords)
	}
	_, err := CheckRun(run, DefaultMessageBytes)
	require.ErrorIs(t, err, TooLarge)
	require.Equal(t, uint64(1<<32), AsError(err).Actual)
	got, err := CheckRun(run[:len(run)/4096*4095], DefaultMessageBytes)
	require.NoError(t, err)
	require.Equal(t, uint64(4095*MaxRecords), got.Records)
	require.Equal(t, uint32(4095), got.Frames)
}

func TestNothingPerRecordOrFrameIsAllocatedOnceABatchIsWarm(t *testing.T) {
	key, value := []byte("key"), make([]byte, 100)
	for _, n := range []int{1, 7, 100, 333} { // sizes that leave every kind of slack behind the records
		var b Batch
		fill := func() {
			b.Reset()
			for range n {
				if err := b.Add(key, value, nil); err != nil {
					t.Fatal(err)
				}
			}
			b.Seal()
		}
		fill()
		require.Zero(t, testing.AllocsPerRun(100, fill), "%d records", n)
	}
	opaque := make([]byte, 0, 4096)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if _, err := AppendOpaque(opaque, key, value, 1); err != nil {
			t.Fatal(err)
		}
	}))
}
