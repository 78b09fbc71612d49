package storage

import (
	"context"
	"fmt"
	"slices"
)

// Rejournal lets a directory that can not flush, since its disk is full, give up its hold on old journal segments
// (decision 13): what it has not flushed is appended again at the head, and its mark moves there. All methods are called
// on a flusher's goroutine.
type Rejournal interface {
	// Pinned reports whether a mark holds back more of some journal than it should: more than 4 segments.
	Pinned(mark []uint64) bool
	// Reserve makes room for n bytes of records of a ledger. It may block; no lock is held.
	Reserve(ledger int64, n int) error
	// Release gives back room that was not used.
	Release(ledger int64, n int)
	// Append appends a record to the ledger's journal, in reserved room. The ledger is locked; it must not block.
	Append(ledger int64, kind uint8, payload []byte) error
	// Sync returns once everything appended is durable.
	Sync(ctx context.Context) error
}

// rejournal appends again what the directory could not flush, if it pins too much. It is called after a failed flush.
func (d *dir) rejournal() error {
	j := d.s.o.Rejournal
	if j == nil || d.s.source.Load() == nil || !j.Pinned(d.markNow()) {
		return nil
	}
	// Everything unflushed that lies before this mark is appended once more behind it. What comes meanwhile lies behind it
	// by itself.
	mark := d.s.takeMark()
	n := 0
	for _, l := range d.unflushed() {
		bytes, err := l.appendAgain(j)
		l.Release()
		if err != nil {
			return fmt.Errorf("append unflushed entries to the journal again: %w", err)
		}
		n += bytes
	}
	if err := j.Sync(d.s.ctx); err != nil {
		return fmt.Errorf("append unflushed entries to the journal again: %w", err)
	}
	d.s.log.Warn("a directory that can not flush held the journals back; its unflushed entries were appended again", "dir", d.path, "bytes", n)
	return d.s.advance(d, mark)
}

func (d *dir) markNow() []uint64 {
	d.s.markMu.Lock()
	defer d.s.markMu.Unlock()
	return slices.Clone(d.mark)
}

// unflushed returns every ledger with entries in a write cache, or with a state that is not durable, pinned, each once.
func (d *dir) unflushed() []*Ledger {
	var all []*Ledger
	for _, c := range []*writeCache{d.flushing.Load(), d.current.Load()} {
		if c != nil {
			c.mu.Lock()
			all = append(all, c.ledgers...)
			c.mu.Unlock()
		}
	}
	d.dirtyMu.Lock()
	all = append(all, d.dirty...)
	d.dirtyMu.Unlock()
	if d.retry != nil {
		all = append(all, d.retry.changed...)
	}
	slices.SortFunc(all, func(a, b *Ledger) int { return compareInt64(a.id, b.id) })
	all = slices.Compact(all)
	for _, l := range all {
		d.s.ledgers.pin(l)
	}
	return all
}

// appendAgain appends the ledger's state and the latest copy of each of its cached entries.
func (l *Ledger) appendAgain(j Rejournal) (int, error) {
	for {
		l.mu.Lock()
		need := l.unflushedBytes()
		l.mu.Unlock()
		if err := j.Reserve(l.id, need); err != nil {
			return 0, err
		}
		used, ok, err := l.tryAppendAgain(j, need)
		j.Release(l.id, need-used)
		if ok || err != nil {
			return used, err
		}
	}
}

// tryAppendAgain appends what the ledger has unflushed unless that has become more than n bytes.
func (l *Ledger) tryAppendAgain(j Rejournal, n int) (used int, ok bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unflushedBytes() > n {
		return 0, false, nil
	}
	state := l.AppendState(nil)
	if err := j.Append(l.id, KindState, state); err != nil {
		return 0, false, err
	}
	used = len(state)
	for _, e := range l.cachedLatest() {
		if err := j.Append(l.id, KindEntry, e.body); err != nil {
			return used, false, err
		}
		used += len(e.body)
	}
	return used, true, nil
}

// unflushedBytes bounds what tryAppendAgain appends. The ledger is locked.
func (l *Ledger) unflushedBytes() int {
	n := len(l.AppendState(nil))
	for _, e := range l.cachedLatest() {
		n += len(e.body)
	}
	return n
}

type cachedEntry struct {
	entry int64
	order int // of arrival, the latest first
	body  []byte
}

// cachedLatest returns the latest copy of each entry in the write caches, ascending. The ledger is locked, and the flusher
// is the caller, so no cache is reset meanwhile; another swap is not possible either.
func (l *Ledger) cachedLatest() []cachedEntry {
	var list []cachedEntry
	for _, c := range []*writeCache{l.d.current.Load(), l.d.flushing.Load()} {
		if c == nil {
			continue
		}
		ref := l.in[c.slot]
		if ref.epoch != c.epoch {
			continue
		}
		for at := ref.head; at != 0; {
			r := c.record(at)
			list = append(list, cachedEntry{r.entry, len(list), r.body})
			at = r.prev
		}
	}
	slices.SortFunc(list, func(a, b cachedEntry) int {
		if a.entry != b.entry {
			return compareInt64(a.entry, b.entry)
		}
		return a.order - b.order
	})
	return slices.CompactFunc(list, func(a, b cachedEntry) bool { return a.entry == b.entry })
}
