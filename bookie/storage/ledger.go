package storage

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/binderylog/bindery/entrylog"
	"github.com/binderylog/bindery/internal/ledger"
)

// Ledger is the one handle of a ledger. Its lock guards Replica and orders the ledger's adds, fences and journal
// records: the caller locks it, asks Replica, calls Put or StateChanged, appends to the journal, and unlocks. Nothing that
// waits for a disk or a socket may be called while it is held; of this type that is Reserve, LAC, Last, Read,
// Entries and Watch.
type Ledger struct {
	// Replica is the ledger's durable state, read and changed under the lock. After a change call StateChanged.
	Replica ledger.Replica

	mu sync.Mutex
	s  *Storage
	d  *dir // home: where entries and states go
	id int64

	// Guarded by mu.
	seq       uint64
	lac       int64 // highest LAC seen since the handle was loaded
	watches   *Watch
	born      []bornMark
	in        [2]cacheRef // by writeCache.slot
	run       uint32
	birth     uint32
	floor     entrylog.LogID
	elsewhere uint64 // other directories that hold entries of it, by dir.index
	dirty     bool   // in dir.dirty, and pinned for it
	leaving   bool   // a flush under way writes its state
	lacKnown  bool   // lac covers what is on disk
	tombstone bool   // deleted, and no later life has begun
	unproven  bool   // loaded without proof of its state: in limbo and fenced whatever replay says
	stateless bool   // loaded with entries and without a state
	reseen    bool   // replay has met a state of this life
	loaded    bool   // its state was on disk when the handle was loaded

	refs  int32       // guarded by the table's shard
	ready atomic.Bool // loaded; until then the loader holds mu
	err   error       // why loading failed; written before ready

	// Place in the shard's list of idle handles, oldest first. Guarded by the shard.
	idlePrev, idleNext *Ledger
}

// ID returns the ledger's id.
func (l *Ledger) ID() int64 { return l.id }

// Lock takes the ledger's lock.
func (l *Ledger) Lock() { l.mu.Lock() }

// Unlock releases it.
func (l *Ledger) Unlock() { l.mu.Unlock() }

// Release ends the use of the handle.
func (l *Ledger) Release() { l.s.ledgers.release(l) }

// Put stores an entry in room that was reserved; it is visible to reads at once and wakes watchers whose LAC it passes.
// The ledger is locked. It fails only if the directory has failed meanwhile, or if body is not what it is said to be; the
// room is used up in any case.
func (l *Ledger) Put(entry int64, body []byte) error {
	d := l.d
	if err := checkBody(l.id, entry, body); err != nil {
		l.Unreserve(len(body))
		return err
	}
	if d.failed.Load() {
		l.Unreserve(len(body))
		return d.failure()
	}
	if l.tombstone { // the state follows in the same critical section
		l.reborn()
	}
	shard := uint32(l.id) % pinShards
	c := d.pinWriter(shard)
	ref := &l.in[c.slot]
	first := ref.epoch != c.epoch
	if first {
		*ref = cacheRef{epoch: c.epoch, last: -1}
	}
	at, ok := c.put(l.id, entry, l.birth, ref.head, body)
	if ok {
		ref.head, ref.last = at, max(ref.last, entry)
		if first {
			l.s.ledgers.pin(l)
			c.mu.Lock()
			c.ledgers = append(c.ledgers, l)
			c.mu.Unlock()
		}
	} else if first {
		ref.epoch = 0
	}
	c.unpin(&c.writers, shard)
	if !ok { // room was reserved: only a caller that did not gets here
		l.Unreserve(len(body))
		return ErrCacheFull
	}
	d.puts.Add(1)
	d.putBytes.Add(uint64(len(body)))
	l.advance(int64(binary.BigEndian.Uint64(body[16:24])))
	return nil
}

func checkBody(id, entry int64, body []byte) error {
	if len(body) < MinEntry || len(body) > MaxEntry {
		return fmt.Errorf("%w: %d bytes, allowed are %d to %d", ErrBadEntry, len(body), MinEntry, MaxEntry)
	}
	if gotLedger, gotEntry := entrylog.IDs(body); gotLedger != id || gotEntry != entry || id < 0 || entry < 0 {
		return fmt.Errorf("%w: body says ledger %d entry %d, the add says %d and %d", ErrBadEntry, gotLedger, gotEntry, id, entry)
	}
	return nil
}

// advance raises the LAC. The ledger is locked.
func (l *Ledger) advance(lac int64) {
	if lac > l.lac {
		l.lac = lac
		if l.watches != nil {
			l.fire(false)
		}
	}
}

// StateChanged notes that Replica changed: the new state goes out with the next checkpoint. The ledger is locked. It must
// be called before the state's record is appended to a journal. It wakes watchers whose LAC was passed, and all of them if
// the ledger is fenced or deleted now.
func (l *Ledger) StateChanged() {
	if l.s.source.Load() != nil {
		l.seq = max(l.seq+1, l.s.seqBase.Load())
	} else {
		l.seq = max(l.seq, 1) // replay may still bring a newer state, which must not look older than this one
	}
	r := &l.Replica
	if r.Deferred && l.run == 0 {
		l.run = l.s.run
	} else if !r.Deferred {
		l.run = 0
	}
	if l.tombstone && !r.Tombstone {
		l.reborn()
	}
	l.tombstone = r.Tombstone
	l.lac = max(l.lac, int64(r.LAC()))
	l.markDirty()
	if l.watches != nil {
		l.fire(r.Fenced || r.Tombstone)
	}
}

// reborn begins another life of a deleted ledger: nothing in the logs up to now, and nothing in the journal before this
// point, is its own. The ledger is locked, and the deletion has taken its entries out of the caches.
func (l *Ledger) reborn() {
	l.tombstone = false
	l.birth = l.s.births.next(l.id)
	l.floor = l.d.holdLogs()
	l.born = l.s.bornNow()
	l.in = [2]cacheRef{}
	l.elsewhere = 0
	l.lac, l.lacKnown = -1, true
}

// markDirty puts the handle on its directory's list of changed states. The ledger is locked.
func (l *Ledger) markDirty() {
	if l.dirty {
		return
	}
	l.dirty = true
	l.s.ledgers.pin(l)
	l.d.addDirty(l)
}

// state returns the durable part. The ledger is locked.
func (l *Ledger) state() state {
	return state{replica: l.Replica, seq: l.seq, run: l.run, birth: l.birth, floor: l.floor, born: l.born}
}

// AppendState appends the payload of a KindState record. The ledger is locked.
func (l *Ledger) AppendState(dst []byte) []byte {
	st := l.state()
	return appendState(dst, l.id, &st)
}

// setState installs a loaded or replayed state. The ledger is locked.
func (l *Ledger) setState(st *state) {
	l.Replica = st.replica
	l.seq, l.run, l.birth, l.floor, l.born = st.seq, st.run, st.birth, st.floor, st.born
	l.tombstone = st.replica.Tombstone
	raise(&l.d.rollAbove, uint32(st.floor))
	l.lac = max(l.lac, int64(l.Replica.LAC()))
}

// Watch is a registered wait for a LAC.
type Watch struct {
	after int64
	fn    func(lac int64)
	next  *Watch
	fired bool
}

// Watch calls fn once, with the ledger locked, as soon as the LAC exceeds after, or the ledger is fenced or deleted; fn
// must not block nor call the ledger. If that is so already, waiting is false and fn is not kept. The watch is dropped
// with Unwatch, and until then keeps the handle.
func (l *Ledger) Watch(after int64, fn func(lac int64)) (w *Watch, waiting bool, err error) {
	if _, err := l.LAC(); err != nil {
		return nil, false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lac > after || l.Replica.Fenced || l.Replica.Tombstone {
		return nil, false, nil
	}
	w = &Watch{after: after, fn: fn, next: l.watches}
	l.watches = w
	l.s.ledgers.pin(l)
	return w, true, nil
}

// Unwatch ends a watch and reports whether fn was not called and never will be. It must not be called from fn.
func (l *Ledger) Unwatch(w *Watch) bool {
	l.mu.Lock()
	for p := &l.watches; *p != nil; p = &(*p).next {
		if *p == w {
			*p = w.next
			break
		}
	}
	fired := w.fired
	w.fired = true
	l.mu.Unlock()
	if !fired {
		l.s.ledgers.release(l)
	}
	return !fired
}

// fire calls the watches that have what they wait for. The ledger is locked.
func (l *Ledger) fire(all bool) {
	for p := &l.watches; *p != nil; {
		w := *p
		if !all && l.lac <= w.after {
			p = &w.next
			continue
		}
		*p = w.next
		w.fired = true
		w.fn(l.lac)
		l.s.ledgers.release(l)
	}
}
