package bktest

import (
	"flag"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
)

var (
	seedFlag  = flag.Uint64("sim.seed", 1, "first seed")
	seedsFlag = flag.Int("sim.seeds", 3, "number of seeds")
	debugFlag = flag.Bool("sim.debug", false, "keep debug lines in histories, and print the history of good runs, too")
)

func TestCluster(t *testing.T) {
	for i := range *seedsFlag {
		seed := *seedFlag + uint64(i)
		level := slog.LevelInfo
		if *debugFlag {
			level = slog.LevelDebug
		}
		var r Result
		synctest.Test(t, func(t *testing.T) { r = Run(NewConfig(seed), level) })
		r.Judge()
		if len(r.Broken) > 0 || *debugFlag {
			_, _ = r.History.WriteTo(os.Stdout)
		}
		t.Logf("%s: %d acked, %d closed, %d faults, %v: %v", r.Config.String(), r.Acked, r.Closed, r.Faults, r.Took, r.Broken)
		if len(r.Broken) > 0 {
			t.Fail()
		}
	}
}
