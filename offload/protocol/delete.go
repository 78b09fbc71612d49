package protocol

// Deletion turns a ledger into one that is gone for everybody. What is left of it in the tier is the janitor's.
type Deletion struct{}

// Step returns what to do after an event.
func (d *Deletion) Step(e Event) Action {
	switch e.Kind {
	case EventSeen:
		return d.decide(e.Seen)
	case EventWrote:
		if e.Outcome == Failed {
			return stop(Unreachable)
		}
	}
	return Action{Do: Read}
}

func (d *Deletion) decide(s Seen) Action {
	switch s.Record.State {
	case Absent:
		return stop(NotComplete) // an ordinary ledger, if it exists at all
	case Deleting:
		return Action{Do: Finish} // a ledger that exists now was created anew; it is not the one that was deleted
	}
	w := Write{Record: s.Record.Version, State: Deleting, Attempt: s.Record.Attempt, Ledger: LedgerAt, LedgerVer: None}
	if s.Ledger.Exists() {
		w.Ledger, w.LedgerVer = LedgerDelete, s.Ledger.Version
	}
	return Action{Do: Send, Write: w}
}
