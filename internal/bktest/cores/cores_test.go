package cores

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/binderylog/bindery/internal/bktest/planted"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	seedFlag   = flag.Uint64("sim.seed", 1, "first seed")
	seedsFlag  = flag.Int("sim.seeds", 300, "number of seeds")
	debugFlag  = flag.Bool("sim.debug", false, "print the histories of good runs, too")
	mutantFlag = flag.String("sim.mutant", "", "name of the protocol bug to plant; needs -tags mutants")
	plainFlag  = flag.Bool("sim.lines", false, "print a line before and after each seed, for the program that started this one")
)

// TestSeeds runs seeds, one after the other.
func TestSeeds(t *testing.T) {
	if err := planted.Plant(*mutantFlag); err != nil {
		t.Fatal(err)
	}
	acked, closed, steps := 0, 0, 0
	for i := range *seedsFlag {
		seed := *seedFlag + uint64(i) //nolint:gosec // not negative
		if *plainFlag {
			fmt.Printf("sim: seed %d begins\n", seed)
		}
		r := Run(NewConfig(seed))
		acked, closed, steps = acked+r.Acked, closed+r.Closed, steps+r.Steps
		if len(r.Broken) > 0 || *debugFlag {
			_, _ = r.WriteTo(os.Stdout)
		}
		if len(r.Broken) > 0 {
			fmt.Printf("sim: seed %d failed: %s\n", seed, r.Broken[0])
			t.Fatalf("seed %d: %v\nagain: make sim-seed LAYER=cores SEED=%d", seed, r.Broken, seed)
		}
		if *plainFlag {
			fmt.Printf("sim: seed %d is good: %d acknowledged\n", seed, r.Acked)
		}
	}
	t.Logf("%d seeds, %d events, %d entries acknowledged, %d ledgers closed", *seedsFlag, steps, acked, closed)
	if *seedsFlag >= 100 && (acked < *seedsFlag || closed < *seedsFlag) {
		t.Error("the runs do too little to mean anything")
	}
}

// TestReplay: a seed means the same run, event for event.
func TestReplay(t *testing.T) {
	for seed := range uint64(50) {
		a, b := Run(NewConfig(seed)), Run(NewConfig(seed))
		require.Equal(t, a.Digest, b.Digest, "seed %d", seed)
		require.Equal(t, a.Log, b.Log, "seed %d", seed)
	}
}
