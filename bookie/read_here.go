package bookie

import "github.com/binderylog/bindery/internal/wire"

// readHere answers a read of one entry on the connection's own goroutine, if nothing of it has to wait for a disk or for
// the peer. It saves waking a worker, which costs several times what copying the entry does. false means that nothing was
// done: a worker has to.
func (s *server) readHere(c *conn, b *batch, r *wire.Request) bool {
	if r.Op != wire.OpRead || r.Entry < 0 || !c.takesAnswers() {
		return false
	}
	l := s.st.Cached(r.Ledger)
	if l == nil {
		return false
	}
	defer l.Release()
	lac, known := int64(0), false
	if r.Proto == wire.V3 {
		if lac, known = l.LACCached(); !known {
			return false
		}
	}
	body, ok := l.ReadCached(r.Entry, b.body[:0])
	if !ok {
		return false
	}
	if b.body = body[:0]; cap(b.body) > workerKeep {
		b.body = nil
	}
	r.Answer(&b.resp, wire.OK)
	b.resp.Body = body
	b.resp.MaxLAC, b.resp.HasMaxLAC = lac, known
	c.reply(&b.resp)
	b.resp.Body = nil
	s.m.readBytes.Add(uint64(len(body)))
	s.m.answered(r.Op, wire.OK, now()-b.start)
	return true
}

// takesAnswers reports whether an answer may be encoded now: the peer has taken most of what it was sent, and no read
// waits for that already.
func (c *conn) takesAnswers() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.isShut && c.parked.len() == 0 && !c.fullLocked()
}
