package explore

import (
	"fmt"
	"slices"

	"github.com/binderylog/bindery/internal/ledger"
)

// effect carries what a client's step means to the world, and checks it.
func (x *space) effect(s *state, slot int, e *effect) string {
	rec := *x.records.at(s.record)
	switch e.kind {
	case ledger.ActRelease:
		if x.spec.Deferred {
			return "" // promised by a force only
		}
		return x.promise(s, e.first, e.last)
	case ledger.ActForceDone:
		if e.cause == ledger.CauseNone && x.spec.Deferred {
			return x.promise(s, 0, e.last)
		}
	case ledger.ActClosed:
		if e.cause == ledger.CauseNone && !s.gone && (rec.State != ledger.StateClosed || int8(rec.LastEntry) != e.last) {
			return fmt.Sprintf("I3: %s reports a close at e%d, the record says %s", x.clientName(slot), e.last, describe(rec))
		}
	case ledger.ActAborted:
		if s.lock == uint8(slot)+1 {
			s.lock = 0
		}
	case ledger.ActRecovered:
		got := *x.records.at(e.record)
		if got.State != ledger.StateClosed || s.closed != int8(got.LastEntry) {
			return fmt.Sprintf("I3: %s reports %s, the ledger ended at e%d", x.clientName(slot), describe(got), s.closed)
		}
	}
	return ""
}

// promise notes entries that must not be lost any more, and checks I19.
func (x *space) promise(s *state, first, last int8) string {
	rec := *x.records.at(s.record)
	for e := first; e <= last; e++ {
		s.promised |= 1 << e
		if s.gone {
			continue
		}
		if s.closed != noEnd && e > s.closed {
			return fmt.Sprintf("promise 2: e%d is acknowledged beyond the closed end e%d", e, s.closed)
		}
		copies := 0
		ens := rec.EnsembleOf(ledger.EntryID(e))
		for n := range x.spec.Quorum.Write {
			b := *x.bookies.at(s.bookies[x.bookieNumber(ens[x.spec.Quorum.Index(ledger.EntryID(e), n)])])
			if b.accountsFor(e) {
				copies++
			}
		}
		if copies < x.spec.Quorum.Ack {
			return fmt.Sprintf("I19: e%d is acknowledged with %d durable copies in its stored write set, the record says %s", e, copies, describe(rec))
		}
	}
	return ""
}

// write is the store's part of a compare-and-set, with the invariants on what is stored.
func (x *space) write(s *state, slot int, w *want) (outcome, string) {
	if s.gone {
		return outcomeGone, ""
	}
	if w.version != s.version && !w.blind {
		return outcomeConflict, ""
	}
	for _, k := range w.checks {
		if k.bookie > 0 && s.inc[k.bookie-1] != k.version {
			return outcomeConflict, ""
		}
	}
	if w.locked && s.lock != uint8(slot)+1 && ledger.Planted() != ledger.MutantPublishIgnoresLock {
		return outcomeConflict, ""
	}
	old, rec := *x.records.at(s.record), *x.records.at(w.record)
	why := x.checkWrite(s, slot, old, rec)
	if why == "" {
		why = x.checkNamed(s, old, rec)
	}
	s.record, s.version = w.record, s.version+1
	if rec.State == ledger.StateClosed && s.closed == noEnd {
		s.closed = int8(rec.LastEntry)
		for e := range int8(entryMax) {
			if s.promised>>e&1 != 0 && e > s.closed && why == "" {
				why = fmt.Sprintf("promise 2: closed at e%d, e%d was acknowledged", s.closed, e)
			}
		}
	}
	return outcomeOK, why
}

func (x *space) checkWrite(s *state, slot int, old, rec *ledger.Metadata) string {
	c := *x.clients.at(s.clients[slot])
	switch {
	case old.State == ledger.StateClosed && (rec.State != old.State || rec.LastEntry != old.LastEntry || rec.Length != old.Length):
		return fmt.Sprintf("I12: %s becomes %s", describe(old), describe(rec))
	case rec.State < old.State:
		return fmt.Sprintf("I2: %s becomes %s", describe(old), describe(rec))
	}
	same := slices.EqualFunc(old.Fragments, rec.Fragments, sameFragment)
	switch c.role {
	case roleRecovery:
		if rec.State != ledger.StateClosed && !same {
			return fmt.Sprintf("I13: recovery changes ensembles before it closes: %s becomes %s", describe(old), describe(rec))
		}
	case roleReplicator:
		if last := len(old.Fragments) - 1; old.State != ledger.StateClosed && !slices.Equal(old.Fragments[last].Bookies, rec.Fragments[last].Bookies) {
			return fmt.Sprintf("I15: a replicator changes the last fragment of %s to %s", describe(old), describe(rec))
		}
	case roleWriter:
		if rec.State == ledger.StateOpen && !same && int8(rec.Last().First) != c.released+1 && !x.spec.Deferred {
			return fmt.Sprintf("I14: %s becomes %s while e%d is the last released", describe(old), describe(rec), c.released)
		}
		if rec.State == ledger.StateClosed && old.State != ledger.StateOpen {
			return fmt.Sprintf("decision 32: the writer closes %s", describe(old))
		}
	}
	kept := len(old.Fragments)
	if c.role == roleRecovery { // its first change may replace the last fragment, from which it started
		kept--
	}
	for i, f := range old.Fragments[:kept] { // I2: what is confirmed is not rewritten by anybody but a replicator
		if c.role != roleReplicator && f.First < rec.Last().First && (i >= len(rec.Fragments) || !sameFragment(f, rec.Fragments[i])) {
			return fmt.Sprintf("I2: %s becomes %s", describe(old), describe(rec))
		}
	}
	return ""
}

// checkNamed is I19 and I20 for what a write relies on: every entry of a ledger that is closed by it has an ack quorum of
// copies, and a bookie that a write newly names for entries of a closed ledger has them.
func (x *space) checkNamed(s *state, old, rec *ledger.Metadata) string {
	if rec.State != ledger.StateClosed {
		return ""
	}
	for e := ledger.EntryID(0); e <= rec.LastEntry; e++ {
		copies := 0
		for n := range x.spec.Quorum.Write {
			i := x.spec.Quorum.Index(e, n)
			name := rec.EnsembleOf(e)[i]
			b := *x.bookies.at(s.bookies[x.bookieNumber(name)])
			switch {
			case b.accountsFor(int8(e)):
				copies++
			case old.State == ledger.StateClosed && old.EnsembleOf(e)[i] != name:
				return fmt.Sprintf("I20: %s is named for e%d and does not have it: %s", name, e, describe(rec))
			}
		}
		if old.State != ledger.StateClosed && copies < x.spec.Quorum.Ack {
			return fmt.Sprintf("I19: closed with %d durable copies of e%d in its write set: %s", copies, e, describe(rec))
		}
	}
	return ""
}

// accountsFor reports whether a bookie's copy of an entry counts: it is durable, or it was lost and the bookie knows that it
// may have lost something.
func (b *bookie) accountsFor(e int8) bool {
	return b.synced[e].ok || b.lost>>e&1 != 0 && (b.disk.Limbo || b.starting)
}

func sameFragment(a, b ledger.Fragment) bool {
	return a.First == b.First && slices.Equal(a.Bookies, b.Bookies)
}

// noteServed keeps the highest LAC that a reader could have been told.
func (x *space) noteServed(s *state) {
	for i := range x.spec.Bookies {
		b := *x.bookies.at(s.bookies[i])
		for _, h := range b.have {
			if h.ok {
				s.served = max(s.served, h.lac)
			}
		}
		s.served = max(s.served, int8(b.mem.LAC()))
	}
}

// check looks at the invariants of a state.
func (x *space) check(s *state) string {
	if s.closed != noEnd && s.served > s.closed {
		return fmt.Sprintf("I21: LAC %d was served, the ledger ended at e%d", s.served, s.closed)
	}
	if x.spec.Tier {
		if why := x.checkTier(s); why != "" {
			return why
		}
	}
	if s.gone {
		return ""
	}
	rec := *x.records.at(s.record)
	q := x.spec.Quorum
	noLoss := s.budget[budWipes] == x.start.budget[budWipes] && s.budget[budLoses] == x.start.budget[budLoses]
	for e := range int8(entryMax) {
		kept := s.promised>>e&1 != 0 || s.closed >= e
		deny, copies := 0, 0
		ens := rec.EnsembleOf(ledger.EntryID(e))
		for n := range q.Write {
			k := x.bookieNumber(ens[q.Index(ledger.EntryID(e), n)])
			b := *x.bookies.at(s.bookies[k])
			for _, h := range [...]stored{b.have[e], b.synced[e]} {
				if h.ok && h.length != e+1 {
					return fmt.Sprintf("I6: %s holds another body as e%d", x.names[k], e)
				}
			}
			switch {
			case b.synced[e].ok:
				copies++
			case !b.disk.Limbo && !b.starting:
				deny++
				if b.acked>>e&1 != 0 && (s.closed == noEnd || e <= s.closed) {
					return fmt.Sprintf("I20: %s acknowledged e%d and would deny it", x.names[k], e)
				}
			}
		}
		if kept && deny > q.Write-q.Ack {
			return fmt.Sprintf("I4': e%d must be kept, %d of its stored write set would deny it (%d hold it), the record says %s", e, deny, copies, describe(rec))
		}
		if noLoss && s.closed >= e && copies < q.Ack {
			return fmt.Sprintf("I5: closed at e%d with %d copies of e%d", s.closed, copies, e)
		}
	}
	return ""
}

// checkQuiet looks at a state in which nothing happens by itself any more.
func (x *space) checkQuiet(s *state) string {
	for i := range x.spec.clients() {
		c := *x.clients.at(s.clients[i])
		if c.status != statusLive {
			continue
		}
		switch {
		case c.w != nil && c.w.Pending() > 0:
			return fmt.Sprintf("V2: %d adds are never answered", c.w.Pending())
		case c.w != nil && c.w.Changing():
			return "V3: an ensemble change never ends"
		case c.w != nil && c.w.Cause() != ledger.CauseNone:
			return "V2: a close never ends"
		case c.r != nil && !x.spec.Prompt:
			return fmt.Sprintf("V5: %s never ends", x.clientName(i))
		}
	}
	if x.spec.Tier {
		return x.checkTierQuiet(s)
	}
	return ""
}

// checkCollected is I16 for what a bookie just deleted.
func (x *space) checkCollected(s *state, b int) string {
	k := *x.bookies.at(s.bookies[b])
	rec := *x.records.at(s.record)
	if s.gone || !k.mem.Tombstone || rec.State == ledger.StateClosed && !rec.Names(x.names[b]) {
		return ""
	}
	q := x.spec.Quorum
	for e := ledger.EntryID(0); e <= rec.LastEntry || rec.State != ledger.StateClosed && e < entryMax; e++ {
		for i, name := range rec.EnsembleOf(e) {
			if name == x.names[b] && q.Stores(e, i) {
				return fmt.Sprintf("I16: %s deletes its copy, the record says %s", name, describe(rec))
			}
		}
	}
	return ""
}
