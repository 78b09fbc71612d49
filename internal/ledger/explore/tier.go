package explore

import (
	"fmt"
	"sync"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/offload/protocol"
)

// The tier beside the bookies: the ledger's offload record, the objects of each attempt, and everybody who touches them. What they do
// next is for the cores of package protocol to say; what a store keeps, what of a dead worker still arrives, and how long somebody waits
// is kept here.

const (
	tierIdle     = 5 // the id of attempts that never send anything; it does not matter which
	tierAttempts = 6
	tierWorkers  = 2
	tierLateMax  = 2
)

// tier is all of it. It holds no pointer, so equal values are one state.
type tier struct {
	record  tierRecord
	clock   uint8 // versions of the record
	begun   uint8 // ids that were drawn
	lagOver bool  // the deletion lag has passed since the commit
	deleted bool  // somebody wanted the ledger gone, and it is
	told    bool  // its owner was told so
	intents idSet // attempts that a worker could go on with
	flying  idSet // attempts of which a request may still arrive, its sender being dead
	garbage idSet
	passed  idSet // a first pass over the garbage was made
	passes  uint8 // over a record that is DELETING
	objects [tierAttempts]object
	workers [tierWorkers]tierWorker
	release tierRelease
	owner   tierOwner
	sweep   tierSweep
	late    [tierLateMax]tierWrite
}

// idSet is a set of attempts.
type idSet uint8

func (s idSet) has(n int) bool { return s>>n&1 != 0 }

func (s *idSet) set(n int, on bool) {
	*s &^= 1 << n
	if on {
		*s |= 1 << n
	}
}

// tierRecord is the offload record. Version 0 is none.
type tierRecord struct {
	version uint8
	state   protocol.State
	attempt uint8
	idle    bool
	last    int8
	length  int8
}

// object is what the stores hold of one attempt.
type object struct {
	parts bool
	whole bool
	bad   bool // they lost or changed some of it
	last  int8 // of the ledger that it was made from
}

// tierWorker is a worker with an attempt in hand.
type tierWorker struct {
	on      bool
	attempt protocol.Attempt
	do      protocol.Action
	sending bool
	last    int8 // of the ledger that it takes
}

// tierRelease is a release under way.
type tierRelease struct {
	on      bool
	release protocol.Release
	do      protocol.Action
}

// tierOwner deletes the ledger.
type tierOwner struct {
	on       bool
	deletion protocol.Deletion
	do       protocol.Action
}

// tierSweep is a search for objects that nobody names: what was listed, and, planted bug, what was named before.
type tierSweep struct {
	on            bool
	listed, named idSet
}

// tierWrite is a write of unknown outcome that may still land.
type tierWrite struct {
	on bool
	w  protocol.Write
}

// numbered gives equal values equal numbers.
type numbered[T comparable] struct {
	mu   sync.RWMutex
	ids  map[T]uint32
	list chunked[T]
}

func (t *numbered[T]) id(v T) uint32 {
	t.mu.RLock()
	id, ok := t.ids[v]
	t.mu.RUnlock()
	if ok {
		return id
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if id, ok := t.ids[v]; ok {
		return id
	}
	if t.ids == nil {
		t.ids = map[T]uint32{}
	}
	if id, ok = t.list.add(v); !ok {
		panic(errTooMany)
	}
	t.ids[v] = id
	return id
}

func (t *numbered[T]) at(id uint32) *T { return t.list.at(id) }

func tierID(n int) protocol.AttemptID { return protocol.AttemptID{byte(n)} }

// seen is one look at both records. Reading them one after the other shows nothing more: whatever is decided is written under the
// versions of both, or changes nothing.
func (x *space) seen(s *state, t *tier) protocol.Seen {
	v := protocol.Seen{Ledger: protocol.Ledger{Version: protocol.None}, Record: protocol.Record{Version: protocol.None}}
	if !s.gone {
		rec := *x.records.at(s.record)
		v.Ledger = protocol.Ledger{Version: int64(s.version), Closed: rec.State == ledger.StateClosed, Last: int64(rec.LastEntry), Length: rec.Length, Release: true}
	}
	if r := &t.record; r.version > 0 {
		v.Record = protocol.Record{Version: int64(r.version), State: r.state, Attempt: tierID(int(r.attempt)), Idle: r.idle, Last: int64(r.last), Length: int64(r.length),
			Garbage: t.garbage.len()}
	}
	return v
}

func (s idSet) len() (n int) {
	for ; s != 0; s &= s - 1 {
		n++
	}
	return n
}

// writeTier is the store's part of a transaction. It returns the invariant that the write violates, if it happens and does.
func (x *space) writeTier(s *state, t *tier, w *protocol.Write) (applied bool, why string) {
	have := protocol.None
	if t.record.version > 0 {
		have = int64(t.record.version)
	}
	if w.Record != have {
		return false, ""
	}
	at := protocol.None
	if !s.gone {
		at = int64(s.version)
	}
	blind := w.Ledger == protocol.LedgerDelete && ledger.Planted() == ledger.MutantOffloadReleaseAnyVersion
	if w.Ledger != protocol.LedgerFree && w.LedgerVer != at && !blind {
		return false, ""
	}
	why = x.checkTierWrite(s, t, w)
	if w.Ledger == protocol.LedgerDelete {
		s.gone = true
	}
	if w.State == protocol.Deleting || w.LedgerOnly {
		t.deleted = true
	}
	if w.LedgerOnly {
		return true, why
	}
	t.clock++
	old := t.record
	t.passes = 0
	if w.Remove {
		t.record = tierRecord{}
		return true, why
	}
	if w.Discard {
		t.garbage.set(int(old.attempt), true)
		t.passed.set(int(old.attempt), false)
	}
	t.record = tierRecord{version: t.clock, state: w.State, attempt: w.Attempt[0], idle: w.Idle, last: old.last, length: old.length}
	if w.State == protocol.Uploading {
		rec := *x.records.at(s.record)
		t.record.last, t.record.length = int8(rec.LastEntry), int8(rec.Length)
	}
	if w.State == protocol.Complete {
		t.lagOver = false
	}
	return true, why
}

// sendTier makes a write with one of the outcomes that a store has.
func (x *space) sendTier(s *state, t *tier, w protocol.Write, how int) (protocol.Outcome, string) {
	if how > 0 {
		s.budget[budTierUnknowns]--
	}
	switch how {
	case howDropped:
		return protocol.Unknown, ""
	case howLate:
		for i := range t.late {
			if !t.late[i].on {
				t.late[i] = tierWrite{true, w}
				return protocol.Unknown, ""
			}
		}
		panic(errTooMany)
	}
	applied, why := x.writeTier(s, t, &w)
	switch {
	case how == howLost:
		return protocol.Unknown, why
	case applied:
		return protocol.Applied, why
	}
	return protocol.Conflict, why
}

const (
	howTold    = iota
	howLost    // it happened, or was refused, and nobody is told
	howDropped // it did not happen and will not, and nobody is told
	howLate    // the same, but it may still happen
	howEnd
)

// tierSource is an entry as a worker reads it from the bookies.
func (x *space) tierSource(s *state, e int8) stored {
	if s.gone {
		return stored{}
	}
	rec := *x.records.at(s.record)
	ens := rec.EnsembleOf(ledger.EntryID(e))
	for n := range x.spec.Quorum.Write {
		b := *x.bookies.at(s.bookies[x.bookieNumber(ens[x.spec.Quorum.Index(ledger.EntryID(e), n)])])
		if b.have[e].ok && !b.starting {
			return b.have[e]
		}
	}
	return stored{}
}

// upload completes an attempt's objects from the bookies, and reads them back.
func (x *space) upload(s *state, t *tier, w *tierWorker, damaged bool) (ok bool, why string) {
	n := int(w.attempt.ID[0])
	for e := int8(0); e <= w.last; e++ {
		h := x.tierSource(s, e)
		if !h.ok {
			t.flying.set(n, true) // what was sent last may still arrive
			return false, ""
		}
		if h.length != e+1 {
			return false, fmt.Sprintf("I6: e%d is offloaded with another body", e)
		}
	}
	t.objects[n] = object{parts: true, whole: true, bad: t.objects[n].bad || damaged, last: w.last}
	if t.objects[n].bad && ledger.Planted() != ledger.MutantOffloadUnverified {
		t.intents.set(n, false) // the attempt is abandoned
		return false, ""
	}
	return true, ""
}

// checkTierWrite looks at what a write of the offload record relies on.
func (x *space) checkTierWrite(s *state, t *tier, w *protocol.Write) string {
	o := t.objects[w.Attempt[0]]
	switch w.State {
	case protocol.Complete:
		rec := *x.records.at(s.record)
		if !o.whole || o.bad || s.gone || rec.State != ledger.StateClosed || int8(rec.LastEntry) != o.last {
			return fmt.Sprintf("C8: committed with objects of a%d %s, the record says %s", w.Attempt[0], o, describe(rec))
		}
	case protocol.Released:
		if !t.lagOver {
			return "C10: released before the deletion lag was over"
		}
		if w.Ledger != protocol.LedgerDelete || w.LedgerVer != int64(s.version) {
			return fmt.Sprintf("C13: the ledger's record is deleted at version %d, the objects were looked at with version %d", s.version, w.LedgerVer)
		}
	}
	return ""
}

func (o object) String() string {
	return fmt.Sprintf("{parts %v, whole %v, bad %v, last e%d}", o.parts, o.whole, o.bad, o.last)
}

func (t *tier) names(n int) bool {
	return t.garbage.has(n) || t.record.version > 0 && int(t.record.attempt) == n
}

// checkTier looks at the tier's invariants in a state.
func (x *space) checkTier(s *state) string {
	t := x.tiers.at(s.tier)
	for n, o := range t.objects {
		if o != (object{}) && !t.names(n) {
			return fmt.Sprintf("G7: a%d has objects, and no record names it", n)
		}
	}
	if t.told && (!s.gone || t.record.state == protocol.Released || t.record.state == protocol.Complete) {
		return "13.1: the owner was told that the ledger is deleted, and it is there"
	}
	if !s.gone || t.deleted {
		return ""
	}
	if o := t.objects[t.record.attempt]; t.record.state != protocol.Released || !o.whole || o.bad || o.last != s.closed {
		return fmt.Sprintf("12: neither on the bookies nor in the tier: %s, a%d %s, closed at e%d", t.record.state, t.record.attempt, o, s.closed)
	}
	return ""
}

// checkTierQuiet looks at a state in which the tier does nothing any more by itself: a cycle of the janitor is over.
func (x *space) checkTierQuiet(s *state) string {
	t := x.tiers.at(s.tier)
	if t.record.state == protocol.Uploading || t.record.state == protocol.Deleting || t.garbage != 0 {
		return fmt.Sprintf("13: the janitor leaves %s with %d abandoned attempts", t.record.state, t.garbage.len())
	}
	for n, o := range t.objects {
		if o != (object{}) && int(t.record.attempt) != n {
			return fmt.Sprintf("13: a%d has objects after the janitor's cycle", n)
		}
	}
	if t.deleted && t.record.version > 0 {
		return fmt.Sprintf("13: the ledger is deleted, its offload record is %s", t.record.state)
	}
	if !s.gone {
		return ""
	}
	for i := range x.spec.Bookies {
		b := *x.bookies.at(s.bookies[i])
		if b.mem.Known() && b.gc == 0 && !b.starting && x.spec.Collect && s.lock == 0 && !x.mayCollect(s, i, b) {
			return fmt.Sprintf("C14: the ledger is gone, %s keeps it", x.names[i])
		}
	}
	return ""
}
