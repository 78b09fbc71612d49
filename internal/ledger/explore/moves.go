package explore

import (
	"fmt"
	"slices"
	"strings"

	"github.com/binderylog/bindery/internal/ledger"
)

type moveKind uint8

// The moves. Free ones cost no budget: the system makes them by itself, sooner or later.
const (
	mvDeliver moveKind = iota // free: a request or an answer arrives
	mvApply                   // free: the store decides about the operation of a client
	mvTell                    // free: its answer arrives
	mvPick                    // free
	mvSync                    // free
	mvStart                   // free: a bookie that came back serves
	mvTier                    // free: the tier's workers, releases and janitor go on
	mvNotice                  // free: a client notices that nothing will come
	mvAppend
	mvRecover
	mvDeliverOnly // a request arrives, its answer never does
	mvTimeout
	mvUnknown
	mvMetaTimeout
	mvLand
	mvClose
	mvForce
	mvLACTick
	mvRetry
	mvPowerCut
	mvKill
	mvWipe
	mvLose
	mvFault
	mvDelete
	mvLook
	mvCollect
	mvEndLimbo
	mvReplicate
	mvReadRecord
	mvReadLAC
	mvReadEntry
	mvTierMay // somebody begins something in the tier, or has trouble there
)

// free moves leave no choice to anybody but the order.
const lastFree = mvNotice

// move is one move: what of (a client or a bookie), with what (a message's place, an entry, picks).
type move struct {
	kind moveKind
	who  uint8
	with uint32
}

// moves appends everything that can happen in s, in an order that depends on s alone.
func (x *space) moves(s *state, out []move) []move {
	if m, ok := x.alone(s); ok {
		return append(out, m)
	}
	for i, id := range s.flight() {
		out = x.messageMoves(s, i, x.messages.at(uint32(id)), out)
	}
	for i := range x.spec.clients() {
		out = x.clientMoves(s, i, *x.clients.at(s.clients[i]), out)
	}
	for i := range x.spec.Bookies {
		out = x.bookieMoves(s, i, *x.bookies.at(s.bookies[i]), out)
	}
	for i, l := range s.late {
		if l != 0 {
			out = append(out, move{mvLand, 0, uint32(i)})
		}
	}
	if s.budget[budDeletes] > 0 && !s.gone {
		out = append(out, move{kind: mvDelete})
	}
	if x.spec.Tier {
		out = x.tierMoves(s, x.tiers.at(s.tier), out)
	}
	return out
}

// alone finds a client whose metadata operation was answered and that waits for nothing else: no message to it is under
// way and none can come before it goes on. Its next step commutes with everything that the others may do meanwhile, and
// none of the invariants looks at what it changes; so it may as well be made first.
func (x *space) alone(s *state) (move, bool) {
	if x.spec.unordered || x.spec.Budget.Unknowns > 0 || x.spec.Budget.MetaTimeouts > 0 {
		return move{}, false
	}
	for i := 1; i < x.spec.clients(); i++ {
		c := *x.clients.at(s.clients[i])
		if c.role != roleRecovery || c.status != statusLive || !c.want.answered || c.pick != 0 {
			continue
		}
		waits := false
		for _, id := range s.flight() {
			m := x.messages.at(uint32(id))
			waits = waits || int(m.client) == i && !m.orphan
		}
		if !waits {
			return move{kind: mvTell, who: uint8(i)}, true
		}
	}
	return move{}, false
}

func (x *space) messageMoves(s *state, i int, m *message, out []move) []move {
	with := uint32(i)
	if i > 0 && s.messages[i-1] == s.messages[i] { // the same message twice: one of them is enough
		return out
	}
	b := *x.bookies.at(s.bookies[m.bookie])
	switch m.phase {
	case phaseRequest:
		if !b.starting {
			out = append(out, move{mvDeliver, m.client, with})
			if x.prompt(m) && !b.disk.Fenced {
				out = append(out, move{mvDeliverOnly, m.client, with})
			}
			if s.budget[budFaults] > 0 && m.kind == msgRead && !m.orphan && m.entry < entryMax && b.have[m.entry].ok {
				out = append(out, move{mvFault, m.client, with})
			}
		}
	case phaseVerify, phaseReply:
		out = append(out, move{mvDeliver, m.client, with})
	case phaseLost:
		if !m.orphan {
			return append(out, move{mvNotice, m.client, with})
		}
	}
	if s.budget[budTimeouts] > 0 && !m.orphan && (x.spec.LostReads || m.kind <= msgCopy) && (m.phase != phaseReply || m.answer != ledger.AnswerUnknown) {
		out = append(out, move{mvTimeout, m.client, with})
	}
	return out
}

// prompt reports whether the answer to a request arrives together with it or never.
func (x *space) prompt(m *message) bool {
	return x.spec.Prompt && !m.orphan && (m.kind == msgFence || m.kind == msgRead)
}

func (x *space) clientMoves(s *state, i int, c *client, out []move) []move {
	who := uint8(i)
	if c.status == statusIdle {
		switch {
		case s.gone:
		case c.role == roleRecovery && (i == 1 || x.statusOf(s, i-1) != statusIdle):
			out = append(out, move{kind: mvRecover, who: who})
		case c.role == roleReplicator:
			out = x.replicatorStarts(s, i, out)
		case c.role == roleReader:
			out = append(out, move{kind: mvReadRecord, who: who})
		}
		return out
	}
	if c.status == statusDone {
		return out
	}
	if c.want.kind != wantNone {
		switch {
		case c.want.answered:
			out = append(out, move{kind: mvTell, who: who})
		default:
			out = append(out, move{kind: mvApply, who: who})
		}
		if s.budget[budUnknowns] > 0 {
			out = append(out, move{kind: mvUnknown, who: who})
		}
		if s.budget[budMetaTimeouts] > 0 && c.want.kind == wantRead {
			out = append(out, move{kind: mvMetaTimeout, who: who})
		}
	}
	if c.pick != 0 {
		out = x.pickMoves(s, who, c, out)
	}
	switch c.role {
	case roleWriter:
		out = x.writerMoves(s, who, c.w, out)
	case roleReader:
		out = x.readerMoves(s, i, c, out)
	}
	return out
}

func (x *space) statusOf(s *state, i int) status { return (*x.clients.at(s.clients[i])).status }

func (x *space) writerMoves(s *state, who uint8, w *ledger.Writer, out []move) []move {
	if w.Cause() != ledger.CauseNone {
		return out
	}
	if s.budget[budEntries] > 0 && (x.spec.Pending == 0 || w.Pending() < x.spec.Pending) {
		out = append(out, move{kind: mvAppend, who: who})
	}
	for _, m := range [...]struct {
		kind   moveKind
		budget budgetKind
	}{{mvClose, budCloses}, {mvForce, budForces}, {mvLACTick, budLACTicks}, {mvRetry, budRetries}} {
		if s.budget[m.budget] > 0 && (m.kind != mvRetry || w.Degraded()) {
			out = append(out, move{kind: m.kind, who: who})
		}
	}
	return out
}

// pickMoves are all answers to a request for replacements: three bits for each index.
func (x *space) pickMoves(s *state, who uint8, c *client, out []move) []move {
	choices := []uint32{0}
	for i := range x.spec.Quorum.Ensemble {
		if !c.pick.Has(i) {
			continue
		}
		var next []uint32
		for _, w := range choices {
			for b := range x.spec.Bookies {
				if slices.Contains(c.exclude, x.names[b]) || taken(w, b) {
					continue
				}
				next = append(next, w|uint32(b+1)<<(3*i))
			}
			if x.spec.PickSame {
				next = append(next, w|pickSame<<(3*i))
			}
			if x.spec.PickNone || x.spec.Bookies-x.spec.Quorum.Ensemble < c.pick.Len() {
				next = append(next, w|pickNone<<(3*i))
			}
		}
		choices = next
	}
	for _, w := range choices {
		out = append(out, move{mvPick, who, w})
	}
	return out
}

const (
	pickNone = 7
	pickSame = 0 // asked but not named: the bookie that is there
)

func taken(w uint32, b int) bool {
	for ; w != 0; w >>= 3 {
		if int(w&7) == b+1 {
			return true
		}
	}
	return false
}

func (x *space) bookieMoves(s *state, i int, b *bookie, out []move) []move {
	who := uint8(i)
	if b.starting {
		return append(out, move{kind: mvStart, who: who})
	}
	if x.spec.Split || x.spec.Deferred {
		if b.dirty() {
			out = append(out, move{kind: mvSync, who: who})
			if s.budget[budKills] > 0 {
				out = append(out, move{kind: mvKill, who: who})
			}
		}
		if s.budget[budPowerCuts] > 0 && (b.dirty() || x.spec.Deferred && b.mem.Known()) {
			out = append(out, move{kind: mvPowerCut, who: who})
		}
	}
	touched := b.mem.Known() || b.mem.Tombstone || b.lossEpoch > 0
	if s.budget[budWipes] > 0 && touched {
		out = append(out, move{kind: mvWipe, who: who})
	}
	if s.budget[budLoses] > 0 && touched {
		out = append(out, move{kind: mvLose, who: who})
	}
	if x.spec.Collect {
		out = x.collectMoves(s, i, b, out)
	}
	return out
}

func (x *space) collectMoves(s *state, i int, b *bookie, out []move) []move {
	who := uint8(i)
	rec := *x.records.at(s.record)
	if x.mayCollect(s, i, b) {
		out = append(out, move{kind: mvLook, who: who})
	}
	if b.gc != 0 {
		out = append(out, move{kind: mvCollect, who: who})
	}
	if b.mem.Limbo && !s.gone && rec.State == ledger.StateClosed && x.complete(rec, i, b) {
		out = append(out, move{kind: mvEndLimbo, who: who})
	}
	return out
}

// mayCollect reports whether a collector has its proofs and its lock.
func (x *space) mayCollect(s *state, i int, b *bookie) bool {
	proof := ledger.CollectProof{Listing: true, Listed: !s.gone, Read: true}
	if !s.gone {
		proof.Record = *x.records.at(s.record)
	}
	return b.gc == 0 && b.mem.Known() && proof.Holds(x.names[i]) && x.mayLock(s, lockBookie+uint8(i))
}

// complete reports whether everything that the record stores at a bookie is durable there.
func (x *space) complete(rec *ledger.Metadata, i int, b *bookie) bool {
	q := rec.Quorum()
	for e := ledger.EntryID(0); e <= rec.LastEntry; e++ {
		for k, name := range rec.EnsembleOf(e) {
			if name == x.names[i] && q.Stores(e, k) && !b.synced[e].ok {
				return false
			}
		}
	}
	return true
}

// text prints a move as a line of a scenario.
func (x *space) text(s *state, m move) string {
	name := func() string { return x.clientName(int(m.who)) }
	switch m.kind {
	case mvDeliver:
		msg := x.messages.at(uint32(s.messages[m.with]))
		if msg.phase == phaseRequest && x.prompt(msg) {
			return "do " + x.messageName(msg)
		}
		if msg.phase == phaseReply {
			return "reply " + x.messageName(msg)
		}
		return "deliver " + x.messageName(msg)
	case mvDeliverOnly:
		return "deliver " + x.messageName(x.messages.at(uint32(s.messages[m.with])))
	case mvTimeout, mvNotice, mvFault:
		return [...]string{mvTimeout: "timeout ", mvNotice: "timeout ", mvFault: "fault "}[m.kind] + x.messageName(x.messages.at(uint32(s.messages[m.with])))
	case mvApply:
		return "store " + name()
	case mvTell:
		return "told " + name()
	case mvUnknown:
		if (*x.clients.at(s.clients[m.who])).want.answered {
			return "meta " + name() + " lost"
		}
		return "meta " + name() + " unknown-late"
	case mvMetaTimeout:
		return "metatimeout " + name()
	case mvLand:
		return "land " + x.lateName(s.late[m.with])
	case mvPick:
		c := *x.clients.at(s.clients[m.who])
		parts := []string{"pick", name()}
		for i := range x.spec.Quorum.Ensemble {
			if !c.pick.Has(i) {
				continue
			}
			switch b := m.with >> (3 * i) & 7; b {
			case pickNone:
				parts = append(parts, "-")
			case pickSame:
				parts = append(parts, string(c.exclude[i]))
			default:
				parts = append(parts, string(x.names[b-1]))
			}
		}
		return strings.Join(parts, " ")
	case mvReplicate:
		return fmt.Sprintf("replicate %s %d %d %s", name(), m.with>>16, m.with>>8&0xff, x.names[m.with&0xff])
	case mvReadLAC:
		return fmt.Sprintf("poll %s %s", name(), x.names[m.with])
	case mvReadEntry:
		return fmt.Sprintf("entry %s e%d", name(), m.with)
	case mvDelete:
		return "delete"
	case mvTier, mvTierMay:
		return x.tierText(s, m)
	case mvAppend, mvRecover, mvClose, mvForce, mvLACTick, mvRetry, mvReadRecord:
		return [...]string{mvAppend: "append", mvRecover: "recover", mvClose: "close", mvForce: "force", mvLACTick: "lactick", mvRetry: "retry", mvReadRecord: "refresh"}[m.kind] + " " + name()
	}
	return [...]string{mvSync: "sync", mvStart: "start", mvPowerCut: "powercut", mvKill: "kill", mvWipe: "erase", mvLose: "losejournal", mvLook: "look", mvCollect: "collect",
		mvEndLimbo: "closedlimbo"}[m.kind] + " " + string(x.names[m.who])
}

func (x *space) lateName(id uint16) string {
	l := x.lates.at(uint32(id))
	return fmt.Sprintf("%s v%d %s", x.clientName(int(l.client)), l.want.version, describe(*x.records.at(l.want.record)))
}

// messageName is the name that scenarios give to a message.
func (x *space) messageName(m *message) string {
	s := m.kind.String()
	switch m.kind {
	case msgFence, msgForce, msgLAC:
	default:
		s += fmt.Sprintf(" e%d", m.entry)
	}
	c := x.clientName(int(m.client))
	if m.phase == phaseReply || m.phase == phaseHeld {
		return fmt.Sprintf("%s>%s %s %s", x.names[m.bookie], c, s, m.answer)
	}
	if m.orphan {
		s += " (given up)"
	}
	if m.phase == phaseVerify {
		s += " (verifying)"
	}
	return fmt.Sprintf("%s>%s %s", c, x.names[m.bookie], s)
}

func describe(m *ledger.Metadata) string {
	var s strings.Builder
	s.WriteString(m.State.String())
	for _, f := range m.Fragments {
		fmt.Fprintf(&s, " %d:", f.First)
		for _, b := range f.Bookies {
			s.WriteString(string(b))
		}
	}
	if m.State == ledger.StateClosed {
		fmt.Fprintf(&s, " last e%d length %d", m.LastEntry, m.Length)
	}
	return s.String()
}
