package storage

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/binderylog/bindery/internal/invariant"
	"github.com/binderylog/bindery/internal/vfs"
)

// births counts the lives of ledgers that were deleted here and came back, over all directories: a ledger may come back in
// another one.
//
// A directory's file of deleted ledgers carries the highest birth number given out when it was written; a ledger in it is
// dead unless its state has a higher one. The file is therefore only written with a higher number when every life up to
// that number is known, and every ledger that came back is taken out of it at the same time. Hence
//   - it is not written during replay: what replay has yet to bring may be such a life;
//   - a life that a look-up meets is noted, since the journal may not have it;
//   - a ledger that comes back while its deletion is under way is neither left in the file nor put into it.
type births struct {
	mu      sync.Mutex
	dirs    []*dir
	highest uint32               // guarded by mu
	deleted map[int64]struct{}   // by a deletion under way; guarded by mu
	back    []map[int64]struct{} // by dir.index: came back, and the directory's file may name it; guarded by mu
}

// init begins with what the directories' files say.
func (b *births) init(dirs []*dir) {
	b.dirs, b.back, b.deleted = dirs, make([]map[int64]struct{}, len(dirs)), map[int64]struct{}{}
	for i, d := range dirs {
		b.back[i] = map[int64]struct{}{}
		b.highest = max(b.highest, d.tombs.Load().births)
		if d.loaded != nil {
			b.highest = max(b.highest, d.loaded.births)
		}
	}
}

// next gives out a birth number for a ledger that comes back.
func (b *births) next(id int64) uint32 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.highest++
	b.noteLocked(id, b.highest)
	return b.highest
}

// note learns of a life that replay or a look-up met.
func (b *births) note(id int64, birth uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.highest = max(b.highest, birth)
	b.noteLocked(id, birth)
}

func (b *births) noteLocked(id int64, birth uint32) {
	_, deleted := b.deleted[id]
	for i, d := range b.dirs {
		if t := d.tombs.Load(); deleted || birth > t.births && t.set.contains(id) {
			b.back[i][id] = struct{}{}
		}
	}
}

func (b *births) now() uint32 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.highest
}

// dying announces a deletion, until the returned function is called.
func (b *births) dying(ids []int64) (done func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range ids {
		b.deleted[id] = struct{}{}
	}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, id := range ids {
			delete(b.deleted, id)
		}
	}
}

// take returns the highest number and, sorted, the ledgers to take out of a directory's file. Those of a deletion under way
// stay listed: it may still want to put them in.
func (b *births) take(dir int) (highest uint32, back []int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	back = slices.Sorted(maps.Keys(b.back[dir]))
	for _, id := range back {
		if _, deleted := b.deleted[id]; !deleted {
			delete(b.back[dir], id)
		}
	}
	return b.highest, back
}

// giveBack undoes take.
func (b *births) giveBack(dir int, back []int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range back {
		b.back[dir][id] = struct{}{}
	}
}

// replaceTombstones writes the file of deleted ledgers with the given ledgers added and those taken out that came back.
func (d *dir) replaceTombstones(add []int64) error {
	d.tombMu.Lock()
	defer d.tombMu.Unlock()
	births, back := d.s.births.take(d.index)
	add = slices.DeleteFunc(slices.Sorted(slices.Values(add)), func(id int64) bool {
		_, found := slices.BinarySearch(back, id)
		return found
	})
	t := &tombs{set: d.tombs.Load().set.remove(back).add(slices.Compact(add)), births: births}
	write := func() error { return writeTombstones(d.s.fs, d.cur, t.set, t.births) }
	err := write()
	if vfs.IsNoSpace(err) && d.useReserve("the list of deleted ledgers") {
		err = write()
	}
	if err != nil {
		d.s.births.giveBack(d.index, back)
		return fmt.Errorf("write deleted ledgers: %w", err)
	}
	d.tombs.Store(t)
	invariant.CrashPoint("storage.tombstones.written")
	return nil
}

// forgetTombstones takes ledgers that came back out of the file of deleted ones, if there are any.
func (d *dir) forgetTombstones() error {
	if d.s.source.Load() == nil {
		return nil // replay goes on
	}
	b := &d.s.births
	b.mu.Lock()
	n := len(b.back[d.index])
	b.mu.Unlock()
	if n == 0 {
		return nil
	}
	return d.replaceTombstones(nil)
}

// compareTombstones takes ledgers out of the file of a directory that was away which came back in another directory
// meanwhile. It must come before anything is written here with this run's number.
func (d *dir) compareTombstones(away uint64) error {
	t := d.tombs.Load()
	var back []int64
	for r := range t.set.all() {
		for id := r.first; id <= r.last && id >= 0; id++ {
			alive, err := d.aliveElsewhere(id, t.births, away)
			if err != nil {
				return err
			}
			if alive {
				back = append(back, id)
			}
		}
	}
	if len(back) == 0 {
		return nil
	}
	t = &tombs{set: t.set.remove(back), births: t.births}
	if err := writeTombstones(d.s.fs, d.cur, t.set, t.births); err != nil {
		return fmt.Errorf("write deleted ledgers: %w", err)
	}
	d.tombs.Store(t)
	return nil
}

// aliveElsewhere reports whether another directory has a life of a ledger above the given birth number or seq.
func (d *dir) aliveElsewhere(id int64, birth uint32, seq uint64) (bool, error) {
	for _, other := range d.s.dirs {
		if other == d {
			continue
		}
		st, ev, err := other.lookupState(id)
		if err != nil {
			return false, fmt.Errorf("look for the deleted ledger %d in %s: %w", id, other.path, err)
		}
		if ev == evState && !st.replica.Tombstone && (st.birth > birth || st.seq >= seq) {
			return true, nil
		}
	}
	return false, nil
}
