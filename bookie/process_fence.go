package bookie

import (
	"sync"

	"github.com/binderylog/bindery/bookie/storage"
	"github.com/binderylog/bindery/internal/invariant"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/wire"
	"github.com/binderylog/bindery/journal"
)

// pendingFences knows the ledgers with a fence that is set but not durable yet. Whoever finds a ledger fenced may answer
// on the strength of it only if it is not here; if it is, a sync of the journal has to be waited for. A fence that the
// journal could not make durable stays here for ever.
type pendingFences struct {
	mu sync.Mutex
	n  map[int64]int
}

func newPendingFences() *pendingFences { return &pendingFences{n: map[int64]int{}} }

// begin notes a fence; the ledger is locked.
func (p *pendingFences) begin(id int64) {
	p.mu.Lock()
	p.n[id]++
	p.mu.Unlock()
}

func (p *pendingFences) end(id int64) {
	p.mu.Lock()
	if p.n[id]--; p.n[id] <= 0 {
		delete(p.n, id)
	}
	p.mu.Unlock()
}

func (p *pendingFences) has(id int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n[id] > 0
}

// JournalDone implements journal.Sink for state records that nobody waits for. Token: A the ledger, B 1 if a fence ends.
func (p *pendingFences) JournalDone(t journal.Token, err error) {
	if t.B == 1 && err == nil {
		p.end(t.A)
	}
}

// JournalFlush implements journal.Sink.
func (p *pendingFences) JournalFlush() {}

// fence processes a fencing read: the ledger is fenced, created if need be, and the fence is durable before any answer,
// whatever the read finds.
func (s *server) fence(c *conn, b *batch, r *wire.Request) {
	if !r.HasKey || len(r.Key) > keyMax {
		s.answer(c, b, r, wire.UA)
		return
	}
	if s.journalWaits(r.Ledger) { // before the ledger is touched: a fence that is not journaled must not look like one that is
		s.answer(c, b, r, wire.IO)
		return
	}
	l, err := s.st.Ledger(r.Ledger, true)
	if err != nil {
		s.answer(c, b, r, codeOf(err))
		return
	}
	t := s.newRead(c, b, r)
	if t == nil {
		l.Release()
		return
	}
	l.Lock()
	code := s.fenceLocked(b, l, r.Key, t)
	l.Unlock()
	l.Release()
	switch code {
	case codeAppended:
		// The journal submits t.
	case wire.OK:
		s.reads.submit(t, laneReserved)
	default:
		t.drop()
		s.answer(c, b, r, code)
	}
}

// fenceLocked fences the locked ledger. It returns OK if an earlier fence is durable already, and codeAppended if t will
// hear from the journal.
func (s *server) fenceLocked(b *batch, l *storage.Ledger, key []byte, t *readTask) wire.Code {
	v, changed := l.Replica.Fence(key)
	switch {
	case v != ledger.Accepted:
		return codeOfVerdict(v)
	case changed:
		l.StateChanged()
		s.fences.begin(l.ID())
		if ledger.Planted() == ledger.MutantFenceNotWaitedFor {
			_ = s.appendState(b, l, s.fences, journal.Token{A: l.ID(), B: 1})
			return wire.OK
		}
		if s.appendState(b, l, t, journal.Token{A: l.ID(), B: 1}) != nil {
			return wire.IO
		}
		return codeAppended
	case !s.fences.has(l.ID()):
		return wire.OK
	}
	if s.appendSync(b, l.ID(), t, journal.Token{}) != nil {
		return wire.IO
	}
	return codeAppended
}

// appendSync asks the ledger's journal to tell sink when everything before is durable.
func (s *server) appendSync(b *batch, ledgerID int64, sink journal.Sink, t journal.Token) error {
	j, index := s.journalOf(ledgerID)
	if _, err := j.Append(0, 0, nil, sink, t); err != nil {
		s.journalFailed(err)
		return err
	}
	b.touched |= 1 << index
	return nil
}

// JournalDone implements journal.Sink for a fencing read.
func (t *readTask) JournalDone(tok journal.Token, err error) {
	t.fenceErr = err
	invariant.CrashPoint("bookie.fence-durable")
	if err == nil && tok.B == 1 {
		t.c.srv.fences.end(tok.A)
	}
}

// JournalFlush hands the read to a worker: reading is not for the goroutine that acknowledges.
func (t *readTask) JournalFlush() { t.c.srv.reads.submit(t, laneReserved) }
