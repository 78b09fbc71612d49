package storage

import (
	"context"
	"errors"
	"fmt"
)

// Scrubbed is what a scrub has done.
type Scrubbed struct {
	Entries, Bytes int64 // read back
	Damaged        int64 // could not be read; they are on the list
}

// Scrub reads every entry on disk around the caches, and puts those that can not be read back on the list of damaged ones.
// It may run beside all other work; limit spaces it out and may be nil. What a write cache holds is not judged: the copy on
// disk is about to be replaced.
func (s *Storage) Scrub(ctx context.Context, limit func(ctx context.Context, bytes int) error) (Scrubbed, error) {
	var done Scrubbed
	err := s.checkLedgers(func(l *Ledger) error {
		err := l.checkEntries(ctx, func(entry int64, size int, err error) error {
			if err == nil {
				done.Entries++
				done.Bytes += int64(size)
			} else {
				done.Damaged++
				l.d.noteDamaged(l.id, entry, err)
			}
			if limit == nil {
				return nil
			}
			return limit(ctx, size)
		})
		if err != nil {
			return fmt.Errorf("scrub %s: ledger %d: %w", l.d.path, l.id, err)
		}
		return nil
	})
	return done, err
}

// LimboLedgers returns up to limit ids above after of ledgers that are in limbo here, ascending; an empty list is the end.
func (s *Storage) LimboLedgers(after int64, limit int) ([]int64, error) {
	var out []int64
	for len(out) < limit {
		ids, err := s.candidates(after, limit)
		if err != nil || len(ids) == 0 {
			return out, err
		}
		for _, id := range ids {
			after = id
			limbo, err := s.limbo(id)
			if err != nil {
				return out, err
			}
			if limbo {
				if out = append(out, id); len(out) == limit {
					break
				}
			}
		}
	}
	return out, nil
}

// limbo is known for limbo.
func (s *Storage) limbo(id int64) (bool, error) {
	if l := s.ledgers.cached(id); l != nil {
		defer l.Release()
		v := l.view()
		return v.limbo && !v.tombstone, nil
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
			return st.replica.Limbo, nil
		}
	}
	return false, nil
}

// EndLimbo ends the limbo of a ledger if every entry that needs says belongs here can be read back from what is durable. The
// caller has read the ledger's record after the loss was recorded, and it was closed. needs calls yield for each such entry
// until that returns false.
func (s *Storage) EndLimbo(ctx context.Context, id int64, needs func(yield func(entry int64) bool)) (ended bool, err error) {
	l, err := s.Ledger(id, false)
	if errors.Is(err, ErrNoLedger) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("end limbo of ledger %d: %w", id, err)
	}
	defer l.Release()
	// A copy that was just made may be in a cache only, and its journal record not synced.
	if err := s.Checkpoint(ctx); err != nil {
		return false, fmt.Errorf("end limbo of ledger %d: %w", id, err)
	}
	buf := bodies.Get().(*[]byte)
	defer bodies.Put(buf)
	whole := true
	for e := range needs {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		body, err := l.Read(e, *buf)
		if err != nil {
			whole = false
			break
		}
		*buf = body
	}
	if !whole {
		return false, nil
	}
	l.mu.Lock()
	ended = !l.Replica.Tombstone && l.Replica.EndLimbo()
	if ended {
		l.StateChanged()
	}
	l.mu.Unlock()
	if !ended {
		return false, nil
	}
	// Losing this in a crash does no harm: the ledger is in limbo again, and whole.
	return true, s.Checkpoint(ctx)
}
