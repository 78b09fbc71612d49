package explore

import (
	"fmt"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/offload/protocol"
)

// tierActor is who makes a move of the tier.
type tierActor uint8

const (
	actWorker  tierActor = iota // and the next, one for each
	actRelease tierActor = tierWorkers + iota - 1
	actOwner
	actJanitor
	actSweep
	actStore // of objects, and of late writes
)

// tierOp is what it does; the argument of a move is shifted by opBits.
type tierOp uint32

const (
	opBegin tierOp = iota
	opResume
	opRead
	opWrite // with the outcome
	opFirst // objects are under way
	opRest  // the others are there, and were read back
	opDamagedRest
	opCheck // the objects are looked at
	opDisplaced
	opCrash
	opWait // until the deletion lag is over
	opPass // of the janitor, over an attempt
	opLand // what a dead worker sent arrives
	opDamage
	opReclose
	opLate // a write of unknown outcome happens
)

const opBits = 5

var tierOps = [...]string{"begins", "resumes", "reads", "writes", "sends the first objects of", "completes", "completes damaged", "looks at the objects", "sees that it is displaced",
	"crashes", "waits", "passes over", "gets late objects of", "damages", "lets the ledger be closed elsewhere", "lands late write"}

var howNames = [...]string{"", ", answer lost", ", dropped", ", perhaps later"}

func (x *space) tierText(s *state, m move) string {
	t := x.tiers.at(s.tier)
	op, arg := tierOp(m.with&(1<<opBits-1)), int(m.with>>opBits)
	what := tierOps[op]
	var who string
	switch a := tierActor(m.who); a {
	case actRelease:
		who = "release"
	case actOwner:
		who = "owner"
	case actJanitor:
		who = "janitor"
	case actSweep:
		who = "sweep"
	case actStore:
		who = "store"
	default:
		who = fmt.Sprintf("worker %d", a+1)
	}
	switch op {
	case opResume, opPass, opLand, opDamage:
		what += fmt.Sprintf(" a%d", arg)
	case opFirst, opRest, opDamagedRest:
		what += fmt.Sprintf(" a%d", t.workers[m.who].attempt.ID[0])
	case opLate:
		what += fmt.Sprintf(" %s a%d at %d", t.late[arg].w.State, t.late[arg].w.Attempt[0], t.late[arg].w.Record)
	case opWrite:
		what += " " + writeName(x.pending(s, t, tierActor(m.who))) + howNames[arg]
	}
	return "tier: " + who + " " + what
}

func writeName(w protocol.Write) string {
	switch {
	case w.Remove:
		return "the record away"
	case w.LedgerOnly:
		return "the ledger away"
	}
	return w.State.String()
}

// pending is the write that somebody is about to make.
func (x *space) pending(s *state, t *tier, a tierActor) protocol.Write {
	switch a {
	case actRelease:
		return t.release.do.Write
	case actOwner:
		return t.owner.do.Write
	case actJanitor:
		return x.janitor(s, t).Write
	}
	return t.workers[a].do.Write
}

// janitor is what the janitor's rules say. It comes as often as it likes, and as late: attempts that nobody has in hand are abandoned,
// and a ledger that is absent was so a while before, since it never comes back.
func (x *space) janitor(s *state, t *tier) protocol.Action {
	l := protocol.Left{Abandoned: true, AbsentTwice: true, NewID: tierID(tierIdle)}
	l.Locked = !x.spec.LockLoss && t.record.state == protocol.Uploading && t.inHand(int(t.record.attempt))
	l.Cleaned = t.record.state == protocol.Deleting && t.passes >= 2 && t.garbage == 0
	return protocol.Janitor(x.seen(s, t), l)
}

func (t *tier) inHand(n int) bool {
	for i := range t.workers {
		if w := &t.workers[i]; w.on && w.attempt.ID == tierID(n) {
			return true
		}
	}
	return false
}

// sending reports whether a live worker sends objects of an attempt: it looks at the record before the janitor's grace is over.
func (t *tier) sending(n int) bool {
	for i := range t.workers {
		if w := &t.workers[i]; w.on && w.do.Do == protocol.Upload && w.attempt.ID == tierID(n) {
			return true
		}
	}
	return false
}

// tierMoves appends what can happen in the tier.
func (x *space) tierMoves(s *state, t *tier, out []move) []move {
	add := func(k moveKind, a tierActor, op tierOp, arg int) {
		out = append(out, move{k, uint8(a), uint32(op) | uint32(arg)<<opBits})
	}
	writes := func(a tierActor) {
		add(mvTier, a, opWrite, howTold)
		if s.budget[budTierUnknowns] > 0 {
			for how := howLost; how < howEnd; how++ {
				add(mvTierMay, a, opWrite, how)
			}
		}
	}
	for i := range max(1, x.spec.TierWorkers) {
		x.workerTierMoves(s, t, tierActor(i), add, writes)
	}
	switch r := &t.release; {
	case !r.on && t.record.state == protocol.Complete:
		add(mvTierMay, actRelease, opBegin, 0)
	case r.on:
		switch r.do.Do {
		case protocol.Read:
			add(mvTier, actRelease, opRead, 0)
		case protocol.Check:
			add(mvTier, actRelease, opCheck, 0)
		case protocol.Send:
			writes(actRelease)
		}
		if s.budget[budTierCrashes] > 0 {
			add(mvTierMay, actRelease, opCrash, 0)
		}
	}
	switch o := &t.owner; {
	case !o.on && s.budget[budTierDeletes] > 0:
		add(mvTierMay, actOwner, opBegin, 0)
	case o.on && o.do.Do == protocol.Read:
		add(mvTier, actOwner, opRead, 0)
	case o.on:
		writes(actOwner)
	}
	x.janitorMoves(s, t, add, writes)
	if !t.sweep.on && s.budget[budSweeps] > 0 {
		add(mvTierMay, actSweep, opBegin, 0)
	}
	if t.sweep.on {
		add(mvTier, actSweep, opRead, 0)
	}
	x.storeMoves(s, t, add)
	return out
}

func (x *space) workerTierMoves(s *state, t *tier, a tierActor, add func(moveKind, tierActor, tierOp, int), writes func(tierActor)) {
	w := &t.workers[a]
	if !w.on {
		rec := *x.records.at(s.record)
		if a > 0 && !t.workers[a-1].on { // workers are alike
			return
		}
		if s.budget[budAttempts] > 0 && !s.gone && rec.State == ledger.StateClosed {
			add(mvTierMay, a, opBegin, 0)
		}
		for n := 1; n <= int(t.begun); n++ {
			if t.intents.has(n) && !t.inHand(n) {
				add(mvTierMay, a, opResume, n)
			}
		}
		return
	}
	switch w.do.Do {
	case protocol.Read:
		add(mvTier, a, opRead, 0)
	case protocol.Send:
		writes(a)
	case protocol.Upload:
		n := int(w.attempt.ID[0])
		switch {
		case int(t.record.attempt) != n || t.record.state != protocol.Uploading:
			add(mvTier, a, opDisplaced, 0)
			fallthrough
		default:
			if !w.sending {
				add(mvTier, a, opFirst, 0)
				break
			}
			add(mvTier, a, opRest, 0)
			if s.budget[budDamages] > 0 && !t.objects[n].whole {
				add(mvTierMay, a, opDamagedRest, 0)
			}
		}
	}
	if s.budget[budTierCrashes] > 0 {
		add(mvTierMay, a, opCrash, 0)
	}
}

func (x *space) janitorMoves(s *state, t *tier, add func(moveKind, tierActor, tierOp, int), writes func(tierActor)) {
	switch x.janitor(s, t).Do {
	case protocol.Send:
		writes(actJanitor)
	case protocol.Clean:
		for n := 1; n <= int(t.begun); n++ {
			if t.garbage.has(n) && t.passable(n, t.passed.has(n)) {
				add(mvTier, actJanitor, opPass, n)
			}
		}
		if n := int(t.record.attempt); t.record.state == protocol.Deleting && t.passes < 2 && t.passable(n, t.passes > 0) {
			add(mvTier, actJanitor, opPass, n)
		}
	}
}

// passable reports whether a pass over an attempt changes something. The second one comes the grace after the first: whoever sends has
// looked at the record by then.
func (t *tier) passable(n int, second bool) bool {
	return !second || t.objects[n] != (object{}) || !t.sending(n)
}

func (x *space) storeMoves(s *state, t *tier, add func(moveKind, tierActor, tierOp, int)) {
	if t.record.state == protocol.Complete && !t.lagOver {
		add(mvTierMay, actStore, opWait, 0)
	}
	for n := 1; n <= int(t.begun); n++ {
		if t.flying.has(n) {
			add(mvTierMay, actStore, opLand, n)
		}
	}
	// What is damaged between the look at the objects and the write that relies on it, nobody can see.
	if n := int(t.record.attempt); s.budget[budDamages] > 0 && t.record.state == protocol.Complete && !t.objects[n].bad && !(t.release.on && t.release.do.Do == protocol.Send) &&
		t.late == ([tierLateMax]tierWrite{}) {
		add(mvTierMay, actStore, opDamage, n)
	}
	if rec := *x.records.at(s.record); s.budget[budRecloses] > 0 && !s.gone && rec.State == ledger.StateClosed && rec.LastEntry+1 < entryMax {
		add(mvTierMay, actStore, opReclose, 0)
	}
	for i := range t.late {
		if t.late[i].on {
			add(mvTierMay, actStore, opLate, i)
		}
	}
}

// changeTier replaces the tier's state.
func (x *space) changeTier(s *state, fn func(t *tier)) {
	t := *x.tiers.at(s.tier)
	fn(&t)
	s.tier = x.tiers.id(t)
}

// moveTier makes a move of the tier.
func (x *space) moveTier(s *state, m move) (why string) {
	op, arg := tierOp(m.with&(1<<opBits-1)), int(m.with>>opBits)
	x.changeTier(s, func(t *tier) {
		switch a := tierActor(m.who); a {
		case actRelease:
			why = x.moveRelease(s, t, op, arg)
		case actOwner:
			why = x.moveOwner(s, t, op, arg)
		case actJanitor:
			why = x.moveJanitor(s, t, op, arg)
		case actSweep:
			x.moveSweep(s, t, op)
		case actStore:
			why = x.moveStore(s, t, op, arg)
		default:
			why = x.moveWorker(s, t, int(a), op, arg)
		}
	})
	return why
}

func (x *space) moveWorker(s *state, t *tier, i int, op tierOp, arg int) (why string) {
	w := &t.workers[i]
	n := int(w.attempt.ID[0])
	switch op {
	case opBegin: // the lock may be lost at any time, so whoever has it may displace others
		s.budget[budAttempts]--
		t.begun++
		*w = tierWorker{on: true, attempt: protocol.Attempt{ID: tierID(int(t.begun)), TakeOver: true}, do: protocol.Action{Do: protocol.Read}}
	case opResume:
		*w = tierWorker{on: true, attempt: protocol.Attempt{ID: tierID(arg), Resumed: true}, do: protocol.Action{Do: protocol.Read}}
	case opRead:
		if int(t.record.attempt) == n {
			w.last = t.record.last
		}
		x.stepWorker(t, w, protocol.Event{Kind: protocol.EventSeen, Seen: x.seen(s, t)})
	case opWrite:
		t.intents.set(n, true)
		var o protocol.Outcome
		o, why = x.sendTier(s, t, w.do.Write, arg)
		if o == protocol.Unknown && w.do.Write.State == protocol.Complete && ledger.Planted() == ledger.MutantOffloadCleansUnclear {
			t.objects[n] = object{}
		}
		x.stepWorker(t, w, protocol.Event{Kind: protocol.EventWrote, Outcome: o})
	case opFirst:
		w.sending = true
		if o := &t.objects[n]; !o.whole { // the intents tell what is there
			o.parts, o.last = true, w.last
		}
	case opRest, opDamagedRest:
		if op == opDamagedRest {
			s.budget[budDamages]--
		}
		var ok bool
		ok, why = x.upload(s, t, w, op == opDamagedRest)
		w.sending = false
		x.stepWorker(t, w, protocol.Event{Kind: protocol.EventUploaded, OK: ok})
	case opDisplaced:
		w.sending = false
		x.stepWorker(t, w, protocol.Event{Kind: protocol.Start})
	case opCrash:
		s.budget[budTierCrashes]--
		if w.sending {
			t.flying.set(n, true)
		}
		*w = tierWorker{}
	}
	return why
}

func (x *space) stepWorker(t *tier, w *tierWorker, e protocol.Event) {
	w.do = w.attempt.Step(e)
	switch w.do.Do {
	case protocol.Finish:
		t.intents.set(int(w.attempt.ID[0]), false)
		*w = tierWorker{}
	case protocol.Stop:
		if r := w.do.Reason; r != protocol.UploadError && r != protocol.Unreachable {
			t.intents.set(int(w.attempt.ID[0]), false)
		}
		*w = tierWorker{}
	}
}

func (x *space) moveRelease(s *state, t *tier, op tierOp, arg int) (why string) {
	r := &t.release
	var e protocol.Event
	switch op {
	case opBegin:
		*r = tierRelease{on: true, release: protocol.Release{NewID: tierID(tierIdle)}, do: protocol.Action{Do: protocol.Read}}
		return ""
	case opCrash:
		s.budget[budTierCrashes]--
		*r = tierRelease{}
		return ""
	case opRead:
		e = protocol.Event{Kind: protocol.EventSeen, Seen: x.seen(s, t), LagOver: t.lagOver}
	case opCheck:
		o := t.objects[t.record.attempt]
		e = protocol.Event{Kind: protocol.EventChecked, OK: o.whole && !o.bad}
	case opWrite:
		w := r.do.Write
		e.Kind = protocol.EventWrote
		e.Outcome, why = x.sendTier(s, t, w, arg)
	}
	r.do = r.release.Step(e)
	switch r.do.Do {
	case protocol.Finish, protocol.Stop, protocol.Wait:
		*r = tierRelease{}
	}
	return why
}

func (x *space) moveOwner(s *state, t *tier, op tierOp, arg int) (why string) {
	o := &t.owner
	var e protocol.Event
	switch op {
	case opBegin:
		s.budget[budTierDeletes]--
		*o = tierOwner{on: true, deletion: protocol.Deletion{All: true}, do: protocol.Action{Do: protocol.Read}}
		return ""
	case opRead:
		e = protocol.Event{Kind: protocol.EventSeen, Seen: x.seen(s, t)}
	case opWrite:
		w := o.do.Write
		if w.LedgerOnly && ledger.Planted() == ledger.MutantOffloadDeleteBlind {
			s.gone, t.deleted, t.told = true, true, true
			*o = tierOwner{}
			return ""
		}
		e.Kind = protocol.EventWrote
		e.Outcome, why = x.sendTier(s, t, w, arg)
	}
	o.do = o.deletion.Step(e)
	switch o.do.Do {
	case protocol.Finish:
		t.told = true
		*o = tierOwner{}
	case protocol.Stop:
		*o = tierOwner{}
	}
	return why
}

func (x *space) moveJanitor(s *state, t *tier, op tierOp, n int) string {
	a := x.janitor(s, t)
	if op == opWrite {
		_, why := x.sendTier(s, t, a.Write, n)
		return why
	}
	t.clock++
	t.record.version = t.clock
	found := t.objects[n] != (object{})
	t.objects[n] = object{}
	one := ledger.Planted() == ledger.MutantOffloadOnePass
	if t.garbage.has(n) {
		second := t.passed.has(n) && !found || one
		t.passed.set(n, !second)
		t.garbage.set(n, !second)
		t.flying.set(n, t.flying.has(n) && (!second || one)) // the grace is longer than any request takes
		return ""
	}
	switch {
	case one, t.passes > 0 && !found:
		t.passes = 2
		t.flying.set(n, t.flying.has(n) && one)
	default:
		t.passes = 1
	}
	return ""
}

// moveSweep lists what the targets hold, then looks at the records. How old an object is does not protect it here.
func (x *space) moveSweep(s *state, t *tier, op tierOp) {
	w := &t.sweep
	early := ledger.Planted() == ledger.MutantOffloadRecordsFirst
	if op == opBegin {
		s.budget[budSweeps]--
		w.on = true
		for n, o := range t.objects {
			w.listed.set(n, o.parts)
			w.named.set(n, early && t.names(n))
		}
		return
	}
	for n := range t.objects {
		listed, named := w.listed.has(n), t.names(n)
		if early {
			listed, named = t.objects[n].parts, w.named.has(n)
		}
		if listed && !named {
			t.objects[n] = object{}
		}
	}
	*w = tierSweep{}
}

func (x *space) moveStore(s *state, t *tier, op tierOp, arg int) string {
	switch op {
	case opWait:
		t.lagOver = true
	case opLand:
		t.flying.set(arg, false)
		t.objects[arg].parts = true
	case opDamage:
		s.budget[budDamages]--
		t.objects[arg].bad = true
	case opReclose:
		x.reclose(s)
	case opLate:
		w := t.late[arg].w
		t.late[arg] = tierWrite{}
		_, why := x.writeTier(s, t, &w)
		return why
	}
	return ""
}

// reclose is what a client of the other kind may do that recovers a closed ledger by force: it finds one entry more, which nobody was
// told of, writes it to all, and closes the ledger behind it.
func (x *space) reclose(s *state) {
	s.budget[budRecloses]--
	rec := (*x.records.at(s.record)).Clone()
	rec.LastEntry++
	rec.Length++
	e := int(rec.LastEntry)
	for _, name := range rec.EnsembleOf(rec.LastEntry) {
		k := x.bookieNumber(name)
		b := (*x.bookies.at(s.bookies[k])).clone()
		b.mem.Accept(x.key, true)
		b.have[e] = stored{true, int8(e) - 1, int8(e) + 1}
		b.sync(x.spec)
		s.bookies[k] = x.bookieID(b)
	}
	s.record, s.closed = x.recordID(rec), int8(e)
	s.version++
}
