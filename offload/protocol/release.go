package protocol

import "github.com/binderylog/bindery/internal/ledger"

// Release gives the bookie copies of a ledger up. The zero value with NewID set is ready.
type Release struct {
	NewID AttemptID // for the attempt that is begun when the ledger turns out to have been closed elsewhere

	seen Seen // what the objects were looked at after
}

// Step returns what to do after an event.
func (r *Release) Step(e Event) Action {
	switch e.Kind {
	case EventSeen:
		return r.decide(e.Seen, e.LagOver)
	case EventChecked:
		if !e.OK {
			return stop(TierDoubt)
		}
		// The write names the versions that were read before the objects were looked at.
		return Action{Do: Send, Write: Write{
			Record: r.seen.Record.Version, State: Released, Attempt: r.seen.Record.Attempt, Ledger: LedgerDelete, LedgerVer: r.seen.Ledger.Version,
		}}
	case EventWrote:
		if e.Outcome == Failed {
			return stop(Unreachable)
		}
	}
	return Action{Do: Read}
}

func (r *Release) decide(s Seen, lagOver bool) Action {
	r.seen = s
	switch s.Record.State {
	case Released:
		if s.Ledger.Exists() {
			return stop(Contradicts)
		}
		return Action{Do: Finish}
	case Deleting:
		return stop(BeingDeleted)
	case Absent, Uploading:
		return stop(NotComplete)
	}
	switch {
	case !s.Ledger.Exists():
		return stop(NoLedger) // deleted by others: the janitor's
	case !s.same():
		if s.Record.Garbage >= GarbageMax {
			return stop(GarbageFull)
		}
		return Action{Do: Send, Write: Write{
			Record: s.Record.Version, State: Uploading, Attempt: r.NewID, Idle: true, Discard: true, Ledger: LedgerAt, LedgerVer: s.Ledger.Version,
		}}
	case !s.Ledger.Release:
		return stop(NotOptedIn)
	case s.Record.Missing > 0:
		return stop(NotWhole)
	case !lagOver && ledger.Planted() != ledger.MutantOffloadNoLag:
		return Action{Do: Wait}
	case ledger.Planted() == ledger.MutantOffloadReleaseUnchecked:
		return r.Step(Event{Kind: EventChecked, OK: true})
	}
	return Action{Do: Check}
}
