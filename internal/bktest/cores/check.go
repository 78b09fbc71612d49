package cores

import (
	"slices"

	"github.com/binderylog/bindery/internal/ledger"
)

// proposes checks a record that a client is about to write.
func (w *world) proposes(c *client, a ledger.Action) {
	if c.w != nil && a.Record.State == ledger.StateOpen {
		if first := a.Record.Last().First; first > c.last+1 && !c.book.cfg.Deferred {
			w.violate("I14", "%s proposes a fragment at e%d, e%d is the last acknowledged", c.name, first, c.last)
		}
	}
}

// succession checks a record that replaces another.
func (w *world) succession(k *book, m *ledger.Metadata) {
	old := k.record
	if err := m.Validate(); err != nil {
		w.violate("I1", "record of ledger %d: %v", k.n, err)
		return
	}
	n := len(old.Fragments)
	same := slices.EqualFunc(old.Fragments, m.Fragments, sameFragment)
	switch {
	case old.State == ledger.StateClosed:
		w.violate("I12", "%s is written over %s of ledger %d", describe(m), describe(old), k.n)
	case m.State < old.State:
		w.violate("I12", "ledger %d goes from %s to %s", k.n, describe(old), describe(m))
	case m.State == ledger.StateInRecovery && !same:
		w.violate("I13", "recovery changes the ensembles of ledger %d before it closes it", k.n)
	case m.State == ledger.StateOpen && !same && m.Last().First <= k.acked && !k.cfg.Deferred:
		w.violate("I14", "a fragment of ledger %d starts at e%d, e%d is acknowledged", k.n, m.Last().First, k.acked)
	case len(m.Fragments) < n || !slices.EqualFunc(old.Fragments[:n-1], m.Fragments[:n-1], sameFragment) || m.Fragments[n-1].First != old.Fragments[n-1].First:
		w.violate("I2", "the fragments of ledger %d go from %s to %s", k.n, describe(old), describe(m))
	}
}

func sameFragment(a, b ledger.Fragment) bool {
	return a.First == b.First && slices.Equal(a.Bookies, b.Bookies)
}

// promise takes the news that an application was told that entries are durable.
func (w *world) promise(c *client, e ledger.EntryID) {
	k := c.book
	for x := k.acked + 1; x <= e; x++ {
		if k.gone {
			break
		}
		if n := w.copies(k, x); n < k.record.AckQuorum {
			w.violate("I19", "%s acknowledges e%d of ledger %d with %d copies on %s", c.name, x, k.n, n, describe(k.record))
		}
	}
	k.acked = max(k.acked, e)
	k.touched = true
}

// copies counts the members of an entry's stored write set that have ever acknowledged it.
func (w *world) copies(k *book, e ledger.EntryID) int {
	q, ensemble, n := k.record.Quorum(), k.record.EnsembleOf(e), 0
	for i := range q.Write {
		if w.bookie(ensemble[q.Index(e, i)]).replicas[k.n].acked[e] {
			n++
		}
	}
	return n
}

// claims checks a LAC that somebody states.
func (w *world) claims(who string, k *book, lac ledger.EntryID) {
	if k.gone || lac < 0 {
		return
	}
	if k.record.State == ledger.StateClosed && lac > k.record.LastEntry {
		w.violate("I21", "%s LAC %d of ledger %d, which ends at e%d", who, lac, k.n, k.record.LastEntry)
	}
	if n := w.copies(k, lac); n < k.record.AckQuorum {
		w.violate("I9", "%s LAC %d of ledger %d, which has %d copies on %s", who, lac, k.n, n, describe(k.record))
	}
}

// check looks at the invariants of the ledgers that the last event may have touched.
func (w *world) check() {
	for _, k := range w.books {
		if k.touched {
			k.touched = false
			w.checkBook(k)
		}
	}
}

func (w *world) checkBook(k *book) {
	if k.gone {
		return
	}
	q := k.record.Quorum()
	closed := k.record.State == ledger.StateClosed
	promised := k.acked
	if closed { // what a recovery has kept is promised, too
		promised = max(promised, k.record.LastEntry)
	}
	for e := ledger.EntryID(0); e <= promised; e++ {
		if closed && e > k.record.LastEntry {
			w.violate("I4", "e%d of ledger %d is acknowledged, it ends at e%d", e, k.n, k.record.LastEntry)
			return
		}
		deny := 0
		ensemble := k.record.EnsembleOf(e)
		for i := range q.Write {
			b := w.bookie(ensemble[q.Index(e, i)])
			r := b.replicas[k.n]
			if _, have := r.stored[e]; have || r.disk.Limbo || b.lostData {
				continue
			}
			deny++
		}
		if deny > q.Write-q.Ack {
			w.violate("I4'", "e%d of ledger %d is confirmed, %d of its stored write set would deny it after a crash: %s", e, k.n, deny, describe(k.record))
			return
		}
	}
	for _, b := range w.bookies {
		r := b.replicas[k.n]
		for e := range ledger.EntryID(k.cfg.Entries) {
			c, ok := r.entries[e]
			if !ok {
				continue
			}
			if c.body != bodyOf(k, e) {
				w.violate("I6", "%s holds %q as e%d of ledger %d", b.id, c.body, e, k.n)
			}
			if closed && c.lac > k.record.LastEntry {
				w.violate("I21", "%s holds e%d of ledger %d with LAC %d, it ends at e%d", b.id, e, k.n, c.lac, k.record.LastEntry)
			}
		}
	}
	if closed {
		w.checkClosed(k)
	}
}

func (w *world) checkClosed(k *book) {
	if k.told > k.record.LastEntry {
		w.violate("I21", "a reader was told LAC %d of ledger %d, it ends at e%d", k.told, k.n, k.record.LastEntry)
	}
	for e := ledger.EntryID(0); e <= k.record.LastEntry; e++ {
		if n := w.copies(k, e); n < k.record.AckQuorum {
			w.violate("I5", "ledger %d ends at e%d, e%d has %d copies: %s", k.n, k.record.LastEntry, e, n, describe(k.record))
			return
		}
	}
}
