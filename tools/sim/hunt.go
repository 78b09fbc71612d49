package main

import (
	"fmt"
	"os"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/binderylog/bindery/internal/bktest/planted"
)

// find is the fate of one planted bug in one layer.
type find struct {
	bug   planted.Bug
	layer planted.Layer
	out   outcome
	took  time.Duration
}

// hunt plants every bug and prints a table of which seed found it.
func (s *sim) hunt() int {
	var finds []find
	for _, p := range planted.Bugs() {
		for _, layer := range p.Layers {
			if (s.o.only == "" || s.o.only == p.Name) && (s.o.layer == "" || s.o.layer == string(layer)) {
				finds = append(finds, find{bug: p, layer: layer})
			}
		}
	}
	var mu sync.Mutex
	s.parallel(len(finds), func(i int) {
		f := &finds[i]
		start := time.Now()
		f.out = s.run(job{layer: f.layer, first: s.o.first, seeds: s.o.seeds, mutant: f.bug.Name})
		f.took = time.Since(start)
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(os.Stderr, "%-30s %-8s %s\n", f.bug.Name, f.layer, f.verdict())
	})
	missed := 0
	bugs := map[string]bool{}
	w := tabwriter.NewWriter(s.out, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "BUG\tLAYER\tSEED\tTIME\tFOUND BY")
	for _, f := range finds {
		seed := "-"
		if f.out.bad {
			bugs[f.bug.Name] = true
			seed = fmt.Sprint(f.out.seed)
		} else {
			missed++
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%v\t%.100s\n", f.bug.Name, f.layer, seed, f.took.Round(100*time.Millisecond), f.verdict())
	}
	_ = w.Flush()
	fmt.Fprintf(s.out, "%d planted bugs found, %d of %d hunts failed\n", len(bugs), missed, len(finds))
	if missed > 0 {
		return 1
	}
	return 0
}

func (f *find) verdict() string {
	if !f.out.bad {
		return fmt.Sprintf("NOT FOUND in %d seeds: %s", f.out.good, f.bug.About)
	}
	return f.out.why
}
