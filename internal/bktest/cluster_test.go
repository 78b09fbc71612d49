package bktest

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/binderylog/bindery/internal/bktest/planted"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	seedFlag   = flag.Uint64("sim.seed", 1, "first seed")
	seedsFlag  = flag.Int("sim.seeds", 0, "number of seeds; 0: as many as fit in -sim.time")
	timeFlag   = flag.Duration("sim.time", time.Minute, "how long to go on; with -short at most 5 s")
	debugFlag  = flag.Bool("sim.debug", false, "keep debug lines in histories, and print the history of good runs, too")
	mutantFlag = flag.String("sim.mutant", "", "name of the protocol bug to plant; needs -tags mutants")
	plainFlag  = flag.Bool("sim.lines", false, "print a line before and after each seed, for the program that started this one")
)

// TestCluster runs whole clusters, one seed after the other.
func TestCluster(t *testing.T) {
	if err := planted.Plant(*mutantFlag); err != nil {
		t.Fatal(err)
	}
	level := slog.LevelInfo
	if *debugFlag {
		level = slog.LevelDebug
	}
	limit := *timeFlag
	if testing.Short() {
		limit = min(limit, 5*time.Second)
	}
	start, acked, closed, faults := time.Now(), int64(0), 0, 0
	n := 0
	for ; *seedsFlag > 0 && n < *seedsFlag || *seedsFlag == 0 && time.Since(start) < limit; n++ {
		seed := *seedFlag + uint64(n) //nolint:gosec // not negative
		if *plainFlag {
			fmt.Printf("sim: seed %d begins\n", seed)
		}
		var r Result
		synctest.Test(t, func(t *testing.T) { r = Run(t.Context(), NewConfig(seed), level) })
		r.Judge()
		if len(r.Broken) > 0 || *debugFlag {
			_, _ = r.History.WriteTo(os.Stdout)
		}
		acked, closed, faults = acked+r.Acked, closed+r.Closed, faults+r.Faults
		if len(r.Broken) > 0 {
			fmt.Printf("sim: seed %d failed: %s\n", seed, r.Broken[0])
			t.Fatalf("%s:\n%v\nagain: make sim-seed LAYER=cluster SEED=%d", r.Config.String(), r.Broken, seed)
		}
		if *plainFlag {
			fmt.Printf("sim: seed %d is good: %d acknowledged\n", seed, r.Acked)
		}
	}
	t.Logf("%d seeds in %v: %d entries acknowledged, %d ledgers closed, %d troubles", n, time.Since(start).Round(time.Second), acked, closed, faults)
	if n > 20 && (acked < int64(n) || closed < n || faults < n) {
		t.Error("the runs do too little to mean anything")
	}
}
