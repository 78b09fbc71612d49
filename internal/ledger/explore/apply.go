package explore

import (
	"fmt"
	"strings"

	"github.com/binderylog/bindery/internal/ledger"
)

// apply makes a move. It returns the invariant that the move itself violates, if any; check looks at the state after it.
func (x *space) apply(s *state, m move) string {
	why := x.make(s, m)
	x.settle(s)
	x.noteServed(s)
	return why
}

func (x *space) make(s *state, m move) string {
	switch m.kind {
	case mvDeliver:
		return x.deliver(s, int(m.with), false)
	case mvDeliverOnly:
		return x.deliver(s, int(m.with), true)
	case mvTimeout, mvNotice:
		return x.giveUp(s, m)
	case mvFault:
		return x.fault(s, int(m.with))
	case mvApply:
		return x.store(s, int(m.who))
	case mvTell:
		return x.tell(s, int(m.who))
	case mvUnknown:
		return x.unknown(s, int(m.who))
	case mvMetaTimeout:
		s.budget[budMetaTimeouts]--
		return x.step(s, int(m.who), event{kind: ledger.EvMetaTimeout})
	case mvLand:
		l := *x.lates.at(uint32(s.late[m.with]))
		s.removeLate(int(m.with))
		_, why := x.write(s, int(l.client), &l.want)
		return why
	case mvPick:
		return x.picked(s, m)
	case mvAppend:
		s.budget[budEntries]--
		return x.step(s, 0, event{kind: ledger.EvAppend})
	case mvClose:
		s.budget[budCloses]--
		return x.step(s, 0, event{kind: ledger.EvClose})
	case mvForce:
		s.budget[budForces]--
		return x.step(s, 0, event{kind: ledger.EvForce})
	case mvLACTick:
		s.budget[budLACTicks]--
		return x.step(s, 0, event{kind: ledger.EvLACTick})
	case mvRetry:
		s.budget[budRetries]--
		return x.step(s, 0, event{kind: ledger.EvRetry})
	case mvRecover:
		return x.take(s, int(m.who), x.startRecovery(int(m.who), s.record, s.version))
	case mvDelete:
		s.budget[budDeletes]--
		s.gone = true
		if x.spec.Tier {
			x.changeTier(s, func(t *tier) { t.deleted = true })
		}
		return ""
	case mvTier, mvTierMay:
		return x.moveTier(s, m)
	case mvReplicate:
		return x.replicate(s, m)
	case mvReadRecord, mvReadLAC, mvReadEntry:
		return x.read(s, m)
	}
	return x.bookieMove(s, m)
}

func (x *space) step(s *state, slot int, ev event) string {
	return x.take(s, slot, x.clientStep(slot, s.clients[slot], ev))
}

// deliver lets a request arrive at its bookie, or an answer at its client.
func (x *space) deliver(s *state, i int, only bool) string {
	id := s.messages[i]
	m := x.messages.at(uint32(id))
	s.removeMessage(i)
	if m.phase == phaseReply {
		return x.step(s, int(m.client), m.replyEvent(false))
	}
	op := opServe
	if m.phase == phaseVerify {
		op = opVerify
	}
	r := x.serve(serveKey{bookie: s.bookies[m.bookie], msg: id, op: op})
	x.setBookie(s, int(m.bookie), &r)
	switch {
	case r.verify: // the record is read with no lock held; what comes meanwhile makes the ticket stale
		v := *m
		v.phase, v.open = phaseVerify, x.openHere(s, int(m.bookie))
		s.addMessage(x.messageID(&v))
	case m.orphan, only:
	case x.prompt(m) && r.broken == "":
		return x.step(s, int(m.client), r.reply.replyEvent(false))
	case r.hold:
		r.reply.phase = phaseHeld
		s.addMessage(x.messageID(&r.reply))
	default:
		s.addMessage(x.messageID(&r.reply))
	}
	return r.broken
}

func (x *space) openHere(s *state, b int) bool {
	rec := *x.records.at(s.record)
	return !s.gone && rec.State == ledger.StateOpen && rec.Names(x.names[b])
}

// setBookie stores a bookie's new state. A change of its generation makes verifications under way stale.
func (x *space) setBookie(s *state, b int, r *serveResult) {
	s.bookies[b] = r.next
	if r.changed {
		x.rewrite(s, b, func(m *message) bool {
			if m.phase == phaseVerify && ledger.Planted() != ledger.MutantVerifyIgnoresTicket {
				m.stale = true
			}
			return true
		})
	}
}

// rewrite changes the messages of one bookie; fn returns false to drop one.
func (x *space) rewrite(s *state, b int, fn func(m *message) bool) {
	old := s.messages
	n := int(s.n)
	for i := n - 1; i >= 0; i-- {
		m := *x.messages.at(uint32(old[i]))
		if int(m.bookie) != b {
			continue
		}
		before := m
		keep := fn(&m)
		if keep && m == before {
			continue
		}
		for k := range s.flight() {
			if s.messages[k] == old[i] {
				s.removeMessage(k)
				break
			}
		}
		if keep {
			s.addMessage(x.messageID(&m))
		}
	}
}

// giveUp lets a client stop waiting. The request, if it has not arrived, still may.
func (x *space) giveUp(s *state, mv move) string {
	if mv.kind == mvTimeout {
		s.budget[budTimeouts]--
	}
	m := *x.messages.at(uint32(s.messages[mv.with]))
	s.removeMessage(int(mv.with))
	if m.phase == phaseRequest || m.phase == phaseVerify {
		o := x.orphaned(&m)
		s.addMessage(x.messageID(&o))
	}
	return x.step(s, int(m.client), m.replyEvent(true))
}

// fault lets a bookie's disk fail under a read.
func (x *space) fault(s *state, i int) string {
	s.budget[budFaults]--
	m := *x.messages.at(uint32(s.messages[i]))
	r := x.serve(serveKey{bookie: s.bookies[m.bookie], msg: s.messages[i], op: opFault})
	s.removeMessage(i)
	r.reply.phase = phaseReply
	s.addMessage(x.messageID(&r.reply))
	return ""
}

// store lets the metadata store decide about a client's operation. The answer is on its way.
func (x *space) store(s *state, slot int) string {
	c := (*x.clients.at(s.clients[slot])).clone()
	w := &c.want
	why := ""
	if w.kind == wantRead {
		w.answered, w.record, w.version, w.outcome = true, s.record, s.version, outcomeOK
		if s.gone {
			w.outcome, w.record, w.version = outcomeGone, x.start.record, 0
		}
	} else {
		w.outcome, why = x.write(s, slot, w)
		w.answered = true
	}
	s.clients[slot] = x.clientID(c)
	return why
}

func (x *space) tell(s *state, slot int) string {
	w := &(*x.clients.at(s.clients[slot])).want
	ev := event{kind: ledger.EvGone}
	switch {
	case w.outcome == outcomeConflict:
		ev.kind = ledger.EvConflict
	case w.outcome == outcomeOK && w.kind == wantWrite:
		ev.kind, ev.version = ledger.EvWritten, w.version+1
	case w.outcome == outcomeOK:
		ev.kind, ev.record, ev.version = ledger.EvRead, w.record, w.version
	}
	return x.step(s, slot, ev)
}

// unknown ends an operation without an answer. One that the store has not decided about may still land.
func (x *space) unknown(s *state, slot int) string {
	s.budget[budUnknowns]--
	c := *x.clients.at(s.clients[slot])
	if c.want.kind == wantWrite && !c.want.answered {
		if !s.addLate(x.lateID(&lateWrite{client: uint8(slot), want: c.want})) {
			panic(errTooMany)
		}
	}
	return x.step(s, slot, event{kind: ledger.EvMetaUnknown})
}

func (x *space) picked(s *state, m move) string {
	c := *x.clients.at(s.clients[m.who])
	ev := event{kind: ledger.EvPicked}
	for i := range x.spec.Quorum.Ensemble {
		if !c.pick.Has(i) {
			continue
		}
		b := m.with >> (3 * i) & 7
		switch b {
		case pickSame:
			b = uint32(x.bookieNumber(c.exclude[i])) + 1
		case pickNone:
			b = 0
		}
		ev.picks[i] = choice{asked: true, bookie: uint8(b)}
		if b > 0 {
			ev.picks[i].version = s.inc[b-1]
		}
	}
	return x.step(s, int(m.who), ev)
}

func (x *space) bookieMove(s *state, m move) string {
	b := int(m.who)
	k := serveKey{bookie: s.bookies[b]}
	switch m.kind {
	case mvSync:
		return x.syncBookie(s, b)
	case mvPowerCut:
		s.budget[budPowerCuts]--
		k.op = opPowerCut
	case mvKill:
		s.budget[budKills]--
		k.op = opKill
	case mvWipe:
		s.budget[budWipes]--
		s.inc[b]++
		k.op = opWipe
	case mvLose:
		s.budget[budLoses]--
		s.inc[b]++
		k.op = opLose
	case mvStart:
		k.op, k.named = opStart, !s.gone && (*x.records.at(s.record)).Names(x.names[b])
		if ledger.Planted() == ledger.MutantLossNotListed {
			k.named = false
		}
	case mvLook:
		s.lock = lockBookie + m.who
		k.op = opLook
	case mvCollect:
		if s.lock == lockBookie+m.who {
			s.lock = 0
		}
		k.op = opDelete
	case mvEndLimbo:
		k.op = opEndLimb
	}
	r := x.serve(k)
	x.setBookie(s, b, &r)
	switch m.kind {
	case mvPowerCut, mvKill, mvWipe, mvLose:
		// Its connections are gone, and with them requests that their clients gave up on: nobody sends those again. A
		// request whose client still waits may not have been sent yet, and goes over the next connection.
		x.rewrite(s, b, func(m *message) bool {
			if m.orphan {
				return false
			}
			if m.phase == phaseHeld || m.phase == phaseVerify {
				m.phase, m.answer = phaseLost, ledger.AnswerUnknown
				m.gotEntry, m.gotLAC, m.gotLength, m.open, m.stale = 0, 0, 0, false, false
			}
			return true
		})
	case mvCollect:
		return x.checkCollected(s, b)
	}
	return r.broken
}

// syncBookie makes everything durable and lets the answers go that waited for it.
func (x *space) syncBookie(s *state, b int) string {
	if ledger.Planted() == ledger.MutantReadableAfterSync {
		for _, id := range s.flight() {
			if m := x.messages.at(uint32(id)); int(m.bookie) == b && m.phase == phaseHeld && m.kind == msgAdd && m.gotEntry == 1 {
				s.bookies[b] = x.serve(serveKey{bookie: s.bookies[b], msg: id, op: opInsert}).next
			}
		}
	}
	r := x.serve(serveKey{bookie: s.bookies[b], op: opSync})
	s.bookies[b] = r.next
	k := (*x.bookies.at(r.next)).clone()
	x.rewrite(s, b, func(m *message) bool {
		if m.phase == phaseHeld {
			m.phase = phaseReply
			if m.kind == msgAdd {
				m.gotEntry = 0
			}
			x.sent(k, m)
		}
		return true
	})
	s.bookies[b] = x.bookieID(k)
	return ""
}

// byText makes the moves that a line of a script describes.
func (x *space) byText(s *state, line string) (state, string, error) {
	next := *s
	lines, optional := expand(line)
	if m, ok := x.find(s, line); ok {
		why := x.apply(&next, m)
		return next, why, nil
	}
	if name, ok := strings.CutPrefix(line, "drop "); ok { // set-up only: elsewhere what is never delivered is lost
		for i, id := range s.flight() {
			if x.messageName(x.messages.at(uint32(id))) == name {
				next.removeMessage(i)
				return next, "", nil
			}
		}
	}
	for i, l := range lines {
		m, ok := x.find(&next, l)
		if !ok && optional && i > 0 { // nobody waits for the answer
			break
		}
		if !ok {
			return next, "", fmt.Errorf("%q can not happen here", l)
		}
		if why := x.apply(&next, m); why != "" {
			return next, why, nil
		}
	}
	return next, "", nil
}

// expand returns the moves that a line stands for: some lines are two moves, the second of which may be missing after a do.
func expand(line string) (lines []string, optional bool) {
	f := strings.Fields(line)
	switch {
	case len(f) == 3 && f[0] == "meta" && f[2] == "ok":
		return []string{"store " + f[1], "told " + f[1]}, false
	case len(f) == 3 && f[0] == "meta" && f[2] == "unknown-applied":
		return []string{"store " + f[1], "meta " + f[1] + " lost"}, false
	case len(f) == 2 && f[0] == "wipe":
		return []string{"erase " + f[1], "start " + f[1]}, false
	case len(f) == 2 && f[0] == "lose":
		return []string{"losejournal " + f[1], "start " + f[1]}, false
	case len(f) > 2 && f[0] == "do":
		from, to, _ := strings.Cut(f[1], ">")
		return []string{"deliver " + strings.Join(f[1:], " "), "reply " + strings.Join(append([]string{to + ">" + from}, f[2:]...), " ")}, true
	}
	return []string{line}, false
}

func (x *space) find(s *state, line string) (move, bool) {
	for _, m := range x.moves(s, nil) {
		if t := x.text(s, m); t == line || strings.HasPrefix(line, "reply ") && strings.HasPrefix(t, line+" ") {
			return m, true
		}
	}
	return move{}, false
}
