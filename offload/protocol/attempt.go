package protocol

import "github.com/binderylog/bindery/internal/ledger"

// Attempt takes one ledger into the tier. The zero value with a fresh ID is ready.
type Attempt struct {
	ID       AttemptID
	TakeOver bool // the lock has been held long enough: an attempt found there is displaced
	Resumed  bool // the ID comes from an intent: it goes on if the record names it, and never names it anew

	begun    bool  // the record named this attempt
	unclear  bool  // a write that begins it was sent and not answered
	at       int64 // version of the record that such a write replaces
	uploaded bool
	under    int64 // version of the record that the upload was made under
}

// Step returns what to do after an event.
func (a *Attempt) Step(e Event) Action {
	switch e.Kind {
	case EventSeen:
		return a.decide(e.Seen)
	case EventUploaded:
		if !e.OK {
			return stop(UploadError)
		}
		a.uploaded = true
	case EventWrote:
		switch {
		case e.Outcome == Failed:
			return stop(Unreachable)
		case e.Outcome == Applied:
			a.begun = true
		case e.Outcome == Unknown && !a.begun:
			a.unclear = true
		}
	}
	return Action{Do: Read}
}

// decide goes by what the store says now.
func (a *Attempt) decide(s Seen) Action {
	r := s.Record
	switch r.State {
	case Complete, Released:
		if r.Attempt == a.ID {
			return Action{Do: Finish}
		}
		return stop(InTier)
	case Deleting:
		return stop(BeingDeleted)
	case Uploading:
		if r.Attempt == a.ID {
			return a.carryOn(s)
		}
	}
	// An id that may have stood in the record, and does not any more, is garbage or was: it must not be named again. Only the very
	// same write may be repeated, since at most one of the two can land.
	if (a.Resumed || a.begun || a.unclear && a.at != r.Version) && ledger.Planted() != ledger.MutantOffloadNamedAnew {
		return stop(Displaced)
	}
	a.at = r.Version
	switch {
	case !s.Ledger.Exists():
		return stop(NoLedger)
	case !s.Ledger.Closed || s.Ledger.Last < 0:
		return stop(NotClosed)
	}
	w := Write{Record: r.Version, State: Uploading, Attempt: a.ID, Ledger: LedgerAt, LedgerVer: s.Ledger.Version}
	if r.State == Uploading && !r.Idle {
		switch {
		case !a.TakeOver:
			return stop(Busy)
		case r.Garbage >= GarbageMax:
			return stop(GarbageFull)
		}
		w.Discard = true
	}
	return Action{Do: Send, Write: w}
}

// carryOn is for a record that names this attempt.
func (a *Attempt) carryOn(s Seen) Action {
	a.begun = true
	switch {
	case !s.Ledger.Exists():
		return stop(NoLedger)
	case !s.same() && ledger.Planted() != ledger.MutantOffloadCommitStale:
		return stop(Displaced) // re-closed elsewhere: what was uploaded is not the ledger any more
	case !a.uploaded || a.under != s.Record.Version:
		// A record that was changed meanwhile may have gone and come back, by a write that begins this attempt and landed late. The janitor
		// may have been here in between: what is there is looked at again.
		a.uploaded, a.under = false, s.Record.Version
		return Action{Do: Upload}
	}
	w := Write{Record: s.Record.Version, State: Complete, Attempt: a.ID, Ledger: LedgerAt, LedgerVer: s.Ledger.Version}
	if ledger.Planted() == ledger.MutantOffloadCommitStale {
		w.Ledger = LedgerFree
	}
	return Action{Do: Send, Write: w}
}
