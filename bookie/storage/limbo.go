package storage

import (
	"context"
	"fmt"
	"slices"
)

const (
	limboBatch = 16 << 10 // ledgers whose handles are pinned at a time
	listPage   = 4096
)

// MarkLimbo puts ledgers, known here or not, in limbo and fences them, durably.
func (s *Storage) MarkLimbo(ctx context.Context, ids []int64) error {
	for batch := range slices.Chunk(ids, limboBatch) {
		for _, id := range batch {
			l, err := s.Ledger(id, true)
			if err != nil {
				return fmt.Errorf("mark limbo: %w", err)
			}
			l.mu.Lock()
			switch {
			case l.Replica.Tombstone: // deleted here, and no add passes it unseen
			case l.Replica.Lose(), l.seq == 0:
				l.StateChanged()
			}
			l.mu.Unlock()
			l.Release()
		}
		if err := s.Checkpoint(ctx); err != nil {
			return fmt.Errorf("mark limbo: %w", err)
		}
	}
	return nil
}

// Ledgers returns up to limit ids above after (-1 for all) of ledgers known here, ascending. None in between is left out,
// so the last id is where the next call goes on; an empty list is the end.
func (s *Storage) Ledgers(after int64, limit int) ([]int64, error) {
	if limit < 1 {
		return nil, nil
	}
	for {
		ids, err := s.candidates(after, limit)
		if err != nil || len(ids) == 0 {
			return nil, err
		}
		after = ids[len(ids)-1]
		var kept []int64
		for _, id := range ids {
			known, err := s.known(id)
			if err != nil {
				return nil, err
			}
			if known {
				kept = append(kept, id)
			}
		}
		if len(kept) > 0 {
			return kept, nil
		}
	}
}

// candidates returns the next ids of which anything is here, deleted ones included.
func (s *Storage) candidates(after int64, limit int) ([]int64, error) {
	var ids []int64
	add := func(more []int64) { ids = append(ids, more...) }
	for _, d := range s.dirs {
		if d.failed.Load() {
			continue
		}
		more, err := d.ix.Ledgers(after, limit)
		if err != nil {
			return nil, d.indexError(err)
		}
		add(more)
		for _, p := range d.ov.load() {
			add(p.ledgersAfter(after, limit))
		}
	}
	add(s.ledgers.idsAfter(after))
	slices.Sort(ids)
	ids = slices.Compact(ids)
	return ids[:min(limit, len(ids))], nil
}

// known reports whether a ledger exists here. It loads no handle: listings are long.
func (s *Storage) known(id int64) (bool, error) {
	if l := s.ledgers.cached(id); l != nil {
		defer l.Release()
		l.mu.Lock()
		defer l.mu.Unlock()
		// A handle that is in limbo only because nothing is known of it does not count.
		return l.Replica.Known() && (l.seq != 0 || l.stateless), nil
	}
	for _, d := range s.dirs {
		if d.failed.Load() {
			continue
		}
		st, ev, err := d.lookupState(id)
		if err != nil {
			return false, d.indexError(err)
		}
		if ev != evNone && !st.replica.Tombstone {
			return true, nil
		}
	}
	return false, nil
}
