//go:build unix

package ledgerclient

import (
	"net"
	"syscall"
)

// socket writes without blocking where the system allows it: a single request on an idle connection then goes out from the
// goroutine that made it, which saves waking the sender.
type socket struct {
	raw syscall.RawConn // nil: a connection that is no socket

	// One goroutine writes at a time; the function exists once, since a closure each time would be an allocation each time.
	fn  func(uintptr) bool
	buf []byte
	n   int
	err error
}

func (s *socket) init(nc net.Conn) {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return
	}
	s.raw, s.fn = raw, s.try
}

// write writes what the socket takes at once. An error is left to the next ordinary write to find.
func (s *socket) write(b []byte) int {
	s.buf, s.n = b, 0
	if err := s.raw.Write(s.fn); err != nil || s.err != nil {
		s.n = 0
	}
	s.buf = nil
	return s.n
}

func (s *socket) try(fd uintptr) bool {
	s.n, s.err = syscall.Write(int(fd), s.buf)
	return true
}
