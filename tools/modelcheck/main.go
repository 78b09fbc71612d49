// Command modelcheck explores bounded worlds of the replication protocol exhaustively, and larger ones at random. The
// explorer is internal/ledger/explore; docs/modelcheck.md says what is checked and how to read what it prints.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"github.com/binderylog/bindery/internal/ledger/explore"
)

func main() {
	var o options
	flag.StringVar(&o.worlds, "world", "", "comma-separated names of worlds; empty: all that have to complete")
	flag.BoolVar(&o.list, "list", false, "list the worlds")
	flag.BoolVar(&o.large, "large", false, "also the worlds that are too large to complete, up to -large-states states each")
	flag.BoolVar(&o.mutants, "mutants", false, "plant one protocol bug after the other (build with -tags mutants) and print what found them")
	flag.BoolVar(&o.verbose, "v", false, "report every level")
	flag.StringVar(&o.replay, "replay", "", "play a history from this file")
	flag.StringVar(&o.only, "only", "", "with -mutants: only bugs whose name contains this")
	flag.IntVar(&o.walks, "walks", 0, "random walks through each large world, beyond the bounds; with -large after the searches")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the first walk")
	flag.IntVar(&o.workers, "workers", 2, "goroutines")
	flag.Int64Var(&o.states, "states", 40<<20, "states after which a search gives up")
	flag.Int64Var(&o.largeStates, "large-states", 1<<20, "states after which the search of a large world gives up")
	flag.StringVar(&o.profile, "cpuprofile", "", "write a CPU profile to this file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := o.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "modelcheck:", err)
		stop()
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	worlds, replay, profile, only string
	list, large, mutants, verbose bool
	walks, workers                int
	seed                          uint64
	states, largeStates           int64
}

// chosen returns the worlds that were asked for.
func (o *options) chosen() ([]explore.Spec, error) {
	if o.worlds == "" {
		specs := explore.Worlds()
		if o.large {
			specs = append(specs, explore.Large()...)
		}
		return specs, nil
	}
	var specs []explore.Spec
	for _, name := range strings.Split(o.worlds, ",") {
		s, ok := explore.World(name)
		if !ok {
			return nil, fmt.Errorf("there is no world %q; -list names them", name)
		}
		specs = append(specs, s)
	}
	return specs, nil
}
