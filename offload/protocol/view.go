package protocol

// None as a version says that the key does not exist.
const None int64 = -1

// GarbageMax bounds the abandoned attempts of one record.
const GarbageMax = 8

// Ledger is the ledger's own record as a linearizable read showed it.
type Ledger struct {
	Version int64 // None: there is no record
	Closed  bool
	Last    int64
	Length  int64
	Release bool // its owner agreed that the bookies give it up (decision 50)
}

// Exists reports whether there is a record.
func (l Ledger) Exists() bool { return l.Version != None }

// Record is the offload record as a linearizable read showed it.
type Record struct {
	Version int64 // None: there is no record
	State   State // Absent then
	Attempt AttemptID
	Idle    bool // UPLOADING, but the attempt never sent a byte: the janitor left it so
	Last    int64
	Length  int64
	Missing int // shards that are not there
	Garbage int // abandoned attempts
	Stale   int // objects that a repair replaced
}

// Seen is one linearizable look at both keys. The ledger is read after the record.
type Seen struct {
	Ledger Ledger
	Record Record
}

// same reports whether the record describes the ledger as it is.
func (s Seen) same() bool {
	return s.Ledger.Closed && s.Ledger.Last == s.Record.Last && s.Ledger.Length == s.Record.Length
}

// LedgerCond is what a write does with the ledger's own record.
type LedgerCond uint8

// The conditions.
const (
	LedgerFree   LedgerCond = iota // nothing
	LedgerAt                       // it must have the version, which may be None
	LedgerDelete                   // it must have the version, and is deleted
)

// Write is one transaction.
type Write struct {
	Record     int64 // the version that the offload record must have; None to create it
	Remove     bool  // delete the offload record; nothing else is set
	LedgerOnly bool  // the offload record stays as it is; only Record, Ledger and LedgerVer are set
	State      State // what it becomes
	Attempt    AttemptID
	Idle       bool
	Discard    bool // the attempt that it named becomes garbage
	Ledger     LedgerCond
	LedgerVer  int64
}

// Outcome is what became of a write.
type Outcome uint8

// The outcomes.
const (
	Applied  Outcome = 1 // it happened
	Conflict Outcome = 2 // a condition did not hold: it did not happen and will not
	Unknown  Outcome = 3 // it may have happened, and may happen later
	Failed   Outcome = 4 // it did not happen and will not; the store could not be reached
)

// Do is what to do next.
type Do uint8

// The things to do.
const (
	Read   Do = 1 // look at both keys, then EventSeen
	Send   Do = 2 // make the write, then EventWrote
	Upload Do = 3 // send whatever of the attempt is not there yet, manifests included, and verify; then EventUploaded
	Check  Do = 4 // look at every object of the attempt; then EventChecked
	Wait   Do = 5 // the deletion lag is not over; come back with Start
	Finish Do = 6 // done
	Stop   Do = 7 // not done; Reason says why
	Clean  Do = 8 // the janitor removes objects
)

// Reason says why something stopped.
type Reason uint8

// The reasons.
const (
	NoReason    Reason = iota
	NoLedger           // there is no such ledger
	NotClosed          // it is open, or empty
	InTier             // it is there already
	Busy               // another attempt is under way
	Displaced          // another attempt took over, or the ledger was deleted
	GarbageFull        // too many abandoned attempts; the janitor has to catch up
	BeingDeleted
	NotOptedIn  // the owner has not agreed to give the bookie copies up
	NotWhole    // a shard is missing
	TierDoubt   // an object is not as it should be, or could not be looked at
	UploadError // the upload failed; a later try goes on
	Unreachable // the metadata store; a later try goes on
	NotComplete // nothing to release
	Contradicts // the record is RELEASED and the ledger exists: a restore is under way, or somebody created it anew
)

var reasons = [...]string{
	"", "no such ledger", "not closed, or empty", "in the tier already", "another attempt is under way", "another attempt took over",
	"too many abandoned attempts; the janitor has to clean up first", "being deleted", "its owner has not agreed to the release (custom metadata bindery.tier=release)",
	"a shard is missing; repair it first", "an object could not be seen to be whole", "upload failed", "the metadata store can not be reached", "not in the tier",
	"released, but the ledger exists",
}

func (r Reason) String() string { return reasons[r] }

var labels = [...]string{
	"none", "no_ledger", "not_closed", "in_tier", "busy", "displaced", "garbage_full", "being_deleted", "not_opted_in", "not_whole", "tier_doubt", "upload",
	"metadata", "not_complete", "contradicts",
}

// Label is the reason as metrics spell it.
func (r Reason) Label() string { return labels[r] }

// Action is what to do next.
type Action struct {
	Do     Do
	Write  Write  // for Send
	Reason Reason // for Stop
}

func stop(r Reason) Action { return Action{Do: Stop, Reason: r} }

// EventKind says what happened.
type EventKind uint8

// The kinds of event.
const (
	Start         EventKind = 1
	EventSeen     EventKind = 2
	EventWrote    EventKind = 3
	EventUploaded EventKind = 4
	EventChecked  EventKind = 5
)

// Event is what happened since the last action.
type Event struct {
	Kind    EventKind
	Seen    Seen    // EventSeen
	Outcome Outcome // EventWrote
	OK      bool    // EventUploaded, EventChecked
	LagOver bool    // EventSeen, for Release: the deletion lag has passed since the commit
}
