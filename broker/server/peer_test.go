package server_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/broker/brokertest"
	"github.com/millrace-mq/millrace/protocol"
)

// patience is how long things that must happen may take on a busy machine.
const patience = 20 * time.Second

var noDeadline time.Time

const tick = 2 * time.Millisecond

// peer is a client that says exactly what a test tells it to.
type peer struct {
	t    testing.TB
	nc   net.Conn
	r    *protocol.Reader
	next uint64
}

func dial(t testing.TB, addr string) *peer {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	require.NoError(t, nc.SetDeadline(time.Now().Add(patience)))
	t.Cleanup(func() { nc.Close() })
	return &peer{t: t, nc: nc, r: protocol.NewReader(nc)}
}

// connect dials and says HELLO.
func connect(t testing.TB, b *brokertest.Broker) *peer {
	t.Helper()
	p := dial(t, b.Addr())
	hello := protocol.Hello{MinVersion: 1, MaxVersion: 1, Client: "test", ClientVersion: "1"}
	var reply protocol.HelloReply
	require.NoError(t, reply.Decode(p.must(p.call(protocol.OpHello, 0, 0, "", &hello))))
	require.Equal(t, uint8(1), reply.Version)
	require.Zero(t, reply.Features)
	return p
}

type message interface{ AppendTo([]byte) []byte }

// request is the bytes of a REQUEST.
func request(op protocol.Opcode, flags uint16, timeout uint32, id uint64, handle uint32, key string, m message) []byte {
	var h protocol.Header
	var args []byte
	if m != nil {
		args = m.AppendTo(nil)
	}
	h.PutRequest(op, flags, timeout, id, handle, len(key), len(args))
	return append(append(h[:], key...), args...)
}

func (p *peer) write(b []byte) {
	p.t.Helper()
	_, err := p.nc.Write(b)
	require.NoError(p.t, err)
}

// send sends a request and returns its correlation id.
func (p *peer) send(op protocol.Opcode, flags uint16, timeout uint32, handle uint32, key string, m message) uint64 {
	p.t.Helper()
	p.next++
	p.write(request(op, flags, timeout, p.next, handle, key, m))
	return p.next
}

// call sends a request and waits for its response.
func (p *peer) call(op protocol.Opcode, flags uint16, handle uint32, key string, m message) (*protocol.Header, []byte) {
	p.t.Helper()
	id := p.send(op, flags, 0, handle, key, m)
	return p.response(op, id)
}

func (p *peer) response(op protocol.Opcode, id uint64) (*protocol.Header, []byte) {
	p.t.Helper()
	h, b := p.frame()
	require.Equal(p.t, protocol.MagicResponse, h.Magic())
	require.Equal(p.t, op, h.Opcode())
	require.Equal(p.t, id, h.Correlation())
	return h, b
}

// must returns the payload of a successful response.
func (p *peer) must(h *protocol.Header, b []byte) []byte {
	p.t.Helper()
	require.Equal(p.t, protocol.OK, h.Status(), "%v", errorOf(h.Status(), b))
	return b
}

// refused returns the error of a refusing response.
func (p *peer) refused(h *protocol.Header, b []byte) *protocol.Error {
	p.t.Helper()
	require.NotEqual(p.t, protocol.OK, h.Status())
	return errorOf(h.Status(), b)
}

func errorOf(code protocol.Code, b []byte) *protocol.Error {
	var e protocol.Error
	if err := e.Decode(code, b); err != nil {
		return &protocol.Error{Code: code, Detail: fmt.Sprintf("undecodable: %v", err)}
	}
	return &e
}

// frame reads the next frame that is no PING and returns copies of header and payload.
func (p *peer) frame() (*protocol.Header, []byte) {
	p.t.Helper()
	for {
		f, err := p.r.Next()
		require.NoError(p.t, err)
		h := *protocol.HeaderOf(f)
		if h.Magic() != protocol.MagicPing {
			return &h, append([]byte(nil), f[protocol.HeaderSize+int(h.KeySize()):]...)
		}
	}
}

// eof requires that the broker hangs up.
func (p *peer) eof() {
	p.t.Helper()
	for {
		f, err := p.r.Next()
		if err != nil {
			var timeout net.Error
			require.False(p.t, asTimeout(err, &timeout), "the broker did not hang up")
			return
		}
		require.Contains(p.t, []protocol.Magic{protocol.MagicPing, protocol.MagicGoAway}, protocol.HeaderOf(f).Magic())
	}
}

func asTimeout(err error, target *net.Error) bool {
	e, ok := err.(net.Error)
	if ok {
		*target = e
	}
	return ok && e.Timeout()
}

func (p *peer) open(topic string, partition uint32) protocol.OpenReply {
	p.t.Helper()
	var reply protocol.OpenReply
	require.NoError(p.t, reply.Decode(p.must(p.call(protocol.OpOpen, 0, 0, topic, &protocol.Open{Partition: partition}))))
	require.NotZero(p.t, reply.Handle)
	return reply
}

// create makes a topic with a floor; written topics show records when they are written.
func (p *peer) create(topic string, s ...protocol.Setting) {
	p.t.Helper()
	m := protocol.TopicSettings(s)
	p.must(p.call(protocol.OpTopicCreate, 0, 0, topic, &m))
}

func floor(l protocol.Level) protocol.Setting {
	return protocol.Setting{ID: protocol.SettingDurability, Value: uint64(l)}
}

// batch is one sealed DATA frame.
func batch(values ...string) []byte {
	var b protocol.Batch
	for _, v := range values {
		if err := b.Add(nil, []byte(v), nil); err != nil {
			panic(err)
		}
	}
	return append([]byte(nil), b.Seal()...)
}

// run is the bytes of a PRODUCE run.
func run(level protocol.Level, handle uint32, sequence uint64, frames ...[]byte) []byte {
	var h protocol.Header
	var body []byte
	for _, f := range frames {
		body = append(body, f...)
	}
	h.PutProduce(level, handle, sequence, uint32(len(body)))
	return append(h[:], body...)
}

// ack reads the next frame, which must be an ACK of that handle.
func (p *peer) ack(handle uint32) (*protocol.Header, *protocol.Error) {
	p.t.Helper()
	h, b := p.frame()
	require.Equal(p.t, protocol.MagicAck, h.Magic())
	require.Equal(p.t, handle, h.Handle())
	if h.AckStatus() == protocol.OK {
		return h, nil
	}
	return h, errorOf(h.AckStatus(), b)
}

// publish appends one batch and waits for the ack; it returns the base offset.
func (p *peer) publish(handle uint32, level protocol.Level, values ...string) uint64 {
	p.t.Helper()
	p.write(run(level, handle, 1, batch(values...)))
	h, refused := p.ack(handle)
	require.Nil(p.t, refused)
	return h.Offset()
}

// subscribe starts a subscription and returns what it was resolved to.
func (p *peer) subscribe(handle, id uint32, m protocol.Subscribe) protocol.SubscribeReply {
	p.t.Helper()
	m.Subscription = id
	var reply protocol.SubscribeReply
	require.NoError(p.t, reply.Decode(p.must(p.call(protocol.OpSubscribe, 0, handle, "", &m))))
	return reply
}

// delivery is one DELIVER run.
type delivery struct {
	sub       uint32
	flags     protocol.DeliverFlags
	watermark uint64
	frames    []protocol.Frame
	size      int
}

// records returns offset and value of every record from offset from on.
func (d *delivery) records(from uint64) (list []string) {
	for _, f := range d.frames {
		it := protocol.Records(f)
		for it.Next() {
			if it.Record.Offset >= from {
				list = append(list, fmt.Sprintf("%d:%s", it.Record.Offset, it.Record.Value))
			}
		}
	}
	return list
}

// deliver reads the next frame, which must be a DELIVER run, and checks every stored frame.
func (p *peer) deliver() delivery {
	p.t.Helper()
	h, _ := p.frame()
	return p.runOf(h)
}

func (p *peer) runOf(h *protocol.Header) delivery {
	p.t.Helper()
	require.Equal(p.t, protocol.MagicDeliver, h.Magic())
	d := delivery{sub: h.Subscription(), flags: h.DeliverFlags(), watermark: h.Offset(), size: int(h.RunBytes())}
	for left := d.size; left > 0; {
		f, err := p.r.Next()
		require.NoError(p.t, err)
		_, err = protocol.CheckStored(f, protocol.MaxDataFrame)
		require.NoError(p.t, err)
		d.frames = append(d.frames, append(protocol.Frame(nil), f...))
		left -= len(f)
		require.GreaterOrEqual(p.t, left, 0, "a run is whole frames")
	}
	return d
}

// collect reads DELIVER runs of one subscription until it has n records.
func (p *peer) collect(from uint64, n int) (list []string, runs []delivery) {
	p.t.Helper()
	for len(list) < n {
		d := p.deliver()
		list = append(list, d.records(from)...)
		runs = append(runs, d)
	}
	return list, runs
}

// hermit is a client of the legacy protocol.
type hermit struct {
	t  testing.TB
	nc net.Conn
}

func dialHermit(t testing.TB, addr string, hello protocol.LegacyHello) *hermit {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	require.NoError(t, nc.SetDeadline(time.Now().Add(patience)))
	t.Cleanup(func() { nc.Close() })
	_, err = nc.Write(hello.AppendTo(nil))
	require.NoError(t, err)
	return &hermit{t, nc}
}

func legacyFrame(key, payload string, count uint32) []byte {
	var h protocol.Header
	h.PutLegacy(0, 0, uint32(len(key)), uint32(len(payload)), count)
	return append(append(h[:], key...), payload...)
}

func (c *hermit) ack() (byte, uint64) {
	c.t.Helper()
	var b [9]byte
	_, err := io.ReadFull(c.nc, b[:])
	require.NoError(c.t, err)
	return b[0], binary.BigEndian.Uint64(b[1:])
}

// frame reads a pushed frame.
func (c *hermit) frame() (offset uint64, key, payload string, count uint32) {
	c.t.Helper()
	var h protocol.Header
	_, err := io.ReadFull(c.nc, h[:])
	require.NoError(c.t, err)
	require.Equal(c.t, protocol.MagicData, h.Magic())
	b := make([]byte, h.KeySize()+h.PayloadSize())
	_, err = io.ReadFull(c.nc, b)
	require.NoError(c.t, err)
	return h.Offset(), string(b[:h.KeySize()]), string(b[h.KeySize():]), h.RecordCount()
}
