// Command bench measures the journal, one bookie and a small cluster on this machine beside what its disk can do, and
// prints one table. `make bench` builds the programs and runs it.
//
// The servers of a stage are started once and driven for a while before anything is measured, so that journal segments are
// recycled ones, as they are in a bookie that has run for a minute. What a start costs has figures of its own.
//
// A load with a given rate is measured for longer than a closed loop: its tail is made by flushes, which come seconds apart.
//
// Every figure is measured in each of a number of rounds, all figures of a round one after another, so that a machine
// that changes during the run changes all of them; the table gives the median and the range over the rounds, and ratios
// are formed within a round before the median is taken. A figure whose range is wider than its lead says so by itself.
//
// Ctrl-C ends everything that was started, by process id, and removes what was written; nothing stays behind if the program
// dies otherwise but its directory, .bench-*.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

func main() {
	os.Exit(run())
}

// flags reads the command line.
func flags() (*benchmark, bool, error) {
	b := &benchmark{args: os.Args[1:]}
	flag.StringVar(&b.bin, "bin", "bin", "directory of the built programs")
	flag.StringVar(&b.dir, "dir", "", "directory on the disk to measure (default: a temporary one in the current directory)")
	flag.StringVar(&b.out, "out", "bench/latest.md", "file for the table")
	flag.IntVar(&b.rounds, "rounds", 3, "rounds")
	flag.DurationVar(&b.duration, "duration", 5*time.Second, "measured time of a closed loop")
	flag.DurationVar(&b.open, "open", 30*time.Second, "measured time of an open loop: several flushes of each write cache should fall into it")
	flag.DurationVar(&b.warmup, "warmup", 2*time.Second, "time before it that is not measured")
	flag.DurationVar(&b.within, "within", 0, "leave out what would end later than this after the start (default: nothing)")
	flag.StringVar(&b.memory, "memory", "256MiB", "storage.memory of the servers")
	flag.BoolVar(&b.packages, "packages", false, "run the packages' own Go benchmarks too")
	only := flag.String("only", "", "measure only what has a name that this regular expression matches; see -plan")
	plan := flag.Bool("plan", false, "print what would be measured and how long it would take, and measure nothing")
	flag.BoolVar(&b.apache, "apache", true, "measure Apache BookKeeper beside it, if Java and Maven are there")
	flag.Parse()
	var err error
	b.only, err = regexp.Compile(*only)
	switch {
	case err != nil:
		return nil, false, fmt.Errorf("-only: %w", err)
	case flag.NArg() > 0:
		return nil, false, fmt.Errorf("there is no argument %q, flags only", flag.Arg(0))
	case b.rounds < 1 || b.rounds > 100 || b.duration < time.Second || b.open < time.Second || b.warmup < 0 || b.within < 0:
		return nil, false, errors.New("-rounds is 1 to 100, -duration and -open at least 1s, -warmup and -within not negative")
	case len(b.stages()) == 0:
		return nil, false, fmt.Errorf("nothing is called %q; -plan prints the names", *only)
	}
	return b, *plan, nil
}

// exitInterrupted is the exit code after Ctrl-C, as shells have it.
const exitInterrupted = 130

func run() int {
	b, plan, err := flags()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 2
	}
	if plan {
		b.plan(os.Stdout)
		return 0
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, stop)() // whoever asks twice does not wait for the servers
	if err := b.prepare(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	defer func() { _ = os.RemoveAll(b.dir) }()
	switch err := b.run(ctx); {
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "bench: interrupted; what it has started has ended, its data is removed")
		return exitInterrupted
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return 0
}

// prepare makes the directory of a run.
func (b *benchmark) prepare() (err error) {
	if b.bin, err = filepath.Abs(b.bin); err != nil {
		return err
	}
	parent := b.dir
	if parent == "" {
		parent = "."
	}
	if parent, err = filepath.Abs(parent); err != nil {
		return err
	}
	b.dir, err = os.MkdirTemp(parent, ".bench-")
	return err
}
