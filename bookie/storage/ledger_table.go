package storage

import (
	"fmt"
	"sync"
)

// ledgerTable holds the handles, at most one per ledger. A handle is kept while it is pinned: by a user, by a write cache
// with entries of it, by the list of changed states, by a watch. Some unpinned ones are kept as well, since the next
// request often names the same ledger; the others are dropped, and an idle ledger then costs nothing here.
type ledgerTable struct {
	s       *Storage
	idleMax int // per shard
	shards  [tableShards]tableShard
}

const tableShards = 256

type tableShard struct {
	mu      sync.Mutex
	handles map[int64]*Ledger
	idle    Ledger // ring of unpinned handles, oldest next
	idles   int
	_       [64]byte
}

func (t *ledgerTable) init(s *Storage, idleMax int) {
	t.s, t.idleMax = s, max(1, idleMax/tableShards)
	for i := range t.shards {
		sh := &t.shards[i]
		sh.handles = map[int64]*Ledger{}
		sh.idle.idlePrev, sh.idle.idleNext = &sh.idle, &sh.idle
	}
}

func (t *ledgerTable) shard(id int64) *tableShard {
	return &t.shards[uint64(id)*0x9E3779B97F4A7C15>>56]
}

// get returns the pinned handle of a ledger, loading it if there is none. Exactly one caller loads it, with the handle's
// own lock held; the others wait for that lock.
func (t *ledgerTable) get(id int64) (*Ledger, error) {
	sh := t.shard(id)
	sh.mu.Lock()
	l := sh.handles[id]
	if l != nil {
		if l.refs == 0 {
			sh.unlinkIdle(l)
		}
		l.refs++
		sh.mu.Unlock()
		if !l.ready.Load() {
			l.mu.Lock()   // the loader holds it until the handle is ready
			l.mu.Unlock() //nolint:staticcheck // nothing to do but wait
		}
		if l.err != nil {
			t.release(l)
			return nil, l.err
		}
		return l, nil
	}
	l = &Ledger{s: t.s, id: id, refs: 1, lac: -1}
	l.mu.Lock()
	sh.handles[id] = l
	sh.mu.Unlock()
	l.err = t.s.load(l)
	l.ready.Store(true)
	l.mu.Unlock()
	if l.err != nil {
		sh.mu.Lock()
		if sh.handles[id] == l {
			delete(sh.handles, id) // the next caller tries again
		}
		sh.mu.Unlock()
		t.release(l)
		return nil, fmt.Errorf("ledger %d: %w", id, l.err)
	}
	return l, nil
}

// cached returns the pinned handle of a ledger if there is one that is loaded.
func (t *ledgerTable) cached(id int64) *Ledger {
	sh := t.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	l := sh.handles[id]
	if l == nil || !l.ready.Load() || l.err != nil {
		return nil
	}
	if l.refs == 0 {
		sh.unlinkIdle(l)
	}
	l.refs++
	return l
}

// pin adds a pin to a handle that the caller has pinned.
func (t *ledgerTable) pin(l *Ledger) {
	sh := t.shard(l.id)
	sh.mu.Lock()
	l.refs++
	sh.mu.Unlock()
}

// release takes a pin away. The last one makes the handle idle.
func (t *ledgerTable) release(l *Ledger) {
	sh := t.shard(l.id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	l.refs--
	if l.refs > 0 || sh.handles[l.id] != l {
		return
	}
	l.idlePrev, l.idleNext = sh.idle.idlePrev, &sh.idle
	l.idlePrev.idleNext, sh.idle.idlePrev = l, l
	sh.idles++
	if sh.idles > t.idleMax {
		oldest := sh.idle.idleNext
		sh.unlinkIdle(oldest)
		delete(sh.handles, oldest.id)
	}
}

func (sh *tableShard) unlinkIdle(l *Ledger) {
	l.idlePrev.idleNext, l.idleNext.idlePrev = l.idleNext, l.idlePrev
	l.idlePrev, l.idleNext = nil, nil
	sh.idles--
}

// each calls fn for every loaded handle, pinned, with no lock held.
func (t *ledgerTable) each(fn func(*Ledger)) {
	for i := range t.shards {
		sh := &t.shards[i]
		sh.mu.Lock()
		ids := make([]int64, 0, len(sh.handles))
		for id := range sh.handles {
			ids = append(ids, id)
		}
		sh.mu.Unlock()
		for _, id := range ids {
			if l := t.cached(id); l != nil {
				fn(l)
				t.release(l)
			}
		}
	}
}

// counts returns how many handles there are, and how many of them idle.
func (t *ledgerTable) counts() (handles, idle int) {
	for i := range t.shards {
		sh := &t.shards[i]
		sh.mu.Lock()
		handles += len(sh.handles)
		idle += sh.idles
		sh.mu.Unlock()
	}
	return handles, idle
}

// detach takes a handle out of the table, whoever holds it: the next get loads another.
func (t *ledgerTable) detach(l *Ledger) {
	sh := t.shard(l.id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.handles[l.id] != l {
		return
	}
	delete(sh.handles, l.id)
	if l.refs == 0 {
		sh.unlinkIdle(l)
	}
}

// idsAfter returns the ids above after of all handles, in no order.
func (t *ledgerTable) idsAfter(after int64) []int64 {
	var ids []int64
	for i := range t.shards {
		sh := &t.shards[i]
		sh.mu.Lock()
		for id := range sh.handles {
			if id > after {
				ids = append(ids, id)
			}
		}
		sh.mu.Unlock()
	}
	return ids
}
