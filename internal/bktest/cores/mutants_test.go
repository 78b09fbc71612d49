//go:build mutants

package cores

import (
	"flag"
	"testing"
	"time"

	"github.com/binderylog/bindery/internal/ledger"
)

var onlyFlag = flag.Uint("sim.only", 0, "")

func TestPlanted(t *testing.T) {
	defer ledger.Plant(ledger.MutantNone)
	for m := ledger.MutantNone + 1; m < ledger.MutantEnd; m++ {
		if *onlyFlag != 0 && uint(m) != *onlyFlag {
			continue
		}
		ledger.Plant(m)
		start := time.Now()
		found := false
		for seed := uint64(1); seed <= uint64(*seedsFlag); seed++ {
			if r := Run(NewConfig(seed)); len(r.Broken) > 0 {
				t.Logf("%3d found by seed %d in %v: %s", m, seed, time.Since(start).Round(time.Millisecond), r.Broken[0])
				found = true
				break
			}
		}
		if !found {
			t.Logf("%3d NOT FOUND in %v", m, time.Since(start))
		}
	}
}
