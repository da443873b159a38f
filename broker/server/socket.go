package server

import (
	"io"
	"net"
	"syscall"
)

// socket is one connection's system calls. On a TCP connection of Linux it reads without
// holding a buffer while it waits, joins a header with what follows, and sends file ranges
// without copying them; elsewhere it is the net.Conn.
type socket struct {
	// immutable
	net net.Conn
	raw syscall.RawConn // nil = only net

	// owned by the reader
	readFunc func(fd uintptr) bool
	readN    int
	readErr  error

	// owned by the owner of the write side
	moreFunc func(fd uintptr) bool
	nowFunc  func(fd uintptr) bool
	more     []byte // what is left of a header, or of what is written at once
	fileFunc func(fd uintptr) bool
	file     int // descriptor of the file
	filePos  int64
	fileLeft int64
	writeErr error
}

// closeWrite tells the peer that nothing follows.
func (s *socket) closeWrite() error {
	if half, ok := s.net.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return s.net.Close()
}

// write sends buf, all of it or an error, and tells the watch that it is under way.
func (c *conn) write(buf []byte) error {
	if len(buf) == 0 {
		return nil
	}
	c.stalled.Store(c.server.tick.Load())
	n, err := c.sock.net.Write(buf)
	c.stalled.Store(0)
	c.server.counts.bytesOut.Add(uint64(n))
	return err
}

// readNet reads once through net.Conn, which needs a buffer while it waits.
func (c *conn) readNet() (int, error) {
	in := &c.in
	if in.buf == nil {
		in.buf = c.server.buffers.takeOrSmall(c.target())
	}
	c.busy.Store(false)
	n, err := c.sock.net.Read(in.buf[in.end:])
	c.busy.Store(true)
	if n > 0 {
		return n, nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return 0, err
}
