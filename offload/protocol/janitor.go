package protocol

// Left is what the janitor knows of a record beside what it saw.
type Left struct {
	Locked      bool // somebody holds the ledger's lock
	Abandoned   bool // UPLOADING without a lock for long enough that nobody will go on
	AbsentTwice bool // the ledger was absent in an earlier look too, at least the grace before
	Cleaned     bool // DELETING: two passes a grace apart, the second of which found nothing
	NewID       AttemptID
}

// Janitor returns what to do about a record that somebody left. Clean means its garbage, its stale objects or, DELETING, all
// objects; Finish means nothing.
func Janitor(s Seen, l Left) Action {
	r := s.Record
	switch r.State {
	case Absent:
		return Action{Do: Finish}
	case Deleting:
		if l.Cleaned {
			return Action{Do: Send, Write: Write{Record: r.Version, Remove: true}}
		}
		return Action{Do: Clean}
	case Uploading, Complete:
		if !s.Ledger.Exists() && l.AbsentTwice {
			return (&Deletion{}).decide(s)
		}
	}
	switch {
	case r.Garbage > 0 || r.Stale > 0:
		return Action{Do: Clean}
	case r.State != Uploading || l.Locked || !s.Ledger.Exists():
		return Action{Do: Finish}
	case r.Idle && l.Abandoned:
		return Action{Do: Send, Write: Write{Record: r.Version, Remove: true}}
	case l.Abandoned:
		// Nothing is behind the new attempt: the record may go once the old one is cleaned.
		return Action{Do: Send, Write: Write{Record: r.Version, State: Uploading, Attempt: l.NewID, Idle: true, Discard: true, Ledger: LedgerAt, LedgerVer: s.Ledger.Version}}
	}
	return Action{Do: Finish}
}
