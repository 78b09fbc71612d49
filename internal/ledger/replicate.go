package ledger

import "slices"

// Re-replication and collection: which copies may be made of a ledger that lost some, what must hold in the record that
// names the new copy, and when a bookie may delete its own. Like the cores these are pure functions of records; whoever
// copies moves the bytes and carries the verdicts to the store.
//
//	plan     the fragment is final: the ledger is CLOSED, or another fragment follows. What a reader knows of the LAC does
//	         not make a fragment final, since it may lag behind the fragment's end
//	copy     every entry of the fragment that stripes to the index, as recovery adds; all must be acknowledged
//	publish  one compare-and-set, judged anew on the very record that it replaces: same end or same successor, the old
//	         bookie still in its place, the new one not in the fragment; and conditional on the incarnation that the new
//	         bookie had before the first copy, and on the lock under which the copy was made
//
// A copy returned to the bookie that should have it already (emptied, or in limbo) needs no publish.

// CopyVerdict says whether a copy may be made, or published.
type CopyVerdict uint8

// The verdicts.
const (
	CopyReady    CopyVerdict = iota
	CopyNotFinal             // the fragment can still grow: recover the ledger first
	CopyInside               // the target holds another place of the fragment: this attempt ends
	CopyObsolete             // the record is not that of the plan any more: look at the ledger again
)

func (v CopyVerdict) String() string {
	return [...]string{"ready", "fragment not final", "target is in the fragment", "obsolete"}[v]
}

// Copy is one place of a fragment that gets its entries anew.
type Copy struct {
	First       EntryID // of the fragment
	Last        EntryID // its last entry; First-1 if it is empty
	Index       int
	From, To    BookieID
	Incarnation int64 // version of To's incarnation key, read before the first copy
	sealed      bool  // the fragment is the last one of a closed ledger
}

// FinalFragment returns the last entry of fragment i, and whether that can not change any more.
func (m *Metadata) FinalFragment(i int) (last EntryID, final bool) {
	switch {
	case i < len(m.Fragments)-1:
		return m.Fragments[i+1].First - 1, true
	case m.State == StateClosed || mutant == MutantOpenIsFinal:
		return m.LastEntry, true
	}
	return InvalidEntry, false
}

// PlanCopy plans to give the entries of fragment i that stripe to index to another bookie, or back to the one that is there.
func PlanCopy(m *Metadata, i, index int, to BookieID, incarnation int64) (Copy, CopyVerdict) {
	f := m.Fragments[i]
	last, final := m.FinalFragment(i)
	c := Copy{First: f.First, Last: last, Index: index, From: f.Bookies[index], To: to, Incarnation: incarnation, sealed: i == len(m.Fragments)-1}
	switch {
	case !final:
		return c, CopyNotFinal
	case to != c.From && holds(f.Bookies, to):
		return c, CopyInside
	}
	return c, CopyReady
}

// Needs reports whether entry e belongs to the copy.
func (c *Copy) Needs(q Quorum, e EntryID) bool {
	return e >= c.First && e <= c.Last && q.Stores(e, c.Index)
}

// Publish judges the copy on a record that was just read and returns the record to put in its place, with the conditions of
// that compare-and-set. A nil record with CopyReady means that nothing has to be written.
func (c *Copy) Publish(m *Metadata) (*Metadata, []IncarnationCheck, CopyVerdict) {
	i := m.FragmentOf(c.First)
	f := m.Fragments[i]
	last, final := m.FinalFragment(i)
	switch {
	case f.First != c.First || !final || last != c.Last || c.sealed != (i == len(m.Fragments)-1):
		return nil, nil, CopyObsolete
	case f.Bookies[c.Index] == c.To:
		return nil, nil, CopyReady // a copy in place, or this very change has landed
	case f.Bookies[c.Index] != c.From:
		return nil, nil, CopyObsolete
	case holds(f.Bookies, c.To):
		return nil, nil, CopyInside
	}
	next := *m
	next.Fragments = append([]Fragment(nil), m.Fragments...)
	next.Fragments[i].Bookies = append([]BookieID(nil), f.Bookies...)
	next.Fragments[i].Bookies[c.Index] = c.To
	return &next, []IncarnationCheck{{Bookie: c.To, Version: c.Incarnation}}, CopyReady
}

// TailAtRisk reports whether a ledger that is not closed must be recovered, after a grace in which its writer may replace the
// bookie itself: a member of the last fragment is missing. Whether that member holds anything does not matter; once a second
// one is missing, an entry that only these two may hold could never be decided.
func (m *Metadata) TailAtRisk(missing func(BookieID) bool) bool {
	return m.State != StateClosed && slices.ContainsFunc(m.Last().Bookies, missing)
}

// CollectProof is what a bookie knows before it deletes its copy of a ledger.
type CollectProof struct {
	Listing bool      // a listing of all ledgers, begun after the bookie knew of this one, came to its end without an error
	Listed  bool      // it named the ledger
	Read    bool      // a linearizable read of the record, made after the listing, gave an answer
	Record  *Metadata // that answer, nil: no record
}

// Holds reports whether the copy of bookie self may go: the ledger is gone by both, or it is closed and elsewhere. One error
// keeps everything. The caller tests in the critical section of the deletion that no recovery add came meanwhile
// (Replica.Delete).
func (p CollectProof) Holds(self BookieID) bool {
	switch {
	case !p.Listing || !p.Read:
		return false
	case p.Record == nil:
		return !p.Listed
	}
	return p.Record.State == StateClosed && !p.Record.Names(self)
}
