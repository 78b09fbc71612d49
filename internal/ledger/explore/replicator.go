package explore

import (
	"slices"

	"github.com/binderylog/bindery/internal/ledger"
)

// replicator is one attempt to copy a bookie's share of a fragment to another bookie, under the rules for re-replication:
// the record it starts from is CLOSED, or the fragment is not the last; the publish is a compare-and-set on that very
// record and depends on the lock and on the target's incarnation as it was before the first copy.
type replicator struct {
	record   uint32
	version  uint8
	fragment uint8
	index    uint8
	target   uint8
	inc      uint8
	need     uint8 // entries to copy
	asked    uint8
	copied   uint8
}

func (r *replicator) clone() *replicator { c := *r; return &c }

func (x *space) appendReplicator(b []byte, r *replicator, g *renaming) []byte {
	index, target := r.index, r.target
	if g != nil {
		index, target = g.index[index], g.bookie[target]
	}
	b = appendRecord(b, *x.records.at(r.record), g)
	return append(b, r.version, r.fragment, index, target, r.inc, r.need, r.asked, r.copied)
}

// mayLock reports whether the lock can be had: it is free, or its holder's session may have ended.
func (x *space) mayLock(s *state, who uint8) bool {
	return s.lock == 0 || x.spec.LockLoss && s.lock != who
}

// replicatorStarts lists the copies that make sense: a member that may have lost something, to a spare or in place.
func (x *space) replicatorStarts(s *state, slot int, out []move) []move {
	rec := *x.records.at(s.record)
	if !x.mayLock(s, uint8(slot)+1) {
		return out
	}
	for f, frag := range rec.Fragments {
		if f == len(rec.Fragments)-1 && rec.State != ledger.StateClosed && ledger.Planted() != ledger.MutantReplicatesTheLastFragment {
			continue
		}
		for i, name := range frag.Bookies {
			k := x.bookieNumber(name)
			old := *x.bookies.at(s.bookies[k])
			if !old.mem.Limbo && !old.starting {
				continue
			}
			for t := range x.spec.Bookies {
				b := *x.bookies.at(s.bookies[t])
				if t != k && slices.Contains(frag.Bookies, x.names[t]) || b.starting {
					continue
				}
				out = append(out, move{mvReplicate, uint8(slot), uint32(f)<<16 | uint32(i)<<8 | uint32(t)})
			}
		}
	}
	return out
}

func (x *space) replicate(s *state, m move) string {
	rec := *x.records.at(s.record)
	r := &replicator{record: s.record, version: s.version, fragment: uint8(m.with >> 16), index: uint8(m.with >> 8), target: uint8(m.with)}
	r.inc = s.inc[r.target]
	end := ledger.EntryID(-1)
	if rec.State == ledger.StateClosed {
		end = rec.LastEntry
	}
	if f := int(r.fragment); f < len(rec.Fragments)-1 {
		end = rec.Fragments[f+1].First - 1
	}
	for e := rec.Fragments[r.fragment].First; e <= end; e++ {
		if x.spec.Quorum.Stores(e, int(r.index)) {
			r.need |= 1 << e
		}
	}
	s.lock = m.who + 1
	c := &client{role: roleReplicator, status: statusLive, released: -1, lac: -1, rep: r}
	st := &clientStep{}
	x.publish(c, st)
	st.next = x.clientID(c)
	return x.take(s, int(m.who), st)
}

// copyMoves: each missing entry may be read from a member of its write set that holds it, and sent to the target.
func (x *space) copyMoves(s *state, slot int, r *replicator, out []move) []move {
	for e := range uint32(entryMax) {
		if r.need&^r.asked>>e&1 != 0 && x.source(s, r, int8(e)).ok {
			out = append(out, move{mvCopy, uint8(slot), e})
		}
	}
	return out
}

func (x *space) source(s *state, r *replicator, e int8) stored {
	ens := (*x.records.at(r.record)).Fragments[r.fragment].Bookies
	for n := range x.spec.Quorum.Write {
		k := x.bookieNumber(ens[x.spec.Quorum.Index(ledger.EntryID(e), n)])
		b := *x.bookies.at(s.bookies[k])
		if b.have[e].ok && !b.starting {
			return b.have[e]
		}
	}
	return stored{}
}

func (x *space) copyEntry(s *state, slot int, e int8) string {
	c := (*x.clients.at(s.clients[slot])).clone()
	c.rep.asked |= 1 << e
	h := x.source(s, c.rep, e)
	s.clients[slot] = x.clientID(c)
	s.addMessage(x.messageID(&message{kind: msgReadd, client: uint8(slot), bookie: c.rep.target, entry: e, lac: h.lac, length: h.length}))
	return ""
}

func (x *space) replicatorStep(c *client, k *stepKey, st *clientStep) {
	switch k.ev.kind {
	case ledger.EvAnswer:
		if k.ev.answer != ledger.AnswerOK {
			x.endReplicator(c, st)
			return
		}
		c.rep.copied |= 1 << k.ev.entry
		x.publish(c, st)
	default:
		x.endReplicator(c, st)
	}
}

// publish stores the new member once everything is copied.
func (x *space) publish(c *client, st *clientStep) {
	r := c.rep
	if r.copied != r.need {
		return
	}
	rec := *x.records.at(r.record)
	next := *rec
	next.Fragments = make([]ledger.Fragment, len(rec.Fragments))
	for i, f := range rec.Fragments {
		next.Fragments[i] = f.Clone()
	}
	next.Fragments[r.fragment].Bookies[r.index] = x.names[r.target]
	if rec.Fragments[r.fragment].Bookies[r.index] == x.names[r.target] { // in place: the record says so already
		x.endReplicator(c, st)
		return
	}
	c.want = want{kind: wantWrite, record: x.recordID(&next), version: r.version, locked: true, blind: ledger.Planted() == ledger.MutantPublishIsBlind}
	if ledger.Planted() != ledger.MutantPublishIgnoresIncarnation {
		c.want.checks[0] = incarnation{r.target + 1, r.inc}
	}
}

func (x *space) endReplicator(c *client, st *clientStep) {
	*c = client{role: c.role, status: statusDone, released: -1}
	st.effects = append(st.effects, effect{kind: ledger.ActAborted})
}
