package bktest

import (
	"flag"
	"log/slog"
	"testing"
	"testing/synctest"
)

var rotFlag = flag.Int("sim.rot", 5, "number of seeds of TestRot")

// TestOneFault runs each kind of trouble alone for one seed: every kind can happen, and every run is good.
func TestOneFault(t *testing.T) {
	for i, f := range AllFaults {
		t.Run(string(f), func(t *testing.T) {
			cfg := NewConfig(uint64(7000 + i)) //nolint:gosec // a small number
			cfg.Faults = []Fault{f}
			cfg.Calm /= 3
			var r Result
			synctest.Test(t, func(t *testing.T) { r = Run(t.Context(), cfg, slog.LevelInfo) })
			r.Judge()
			if len(r.Broken) > 0 {
				_, _ = r.History.WriteTo(t.Output())
				t.Fatal(r.Broken)
			}
			if r.Faults == 0 {
				t.Error("nothing happened")
			}
		})
	}
}

// TestRot runs a few seeds in which nothing but bits go bad: damage is never reported as absence.
func TestRot(t *testing.T) {
	for seed := range uint64(*rotFlag) { //nolint:gosec // not negative
		cfg := NewConfig(8000 + seed)
		cfg.Faults = []Fault{FaultRot, FaultPower, FaultRestart}
		cfg.Calm /= 2
		var r Result
		synctest.Test(t, func(t *testing.T) { r = Run(t.Context(), cfg, slog.LevelInfo) })
		r.Judge()
		if len(r.Broken) > 0 {
			_, _ = r.History.WriteTo(t.Output())
			t.Fatal(cfg.String(), r.Broken)
		}
	}
}
