package storage

import (
	"context"
	"errors"
	"fmt"
)

// Check reads everything that is on disk and calls fn for each thing wrong: logs, indexes, and whether each entry that the
// index or the overlay names is where they say. It may run beside all other work. Its own error says that it could not go
// on.
func (s *Storage) Check(ctx context.Context, fn func(error)) error {
	for _, d := range s.dirs {
		if err := d.failure(); err != nil {
			fn(err)
			continue
		}
		for _, m := range d.log.Missing() {
			fn(m.Err)
		}
		if err := d.ix.Check(ctx, fn); err != nil {
			return fmt.Errorf("check %s: %w", d.path, err)
		}
	}
	return s.checkLedgers(func(l *Ledger) error {
		err := l.checkEntries(ctx, func(_ int64, _ int, err error) error {
			if err != nil {
				fn(err)
			}
			return nil
		})
		if err != nil && ctx.Err() == nil {
			fn(fmt.Errorf("ledger %d: %w", l.id, err))
			err = nil
		}
		return err
	})
}

// checkLedgers calls fn for every ledger whose directory works, pinned.
func (s *Storage) checkLedgers(fn func(l *Ledger) error) error {
	for after := int64(-1); ; {
		ids, err := s.Ledgers(after, listPage)
		if err != nil || len(ids) == 0 {
			return err
		}
		after = ids[len(ids)-1]
		for _, id := range ids {
			l, err := s.Ledger(id, false)
			if errors.Is(err, ErrNoLedger) {
				continue
			}
			if err != nil {
				return err
			}
			if !l.d.failed.Load() {
				err = fn(l)
			}
			l.Release()
			if err != nil {
				return err
			}
		}
	}
}

// checkEntries reads every entry of the ledger that its directory names around the read cache, and calls fn with the size and
// the error of each. What a write cache holds is not judged: the copy on disk is about to be replaced.
func (l *Ledger) checkEntries(ctx context.Context, fn func(entry int64, size int, err error) error) error {
	v := l.view()
	list, err := l.d.loggedEntries(l.id, v.floor, nil)
	if err != nil {
		return err
	}
	buf := bodies.Get().(*[]byte)
	defer bodies.Put(buf)
	for _, r := range joinRanges(list) {
		for e := r.First; ; e++ {
			if err := ctx.Err(); err != nil {
				return err
			}
			body, _, err := l.d.lookUp(l.id, e, v.floor, *buf, (*dir).readRecord)
			if err == nil {
				*buf = body
			}
			judged := !errors.Is(err, errAbsent) // absent: deleted meanwhile
			if err != nil && judged {
				_, cached := l.readWriteCache(&v, e, nil)
				judged = !cached
			}
			if judged {
				if err := fn(e, len(body), err); err != nil {
					return err
				}
			}
			if e == r.Last {
				break
			}
		}
	}
	return nil
}
