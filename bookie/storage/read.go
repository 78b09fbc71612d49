package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/binderylog/bindery/bookie/index"
	"github.com/binderylog/bindery/entrylog"
	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/ledger"
)

// errAbsent says that no directory asked holds the entry; the ledger's rules decide what that means.
var errAbsent = errors.New("absent")

// view is what a read needs of a ledger's state.
type view struct {
	birth     uint32
	floor     entrylog.LogID
	elsewhere uint64
	tombstone bool
	limbo     bool
	known     bool
}

func (l *Ledger) view() view {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &l.Replica
	return view{l.birth, l.floor, l.elsewhere, r.Tombstone, r.Limbo, r.Known()}
}

// Read returns an entry's body in dst if that is large enough; entry -1 is the highest one. It fails with ErrNoEntry,
// ErrNoLedger (deleted), ErrUnknown, or a *corrupt.Error.
func (l *Ledger) Read(entry int64, dst []byte) ([]byte, error) {
	if entry == -1 {
		last, err := l.Last()
		if err != nil {
			return nil, err
		}
		entry = last
	}
	if entry < 0 {
		return nil, ErrNoEntry
	}
	for {
		v := l.view()
		if v.tombstone {
			return nil, ErrNoLedger
		}
		body, err := l.find(&v, entry, dst)
		if !errors.Is(err, errAbsent) {
			return body, err
		}
		if err := l.deny(&v, false); err != nil {
			return nil, err
		}
	}
}

// deny says what the absence of an entry that was looked for in view v means. It returns nil if the ledger has begun
// another life meanwhile: look again.
func (l *Ledger) deny(v *view, last bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.birth != v.birth && !l.Replica.Tombstone {
		return nil
	}
	verdict := l.Replica.Read(false)
	if last {
		verdict = l.Replica.ReadLast(false)
	}
	switch verdict {
	case ledger.NoEntry:
		return ErrNoEntry
	case ledger.NoLedger:
		return ErrNoLedger
	}
	return ErrUnknown
}

// find looks for an entry in every place in the order in which it moves through them.
func (l *Ledger) find(v *view, entry int64, dst []byte) ([]byte, error) {
	d := l.d
	if d.failed.Load() {
		return nil, ErrUnknown
	}
	if body, ok := l.readWriteCache(v, entry, dst); ok {
		return body, nil
	}
	body, err := d.readLogs(l.id, entry, v.floor, dst)
	if v.elsewhere == 0 || !errors.Is(err, errAbsent) {
		return body, err
	}
	for _, other := range d.s.dirs {
		if v.elsewhere&(1<<other.index) == 0 {
			continue
		}
		if other.failed.Load() {
			return nil, ErrUnknown
		}
		if body, err := other.readLogs(l.id, entry, 0, dst); !errors.Is(err, errAbsent) {
			return body, err
		}
	}
	return nil, errAbsent
}

// readWriteCache copies an entry out of the write caches, in the order in which it moves through them.
func (l *Ledger) readWriteCache(v *view, entry int64, dst []byte) ([]byte, bool) {
	d, shard := l.d, uint32(l.id)%pinShards
	if body, ok := d.readCached(&d.current, shard, l.id, entry, v.birth, dst); ok {
		d.cacheHits.Add(1)
		return body, true
	}
	body, ok := d.readCached(&d.flushing, shard, l.id, entry, v.birth, dst)
	if ok {
		d.flushHits.Add(1)
	}
	return body, ok
}

// readCached copies an entry out of a write cache.
func (d *dir) readCached(p *atomic.Pointer[writeCache], shard uint32, id, entry int64, birth uint32, dst []byte) ([]byte, bool) {
	c := d.pinReader(p, shard)
	if c == nil {
		return nil, false
	}
	defer c.unpin(&c.readers, shard)
	body := c.get(id, entry, birth)
	if body == nil {
		return nil, false
	}
	return append(dst[:0], body...), true
}

// readLogs reads an entry from the entry logs, by way of the read cache, and lists it as damaged if it can not be read.
func (d *dir) readLogs(id, entry int64, floor entrylog.LogID, dst []byte) ([]byte, error) {
	body, located, err := d.lookUp(id, entry, floor, dst, (*dir).readAt)
	if err != nil && located {
		d.readErrors.Add(1)
		d.noteDamaged(id, entry, err)
	}
	return body, err
}

// noteDamaged puts an entry that is there and can not be read on the list, unless the fault may pass.
func (d *dir) noteDamaged(id, entry int64, err error) {
	if corrupt.Is(err) || errors.Is(err, fs.ErrNotExist) {
		d.s.damaged.add(Damaged{id, entry})
	}
}

// lookUp finds the place of an entry in the entry logs and reads it there with read. A place whose log has gone was moved by
// a compaction: it is looked up again before that is an error (decision 10). located says that an error is the log's and not
// the index's.
func (d *dir) lookUp(id, entry int64, floor entrylog.LogID, dst []byte, read func(d *dir, id, entry int64, loc entrylog.Location, dst []byte) ([]byte, error)) (body []byte, located bool, err error) {
	var loc entrylog.Location
	for range 3 {
		if loc, err = d.locate(id, entry, floor); err != nil {
			return nil, false, err
		}
		body, err = read(d, id, entry, loc, dst)
		if err == nil {
			return body, true, nil
		}
		if !errors.Is(err, entrylog.ErrNoLog) {
			return nil, true, fmt.Errorf("ledger %d entry %d: %w", id, entry, err)
		}
	}
	return nil, true, fmt.Errorf("ledger %d entry %d: %w", id, entry, corrupt.New(d.indexPath, 0, "entry location", fmt.Errorf("%s: %w", loc, err)))
}

// locate returns an entry's newest place: overlay, then what the index said last, then index.
func (d *dir) locate(id, entry int64, floor entrylog.LogID) (entrylog.Location, error) {
	gen := d.gen.Load()
	if loc, ok := d.locateCached(id, entry, floor); ok {
		return loc, nil
	}
	r, err := d.ix.LocateRun(id, entry)
	switch {
	case err == nil && r.Log <= floor:
		return entrylog.Location{}, errAbsent
	case err == nil:
		loc, ok := r.Find(entry)
		if !ok {
			return loc, d.indexError(corrupt.Errorf(d.indexPath, 0, "run", "run of ledger %d from %d to %d was found for entry %d", id, r.First, r.Last(), entry))
		}
		d.s.cache.remember(d, gen, entry, &r.Run)
		return loc, nil
	case errors.Is(err, index.ErrNotFound):
		return entrylog.Location{}, errAbsent
	}
	return entrylog.Location{}, d.indexError(err)
}

// indexError turns an index's error into what a read reports, and takes the directory out of service if its index is.
func (d *dir) indexError(err error) error {
	if errors.Is(err, index.ErrFailed) {
		d.fail(err)
		return ErrUnknown
	}
	if corrupt.Is(err) {
		d.wantRebuild(err)
	}
	return err
}

// readAt reads the entry whose record lies at loc.
func (d *dir) readAt(id, entry int64, loc entrylog.Location, dst []byte) ([]byte, error) {
	cache := d.s.cache
	if loc.Size <= blockEntryMax {
		b := cache.get(d.index, loc)
		if b != nil {
			d.readHits.Add(1)
		} else {
			var err error
			if b, err = d.readBlock(id, entry, loc); err != nil {
				return nil, err
			}
		}
		if b != nil {
			defer cache.release(b)
			if body := b.body(loc, id, entry); body != nil {
				dst = append(dst[:0], body...)
				cache.ahead.read(d, id, entry, b)
				return dst, nil
			}
		}
	}
	return d.readRecord(id, entry, loc, dst)
}

// readRecord reads the entry whose record lies at loc around the read cache.
func (d *dir) readRecord(id, entry int64, loc entrylog.Location, dst []byte) ([]byte, error) {
	body, err := d.log.Read(loc, dst)
	if err != nil {
		return nil, err
	}
	if gotLedger, gotEntry := entrylog.IDs(body); gotLedger != id || gotEntry != entry {
		return nil, corrupt.Errorf(d.indexPath, 0, "entry location", "%s holds ledger %d entry %d", loc, gotLedger, gotEntry)
	}
	return body, nil
}

// readBlock reads a piece of a log that holds the record at loc into the cache. It returns its block with a reference, or
// nil if that can not be cached or can not be read: the record is then read by itself. It fails with entrylog.ErrNoLog.
func (d *dir) readBlock(id, entry int64, loc entrylog.Location) (*block, error) {
	ahead := &d.s.cache.ahead
	n, wait := ahead.miss(id, entry, loc)
	if wait != nil {
		<-wait
		if b := d.s.cache.get(d.index, loc); b != nil {
			d.readHits.Add(1)
			return b, nil
		}
		n, _ = ahead.miss(id, entry, loc)
		n = max(n, aheadMin, entrylog.RecordHeaderSize+int(loc.Size))
	}
	d.diskReads.Add(1)
	f, err := ahead.fetch(d, id, loc.Log, loc.Offset, n, loc.Size)
	switch {
	case errors.Is(err, entrylog.ErrNoLog):
		return nil, err
	case err != nil:
		return nil, nil
	}
	ahead.arm(d, id, loc.Log, f)
	return d.s.cache.get(d.index, loc), nil
}

// Last returns the highest entry id stored here, ErrNoEntry if there is none, or ErrUnknown in limbo.
func (l *Ledger) Last() (int64, error) {
	for {
		v := l.view()
		switch {
		case v.tombstone:
			return -1, ErrNoLedger
		case v.limbo:
			return -1, ErrUnknown
		}
		last, err := l.lastStored(&v)
		if err != nil {
			return -1, err
		}
		if last >= 0 {
			return last, nil
		}
		if err := l.deny(&v, true); err != nil {
			return -1, err
		}
	}
}

// lastStored returns the highest entry id in all places, -1 if there is none.
func (l *Ledger) lastStored(v *view) (int64, error) {
	d := l.d
	if d.failed.Load() {
		return -1, ErrUnknown
	}
	last := max(l.lastCached(&d.current), l.lastCached(&d.flushing))
	n, err := d.lastLogged(l.id, v.floor)
	if err != nil {
		return -1, err
	}
	last = max(last, n)
	for _, other := range d.s.dirs {
		if v.elsewhere&(1<<other.index) == 0 {
			continue
		}
		if other.failed.Load() {
			return -1, ErrUnknown
		}
		if n, err = other.lastLogged(l.id, 0); err != nil {
			return -1, err
		}
		last = max(last, n)
	}
	return last, nil
}

func (l *Ledger) lastCached(p *atomic.Pointer[writeCache]) int64 {
	shard := uint32(l.id) % pinShards
	c := l.d.pinReader(p, shard)
	if c == nil {
		return -1
	}
	defer c.unpin(&c.readers, shard)
	l.mu.Lock()
	defer l.mu.Unlock()
	if ref := l.in[c.slot]; ref.epoch == c.epoch {
		return ref.last
	}
	return -1
}

func (d *dir) lastLogged(id int64, floor entrylog.LogID) (int64, error) {
	last, _ := d.ov.last(id, floor)
	n, err := d.ix.Last(id)
	switch {
	case errors.Is(err, index.ErrNotFound):
		return last, nil
	case err != nil:
		return -1, d.indexError(err)
	case n <= last:
		return last, nil
	case floor == 0:
		return n, nil
	}
	// The ledger had an earlier life here: the index may still hold runs of it.
	for r, err := range d.ix.Runs(id, 0) {
		if err != nil {
			return -1, d.indexError(err)
		}
		if r.Log > floor {
			last = max(last, r.Last())
		}
	}
	return last, nil
}

// LAC returns the highest LAC that the stored entries and the explicit LAC carry, -1 if there is none. Of the entries on
// disk only the last one is asked, and only the first time.
func (l *Ledger) LAC() (int64, error) {
	l.mu.Lock()
	lac, known, limbo, tombstone := l.lac, l.lacKnown, l.Replica.Limbo, l.Replica.Tombstone
	l.mu.Unlock()
	switch {
	case tombstone:
		return -1, ErrNoLedger
	case limbo:
		return -1, ErrUnknown
	case known:
		return lac, nil
	}
	buf := bodies.Get().(*[]byte)
	defer bodies.Put(buf)
	body, err := l.Read(-1, *buf)
	if err != nil && !errors.Is(err, ErrNoEntry) {
		return -1, err
	}
	stored := int64(-1)
	if err == nil {
		*buf = body
		stored = int64(binary.BigEndian.Uint64(body[16:24]))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lac = max(l.lac, stored)
	l.lacKnown = true
	return l.lac, nil
}

// bodies holds buffers for reads whose result is not handed out.
var bodies = sync.Pool{New: func() any { return new([]byte) }}

// Range is a run of entry ids, both ends included.
type Range struct{ First, Last int64 }

// Entries returns the ids of the ledger's entries, ascending. It fails as Last does.
func (l *Ledger) Entries() ([]Range, error) {
	v := l.view()
	switch {
	case v.tombstone || !v.known:
		return nil, ErrNoLedger
	case v.limbo || l.d.failed.Load():
		return nil, ErrUnknown
	}
	list := l.cachedEntries(&l.d.current, nil)
	list = l.cachedEntries(&l.d.flushing, list)
	list, err := l.d.loggedEntries(l.id, v.floor, list)
	if err != nil {
		return nil, err
	}
	for _, other := range l.d.s.dirs {
		if v.elsewhere&(1<<other.index) != 0 {
			if other.failed.Load() {
				return nil, ErrUnknown
			}
			if list, err = other.loggedEntries(l.id, 0, list); err != nil {
				return nil, err
			}
		}
	}
	return joinRanges(list), nil
}

func (l *Ledger) cachedEntries(p *atomic.Pointer[writeCache], list []Range) []Range {
	shard := uint32(l.id) % pinShards
	c := l.d.pinReader(p, shard)
	if c == nil {
		return list
	}
	defer c.unpin(&c.readers, shard)
	l.mu.Lock()
	ref := l.in[c.slot]
	ok := ref.epoch == c.epoch
	l.mu.Unlock()
	for at := ref.head; ok && at != 0; {
		r := c.record(at)
		list = append(list, Range{r.entry, r.entry})
		at = r.prev
	}
	return list
}

func (d *dir) loggedEntries(id int64, floor entrylog.LogID, list []Range) ([]Range, error) {
	for _, p := range d.ov.load() {
		if p.log <= floor {
			continue
		}
		blocks := p.ledgerBlocks(id)
		for i := range blocks {
			var r pageRun
			for c := p.cursor(&blocks[i]); c.read(&r); {
				list = append(list, Range{r.first, r.last()})
			}
		}
	}
	for r, err := range d.ix.Runs(id, 0) {
		if err != nil {
			return nil, d.indexError(err)
		}
		if r.Log > floor {
			list = append(list, Range{r.First, r.Last()})
		}
	}
	return list, nil
}

// joinRanges sorts ranges and joins those that touch or overlap.
func joinRanges(list []Range) []Range {
	slices.SortFunc(list, func(a, b Range) int { return compareInt64(a.First, b.First) })
	out := list[:0]
	for _, r := range list {
		if n := len(out); n > 0 && r.First-1 <= out[n-1].Last {
			out[n-1].Last = max(out[n-1].Last, r.Last)
			continue
		}
		out = append(out, r)
	}
	return out
}
