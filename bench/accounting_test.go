package bench

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// delivery is one message in the order a consumer receives it.
type delivery struct {
	producer  uint32
	seq       uint64
	partition int
	flip      int // bit to flip in the payload, -1 for none
}

const accountedSize = 64

// deliveriesOf returns messages of producers in turn, two partitions by seq parity.
func deliveriesOf(producers uint32, each uint64) []delivery {
	var all []delivery
	for seq := range each {
		for p := range producers {
			all = append(all, delivery{producer: p, seq: seq, partition: int(seq % 2), flip: -1})
		}
	}
	return all
}

func accountOf(t testing.TB, producers int, each uint64, all []delivery) *Accounting {
	t.Helper()
	p := payloadsOf(t, 11, accountedSize)
	a, err := NewAccounting(p, producers, 2, each)
	require.NoError(t, err)
	for i := range producers {
		require.NoError(t, a.Acked(uint32(i), 0, each))
	}
	b := make([]byte, accountedSize)
	for _, d := range all {
		p.Fill(b, d.producer, d.seq)
		if d.flip >= 0 {
			b[d.flip/8] ^= 1 << (d.flip % 8)
		}
		a.Observe(d.partition, b)
	}
	return a
}

func TestCompleteDeliveryIsClean(t *testing.T) {
	a := accountOf(t, 3, 1000, deliveriesOf(3, 1000))
	require.True(t, a.Verify().OK(), "%+v", a.Verify())
	require.Equal(t, uint64(3000), a.Delivered())
	require.Equal(t, uint64(3000), a.AckedCount())
}

func TestEachDefectIsCountedExactlyOnce(t *testing.T) {
	swap := func(all []delivery) []delivery {
		// Places 300 and 306 of three producers: seq 100 and 102 of producer 0, both in
		// partition 0, and no other message of that pair between them.
		all[300], all[306] = all[306], all[300]
		return all
	}
	late := func(all []delivery) []delivery {
		d := all[6]
		return append(slices.Delete(all, 6, 7), d)
	}
	for name, c := range map[string]struct {
		spoil func([]delivery) []delivery
		want  Verify
	}{
		"one lost":      {func(all []delivery) []delivery { return slices.Delete(all, 500, 501) }, Verify{Lost: 1}},
		"first lost":    {func(all []delivery) []delivery { return all[1:] }, Verify{Lost: 1}},
		"last lost":     {func(all []delivery) []delivery { return all[:len(all)-1] }, Verify{Lost: 1}},
		"one doubled":   {func(all []delivery) []delivery { return slices.Insert(all, 500, all[500]) }, Verify{Duplicated: 1}},
		"doubled late":  {func(all []delivery) []delivery { return append(all, all[7]) }, Verify{Duplicated: 1}},
		"two swapped":   {swap, Verify{Reordered: 1}},
		"one late":      {late, Verify{Reordered: 1}},
		"filler bit":    {func(all []delivery) []delivery { all[500].flip = 16*8 + 3; return all }, Verify{Altered: 1}},
		"last bit":      {func(all []delivery) []delivery { all[500].flip = accountedSize*8 - 1; return all }, Verify{Altered: 1}},
		"producer bit":  {func(all []delivery) []delivery { all[500].flip = 24; return all }, Verify{Altered: 1}},
		"seq bit":       {func(all []delivery) []delivery { all[500].flip = 11 * 8; return all }, Verify{Altered: 1}},
		"check bit":     {func(all []delivery) []delivery { all[500].flip = 13 * 8; return all }, Verify{Altered: 1}},
		"other bounds":  {func(all []delivery) []delivery { return append(all, delivery{3, 1, 0, -1}) }, Verify{Foreign: 1}},
		"other seq":     {func(all []delivery) []delivery { return append(all, delivery{0, 1000, 0, -1}) }, Verify{Foreign: 1}},
		"other part":    {func(all []delivery) []delivery { return append(all, delivery{0, 1, 2, -1}) }, Verify{Foreign: 1}},
		"negative part": {func(all []delivery) []delivery { return append(all, delivery{0, 1, -1, -1}) }, Verify{Foreign: 1}},
		"all at once": {func(all []delivery) []delivery {
			all = swap(all)
			all[600].flip = 200
			all = slices.Insert(all, 900, all[899])
			return slices.Delete(all, 1200, 1201)
		}, Verify{Lost: 1, Duplicated: 1, Reordered: 1, Altered: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			a := accountOf(t, 3, 1000, c.spoil(deliveriesOf(3, 1000)))
			require.Equal(t, c.want, a.Verify())
			require.False(t, a.Verify().OK())
		})
	}
}

func TestOrderIsPerProducerAndPartition(t *testing.T) {
	all := deliveriesOf(3, 100)
	// One whole partition after the other, producers one after the other.
	slices.SortStableFunc(all, func(a, b delivery) int {
		if a.partition != b.partition {
			return a.partition - b.partition
		}
		return int(b.producer) - int(a.producer)
	})
	require.True(t, accountOf(t, 3, 100, all).Verify().OK())
}

func TestUnackedMessageMayBeDeliveredOrNot(t *testing.T) {
	p := payloadsOf(t, 11, accountedSize)
	a, err := NewAccounting(p, 1, 1, 100)
	require.NoError(t, err)
	require.NoError(t, a.Acked(0, 0, 10))
	b := make([]byte, accountedSize)
	for seq := range uint64(15) {
		p.Fill(b, 0, seq)
		a.Observe(0, b)
	}
	require.True(t, a.Verify().OK(), "delivered without an ack is no defect")
}

// reference counts the slow and obvious way.
func reference(producers int, each uint64, all []delivery) Verify {
	type pair struct {
		producer  uint32
		partition int
	}
	var v Verify
	seen, high := map[[2]uint64]bool{}, map[pair]uint64{}
	for _, d := range all {
		key, at := [2]uint64{uint64(d.producer), d.seq}, pair{d.producer, d.partition}
		switch top, any := high[at]; {
		case d.flip >= 0:
			v.Altered++
		case seen[key]:
			v.Duplicated++
		case any && d.seq < top:
			v.Reordered++
		}
		seen[key] = true
		high[at] = max(high[at], d.seq)
	}
	for p := range producers {
		for seq := range each {
			if !seen[[2]uint64{uint64(p), seq}] {
				v.Lost++
			}
		}
	}
	return v
}

func TestAccountingAgreesWithReference(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		producers, each := 1+r.IntN(4), uint64(1+r.IntN(300))
		all := deliveriesOf(uint32(producers), each)
		for range r.IntN(40) {
			i := r.IntN(len(all))
			switch r.IntN(4) {
			case 0:
				all = slices.Delete(all, i, min(i+1+r.IntN(3), len(all)))
			case 1:
				all = slices.Insert(all, r.IntN(len(all)+1), all[i])
			case 2:
				j := r.IntN(len(all))
				all[i], all[j] = all[j], all[i]
			case 3:
				all[i].flip = prefixSize*8 + r.IntN((accountedSize-prefixSize)*8)
			}
			if len(all) == 0 {
				break
			}
		}
		a := accountOf(t, producers, each, all)
		require.Equal(t, reference(producers, each, all), a.Verify(), "seed %d", seed)
	}
}

func TestMergeAccountsConsumersOfOneTopic(t *testing.T) {
	const producers, each = 3, 70_000 // more than one piece of a bitmap
	p := payloadsOf(t, 11, accountedSize)
	fresh := func() *Accounting {
		a, err := NewAccounting(p, producers, 2, each)
		require.NoError(t, err)
		return a
	}
	sent, parts := fresh(), []*Accounting{fresh(), fresh()}
	for i := range uint32(producers) {
		require.NoError(t, sent.Acked(i, 0, each))
	}
	b := make([]byte, accountedSize)
	for _, d := range deliveriesOf(producers, each) {
		p.Fill(b, d.producer, d.seq)
		if d.producer == 1 && d.seq == 66_000 {
			continue // lost
		}
		parts[d.partition].Observe(d.partition, b)
		if d.producer == 2 && d.seq == 69_999 {
			parts[1-d.partition].Observe(d.partition, b) // doubled across consumers
		}
	}
	for _, part := range parts {
		require.NoError(t, sent.Merge(part))
	}
	require.Equal(t, Verify{Lost: 1, Duplicated: 1}, sent.Verify())
	require.Equal(t, uint64(producers*each), sent.Delivered())

	other, err := NewAccounting(payloadsOf(t, 12, accountedSize), producers, 2, each)
	require.NoError(t, err)
	require.ErrorIs(t, sent.Merge(other), ErrOutOfRange, "another seed")
	other, err = NewAccounting(p, producers, 2, each+1)
	require.NoError(t, err)
	require.ErrorIs(t, sent.Merge(other), ErrOutOfRange, "another limit")
	require.Equal(t, Verify{Lost: 1, Duplicated: 1}, sent.Verify())
}

func TestMergeKeepsOrderOfLaterDeliveries(t *testing.T) {
	p := payloadsOf(t, 11, accountedSize)
	one, err := NewAccounting(p, 1, 1, 10)
	require.NoError(t, err)
	two, err := NewAccounting(p, 1, 1, 10)
	require.NoError(t, err)
	b := make([]byte, accountedSize)
	p.Fill(b, 0, 5)
	two.Observe(0, b)
	require.NoError(t, one.Merge(two))
	p.Fill(b, 0, 4)
	one.Observe(0, b)
	require.Equal(t, Verify{Reordered: 1}, one.Verify())
}

func TestAckedRangesAreExact(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for range 50 {
		limit := uint64(1 + r.IntN(200_000))
		a, err := NewAccounting(payloadsOf(t, 1, 16), 1, 1, limit)
		require.NoError(t, err)
		want := make([]bool, limit)
		for range 20 {
			seq := r.Uint64N(limit + 1)
			n := r.Uint64N(limit - seq + 1)
			require.NoError(t, a.Acked(0, seq, n))
			for i := seq; i < seq+n; i++ {
				want[i] = true
			}
		}
		var n uint64
		for _, in := range want {
			if in {
				n++
			}
		}
		require.Equal(t, n, a.AckedCount())
	}
}

func TestAccountingBoundsAreRefused(t *testing.T) {
	p := payloadsOf(t, 1, 16)
	for _, c := range []struct {
		producers, partitions int
		limit                 uint64
	}{
		{0, 1, 1}, {-1, 1, 1}, {1, 0, 1}, {1, 1, 0}, {maxProducers + 1, 1, 1},
		{maxProducers, 5, 1}, {1, maxOrders + 1, 1}, {1, 1, maxAccounted + 1}, {2, 1, maxAccounted}, {1, 1, 1 << 63},
	} {
		_, err := NewAccounting(p, c.producers, c.partitions, c.limit)
		require.ErrorIs(t, err, ErrOutOfRange, "%+v", c)
	}
	a, err := NewAccounting(p, 2, 1, 100)
	require.NoError(t, err)
	require.NoError(t, a.Acked(1, 100, 0))
	require.ErrorIs(t, a.Acked(2, 0, 1), ErrOutOfRange)
	require.ErrorIs(t, a.Acked(0, 0, 101), ErrOutOfRange)
	require.ErrorIs(t, a.Acked(0, 99, 2), ErrOutOfRange)
	require.ErrorIs(t, a.Acked(0, 1<<63, 1<<63), ErrOutOfRange)
	require.Zero(t, a.AckedCount())
}

func TestHundredMillionMessagesFitInModestMemory(t *testing.T) {
	const producers, each = 10, 10_000_000
	p := payloadsOf(t, 1, 16)
	a, err := NewAccounting(p, producers, 1, each)
	require.NoError(t, err)
	b := make([]byte, 16)
	for i := range uint32(producers) {
		require.NoError(t, a.Acked(i, 0, each))
		for seq := uint64(0); seq < each; seq += pieceBits { // touches every piece
			p.Fill(b, i, seq)
			a.Observe(0, b)
		}
	}
	held := 0
	for _, set := range append(slices.Clone(a.acked), a.seen...) {
		for _, piece := range set.pieces {
			held += 8*len(piece) + 24
		}
	}
	require.Less(t, held, 26_000_000)
	touched := uint64(producers * ((each + pieceBits - 1) / pieceBits))
	require.Equal(t, Verify{Lost: producers*each - touched}, a.Verify())
}

func TestObserveAllocatesNothingWithinAPiece(t *testing.T) {
	p := payloadsOf(t, 1, 100)
	a, err := NewAccounting(p, 1, 1, pieceBits)
	require.NoError(t, err)
	b := make([]byte, 100)
	seq := uint64(0)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		p.Fill(b, 0, seq)
		a.Observe(0, b)
		seq++
	}))
	require.True(t, a.Verify().OK())
}

func BenchmarkAccountingObserve100(b *testing.B) {
	const n = 1 << 10
	p := payloadsOf(b, 1, 100)
	a, err := NewAccounting(p, 1, 1, n)
	require.NoError(b, err)
	made := make([]byte, n*100)
	for i := range n {
		p.Fill(made[i*100:][:100], 0, uint64(i))
	}
	i := 0
	b.ReportAllocs()
	b.SetBytes(100)
	for b.Loop() {
		a.Observe(0, made[i*100:][:100])
		i = (i + 1) % n
	}
}
