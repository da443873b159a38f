//go:build !linux

package server

import (
	"errors"
	"net"
)

func (c *conn) initSocket(nc net.Conn) { c.sock.net = nc }

func (c *conn) read() (int, error) { return c.readNet() }

func (c *conn) writeMore(b []byte) error { return c.write(b) }

func (c *conn) writeNow([]byte) (int, error) { return 0, errors.ErrUnsupported }

func (c *conn) writeFd(uintptr, []byte) (int, error) { return 0, errors.ErrUnsupported }

// whenWritable calls f, which writes through the net.Conn.
func (c *conn) whenWritable(f func(fd uintptr) bool) error {
	f(0)
	return nil
}

func (c *conn) sendfile(uintptr, int64, int64) error { return errors.ErrUnsupported }

// direct tells whether file ranges can be sent without copying.
func (c *conn) direct() bool { return false }
