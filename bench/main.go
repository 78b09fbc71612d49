// Command bench measures the journal, one bookie and a small cluster on this machine beside what its disk can do, and
// prints one table. `make bench` builds the programs and runs it.
//
// The servers of a round are started once and driven for a while before anything is measured, so that journal segments are
// recycled ones, as they are in a bookie that has run for a minute. What a start costs has figures of its own.
//
// Every figure is measured in each of a number of rounds, all figures of a round one after another, so that a machine
// that changes during the run changes all of them; the table gives the median and the range over the rounds, and ratios
// are formed within a round before the median is taken. A figure whose range is wider than its lead says so by itself.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"
)

func main() {
	os.Exit(run())
}

func run() int {
	b := &benchmark{}
	flag.StringVar(&b.bin, "bin", "bin", "directory of the built programs")
	flag.StringVar(&b.dir, "dir", "", "directory on the disk to measure (default: a temporary one in the current directory)")
	flag.StringVar(&b.out, "out", "bench/latest.md", "file for the table")
	flag.IntVar(&b.rounds, "rounds", 3, "rounds")
	flag.DurationVar(&b.duration, "duration", 5*time.Second, "measured time of one figure")
	flag.StringVar(&b.memory, "memory", "256MiB", "storage.memory of the servers")
	flag.BoolVar(&b.packages, "packages", true, "run the packages' own Go benchmarks too")
	flag.StringVar(&b.only, "only", "", "measure only loads whose name contains this")
	flag.BoolVar(&b.apache, "apache", true, "measure Apache BookKeeper beside it, if Java and Maven are there")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if b.rounds < 1 || b.rounds > 100 || b.duration < time.Second {
		fmt.Fprintln(os.Stderr, "bench: -rounds is 1 to 100, -duration at least 1s")
		return 2
	}
	parent := b.dir
	if parent == "" {
		parent = "."
	}
	dir, err := os.MkdirTemp(parent, ".bench-")
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	b.dir = dir
	if b.bin, err = filepath.Abs(b.bin); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	if err := b.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return 0
}
