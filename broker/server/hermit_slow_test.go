package server_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/broker/brokertest"
	"github.com/millrace-mq/millrace/broker/server"
	"github.com/millrace-mq/millrace/protocol"
)

// narrow dials with a socket that holds little, so that the broker's writes block soon.
func narrow(t testing.TB, b *brokertest.Broker) net.Conn {
	t.Helper()
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) { failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
		if err == nil {
			err = failed
		}
		return err
	}}
	nc, err := d.Dial("tcp", b.Addr())
	require.NoError(t, err)
	require.NoError(t, nc.SetDeadline(time.Now().Add(patience)))
	t.Cleanup(func() { nc.Close() })
	return nc
}

// narrowHermit is a legacy consumer on a narrow socket.
func narrowHermit(t testing.TB, b *brokertest.Broker, group, topic string) *hermit {
	t.Helper()
	hello := consumeHello(group, topic)
	c := &hermit{t, narrow(t, b)}
	_, err := c.nc.Write(hello.AppendTo(nil))
	require.NoError(t, err)
	return c
}

// stalled waits until n connections take nothing more and nothing is held for them.
func stalled(t testing.TB, b *brokertest.Broker, n int, budget uint64) {
	t.Helper()
	last, same := uint64(0), 0
	require.Eventually(t, func() bool {
		require.LessOrEqual(t, stat(b, "bytes_buffered"), budget)
		out := stat(b, "bytes_out")
		if out != last || out == 0 {
			last, same = out, 0
		} else {
			same++
		}
		return same > 50 && stat(b, "subscriptions") == uint64(n) && stat(b, "bytes_buffered") == 0
	}, patience, tick, "buffers are held for peers that do not read")
}

// TestConsumersThatDoNotReadHoldNoMemory: the broker keeps no buffer for a socket that is full,
// however many there are, and a good client is served beside them.
func TestConsumersThatDoNotReadHoldNoMemory(t *testing.T) {
	const budget, silent = 4 << 20, 60
	for name, fill := range map[string]func(*peer, uint32){
		"small batches": func(p *peer, h uint32) {
			frames := slices.Repeat([][]byte{sized(80, 100)}, 100)
			for range 8 {
				p.write(run(protocol.LevelTopic, h, 0, frames...))
				_, refused := p.ack(h)
				require.Nil(p.t, refused)
			}
		},
		"large batches": func(p *peer, h uint32) {
			for range 5 {
				p.write(run(protocol.LevelTopic, h, 0, sized(70, 10_000)))
				_, refused := p.ack(h)
				require.Nil(p.t, refused)
			}
		},
		"large messages": func(p *peer, h uint32) {
			for range 5 {
				p.publish(h, protocol.LevelTopic, strings.Repeat("m", 700_000))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := brokertest.Start(t, brokertest.Options{Server: func(o *server.Options) { o.InflightBytes = budget }})
			p := connect(t, b)
			fill(p, p.open("t", 0).Handle)
			for i := range silent {
				narrowHermit(t, b, fmt.Sprint(i), "t")
			}
			good := connect(t, b)
			o := good.open("t", 0)
			stalled(t, b, silent, budget)
			good.write(run(protocol.LevelTopic, o.Handle, 0, sized(100, 10_000)))
			_, refused := good.ack(o.Handle)
			require.Nil(t, refused, "publishers keep their memory")
			reader := dialHermit(t, b.Addr(), consumeHello("good", "t"))
			for next := uint64(0); next < partition(t, b, "t", 0).Visible().Offset; next++ {
				offset, _, _, _ := reader.frame()
				require.Equal(t, next, offset)
			}
		})
	}
}

// TestNativeConsumersThatDoNotReadHoldNoMemory is the same for runs that are copied.
func TestNativeConsumersThatDoNotReadHoldNoMemory(t *testing.T) {
	const budget, silent = 4 << 20, 20
	b := brokertest.Start(t, brokertest.Options{Server: func(o *server.Options) { o.InflightBytes = budget }})
	p := connect(t, b)
	o := p.open("t", 0)
	for range silent {
		c := &peer{t: t, nc: narrow(t, b)}
		c.r = protocol.NewReader(c.nc)
		c.must(c.call(protocol.OpHello, 0, 0, "", &protocol.Hello{MinVersion: 1, MaxVersion: 1}))
		c.subscribe(c.open("t", 0).Handle, 1, protocol.Subscribe{From: protocol.Start, Credit: 1 << 40})
	}
	copied := stat(b, "bytes_copied")
	for full := 0; full < 20; full++ { // until nobody took the last runs
		before := stat(b, "bytes_out")
		p.publish(o.Handle, protocol.LevelTopic, strings.Repeat("r", 9000))
		if stat(b, "bytes_out") > before+9000 {
			full = 0
		}
	}
	require.Greater(t, stat(b, "bytes_copied"), copied+silent*9000)
	stalled(t, b, silent, budget)
	p.publish(o.Handle, protocol.LevelTopic, "still served")
}

// legacyMessage is what a legacy consumer should get.
type legacyMessage struct{ key, value string }

// readByGroups reads what is wanted through narrow sockets, from the start and from a committed
// offset. at says which offset is which message.
func readByGroups(t *testing.T, b *brokertest.Broker, want []legacyMessage, at map[uint64]int) {
	t.Helper()
	for group, from := range map[string]int{"all": 0, "g": 202} {
		c := narrowHermit(t, b, group, "t")
		for i := from; i < len(want); i++ {
			offset, key, value, _ := c.frame()
			found, known := at[offset]
			require.True(t, known)
			require.Equal(t, i, found, "offset %d", offset)
			require.True(t, key == want[i].key && value == want[i].value, "message %d is altered", i)
		}
	}
}

// TestSlowLegacyConsumersGetEveryByteOnce: what a full socket left is made again, from records
// within frames larger and smaller than the window, and nothing is lost or sent twice.
func TestSlowLegacyConsumersGetEveryByteOnce(t *testing.T) {
	b := brokertest.Start(t)
	p := connect(t, b)
	o := p.open("t", 0)
	var want []legacyMessage
	at := map[uint64]int{} // offset to index in want
	next := uint64(0)
	add := func(list ...legacyMessage) {
		for _, m := range list {
			at[next] = len(want)
			want, next = append(want, m), next+1
		}
	}
	compressed := func(size int) { // left out, its offsets with it
		var f protocol.Batch
		f.Prelude.Codec = 1
		require.NoError(t, f.Add(nil, make([]byte, size), nil))
		require.NoError(t, f.Add(nil, nil, nil))
		p.write(run(protocol.LevelTopic, o.Handle, 0, f.Seal()))
		_, refused := p.ack(o.Handle)
		require.Nil(t, refused)
		next += 2
	}
	var headers protocol.Headers
	headers, err := headers.Append("name", bytes.Repeat([]byte("h"), 3000))
	require.NoError(t, err)
	plain := func(list ...legacyMessage) {
		var f protocol.Batch
		for i, m := range list {
			h := headers
			if i%3 == 0 {
				h = nil
			}
			require.NoError(t, f.Add([]byte(m.key), []byte(m.value), h))
		}
		p.write(run(protocol.LevelTopic, o.Handle, 0, f.Seal()))
		_, refused := p.ack(o.Handle)
		require.Nil(t, refused)
		add(list...)
	}
	text := func(n int) string { return strings.Repeat(fmt.Sprintf("%05d ", len(want)), n/6+1)[:n] }
	for round := range 3 {
		var many []legacyMessage
		for i := range 400 { // larger than a window
			many = append(many, legacyMessage{fmt.Sprint(i), fmt.Sprint(round, i, text(900+i))})
		}
		plain(many...)
		plain(legacyMessage{text(60_000), text(200_000)}, legacyMessage{"", text(65_536)}, legacyMessage{"k", ""}, legacyMessage{"", ""})
		for i := range 30 {
			plain(legacyMessage{"", text(10 * i)}, legacyMessage{text(i), text(100)})
		}
		require.NoError(t, commitHermit(t, b.Addr(), "g", "t", uint64(200+round))) // a control record in between
		h := dialHermit(t, b.Addr(), produceHello("t", 0))
		for _, n := range []int{10, 65_000, 65_507, 65_508, 300_000} {
			m := legacyMessage{text(n / 20), text(n)}
			_, err := h.nc.Write(legacyFrame(m.key, m.value, 1))
			require.NoError(t, err)
			h.ack()
			add(m)
		}
		compressed(100)
		compressed(100_000)
	}
	require.Equal(t, 3*(400+4+2*30+5), len(want))
	readByGroups(t, b, want, at)
	require.Eventually(t, func() bool { return stat(b, "bytes_sendfile") > 0 }, patience, tick)
}

func TestADamagedLargeBatchIsNotDeliveredToLegacyConsumers(t *testing.T) {
	b := brokertest.Start(t)
	p := connect(t, b)
	p.create("t", floor(protocol.LevelWritten))
	o := p.open("t", 0)
	p.publish(o.Handle, protocol.LevelTopic, "whole")
	p.write(run(protocol.LevelTopic, o.Handle, 0, sized(300, 1000)))
	_, refused := p.ack(o.Handle)
	require.Nil(t, refused)
	files, err := filepath.Glob(filepath.Join(b.Dir(), "topics", "t.*", "0", "*.wal"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	f, err := os.OpenFile(files[0], os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte{1}, 200_000) // within a value
	require.NoError(t, err)
	require.NoError(t, f.Close())

	c := dialHermit(t, b.Addr(), consumeHello("g", "t"))
	all, err := io.ReadAll(c.nc)
	if err != nil {
		require.ErrorIs(t, err, syscall.ECONNRESET)
	}
	require.LessOrEqual(t, len(all), protocol.HeaderSize+len("whole"), "nothing of the damaged batch")
	if len(all) > 0 {
		require.Equal(t, uint32(5), binary.BigEndian.Uint32(all[21:]))
	}
}
