package explore

import (
	"slices"

	"github.com/binderylog/bindery/internal/ledger"
)

// replicator is one attempt to give the entries of one place of a fragment to another bookie, or back to the one that is
// there, under the lock. What may be copied and published is for ledger.Copy to say.
type replicator struct {
	copy ledger.Copy
	plan [4]uint8 // fragment, index, target, incarnation: what copy follows from, with record
	of   uint32   // record of the plan
	wait uint8    // copies not acknowledged
	bad  bool
}

func (r *replicator) clone() *replicator { c := *r; return &c }

func (x *space) appendReplicator(b []byte, r *replicator, g *renaming) []byte {
	p := r.plan
	if g != nil {
		p[1], p[2] = g.index[p[1]], g.bookie[p[2]]
	}
	b = appendRecord(b, *x.records.at(r.of), g)
	return append(b, p[0], p[1], p[2], p[3], r.wait, flag(r.bad))
}

// mayLock reports whether the lock can be had: it is free, or its holder's session may have ended without its notice.
func (x *space) mayLock(s *state, who uint8) bool {
	return s.lock == 0 || x.spec.LockLoss && s.lock != who
}

// replicatorStarts lists the copies that make sense: of a member that may have lost something, to a spare or in place.
func (x *space) replicatorStarts(s *state, slot int, out []move) []move {
	rec := *x.records.at(s.record)
	if !x.mayLock(s, uint8(slot)+1) {
		return out
	}
	for f, frag := range rec.Fragments {
		for i, name := range frag.Bookies {
			k := x.bookieNumber(name)
			if old := *x.bookies.at(s.bookies[k]); !old.mem.Limbo && !old.starting {
				continue
			}
			for t := range x.spec.Bookies {
				b := *x.bookies.at(s.bookies[t])
				_, v := ledger.PlanCopy(rec, f, i, x.names[t], int64(s.inc[t]))
				inside := t != k && slices.Contains(frag.Bookies, x.names[t])
				if b.starting || inside || v != ledger.CopyReady && ledger.Planted() != ledger.MutantReplicatesTheLastFragment {
					continue
				}
				out = append(out, move{mvReplicate, uint8(slot), uint32(f)<<16 | uint32(i)<<8 | uint32(t)})
			}
		}
	}
	return out
}

// replicate plans a copy, reads what it needs and sends it.
func (x *space) replicate(s *state, m move) string {
	rec := *x.records.at(s.record)
	f, i, t := int(m.with>>16), int(m.with>>8&0xff), int(m.with&0xff)
	plan, _ := ledger.PlanCopy(rec, f, i, x.names[t], int64(s.inc[t]))
	r := &replicator{copy: plan, plan: [4]uint8{uint8(f), uint8(i), uint8(t), s.inc[t]}, of: s.record}
	c := &client{role: roleReplicator, status: statusLive, released: -1, lac: -1, rep: r}
	st := &clientStep{}
	for e := int8(plan.First); e <= int8(plan.Last); e++ {
		if !plan.Needs(x.spec.Quorum, ledger.EntryID(e)) {
			continue
		}
		h := x.source(s, rec, f, e)
		if !h.ok {
			r.bad = true
			break
		}
		r.wait |= 1 << e
		st.sends = append(st.sends, x.messageID(&message{kind: msgCopy, client: m.who, bookie: uint8(t), index: uint8(i), entry: e, lac: h.lac, length: h.length}))
	}
	s.lock = m.who + 1
	x.publish(c, st)
	st.next = x.clientID(c)
	return x.take(s, int(m.who), st)
}

// source is the entry on any member of its write set.
func (x *space) source(s *state, rec *ledger.Metadata, f int, e int8) stored {
	for n := range x.spec.Quorum.Write {
		k := x.bookieNumber(rec.Fragments[f].Bookies[x.spec.Quorum.Index(ledger.EntryID(e), n)])
		if b := *x.bookies.at(s.bookies[k]); b.have[e].ok && !b.starting {
			return b.have[e]
		}
	}
	return stored{}
}

func (x *space) replicatorStep(c *client, k *stepKey, st *clientStep) {
	switch ev := &k.ev; ev.kind {
	case ledger.EvAnswer:
		c.rep.bad = ev.answer != ledger.AnswerOK
		c.rep.wait &^= 1 << ev.entry
		x.publish(c, st)
	case ledger.EvRead: // judged on the record that is replaced
		next, checks, v := c.rep.copy.Publish(*x.records.at(ev.record))
		if ledger.Planted() == ledger.MutantReplicatesTheLastFragment && v == ledger.CopyObsolete {
			next, checks, v = x.publishAnyway(c.rep, *x.records.at(ev.record)), nil, ledger.CopyReady
		}
		if v != ledger.CopyReady || next == nil {
			x.endReplicator(c, st)
			return
		}
		c.want = want{kind: wantWrite, record: x.recordID(next), version: ev.version, locked: true, blind: ledger.Planted() == ledger.MutantPublishIsBlind}
		if ledger.Planted() != ledger.MutantPublishIgnoresIncarnation {
			for n, k := range checks {
				c.want.checks[n] = incarnation{uint8(x.bookieNumber(k.Bookie)) + 1, uint8(k.Version)}
			}
		}
	default:
		x.endReplicator(c, st)
	}
}

// publishAnyway is a planted bug: the fragment that was planned for gets its new member, whatever became of it.
func (x *space) publishAnyway(r *replicator, m *ledger.Metadata) *ledger.Metadata {
	next := m.Clone()
	next.Fragments[r.plan[0]].Bookies[r.plan[1]] = x.names[r.plan[2]]
	return next
}

// publish reads the record once everything is copied.
func (x *space) publish(c *client, st *clientStep) {
	switch {
	case c.rep.bad:
		x.endReplicator(c, st)
	case c.rep.wait == 0:
		c.want = want{kind: wantRead}
	}
}

func (x *space) endReplicator(c *client, st *clientStep) {
	*c = client{role: c.role, status: statusDone, released: -1}
	st.effects = append(st.effects, effect{kind: ledger.ActAborted})
}
