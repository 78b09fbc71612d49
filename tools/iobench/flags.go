package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/binderylog/bindery/journal"
	"github.com/binderylog/bindery/tools/iobench/chapter"
	"github.com/binderylog/bindery/tools/iobench/session"
	"github.com/spf13/cobra"
)

// measureFlags are those of every command that measures.
type measureFlags struct {
	duration        time.Duration
	fileMiB         int64
	maxWrite        string
	rounds          int
	seed            uint64
	noPrefill       bool
	method          string
	goal            time.Duration
	rate            string
	entry           string
	output          string
	outFile         string
	allowUnsuitable bool
	allowLive       bool
	labels          []string
	quiet           bool
}

// defaults of a command.
type defaults struct {
	duration time.Duration
	fileMiB  int64
	maxWrite string
	rounds   int
}

func (o *measureFlags) add(c *cobra.Command, d defaults) {
	f := c.Flags()
	f.DurationVar(&o.duration, "duration", d.duration, "measured time per directory; preparing test files comes on top")
	f.Int64Var(&o.fileMiB, "file-mib", d.fileMiB, "size of a test file")
	f.StringVar(&o.maxWrite, "max-write", d.maxWrite, "write at most so much")
	f.IntVar(&o.rounds, "rounds", d.rounds, "interleaved rounds of what is compared")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the data written")
	f.BoolVar(&o.noPrefill, "no-prefill", false, "do not write test files before they are measured")
	f.StringVar(&o.method, "method", "", "journal.io for chapters that use one method (default: the best one found, or the usual one)")
	f.DurationVar(&o.goal, "goal-p99", 5*time.Millisecond, "what an add may take")
	f.StringVar(&o.rate, "rate", "", "bytes a second that are to be taken in, 300MB")
	f.StringVar(&o.entry, "entry", "1KiB", "size of an entry")
	f.StringVar(&o.output, "output", "table", "table, json, or prometheus (for the textfile collector of node_exporter)")
	f.StringVar(&o.outFile, "out", "", "write the JSON result to this file too")
	f.BoolVar(&o.allowUnsuitable, "allow-unsuitable", false, "run on tmpfs, overlay, network and loop file systems; the result is stamped NOT REPRESENTATIVE")
	f.BoolVar(&o.allowLive, "allow-live", false, "run although a bookie or another iobench uses the disk; the result says so (iobench live is gentler)")
	f.StringArrayVar(&o.labels, "label", nil, "k=v to carry in the result (repeatable)")
	f.BoolVar(&o.quiet, "quiet", false, "no progress on the terminal")
}

// Bounds of the flags.
const (
	durationMax = 31 * 24 * time.Hour
	fileMiBMin  = 16
	fileMiBMax  = 1 << 20
	roundsMax   = 100
	entryMax    = 5 << 20
)

// plan checks the flags and turns them into a plan without directories and steps.
func (o *measureFlags) plan(command string) (p session.Plan, err error) {
	p = session.Plan{
		Command: command, Version: version, Budget: o.duration, FileBytes: o.fileMiB << 20, Rounds: o.rounds, Seed: o.seed, Prefill: !o.noPrefill,
		Sizes: chapter.GroupSizes, Method: journal.IOMethod(o.method), Goal: o.goal, AllowUnsuitable: o.allowUnsuitable, AllowLive: o.allowLive,
	}
	switch {
	case !slices.Contains([]string{"table", "json", "prometheus"}, o.output):
		return p, fmt.Errorf("--output %q is none of table, json, prometheus", o.output)
	case o.duration < time.Second || o.duration > durationMax:
		return p, fmt.Errorf("--duration %v is outside 1s to %v", o.duration, durationMax)
	case o.fileMiB < fileMiBMin || o.fileMiB > fileMiBMax:
		return p, fmt.Errorf("--file-mib %d is outside %d to %d", o.fileMiB, fileMiBMin, fileMiBMax)
	case o.rounds < 1 || o.rounds > roundsMax:
		return p, fmt.Errorf("--rounds %d is outside 1 to %d", o.rounds, roundsMax)
	case o.goal <= 0:
		return p, fmt.Errorf("--goal-p99 %v is not positive", o.goal)
	case o.method != "" && !slices.Contains(chapter.AllMethods, p.Method):
		return p, fmt.Errorf("--method %q is none of dsync, fdatasync, rwf_dsync, buffered", o.method)
	}
	if p.MaxWrite, err = parseSize(o.maxWrite); err != nil || p.MaxWrite < fileMiBMin<<20 {
		return p, fmt.Errorf("--max-write %q is no size of 16MiB or more, such as 10GiB", o.maxWrite)
	}
	if o.rate != "" {
		n, err := parseSize(strings.TrimSuffix(o.rate, "/s"))
		if err != nil || n == 0 {
			return p, fmt.Errorf("--rate %q is no rate such as 300MB", o.rate)
		}
		p.Rate = float64(n)
	}
	entry, err := parseSize(o.entry)
	if err != nil || entry < 1 || entry > entryMax {
		return p, fmt.Errorf("--entry %q is no size from 1 to 5MiB", o.entry)
	}
	p.EntryBytes = int(entry)
	for _, l := range o.labels {
		k, v, ok := strings.Cut(l, "=")
		if !ok || k == "" {
			return p, fmt.Errorf("--label %q is not of the form k=v", l)
		}
		if p.Labels == nil {
			p.Labels = map[string]string{}
		}
		p.Labels[k] = v
	}
	return p, nil
}

// units of sizes, the longer names first.
var units = []struct {
	name string
	n    int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
	{"K", 1 << 10}, {"M", 1 << 20}, {"G", 1 << 30}, {"T", 1 << 40}, {"B", 1}, {"", 1},
}

// parseSize reads 10GiB, 300MB, 4096.
func parseSize(text string) (int64, error) {
	for _, u := range units {
		digits, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
		if err != nil || !(v >= 0 && v*float64(u.n) <= 1<<60) { // NaN is none of both
			return 0, fmt.Errorf("%q is no size", text)
		}
		return int64(v * float64(u.n)), nil
	}
	return 0, fmt.Errorf("%q is no size", text)
}
