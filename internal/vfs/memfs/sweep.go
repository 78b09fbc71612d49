package memfs

import (
	"fmt"
	"testing"
)

// sweepMax ends a sweep whose run never finishes: a run of so many changes is too large to be swept one by one.
const sweepMax = 100_000

// Sweep runs run on a new file system again and again, with the power failing in the middle of its first change, its
// second, and so on, until a run gets through. After each crash check is given clones of what a power loss leaves:
// everything un-synced lost, everything kept, and a seeded share of it. where names the clone for failure messages.
//
// run must return when calls fail with ErrCrashed, and must have ended all its goroutines by then.
func Sweep(tb testing.TB, fresh func() *FS, run func(f *FS), check func(f *FS, where string)) {
	tb.Helper()
	for n := int64(1); ; n++ {
		if n > sweepMax {
			tb.Fatalf("the run makes more than %d changes", sweepMax)
		}
		f := fresh()
		f.CrashAt(n)
		run(f)
		done := !f.Crashed()
		f.CrashNow()
		for seed, keep := range []float64{0, 1, 0.5, 0.8, 0.2} {
			check(f.CrashClone(uint64(n)<<8|uint64(seed), keep), fmt.Sprintf("power loss in change %d, %.0f %% of the un-synced kept", n, keep*100))
			if tb.Failed() {
				tb.Fatalf("stopped after a power loss in change %d, %.0f %% of the un-synced kept", n, keep*100)
			}
		}
		if done {
			return
		}
	}
}
