package ledger

import (
	"fmt"
	"slices"
	"strconv"
)

// simCopier is a replication worker that makes one copy under the ledger's lock, and does not notice when it loses it.
type simCopier struct {
	copy   Copy
	lock   int64 // revision of the lock when it was taken
	waits  map[EntryID]bool
	failed bool
}

// collecting is a bookie's collector between its look at the metadata and the deletion.
type collecting struct {
	generation uint32
	proof      CollectProof
}

// replicate starts a copy: name, fragment, index, target.
func (w *world) replicate(f []string) {
	n := func(i int) int { v, _ := strconv.Atoi(f[i]); return v }
	to := BookieID(f[4])
	c := &simClient{name: f[1], bodies: map[EntryID]string{}, lastFn: InvalidEntry, p: &simCopier{waits: map[EntryID]bool{}}}
	if w.lockOwner != "" {
		w.say("%s waits: %s has the lock", c.name, w.lockOwner)
		return
	}
	w.lockRevision++
	w.lockOwner, c.p.lock = c.name, w.lockRevision
	plan, v := PlanCopy(w.record, n(2), n(3), to, w.inc[to])
	if v != CopyReady {
		w.lockOwner = ""
		w.say("%s copies nothing: %v", c.name, v)
		return
	}
	c.p.copy = plan
	w.clients = append(w.clients, c)
	for e := plan.First; e <= plan.Last; e++ {
		if !plan.Needs(w.q, e) {
			continue
		}
		src := w.source(e, to)
		if src == nil {
			w.say("%s finds no copy of e%d", c.name, e)
			c.p.failed = true
			continue
		}
		x := src.entries[e]
		c.bodies[e], c.p.waits[e] = x.body, true
		w.send(c, "copy", Action{Kind: ActSend, Entry: e, Index: plan.Index, Bookie: to, LAC: x.lac, Length: x.length})
	}
	w.say("%s copies %d entries of fragment %d to %s for %s", c.name, len(c.p.waits), plan.First, to, plan.From)
	w.publish(c)
}

// source returns a bookie of e's write set that has it.
func (w *world) source(e EntryID, not BookieID) *simBookie {
	ens := w.record.EnsembleOf(e)
	for n := range w.q.Write {
		if b := w.bookie(ens[w.q.Index(e, n)]); b.id != not && !b.down {
			if _, ok := b.entries[e]; ok {
				return b
			}
		}
	}
	return nil
}

// copied takes the target's answer.
func (w *world) copied(c *simClient, ev Event) {
	if ev.Answer != AnswerOK {
		c.p.failed = true
		w.say("%s: the copy of e%d failed: %v", c.name, ev.Entry, ev.Answer)
		return
	}
	delete(c.p.waits, ev.Entry)
	w.publish(c)
}

// publish asks for the compare-and-set once everything is copied. It is judged when it is carried out.
func (w *world) publish(c *simClient) {
	if len(c.p.waits) > 0 || c.p.failed {
		return
	}
	w.wants = append(w.wants, &metaOp{client: c})
	w.say("%s is ready to publish", c.name)
}

// publishNow is the transaction: the record as it is, the target's incarnation, the lock.
func (w *world) publishNow(op *metaOp) {
	c := op.client
	if w.gone {
		w.say("%s: the ledger is gone", c.name)
		return
	}
	next, checks, v := c.p.copy.Publish(w.record)
	if v == CopyReady && next == nil {
		w.say("%s is done: the copy is in its place", c.name)
		w.clearMark(c)
		return
	}
	if v != CopyReady {
		w.say("%s publishes nothing: %v", c.name, v)
		return
	}
	if c.p.lock != w.lockRevision || w.lockOwner != c.name {
		w.say("%s publishes nothing: its lock is gone", c.name)
		return
	}
	old := w.record
	if !w.apply(&metaOp{client: c, act: Action{Record: next, Version: w.version, Checks: checks}}) {
		w.say("%s publishes nothing: %s is not the one that took the copies", c.name, c.p.copy.To)
		return
	}
	if i := old.FragmentOf(c.p.copy.First); i == len(old.Fragments)-1 && old.State != StateClosed {
		w.violate("I15: %s changed the last fragment of %s", c.name, describe(old))
	}
	w.clearMark(c)
}

// clearMark removes the under-replication mark, which depends on the lock as the publish does.
func (w *world) clearMark(c *simClient) {
	if !w.marked {
		return
	}
	if c.p.lock != w.lockRevision || w.lockOwner != c.name {
		w.say("%s leaves the mark: its lock is gone", c.name)
		return
	}
	for _, f := range w.record.Fragments {
		for _, b := range f.Bookies {
			if x := w.bookie(b); x.down || x.mem.Limbo && b != c.p.copy.To {
				w.say("%s leaves the mark: %s is still missing", c.name, b)
				return
			}
		}
	}
	w.marked, w.lockOwner = false, ""
	w.say("%s clears the mark", c.name)
}

// look is the collector's part before the lock: the generation, a listing, a read.
func (w *world) look(b *simBookie, how string) {
	p := CollectProof{Listing: how != "listing-fails", Listed: !w.gone, Read: how != "read-fails"}
	switch how {
	case "listing-short": // a subtree was skipped
		p.Listed = false
	case "listing-fails":
		p.Listed = false
	}
	if p.Read && !w.gone {
		p.Record = w.record
	}
	b.gc = &collecting{generation: b.mem.Generation, proof: p}
	if !p.Holds(b.id) {
		b.gc = nil
		w.say("%s keeps its copy", b.id)
	}
}

// collect is the deletion, under the ledger's lock.
func (w *world) collect(b *simBookie) {
	gc := b.gc
	b.gc = nil
	switch {
	case gc == nil:
		w.say("%s keeps its copy", b.id)
	case !b.mem.Delete(gc.generation):
		w.say("%s keeps its copy: something came since it looked", b.id)
	default:
		b.entries, b.synced = map[EntryID]simEntry{}, map[EntryID]simEntry{}
		b.sync()
		w.say("%s deletes its copy", b.id)
		if !w.gone && (w.record.State != StateClosed || w.record.Names(b.id)) {
			w.violate("I16: %s deleted its copy of %s", b.id, describe(w.record))
		}
	}
}

// kill ends a bookie's process; its machine keeps the pages that were written and not synced. Nobody but a sync of the new
// process may count them as durable.
func (w *world) kill(b *simBookie) {
	for _, m := range b.held {
		m.answer(AnswerUnknown)
		w.messages = append(w.messages, m)
	}
	b.held = nil
	w.newConn(b)
}

func (w *world) replicationCommand(f []string) bool {
	switch f[0] {
	case "replicate":
		w.replicate(f)
	case "unlock": // the session of the lock's owner has ended
		w.say("%s has lost the lock and does not know", w.lockOwner)
		w.lockOwner = ""
	case "mark":
		w.marked = true
	case "risk":
		missing := func(b BookieID) bool { return w.bookie(b).down }
		w.say("tail at risk: %v", w.record.TailAtRisk(missing))
	case "final":
		for i, fr := range w.record.Fragments {
			last, final := w.record.FinalFragment(i)
			s := fmt.Sprintf("fragment %d: final %v", fr.First, final)
			if final {
				s += fmt.Sprintf(", last e%d", last)
			}
			w.say("%s", s)
		}
	case "look":
		w.look(w.bookie(BookieID(f[1])), slices.Concat(f, []string{"", ""})[2])
	case "collect":
		w.collect(w.bookie(BookieID(f[1])))
	case "kill":
		w.kill(w.bookie(BookieID(f[1])))
	default:
		return false
	}
	return true
}
