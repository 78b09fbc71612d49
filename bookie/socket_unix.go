//go:build unix

package bookie

import (
	"io"
	"net"
	"syscall"
)

// socket reads and writes a connection without blocking where the system allows it, so that an idle connection needs no
// buffer and an acknowledging goroutine never waits for a peer.
type socket struct {
	raw syscall.RawConn // nil: a connection that is no socket; then reads block and writes are left to the writer

	// One goroutine reads and one at a time writes; the functions exist once, since a closure each time would be an
	// allocation each time.
	c       *conn
	readFn  func(uintptr) bool
	writeFn func(uintptr) bool
	rn, wn  int
	rerr    error
	werr    error
	wbuf    []byte
}

func (s *socket) init(nc net.Conn) error {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return err
	}
	s.raw, s.readFn, s.writeFn = raw, s.tryRead, s.tryWrite
	return nil
}

// read waits until there is something to read and reads once into c's buffer.
func (s *socket) read(c *conn) (int, error) {
	if s.raw == nil {
		n, err := c.nc.Read(c.room())
		*c.in = (*c.in)[:len(*c.in)+n]
		if n > 0 {
			err = nil
		}
		return n, err
	}
	s.c = c
	if err := s.raw.Read(s.readFn); err != nil {
		return 0, err
	}
	if s.rerr != nil {
		return 0, s.rerr
	}
	*c.in = (*c.in)[:len(*c.in)+s.rn]
	return s.rn, nil
}

// tryRead is called by the poller; false means to wait until the socket is readable.
func (s *socket) tryRead(fd uintptr) bool {
	idle := s.c.in == nil
	for {
		n, err := syscall.Read(int(fd), s.c.room()) //nolint:gosec // a file descriptor
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
			if idle {
				s.c.dropIn()
			}
			return false
		case err != nil:
			s.rn, s.rerr = 0, err
		case n == 0:
			s.rn, s.rerr = 0, io.EOF
		default:
			s.rn, s.rerr = n, nil
		}
		return true
	}
}

// write gives p to the system and returns how much it took, which may be nothing.
func (s *socket) write(p []byte) (int, error) {
	if s.raw == nil {
		return 0, nil
	}
	s.wbuf = p
	err := s.raw.Write(s.writeFn)
	s.wbuf = nil
	if err != nil {
		return 0, err
	}
	return s.wn, s.werr
}

// tryWrite always returns true: it takes what it gets. The socket is in non-blocking mode, as all of net's are.
func (s *socket) tryWrite(fd uintptr) bool {
	for {
		n, err := syscall.Write(int(fd), s.wbuf) //nolint:gosec // a file descriptor
		switch err {
		case nil:
			s.wn, s.werr = n, nil
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			s.wn, s.werr = 0, nil
		default:
			s.wn, s.werr = 0, err
		}
		return true
	}
}
