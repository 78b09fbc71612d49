package ledger

import "slices"

// What an auditor and a replication worker decide. Like the rules of copying these are functions of what was read.

// StoredAt returns the first and the last entry of fragment i, which ends at last, that stripe to index; some is false if
// none does.
func (m *Metadata) StoredAt(i, index int, last EntryID) (first, final EntryID, some bool) {
	q, e := m.Quorum(), m.Fragments[i].First
	for ; e <= last && !q.Stores(e, index); e++ {
	}
	if e > last {
		return InvalidEntry, InvalidEntry, false
	}
	for !q.Stores(last, index) {
		last--
	}
	return e, last, true
}

// StoresOn reports whether bookie b holds, or may come to hold, an entry of the ledger: some entry of a fragment stripes to
// it, or it is in the last fragment of a ledger that is not closed. A bookie of which this is false can go although records
// name it.
func (m *Metadata) StoresOn(b BookieID) bool {
	for i := range m.Fragments {
		index := slices.Index(m.Fragments[i].Bookies, b)
		if index < 0 {
			continue
		}
		last, final := m.FinalFragment(i)
		if !final {
			return true
		}
		if _, _, some := m.StoredAt(i, index, last); some {
			return true
		}
	}
	return false
}

// RepairStep is what a worker does next with a ledger that lacks copies.
type RepairStep uint8

// The steps.
const (
	RepairClear   RepairStep = iota // nothing is missing, or the ledger is gone: the mark goes
	RepairCopy                      // places of fragments that can not change any more get their entries
	RepairAwait                     // the last fragment can still grow: its writer gets a grace to replace the bookie itself
	RepairRecover                   // the grace has passed: the ledger is recovered, which closes it
)

func (s RepairStep) String() string {
	return [...]string{"clear", "copy", "await the writer", "recover"}[s]
}

// NextRepair decides on one record, nil if there is none. bad is the number of places of final fragments that lack copies,
// missing says of a bookie that it can take no adds or can not vouch for the ledger, and waited that the grace has passed.
// What is final is copied first: an open tail must not hold up the rest.
func NextRepair(m *Metadata, bad int, missing func(BookieID) bool, waited bool) RepairStep {
	switch {
	case m == nil:
		return RepairClear
	case bad > 0:
		return RepairCopy
	case !m.TailAtRisk(missing):
		return RepairClear
	case !waited:
		return RepairAwait
	}
	return RepairRecover
}

// LossAction is what an auditor does about bookies that went or came back.
type LossAction uint8

// The actions.
const (
	LossNone     LossAction = iota
	LossAudit               // audit now; a delayed audit is cancelled
	LossSchedule            // audit after the delay; one that is pending already is replaced
	LossCancel              // the delayed audit is not needed any more
)

func (a LossAction) String() string {
	return [...]string{"none", "audit", "schedule", "cancel"}[a]
}

// LossWatch follows which bookies are up, and decides when the ledgers of lost ones are marked: at once without a delay and
// when a second one is lost, otherwise when the delay has passed.
type LossWatch struct {
	known   []BookieID // believed to be up, sorted
	missing []BookieID // lost, and not audited yet
	delay   int64      // seconds
	pending bool       // a delayed audit is scheduled
	begun   bool       // Available has been called
}

// NewLossWatch begins with every bookie that the cluster has ever had and not retired.
func NewLossWatch(known []BookieID, delay int64) *LossWatch {
	w := &LossWatch{known: slices.Clone(known), delay: delay}
	slices.Sort(w.known)
	w.known = slices.Compact(w.known)
	return w
}

// Available takes the bookies that are up now, writable or read-only. At the first call several may be missing since the whole
// fleet is starting: that is no reason for hurry.
func (w *LossWatch) Available(up []BookieID) LossAction {
	for _, b := range up {
		if i, known := slices.BinarySearch(w.known, b); !known {
			w.known = slices.Insert(w.known, i, b)
		}
	}
	w.missing = slices.DeleteFunc(w.missing, func(b BookieID) bool { return slices.Contains(up, b) })
	cancelled := w.pending && len(w.missing) == 0
	if cancelled {
		w.pending = false
	}
	lost := 0
	w.known = slices.DeleteFunc(w.known, func(b BookieID) bool {
		if slices.Contains(up, b) {
			return false
		}
		w.missing = append(w.missing, b)
		lost++
		return true
	})
	first := !w.begun
	w.begun = true
	switch {
	case lost == 0 && cancelled:
		return LossCancel
	case lost == 0:
		return LossNone
	case w.delay == 0 || len(w.missing) > 1 && !first:
		return LossAudit
	case w.pending:
		return LossNone
	}
	w.pending = true
	return LossSchedule
}

// Delay takes a new delay. The same one again is how an audit is asked for.
func (w *LossWatch) Delay(seconds int64) LossAction {
	old := w.delay
	w.delay = seconds
	switch {
	case seconds == 0 || seconds == old:
		return LossAudit
	case w.pending:
		return LossSchedule
	}
	return LossNone
}

// Audited notes that an audit has begun: it finds what is missing by itself.
func (w *LossWatch) Audited() { w.missing, w.pending = nil, false }

// Pending reports whether a delayed audit is scheduled.
func (w *LossWatch) Pending() bool { return w.pending }

// Missing returns the bookies that are lost and not audited yet.
func (w *LossWatch) Missing() []BookieID { return slices.Clone(w.missing) }
