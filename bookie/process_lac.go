package bookie

import (
	"errors"

	"github.com/binderylog/bindery/bookie/storage"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/wire"
	"github.com/binderylog/bindery/journal"
)

// explicitLACMax bounds an explicit-LAC body: ids, LAC and the longest digest take 36 bytes.
const explicitLACMax = 1 << 10

// writeLAC processes WRITE_LAC. It is answered when the new explicit LAC is durable.
func (s *server) writeLAC(c *conn, b *batch, r *wire.Request) {
	switch {
	case !s.state.writable():
		s.answer(c, b, r, wire.ReadOnly)
		return
	case len(r.Body) < wire.LACBodyMin || len(r.Body) > explicitLACMax || len(r.Key) > keyMax || bodyLedger(r.Body) < 0:
		s.answer(c, b, r, wire.BadReq)
		return
	}
	l, err := s.st.Ledger(bodyLedger(r.Body), true)
	if err != nil {
		s.answer(c, b, r, codeOf(err))
		return
	}
	defer l.Release()
	slot := s.owe(c, b, r)
	l.Lock()
	code := s.writeLACLocked(c, b, l, r, journal.Token{C: uint64(slot)})
	l.Unlock()
	if code != codeAppended {
		c.disown(slot)
		s.answer(c, b, r, code)
	}
}

func (s *server) writeLACLocked(c *conn, b *batch, l *storage.Ledger, r *wire.Request, t journal.Token) wire.Code {
	v, changed := l.Replica.SetExplicitLAC(r.Key, r.Body)
	if v != ledger.Accepted {
		return codeOfVerdict(v)
	}
	var err error
	if changed {
		l.StateChanged()
		err = s.appendState(b, l, c, t)
	} else {
		// An older LAC; what is stored may still be on its way to the disk.
		err = s.appendSync(b, l.ID(), c, t)
	}
	if err != nil {
		return wire.IO
	}
	return codeAppended
}

// force processes FORCE_LEDGER: it is answered when everything before it in the ledger's journal is durable.
func (s *server) force(c *conn, b *batch, r *wire.Request) {
	if code := s.checkForce(r.Ledger); code != wire.OK {
		s.answer(c, b, r, code)
		return
	}
	slot := s.owe(c, b, r)
	if err := s.appendSync(b, r.Ledger, c, journal.Token{C: uint64(slot)}); err != nil {
		c.disown(slot)
		s.answer(c, b, r, wire.IO)
	}
}

// checkForce asks the ledger's rules. A ledger that does not exist has nothing un-synced, unless this bookie may have
// lost it.
func (s *server) checkForce(id int64) wire.Code {
	l, err := s.st.Ledger(id, false)
	switch {
	case errors.Is(err, storage.ErrNoLedger):
		var none ledger.Replica
		return codeOfVerdict(none.CheckForce(s.lossEpoch))
	case err != nil:
		return codeOf(err)
	}
	defer l.Release()
	l.Lock()
	defer l.Unlock()
	return codeOfVerdict(l.Replica.CheckForce(s.lossEpoch))
}

// owe takes a slot for an answer to a small request that a journal will release.
func (s *server) owe(c *conn, b *batch, r *wire.Request) uint32 {
	s.budget.add(addOverhead)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.slotLocked(r, b.start, addOverhead)
}

// disown gives the slot back.
func (c *conn) disown(slot uint32) {
	c.mu.Lock()
	c.freeSlotLocked(slot)
	c.mu.Unlock()
	c.srv.budget.release(addOverhead)
}
