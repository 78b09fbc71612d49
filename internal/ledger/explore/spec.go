package explore

import (
	"fmt"

	"github.com/binderylog/bindery/internal/ledger"
)

const (
	bookieMax  = 6
	clientMax  = 4
	entryMax   = 4
	messageMax = 48
	lateMax    = 3
)

// Spec is a world: who takes part, and how often what may go wrong.
type Spec struct {
	Name  string
	About string

	Quorum    ledger.Quorum
	Bookies   int // A, B, C...; the first Quorum.Ensemble are the first ensemble, the others are spare
	Entries   int // adds that the application makes
	Pending   int // adds that it may have under way at once; 0: all
	Deferred  bool
	Unmarked  bool // deferred adds are not marked durably (bookies of the other kind)
	NoWriter  bool // the writer is gone from the start of the exploration (what Setup sent is still under way)
	Split     bool // what a bookie takes is durable only after a sync
	Readers   int
	ReadAhead int

	Recoverers  int
	Replicators int
	LockLoss    bool // a second replicator may take the lock that the first believes to hold
	Collect     bool // bookies look for copies that they need not keep

	Tier        bool // workers offload, release and clean; the owner agrees to the release
	TierWorkers int  // at once; 0: one

	Budget Budget

	// Prompt: answers to fences and recovery reads arrive at once or never. In a world where no bookie fails a recoverer does
	// nothing but count them until one decides, and what it then sends may be late; so nothing is lost by it.
	Prompt    bool
	LostReads bool // time-outs strike reads and fences too, not adds alone (an answer never delivered is lost anyway)

	PickNone bool // a replacement may be missing
	PickSame bool // a bookie that failed may answer again

	Setup []string // moves made before the exploration, as printed in histories

	exact      bool // no memory of steps: every step runs on the core
	asymmetric bool // states are told apart even if they differ by a renaming only
	unordered  bool // no move is preferred to the others, even if it commutes with them
}

// Budget bounds how often something may happen.
type Budget struct {
	Timeouts     int // a client gives up on an answer; the request may still arrive
	Unknowns     int // a metadata operation ends with an unknown outcome: applied, not applied, or landing later
	MetaTimeouts int // a client gives up on the store
	Wipes        int // a bookie comes back empty under its id
	Loses        int // a bookie loses its journal
	PowerCuts    int // a bookie loses what it did not sync
	Kills        int // a bookie's process dies and starts again; the kernel keeps what was written
	Faults       int // a bookie's disk fails one read
	Deletes      int // the ledger is deleted
	Closes       int // the application closes the handle
	Forces       int
	LACTicks     int
	Retries      int
	Reads        int // steps of each reader

	Attempts     int // tries to offload the ledger
	TierCrashes  int // a worker, or a release, ends in the middle
	TierUnknowns int // a write of the offload record ends with an unknown outcome
	Damages      int // a store loses or changes what it was given
	Recloses     int // a client of the other kind recovers the closed ledger by force, and finds one entry more
	TierDeletes  int // the owner deletes the ledger
	Sweeps       int // somebody looks for objects that no record names, and deletes them
}

type budgetKind uint8

const (
	budEntries budgetKind = iota
	budTimeouts
	budUnknowns
	budMetaTimeouts
	budWipes
	budLoses
	budPowerCuts
	budKills
	budFaults
	budDeletes
	budCloses
	budForces
	budLACTicks
	budRetries
	budReads
	budAttempts
	budTierCrashes
	budTierUnknowns
	budDamages
	budRecloses
	budTierDeletes
	budSweeps
	budgetKinds
)

func (s *Spec) budgets() [budgetKinds]uint8 {
	b := s.Budget
	return [budgetKinds]uint8{uint8(s.Entries), uint8(b.Timeouts), uint8(b.Unknowns), uint8(b.MetaTimeouts), uint8(b.Wipes), uint8(b.Loses), uint8(b.PowerCuts),
		uint8(b.Kills), uint8(b.Faults), uint8(b.Deletes), uint8(b.Closes), uint8(b.Forces), uint8(b.LACTicks), uint8(b.Retries), uint8(b.Reads),
		uint8(b.Attempts), uint8(b.TierCrashes), uint8(b.TierUnknowns), uint8(b.Damages), uint8(b.Recloses), uint8(b.TierDeletes), uint8(b.Sweeps)}
}

func (s *Spec) clients() int { return 1 + s.Recoverers + s.Replicators + s.Readers }

// unstriped reports whether every entry goes to the whole ensemble, so that indices may change places.
func (s *Spec) unstriped() bool { return s.Quorum.Ensemble == s.Quorum.Write }

// Validate returns an error for a world that does not fit the state vector.
func (s *Spec) Validate() error {
	if err := s.Quorum.Validate(); err != nil {
		return fmt.Errorf("world %s: %w", s.Name, err)
	}
	if s.Bookies > bookieMax || s.Bookies < s.Quorum.Ensemble || s.Entries > entryMax || s.clients() > clientMax {
		return fmt.Errorf("world %s: at most %d bookies, %d entries, %d clients, and at least one ensemble", s.Name, bookieMax, entryMax, clientMax)
	}
	if b := s.Budget; b.Attempts >= tierIdle || s.TierWorkers > tierWorkers || b.TierUnknowns > tierLateMax || !s.Tier && b.Attempts > 0 {
		return fmt.Errorf("world %s: at most %d attempts, %d workers and %d unknown outcomes of a tier", s.Name, tierIdle-1, tierWorkers, tierLateMax)
	}
	if b := s.Budget; s.Prompt && (!s.unstriped() || s.ReadAhead > 1 || s.Split || b.Timeouts+b.Wipes+b.Loses+b.Faults > 0) {
		return fmt.Errorf("world %s: prompt answers are for worlds without failures, striping, reading ahead and syncs", s.Name)
	}
	return nil
}
