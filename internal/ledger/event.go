package ledger

// Answer is what a bookie's reply, or its absence, means to the protocol. The driver of a core maps status codes,
// timeouts and broken connections to it, and keeps the detail for error messages.
type Answer uint8

// The classes of answers.
const (
	AnswerUnknown      Answer = iota // time-out, broken connection, I/O error, limbo, any code not listed: proves nothing
	AnswerOK                         // done, or here is the entry
	AnswerNegative                   // no such entry or no such ledger
	AnswerFenced                     // the ledger is fenced
	AnswerUnauthorized               // wrong master key
	AnswerBadDigest                  // an entry came, but it is not what the writer sealed
)

func (a Answer) String() string {
	return [...]string{"unknown", "ok", "negative", "fenced", "unauthorized", "bad-digest"}[a]
}

// Cause says why a core gave up, or why it failed an add.
type Cause uint8

// The causes.
const (
	CauseNone             Cause = iota
	CauseClosed                 // the handle was closed by its owner
	CauseFenced                 // another client recovers or has closed the ledger
	CauseUnauthorized           // wrong password
	CauseNotEnoughBookies       // an ack quorum can not be reached and no replacement is left
	CauseTooManyFragments       // the ensemble was changed too often: something is wrong with the cluster
	CauseDeferred               // a bookie failed under a ledger with deferred sync, whose ensemble can not be changed
	CauseForce                  // a force failed under a ledger with deferred sync
	CauseMetadata               // the metadata store did not answer in time; the outcome of the last write is not known
	CauseGone                   // the metadata record was deleted
	CauseConflict               // the stored record contradicts this client: it ends elsewhere, or is not a successor of its own
	CauseNotCovered             // too few bookies of the last ensemble answered
	CauseUnreadable             // an entry could be neither read nor proven absent
)

func (c Cause) String() string {
	return [...]string{"none", "closed", "fenced", "unauthorized", "not enough bookies", "too many fragments", "bookie failed under deferred sync",
		"force failed", "metadata unavailable", "ledger deleted", "metadata conflict", "ensemble not covered", "entry neither readable nor absent"}[c]
}

// EventKind says what happened.
type EventKind uint8

// The events. W and R mark which core takes them: writer, recovery.
const (
	EvAppend       EventKind = iota + 1 // W   the application adds Size payload bytes
	EvAnswer                            // W R answer of Bookie at Index to the add of Entry, over connection Conn
	EvPicked                            // W R answer to ActPick: Picks, one for each index asked for
	EvWritten                           // W R the compare-and-set succeeded; the record now has Version
	EvConflict                          // W R the compare-and-set found another version (or another incarnation)
	EvRead                              // W R a linearizable read: Record at Version
	EvGone                              // W R the record does not exist
	EvMetaUnknown                       // W R the store is unavailable, or the outcome of the write is unknown
	EvMetaTimeout                       // W R the metadata time-out passed while the core waited
	EvForce                             // W   the application asks for a force
	EvForceAnswer                       // W   answer of Bookie at Index to FORCE, over connection Conn
	EvClose                             // W   the application closes the handle; pending adds fail
	EvRetry                             // W   some time has passed, or bookies came back: look again for replacements
	EvLACTick                           // W   the explicit-LAC interval passed
	EvFenceAnswer                       //   R answer of Bookie at Index to the fencing read: Entry, LAC, Length of its last entry
	EvReadAnswer                        //   R answer of Bookie at Index to the recovery read of Entry: LAC and Length of its header
	EvLengthAnswer                      //   R answer of Bookie at Index to the read of Entry for its length
)

// Event is one input of a core. Fields not named by the kind are ignored.
type Event struct {
	Kind    EventKind
	Answer  Answer
	Index   int
	Round   int // R: copied from the action that is answered
	Bookie  BookieID
	Entry   EntryID
	LAC     EntryID
	Length  int64
	Size    int64
	Conn    uint64 // identity of the connection that carried the answer; never reused
	Record  *Metadata
	Version int64
	Picks   []Pick
	Urgent  bool // W: with a failure: the bookie says that it takes no adds at all, so waiting for it is of no use
}

// Pick is a bookie chosen for an index. The bookie that is there already means that it answers again; an empty one
// means that there is no candidate.
type Pick struct {
	Index       int
	Bookie      BookieID
	Incarnation int64 // version of the bookie's incarnation key, read before anything was sent to it (recovery)
}

// ActionKind says what the driver of a core has to do.
type ActionKind uint8

// The actions.
const (
	ActSend         ActionKind = iota + 1 // W R send the add of Entry (header LAC, Length) to Bookie at Index
	ActRelease                            // W   entries First..Entry are acknowledged: tell the application, in order
	ActFail                               // W   entries First..Entry failed with Cause (they may exist nevertheless)
	ActPick                               // W R choose bookies for the indices in Indices, none of Exclude
	ActWrite                              // W R compare-and-set the record at Version to Record, provided Checks hold
	ActRead                               // W R read the record linearizably; Retry asks for a pause first
	ActEnsemble                           // W R the ensemble changed: Record's last one is current
	ActForce                              // W   send FORCE to Bookie at Index
	ActForceDone                          // W   the force up to Entry ended with Cause
	ActWriteLAC                           // W   send the explicit LAC to Bookie at Index
	ActClosed                             // W   the handle is closed. CauseNone: the ledger ends at Entry, with Length
	ActFence                              //   R send a fencing read of the last entry to Bookie at Index
	ActRecoveryRead                       //   R send a fencing read of Entry to Bookie at Index
	ActReadLength                         //   R read Entry from Bookie at Index, for the length in its header
	ActRecovered                          //   R Record is CLOSED: recovery is done, by this client or another
	ActAborted                            //   R recovery gave up with Cause; the record stays as it is
)

// Action is one output of a core. Records belong to the core: drivers do not change them.
type Action struct {
	Kind    ActionKind
	Cause   Cause
	Retry   bool
	Index   int
	Round   int
	Bookie  BookieID
	First   EntryID
	Entry   EntryID
	LAC     EntryID
	Length  int64
	Indices IndexSet
	Exclude []BookieID
	Record  *Metadata
	Version int64
	Checks  []IncarnationCheck
}

// IncarnationCheck is a condition of a compare-and-set: the incarnation key of Bookie still has Version, so that the
// bookie has not been emptied since the first add to it.
type IncarnationCheck struct {
	Bookie  BookieID
	Version int64
}
