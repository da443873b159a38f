package server_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/broker/brokertest"
	"github.com/millrace-mq/millrace/protocol"
)

// TestAckedSurvivesAKilledBroker publishes through several connections, pipelined, kills the
// broker in the middle and accounts for every record: what was acknowledged is at its offset
// with its value, each producer's records are in order, and none is there twice.
func TestAckedSurvivesAKilledBroker(t *testing.T) {
	for _, level := range []protocol.Level{protocol.LevelWritten, protocol.LevelDurable} {
		t.Run(level.String(), func(t *testing.T) {
			b := brokertest.Start(t)
			admin := connect(t, b)
			admin.create("t", floor(level))
			var acked [4]atomic.Int64
			var producers sync.WaitGroup
			offsets := make([]map[uint64]string, 4)
			for i := range offsets {
				p := connect(t, b)
				o := p.open("t", 0)
				offsets[i] = map[uint64]string{}
				producers.Add(2)
				go func() {
					defer producers.Done()
					for n := 0; ; n++ {
						if _, err := p.nc.Write(run(level, o.Handle, uint64(n), batch(fmt.Sprintf("%d/%d", i, n)))); err != nil {
							return
						}
					}
				}()
				go func() {
					defer producers.Done()
					for n := 0; ; n++ {
						f, err := p.r.Next()
						if err != nil {
							return
						}
						h := protocol.HeaderOf(f)
						if h.Magic() != protocol.MagicAck || h.AckStatus() != protocol.OK {
							t.Errorf("%v with status %s", h.Magic(), h.AckStatus().Name())
							return
						}
						offsets[i][h.Offset()] = fmt.Sprintf("%d/%d", i, n)
						acked[i].Add(1)
					}
				}()
			}
			for i := range acked {
				require.Eventually(t, func() bool { return acked[i].Load() > 100 }, patience, tick)
			}
			b.Restart(false)
			producers.Wait()
			requireAccounted(t, b, offsets)
		})
	}
}

func requireAccounted(t *testing.T, b *brokertest.Broker, acked []map[uint64]string) {
	t.Helper()
	p := connect(t, b)
	o := p.open("t", 0)
	p.subscribe(o.Handle, 1, protocol.Subscribe{From: protocol.Start, Credit: 1 << 40})
	list, _ := p.collect(0, int(o.End))
	next := make([]int, len(acked))
	for offset, record := range list {
		var at uint64
		var producer, n int
		_, err := fmt.Sscanf(strings.ReplaceAll(record, "/", " "), "%d:%d %d", &at, &producer, &n)
		require.NoError(t, err)
		require.Equal(t, uint64(offset), at, "offsets are dense")
		require.Equal(t, next[producer], n, "in order, none lost in between, none twice")
		next[producer]++
	}
	for i, m := range acked {
		require.NotEmpty(t, m)
		for offset, value := range m {
			require.Less(t, offset, uint64(len(list)))
			require.Equal(t, fmt.Sprintf("%d:%s", offset, value), list[offset], "acknowledged to producer %d", i)
		}
	}
}
