package server_test

import (
	"context"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/broker/brokertest"
	"github.com/millrace-mq/millrace/broker/server"
	"github.com/millrace-mq/millrace/protocol"
)

// load appends runs of large batches, about n bytes in all.
func (p *peer) load(handle uint32, n int) (size int) {
	p.t.Helper()
	frame := sized(100, 1000)
	for size < n {
		p.write(run(protocol.LevelTopic, handle, 0, frame, frame, frame, frame))
		_, refused := p.ack(handle)
		require.Nil(p.t, refused)
		size += 4 * len(frame)
	}
	return size
}

func TestLargeRunsAreSentFromTheFileAndSmallOnesCopied(t *testing.T) {
	b := brokertest.Start(t)
	p := connect(t, b)
	o := p.open("t", 0)
	p.publish(o.Handle, protocol.LevelTopic, "small")
	p.subscribe(o.Handle, 1, protocol.Subscribe{From: protocol.Start, Credit: 1 << 40})
	small := p.deliver()
	require.Equal(t, uint64(0), stat(b, "bytes_sendfile"))
	require.Eventually(t, func() bool { return stat(b, "bytes_copied") == uint64(small.size) }, patience, tick) // counted after it was sent
	p.must(p.call(protocol.OpUnsubscribe, 0, 0, "", &protocol.Unsubscribe{Subscription: 1}))
	total := p.load(o.Handle, 8<<20)
	p.subscribe(o.Handle, 2, protocol.Subscribe{From: protocol.At(1), Credit: 1 << 40})
	for got := 0; got < total; {
		d := p.deliver()
		require.LessOrEqual(t, d.size, protocol.MaxDeliver)
		got += d.size
	}
	require.Eventually(t, func() bool { return stat(b, "bytes_sendfile") == uint64(total) }, patience, tick)
	require.Equal(t, uint64(small.size), stat(b, "bytes_copied"), "nothing large was copied")
}

// tiny is a connection whose buffers hold little, so that the broker's writes block soon.
func tiny(t *testing.T, b *brokertest.Broker) *peer {
	t.Helper()
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) {
			if err := syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096); err != nil {
				panic(err)
			}
		})
	}}
	nc, err := d.Dial("tcp", b.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { nc.Close() })
	require.NoError(t, nc.SetDeadline(time.Now().Add(patience)))
	p := &peer{t: t, nc: nc, r: protocol.NewReader(nc)}
	p.must(p.call(protocol.OpHello, 0, 0, "", &protocol.Hello{MinVersion: 1, MaxVersion: 1}))
	return p
}

func TestASlowConsumerDelaysNobody(t *testing.T) {
	b := brokertest.Start(t)
	p := connect(t, b)
	o := p.open("t", 0)
	total := p.load(o.Handle, 16<<20)
	for range 10 {
		c := tiny(t, b)
		h := c.open("t", 0)
		c.subscribe(h.Handle, 1, protocol.Subscribe{From: protocol.Start, Credit: 1 << 40}) // and never reads
	}
	c := connect(t, b)
	h := c.open("t", 0)
	c.subscribe(h.Handle, 1, protocol.Subscribe{From: protocol.Start, Credit: 1 << 40})
	for got := 0; got < total; {
		got += c.deliver().size
	}
	p.publish(o.Handle, protocol.LevelTopic, "next")
	require.Equal(t, []string{"next"}, values(c.deliver()))
}

func values(d delivery) (list []string) {
	for _, f := range d.frames {
		for it := protocol.Records(f); it.Next(); {
			list = append(list, string(it.Record.Value))
		}
	}
	return list
}

func TestAPeerThatTakesNothingIsCut(t *testing.T) {
	b := brokertest.Start(t, brokertest.Options{Server: func(o *server.Options) { o.Write = 100 * time.Millisecond }})
	p := connect(t, b)
	o := p.open("t", 0)
	p.load(o.Handle, 16<<20)
	c := tiny(t, b)
	h := c.open("t", 0)
	c.subscribe(h.Handle, 1, protocol.Subscribe{From: protocol.Start, Credit: 1 << 40})
	require.Eventually(t, func() bool { return stat(b, "connections_cut_stalled") == 1 && stat(b, "connections") == 1 }, patience, tick)
	require.Zero(t, stat(b, "subscriptions"))
}

func TestAClientThatDiesInsideARunLeavesNothingBehind(t *testing.T) {
	b := brokertest.Start(t)
	p := connect(t, b)
	o := p.open("t", 0)
	p.load(o.Handle, 16<<20)
	for range 20 {
		c := tiny(t, b)
		h := c.open("t", 0)
		c.subscribe(h.Handle, 1, protocol.Subscribe{From: protocol.Start, Credit: 1 << 40})
		_, err := c.r.Next() // a part of the run is here, the rest is on its way
		require.NoError(t, err)
		require.NoError(t, c.nc.(*net.TCPConn).SetLinger(0))
		require.NoError(t, c.nc.Close())
	}
	require.Eventually(t, func() bool { return stat(b, "connections") == 1 && stat(b, "subscriptions") == 0 }, patience, tick)
	require.Zero(t, partition(t, b, "t", 0).Waiters())
	p.publish(o.Handle, protocol.LevelTopic, "v")
}

func TestAPeerThatLeavesItsAcksUnreadStopsBeingRead(t *testing.T) {
	b := brokertest.Start(t)
	c := tiny(t, b)
	c.create("t", floor(protocol.LevelWritten))
	o := c.open("t", 0)
	one := run(protocol.LevelTopic, o.Handle, 0, batch("v"))
	var many []byte
	for range 1000 {
		many = append(many, one...)
	}
	sent := make(chan int, 1)
	go func() {
		n := 0
		for c.nc.SetWriteDeadline(time.Now().Add(time.Second)) == nil {
			if _, err := c.nc.Write(many); err != nil {
				break
			}
			n += 1000
		}
		sent <- n
	}()
	n := <-sent // the broker does not read without end
	require.LessOrEqual(t, stat(b, "bytes_buffered"), uint64(3<<20))
	for range n {
		_, refused := c.ack(o.Handle)
		require.Nil(t, refused)
	}
}

func TestIdlePeersArePingedAndDeadOnesCut(t *testing.T) {
	b := brokertest.Start(t, brokertest.Options{Server: func(o *server.Options) { o.Ping = 100 * time.Millisecond }})
	alive, dead := connect(t, b), connect(t, b)
	pings := 0
	for start := time.Now(); time.Since(start) < 600*time.Millisecond; pings++ {
		f, err := alive.r.Next()
		require.NoError(t, err)
		h := *protocol.HeaderOf(f)
		require.Equal(t, protocol.MagicPing, h.Magic())
		h.PutPing(protocol.MagicPong, h.Timestamp(), h.Correlation())
		alive.write(h[:])
	}
	require.NotZero(t, pings)
	dead.eof()
	require.Equal(t, uint64(1), stat(b, "connections_cut_silent"))
	require.Equal(t, uint64(1), stat(b, "connections"))
	var h protocol.Header
	h.PutPing(protocol.MagicPing, 11, 22)
	alive.write(h[:])
	got, _ := alive.frame()
	require.Equal(t, protocol.MagicPong, got.Magic())
	require.Equal(t, [2]uint64{11, 22}, [2]uint64{got.Timestamp(), got.Correlation()})
}

func TestOneConnectionTooManyIsTold(t *testing.T) {
	b := brokertest.Start(t, brokertest.Options{Server: func(o *server.Options) { o.Connections = 2 }})
	p, q := connect(t, b), connect(t, b)
	r := dial(t, b.Addr())
	codes, hungUp := r.answered()
	require.True(t, hungUp)
	require.Equal(t, []protocol.Code{protocol.Quota}, codes)
	require.NoError(t, q.nc.Close())
	require.Eventually(t, func() bool { return stat(b, "connections") == 1 }, patience, tick)
	connect(t, b).open("t", 0)
	p.open("t", 0)
}

func TestShutdownAnswersWhatWasReadAndRefusesTheRest(t *testing.T) {
	b := brokertest.Start(t)
	p := connect(t, b)
	o := p.open("t", 0)
	c := connect(t, b)
	h := c.open("t", 0)
	c.subscribe(h.Handle, 1, protocol.Subscribe{From: protocol.Start, Credit: 1 << 40})
	legacy := dialHermit(t, b.Addr(), produceHello("t", 0))
	legacy.nc.Write(legacyFrame("", "x", 1))
	legacy.ack()
	const runs = 200
	var all []byte
	for i := range runs {
		all = append(all, run(protocol.LevelDurable, o.Handle, uint64(i), batch("v"))...)
	}
	p.write(all)
	_, refused := p.ack(o.Handle) // it is being served
	require.Nil(t, refused)
	stopped := make(chan struct{})
	go func() { defer close(stopped); b.Stop() }()
	acked, refusals, goAway := 1, 0, 0
	for hungUp := false; !hungUp; {
		f, err := p.r.Next()
		if hungUp = err != nil; hungUp {
			break
		}
		switch h := protocol.HeaderOf(f); {
		case h.Magic() == protocol.MagicGoAway:
			require.Equal(t, protocol.ShuttingDown, h.GoAwayStatus())
			require.NotZero(t, h.DrainMillis())
			goAway++
		case h.AckStatus() == protocol.OK:
			require.Zero(t, refusals, "runs are refused from one on")
			acked++
		default:
			require.Equal(t, protocol.ShuttingDown, h.AckStatus())
			refusals++
		}
	}
	require.Equal(t, 1, goAway)
	require.Equal(t, runs, acked+refusals, "every run that was sent before is answered")
	p.nc.Close()
	c.nc.Close()
	legacy.nc.Close()
	<-stopped
	_, err := net.DialTimeout("tcp", b.Addr(), time.Second)
	require.Error(t, err)
	b.Restart(true)
	require.True(t, b.Broker.WasClean())
	require.Equal(t, uint64(acked+1), partition(t, b, "t", 0).Visible().Offset, "what was acked is there, what was refused is not")
}

func TestShutdownEndsIdleConnectionsAndCutsTheRestInTime(t *testing.T) {
	b := brokertest.Start(t)
	for range 20 {
		connect(t, b)
	}
	p := connect(t, b)
	p.create("t", protocol.Setting{ID: protocol.SettingMaxMessageBytes, Value: 20 << 20})
	o := p.open("t", 0)
	p.write(run(protocol.LevelTopic, o.Handle, 1, sized(1, 17<<20))) // more than any socket's buffer takes
	_, refused := p.ack(o.Handle)
	require.Nil(t, refused)
	slow := tiny(t, b)
	h := slow.open("t", 0)
	slow.subscribe(h.Handle, 1, protocol.Subscribe{From: protocol.Start, Credit: 1 << 40}) // and never reads
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	require.ErrorIs(t, b.Server.Shutdown(ctx), context.DeadlineExceeded)
	require.Equal(t, uint64(0), stat(b, "connections"))
}

func TestShutdownDoesNotWaitForConsumersToCatchUp(t *testing.T) {
	b := brokertest.Start(t)
	p := connect(t, b)
	o := p.open("t", 0)
	p.load(o.Handle, 32<<20)
	c := connect(t, b)
	h := c.open("t", 0)
	c.subscribe(h.Handle, 1, protocol.Subscribe{From: protocol.Start, Credit: 1 << 40})
	c.deliver()
	stopped := make(chan struct{})
	go func() { defer close(stopped); b.Stop() }()
	size := 0
	for {
		f, err := c.r.Next()
		if err != nil {
			break
		}
		if h := protocol.HeaderOf(f); h.Magic() == protocol.MagicData {
			_, err := protocol.CheckStored(f, protocol.MaxDataFrame)
			require.NoError(t, err)
			size += len(f)
		}
	}
	require.Less(t, size, 31<<20, "it was ended behind a whole run")
	require.NoError(t, p.nc.Close())
	require.NoError(t, c.nc.Close())
	<-stopped
}

func TestRunsBeforeAnErrorAreAnsweredBeforeTheConnectionEnds(t *testing.T) {
	b := brokertest.Start(t)
	p := connect(t, b)
	o := p.open("t", 0)
	p.write(append(run(protocol.LevelDurable, o.Handle, 9, batch("v")), header(0x21, 0, 0, 0)...))
	_, refused := p.ack(o.Handle)
	require.Nil(t, refused)
	h, body := p.frame()
	require.Equal(t, protocol.MagicGoAway, h.Magic())
	require.Equal(t, uint64(9), h.Offset(), "the last run that was answered")
	require.Equal(t, protocol.BadFrame, errorOf(h.GoAwayStatus(), body).Code)
	p.eof()
}

func TestShutdownDoesNotWaitForStrangers(t *testing.T) {
	b := brokertest.Start(t, brokertest.Options{Server: func(o *server.Options) { o.Handshake = time.Hour }})
	dial(t, b.Addr())
	half := dial(t, b.Addr())
	half.write(header(0x11, 0, 100, 0))
	require.Eventually(t, func() bool { return stat(b, "connections") == 2 }, patience, tick)
	b.Stop() // fails the test when it has to cut connections
}

// TestTopicsComeAndGoUnderLoad deletes and creates a topic while clients write to it and read
// from it: every run is answered with success or with the reason.
func TestTopicsComeAndGoUnderLoad(t *testing.T) {
	b := brokertest.Start(t)
	admin := connect(t, b)
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for i := range 4 {
		p := connect(t, b)
		clients.Go(func() {
			for open := true; open; {
				select {
				case <-stop:
					open = false
				default:
					p.churn(protocol.Level(1+i%2), stop)
				}
			}
		})
	}
	for range 30 {
		before := stat(b, "appends")
		require.Eventually(t, func() bool { return stat(b, "appends") > before+20 }, patience, tick)
		admin.must(admin.call(protocol.OpTopicDelete, 0, 0, "t", nil))
	}
	close(stop)
	clients.Wait()
}

// churn opens topic t, subscribes to it and publishes until it is gone.
func (p *peer) churn(level protocol.Level, stop chan struct{}) {
	var reply protocol.OpenReply
	h, body := p.call(protocol.OpOpen, 0, 0, "t", &protocol.Open{})
	if h.Status() != protocol.OK || reply.Decode(body) != nil {
		return
	}
	sub := protocol.Subscribe{Subscription: reply.Handle, From: protocol.Start, Credit: 1 << 40}
	p.send(protocol.OpSubscribe, 0, 0, reply.Handle, "", &sub)
	for open := true; open; {
		select {
		case <-stop:
			open = false
		default:
		}
		p.write(run(level, reply.Handle, 1, batch("a", "b")))
		switch code := p.until(protocol.MagicAck, 0); code {
		case protocol.OK:
		case protocol.UnknownTopic:
			open = false
		default:
			p.t.Errorf("ack %s", code.Name())
		}
	}
	closing := p.send(protocol.OpClose, 0, 0, reply.Handle, "", nil)
	p.until(protocol.MagicResponse, closing)
}

// until reads up to the next frame of that class, a response up to that correlation id, and
// returns its status.
func (p *peer) until(m protocol.Magic, correlation uint64) protocol.Code {
	for {
		f, err := p.r.Next()
		if err != nil {
			p.t.Error(err)
			return protocol.UnknownTopic
		}
		h := protocol.HeaderOf(f)
		switch {
		case h.Magic() != m:
		case m == protocol.MagicAck:
			return h.AckStatus()
		case h.Correlation() == correlation:
			return h.Status()
		}
	}
}
