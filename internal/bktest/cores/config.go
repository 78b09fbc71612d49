package cores

import (
	"fmt"
	"math/rand/v2"

	"github.com/binderylog/bindery/internal/ledger"
)

// Config is one run. It follows from the seed alone.
type Config struct {
	Seed     uint64
	Bookies  int
	Ledgers  []LedgerConfig
	Steps    int     // events before the trouble ends
	Timeout  float64 // share of messages that their client gives up on
	Unknown  float64 // share of metadata operations with an unknown outcome
	Calm     int     // one in so many events may be a rare one
	Cuts     int     // power cuts and killed processes
	Losses   int     // wiped disks and lost journals
	Faults   int     // reads that a disk fails
	Parts    int     // partitions
	Lists    int     // deletions of ledgers
	PickNone bool    // there may be no replacement
}

// LedgerConfig is one ledger of a run.
type LedgerConfig struct {
	Quorum     ledger.Quorum
	Entries    int
	Deferred   bool
	Recoverers int
	Readers    int
}

// String describes the run in one line.
func (c Config) String() string {
	return fmt.Sprintf("seed %d: %d bookies, ledgers %v, %d steps, timeouts %.2f, unknown outcomes %.2f, calm %d, %d cuts, %d losses, %d faults, %d partitions",
		c.Seed, c.Bookies, c.Ledgers, c.Steps, c.Timeout, c.Unknown, c.Calm, c.Cuts, c.Losses, c.Faults, c.Parts)
}

var quorums = []ledger.Quorum{{Ensemble: 3, Write: 3, Ack: 2}, {Ensemble: 3, Write: 3, Ack: 2}, {Ensemble: 3, Write: 2, Ack: 2}, {Ensemble: 4, Write: 2, Ack: 2},
	{Ensemble: 2, Write: 1, Ack: 1}, {Ensemble: 5, Write: 3, Ack: 2}, {Ensemble: 3, Write: 3, Ack: 3}, {Ensemble: 2, Write: 2, Ack: 1}, {Ensemble: 3, Write: 2, Ack: 1}}

// NewConfig draws a run.
func NewConfig(seed uint64) Config {
	r := rand.New(rand.NewPCG(seed, 0x636f726573))
	c := Config{
		Seed: seed, Steps: 400 + r.IntN(2000), Timeout: []float64{0, 0.02, 0.1, 0.3}[r.IntN(4)], Unknown: []float64{0, 0, 0.2, 0.6}[r.IntN(4)],
		Calm: []int{5, 20, 60}[r.IntN(3)], PickNone: r.IntN(3) == 0,
	}
	some := func(n int) int {
		if r.IntN(2) == 0 {
			return 0
		}
		return 1 + r.IntN(n)
	}
	c.Cuts, c.Losses, c.Faults, c.Parts = some(6), some(3), some(10), some(6)
	if r.IntN(4) == 0 {
		c.Lists = 1
	}
	// A quarter of the runs have a few long ledgers. The others have many short ones: most races need few parts that meet
	// at the right moment, and each ledger is another chance for them.
	small := r.IntN(4) > 0
	n, entries := 1+r.IntN(3), 10
	if small {
		n, entries = 5+r.IntN(6), 3
		c.Calm = []int{3, 8, 20}[r.IntN(3)]
		c.Cuts, c.Losses, c.Lists = 3*c.Cuts, 2*c.Losses, 3*c.Lists
		c.Steps = 500 + r.IntN(2000)
	}
	most := 0
	for range n {
		l := LedgerConfig{Quorum: quorums[r.IntN(len(quorums))], Entries: 1 + r.IntN(entries), Recoverers: r.IntN(4), Readers: r.IntN(3)}
		if small {
			l.Readers = r.IntN(4) / 3
		}
		if r.IntN(5) == 0 {
			l.Deferred = true
			l.Quorum = quorums[0]
		}
		most = max(most, l.Quorum.Ensemble)
		c.Ledgers = append(c.Ledgers, l)
	}
	c.Bookies = most + r.IntN(4)
	if small {
		c.Bookies = most + r.IntN(2)
	}
	return c
}
