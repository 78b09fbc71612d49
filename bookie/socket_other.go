//go:build !unix

package bookie

import "net"

// socket reads and writes a connection. On this system reads block, and all writes are left to the writer goroutine.
type socket struct{}

func (s *socket) init(net.Conn) error { return nil }

func (s *socket) read(c *conn) (int, error) {
	n, err := c.nc.Read(c.room())
	*c.in = (*c.in)[:len(*c.in)+n]
	if n > 0 {
		err = nil
	}
	return n, err
}

func (s *socket) write([]byte) (int, error) { return 0, nil }
