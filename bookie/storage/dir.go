package storage

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/binderylog/bindery/bookie/index"
	"github.com/binderylog/bindery/entrylog"
	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/intent"
	"github.com/binderylog/bindery/internal/vfs"
)

// dir is one ledger directory.
//
// Which goroutine does what: callers put into the current cache and append to the list of changed states; the flusher
// alone swaps caches and appends to the entry log; the index keeper alone ingests. flushMu and indexMu belong to these two
// and to deletion and compaction, and are held across disk operations; no caller of a request ever waits for them.
type dir struct {
	s         *Storage
	index     int    // in Storage.dirs
	id        uint64 // its own, kept in its mark file
	path      string // of the ledger directory
	cur       string // path/current
	indexPath string // of the index file

	log      *entrylog.Store
	ix       index.Index
	intentMu sync.Mutex // held across writes of the log, by collection only
	intents  intent.Log // guarded by intentMu; nil after a failure that could not be mended
	tombs    atomic.Pointer[tombs]
	suspect  bool // the index was rebuilt from logs that do not prove everything

	// Write caches.
	caches   [2]*writeCache
	current  atomic.Pointer[writeCache]
	flushing atomic.Pointer[writeCache] // nil if nothing waits for its flush
	taken    atomic.Int64               // room that is reserved, or used in the current cache
	waiters  atomic.Int32
	roomMu   sync.Mutex
	roomCh   chan struct{} // closed and replaced when room came free
	dirtyMu  sync.Mutex
	dirty    []*Ledger // changed states, each pinned; guarded by dirtyMu
	pending  bool      // a flush has taken something that is not durable yet; guarded by dirtyMu

	// Overlay and location hints.
	overlayMu sync.Mutex
	ov        overlay
	gen       atomic.Uint64 // raised whenever an entry's place may have changed

	// Lives of re-created ledgers: see delete.go and births.go.
	maxLog    atomic.Uint32 // highest log id known to exist
	rollAbove atomic.Uint32 // the next flush must go to a higher log
	tombMu    sync.Mutex    // held while the set is replaced, across the write of its file

	// Flusher.
	flushMu   sync.Mutex // held for the length of a flush, while a compaction log is created and while floors are taken
	reqMu     sync.Mutex
	reqs      []*flushRequest // guarded by reqMu
	reqClosed bool            // guarded by reqMu
	wake      chan struct{}   // capacity 1
	urgent    chan struct{}   // capacity 1: ends a pause of the flush under way
	retry     *flushWork      // a flush that is under way or failed for lack of space; flusher only
	work      flushBuffers

	// Index keeper.
	indexMu      sync.Mutex    // held while the index is changed
	keeperWake   chan struct{} // capacity 1
	finalMu      sync.Mutex
	final        []entrylog.LogInfo             // logs to ingest, by id; guarded by finalMu
	compactions  map[entrylog.LogID]*compaction // by output; guarded by finalMu
	obsolete     map[entrylog.LogID]bool        // sources of finished compactions; guarded by finalMu
	rebuildNoted atomic.Bool
	wasLost      bool                // something was found missing at Open; constant afterwards
	recovered    *entrylog.Recovered // during Open

	// State.
	failed   atomic.Bool
	failMu   sync.Mutex
	failErr  error
	diskFull atomic.Bool
	noSpace  atomic.Bool   // a write found the disk full since the last check
	disk     atomic.Uint32 // a DiskState

	// Guarded by Storage.markMu.
	markFile vfs.File
	loaded   *markTable // what the mark file said at Open, nil if there was none
	last     *markTable // what it says
	mark     []uint64   // everything before is durable here
	written  dirMark    // the row in its own mark file
	caughtUp bool       // what replay brought is durable
	markSeq  uint64
	lost     bool
	lossErr  error

	// Load, for placing new ledgers; halved at each checkpoint.
	load atomic.Int64
	dirCounters
}

// dirCounters feed the metrics.
type dirCounters struct {
	puts, putBytes                             atomic.Uint64
	flushes, flushFailures, flushNanos         atomic.Uint64
	flushedEntries, flushedBytes               atomic.Uint64
	cacheHits, flushHits, readHits, diskReads  atomic.Uint64
	readErrors, ingested, ingestFailures       atomic.Uint64
	deleted, compactedBytes, cacheFull, stalls atomic.Uint64
	prefetched, aheadEntries, aheadBytes       atomic.Uint64
}

// tombs is the set of deleted ledgers with the highest birth number that had been given out when it was written: a state
// with a higher one belongs to a later life, whatever the set says.
type tombs struct {
	set    *idSet
	births uint32
}

// dead reports whether a live state with this birth number, or no state, is overruled by the set.
func (t *tombs) dead(id int64, birth uint32) bool { return birth <= t.births && t.set.contains(id) }

// pinWriter returns the current cache with a writer's pin.
func (d *dir) pinWriter(shard uint32) *writeCache {
	for {
		c := d.current.Load()
		c.writers[shard].n.Add(1)
		if d.current.Load() == c {
			return c
		}
		c.unpin(&c.writers, shard)
	}
}

// pinReader pins the cache that p holds, or returns nil: there is none, or its entries have moved on meanwhile, to where
// the caller looks next.
func (d *dir) pinReader(p *atomic.Pointer[writeCache], shard uint32) *writeCache {
	c := p.Load()
	if c == nil {
		return nil
	}
	c.readers[shard].n.Add(1)
	if d.current.Load() == c || d.flushing.Load() == c {
		return c
	}
	c.unpin(&c.readers, shard)
	return nil
}

func raise(v *atomic.Uint32, to uint32) {
	for {
		cur := v.Load()
		if cur >= to || v.CompareAndSwap(cur, to) {
			return
		}
	}
}

// holdLogs returns the highest log id given out, and makes the next flush go to a higher one.
func (d *dir) holdLogs() entrylog.LogID {
	top := d.maxLog.Load()
	raise(&d.rollAbove, top)
	return entrylog.LogID(top)
}

func (d *dir) addDirty(l *Ledger) {
	d.dirtyMu.Lock()
	d.dirty = append(d.dirty, l)
	d.dirtyMu.Unlock()
}

// takeDirty empties the list of changed states.
func (d *dir) takeDirty() []*Ledger {
	d.dirtyMu.Lock()
	defer d.dirtyMu.Unlock()
	list := d.dirty
	d.dirty = nil
	return list
}

// idle reports that nothing waits for a flush. What is stored after the call is appended to journals after it, too. pending
// is looked at last: a flush sets it before it takes anything away from where the other tests look.
func (d *dir) idle() bool {
	if d.flushing.Load() != nil || d.current.Load().used.Load() != cacheStart {
		return false
	}
	d.dirtyMu.Lock()
	defer d.dirtyMu.Unlock()
	return len(d.dirty) == 0 && !d.pending
}

func (d *dir) setPending(pending bool) {
	d.dirtyMu.Lock()
	d.pending = pending
	d.dirtyMu.Unlock()
}

// failure returns why the directory failed, or nil.
func (d *dir) failure() error {
	if !d.failed.Load() {
		return nil
	}
	d.failMu.Lock()
	defer d.failMu.Unlock()
	return fmt.Errorf("%w: %s: %w", ErrDirFailed, d.path, d.failErr)
}

// fail takes the directory out of service. Its ledgers' handles leave the table: whoever still holds one finds it in limbo
// and fenced and can not store through it, and the next request meets a ledger unknown here while a directory is missing.
func (d *dir) fail(err error) {
	d.failMu.Lock()
	if d.failErr != nil {
		d.failMu.Unlock()
		return
	}
	d.failErr = err
	d.failed.Store(true)
	d.failMu.Unlock()
	s := d.s
	if errors.Is(err, index.ErrFailed) && corrupt.Is(err) {
		d.wantRebuild(err)
	}
	s.degraded.Store(true)
	s.seqBase.Add(1 << seqFailureBits)
	s.log.Error("a ledger directory failed; its ledgers are answered as unknown until its share has been repaired", "dir", d.path, "err", err)
	s.ledgers.each(func(l *Ledger) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.d == d {
			l.Replica.Lose()
			s.ledgers.detach(l)
			if l.watches != nil {
				l.fire(true)
			}
		} else if l.elsewhere&(1<<d.index) != 0 && l.Replica.Lose() {
			l.StateChanged()
		}
	})
	d.wakeWaiters()
	s.goBackground(func() { s.noteFailure(d) }) // the caller may be in the middle of writing marks
	if s.o.OnDirFailed != nil {
		s.o.OnDirFailed(d.path, err)
	}
}

// evidence says what a directory has of a ledger.
type evidence uint8

const (
	evNone      evidence = iota // nothing
	evState                     // a state
	evStateless                 // entries, and no state
	evDamaged                   // a state that can not be trusted
)

// seqOfSet is the seq of a tombstone that only the set of deleted ledgers tells of: of its life nothing comes after it.
const seqOfSet = 1<<64 - 1

// lookupState returns what the directory knows of a ledger besides its entries, as far as that is durable.
func (d *dir) lookupState(id int64) (st state, ev evidence, err error) {
	t := d.tombs.Load()
	b, ok := d.ov.state(id)
	if !ok {
		b, ok, err = d.ix.State(id)
		if corrupt.Is(err) {
			d.s.log.Error("a ledger's state can not be read; the ledger is fenced and in limbo", "dir", d.path, "ledger", id, "err", err)
			return st, evDamaged, nil
		}
		if err != nil {
			return st, evNone, err
		}
	}
	if ok {
		st, err = parseState(id, b)
		if errors.Is(err, errStateVersion) {
			return st, evNone, err
		}
		switch {
		case err != nil:
			d.s.log.Error("a ledger's state is damaged; the ledger is fenced and in limbo", "dir", d.path, "ledger", id, "err", err)
			return state{}, evDamaged, nil
		case st.replica.Tombstone:
			return st, evState, nil
		case t.dead(id, st.birth):
			return state{replica: tombstoneOf(st.replica.Generation), seq: seqOfSet, birth: t.births}, evState, nil
		case d.suspect:
			return st, evDamaged, nil
		}
		return st, evState, nil
	}
	if t.set.contains(id) {
		return state{replica: tombstoneOf(0), seq: seqOfSet, birth: t.births}, evState, nil
	}
	if _, ok := d.ov.last(id, 0); ok {
		return st, evStateless, nil
	}
	switch _, err = d.ix.Last(id); {
	case err == nil:
		return st, evStateless, nil
	case corrupt.Is(err):
		return st, evDamaged, nil
	case errors.Is(err, index.ErrNotFound):
		return st, evNone, nil
	}
	return st, evNone, err
}
