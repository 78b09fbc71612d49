package bookie

import (
	"context"
	"errors"
	"fmt"

	"github.com/binderylog/bindery/bookie/storage"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
)

// What auto-recovery may ask of a bookie in the same process. The bookie repairs nothing by itself: it says what it lacks, and
// ends limbo once that is here.

// Repaired takes an entry off the list of damaged ones if it can be read back now.
func (b *Bookie) Repaired(d storage.Damaged) (bool, error) {
	eng := b.engine()
	if eng == nil {
		return false, ErrStopped
	}
	l, err := eng.st.Ledger(d.Ledger, false)
	if err == nil {
		_, err = l.Read(d.Entry, nil)
		l.Release()
	}
	switch {
	case err == nil, errors.Is(err, storage.ErrNoLedger):
		eng.st.Repaired(d)
		return true, nil
	}
	return false, nil
}

// Forget takes an entry off the list of damaged ones: its ledger is not this bookie's any more.
func (b *Bookie) Forget(d storage.Damaged) {
	if eng := b.engine(); eng != nil {
		eng.st.Repaired(d)
	}
}

// Scrub reads every entry on disk and puts damaged ones on the list.
func (b *Bookie) Scrub(ctx context.Context, limit func(ctx context.Context, bytes int) error) (storage.Scrubbed, error) {
	eng := b.engine()
	if eng == nil {
		return storage.Scrubbed{}, ErrStopped
	}
	return eng.st.Scrub(ctx, limit)
}

// Limbo returns up to limit ids above after (-1: all) of ledgers in limbo, ascending.
func (b *Bookie) Limbo(after ledger.ID, limit int) ([]ledger.ID, error) {
	eng := b.engine()
	if eng == nil {
		return nil, ErrStopped
	}
	ids, err := eng.st.LimboLedgers(int64(after), limit)
	out := make([]ledger.ID, len(ids))
	for i, id := range ids {
		out[i] = ledger.ID(id)
	}
	return out, err
}

// EndLimbo ends the limbo of a ledger if its record, read now, is CLOSED and every entry that the record stores here is here
// (decision 17). The fence stays.
func (b *Bookie) EndLimbo(ctx context.Context, id ledger.ID) (bool, error) {
	eng := b.engine()
	if eng == nil {
		return false, ErrStopped
	}
	m, _, err := b.o.Metadata.Ledgers.Read(ctx, id)
	if errors.Is(err, metadata.ErrNoLedger) {
		return false, nil // the collector's business
	}
	if err != nil {
		return false, fmt.Errorf("end limbo: %w", err)
	}
	if m.State != ledger.StateClosed {
		return false, nil
	}
	return eng.st.EndLimbo(ctx, int64(id), func(yield func(int64) bool) {
		if ledger.Planted() == ledger.MutantLimboEndsEarly {
			return
		}
		for i, f := range m.Fragments {
			last, _ := m.FinalFragment(i)
			for index, name := range f.Bookies {
				if name != b.o.ID {
					continue
				}
				for e := f.First; e <= last; e++ {
					if m.Quorum().Stores(e, index) && !yield(int64(e)) {
						return
					}
				}
			}
		}
	})
}
