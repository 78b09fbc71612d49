package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/binderylog/bindery/internal/ledger/explore"
)

var errBroken = errors.New("an invariant is violated; the history is above")

func (o *options) run(ctx context.Context) error {
	if o.profile != "" {
		f, err := os.Create(o.profile)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	switch {
	case o.list:
		for _, s := range append(explore.Worlds(), explore.Large()...) {
			fmt.Printf("%-22s %s\n", s.Name, s.About)
		}
		return nil
	case o.replay != "":
		return o.play()
	case o.mutants:
		return o.hunt(ctx)
	case o.walks > 0 && !o.large:
		return o.walk(ctx)
	}
	err := o.search(ctx)
	if err == nil && o.walks > 0 {
		err = o.walk(ctx)
	}
	return err
}

func (o *options) searchOptions() explore.Options {
	e := explore.Options{Workers: o.workers, StatesMax: o.states}
	if o.verbose {
		e.Progress = func(r explore.Report) { fmt.Fprintln(os.Stderr, r.String()) }
	}
	return e
}

// search explores the chosen worlds and prints a line for each.
func (o *options) search(ctx context.Context) error {
	specs, err := o.chosen()
	if err != nil {
		return err
	}
	start, states := time.Now(), int64(0)
	var failed error
	for i := range specs {
		e := o.searchOptions()
		if explore.IsLarge(specs[i].Name) {
			e.StatesMax = o.largeStates
		}
		r, err := explore.Search(ctx, &specs[i], e)
		if err != nil {
			return err
		}
		fmt.Println(r.String())
		states += r.States
		if r.Broken != nil {
			printHistory(&specs[i], r.Broken)
			failed = errBroken
		}
	}
	fmt.Printf("%d worlds, %d states, %.0fs\n", len(specs), states, time.Since(start).Seconds())
	return failed
}

// printHistory prints the script of a violation with what a replay of it on the cores says.
func printHistory(s *explore.Spec, b *explore.Broken) {
	script := explore.Script(s, b.History)
	out, broken, err := explore.Replay(script)
	if err != nil || broken == "" {
		fmt.Printf("%s# %s (a replay says: %v)\n", script, b.Invariant, err)
		return
	}
	fmt.Print(out)
}

func (o *options) play() error {
	text, err := os.ReadFile(o.replay)
	if err != nil {
		return err
	}
	out, broken, err := explore.Replay(string(text))
	fmt.Print(out)
	if err != nil {
		return err
	}
	if broken != "" {
		return fmt.Errorf("%w: %s", errBroken, broken)
	}
	return nil
}

// walk makes random walks through large worlds.
func (o *options) walk(ctx context.Context) error {
	specs := explore.Large()
	if o.worlds != "" {
		var err error
		if specs, err = o.chosen(); err != nil {
			return err
		}
	}
	var failed error
	for i := range specs {
		r, seed, err := explore.Walk(ctx, &specs[i], o.seed, o.walks)
		if err != nil {
			return err
		}
		fmt.Println(r.String())
		if r.Broken != nil {
			fmt.Printf("# seed %d\n", seed)
			printHistory(&specs[i], r.Broken)
			failed = errBroken
		}
	}
	return failed
}

// hunt plants one bug after the other.
func (o *options) hunt(ctx context.Context) error {
	if !explore.CanPlant {
		return errors.New("this build has no planted bugs: go run -tags mutants ./tools/modelcheck -mutants")
	}
	survived := 0
	fmt.Printf("%-52s %-18s %10s %6s %7s  %s\n", "planted bug", "world", "states", "moves", "seconds", "found by")
	for _, p := range explore.Mutants() {
		if !strings.Contains(p.Name, o.only) {
			continue
		}
		spec, ok := explore.World(p.World)
		if !ok {
			return fmt.Errorf("there is no world %q", p.World)
		}
		explore.Plant(p.Mutant)
		r, err := explore.Search(ctx, &spec, o.searchOptions())
		if err != nil {
			return err
		}
		by := "SURVIVED"
		moves := 0
		if r.Broken != nil {
			by, moves = r.Broken.Invariant, len(r.Broken.History)
		} else {
			survived++
		}
		fmt.Printf("%-52s %-18s %10d %6d %7.1f  %s\n", p.Name, p.World, r.States, moves, r.Elapsed.Seconds(), by)
		if o.verbose && r.Broken != nil {
			printHistory(&spec, r.Broken)
		}
	}
	if survived > 0 {
		return fmt.Errorf("%d planted bugs survived", survived)
	}
	return nil
}
