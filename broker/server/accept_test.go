package server_test

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/broker/brokertest"
	"github.com/millrace-mq/millrace/protocol"
)

// pipes is a listener whose connections are pipes of this process, which have no file
// descriptor, and whose first accepts fail as with a full table of files.
type pipes struct {
	conns    chan net.Conn
	failures atomic.Int32
	once     sync.Once
	closed   chan struct{}
}

func (l *pipes) Accept() (net.Conn, error) {
	if l.failures.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: syscall.EMFILE}
	}
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipes) Close() error { l.once.Do(func() { close(l.closed) }); return nil }

func (l *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func TestAFullTableOfFilesDoesNotEndTheAcceptLoopAndPipesAreServed(t *testing.T) {
	b := brokertest.Start(t)
	l := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	l.failures.Store(4)
	served := make(chan error, 1)
	go func() { served <- b.Server.Serve(l) }()
	near, far := net.Pipe()
	l.conns <- far
	require.Equal(t, uint64(4), stat(b, "accept_errors"))

	p := &peer{t: t, nc: near, r: protocol.NewReader(near)}
	p.must(p.call(protocol.OpHello, 0, 0, "", &protocol.Hello{MinVersion: 1, MaxVersion: 1}))
	o := p.open("t", 0)
	p.publish(o.Handle, protocol.LevelTopic, "a")
	q := connect(t, b)
	h := q.open("t", 0)
	total := q.load(h.Handle, 2<<20)
	p.subscribe(o.Handle, 1, protocol.Subscribe{From: protocol.At(1), Credit: 1 << 40})
	for got := 0; got < total; {
		got += p.deliver().size
	}
	require.Zero(t, stat(b, "bytes_sendfile"), "without a descriptor the bytes are copied")
	require.Eventually(t, func() bool { return stat(b, "bytes_copied") >= uint64(total) }, patience, tick) // counted after they were sent
	require.NoError(t, near.Close())
	b.Stop()
	require.True(t, errors.Is(<-served, net.ErrClosed))
}
