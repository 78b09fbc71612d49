package ledger

import (
	"fmt"
	"slices"
	"strings"
)

// world is a small cluster in memory: bookies that obey Replica, one ledger record, clients driven by the cores, and every
// message held until the test says what becomes of it. Scripts and random schedules both drive it.
type world struct {
	q            Quorum
	bookies      []*simBookie
	clients      []*simClient
	record       *Metadata
	version      int64
	gone         bool
	inc          map[BookieID]int64 // version of the incarnation key
	messages     []*message
	late         []*metaOp // writes of unknown outcome that may still land
	wants        []*metaOp // metadata operations that wait for their outcome
	acked        []EntryID // released to an application, over all writers
	log          []string
	broken       []string // violated invariants
	lockOwner    string   // of the replication lock, "": free
	lockRevision int64
	noLoss       bool // no bookie loses anything: the strict form of I5 holds
	key          []byte
	lossy        bool // a recovery was told to accept loss: acknowledged entries may lie beyond the end
	marked       bool // under-replicated
	split        bool // adds and fences are durable only after an explicit sync
}

// simBookie is one bookie: what is in memory, and what would survive a power cut.
type simBookie struct {
	id              BookieID
	mem, disk       Replica
	entries, synced map[EntryID]simEntry
	held            []*message // replies that wait for a sync
	down            bool
	lossEpoch       uint64
	conn            uint64
	fenceAnswered   bool
	gc              *collecting
}

type simEntry struct {
	body   string // identity of the payload
	lac    EntryID
	length int64
}

// simClient is a writer or a recovery.
type simClient struct {
	name    string
	w       *Writer
	r       *Recovery
	p       *simCopier
	pick    IndexSet // asked for
	picking bool
	bodies  map[EntryID]string
	dead    bool
	closed  *Action
	lastFn  EntryID // last released
}

type message struct {
	from, to string // client and bookie; a reply travels back
	kind     string // add, readd, fence, read, length, force, lac
	reply    bool
	act      Action
	ev       Event
	conn     uint64
	body     string
}

func (m *message) name() string {
	a, b := m.from, m.to
	s := m.kind
	switch m.kind {
	case "fence", "lac", "force":
	default:
		s += fmt.Sprintf(" e%d", m.act.Entry)
	}
	if m.reply {
		return fmt.Sprintf("%s>%s %s %s", b, a, s, m.ev.Answer)
	}
	return fmt.Sprintf("%s>%s %s", a, b, s)
}

type metaOp struct {
	client *simClient
	read   bool
	act    Action
	answer *Event // decided by the store, not told
}

func newWorld(names ...string) *world {
	w := &world{inc: map[BookieID]int64{}, key: []byte("key"), noLoss: true, version: 1}
	for _, n := range names {
		w.bookies = append(w.bookies, &simBookie{id: BookieID(n), entries: map[EntryID]simEntry{}, synced: map[EntryID]simEntry{}})
		w.inc[BookieID(n)] = 1
	}
	return w
}

func (w *world) say(format string, args ...any) { w.log = append(w.log, fmt.Sprintf(format, args...)) }

func (w *world) violate(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	w.broken = append(w.broken, s)
	w.say("VIOLATED %s", s)
}

func (w *world) bookie(id BookieID) *simBookie {
	for _, b := range w.bookies {
		if b.id == id {
			return b
		}
	}
	return nil
}

func (w *world) client(name string) *simClient {
	for _, c := range w.clients {
		if c.name == name {
			return c
		}
	}
	return nil
}

func (w *world) create(name string, q Quorum, deferred bool, ensemble ...BookieID) *simClient {
	return w.createWith(name, q, WriterConfig{Deferred: deferred}, ensemble...)
}

func (w *world) createWith(name string, q Quorum, cfg WriterConfig, ensemble ...BookieID) *simClient {
	w.q = q
	w.record = &Metadata{FormatVersion: 3, Ensemble: q.Ensemble, WriteQuorum: q.Write, AckQuorum: q.Ack, State: StateOpen,
		Fragments: []Fragment{{First: 0, Bookies: ensemble}}, Digest: DigestCRC32C}
	c := &simClient{name: name, bodies: map[EntryID]string{}, lastFn: InvalidEntry}
	c.w = NewWriter(w.record, w.version, cfg)
	w.clients = append(w.clients, c)
	return c
}

func (w *world) recover(name string, readAhead int) *simClient {
	return w.recoverWith(name, RecoveryConfig{ReadAhead: readAhead})
}

func (w *world) recoverWith(name string, cfg RecoveryConfig) *simClient {
	c := &simClient{name: name, bodies: map[EntryID]string{}, lastFn: InvalidEntry}
	c.r = NewRecovery(w.record, w.version, cfg)
	w.clients = append(w.clients, c)
	w.perform(c, c.r.Start(nil))
	return c
}

// step feeds one event to a client and carries out what comes of it.
func (w *world) step(c *simClient, ev Event) {
	if c.dead {
		return
	}
	switch {
	case c.w != nil:
		w.perform(c, c.w.Step(ev, nil))
	case c.p != nil:
		w.copied(c, ev)
	default:
		w.perform(c, c.r.Step(ev, nil))
	}
}

func (w *world) appendEntry(c *simClient) {
	e := c.w.LastAddPushed() + 1
	c.bodies[e] = fmt.Sprintf("e%d", e)
	w.step(c, Event{Kind: EvAppend, Size: 10 + int64(e)})
}

func (w *world) perform(c *simClient, acts []Action) {
	for _, a := range acts {
		switch a.Kind {
		case ActSend:
			kind := "add"
			if c.r != nil {
				kind = "readd"
			}
			w.send(c, kind, a)
		case ActForce:
			w.send(c, "force", a)
		case ActWriteLAC:
			w.send(c, "lac", a)
		case ActFence:
			w.send(c, "fence", a)
		case ActRecoveryRead:
			w.send(c, "read", a)
		case ActReadLength:
			w.send(c, "length", a)
		case ActWrite:
			w.checkProposal(c, a)
			w.wants = append(w.wants, &metaOp{client: c, act: a})
			w.say("%s writes %s at v%d%s", c.name, describe(a.Record), a.Version, checkText(a.Checks))
		case ActRead:
			w.wants = append(w.wants, &metaOp{client: c, read: true, act: a})
			w.say("%s re-reads the record", c.name)
		case ActPick:
			c.pick, c.picking = a.Indices, true
			w.say("%s needs bookies for %s", c.name, indexText(a.Indices))
		case ActRelease:
			w.release(c, a)
		case ActFail:
			w.say("%s fails e%d..e%d: %v", c.name, a.First, a.Entry, a.Cause)
		case ActForceDone:
			w.say("%s force up to e%d: %v, lac %d", c.name, a.Entry, a.Cause, c.w.LastAddConfirmed())
			if a.Cause == CauseNone {
				w.promise(0, a.Entry)
			}
		case ActClosed:
			c.closed = &a
			w.say("%s closed: %v, last e%d, %d bytes", c.name, a.Cause, a.Entry, a.Length)
			if a.Cause == CauseNone && (w.gone || w.record.State != StateClosed || w.record.LastEntry != a.Entry) {
				w.violate("I3: %s reports a close at e%d, the record says %s", c.name, a.Entry, describe(w.record))
			}
		case ActRecovered:
			c.closed = &a
			w.say("%s recovered: %s", c.name, describe(a.Record))
			if text := a.Record.Custom[LossKey]; text != nil {
				w.say("%s gave up: %s", c.name, text)
			}
			if a.Record.State != StateClosed {
				w.violate("recovery ended with %s", describe(a.Record))
			}
		case ActAborted:
			c.closed = &a
			w.say("%s aborted: %v", c.name, a.Cause)
		}
	}
}

func (w *world) send(c *simClient, kind string, a Action) {
	m := &message{from: c.name, to: string(a.Bookie), kind: kind, act: a, conn: w.bookie(a.Bookie).conn}
	m.body = c.bodies[a.Entry]
	w.messages = append(w.messages, m)
}

// release checks what the application is told.
func (w *world) release(c *simClient, a Action) {
	if c.w == nil {
		return
	}
	if a.First != c.lastFn+1 {
		w.violate("I8: released e%d after e%d", a.First, c.lastFn)
	}
	c.lastFn = a.Entry
	w.say("%s acks e%d..e%d", c.name, a.First, a.Entry)
	if c.w.cfg.Deferred {
		return // promised only by a force
	}
	w.promise(a.First, a.Entry)
}

// promise notes what must not be lost any more.
func (w *world) promise(first, last EntryID) {
	for e := first; e <= last; e++ {
		w.acked = append(w.acked, e)
		if w.record.State == StateClosed && e > w.record.LastEntry {
			w.violate("acked e%d lies beyond the closed end e%d", e, w.record.LastEntry)
		}
	}
}

// checkProposal checks I13 and I14 on what is about to be written.
func (w *world) checkProposal(c *simClient, a Action) {
	if c.r != nil && a.Record.State == StateInRecovery && len(a.Record.Fragments) != len(w.record.Fragments) && a.Version == w.version {
		w.violate("I13: recovery changes ensembles before it closes")
	}
	if c.w != nil && a.Record.State == StateOpen {
		first := a.Record.Last().First
		if first > c.lastFn+1 {
			w.violate("I14: fragment at e%d while e%d is the last acked", first, c.lastFn)
		}
	}
}

// deliver carries a request to its bookie, or a reply to its client.
func (w *world) deliver(m *message) {
	w.drop(m)
	c := w.client(m.from)
	if m.reply {
		if m.kind == "read" && m.ev.Answer == AnswerOK {
			if _, have := c.bodies[m.ev.Entry]; !have {
				c.bodies[m.ev.Entry] = m.body
			}
		}
		w.step(c, m.ev)
		return
	}
	b := w.bookie(BookieID(m.to))
	if b.down {
		m.answer(AnswerUnknown)
		w.messages = append(w.messages, m)
		return
	}
	b.serve(w, m)
}

func (w *world) drop(m *message) {
	for i, x := range w.messages {
		if x == m {
			w.messages = slices.Delete(w.messages, i, i+1)
			return
		}
	}
}

// timeout loses a message and lets its client notice.
func (w *world) timeout(m *message) {
	w.drop(m)
	r := *m
	r.answer(AnswerUnknown)
	w.step(w.client(m.from), r.ev)
}

// refuse answers an add as a read-only bookie does.
func (w *world) refuse(m *message) {
	w.drop(m)
	r := *m
	r.answer(AnswerUnknown)
	r.ev.Urgent = true
	w.step(w.client(m.from), r.ev)
}

// answer builds the event that the client gets.
func (m *message) answer(a Answer) {
	m.reply = true
	kind := EvAnswer
	switch m.kind {
	case "fence":
		kind = EvFenceAnswer
	case "read":
		kind = EvReadAnswer
	case "length":
		kind = EvLengthAnswer
	case "force":
		kind = EvForceAnswer
	case "lac":
		kind = 0
	}
	m.ev = Event{Kind: kind, Answer: a, Index: m.act.Index, Bookie: m.act.Bookie, Entry: m.act.Entry, Round: m.act.Round, Conn: m.conn}
	if m.kind == "fence" {
		m.ev.Entry = InvalidEntry
	}
}

// serve applies a request under the bookie's rules.
func (b *simBookie) serve(w *world, req *message) {
	m := *req
	c := w.client(m.from)
	deferred := m.kind == "add" && c.w != nil && c.w.cfg.Deferred
	defer func() {
		if m.kind == "lac" {
			return
		}
		if w.split && !deferred && (m.kind == "add" || m.kind == "readd" || m.kind == "copy" || m.kind == "fence" || m.kind == "read") && b.unsynced() {
			b.held = append(b.held, &m)
			return
		}
		b.sent(&m)
		w.messages = append(w.messages, &m)
	}()
	switch m.kind {
	case "add", "readd", "copy":
		recovery := m.kind != "add"
		v := b.mem.CheckAdd(w.key, recovery, b.lossEpoch)
		if v == NeedsVerify {
			open := !w.gone && w.record.State == StateOpen && w.record.Names(b.id)
			v, _ = b.mem.Verify(b.mem.Ticket(), open, b.lossEpoch)
			if v == Accepted {
				v = b.mem.CheckAdd(w.key, recovery, b.lossEpoch)
			}
		}
		if v != Accepted {
			m.answer(map[Verdict]Answer{BadKey: AnswerUnauthorized, RefusedLimbo: AnswerUnknown, RefusedFenced: AnswerFenced}[v])
			return
		}
		if b.fenceAnswered && !recovery {
			w.violate("I10: %s accepts an add after it answered a fence", b.id)
		}
		if m.act.LAC >= m.act.Entry && m.kind != "copy" {
			w.violate("I9: e%d carries LAC %d", m.act.Entry, m.act.LAC)
		}
		b.mem.Accept(w.key, recovery)
		if deferred && b.mem.MarkDeferred() {
			b.disk = *b.mem.Clone() // the mark is durable before the first acknowledgement
		}
		b.entries[m.act.Entry] = simEntry{body: m.body, lac: m.act.LAC, length: m.act.Length}
		if !w.split && !deferred {
			b.sync()
		}
		m.answer(AnswerOK)
	case "fence", "read":
		v, _ := b.mem.Fence(w.key)
		if v == BadKey {
			m.answer(AnswerUnauthorized)
			return
		}
		if !w.split {
			b.sync()
		}
		if m.kind == "fence" {
			last, ok := b.last()
			m.answer(readAnswer(b.mem.ReadLast(ok)))
			if m.ev.Answer == AnswerOK {
				x := b.entries[last]
				m.ev.Entry, m.ev.LAC, m.ev.Length = last, x.lac, x.length
			}
			return
		}
		b.read(&m)
	case "length":
		b.read(&m)
	case "force":
		if b.mem.CheckForce(b.lossEpoch) != Accepted {
			m.answer(AnswerUnknown)
			return
		}
		w.syncBookie(b) // everything before it, too
		m.answer(AnswerOK)
	}
}

func (b *simBookie) read(m *message) {
	x, ok := b.entries[m.act.Entry]
	m.answer(readAnswer(b.mem.Read(ok)))
	if ok {
		m.ev.LAC, m.ev.Length, m.body = x.lac, x.length, x.body
	}
}

func readAnswer(v ReadVerdict) Answer {
	return [...]Answer{Serve: AnswerOK, NoEntry: AnswerNegative, NoLedger: AnswerNegative, UnknownAnswer: AnswerUnknown}[v]
}

// sent notes that a reply leaves the bookie.
func (b *simBookie) sent(m *message) {
	if m.kind == "fence" || m.kind == "read" {
		b.fenceAnswered = true
	}
}

func (b *simBookie) last() (EntryID, bool) {
	last := InvalidEntry
	for e := range b.entries {
		last = max(last, e)
	}
	return last, last >= 0
}

func (b *simBookie) unsynced() bool {
	return len(b.synced) != len(b.entries) || b.disk.Fenced != b.mem.Fenced || b.disk.HasKey != b.mem.HasKey || b.disk.Tombstone != b.mem.Tombstone
}

func (b *simBookie) sync() {
	b.disk = *b.mem.Clone()
	for e, x := range b.entries {
		b.synced[e] = x
	}
}

// syncAndReply makes everything durable and lets the held replies go.
func (w *world) syncBookie(b *simBookie) {
	b.sync()
	for _, m := range b.held {
		b.sent(m)
		w.messages = append(w.messages, m)
	}
	b.held = nil
}

// crash cuts the power of a bookie and starts it again: unsynced state and all connections are gone.
func (w *world) crash(b *simBookie) {
	b.mem = *b.disk.Clone()
	b.entries = map[EntryID]simEntry{}
	for e, x := range b.synced {
		b.entries[e] = x
	}
	for _, m := range b.held {
		m.answer(AnswerUnknown)
		w.messages = append(w.messages, m)
	}
	b.held = nil
	b.mem.UncleanStop()
	w.newConn(b)
}

func (w *world) newConn(b *simBookie) {
	b.conn++
	for _, m := range w.messages { // requests on the old connection are lost; their clients notice some time later
		if m.to == string(b.id) && !m.reply {
			m.answer(AnswerUnknown)
		}
	}
}

// wipe empties a bookie and brings it back under its id, with what decision 34 makes it do before it serves.
func (w *world) wipe(b *simBookie) {
	b.mem, b.disk = Replica{}, Replica{}
	b.entries, b.synced = map[EntryID]simEntry{}, map[EntryID]simEntry{}
	b.held = nil
	b.lossEpoch++
	w.inc[b.id]++
	w.noLoss = false
	w.newConn(b)
	if !w.gone && w.record.Names(b.id) {
		b.mem.Lose()
		b.disk = *b.mem.Clone()
	}
}

// meta gives a pending metadata operation its outcome: ok, conflict is what the store decides; "unknown-applied",
// "unknown-dropped", "unknown-late" for writes and "unknown" for reads.
func (w *world) meta(op *metaOp, outcome string) {
	w.forgetWant(op)
	c := op.client
	if c.p != nil {
		w.publishNow(op)
		return
	}
	if op.read {
		switch {
		case outcome != "ok":
			w.step(c, Event{Kind: EvMetaUnknown})
		case w.gone:
			w.step(c, Event{Kind: EvGone})
		default:
			w.step(c, Event{Kind: EvRead, Record: w.record, Version: w.version})
		}
		return
	}
	switch outcome {
	case "ok":
		switch {
		case w.gone:
			w.step(c, Event{Kind: EvGone})
		case w.apply(op):
			w.step(c, Event{Kind: EvWritten, Version: w.version})
		default:
			w.step(c, Event{Kind: EvConflict})
		}
	case "unknown-applied":
		w.apply(op)
		w.step(c, Event{Kind: EvMetaUnknown})
	case "unknown-late":
		w.late = append(w.late, op)
		w.step(c, Event{Kind: EvMetaUnknown})
	default:
		w.step(c, Event{Kind: EvMetaUnknown})
	}
}

func (w *world) apply(op *metaOp) bool {
	if w.gone || op.act.Version != w.version {
		return false
	}
	for _, k := range op.act.Checks {
		if w.inc[k.Bookie] != k.Version {
			return false
		}
	}
	if err := op.act.Record.Validate(); err != nil {
		w.violate("I1/I2: %v", err)
	}
	if r := op.act.Record; w.record.State == StateClosed && (op.client.p == nil || r.State != StateClosed || r.LastEntry != w.record.LastEntry || r.Length != w.record.Length) {
		w.violate("I12: %s over a closed record", describe(op.act.Record))
	}
	w.record, w.version = op.act.Record, w.version+1
	w.say("record v%d: %s", w.version, describe(w.record))
	return true
}

// pickFor answers ActPick; names has one bookie for each index asked for, "" for none.
func (w *world) pickFor(c *simClient, names []BookieID) {
	c.picking = false
	var picks []Pick
	k := 0
	for i := range w.q.Ensemble {
		if !c.pick.Has(i) {
			continue
		}
		p := Pick{Index: i}
		if k < len(names) && names[k] != "" {
			p.Bookie, p.Incarnation = names[k], w.inc[names[k]]
		}
		k++
		picks = append(picks, p)
	}
	w.step(c, Event{Kind: EvPicked, Picks: picks})
}

// check looks at the invariants that hold after every step.
func (w *world) check() {
	if w.record == nil {
		return
	}
	for _, e := range w.acked {
		if w.gone || w.lossy {
			break
		}
		deny, have := 0, 0
		for n := range w.q.Write {
			b := w.bookie(w.record.EnsembleOf(e)[w.q.Index(e, n)])
			if x, ok := b.entries[e]; ok {
				have++
				if x.body != fmt.Sprintf("e%d", e) {
					w.violate("I6: %s holds %q as e%d", b.id, x.body, e)
				}
			} else if !b.mem.Limbo {
				deny++
			}
		}
		if deny > w.q.Write-w.q.Ack {
			w.violate("I4': e%d is acked, %d of its stored write set would deny it (%d have it)", e, deny, have)
		}
		if w.record.State == StateClosed && e > w.record.LastEntry {
			w.violate("acked e%d lies beyond the closed end e%d", e, w.record.LastEntry)
		}
	}
	if w.gone || w.record.State != StateClosed {
		return
	}
	for _, b := range w.bookies {
		for e, x := range b.entries {
			if x.lac > w.record.LastEntry {
				w.violate("I21: %s serves LAC %d with e%d, the end is e%d", b.id, x.lac, e, w.record.LastEntry)
			}
		}
	}
	if w.noLoss && !w.lossy {
		for e := EntryID(0); e <= w.record.LastEntry; e++ {
			have := 0
			for n := range w.q.Write {
				if _, ok := w.bookie(w.record.EnsembleOf(e)[w.q.Index(e, n)]).entries[e]; ok {
					have++
				}
			}
			if have < w.q.Ack {
				w.violate("I5: closed at e%d, only %d copies of e%d", w.record.LastEntry, have, e)
			}
		}
	}
}

func describe(m *Metadata) string {
	var s strings.Builder
	s.WriteString(m.State.String())
	for _, f := range m.Fragments {
		fmt.Fprintf(&s, " %d:", f.First)
		for _, b := range f.Bookies {
			s.WriteString(string(b))
		}
	}
	if m.State == StateClosed {
		fmt.Fprintf(&s, " last e%d length %d", m.LastEntry, m.Length)
	}
	return s.String()
}

func checkText(checks []IncarnationCheck) string {
	s := ""
	for _, c := range checks {
		s += fmt.Sprintf(" if %s is i%d", c.Bookie, c.Version)
	}
	return s
}

func indexText(s IndexSet) string {
	var parts []string
	for ; s != 0; s = s.Without(s.First()) {
		parts = append(parts, fmt.Sprint(s.First()))
	}
	return strings.Join(parts, ",")
}
