package bench

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

const (
	loopbackChunk = 256 << 10
	pingSize      = 129
	serveChunk    = 1 << 20
	// loopbackGrace is how long a repeat may outlast its slice before its connection
	// is given up, so that no repeat hangs.
	loopbackGrace = 30 * time.Second
)

// connected returns both ends of a new loopback connection.
func connected(deadline time.Time) (near, far *net.TCPConn, err error) {
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	// The kernel completes the connection from the listener's backlog, before Accept.
	if near, err = net.DialTCP("tcp", nil, l.Addr().(*net.TCPAddr)); err != nil {
		return nil, nil, err
	}
	if err := errors.Join(l.SetDeadline(deadline), near.SetDeadline(deadline)); err != nil {
		return nil, nil, errors.Join(err, near.Close())
	}
	if far, err = l.AcceptTCP(); err != nil {
		return nil, nil, errors.Join(err, near.Close())
	}
	if err := far.SetDeadline(deadline); err != nil {
		return nil, nil, errors.Join(err, near.Close(), far.Close())
	}
	return near, far, nil
}

// pump times a one-way stream: from the first send to the moment the receiver has
// read the last byte. send sends one chunk and returns its size.
func pump(slice time.Duration, send func(to *net.TCPConn) (int64, error)) (w work, err error) {
	to, from, err := connected(time.Now().Add(slice + loopbackGrace))
	if err != nil {
		return work{}, err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	type received struct {
		bytes int64
		err   error
	}
	done := make(chan received, 1)
	go func() {
		var r received
		buf := make([]byte, loopbackChunk)
		for r.err == nil {
			var n int
			n, r.err = from.Read(buf)
			r.bytes += int64(n)
		}
		done <- r
	}()
	began := time.Now()
	for err == nil && (w.ops == 0 || time.Since(began) < slice) {
		var n int64
		n, err = send(to)
		w.bytes += n
		w.ops++
	}
	err = errors.Join(err, to.Close())
	r := <-done
	w.elapsed = time.Since(began)
	switch {
	case err != nil:
		return w, err
	case !errors.Is(r.err, io.EOF):
		return w, r.err
	case r.bytes != w.bytes:
		return w, fmt.Errorf("sent %d bytes over loopback, received %d: %w", w.bytes, r.bytes, io.ErrUnexpectedEOF)
	}
	return w, nil
}

func (c *ceiling) loopback(slice time.Duration) (work, error) {
	return pump(slice, func(to *net.TCPConn) (int64, error) {
		n, err := to.Write(c.buf[:loopbackChunk])
		return int64(n), err
	})
}

func (c *ceiling) readWrite(slice time.Duration) (work, error) {
	pos := int64(0)
	return pump(slice, func(to *net.TCPConn) (int64, error) {
		if _, err := c.source.ReadAt(c.buf[:loopbackChunk], pos); err != nil {
			return 0, err
		}
		pos = (pos + loopbackChunk) % sourceSize
		n, err := to.Write(c.buf[:loopbackChunk])
		return int64(n), err
	})
}

func (c *ceiling) sendfile(slice time.Duration) (work, error) {
	s := fileSender{file: c.source}
	return pump(slice, func(to *net.TCPConn) (int64, error) {
		n, err := s.send(to, serveChunk)
		s.pos %= sourceSize
		return n, err
	})
}

// pingPong times round trips of one small message to a goroutine that sends it back.
func (c *ceiling) pingPong(slice time.Duration) (w work, err error) {
	near, far, err := connected(time.Now().Add(slice + loopbackGrace))
	if err != nil {
		return work{}, err
	}
	echoed := make(chan error, 1)
	go func() {
		buf := make([]byte, pingSize)
		for {
			if _, err := io.ReadFull(far, buf); err != nil {
				echoed <- err
				return
			}
			if _, err := far.Write(buf); err != nil {
				echoed <- err
				return
			}
		}
	}()
	w.latency = new(Histogram)
	ping := c.buf[:pingSize]
	for began := time.Now(); err == nil && (w.ops == 0 || w.elapsed < slice); w.elapsed = time.Since(began) {
		from := time.Now()
		if _, err = near.Write(ping); err != nil {
			break
		}
		if _, err = io.ReadFull(near, ping); err != nil {
			break
		}
		w.latency.Record(int64(time.Since(from)))
		w.ops++
		w.bytes += 2 * pingSize
	}
	err = errors.Join(err, near.Close())
	if echo := <-echoed; !errors.Is(echo, io.EOF) {
		err = errors.Join(err, echo)
	}
	return w, errors.Join(err, far.Close())
}
