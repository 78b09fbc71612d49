package cores

import (
	"maps"
	"slices"

	"github.com/binderylog/bindery/internal/ledger"
)

// bookie is one bookie: per ledger what is in memory and what is durable, and between them a journal.
type bookie struct {
	id          ledger.BookieID
	replicas    []*replica
	journal     []record // appended, not synced, oldest first
	conn        uint64
	lossEpoch   uint64
	incarnation int64 // version of its incarnation key
	down        bool
	lostData    bool // it has to list its ledgers before it serves
	verifies    []*verify
	gc          *collection
}

// replica is one ledger on one bookie.
type replica struct {
	mem, disk ledger.Replica
	entries   map[ledger.EntryID]copyOf
	stored    map[ledger.EntryID]copyOf
	saved     ledger.Replica // as of the last checkpoint, with keep
	keep      map[ledger.EntryID]copyOf
	fenced    bool // a fencing read was answered, in any life
	acked     map[ledger.EntryID]bool
	denied    map[ledger.EntryID]bool // to a fencing read
	assumed   bool                    // a process takes a fence for durable that it only replayed (a planted bug)
}

type copyOf struct {
	body   string
	lac    ledger.EntryID
	length int64
}

// record is one journal record. reply is the answer that waits for it.
type record struct {
	book  int
	entry ledger.EntryID // -1: a state, or a sync only
	copy  copyOf
	state *ledger.Replica
	reply *message
}

// verify is an add that waits for a read of its ledger's record.
type verify struct {
	m      *message
	ticket uint32
	read   bool
	open   bool
}

// collection is a ledger that the collector looks at.
type collection struct {
	book       int
	generation uint32
	decided    bool
}

var masterKey = []byte("key")

func newBookie(id string, ledgers int) *bookie {
	b := &bookie{id: ledger.BookieID(id), incarnation: 1}
	for range ledgers {
		b.replicas = append(b.replicas, newReplica())
	}
	return b
}

func newReplica() *replica {
	return &replica{entries: map[ledger.EntryID]copyOf{}, stored: map[ledger.EntryID]copyOf{}, keep: map[ledger.EntryID]copyOf{}, acked: map[ledger.EntryID]bool{}, denied: map[ledger.EntryID]bool{}}
}

func mutated(m ledger.Mutant) bool { return ledger.Planted() == m }

// serve applies a request.
func (b *bookie) serve(w *world, m *message) {
	r := b.replicas[m.c.book.n]
	m.c.book.touched = true
	switch m.kind {
	case msgAdd, msgReadd:
		b.add(w, m, r)
	case msgFence, msgRecoveryRead:
		if m.kind == msgRecoveryRead && mutated(ledger.MutantReadsDoNotFence) {
			b.answer(w, m)
			return
		}
		b.fence(w, m, r)
	case msgForce:
		if r.mem.CheckForce(b.lossEpoch) != ledger.Accepted {
			w.refuse(m)
			return
		}
		b.append(record{book: m.c.book.n, entry: ledger.InvalidEntry, reply: m})
	case msgWriteLAC:
		b.writeLAC(w, m, r)
	default:
		b.answer(w, m)
	}
}

func (b *bookie) append(x record) { b.journal = append(b.journal, x) }

// state journals the present state of a replica.
func (b *bookie) state(book int, reply *message) {
	b.append(record{book: book, entry: ledger.InvalidEntry, state: b.replicas[book].mem.Clone(), reply: reply})
}

func (b *bookie) add(w *world, m *message, r *replica) {
	recovery := m.kind == msgReadd
	switch v := r.mem.CheckAdd(masterKey, recovery, b.lossEpoch); v {
	case ledger.Accepted:
	case ledger.NeedsVerify:
		b.verifies = append(b.verifies, &verify{m: m, ticket: r.mem.Ticket()})
		return
	default:
		b.refuse(w, m, v)
		return
	}
	if r.fenced && !recovery {
		w.violate("I10", "%s takes e%d of ledger %d after it answered a fencing read", b.id, m.act.Entry, m.c.book.n)
	}
	if m.act.LAC >= m.act.Entry {
		w.violate("I9", "e%d of ledger %d carries LAC %d", m.act.Entry, m.c.book.n, m.act.LAC)
	}
	deferred := m.c.book.cfg.Deferred && !recovery
	_, had := r.entries[m.act.Entry]
	c := copyOf{body: m.body, lac: m.act.LAC, length: m.act.Length}
	r.entries[m.act.Entry] = c
	wasFenced := r.mem.Fenced
	changed := r.mem.Accept(masterKey, recovery)
	if deferred && r.mem.MarkDeferred() {
		changed = true
	}
	if changed && (!recovery || !wasFenced || r.disk.Tombstone) {
		b.state(m.c.book.n, nil)
	}
	now := deferred && r.disk.Deferred || mutated(ledger.MutantAckBeforeSync) || recovery && had && mutated(ledger.MutantReaddNotSynced)
	if now {
		b.append(record{book: m.c.book.n, entry: m.act.Entry, copy: c})
		b.answer(w, m)
		return
	}
	b.append(record{book: m.c.book.n, entry: m.act.Entry, copy: c, reply: m})
}

func (b *bookie) refuse(w *world, m *message, v ledger.Verdict) {
	answer := ledger.AnswerUnknown
	switch v {
	case ledger.BadKey:
		answer = ledger.AnswerUnauthorized
	case ledger.RefusedFenced:
		answer = ledger.AnswerFenced
	}
	m.answer(answer)
	w.post(m)
}

// verifyStep goes on with an add that needs its ledger's record.
func (b *bookie) verifyStep(w *world, v *verify) {
	k := v.m.c.book
	r := b.replicas[k.n]
	if !v.read {
		v.read = true
		v.open = !k.gone && k.record.State == ledger.StateOpen && (k.record.Names(b.id) || !r.mem.Tombstone)
		w.say("%s reads the record of ledger %d for %s: open %v", b.id, k.n, v.m, v.open)
		return
	}
	b.verifies = slices.DeleteFunc(b.verifies, func(x *verify) bool { return x == v })
	ticket := v.ticket
	if mutated(ledger.MutantVerifyIgnoresTicket) {
		ticket = r.mem.Ticket()
	}
	verdict, changed := r.mem.Verify(ticket, v.open, b.lossEpoch)
	w.say("%s has verified ledger %d for %s: %v", b.id, k.n, v.m, verdict)
	if changed {
		b.state(k.n, nil)
	}
	if verdict != ledger.Accepted {
		b.refuse(w, v.m, verdict)
		return
	}
	k.touched = true
	b.add(w, v.m, r)
}

func (b *bookie) fence(w *world, m *message, r *replica) {
	v, changed := r.mem.Fence(masterKey)
	if v != ledger.Accepted {
		b.refuse(w, m, v)
		return
	}
	durable := r.disk.Fenced && !r.disk.Tombstone || r.assumed
	if changed {
		b.state(m.c.book.n, nil)
	} else if durable {
		b.answer(w, m)
		return
	}
	switch {
	case mutated(ledger.MutantFenceNotWaitedFor):
		b.answer(w, m)
	case mutated(ledger.MutantNegativeFenceNotWaitedFor) && b.evaluate(w, m) == ledger.AnswerNegative:
		b.answer(w, m)
	default:
		b.append(record{book: m.c.book.n, entry: ledger.InvalidEntry, reply: m})
	}
}

func (b *bookie) writeLAC(w *world, m *message, r *replica) {
	body := make([]byte, 16)
	for i := range 8 {
		body[15-i] = byte(m.act.LAC >> (8 * i)) //nolint:gosec // the bytes of a number
	}
	v, changed := r.mem.SetExplicitLAC(masterKey, body)
	if v == ledger.Accepted && changed {
		b.state(m.c.book.n, nil)
	}
	w.claims(string(b.id)+" stores an explicit", m.c.book, m.act.LAC)
}

// visible returns what a read finds.
func (b *bookie) visible(r *replica) map[ledger.EntryID]copyOf {
	if mutated(ledger.MutantReadableAfterSync) {
		return r.stored
	}
	return r.entries
}

// evaluate finds the answer to a read, without sending it.
func (b *bookie) evaluate(w *world, m *message) ledger.Answer {
	r := b.replicas[m.c.book.n]
	entries := b.visible(r)
	switch m.kind {
	case msgFence, msgReadLAC, msgPoll:
		return readAnswer(r.mem.ReadLast(len(entries) > 0))
	case msgRecoveryRead, msgLength, msgRead:
		_, ok := entries[m.act.Entry]
		return readAnswer(r.mem.Read(ok))
	}
	return ledger.AnswerOK
}

func readAnswer(v ledger.ReadVerdict) ledger.Answer {
	switch v {
	case ledger.Serve:
		return ledger.AnswerOK
	case ledger.NoEntry, ledger.NoLedger:
		return ledger.AnswerNegative
	}
	return ledger.AnswerUnknown
}

// lac is the highest LAC that the bookie knows of a ledger.
func (r *replica) lac(entries map[ledger.EntryID]copyOf) ledger.EntryID {
	lac := r.mem.LAC()
	for _, c := range entries { // a maximum: the order does not matter
		lac = max(lac, c.lac)
	}
	return lac
}

func last(entries map[ledger.EntryID]copyOf) ledger.EntryID {
	l := ledger.InvalidEntry
	for e := range entries { // a maximum
		l = max(l, e)
	}
	return l
}

// answer sends the answer to a request whose conditions are met.
func (b *bookie) answer(w *world, m *message) {
	k := m.c.book
	r := b.replicas[k.n]
	entries := b.visible(r)
	a := b.evaluate(w, m)
	switch m.kind {
	case msgAdd, msgReadd:
		r.acked[m.act.Entry] = true
		if m.kind == msgAdd && r.denied[m.act.Entry] {
			w.violate("I11", "%s acknowledges e%d of ledger %d to %s, which it has denied to a fencing read", b.id, m.act.Entry, k.n, m.c.name)
		}
	case msgRecoveryRead, msgLength, msgRead, msgFence, msgReadLAC, msgPoll:
		if w.faults > 0 && !w.calm && w.rng.IntN(w.cfg.Calm) == 0 {
			w.faults--
			w.say("the disk of %s fails a read", b.id)
			a = ledger.AnswerUnknown
			if mutated(ledger.MutantFaultIsAbsence) {
				a = ledger.AnswerNegative
			}
		}
	}
	m.answer(a)
	// The worst moment for a crash is just after an answer, and of all answers those to a recovery.
	if odds := map[bool]int{true: 4, false: 1}[m.kind == msgAdd] * w.cfg.Calm; w.cuts > 0 && !w.calm && m.kind < msgLength && w.rng.IntN(odds) == 0 {
		w.doomed = b
	}
	if m.kind == msgReadd && w.losses > 0 && !w.calm && !k.record.Names(b.id) && w.rng.IntN(2) == 0 {
		w.ruined = b // and of all losses that of a bookie which a recovery has chosen and not yet named
	}
	if a == ledger.AnswerNegative {
		if m.kind == msgRecoveryRead {
			r.denied[m.act.Entry] = true
		}
		b.denies(w, m, r)
	}
	if a == ledger.AnswerOK {
		b.fill(w, m, r, entries)
	}
	if m.kind == msgFence || m.kind == msgRecoveryRead {
		r.fenced = true
	}
	w.post(m)
}

// fill puts what was found into an answer.
func (b *bookie) fill(w *world, m *message, r *replica, entries map[ledger.EntryID]copyOf) {
	switch m.kind {
	case msgFence:
		e := last(entries)
		c := entries[e]
		m.ev.Entry, m.ev.LAC, m.ev.Length = e, c.lac, c.length
		w.claims(string(b.id)+" tells a recoverer", m.c.book, c.lac)
	case msgReadLAC:
		m.ev.LAC = r.lac(entries)
		w.claims(string(b.id)+" tells a reader", m.c.book, m.ev.LAC)
	case msgPoll:
		m.ev.LAC = r.lac(entries)
		if c, ok := entries[m.prev+1]; ok && m.ev.LAC > m.prev {
			m.has, m.body = true, c.body
		}
		w.claims(string(b.id)+" tells a follower", m.c.book, m.ev.LAC)
	case msgRecoveryRead, msgLength, msgRead:
		c := entries[m.act.Entry]
		m.ev.LAC, m.ev.Length, m.body = c.lac, c.length, c.body
	}
}

// denies checks a negative answer (I20). A bookie that lost something answers only for what the record stores on it: it has
// not been told of entries that were moved away before its loss.
func (b *bookie) denies(w *world, m *message, r *replica) {
	k := m.c.book
	if k.gone || k.cfg.Deferred || k.record.State == ledger.StateClosed && !k.record.Names(b.id) {
		return
	}
	vouches := func(e ledger.EntryID) bool {
		return r.acked[e] && (b.lossEpoch == 0 || storedOn(k.record, e, b.id))
	}
	if m.kind == msgFence || m.kind == msgReadLAC || m.kind == msgPoll {
		for e := range ledger.EntryID(k.cfg.Entries) {
			if vouches(e) {
				w.violate("I20", "%s tells %s that ledger %d is empty, and has acknowledged e%d", b.id, m.c.name, k.n, e)
				return
			}
		}
	} else if vouches(m.act.Entry) {
		w.violate("I20", "%s denies e%d of ledger %d to %s, and has acknowledged it", b.id, m.act.Entry, k.n, m.c.name)
	}
}

// storedOn reports whether a record stores an entry on a bookie.
func storedOn(m *ledger.Metadata, e ledger.EntryID, b ledger.BookieID) bool {
	at := slices.Index(m.EnsembleOf(e), b)
	return at >= 0 && m.Quorum().Stores(e, at) && (m.State != ledger.StateClosed || e <= m.LastEntry)
}

// sync makes the first n records durable and answers who waited for them.
func (b *bookie) sync(w *world, n int) {
	done := b.journal[:n]
	b.journal = append([]record(nil), b.journal[n:]...)
	for _, x := range done {
		b.persist(x)
		w.books[x.book].touched = true
	}
	for _, x := range done {
		if x.reply != nil {
			b.answer(w, x.reply)
		}
	}
}

func (b *bookie) persist(x record) {
	r := b.replicas[x.book]
	switch {
	case x.state != nil:
		r.disk = *x.state.Clone()
	case x.entry >= 0:
		r.stored[x.entry] = x.copy
	}
}

// die ends the process. keep is how many records the disk, or the page cache, keeps.
func (b *bookie) die(w *world, keep int, power bool) {
	kept := b.journal[:keep]
	for _, x := range b.journal {
		if x.reply != nil {
			w.refuse(x.reply)
		}
	}
	for _, v := range b.verifies {
		w.refuse(v.m)
	}
	b.journal, b.verifies, b.gc = nil, nil, nil
	for _, r := range b.replicas {
		r.assumed = false
		r.mem = *r.disk.Clone()
		r.entries = maps.Clone(r.stored)
	}
	for _, x := range kept {
		r := b.replicas[x.book]
		switch {
		case x.state != nil:
			r.mem = *x.state.Clone()
		case x.entry >= 0:
			r.entries[x.entry] = x.copy
		}
		if power || !mutated(ledger.MutantReplayCountsAsSynced) {
			b.persist(x)
			continue
		}
		// The new process takes what it replayed for durable, though only the page cache has it.
		x.reply = nil
		r.assumed = r.mem.Fenced
		b.journal = append(b.journal, x)
	}
	b.down = true
	w.disconnect(b)
	for i := range b.replicas {
		w.books[i].touched = true
	}
}

// lose empties a bookie, or takes it back to its last checkpoint: its journal is gone.
func (b *bookie) lose(w *world, all bool) {
	b.die(w, 0, true)
	for _, m := range w.messages { // a disk is not replaced so fast that an answer of before could still be on its way
		if m.b == b && m.reply {
			m.answer(ledger.AnswerUnknown)
		}
	}
	for i, r := range b.replicas {
		k := w.books[i]
		if len(r.acked) > 0 || r.fenced || k.record.Names(b.id) {
			k.lost[string(b.id)] = true
		}
		if all {
			r.mem, r.disk, r.saved = ledger.Replica{}, ledger.Replica{}, ledger.Replica{}
			r.entries, r.stored, r.keep = map[ledger.EntryID]copyOf{}, map[ledger.EntryID]copyOf{}, map[ledger.EntryID]copyOf{}
		} else {
			r.mem, r.disk = *r.saved.Clone(), *r.saved.Clone()
			r.entries, r.stored = maps.Clone(r.keep), maps.Clone(r.keep)
		}
	}
	b.lostData = true
}

// checkpoint moves what is durable out of the journal's reach.
func (b *bookie) checkpoint() {
	for _, r := range b.replicas {
		r.saved, r.keep = *r.disk.Clone(), maps.Clone(r.stored)
	}
}

// start brings a bookie back. One that lost something first raises its incarnation, then lists its ledgers.
func (b *bookie) start(w *world) {
	if b.lostData {
		b.incarnation++
		b.lossEpoch = uint64(b.incarnation) //nolint:gosec // counts from 1
		b.lostData = false
		b.list(w)
	}
	for i, r := range b.replicas {
		if r.mem.UncleanStop() {
			r.disk = *r.mem.Clone()
		}
		w.books[i].touched = true
	}
	b.down = false
}

func (b *bookie) list(w *world) {
	if mutated(ledger.MutantLossNotListed) {
		return
	}
	for i, r := range b.replicas {
		k := w.books[i]
		if !k.gone && k.record.Names(b.id) {
			r.mem.Lose()
			r.disk = *r.mem.Clone()
		}
		if !k.gone && !k.record.Names(b.id) {
			clear(r.acked) // whoever chooses it again starts from nothing
		}
	}
}

// endLimbo ends limbo where it can be proven that nothing is missing.
func (b *bookie) endLimbo(w *world, i int) {
	r, k := b.replicas[i], w.books[i]
	if !r.mem.Limbo || k.gone || k.record.State != ledger.StateClosed || len(b.journal) > 0 {
		return
	}
	q := k.record.Quorum()
	for e := ledger.EntryID(0); e <= k.record.LastEntry; e++ {
		at := slices.Index(k.record.EnsembleOf(e), b.id)
		if _, have := r.stored[e]; at >= 0 && q.Stores(e, at) && !have {
			return
		}
	}
	r.mem.EndLimbo()
	r.disk = *r.mem.Clone()
	delete(k.lost, string(b.id))
	w.say("limbo of ledger %d on %s ends", i, b.id)
}

// collect is one step of the collector: choose, read the record, delete.
func (b *bookie) collect(w *world) {
	if b.gc == nil {
		i := w.rng.IntN(len(b.replicas))
		if r := b.replicas[i]; r.mem.Known() {
			b.gc = &collection{book: i, generation: r.mem.Generation}
			w.say("%s looks whether to keep ledger %d", b.id, i)
		}
		return
	}
	g := b.gc
	k, r := w.books[g.book], b.replicas[g.book]
	if !g.decided {
		g.decided = true
		if !k.gone && (k.record.State != ledger.StateClosed || k.record.Names(b.id)) {
			b.gc = nil
		}
		return
	}
	b.gc = nil
	generation := g.generation
	if mutated(ledger.MutantCollectorIgnoresGeneration) {
		generation = r.mem.Generation
	}
	if !r.mem.Delete(generation) {
		return
	}
	w.say("%s deletes ledger %d", b.id, g.book)
	k.touched = true
	r.disk, r.saved = *r.mem.Clone(), *r.mem.Clone()
	r.entries, r.stored, r.keep = map[ledger.EntryID]copyOf{}, map[ledger.EntryID]copyOf{}, map[ledger.EntryID]copyOf{}
	for i, x := range b.journal {
		if x.book == g.book { // what is on the way to the disk must not come back
			b.journal[i] = record{book: x.book, entry: ledger.InvalidEntry, reply: x.reply}
		}
	}
}
