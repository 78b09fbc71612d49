package cores

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	seedFlag  = flag.Uint64("sim.seed", 1, "first seed")
	seedsFlag = flag.Int("sim.seeds", 300, "number of seeds")
)

func TestSeeds(t *testing.T) {
	acked, closed, steps := 0, 0, 0
	for i := range *seedsFlag {
		r := Run(NewConfig(*seedFlag + uint64(i)))
		acked, closed, steps = acked+r.Acked, closed+r.Closed, steps+r.Steps
		if len(r.Broken) > 0 {
			_, _ = r.WriteTo(os.Stdout)
			t.Fatalf("seed %d: %v", r.Config.Seed, r.Broken)
		}
	}
	t.Logf("%d seeds, %d events, %d entries acknowledged, %d ledgers closed", *seedsFlag, steps, acked, closed)
}
