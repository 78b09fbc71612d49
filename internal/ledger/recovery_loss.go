package ledger

import (
	"fmt"
	"maps"
	"strings"
)

// Recovery with accepted loss, for a ledger that no ordinary recovery can end any more: bookies that hold its tail are gone
// for good, or several of one write set are in limbo and wait for each other. Three rules give way, and only where the
// ordinary ones are stuck:
//
//	R2  when every bookie of the last ensemble has answered or failed and the ensemble is not covered, reading goes on.
//	    A bookie that was not fenced (Unfenced) may go on taking adds of a writer that still lives: they are lost.
//	R4  when every bookie of the write set has answered or failed and the entry is neither there nor proven absent, the
//	    ledger ends in front of it (Entry). If it was acknowledged, it and everything behind it are lost.
//	R5  when no bookie is left that could complete an ack quorum, what was read is kept on fewer of them (from Thin on).
//
// All other rules hold: the end is agreed by one compare-and-set, and a client that closed first wins. The record keeps a
// note of what was given up.

// LossKey is the custom metadata of a closed ledger that says what a recovery gave up.
const LossKey = "bindery.accepted-loss"

// Loss is what a recovery with AcceptLoss gave up.
type Loss struct {
	Ensemble []BookieID
	Unfenced IndexSet // members of the last ensemble that could be neither fenced nor heard
	Entry    EntryID  // the ledger was cut in front of this entry, which may have been acknowledged; InvalidEntry: it was not
	Silent   IndexSet // members of the entry's write set that could not say whether they have it
	Thin     EntryID  // from this entry on fewer than an ack quorum hold it, InvalidEntry: all are held as they should
	Seen     EntryID  // the highest entry that a bookie said it has, InvalidEntry if none did
	LAC      EntryID  // the highest entry that is known to have been confirmed
}

func noLoss(ensemble []BookieID) Loss {
	return Loss{Ensemble: ensemble, Entry: InvalidEntry, Thin: InvalidEntry, Seen: InvalidEntry, LAC: InvalidEntry}
}

// Any reports whether something was given up.
func (l Loss) Any() bool { return l.Unfenced != 0 || l.Entry != InvalidEntry || l.Thin != InvalidEntry }

// Loss returns what this recovery gave up: of the attempt that closed the ledger, once it is done.
func (r *Recovery) Loss() Loss {
	l := r.loss
	l.LAC = r.base
	return l
}

// copies is how many acknowledgements a re-add of e needs. It is an ack quorum, unless a loss was accepted and fewer
// bookies of its write set are left; one there must be.
func (r *Recovery) copies(e EntryID) int {
	if !r.thin {
		return r.q.Ack
	}
	return max(1, min(r.q.Ack, (r.q.WriteSet(e)&^r.failed).Len()))
}

// giveUp ends the ledger in front of an entry that can not be decided. A later entry that was read already tells how much
// may be lost with it.
func (r *Recovery) giveUp(read recoveryRead) {
	r.loss.Entry, r.loss.Silent = read.entry, read.useless
	for _, later := range r.reads {
		if later.found {
			r.loss.Seen = max(r.loss.Seen, later.entry)
		}
	}
	r.stopped, r.reads = true, nil
}

// noteLoss puts what was given up into the record that closes the ledger.
func (r *Recovery) noteLoss(p *Metadata) {
	l := r.Loss()
	if !l.Any() {
		return
	}
	custom := maps.Clone(p.Custom)
	if custom == nil {
		custom = map[string][]byte{}
	}
	custom[LossKey] = []byte(l.describe(r.q) + noteText(r.cfg.LossNote))
	p.Custom = custom
}

func noteText(note string) string {
	if note == "" {
		return ""
	}
	return " (" + note + ")"
}

// describe says in words what was given up.
func (l Loss) describe(q Quorum) string {
	var parts []string
	if l.Entry != InvalidEntry {
		s := fmt.Sprintf("cut in front of entry %d, which %s could not deny", l.Entry, bookieList(l.Ensemble, l.Silent))
		if l.Seen >= l.Entry {
			s += fmt.Sprintf("; entries up to %d were seen", l.Seen)
		}
		parts = append(parts, s)
	}
	if l.Unfenced != 0 {
		parts = append(parts, fmt.Sprintf("not known to be fenced: %s; a writer that still reaches %d of them can go on", bookieList(l.Ensemble, l.Unfenced), q.Ack))
	}
	if l.Thin != InvalidEntry {
		parts = append(parts, fmt.Sprintf("fewer than %d copies of the entries from %d on", q.Ack, l.Thin))
	}
	return strings.Join(parts, "; ")
}

func bookieList(ensemble []BookieID, s IndexSet) string {
	var names []string
	for i, b := range ensemble {
		if s.Has(i) {
			names = append(names, string(b))
		}
	}
	return strings.Join(names, ", ")
}
