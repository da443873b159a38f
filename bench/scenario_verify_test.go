package bench

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/broker/brokertest"
	"github.com/millrace-mq/millrace/protocol"
)

// tamperer is a proxy that changes the values of the first run it sees on their way to
// the broker, and covers it up: frames are sealed again, and the producer is told that
// all it sent was appended. A broker that loses or invents messages looks like this.
type tamperer struct {
	l      net.Listener
	broker string
	tamper func(values [][]byte) [][]byte
	wg     sync.WaitGroup

	mu   sync.Mutex
	done bool
}

func startTamperer(t *testing.T, broker string, tamper func(values [][]byte) [][]byte) *tamperer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &tamperer{l: l, broker: broker, tamper: tamper}
	ctx, cancel := context.WithCancel(context.Background())
	p.wg.Add(1)
	go func() {
		defer p.wg.Done()
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.wg.Add(1)
			go p.serve(t, ctx, c)
		}
	}()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, l.Close())
		p.wg.Wait()
	})
	return p
}

func (p *tamperer) serve(t *testing.T, ctx context.Context, down net.Conn) {
	defer p.wg.Done()
	up, err := net.Dial("tcp", p.broker)
	if err != nil {
		t.Error(err)
		return
	}
	stop := context.AfterFunc(ctx, func() { closeQuietly(up); closeQuietly(down) })
	defer stop()
	counts := make(chan uint32, 1<<16) // records of each run as the producer sent it
	var group sync.WaitGroup
	group.Go(func() {
		defer closeQuietly(up)
		p.upstream(t, protocol.NewReader(down), up, counts)
	})
	group.Go(func() {
		defer closeQuietly(down)
		downstream(t, protocol.NewReader(up), down, counts)
	})
	group.Wait()
}

func (p *tamperer) upstream(t *testing.T, from *protocol.Reader, to io.Writer, counts chan<- uint32) {
	for {
		f, err := from.Next()
		if err != nil {
			return
		}
		out := slices.Clone(f)
		if h := protocol.HeaderOf(out); h.Magic() == protocol.MagicProduce {
			var records uint32
			run, left := []byte{}, int(h.RunBytes())
			for left > 0 {
				f, err := from.Next()
				if err != nil {
					return
				}
				left -= len(f)
				records += protocol.HeaderOf(f).RecordCount()
				run = append(run, p.pass(t, protocol.Frame(f))...)
			}
			h.PutProduce(h.Level(), h.Handle(), h.Offset(), uint32(len(run)))
			counts <- records
			out = append(out, run...)
		}
		if _, err := to.Write(out); err != nil {
			return
		}
	}
}

// pass returns the frame, tampered with if it is the first.
func (p *tamperer) pass(t *testing.T, f protocol.Frame) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done {
		return slices.Clone(f)
	}
	p.done = true
	var values [][]byte
	it := protocol.Records(f)
	for it.Next() {
		values = append(values, slices.Clone(it.Record.Value))
	}
	var b protocol.Batch
	for _, v := range p.tamper(values) {
		if err := b.Add(nil, v, nil); err != nil {
			t.Error(err)
		}
	}
	return b.Seal()
}

func downstream(t *testing.T, from *protocol.Reader, to io.Writer, counts <-chan uint32) {
	for {
		f, err := from.Next()
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Log(err)
			}
			return
		}
		out := slices.Clone(f)
		if h := protocol.HeaderOf(out); h.Magic() == protocol.MagicAck && h.AckStatus() == protocol.OK {
			h.SetRecordCount(<-counts)
		}
		if _, err := to.Write(out); err != nil {
			return
		}
	}
}

func TestVerificationCatchesEachFlawOnce(t *testing.T) {
	b := brokertest.Start(t)
	for name, c := range map[string]struct {
		tamper func(v [][]byte) [][]byte
		want   Verify
	}{
		"nothing":    {func(v [][]byte) [][]byte { return v }, Verify{}},
		"lost":       {func(v [][]byte) [][]byte { return v[1:] }, Verify{Lost: 1}},
		"duplicated": {func(v [][]byte) [][]byte { return append(v, v[0]) }, Verify{Duplicated: 1}},
		"reordered":  {func(v [][]byte) [][]byte { v[0], v[1] = v[1], v[0]; return v }, Verify{Reordered: 1}},
		"altered":    {func(v [][]byte) [][]byte { v[2][30] ^= 4; return v }, Verify{Altered: 1}},
		"unnamed":    {func(v [][]byte) [][]byte { v[2][3] ^= 4; return v }, Verify{Altered: 1}},
		"truncated":  {func(v [][]byte) [][]byte { v[2] = v[2][:20]; return v }, Verify{Altered: 1}},
	} {
		for mode, simultaneous := range map[string]bool{"in turns": false, "simultaneous": true} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				p := startTamperer(t, b.Addr(), c.tamper)
				shape := small()
				shape.Clients, shape.Partitions = 1, 1
				run, err := (&Bench{Addr: p.l.Addr().String()}).E2E(t.Context(), shape, simultaneous, os.Args[0], consumerVerb)
				require.NoError(t, err)
				require.Equal(t, shape.Messages, run.Acked)
				require.Equal(t, c.want, run.Verify)
			})
		}
	}
}
