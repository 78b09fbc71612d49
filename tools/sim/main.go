// Command sim runs the protocol's simulator over many seeds and tells which fail, and checks that it finds planted bugs.
//
//	sim -seeds 1000 [-layer cores|cluster] [-first 1] [-jobs 2]
//	sim -mutants [-seeds 2000]
//
// It builds the simulator's tests and starts them in processes of their own, so that a seed which hangs or panics is one
// failed seed and not the end of the run. Exit status: 0 all good, 1 some seed failed or some bug was not found, 2 wrong use.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/binderylog/bindery/internal/bktest/planted"
)

func main() {
	os.Exit(run(os.Stdout)) //nolint:forbidigo // this is main
}

func run(out io.Writer) int {
	var o options
	flag.IntVar(&o.seeds, "seeds", 0, "number of seeds of each layer (default 300, with -mutants 2000)")
	flag.Uint64Var(&o.first, "first", 1, "first seed")
	flag.StringVar(&o.layer, "layer", "", "cores or cluster; both if empty")
	flag.IntVar(&o.jobs, "jobs", 2, "processes at once")
	flag.BoolVar(&o.mutants, "mutants", false, "plant bugs and see that each is found")
	flag.StringVar(&o.only, "only", "", "with -mutants: only the bug of this name")
	flag.Parse()
	if flag.NArg() > 0 || o.layer != "" && o.layer != "cores" && o.layer != "cluster" || o.jobs < 1 || o.seeds < 0 {
		flag.Usage()
		return 2
	}
	if o.seeds == 0 {
		o.seeds = 300
		if o.mutants {
			o.seeds = planted.Seeds
		}
	}
	s, err := build(o, out)
	if err != nil {
		fmt.Fprintln(os.Stderr, "sim:", err)
		return 1
	}
	defer s.clean()
	if o.mutants {
		return s.hunt()
	}
	return s.sweep()
}
