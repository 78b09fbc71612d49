//go:build mutants

package explore

import (
	"context"
	"testing"
	"time"

	"github.com/binderylog/bindery/internal/ledger"
)

// TestPlantedBugsFall finds every planted bug, within a minute on a machine that is not busy, and plays its history on the cores.
func TestPlantedBugsFall(t *testing.T) {
	for _, p := range Mutants() {
		t.Run(p.Name, func(t *testing.T) {
			defer Plant(ledger.MutantNone)
			Plant(p.Mutant)
			spec := world(t, p.World)
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
			defer cancel()
			r, err := Search(ctx, &spec, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if r.Broken == nil {
				t.Fatalf("not found: %s", r.String())
			}
			script := Script(&spec, r.Broken.History)
			if out, broken, err := Replay(script); err != nil || broken == "" {
				t.Errorf("the history does not replay: %v, %q\n%s\n%s", err, broken, script, out)
			}
		})
	}
}
