package server

import (
	"errors"
	"io"
	"net"

	"golang.org/x/sys/unix"
)

// initSocket finds out what the connection can do. The closures are kept: making them anew for
// every call would allocate.
func (c *conn) initSocket(nc net.Conn) {
	s := &c.sock
	s.net = nc
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return // a closed connection; the first read says so
	}
	s.raw = raw
	if peer, ok := tcp.RemoteAddr().(*net.TCPAddr); ok && peer.IP.IsLoopback() {
		c.calmCongestion()
	}
	c.boundBacklog()
	s.readFunc, s.moreFunc, s.nowFunc, s.fileFunc = c.tryRead, c.tryMore, c.tryNow, c.trySendfile
}

// backlog is how many bytes that cannot be sent yet the kernel takes for one connection.
const backlog = 256 << 10

// boundBacklog keeps what the kernel holds for a peer that reads nothing small. Its own bound is
// 4 MiB for each, so that some hundred such peers use up the memory for all connections, and
// nobody is answered any more. What is on its way is not bounded by it.
func (c *conn) boundBacklog() {
	var failed error
	err := c.sock.raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, backlog)
	})
	if err = errors.Join(err, failed); err != nil {
		c.log().Debug("backlog stays the kernel's", "error", err)
	}
}

// calmCongestion takes the plainest congestion control for a peer on this machine. Hosts whose
// default paces (bbr) arm a timer for every burst, which on loopback, where nothing is
// congested, costs as much as the copying (measured: catch-up 26 to 35 ms of broker CPU per
// million messages, 16 to 26 without).
func (c *conn) calmCongestion() {
	var failed error
	err := c.sock.raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno")
	})
	if err = errors.Join(err, failed); err != nil {
		c.log().Debug("congestion control stays the host's", "error", err)
	}
}

// read reads once into the input's free space; on TCP the input has no buffer while it waits.
func (c *conn) read() (int, error) {
	if c.sock.raw == nil {
		return c.readNet()
	}
	if err := c.sock.raw.Read(c.sock.readFunc); err != nil {
		return 0, err
	}
	return c.sock.readN, c.sock.readErr
}

// tryRead is the body of read: true when it has a result, false to be called again when the
// socket is readable.
func (c *conn) tryRead(fd uintptr) bool {
	s, in := &c.sock, &c.in
	s.readN, s.readErr = 0, nil
	c.busy.Store(true)
	if in.buf == nil {
		in.buf = c.server.buffers.takeOrSmall(c.target())
	}
	for {
		n, err := unix.Read(int(fd), in.buf[in.end:])
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			c.park()
			c.busy.Store(false)
			return false
		case err != nil:
			s.readErr = err
		case n == 0:
			s.readErr = io.EOF
		default:
			s.readN = n
		}
		return true
	}
}

// writeMore sends b knowing that more follows at once: the kernel joins both.
func (c *conn) writeMore(b []byte) error {
	s := &c.sock
	if s.raw == nil {
		return c.write(b)
	}
	s.more, s.writeErr = b, nil
	c.stalled.Store(c.server.tick.Load())
	err := s.raw.Write(s.moreFunc)
	c.stalled.Store(0)
	s.more = nil
	if err == nil {
		err = s.writeErr
	}
	c.server.counts.bytesOut.Add(uint64(len(b)))
	return err
}

func (c *conn) tryMore(fd uintptr) bool {
	s := &c.sock
	for len(s.more) > 0 {
		n, err := unix.SendmsgN(int(fd), s.more, nil, nil, unix.MSG_MORE|unix.MSG_NOSIGNAL)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return false
		case err != nil:
			s.writeErr = err
			return true
		default:
			s.more = s.more[n:]
		}
	}
	return true
}

// writeNow writes what the socket takes of b without waiting, and tells how much that was.
func (c *conn) writeNow(b []byte) (int, error) {
	s := &c.sock
	s.more, s.writeErr = b, nil
	err := s.raw.Write(s.nowFunc)
	n := len(b) - len(s.more)
	s.more = nil
	if err == nil {
		err = s.writeErr
	}
	return n, err
}

func (c *conn) tryNow(fd uintptr) bool {
	n, err := c.writeFd(fd, c.sock.more)
	c.sock.more, c.sock.writeErr = c.sock.more[n:], err
	return true
}

// writeFd writes what the socket takes of b at once.
func (c *conn) writeFd(fd uintptr, b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var m int
		if m, err = unix.Write(int(fd), b[n:]); m > 0 {
			n += m
			now := c.server.tick.Load()
			c.taken.Store(now)
			if c.stalled.Load() != 0 {
				c.stalled.Store(now)
			}
		}
		if err == unix.EINTR {
			err = nil
		}
	}
	c.server.counts.bytesOut.Add(uint64(n))
	if err == unix.EAGAIN {
		err = nil
	}
	return n, err
}

// whenWritable calls f when the socket takes bytes, again and again until f is true.
func (c *conn) whenWritable(f func(fd uintptr) bool) error {
	if c.sock.raw == nil {
		f(0)
		return nil
	}
	c.stalled.Store(c.server.tick.Load())
	err := c.sock.raw.Write(f)
	c.stalled.Store(0)
	return err
}

// sendfile sends size bytes of the file from pos on, all of them or an error.
func (c *conn) sendfile(file uintptr, pos, size int64) error {
	s := &c.sock
	s.file, s.filePos, s.fileLeft, s.writeErr = int(file), pos, size, nil
	c.stalled.Store(c.server.tick.Load())
	err := s.raw.Write(s.fileFunc)
	c.stalled.Store(0)
	if err == nil {
		err = s.writeErr
	}
	c.server.counts.sendfileBytes.Add(uint64(size - s.fileLeft))
	c.server.counts.bytesOut.Add(uint64(size - s.fileLeft))
	return err
}

func (c *conn) trySendfile(fd uintptr) bool {
	s := &c.sock
	for s.fileLeft > 0 {
		n, err := unix.Sendfile(int(fd), s.file, &s.filePos, int(s.fileLeft))
		if n > 0 {
			s.fileLeft -= int64(n)
			now := c.server.tick.Load()
			c.stalled.Store(now)
			c.taken.Store(now)
		}
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return false
		case err != nil:
			s.writeErr = err
			return true
		case n <= 0:
			s.writeErr = io.ErrUnexpectedEOF // the file is shorter than the section
			return true
		}
	}
	return true
}

// direct tells whether file ranges can be sent without copying.
func (c *conn) direct() bool { return c.sock.raw != nil }
