package protocol

// Deletion turns a ledger into one that is gone for everybody. What is left of it in the tier is the janitor's.
type Deletion struct {
	All bool // also a ledger that the tier does not know

	sent bool
}

// Step returns what to do after an event.
func (d *Deletion) Step(e Event) Action {
	switch e.Kind {
	case EventSeen:
		return d.decide(e.Seen)
	case EventWrote:
		if e.Outcome == Failed {
			return stop(Unreachable)
		}
		d.sent = true
	}
	return Action{Do: Read}
}

func (d *Deletion) decide(s Seen) Action {
	switch s.Record.State {
	case Absent, Deleting:
		return d.ordinary(s)
	}
	w := Write{Record: s.Record.Version, State: Deleting, Attempt: s.Record.Attempt, Ledger: LedgerAt, LedgerVer: None}
	if s.Ledger.Exists() {
		w.Ledger, w.LedgerVer = LedgerDelete, s.Ledger.Version
	}
	return Action{Do: Send, Write: w}
}

// ordinary is for a ledger that the tier does not know, or knows to be deleted: one that exists then was created anew.
func (d *Deletion) ordinary(s Seen) Action {
	switch {
	case d.sent && !s.Ledger.Exists(), !d.All && s.Record.State == Deleting:
		return Action{Do: Finish}
	case !d.All:
		return stop(NotComplete)
	case !s.Ledger.Exists():
		return stop(NoLedger)
	}
	// Whoever begins to offload it meanwhile stands in the way, lest it be gone from the bookies and alive in the tier.
	return Action{Do: Send, Write: Write{Record: s.Record.Version, LedgerOnly: true, Ledger: LedgerDelete, LedgerVer: s.Ledger.Version}}
}
