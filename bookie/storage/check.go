package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/binderylog/bindery/bookie/index"
	"github.com/binderylog/bindery/entrylog"
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
		if err := d.check(ctx, fn); err != nil {
			return fmt.Errorf("check %s: %w", d.path, err)
		}
	}
	return nil
}

func (d *dir) check(ctx context.Context, fn func(error)) error {
	if err := d.ix.Check(ctx, fn); err != nil {
		return err
	}
	for after := int64(-1); ; {
		ids, err := d.s.Ledgers(after, listPage)
		if err != nil {
			return err
		}
		if len(ids) == 0 {
			return nil
		}
		after = ids[len(ids)-1]
		for _, id := range ids {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := d.checkLedger(id, fn); err != nil {
				return err
			}
		}
	}
}

// checkLedger reads every entry that the directory names of a ledger.
func (d *dir) checkLedger(id int64, fn func(error)) error {
	l, err := d.s.Ledger(id, false)
	if errors.Is(err, ErrNoLedger) {
		return nil
	}
	if err != nil {
		return err
	}
	defer l.Release()
	if l.d != d {
		return nil
	}
	v := l.view()
	list, err := d.loggedEntries(id, v.floor, nil)
	if err != nil {
		fn(fmt.Errorf("ledger %d: %w", id, err))
		return nil
	}
	for _, r := range joinRanges(slices.Clone(list)) {
		for e := r.First; ; e++ {
			_, err := d.checkEntry(id, e, v.floor)
			if err != nil && l.cached(&v, e) {
				err = nil // the copy on disk is about to be replaced
			}
			if err != nil {
				fn(fmt.Errorf("ledger %d entry %d: %w", id, e, err))
			}
			if e == r.Last {
				break
			}
		}
	}
	return nil
}

// cached reports whether a write cache holds the entry.
func (l *Ledger) cached(v *view, entry int64) bool {
	shard := uint32(l.id) % pinShards
	_, ok := l.d.readCached(&l.d.current, shard, l.id, entry, v.birth, nil)
	if !ok {
		_, ok = l.d.readCached(&l.d.flushing, shard, l.id, entry, v.birth, nil)
	}
	return ok
}

// checkEntry reads an entry around the caches.
func (d *dir) checkEntry(id, entry int64, floor entrylog.LogID) ([]byte, error) {
	var err error
	for range 3 { // compaction may move it meanwhile
		loc, lerr := d.locate(id, entry, floor)
		if errors.Is(lerr, errAbsent) || errors.Is(lerr, index.ErrNotFound) {
			return nil, nil // deleted meanwhile
		}
		if lerr != nil {
			return nil, lerr
		}
		var body []byte
		if body, err = d.log.Read(loc, nil); err == nil {
			if l, e := entrylog.IDs(body); l != id || e != entry {
				return nil, fmt.Errorf("%s holds ledger %d entry %d", loc, l, e)
			}
			return body, nil
		}
		if !errors.Is(err, entrylog.ErrNoLog) {
			return nil, err
		}
	}
	return nil, err
}
