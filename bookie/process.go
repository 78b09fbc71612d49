package bookie

import (
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/wire"
)

// single processes a request that is not an add.
func (s *server) single(c *conn, b *batch, r *wire.Request) {
	if code := s.check(r); code != wire.OK {
		s.answer(c, b, r, code)
		return
	}
	switch r.Op {
	case wire.OpRead:
		switch {
		case r.Flags&wire.Fence != 0 && (r.Entry < 0 || ledger.Planted() != ledger.MutantReadsDoNotFence):
			s.fence(c, b, r)
		case r.LongPoll():
			s.longPoll(c, b, r)
		default:
			s.read(c, b, r)
		}
	case wire.OpBatchRead:
		if r.Flags&wire.Fence != 0 {
			s.fence(c, b, r)
		} else {
			s.read(c, b, r)
		}
	case wire.OpReadLAC, wire.OpListEntries, wire.OpBookieInfo:
		s.read(c, b, r)
	case wire.OpWriteLAC:
		s.writeLAC(c, b, r)
	case wire.OpForce:
		s.force(c, b, r)
	case wire.OpAuth:
		s.auth(c, b, r)
	default:
		// START_TLS without TLS, and operations that V3 does not have.
		s.answer(c, b, r, wire.BadReq)
	}
}

// check makes the tests that are the same for all operations but adds.
func (s *server) check(r *wire.Request) wire.Code {
	if r.MeansOther(string(s.o.ID)) {
		return wire.UA
	}
	if r.Op == wire.OpAuth || r.Op == wire.OpStartTLS || r.Op == wire.OpUnsupported {
		return wire.OK
	}
	switch {
	case !r.VersionOK():
		return wire.BadVersion
	case r.Invalid != "":
		return wire.BadReq
	case r.Op == wire.OpBookieInfo:
		return wire.OK
	case r.Ledger < 0 && r.Op != wire.OpWriteLAC: // its body names the ledger
		return wire.BadReq
	case r.Op == wire.OpRead && r.Entry < -1, r.Op == wire.OpBatchRead && r.Entry < 0:
		return wire.BadReq
	}
	return wire.OK
}

// answer answers r with a code and nothing else.
func (s *server) answer(c *conn, b *batch, r *wire.Request, code wire.Code) {
	r.Answer(&b.resp, code)
	c.reply(&b.resp)
	s.m.answered(r.Op, code, now()-b.start)
}

// auth answers AUTH on a server without authentication: whatever the plugin, the client counts as authenticated.
func (s *server) auth(c *conn, b *batch, r *wire.Request) {
	r.Answer(&b.resp, wire.OK)
	b.resp.AuthPlugin, b.resp.AuthPayload = wire.AuthDisabledPlugin, []byte{}
	c.reply(&b.resp)
}
