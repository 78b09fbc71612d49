package explore

import (
	"errors"
	"slices"

	"github.com/binderylog/bindery/internal/ledger"
)

var errTooMany = errors.New("explore: the world has more parts than the tables hold; make it smaller")

// state is one state of a world. It holds numbers of interned parts and no pointer.
type state struct {
	record   uint32
	version  uint8
	gone     bool
	closed   int8  // last entry of the first CLOSED record, noEnd before
	served   int8  // highest LAC that any bookie could be asked for
	promised uint8 // entries that must not be lost any more
	lock     uint8 // of re-replication: 1 + replicator's slot, or lockBookie + bookie that collects; 0 if free
	budget   [budgetKinds]uint8
	inc      [bookieMax]uint8 // version of the incarnation key
	clients  [clientMax]uint32
	bookies  [bookieMax]uint32
	late     [lateMax]uint16 // writes of unknown outcome that may still land; 0 for none
	n        uint8
	messages [messageMax]uint16 // in the order of their numbers
	tier     uint32             // number of the tier's state; 0 without one
}

const (
	noEnd      int8  = -2
	lockBookie uint8 = 16
)

func (s *state) flight() []uint16 { return s.messages[:s.n] }

func (s *state) addMessage(id uint16) {
	if int(s.n) == messageMax {
		panic(errTooMany)
	}
	i, _ := slices.BinarySearch(s.flight(), id)
	copy(s.messages[i+1:s.n+1], s.messages[i:s.n])
	s.messages[i] = id
	s.n++
}

func (s *state) removeMessage(i int) {
	copy(s.messages[i:s.n-1], s.messages[i+1:s.n])
	s.n--
	s.messages[s.n] = 0
}

func (s *state) addLate(id uint16) bool {
	for i, l := range s.late {
		if l == 0 {
			s.late[i] = id
			slices.Sort(s.late[:])
			return true
		}
	}
	return false
}

func (s *state) removeLate(i int) {
	s.late[i] = 0
	slices.Sort(s.late[:])
}

type role uint8

const (
	roleWriter role = iota
	roleRecovery
	roleReader
	roleReplicator
)

type status uint8

const (
	statusIdle status = iota
	statusLive
	statusDone
)

// client is a core with what its driver keeps.
type client struct {
	role     role
	status   status
	w        *ledger.Writer
	r        *ledger.Recovery
	rd       *ledger.Reader
	rep      *replicator
	want     want
	pick     ledger.IndexSet   // indices asked for
	exclude  []ledger.BookieID // the ensemble when the pick was asked for, by index; it follows from the core's state
	released int8              // last entry released
	lac      int8              // highest LAC seen: it never goes back
}

// want is the one metadata operation under way.
type want struct {
	kind     wantKind
	answered bool
	outcome  outcome
	record   uint32 // of a write: the proposal; of an answered read: what was read
	version  uint8
	checks   [3]incarnation
	locked   bool // the write depends on the lock
	blind    bool // planted bug: the write is not a compare-and-set
}

type wantKind uint8

const (
	wantNone wantKind = iota
	wantRead
	wantWrite
)

type outcome uint8

const (
	outcomeOK outcome = iota
	outcomeConflict
	outcomeGone
)

// incarnation is a condition of a write: bookie+1, 0 for none.
type incarnation struct{ bookie, version uint8 }

// lateWrite is a write of unknown outcome.
type lateWrite struct {
	client uint8
	want   want
}

type kind uint8

const (
	msgAdd kind = iota
	msgReadd
	msgCopy
	msgFence
	msgRead
	msgLength
	msgForce
	msgLAC
)

func (k kind) String() string {
	return [...]string{"add", "readd", "copy", "fence", "read", "length", "force", "lac"}[k]
}

type phase uint8

const (
	phaseRequest phase = iota
	phaseVerify        // at the bookie, which reads the record
	phaseHeld          // answered, but the answer waits for a sync
	phaseReply
	phaseLost // nothing comes any more; the client has not noticed
)

// message is a request and what became of it.
type message struct {
	kind   kind
	phase  phase
	orphan bool // its client does not wait for it
	client uint8
	bookie uint8
	index  uint8
	round  uint8
	entry  int8
	lac    int8
	length int8
	conn   uint8
	answer ledger.Answer
	// what a read brought
	gotEntry  int8
	gotLAC    int8
	gotLength int8
	// verification
	open  bool
	stale bool
}

// stored is an entry on a bookie. The cumulative length in its header identifies the body: every entry has another.
type stored struct {
	ok     bool
	lac    int8
	length int8
}

// bookie is one bookie's share: what is in memory, and what would survive a power cut.
type bookie struct {
	mem, disk     ledger.Replica
	have, synced  [entryMax]stored
	starting      bool  // it came back and does not serve yet
	believes      uint8 // planted bug: replayed records that count as synced
	lossEpoch     uint8
	conn          uint8
	fenceAnswered bool  // I10
	acked         uint8 // I20: entries whose acknowledgement was sent
	lost          uint8 // entries that were acknowledged and lost with the disk
	gc            uint8 // collector: 0 idle, 1 has looked, 2 has looked and something changed since
}
