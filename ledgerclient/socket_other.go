//go:build !unix

package ledgerclient

import "net"

// socket has no writes that do not block on this system: everything goes through the sender.
type socket struct{ raw any }

func (s *socket) init(net.Conn) {}

func (s *socket) write([]byte) int { return 0 }
