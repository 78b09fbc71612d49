package storage

import "github.com/binderylog/bindery/entrylog"

// Cached returns the pinned handle of a ledger if it is in memory, nil otherwise. It waits for no disk.
func (s *Storage) Cached(id int64) *Ledger {
	if id < 0 {
		return nil
	}
	return s.ledgers.cached(id)
}

// ReadCached is Read for an entry that a write cache holds, or the read cache at a place that is known without the index,
// whose pages may have to be fetched. It waits for no disk. ok is false for everything else, also for what is not there:
// ask Read.
func (l *Ledger) ReadCached(entry int64, dst []byte) (body []byte, ok bool) {
	v, d := l.view(), l.d
	if entry < 0 || v.tombstone || d.failed.Load() {
		return nil, false
	}
	if body, ok := l.readWriteCache(&v, entry, dst); ok {
		return body, true
	}
	loc, ok := d.locateCached(l.id, entry, v.floor)
	if !ok || loc.Size > blockEntryMax {
		return nil, false
	}
	cache := d.s.cache
	b := cache.get(d.index, loc)
	if b == nil {
		return nil, false
	}
	defer cache.release(b)
	found := b.body(loc, l.id, entry)
	if found == nil {
		return nil, false
	}
	d.readHits.Add(1)
	body = append(dst[:0], found...)
	cache.ahead.read(d, l.id, entry, b)
	return body, true
}

// locateCached is locate without the index.
func (d *dir) locateCached(id, entry int64, floor entrylog.LogID) (entrylog.Location, bool) {
	if loc, ok := d.ov.find(id, entry, floor); ok {
		return loc, true
	}
	loc, ok := d.s.cache.locate(d, id, entry)
	return loc, ok && loc.Log > floor
}

// LACCached is LAC if that is known without reading an entry, and if the ledger may tell it.
func (l *Ledger) LACCached() (lac int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lac, l.lacKnown && !l.Replica.Limbo && !l.Replica.Tombstone
}
