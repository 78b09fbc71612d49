package bktest

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/wire"
	"github.com/binderylog/bindery/offload"
)

// bodyHead is the header of an entry body and the digest that the simulated clients use (CRC32C).
const bodyHead = 32 + 4

var hashSeed = maphash.MakeSeed()

// Checker watches everything that passes on the network and every version of every record, and says which of the
// protocol's invariants were broken. The names are those of the protocol's specification:
//
//	I1 I2    records are well formed; fragments never overlap          I10 I11  a fence that was answered holds, negatives are stable
//	I3 I12   CLOSED is final, and is what its closer was told          I13 I14  recovery stores no ensemble change before it closes;
//	I4 I5    acknowledged entries have an ack quorum of copies                  a writer's fragment starts after what it acknowledged
//	I6 I7    an entry has one content, wherever and whenever read      I19      success is reported with an ack quorum of copies
//	I8       acknowledgements come in order, without gaps              I20      who acknowledged an entry never denies it
//	I9       the LAC that an entry carries is below it, and confirmed  I21      no LAC that was served exceeds the end
//	T1 T2    an offload record goes the way of its states; a commit has its objects, a release the lag, the owner's word, all objects, and
//	         the version that it looked at; a ledger's record goes with one of a release or a deletion only
//	P1       a final fragment gets a bookie only when that holds every entry that stripes to its place
type Checker struct {
	h *History

	mu      sync.Mutex // guards what follows; taken after the network's and the tree's locks
	seq     int64
	bookies map[string]*bookieView
	ledgers map[int64]*ledgerView
	views   *metadata.Ledgers
	tier    *tier // nil: none

	lostTargets map[string]time.Time // when a target lost its objects

	incarnations string // prefix of the keys
}

// bookieView is what one bookie has said, in all its lives.
type bookieView struct {
	name   string
	fenced map[int64]int64           // ledger: when a fencing read was first answered
	acked  map[int64]map[int64]int64 // ledger, entry: when an add was first acknowledged as durable
	have   map[int64]map[int64]bool  // any OK to an add, deferred ones included
	denied map[int64]map[int64]bool  // ledger, entry: denied to a fencing read
	lost   map[int64]bool            // ledgers that existed when it lost its data
	latest map[int64]map[int64]int64 // ledger, entry: when an add was last acknowledged as durable

	incarnation uint64
	emptied     int64 // when its incarnation was last raised: what it acknowledged before it may not have
	lostAt      int64 // when it last lost something
	failing     bool  // it loses things until it starts again
}

// ledgerView is one ledger.
type ledgerView struct {
	id       int64
	record   *ledger.Metadata
	gone     bool
	released bool             // gone from the bookies, alive in the tier
	tier     *offload.Record  // its offload record, nil if there is none
	token    int64            // of the record's creation
	payload  map[int64]uint64 // content of each entry, as first seen
	acked    int64            // highest entry reported to its application as durable
	served   int64            // highest LAC that a bookie served or a writer claimed
	servedBy string
	named    map[ledger.BookieID]int64 // when a bookie came into the record
	shed     map[ledger.BookieID]bool  // bookies that may have collected their copies before
}

// NewChecker returns a checker that reports to h.
func NewChecker(h *History) *Checker {
	return &Checker{h: h, bookies: map[string]*bookieView{}, ledgers: map[int64]*ledgerView{}, views: metadata.NewLedgers(nil, metadata.DefaultRoot),
		incarnations: metadata.NewIncarnations(nil, metadata.DefaultRoot).Key("")}
}

func (c *Checker) bookie(name string) *bookieView {
	b := c.bookies[name]
	if b == nil {
		b = &bookieView{name: name, fenced: map[int64]int64{}, acked: map[int64]map[int64]int64{}, have: map[int64]map[int64]bool{}, denied: map[int64]map[int64]bool{}, lost: map[int64]bool{},
			latest: map[int64]map[int64]int64{}}
		c.bookies[name] = b
	}
	return b
}

func (c *Checker) ledger(id int64) *ledgerView {
	l := c.ledgers[id]
	if l == nil {
		l = &ledgerView{id: id, payload: map[int64]uint64{}, acked: -1, served: -1, named: map[ledger.BookieID]int64{}, shed: map[ledger.BookieID]bool{}}
		c.ledgers[id] = l
	}
	return l
}

// addDelivered looks at an add that a bookie has taken.
func (c *Checker) addDelivered(p *pair, x call, body []byte) {
	lac := int64At(body, 16)
	if lac >= x.entry {
		c.h.Break("I9", "%s sends entry %d of ledger %d with LAC %d", p.client.name, x.entry, x.ledger, lac)
	}
	c.content(p.client.name+" sends", x.ledger, x.entry, body)
	c.claimed(p.client.name, x.ledger, lac, "an entry")
}

// content checks that an entry has the content that it was first seen with.
func (c *Checker) content(who string, ledgerID, entry int64, body []byte) {
	if len(body) < bodyHead {
		return
	}
	l := c.ledger(ledgerID)
	h := maphash.Bytes(hashSeed, body[bodyHead:])
	if old, ok := l.payload[entry]; !ok {
		l.payload[entry] = h
	} else if old != h {
		c.h.Break("I6", "%s entry %d of ledger %d with another content", who, entry, ledgerID)
	}
}

// claimed checks a LAC that somebody states: everything up to it has an ack quorum of copies.
func (c *Checker) claimed(who string, ledgerID, lac int64, how string) {
	l := c.ledger(ledgerID)
	if lac <= l.served {
		return
	}
	if l.record == nil || l.gone {
		return
	}
	if l.record.State == ledger.StateClosed && lac > int64(l.record.LastEntry) {
		c.h.Break("I21", "%s states LAC %d of ledger %d with %s, which ends at %d", who, lac, ledgerID, how, l.record.LastEntry)
	}
	for e := l.served + 1; e <= lac; e++ {
		if n := c.copies(l, e); n < l.record.AckQuorum {
			c.h.Break("I9", "%s states LAC %d of ledger %d with %s; entry %d has %d of %d copies", who, lac, ledgerID, how, e, n, l.record.AckQuorum)
			break
		}
	}
	l.served, l.servedBy = lac, who
}

// copies counts the members of an entry's stored write set that have acknowledged it at some time.
func (c *Checker) copies(l *ledgerView, e int64) int {
	q, ensemble, n := l.record.Quorum(), l.record.EnsembleOf(ledger.EntryID(e)), 0
	for k := range q.Write {
		b := c.bookie(string(ensemble[q.Index(ledger.EntryID(e), k)]))
		if b.have[l.id][e] {
			n++
		}
	}
	return n
}

// addAnswered looks at a bookie's answer to an add.
func (c *Checker) addAnswered(b *bookieView, p *pair, x call, code wire.Code) {
	if code != wire.OK {
		return
	}
	if at, ok := b.fenced[x.ledger]; ok && x.flags&wire.RecoveryAdd == 0 && x.seq > at {
		c.h.Break("I10", "%s takes entry %d of ledger %d from %s after it has answered a fencing read", b.name, x.entry, x.ledger, p.client.name)
	}
	if x.flags&wire.RecoveryAdd == 0 && b.denied[x.ledger][x.entry] {
		c.h.Break("I11", "%s acknowledges entry %d of ledger %d to %s, which it has denied to a fencing read", b.name, x.entry, x.ledger, p.client.name)
	}
	if b.have[x.ledger] == nil {
		b.have[x.ledger] = map[int64]bool{}
	}
	b.have[x.ledger][x.entry] = true
	if x.deferred {
		return
	}
	if b.acked[x.ledger] == nil {
		b.acked[x.ledger], b.latest[x.ledger] = map[int64]int64{}, map[int64]int64{}
	}
	b.latest[x.ledger][x.entry] = c.seq
	if _, ok := b.acked[x.ledger][x.entry]; !ok {
		b.acked[x.ledger][x.entry] = c.seq
	}
}

// readAnswered looks at a bookie's answer to a read.
func (c *Checker) readAnswered(b *bookieView, p *pair, x call, r *wire.Response) {
	if x.flags&wire.Fence != 0 && fenceStands(r.Code) {
		if _, ok := b.fenced[x.ledger]; !ok {
			b.fenced[x.ledger] = c.seq
			c.h.Add(b.name, "fenced for %s: ledger %d (%v)", p.client.name, x.ledger, r.Code)
		}
	}
	if denies(r.Code) {
		if x.flags&wire.Fence != 0 && x.entry >= 0 {
			if b.denied[x.ledger] == nil {
				b.denied[x.ledger] = map[int64]bool{}
			}
			b.denied[x.ledger][x.entry] = true
		}
		c.denied(b, p, x, r)
		return
	}
	if r.Code != wire.OK {
		return
	}
	switch r.Op {
	case wire.OpRead:
		if len(r.Body) >= bodyHead {
			e := int64At(r.Body, 8)
			if x.entry >= 0 && e != x.entry || int64At(r.Body, 0) != x.ledger {
				c.h.Break("I6", "%s answers a read of entry %d of ledger %d with entry %d of ledger %d", b.name, x.entry, x.ledger, e, int64At(r.Body, 0))
				return
			}
			c.content(b.name+" serves", x.ledger, e, r.Body)
			c.serves(b, x.ledger, int64At(r.Body, 16))
		}
		if r.HasMaxLAC {
			c.serves(b, x.ledger, r.MaxLAC)
		}
	case wire.OpBatchRead:
		for i, body := range r.Entries {
			c.content(b.name+" serves", x.ledger, x.entry+int64(i), body)
			if len(body) >= bodyHead {
				c.serves(b, x.ledger, int64At(body, 16))
			}
		}
	case wire.OpReadLAC:
		if len(r.LACBody) >= 16 {
			c.serves(b, x.ledger, int64At(r.LACBody, 8))
		}
		if len(r.LastEntryBody) >= bodyHead {
			c.serves(b, x.ledger, int64At(r.LastEntryBody, 16))
		}
	}
}

// serves notes a LAC that a bookie tells.
func (c *Checker) serves(b *bookieView, ledgerID, lac int64) {
	c.claimed(b.name, ledgerID, lac, "an answer")
}

// denied checks a "no such entry" or "no such ledger".
func (c *Checker) denied(b *bookieView, p *pair, x call, r *wire.Response) {
	l := c.ledgers[x.ledger]
	if l == nil || l.record == nil || l.gone {
		return
	}
	if l.record.State == ledger.StateClosed && !l.record.Names(ledger.BookieID(b.name)) {
		return // it may have collected its copies
	}
	if x.seq < l.named[ledger.BookieID(b.name)] {
		return // it may have had none when it was asked
	}
	entries := b.acked[x.ledger]
	// A bookie that lost something, or collected its copies, answers only for what the record stores on it: it has not been
	// told of entries that were moved away before.
	vouches := func(e int64) bool {
		return !b.lost[x.ledger] && !l.shed[ledger.BookieID(b.name)] || storedOn(l.record, ledger.EntryID(e), ledger.BookieID(b.name))
	}
	if r.Op == wire.OpRead && x.entry >= 0 || r.Op == wire.OpBatchRead {
		if at, ok := entries[x.entry]; ok && x.seq > at && vouches(x.entry) {
			c.h.Break("I20", "%s denies entry %d of ledger %d to %s (%v), which it has acknowledged", b.name, x.entry, x.ledger, p.client.name, r.Code)
		}
		return
	}
	for e, at := range entries {
		if x.seq > at && vouches(e) {
			c.h.Break("I20", "%s tells %s that ledger %d is empty (%v), but has acknowledged entry %d", b.name, p.client.name, x.ledger, r.Code, e)
			return
		}
	}
}

// storedOn reports whether a record stores an entry on a bookie.
func storedOn(m *ledger.Metadata, e ledger.EntryID, b ledger.BookieID) bool {
	at := slices.Index(m.EnsembleOf(e), b)
	return at >= 0 && m.Quorum().Stores(e, at) && (m.State != ledger.StateClosed || e <= m.LastEntry)
}

// Lost notes that a bookie is about to lose its data, and goes on losing until it starts again.
func (c *Checker) Lost(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.bookie(name)
	c.lost(b)
	b.failing = true
}

func (c *Checker) lost(b *bookieView) {
	c.seq++
	b.lostAt = c.seq
	for id := range c.ledgers {
		b.lost[id] = true
	}
}

// Started notes that a bookie has started on a good disk.
func (c *Checker) Started(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.bookie(name); b.failing {
		c.lost(b) // what it took while its disk was bad, too
		b.failing = false
	}
}

// MayLose reports whether a bookie can lose its data within what the protocol promises to survive: in the last fragment of a
// ledger that is not closed at most Qa-1 members have lost something, and of what is final another copy is left.
func (c *Checker) MayLose(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.ledgers {
		if l.record == nil || l.gone {
			continue
		}
		for i, f := range l.record.Fragments {
			at := slices.Index(f.Bookies, ledger.BookieID(name))
			if at < 0 {
				continue
			}
			if last, final := l.record.FinalFragment(i); final {
				if !c.others(l, f, at, last) {
					return false
				}
				continue
			}
			lost := 1
			for _, m := range f.Bookies { // all members, not only those of one write set: simpler, and never too many
				if string(m) != name && c.bookie(string(m)).lost[l.id] {
					lost++
				}
			}
			if lost > l.record.AckQuorum-1 {
				return false
			}
		}
	}
	return true
}

// others reports whether every entry of a final fragment that is stored at index is on another member, too, which has lost
// nothing since it took it.
func (c *Checker) others(l *ledgerView, f ledger.Fragment, index int, last ledger.EntryID) bool {
	q := l.record.Quorum()
	for e := f.First; e <= last; e++ {
		if !q.Stores(e, index) {
			continue
		}
		found := false
		for k := range q.Write {
			if at := q.Index(e, k); at != index {
				b := c.bookie(string(f.Bookies[at]))
				found = found || b.latest[l.id][int64(e)] > b.lostAt
			}
		}
		if !found {
			return false
		}
	}
	return true
}

// Stuck reports whether so many members of a ledger's last ensemble may be in limbo that no recovery can end it. That is
// within the fault budget only by misfortune: a bookie was chosen, lost its disk, and was named then.
func (c *Checker) Stuck(id int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.ledger(id)
	n := 0
	for _, m := range l.record.Last().Bookies {
		if c.bookie(string(m)).lost[id] {
			n++
		}
	}
	return n >= l.record.AckQuorum
}

// Wrote looks at every write of the metadata store. It fits memmeta.Tree.OnWrite.
func (c *Checker) Wrote(key string, value []byte, v metadata.Version) {
	id, ok := c.ledgerOf(key)
	if !ok {
		if !c.wroteOffload(key, value) {
			c.raised(key, value)
		}
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.ledger(id)
	if value == nil {
		l.gone = true
		c.deletedLedger(l)
		c.h.Add("store", "ledger %d deleted", id)
		return
	}
	m, err := metadata.DecodeLedger(key, value)
	if err == nil {
		err = m.Validate()
	}
	if err != nil {
		c.h.Break("I1", "record of ledger %d: %v", id, err)
		return
	}
	c.h.Add("store", "ledger %d v%d: %s", id, v, describe(m))
	if l.gone && m.State == ledger.StateOpen && m.CToken == l.token && len(m.Fragments) == 1 {
		return // a create of unknown outcome, sent again with success, lands after all: nobody knows this ledger any more
	}
	if l.record == nil {
		l.token = m.CToken
	} else {
		c.succession(l, m)
	}
	for _, f := range m.Fragments {
		for _, b := range f.Bookies {
			if l.record == nil || !l.record.Names(b) {
				l.named[b] = c.seq
				l.shed[b] = l.shed[b] || l.record != nil && l.record.State == ledger.StateClosed
				if v := c.bookie(string(b)); v.failing {
					v.lost[id] = true
				}
			}
		}
	}
	l.record = m
	if m.State == ledger.StateClosed {
		c.closed(l)
	}
}

// raised notes that a bookie's incarnation was raised: it begins with nothing.
func (c *Checker) raised(key string, value []byte) {
	name, ok := strings.CutPrefix(key, c.incarnations)
	if !ok || value == nil {
		return
	}
	r, err := metadata.DecodeIncarnation(key, value)
	if err != nil {
		c.h.Break("I1", "incarnation of %s: %v", name, err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.bookie(name); r.Number > b.incarnation {
		b.incarnation, b.emptied = r.Number, c.seq
	}
}

func (c *Checker) ledgerOf(key string) (int64, bool) {
	rel, ok := strings.CutPrefix(key, metadata.DefaultRoot+"/")
	if !ok {
		return 0, false
	}
	var scheme metadata.Scheme
	id, parent, err := scheme.ParseLedgerPath(rel)
	return int64(id), err == nil && !parent
}

// succession checks one version of a record against the one before.
func (c *Checker) succession(l *ledgerView, m *ledger.Metadata) {
	old := l.record
	switch {
	case l.gone:
		c.h.Break("I12", "ledger %d is written after it was deleted", l.id)
	case old.State == ledger.StateClosed && (m.State != old.State || m.LastEntry != old.LastEntry || m.Length != old.Length):
		c.h.Break("I12", "closed ledger %d becomes %s", l.id, describe(m))
	case m.State < old.State:
		c.h.Break("I12", "ledger %d goes back to %s", l.id, describe(m))
	case old.State == ledger.StateOpen && m.State == ledger.StateInRecovery && !sameTail(old, m):
		c.h.Break("I13", "recovery changes the ensembles of ledger %d before it closes it", l.id)
	case old.State == ledger.StateInRecovery && m.State == ledger.StateInRecovery && !sameTail(old, m):
		c.h.Break("I13", "the ensembles of ledger %d change while it is recovered", l.id)
	case old.State == ledger.StateOpen && m.State == ledger.StateOpen && !sameTail(old, m):
		if first := int64(m.Last().First); first <= l.acked {
			c.h.Break("I14", "a fragment of ledger %d starts at %d, entry %d is acknowledged", l.id, first, l.acked)
		}
	}
	if len(m.Fragments) < len(old.Fragments) || old.State == ledger.StateClosed && len(m.Fragments) != len(old.Fragments) {
		c.h.Break("I2", "the fragments of ledger %d change from %s to %s", l.id, describe(old), describe(m))
		return
	}
	for i, f := range old.Fragments {
		if m.Fragments[i].First != f.First {
			c.h.Break("I2", "the fragments of ledger %d change from %s to %s", l.id, describe(old), describe(m))
			return
		}
		if last, final := old.FinalFragment(i); final {
			c.moved(l, f, m.Fragments[i], last)
		}
	}
}

// moved checks that the bookies which a final fragment gets hold what stripes to their places.
func (c *Checker) moved(l *ledgerView, old, now ledger.Fragment, last ledger.EntryID) {
	q := l.record.Quorum()
	for i, name := range now.Bookies {
		if name == old.Bookies[i] {
			continue
		}
		b := c.bookie(string(name))
		for e := old.First; e <= last; e++ {
			if at, ok := b.latest[l.id][int64(e)]; q.Stores(e, i) && (!ok || at <= b.emptied) {
				c.h.Break("P1", "%s takes the place of %s for entries %d to %d of ledger %d, but does not hold entry %d", name, old.Bookies[i], old.First, last, l.id, e)
				return
			}
		}
	}
}

// sameTail reports whether the last fragment has not changed, and none has followed it.
func sameTail(a, b *ledger.Metadata) bool {
	return len(a.Fragments) == len(b.Fragments) && sameFragment(a.Last(), b.Last())
}

func sameFragment(a, b ledger.Fragment) bool {
	return a.First == b.First && slices.Equal(a.Bookies, b.Bookies)
}

// closed checks the record of a ledger that is closed.
func (c *Checker) closed(l *ledgerView) {
	last := int64(l.record.LastEntry)
	if l.acked > last {
		c.h.Break("I4", "ledger %d is closed at %d, entry %d was acknowledged", l.id, last, l.acked)
	}
	if l.served > last {
		c.h.Break("I21", "ledger %d is closed at %d, %s has stated LAC %d", l.id, last, l.servedBy, l.served)
	}
	if l.record.Custom[ledger.LossKey] != nil {
		return
	}
	for e := int64(0); e <= last; e++ {
		if n := c.copies(l, e); n < l.record.AckQuorum {
			c.h.Break("I5", "ledger %d is closed at %d, entry %d has %d of %d copies: %s", l.id, last, e, n, l.record.AckQuorum, describe(l.record))
			return
		}
	}
}

// Acked takes the news that an application was told that an entry is durable.
func (c *Checker) Acked(who string, id, entry int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.ledger(id)
	if entry <= l.acked {
		return
	}
	if l.record == nil {
		return
	}
	if !l.gone && l.record.State == ledger.StateClosed && entry > int64(l.record.LastEntry) {
		c.h.Break("I4", "%s acknowledges entry %d of ledger %d, which is closed at %d", who, entry, id, l.record.LastEntry)
	}
	for e := l.acked + 1; e <= entry; e++ {
		if n := c.copies(l, e); n < l.record.AckQuorum && !l.gone {
			c.h.Break("I19", "%s acknowledges entry %d of ledger %d with %d of %d copies on %s", who, e, id, n, l.record.AckQuorum, describe(l.record))
			break
		}
	}
	l.acked = entry
}

// Ended takes the end that a client was told when it closed or recovered a ledger.
func (c *Checker) Ended(who string, id, last int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.ledger(id)
	if l.gone && !l.released || l.record == nil {
		return
	}
	if l.record.State != ledger.StateClosed || int64(l.record.LastEntry) != last {
		c.h.Break("I3", "%s was told that ledger %d ends at %d, the record says %s", who, id, last, describe(l.record))
	}
}

// describe writes a record in one line.
func describe(m *ledger.Metadata) string {
	var s strings.Builder
	s.WriteString(m.State.String())
	for _, f := range m.Fragments {
		fmt.Fprintf(&s, " %d:", f.First)
		for i, b := range f.Bookies {
			if i > 0 {
				s.WriteString(",")
			}
			s.WriteString(string(b))
		}
	}
	if m.State == ledger.StateClosed {
		fmt.Fprintf(&s, " ends at %d, %d bytes", m.LastEntry, m.Length)
	}
	return s.String()
}
