package explore

import (
	"fmt"

	"github.com/binderylog/bindery/internal/ledger"
)

// event is a ledger.Event as numbers, so that steps can be remembered by it.
type event struct {
	kind    ledger.EventKind
	answer  ledger.Answer
	index   uint8
	round   uint8
	bookie  uint8
	entry   int8
	lac     int8
	length  int8
	conn    uint8
	record  uint32
	version uint8
	picks   [bookieMax]choice // by index
}

// choice is the bookie picked for an index.
type choice struct {
	asked   bool
	bookie  uint8 // number+1, 0 for none
	version uint8 // of its incarnation key
}

type stepKey struct {
	client uint32
	slot   uint8
	ev     event
}

// clientStep is what one event does to one client.
type clientStep struct {
	next    uint32
	sends   []uint16
	effects []effect
	noop    bool
	broken  string // an invariant that the step alone violates
}

// effect is what a step means outside of its client.
type effect struct {
	kind   ledger.ActionKind // ActRelease, ActForceDone, ActClosed, ActRecovered, ActAborted
	first  int8
	last   int8
	cause  ledger.Cause
	record uint32
}

func (x *space) event(ev *event) ledger.Event {
	e := ledger.Event{Kind: ev.kind, Answer: ev.answer, Index: int(ev.index), Round: int(ev.round), Bookie: x.names[ev.bookie], Entry: ledger.EntryID(ev.entry),
		LAC: ledger.EntryID(ev.lac), Length: int64(ev.length), Conn: uint64(ev.conn), Version: int64(ev.version)}
	switch ev.kind {
	case ledger.EvAppend:
		e.Size = 1
	case ledger.EvRead:
		e.Record = *x.records.at(ev.record)
	case ledger.EvPicked:
		for i, p := range ev.picks {
			if !p.asked {
				continue
			}
			k := ledger.Pick{Index: i}
			if p.bookie > 0 {
				k.Bookie, k.Incarnation = x.names[p.bookie-1], int64(p.version)
			}
			e.Picks = append(e.Picks, k)
		}
	}
	return e
}

// clone copies the client, so that its core may take a step.
func (c *client) clone() *client {
	n := *c
	switch {
	case c.w != nil:
		n.w = c.w.Clone()
	case c.r != nil:
		n.r = c.r.Clone()
	case c.rd != nil:
		n.rd = c.rd.Clone()
	case c.rep != nil:
		n.rep = c.rep.clone()
	}
	return &n
}

// clientStep feeds ev to the client in a slot.
func (x *space) clientStep(slot int, id uint32, ev event) *clientStep {
	k := stepKey{client: id, slot: uint8(slot), ev: ev}
	if x.spec.exact {
		return x.runStep(k)
	}
	return x.steps.get(k, func() *clientStep { return x.runStep(k) })
}

func (x *space) runStep(k stepKey) *clientStep {
	c := (*x.clients.at(k.client)).clone()
	st := &clientStep{}
	switch k.ev.kind {
	case ledger.EvPicked:
		c.pick, c.exclude = 0, nil
	case ledger.EvWritten, ledger.EvConflict, ledger.EvRead, ledger.EvGone, ledger.EvMetaUnknown, ledger.EvMetaTimeout:
		c.want = want{}
	}
	var acts []ledger.Action
	switch {
	case c.w != nil:
		acts = c.w.Step(x.event(&k.ev), nil)
		if lac := int8(c.w.LastAddConfirmed()); lac < c.lac {
			st.broken = fmt.Sprintf("I9: the LAC of W goes back from %d to %d", c.lac, lac)
		} else {
			c.lac = lac
		}
	case c.r != nil:
		acts = c.r.Step(x.event(&k.ev), nil)
	case c.rep != nil:
		x.replicatorStep(c, &k, st)
	}
	x.perform(int(k.slot), c, acts, st)
	st.next = x.clientID(c)
	st.noop = st.next == k.client && len(st.sends) == 0 && len(st.effects) == 0 && st.broken == ""
	return st
}

// startRecovery is the first step of a recoverer that read the record at version.
func (x *space) startRecovery(slot int, record uint32, version uint8) *clientStep {
	c := &client{role: roleRecovery, status: statusLive, released: -1, lac: -1}
	c.r = ledger.NewRecovery(*x.records.at(record), int64(version), ledger.RecoveryConfig{ReadAhead: x.spec.ReadAhead, RestartsMax: 3})
	st := &clientStep{}
	x.perform(slot, c, c.r.Start(nil), st)
	st.next = x.clientID(c)
	return st
}

// perform turns a core's actions into messages, wants and effects.
func (x *space) perform(slot int, c *client, acts []ledger.Action, st *clientStep) {
	for i := range acts {
		a := &acts[i]
		switch a.Kind {
		case ledger.ActSend:
			k := msgAdd
			if c.r != nil {
				k = msgReadd
			}
			if a.LAC >= a.Entry {
				st.broken = fmt.Sprintf("I9: e%d is sent with LAC %d", a.Entry, a.LAC)
			}
			x.send(slot, k, a, st)
		case ledger.ActForce:
			x.send(slot, msgForce, a, st)
		case ledger.ActWriteLAC:
			x.send(slot, msgLAC, a, st)
		case ledger.ActFence:
			c.released = -1 // a new round
			x.send(slot, msgFence, a, st)
		case ledger.ActRecoveryRead:
			x.send(slot, msgRead, a, st)
		case ledger.ActReadLength:
			x.send(slot, msgLength, a, st)
		case ledger.ActWrite:
			c.want = want{kind: wantWrite, record: x.recordID(a.Record), version: uint8(a.Version), blind: ledger.Planted() == ledger.MutantBlindChange && c.w != nil && a.Record.State == ledger.StateOpen}
			if len(a.Checks) > len(c.want.checks) {
				panic(errTooMany)
			}
			for n, k := range a.Checks {
				c.want.checks[n] = incarnation{uint8(x.bookieNumber(k.Bookie)) + 1, uint8(k.Version)}
			}
			if err := a.Record.Validate(); err != nil {
				st.broken = "I1, I2: " + err.Error()
			}
		case ledger.ActRead:
			c.want = want{kind: wantRead}
		case ledger.ActPick:
			c.pick, c.exclude = a.Indices, a.Exclude
		case ledger.ActRelease:
			if int8(a.First) != c.released+1 && c.w != nil {
				st.broken = fmt.Sprintf("I8: e%d is released after e%d", a.First, c.released)
			}
			c.released = int8(a.Entry)
			if c.w != nil {
				st.effects = append(st.effects, effect{kind: a.Kind, first: int8(a.First), last: int8(a.Entry)})
			}
		case ledger.ActForceDone:
			st.effects = append(st.effects, effect{kind: a.Kind, last: int8(a.Entry), cause: a.Cause})
		case ledger.ActClosed:
			c.status, c.want, c.pick = statusDone, want{}, 0
			st.effects = append(st.effects, effect{kind: a.Kind, last: int8(a.Entry), cause: a.Cause})
		case ledger.ActRecovered:
			c.status, c.want, c.pick = statusDone, want{}, 0
			st.effects = append(st.effects, effect{kind: a.Kind, record: x.recordID(a.Record)})
		case ledger.ActAborted:
			c.status, c.want, c.pick = statusDone, want{}, 0
			st.effects = append(st.effects, effect{kind: a.Kind, cause: a.Cause})
		}
	}
	if c.status == statusDone {
		*c = client{role: c.role, status: statusDone, released: c.released}
		if c.role != roleWriter {
			c.released = -1
		}
	}
}

func (x *space) send(slot int, k kind, a *ledger.Action, st *clientStep) {
	m := message{kind: k, client: uint8(slot), bookie: uint8(x.bookieNumber(a.Bookie)), index: uint8(a.Index), round: uint8(a.Round), entry: int8(a.Entry)}
	if int(a.Entry) >= entryMax && k != msgRead {
		panic(errTooMany)
	}
	switch k {
	case msgAdd, msgReadd:
		m.lac, m.length = int8(a.LAC), int8(a.Length)
	case msgLAC:
		m.lac = int8(a.LAC)
	case msgFence:
		m.entry = -1
	}
	st.sends = append(st.sends, x.messageID(&m))
}

// take applies a client's step to the state. It returns the invariant that is violated, if any.
func (x *space) take(s *state, slot int, st *clientStep) string {
	s.clients[slot] = st.next
	for _, m := range st.sends {
		s.addMessage(m)
	}
	if st.broken != "" {
		return st.broken
	}
	why := ""
	for i := range st.effects {
		if w := x.effect(s, slot, &st.effects[i]); why == "" {
			why = w
		}
	}
	return why
}

// endClient makes a client disappear: nothing reaches it any more.
func (x *space) endClient(s *state, slot int) {
	c := *x.clients.at(s.clients[slot])
	s.clients[slot] = x.clientID(&client{role: c.role, status: statusDone, released: c.released})
}

// replyEvent is what a client gets when the message's answer arrives, or, with unknown, when it gives up.
func (m *message) replyEvent(unknown bool) event {
	ev := event{kind: ledger.EvAnswer, answer: m.answer, index: m.index, bookie: m.bookie, entry: m.entry, round: m.round, conn: m.conn}
	switch m.kind {
	case msgFence:
		ev.kind, ev.entry, ev.lac, ev.length = ledger.EvFenceAnswer, m.gotEntry, m.gotLAC, m.gotLength
	case msgRead:
		ev.kind, ev.lac, ev.length = ledger.EvReadAnswer, m.gotLAC, m.gotLength
	case msgLength:
		ev.kind, ev.length = ledger.EvLengthAnswer, m.gotLength
	case msgForce:
		ev.kind = ledger.EvForceAnswer
	}
	if unknown {
		ev.answer, ev.lac, ev.length = ledger.AnswerUnknown, 0, 0
		if m.kind == msgFence {
			ev.entry = -1
		}
	}
	return ev
}

// settle drops what can not have an effect any more, so that states that differ only in it are one state:
//   - answers to clients that are done, or that have moved past the question;
//   - requests nobody waits for that would change nothing at their bookie, now and later.
func (x *space) settle(s *state) {
	for i := 0; i < int(s.n); {
		id := s.messages[i]
		m := x.messages.at(uint32(id))
		if i > 0 && id == s.messages[i-1] && m.orphan { // the same once more changes nothing
			s.removeMessage(i)
			continue
		}
		if to := x.settled(s, m); to == nil {
			s.removeMessage(i)
		} else if *to != *m {
			s.removeMessage(i)
			s.addMessage(x.messageID(to))
			i = 0 // a changed message may have moved before i; changes are few
		} else {
			i++
		}
	}
}

func (x *space) settled(s *state, m *message) *message {
	if !m.orphan {
		c := *x.clients.at(s.clients[m.client])
		deaf := c.status == statusDone || m.kind == msgLAC
		switch m.kind {
		case msgFence, msgRead, msgLength:
			if !deaf { // past the question: the phase, the round or the window never comes back to it
				deaf = x.clientStep(int(m.client), s.clients[m.client], m.replyEvent(true)).noop && (m.phase != phaseReply ||
					x.clientStep(int(m.client), s.clients[m.client], m.replyEvent(false)).noop)
			}
		case msgAdd, msgReadd: // a success for what was released says nothing new; a failure does
			deaf = deaf || m.phase == phaseReply && m.answer == ledger.AnswerOK && m.entry <= c.released && !x.spec.Deferred
		}
		if !deaf {
			return m
		}
		if m.phase == phaseReply || m.phase == phaseLost || m.phase == phaseHeld {
			return nil
		}
		o := x.orphaned(m)
		m = &o
	}
	b := *x.bookies.at(s.bookies[m.bookie])
	if !x.orphanMatters(s, m, b) {
		return nil
	}
	return m
}

// orphaned is a request that nobody waits for any more. It does not matter who asked, only whether it was the writer;
// and of a fencing read only the fence is left.
func (x *space) orphaned(m *message) message {
	o := *m
	o.orphan, o.index, o.round, o.conn = true, 0, 0, 0
	if m.client > 0 {
		o.client = 1
	}
	if m.kind == msgRead && ledger.Planted() != ledger.MutantReadsDoNotFence {
		o.kind = msgFence
	}
	if o.kind == msgFence {
		o.entry = -1
	}
	return o
}

// orphanMatters reports whether a request that nobody waits for could still change its bookie.
func (x *space) orphanMatters(s *state, m *message, b *bookie) bool {
	if m.kind == msgLength {
		return false
	}
	if m.phase == phaseVerify {
		return m.open && !m.stale
	}
	if x.spec.Collect || b.starting { // a copy that was deleted here can come back
		return true
	}
	switch m.kind {
	case msgFence:
		return !b.disk.Fenced
	case msgRead:
		return false
	case msgAdd:
		return !b.disk.Fenced
	case msgReadd, msgCopy:
		return b.synced[m.entry] != stored{true, m.lac, m.length} || b.have[m.entry] != b.synced[m.entry]
	}
	return true
}
