package explore

import (
	"fmt"

	"github.com/binderylog/bindery/internal/ledger"
)

// The bookie around ledger.Replica: what is stored when, what is durable when, and which answers wait for it. The rules
// about the ledger itself are Replica's.

type bookieOp uint8

const (
	opServe bookieOp = iota
	opVerify
	opSync
	opPowerCut
	opKill
	opWipe
	opLose
	opStart // with found: the listing names it
	opFault
	opLook    // collector
	opDelete  // collector
	opInsert  // planted bug: an entry becomes readable
	opEndLimb // the proof that nothing is missing was made
)

type serveKey struct {
	bookie uint32
	msg    uint16
	op     bookieOp
	named  bool
}

// serveResult is what one request, or event, does to a bookie.
type serveResult struct {
	next    uint32
	reply   message
	verify  bool
	hold    bool
	changed bool // the generation: verifications and collections under way are stale
	broken  string
}

func (x *space) serve(k serveKey) serveResult {
	if x.spec.exact {
		return x.runServe(k)
	}
	return x.serves.get(k, func() serveResult { return x.runServe(k) })
}

func (x *space) runServe(k serveKey) serveResult {
	b := (*x.bookies.at(k.bookie)).clone()
	m := *x.messages.at(uint32(k.msg))
	b.mem.Generation, b.disk.Generation = 1, 1
	r := serveResult{}
	switch k.op {
	case opServe, opVerify:
		x.request(b, &m, k.op == opVerify, &r)
	case opSync:
		b.sync(x.spec)
	case opPowerCut:
		b.powerCut(x.spec)
	case opKill:
		b.kill(x.spec)
	case opWipe:
		*b = bookie{starting: true, lossEpoch: b.lossEpoch + 1, conn: b.conn, fenceAnswered: b.fenceAnswered, acked: b.acked, lost: b.lost | b.acked, gc: b.gc}
		b.reconnect(x.spec)
	case opLose:
		b.mem = ledger.Replica{Key: b.disk.Key, HasKey: b.disk.HasKey, LossEpoch: b.disk.LossEpoch, Generation: 1}
		b.have, b.starting, b.lossEpoch = b.synced, true, b.lossEpoch+1
		b.disk = *b.mem.Clone()
		b.reconnect(x.spec)
	case opStart:
		b.starting = false
		if k.named {
			b.mem.Lose()
		} else {
			b.acked, b.lost = 0, 0 // nobody counts on it any more; checkNamed sees to that
		}
		b.sync(x.spec)
	case opInsert:
		b.have[m.entry] = stored{true, m.lac, m.length}
	case opLook:
		b.gc = 1
	case opDelete:
		x.collect(b)
	case opEndLimb:
		b.mem.EndLimbo()
		b.sync(x.spec)
	case opFault:
		r.reply = m
		r.reply.answer = ledger.AnswerUnknown
		if ledger.Planted() == ledger.MutantFaultIsAbsence {
			r.reply.answer = ledger.AnswerNegative
		}
	}
	r.changed = b.mem.Generation != 1
	if r.changed && b.gc == 1 && k.op != opLook {
		b.gc = 2
	}
	b.mem.Generation, b.disk.Generation = 0, 0
	r.next = x.bookieID(b)
	return r
}

// believesFence is the bit of bookie.believes that stands for the fence.
const believesFence = 1 << 7

func (b *bookie) clone() *bookie {
	c := *b
	c.mem, c.disk = *b.mem.Clone(), *b.disk.Clone()
	return &c
}

func (b *bookie) sync(spec *Spec) {
	if spec.Deferred {
		b.mem.ClearDeferred()
	}
	b.disk, b.synced, b.believes = *b.mem.Clone(), b.have, 0
}

func (b *bookie) reconnect(spec *Spec) {
	if spec.Deferred {
		b.conn++
	}
}

// powerCut loses what was not synced. The new process syncs what it replays before it answers.
func (b *bookie) powerCut(spec *Spec) {
	b.mem, b.have, b.believes = *b.disk.Clone(), b.synced, 0
	b.mem.UncleanStop()
	b.disk = *b.mem.Clone()
	b.reconnect(spec)
}

// kill ends the process. What it had written is still in the kernel's cache, and is replayed; it counts as synced only
// after a sync of the new process.
func (b *bookie) kill(spec *Spec) {
	b.mem.UncleanStop()
	if ledger.Planted() == ledger.MutantReplayCountsAsSynced {
		for e, h := range b.have {
			if h.ok {
				b.believes |= 1 << e
			}
		}
		if b.mem.Fenced {
			b.believes |= believesFence
		}
		b.reconnect(spec)
		return
	}
	b.disk, b.synced = *b.mem.Clone(), b.have
	b.reconnect(spec)
}

// dirty reports whether a power cut would change something.
func (b *bookie) dirty() bool {
	if b.have != b.synced {
		return true
	}
	m, d := &b.mem, &b.disk
	return m.HasKey != d.HasKey || m.Fenced != d.Fenced || m.Limbo != d.Limbo || m.Tombstone != d.Tombstone || m.Deferred != d.Deferred ||
		m.ForceLost != d.ForceLost || m.LossEpoch != d.LossEpoch || m.LAC() != d.LAC()
}

// request serves one request, or goes on with one whose verification has ended.
func (x *space) request(b *bookie, m *message, verified bool, r *serveResult) {
	r.reply = *m
	r.reply.phase = phaseReply
	switch m.kind {
	case msgAdd, msgReadd, msgCopy:
		x.add(b, m, verified, r)
	case msgFence, msgRead:
		if !(m.kind == msgRead && ledger.Planted() == ledger.MutantReadsDoNotFence) {
			if v, _ := b.mem.Fence(x.key); v != ledger.Accepted {
				r.reply.answer = ledger.AnswerUnauthorized
				return
			}
			r.hold = x.spec.Split && !b.disk.Fenced && b.believes&believesFence == 0
		}
		if m.kind == msgFence {
			x.last(b, &r.reply)
		} else {
			x.lookUp(b, &r.reply)
		}
		switch ledger.Planted() {
		case ledger.MutantFenceNotWaitedFor:
			r.hold = false
		case ledger.MutantNegativeFenceNotWaitedFor:
			r.hold = r.hold && r.reply.answer == ledger.AnswerOK
		}
	case msgLength:
		x.lookUp(b, &r.reply)
	case msgForce:
		r.reply.conn = b.conn
		if b.mem.CheckForce(uint64(b.lossEpoch)) != ledger.Accepted {
			r.reply.answer = ledger.AnswerUnknown
			return
		}
		b.sync(x.spec)
		r.reply.answer = ledger.AnswerOK
		return
	case msgLAC:
		body := make([]byte, 16)
		body[15] = byte(m.lac)
		b.mem.SetExplicitLAC(x.key, body)
		r.reply.answer = ledger.AnswerOK
	}
	if !x.spec.Split && !x.spec.Deferred {
		b.sync(x.spec)
	}
	if !r.hold && !m.orphan {
		x.sent(b, &r.reply)
	}
}

func (x *space) add(b *bookie, m *message, verified bool, r *serveResult) {
	recovery := m.kind != msgAdd
	epoch := uint64(b.lossEpoch)
	v := ledger.Accepted
	if verified {
		ticket := b.mem.Ticket()
		if m.stale {
			ticket--
		}
		v, _ = b.mem.Verify(ticket, m.open, epoch)
	}
	if v == ledger.Accepted {
		v = b.mem.CheckAdd(x.key, recovery, epoch)
	}
	switch v {
	case ledger.NeedsVerify:
		r.verify = true
		return
	case ledger.BadKey:
		r.reply.answer = ledger.AnswerUnauthorized
		return
	case ledger.RefusedLimbo:
		r.reply.answer = ledger.AnswerUnknown
		return
	case ledger.RefusedFenced:
		r.reply.answer = ledger.AnswerFenced
		return
	}
	if !recovery && b.fenceAnswered {
		r.broken = fmt.Sprintf("I10: a bookie accepts the add of e%d after it answered a fence", m.entry)
	}
	deferred := x.spec.Deferred && !recovery
	b.mem.Accept(x.key, recovery)
	if deferred && !x.spec.Unmarked && b.mem.MarkDeferred() {
		b.disk = *b.mem.Clone() // the mark is durable before the first acknowledgement
	}
	known := b.have[m.entry].ok
	if x.spec.Split && ledger.Planted() == ledger.MutantReadableAfterSync && !recovery {
		r.reply.gotEntry = 1 // becomes readable at the sync that lets the answer go
	} else {
		b.have[m.entry] = stored{true, m.lac, m.length}
	}
	r.reply.answer, r.reply.conn = ledger.AnswerOK, b.conn
	r.hold = x.spec.Split && !deferred && !b.synced[m.entry].ok && b.believes>>m.entry&1 == 0
	switch ledger.Planted() {
	case ledger.MutantAckBeforeSync:
		r.hold = false
	case ledger.MutantReaddNotSynced:
		r.hold = r.hold && !known
	}
}

func (x *space) lookUp(b *bookie, m *message) {
	var have stored
	if int(m.entry) < entryMax {
		have = b.have[m.entry]
	}
	m.answer = readAnswer(b.mem.Read(have.ok))
	if m.answer == ledger.AnswerOK {
		m.gotLAC, m.gotLength = have.lac, have.length
	}
}

func (x *space) last(b *bookie, m *message) {
	last := int8(-1)
	for e, h := range b.have {
		if h.ok {
			last = int8(e)
		}
	}
	m.answer, m.gotEntry = readAnswer(b.mem.ReadLast(last >= 0)), -1
	if m.answer == ledger.AnswerOK {
		m.gotEntry, m.gotLAC, m.gotLength = last, b.have[last].lac, b.have[last].length
	}
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

// sent notes that an answer leaves the bookie.
func (x *space) sent(b *bookie, m *message) {
	switch {
	case m.kind == msgFence, m.kind == msgRead && ledger.Planted() != ledger.MutantReadsDoNotFence:
		b.fenceAnswered = true
	case (m.kind == msgAdd && !x.spec.Deferred || m.kind == msgReadd || m.kind == msgCopy) && m.answer == ledger.AnswerOK:
		b.acked |= 1 << m.entry
	}
}

// collect deletes the local copy, if nothing came since the collector looked.
func (x *space) collect(b *bookie) {
	generation := b.mem.Generation
	if b.gc == 2 && ledger.Planted() != ledger.MutantCollectorIgnoresGeneration {
		generation--
	}
	b.gc = 0
	if b.mem.Delete(generation) {
		b.have = [entryMax]stored{}
		b.sync(x.spec)
	}
}
