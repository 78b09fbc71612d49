package bktest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/offload"
)

// Fault is a kind of trouble that a run may have.
type Fault string

// The kinds.
const (
	FaultRestart   Fault = "restart"   // a bookie is stopped and started
	FaultKill      Fault = "kill"      // a bookie's process dies; what it wrote is in the page cache
	FaultPower     Fault = "power"     // a bookie loses its power, and with it what was not synced
	FaultBlackout  Fault = "blackout"  // all bookies lose their power at once
	FaultWipe      Fault = "wipe"      // a bookie loses its disk and comes back under its name
	FaultPartition Fault = "partition" // links carry nothing, in both directions or in one
	FaultReset     Fault = "reset"     // connections break
	FaultLag       Fault = "lag"       // a link becomes slow
	FaultPause     Fault = "pause"     // nobody hears of anybody for a while, as when a machine is suspended: clocks jump
	FaultSlowDisk  Fault = "slow-disk" // journal writes take long
	FaultDisk      Fault = "disk"      // reads, writes or syncs fail
	FaultRot       Fault = "rot"       // a bookie is killed, and a few bits of its journals and logs go bad
	FaultFull      Fault = "full"      // a disk is full for a while
	FaultStore     Fault = "store"     // the metadata store is slow, away, or does not say what it did
	FaultSession   Fault = "session"   // a bookie's metadata session ends
	FaultDeath     Fault = "death"     // a client dies with its writers
	FaultGone      Fault = "gone"      // a bookie is lost for good, and retired by its operator
	FaultDrain     Fault = "drain"     // a bookie is made read-only and emptied, for a while or until it is empty
	FaultSwitch    Fault = "switch"    // re-replication is switched off for a while
	FaultGarble    Fault = "garble"    // a bookie's memory is bad: some entries that it serves have a wrong bit
	FaultTarget    Fault = "target"    // an object store fails, loses replies, is late, damages what is read
	FaultObjects   Fault = "objects"   // an object store loses everything, within what the geometry survives
	FaultMover     Fault = "mover"     // a process that moves ledgers to the tier dies
)

// tierFaults are those of runs with a tier.
var tierFaults = []Fault{FaultTarget, FaultObjects, FaultMover}

// AllFaults lists the kinds that every run may have.
var AllFaults = []Fault{FaultRestart, FaultKill, FaultPower, FaultBlackout, FaultWipe, FaultPartition, FaultReset, FaultLag, FaultPause,
	FaultSlowDisk, FaultDisk, FaultRot, FaultFull, FaultStore, FaultSession, FaultDeath, FaultGone, FaultDrain, FaultSwitch, FaultGarble}

// Config is one run. It follows from the seed alone.
type Config struct {
	Seed    uint64
	Bookies int
	Clients int
	Ledgers int
	Entries int // of each ledger, at most
	Quorums []ledger.Quorum
	Defer   bool          // some ledgers have their sync deferred
	For     time.Duration // how long there is trouble
	Calm    time.Duration // mean time between two troubles
	Latency time.Duration
	Dirs    [2]int // journal and ledger directories of each bookie
	Faults  []Fault
	Healers Healers
	Tier    Tier
}

// Tier is the tiered storage of a run.
type Tier struct {
	Workers  int // processes that move ledgers; 0: there is no tier
	Geometry offload.Geometry
	Lag      time.Duration // between commit and release; negative: nothing is released
	Inline   bool          // small ledgers are stored in their manifest
	Keep     bool          // some ledgers stay on the bookies, too: their owner does not agree to the release
}

// On reports whether there is any.
func (t *Tier) On() bool { return t.Workers > 0 }

// Healers is the auto-recovery of a run: so many bookies take part, and a process without a bookie if Alone.
type Healers struct {
	Members int
	Alone   bool
	Delay   time.Duration // before a bookie that is missing counts as lost; negative: none
	Grace   time.Duration // for the writer of an open ledger
	Rate    int64         // bytes a second that each copies; negative: no limit
	Still   bool          // no checks from time to time
}

// On reports whether there is any.
func (h *Healers) On() bool { return h.Members > 0 || h.Alone }

// NewConfig draws a run. Every run has some kinds of trouble only, so that rare combinations get room.
func NewConfig(seed uint64) Config {
	rng := rand.New(rand.NewPCG(seed, 0x636f6e666967))
	c := Config{
		Seed: seed, Bookies: 4 + rng.IntN(3), Clients: 2 + rng.IntN(3), Ledgers: 3 + rng.IntN(6), Entries: 20 + rng.IntN(120),
		Defer: rng.IntN(4) == 0, For: time.Duration(15+rng.IntN(30)) * time.Second, Calm: time.Duration(500+rng.IntN(4000)) * time.Millisecond,
		Latency: []time.Duration{50 * time.Microsecond, time.Millisecond, 20 * time.Millisecond}[rng.IntN(3)],
	}
	all := []ledger.Quorum{{Ensemble: 3, Write: 3, Ack: 2}, {Ensemble: 3, Write: 2, Ack: 2}, {Ensemble: 4, Write: 3, Ack: 2}, {Ensemble: 3, Write: 3, Ack: 3},
		{Ensemble: 2, Write: 2, Ack: 1}, {Ensemble: 4, Write: 2, Ack: 1}}
	c.Quorums = append(c.Quorums, all[0])
	for range rng.IntN(3) {
		c.Quorums = append(c.Quorums, all[rng.IntN(len(all))])
	}
	c.Dirs = [2]int{1 + rng.IntN(4)/3, 1 + rng.IntN(3)/2}
	for _, f := range AllFaults {
		if rng.IntN(3) == 0 {
			c.Faults = append(c.Faults, f)
		}
	}
	c.Healers = drawHealers(rng, c.Bookies)
	if c.Healers.On() && (c.Has(FaultGone) || c.Has(FaultDrain)) {
		c.Bookies++ // so that one can be spared
	}
	c.drawTier()
	return c
}

// drawTier gives a third of the runs a tier. It draws by itself, so that the others stay as they were.
func (c *Config) drawTier() {
	rng := rand.New(rand.NewPCG(c.Seed, 0x74696572636f6e66))
	if rng.IntN(3) > 0 {
		return
	}
	c.Tier = Tier{Workers: 1 + rng.IntN(2), Lag: []time.Duration{0, 3 * time.Second, 40 * time.Second, -1}[rng.IntN(4)], Inline: rng.IntN(3) == 0, Keep: rng.IntN(2) == 0}
	c.Tier.Geometry = []offload.Geometry{{Data: 1}, {Data: 1, Parity: 1}, {Data: 2, Parity: 1}, {Data: 4, Parity: 2}}[rng.IntN(4)]
	for _, f := range tierFaults {
		if rng.IntN(3) > 0 {
			c.Faults = append(c.Faults, f, f)
		}
	}
}

// drawHealers leaves a quarter of the runs without auto-recovery: it mends what would show there.
func drawHealers(rng *rand.Rand, bookies int) Healers {
	h := Healers{Members: 1 + rng.IntN(bookies), Alone: rng.IntN(3) == 0, Delay: []time.Duration{-1, 2 * time.Second, 8 * time.Second}[rng.IntN(3)],
		Grace: []time.Duration{500 * time.Millisecond, 3 * time.Second}[rng.IntN(2)], Rate: []int64{-1, 64 << 10, 1 << 20}[rng.IntN(3)]}
	if rng.IntN(4) == 0 {
		return Healers{}
	}
	return h
}

// widest is the largest ensemble of the run's ledgers.
func (c *Config) widest() int {
	most := 0
	for _, q := range c.Quorums {
		most = max(most, q.Ensemble)
	}
	return most
}

// Has reports whether the run has a kind of trouble.
func (c *Config) Has(f Fault) bool { return slices.Contains(c.Faults, f) }

// String describes the run in one line.
func (c *Config) String() string {
	kinds := make([]string, len(c.Faults))
	for i, f := range c.Faults {
		kinds[i] = string(f)
	}
	return fmt.Sprintf("seed %d: %d bookies, %d clients, %d ledgers of up to %d entries, quorums %v, deferred %v, directories %v, latency %v, auto-recovery %+v, tier %+v, %v of trouble every %v: %s",
		c.Seed, c.Bookies, c.Clients, c.Ledgers, c.Entries, c.Quorums, c.Defer, c.Dirs, c.Latency, c.Healers, c.Tier, c.For, c.Calm, strings.Join(kinds, " "))
}
