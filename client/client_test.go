package client_test

import (
	"context"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/client"
	"github.com/millrace-mq/millrace/client/clienttest"
	"github.com/millrace-mq/millrace/protocol"
)

// patience is how long things that must happen may take on a busy machine.
const patience = 20 * time.Second

// within returns a context that ends when the test has waited too long.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// memory starts a broker in memory and a client of it; both end with the test, and then no
// goroutine of the client may be left.
func memory(t testing.TB, o clienttest.MemoryOptions) (*clienttest.Memory, *client.Client) {
	t.Helper()
	m, err := clienttest.StartMemory(o)
	require.NoError(t, err)
	t.Cleanup(m.Close)
	return m, open(t, m.Addr())
}

// open connects to a broker; the client ends with the test.
func open(t testing.TB, addr string, opts ...client.Option) *client.Client {
	t.Helper()
	opts = append([]client.Option{client.Backoff(time.Millisecond, 20*time.Millisecond)}, opts...)
	c, err := client.Open(within(t), addr, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { end(t, c) })
	return c
}

// end closes a client and requires that none of its goroutines is left.
func end(t testing.TB, c *client.Client) {
	_ = c.Close() // a second time for tests that looked at its error
	if !assert.Eventually(t, func() bool { return goroutines() == "" }, patience, time.Millisecond) {
		t.Logf("goroutines of the client are left:\n%s", goroutines())
	}
}

// goroutines returns the stacks of the client's own goroutines.
func goroutines() string {
	buf := make([]byte, 4<<20)
	var left []string
	for _, stack := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		for _, name := range []string{"(*conn).read(", "(*conn).write(", "(*conn).keep(", "(*Client).keepUp(", "(*Producer).tell(", "(*Producer).watch("} {
			if strings.Contains(stack, "millrace/client."+name) {
				left = append(left, stack)
				break
			}
		}
	}
	return strings.Join(left, "\n\n")
}

func producer(t testing.TB, c *client.Client, opts ...client.ProducerOption) *client.Producer {
	t.Helper()
	p, err := c.NewProducer(opts...)
	require.NoError(t, err)
	return p
}

func message(value string) client.Message {
	return client.Message{Topic: "t", Value: []byte(value)}
}

func TestSendThenReadBack(t *testing.T) {
	_, c := memory(t, clienttest.MemoryOptions{Partitions: 3})
	p := producer(t, c)
	sent := make(map[string]bool)
	for i := range 100 {
		v := strings.Repeat("v", i)
		ack, err := p.Send(within(t), client.Message{Topic: "t", Key: []byte{byte(i)}, Value: []byte(v), Headers: []client.Header{{Name: "h", Value: []byte{byte(i)}}}})
		require.NoError(t, err)
		require.Equal(t, "t", ack.Topic)
		require.Equal(t, protocol.PartitionOf([]byte{byte(i)}, 3), ack.Partition)
		sent[v] = true
	}
	require.NoError(t, p.Close(within(t)))
	next := map[uint32]uint64{}
	for rec, err := range c.Read(within(t), "t", client.Until(protocol.End)) {
		require.NoError(t, err)
		require.Equal(t, next[rec.Partition], rec.Offset)
		next[rec.Partition]++
		require.True(t, sent[string(rec.Value)])
		require.Equal(t, len(rec.Value), int(rec.Key[0]))
		h, ok := rec.Headers.Get("h")
		require.True(t, ok)
		require.Equal(t, rec.Key, h)
		delete(sent, string(rec.Value))
	}
	require.Empty(t, sent)
	require.Len(t, next, 3)
}

func TestOpenSaysWhyThereIsNoConnection(t *testing.T) {
	s := clienttest.Listen(t)
	s.Stop()
	_, err := client.Open(within(t), s.Addr())
	require.ErrorContains(t, err, s.Addr())
	require.ErrorContains(t, err, "refused")
}

func TestOpenReturnsTheRefusalOfHello(t *testing.T) {
	s := clienttest.Listen(t)
	result := make(chan error, 1)
	go func() {
		_, err := client.Open(context.Background(), s.Addr())
		result <- err
	}()
	conn := s.Accept()
	conn.Refuse(conn.Request(protocol.OpHello), &protocol.Error{Code: protocol.Unsupported, Detail: "versions 1 to 1; this broker speaks 2"})
	err := <-result
	require.ErrorIs(t, err, protocol.Unsupported)
	require.ErrorContains(t, err, "this broker speaks 2")
	conn.AwaitEnd()
}

func TestOpenRefusesAnotherProtocol(t *testing.T) {
	for _, answer := range []string{"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n<html></html>", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"} {
		s := clienttest.Listen(t)
		result := make(chan error, 1)
		go func() {
			_, err := client.Open(context.Background(), s.Addr())
			result <- err
		}()
		conn := s.Accept()
		conn.Request(protocol.OpHello)
		conn.Write([]byte(answer))
		conn.Drop()
		require.ErrorContains(t, <-result, "is it a millrace broker?")
	}
}

func TestOpenGivesUpOnABrokerThatSaysNothing(t *testing.T) {
	s := clienttest.Listen(t)
	_, err := client.Open(within(t), s.Addr(), client.DialTimeout(30*time.Millisecond))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		s.Accept()
		s.Accept().Request(protocol.OpHello)
		cancel()
	}()
	_, err = client.Open(ctx, s.Addr())
	require.ErrorIs(t, err, context.Canceled)
}

func TestOpenJoinsWhatOptionsRefuse(t *testing.T) {
	_, err := client.Open(within(t), "127.0.0.1:1", client.DialTimeout(-1), client.Name(strings.Repeat("n", 201)))
	require.ErrorIs(t, err, protocol.BadRequest)
	require.ErrorIs(t, err, protocol.TooLarge)
	_, c := memory(t, clienttest.MemoryOptions{})
	_, err = c.NewProducer(client.BatchBytes(0), client.MaxInFlight(100_000))
	require.ErrorIs(t, err, protocol.BadRequest)
	require.ErrorIs(t, err, protocol.TooLarge)
}

func TestOpenTakesTheDefaultAddressAndRefusesWhatIsNone(t *testing.T) {
	var dialled string
	_, err := client.Open(within(t), "", client.Dialer(func(_ context.Context, _, addr string) (net.Conn, error) {
		dialled = addr
		return nil, net.ErrClosed
	}))
	require.ErrorIs(t, err, net.ErrClosed)
	require.Equal(t, client.DefaultAddr, dialled)
	for addr, want := range map[string]string{
		"127.0.0.1": "missing port", "h:": "no number", "h:x": "no number", "h:0": "no number", "h:65536": "no number",
		"::1:7654": "too many colons", "[::1": "missing",
	} {
		_, err := client.Open(within(t), addr)
		require.ErrorIs(t, err, client.ErrAddr, addr)
		require.ErrorContains(t, err, want, addr)
	}
}
