package storage

import (
	"errors"
	"fmt"

	"github.com/binderylog/bindery/bookie/index"
	"github.com/binderylog/bindery/internal/ledger"
)

func tombstoneOf(generation uint32) ledger.Replica {
	return ledger.Replica{Tombstone: true, Generation: generation}
}

// load fills a new handle from the directories. The caller holds the handle's lock, and nobody else can use it yet.
func (s *Storage) load(l *Ledger) error {
	var best state
	worst := evNone
	for _, d := range s.dirs {
		if d.failed.Load() {
			continue
		}
		st, ev, err := d.lookupState(l.id)
		if errors.Is(err, index.ErrFailed) {
			d.fail(err)
			continue
		}
		if err != nil {
			return fmt.Errorf("load state: %w", err)
		}
		if ev == evNone {
			continue
		}
		if ev == evStateless && d.wasLost {
			ev = evDamaged
		}
		worst = max(worst, ev)
		l.loaded = l.loaded || ev == evState
		switch {
		case l.d == nil:
			best, l.d = st, d
		case st.birth > best.birth || st.birth == best.birth && st.seq > best.seq:
			l.elsewhere |= 1 << l.d.index
			best, l.d = st, d
		default:
			l.elsewhere |= 1 << d.index
		}
	}
	if worst == evStateless && l.loaded {
		worst = evState
	}
	switch worst {
	case evNone:
		return s.loadUnknown(l)
	case evState:
		if best.seq == seqOfSet {
			best.seq = 0
		}
		l.setState(&best)
		if best.birth != 0 && !best.replica.Tombstone {
			s.births.note(l.id, best.birth)
		}
		if best.replica.Deferred && best.run <= s.lastUnclean && l.Replica.UncleanStop() {
			l.StateChanged()
		}
	case evStateless:
		// A crash came between a flush's entries and their states: the journal has them. Should it not, the ledger is in
		// limbo. Nothing of that is written down, since the next start may find more.
		l.stateless = true
		l.Replica.Lose()
	case evDamaged:
		l.setState(&best)
		l.unproven = true
		if l.Replica.Lose() || !l.loaded {
			l.StateChanged()
		}
	}
	return nil
}

// loadUnknown fills the handle of a ledger of which nothing is here.
func (s *Storage) loadUnknown(l *Ledger) error {
	if l.d = s.place(); l.d == nil {
		return s.dirs[0].failure()
	}
	if s.degraded.Load() {
		l.Replica.Lose() // it may have lived in what is missing, fenced
		l.unproven = true
	}
	l.lacKnown = true
	return nil
}

// place chooses the directory of a new ledger: the one with the least load among those that work and are not full, or
// among those that work.
func (s *Storage) place() *dir {
	var best *dir
	for _, d := range s.dirs {
		switch {
		case d.failed.Load():
		case best == nil, best.diskFull.Load() && !d.diskFull.Load():
			best = d
		case best.diskFull.Load() == d.diskFull.Load() && d.loadNow() < best.loadNow():
			best = d
		}
	}
	if best != nil {
		best.load.Add(newLedgerLoad)
	}
	return best
}

// newLedgerLoad is what a new ledger counts until its entries do.
const newLedgerLoad = 256 << 10

func (d *dir) loadNow() int64 { return d.load.Load() + d.current.Load().used.Load() }
