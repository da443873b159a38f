package server_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/broker/brokertest"
	"github.com/millrace-mq/millrace/broker/server"
	"github.com/millrace-mq/millrace/protocol"
)

// answered reads what the broker says until it hangs up or says nothing more, and returns the
// codes of its refusals.
func (p *peer) answered() (codes []protocol.Code, hungUp bool) {
	p.t.Helper()
	for {
		f, err := p.r.Next()
		if err != nil {
			return codes, true
		}
		h := protocol.HeaderOf(f)
		switch h.Magic() {
		case protocol.MagicResponse:
			if h.Opcode() == protocol.OpStats && h.Status() == protocol.OK {
				return codes, false
			}
			codes = append(codes, h.Status())
		case protocol.MagicAck:
			codes = append(codes, h.AckStatus())
		case protocol.MagicGoAway:
			codes = append(codes, h.GoAwayStatus())
		case protocol.MagicPong, protocol.MagicPing:
		default:
			require.Failf(p.t, "unexpected frame", "%v", h.Magic())
		}
	}
}

// header is a frame header with fields that need not make sense.
func header(magic byte, key, payload, count uint32) []byte {
	var h protocol.Header
	h[0] = magic
	h.SetSizes(key, payload)
	h.SetRecordCount(count)
	return h[:]
}

// hostile are byte sequences and what they must be answered with; 0 = the connection survives
// without a refusal, 0xFFFF = hung up without a word.
func hostile(handle uint32) map[string]struct {
	bytes []byte
	code  protocol.Code
} {
	type c = struct {
		bytes []byte
		code  protocol.Code
	}
	m := map[string]c{
		"DATA outside of a run":    {batch("v"), protocol.BadFrame},
		"RESPONSE from a client":   {header(0x21, 0, 0, 0), protocol.BadFrame},
		"ACK from a client":        {header(0x41, 0, 0, 0), protocol.BadFrame},
		"DELIVER from a client":    {header(0x51, 0, 0, 0), protocol.BadFrame},
		"GOAWAY from a client":     {header(0x71, 0, 0, 0), protocol.BadFrame},
		"magic 0":                  {header(0x00, 0, 0, 0), protocol.Unsupported},
		"version 2 of REQUEST":     {header(0x12, 0, 0, 0), protocol.Unsupported},
		"unknown class B":          {header(0xB1, 100, 200, 7), 0},
		"PEER":                     {append(header(0xA1, 0, 3, 7), 1, 2, 3), 0},
		"PRODUCE with a key":       {append(header(0x31, 1, 0, 70), make([]byte, 71)...), protocol.BadFrame},
		"second HELLO":             {request(protocol.OpHello, 0, 0, 1, 0, "", &protocol.Hello{MinVersion: 1, MaxVersion: 1}), protocol.BadRequest},
		"unknown opcode":           {request(0x7777, 0, 0, 1, 0, "", nil), protocol.Unsupported},
		"opcode of later":          {request(protocol.OpGroupJoin, 0, 0, 1, 0, "t", nil), protocol.Unsupported},
		"OPEN without arguments":   {request(protocol.OpOpen, 0, 0, 1, 0, "t", nil), protocol.BadRequest},
		"OPEN with too much":       {request(protocol.OpOpen, 0, 0, 1, 0, "t", raw(make([]byte, 6))), protocol.BadRequest},
		"settings of 4 G items":    {request(protocol.OpTopicCreate, 0, 0, 1, 0, "x", raw{0xFF, 0xFF, 0xFF, 0xFF}), protocol.BadRequest},
		"setting out of range":     {request(protocol.OpTopicCreate, 0, 0, 1, 0, "x", &protocol.TopicSettings{{ID: protocol.SettingPartitions, Value: 1 << 40}}), protocol.BadRequest},
		"setting twice":            {request(protocol.OpTopicCreate, 0, 0, 1, 0, "x", &protocol.TopicSettings{floor(1), floor(1)}), protocol.BadRequest},
		"unknown setting":          {request(protocol.OpTopicCreate, 0, 0, 1, 0, "x", &protocol.TopicSettings{{ID: 999, Value: 1}}), protocol.BadRequest},
		"SUBSCRIBE without OPEN":   {request(protocol.OpSubscribe, 0, 0, 1, 55, "", &protocol.Subscribe{}), protocol.UnknownHandle},
		"SUBSCRIBE beyond the end": {request(protocol.OpSubscribe, 0, 0, 1, handle, "", &protocol.Subscribe{From: protocol.At(1 << 63)}), protocol.OffsetOutOfRange},
		"SUBSCRIBE of no kind":     {request(protocol.OpSubscribe, 0, 0, 1, handle, "", &protocol.Subscribe{From: protocol.Position{Kind: 200}}), protocol.BadRequest},
		"SUBSCRIBE with flags":     {request(protocol.OpSubscribe, 0, 0, 1, handle, "", &protocol.Subscribe{Flags: 0x8000}), protocol.Unsupported},
		"CLOSE of no handle":       {request(protocol.OpClose, 0, 0, 1, 55, "", nil), protocol.UnknownHandle},
		"CREDIT for nothing":       {header(0x61, 0, 0, 1000), 0},
		"CREDIT with flags":        {func() []byte { h := header(0x61, 0, 0, 1); h[8] = 1; return h }(), protocol.Unsupported},
		"PONG unasked":             {header(0x91, 0, 0, 0), 0},
		"UNSUBSCRIBE short":        {request(protocol.OpUnsubscribe, 0, 0, 1, 0, "", raw{1}), protocol.BadRequest},
		"OFFSETS of nothing":       {request(protocol.OpOffsets, 0, 0, 1, 0, "t", &protocol.Offsets{}), protocol.BadRequest},
	}
	for _, n := range []uint32{protocol.MaxControlFrame - protocol.HeaderSize + 1, 1 << 31, 1<<32 - 1} {
		m[fmt.Sprintf("REQUEST of %d bytes", n)] = c{header(0x11, 0, n, 0), protocol.TooLarge}
		m[fmt.Sprintf("REQUEST with a key of %d bytes", n)] = c{header(0x11, n, 0, 0), protocol.TooLarge}
		m[fmt.Sprintf("PING of %d bytes", n)] = c{header(0x81, n, n, 0), protocol.TooLarge}
	}
	for _, n := range []uint32{0, 1, protocol.MinFrame - 1} {
		b := append(header(0x31, 0, 0, n), make([]byte, n)...)
		binary.BigEndian.PutUint32(b[5:], handle)
		m[fmt.Sprintf("run of %d bytes", n)] = c{b, protocol.BadFrame}
	}
	for _, n := range []uint32{0, 1, 1 << 16, 1 << 31, 1<<32 - 1} {
		f := batch("v")
		binary.BigEndian.PutUint32(f[21:], n)
		code := protocol.BadFrame
		if n >= 1<<31 {
			code = protocol.TooLarge
		}
		m[fmt.Sprintf("frame with payload of %d bytes", n)] = c{run(protocol.LevelTopic, handle, 0, f), code}
	}
	return m
}

type raw []byte

func (r raw) AppendTo(b []byte) []byte { return append(b, r...) }

func TestHostileBytesAreAnsweredOrHungUpOn(t *testing.T) {
	b := brokertest.Start(t)
	first := connect(t, b)
	o := first.open("t", 0)
	require.Equal(t, uint32(1), o.Handle)
	for name, c := range hostile(o.Handle) {
		t.Run(name, func(t *testing.T) {
			p := connect(t, b)
			p.open("t", 0)
			p.write(c.bytes)
			rest := int(protocol.HeaderOf(append(c.bytes, make([]byte, 64)...)).FrameSize()) - len(c.bytes)
			if c.code == 0 && rest > 0 {
				p.write(make([]byte, rest))
			}
			p.write(request(protocol.OpStats, 0, 0, 2, 0, "", nil))
			codes, hungUp := p.answered()
			if c.code == 0 {
				require.Empty(t, codes)
				require.False(t, hungUp)
				return
			}
			require.NotEmpty(t, codes)
			require.Equal(t, c.code.Name(), codes[0].Name())
			require.Zero(t, partition(t, b, "t", 0).Visible().Offset)
		})
	}
	require.Zero(t, first.publish(o.Handle, protocol.LevelTopic, "v"), "the next client is served")
	require.Len(t, b.Broker.Topics(), 1)
}

func TestHalfFramesAppendNothing(t *testing.T) {
	b := brokertest.Start(t)
	first := connect(t, b)
	o := first.open("t", 0)
	whole := run(protocol.LevelTopic, 1, 0, batch("a", "b"), batch("c"))
	for n := range whole {
		p := connect(t, b)
		p.open("t", 0)
		p.write(whole[:n])
		require.NoError(t, p.nc.Close())
	}
	require.Eventually(t, func() bool { return stat(b, "connections") == 1 }, patience, tick)
	require.Zero(t, first.publish(o.Handle, protocol.LevelTopic, "v"))
	require.Zero(t, stat(b, "bytes_buffered"))
}

func TestBytesOneAtATimeAreUnderstood(t *testing.T) {
	b := brokertest.Start(t)
	p := dial(t, b.Addr())
	hello := protocol.Hello{MinVersion: 1, MaxVersion: 9}
	var all []byte
	all = append(all, request(protocol.OpHello, 0, 0, 1, 0, "", &hello)...)
	all = append(all, request(protocol.OpOpen, 0, 0, 2, 0, "t", &protocol.Open{})...)
	all = append(all, run(protocol.LevelTopic, 1, 0, batch("a"))...)
	for i := range all {
		p.write(all[i : i+1])
	}
	p.must(p.response(protocol.OpHello, 1))
	p.must(p.response(protocol.OpOpen, 2))
	_, refused := p.ack(1)
	require.Nil(t, refused)
}

func TestStrangersAreHeldShort(t *testing.T) {
	b := brokertest.Start(t, brokertest.Options{Server: func(o *server.Options) { o.Handshake = 300 * time.Millisecond }})
	for name, c := range map[string]struct {
		bytes []byte
		code  protocol.Code
	}{
		"OPEN before HELLO":         {request(protocol.OpOpen, 0, 0, 1, 0, "t", &protocol.Open{}), protocol.Unauthenticated},
		"STATS before HELLO":        {request(protocol.OpStats, 0, 0, 1, 0, "", nil), protocol.Unauthenticated},
		"AUTH":                      {request(protocol.OpAuth, 0, 0, 1, 0, "", nil), protocol.Unsupported},
		"HELLO of version 2":        {request(protocol.OpHello, 0, 0, 1, 0, "", &protocol.Hello{MinVersion: 2, MaxVersion: 3}), protocol.Unsupported},
		"HELLO cut short":           {request(protocol.OpHello, 0, 0, 1, 0, "", raw{1}), protocol.BadRequest},
		"frame of 4 KiB + 1":        {header(0x11, 0, 4097-protocol.HeaderSize, 0), protocol.TooLarge},
		"frame of 4 GiB":            {header(0x11, 0, 1<<32-1, 0), protocol.TooLarge},
		"neither protocol":          {[]byte("GET / HTTP/1.1\r\n\r\n"), protocol.BadFrame},
		"zeros":                     {make([]byte, 100), protocol.BadFrame},
		"PRODUCE after a bad HELLO": {append(request(protocol.OpStats, 0, 0, 1, 0, "", nil), run(1, 1, 0, batch("v"))...), protocol.Unauthenticated},
		"CREDIT after no HELLO":     {append(request(protocol.OpStats, 0, 0, 1, 0, "", nil), header(0x61, 0, 0, 1)...), protocol.Unauthenticated},
	} {
		t.Run(name, func(t *testing.T) {
			p := dial(t, b.Addr())
			p.write(c.bytes)
			codes, hungUp := p.answered()
			require.True(t, hungUp, "no HELLO within the time given")
			require.NotEmpty(t, codes)
			for _, code := range codes {
				require.Equal(t, c.code.Name(), code.Name())
			}
		})
	}
	p := dial(t, b.Addr())
	var h protocol.Header
	h.PutPing(protocol.MagicPing, 5, 6)
	p.write(append(h[:], request(protocol.OpHello, 0, 0, 1, 0, "", &protocol.Hello{MinVersion: 1, MaxVersion: 1})...))
	codes, hungUp := p.answered()
	require.True(t, hungUp)
	require.Equal(t, []protocol.Code{protocol.BadFrame}, codes, "the first byte must be that of a REQUEST")
	require.Empty(t, b.Broker.Topics())
}

func TestSilentStrangersAreCutAndHoldLittle(t *testing.T) {
	b := brokertest.Start(t, brokertest.Options{Server: func(o *server.Options) { o.Handshake = 2 * time.Second }})
	var list []net.Conn
	for range 300 {
		nc, err := net.Dial("tcp", b.Addr())
		require.NoError(t, err)
		defer nc.Close()
		_, err = nc.Write(header(0x11, 0, 4000, 0)[:10])
		require.NoError(t, err)
		list = append(list, nc)
	}
	good := connect(t, b)
	good.open("t", 0)
	require.LessOrEqual(t, stat(b, "bytes_buffered"), uint64(301*4<<10+64<<10))
	for _, nc := range list {
		require.NoError(t, nc.SetReadDeadline(time.Now().Add(patience)))
		_, err := nc.Read(make([]byte, 1))
		require.Error(t, err)
		require.False(t, asTimeout(err, new(net.Error)))
	}
	require.Eventually(t, func() bool { return stat(b, "connections") == 1 && stat(b, "bytes_buffered") == 0 }, patience, tick)
}

// TestUnfinishedFramesStayWithinTheBudget: connections that begin large runs and never finish
// them hold about what they sent, and when the budget is gone they are told, not served more.
func TestUnfinishedFramesStayWithinTheBudget(t *testing.T) {
	const budget = 4 << 20
	b := brokertest.Start(t, brokertest.Options{Server: func(o *server.Options) { o.InflightBytes = budget }})
	first := connect(t, b)
	o := first.open("t", 0)
	whole := run(protocol.LevelTopic, 1, 0, sized(1000, 1000))
	for range 20 {
		p := connect(t, b)
		p.open("t", 0)
		go p.nc.Write(whole[:len(whole)-1]) // ends when the broker or the test hangs up
	}
	require.Eventually(t, func() bool { return stat(b, "connections_refused") > 0 }, patience, tick)
	require.LessOrEqual(t, stat(b, "bytes_buffered"), uint64(budget+1<<20))
	require.Zero(t, first.publish(o.Handle, protocol.LevelTopic, "v"), "a small client is still served")
}

func TestRandomBytesNeverStopTheBroker(t *testing.T) {
	b := brokertest.Start(t)
	rng := rand.New(rand.NewPCG(1, 2))
	valid := append(request(protocol.OpOpen, 0, 0, 1, 0, "r", &protocol.Open{}), run(protocol.LevelTopic, 1, 0, batch("a", "b"))...)
	for range 300 {
		p := connect(t, b)
		bad := append([]byte(nil), valid...)
		for range 1 + rng.IntN(8) {
			bad[rng.IntN(len(bad))] = byte(rng.Uint32())
		}
		p.write(bad[:rng.IntN(len(bad)+1)])
		require.NoError(t, p.nc.Close())
	}
	p := connect(t, b)
	o := p.open("t", 0)
	require.Zero(t, p.publish(o.Handle, protocol.LevelTopic, "v"))
	require.Eventually(t, func() bool { return stat(b, "connections") == 1 }, patience, tick)
	require.LessOrEqual(t, stat(b, "bytes_buffered"), uint64(64<<10))
}

// TestSmallRequestsForLargeAnswersStayBounded: 29 bytes ask for 50 KiB, many thousand times,
// and nobody reads.
func TestSmallRequestsForLargeAnswersStayBounded(t *testing.T) {
	b := brokertest.Start(t)
	p := connect(t, b)
	p.create("wide", protocol.Setting{ID: protocol.SettingPartitions, Value: 500}, floor(protocol.LevelWritten))
	require.Len(t, p.info("wide").Partitions, 500)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c := tiny(t, b)
	ask := bytes.Repeat(request(protocol.OpTopicDescribe, 0, 0, 1, 0, "wide", nil), 5000) // 120 MB of answers
	go c.nc.Write(ask)
	q := connect(t, b)
	require.Eventually(t, func() bool { return stat(b, "requests") > 10 }, patience, tick)
	for range 50 {
		q.must(q.call(protocol.OpStats, 0, 0, "", nil))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	require.Less(t, int64(after.HeapInuse)-int64(before.HeapInuse), int64(16<<20))
	for range 200 { // what is read comes whole and in order
		c.must(c.response(protocol.OpTopicDescribe, 1))
	}
}
