package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"
)

// stage is a part of a round for which servers are started once; with 0 bookies its steps start what they need themselves.
type stage struct {
	name    string
	bookies int
	peers   []peer
	steps   []step
}

// step is what a stage measures on one peer after the other.
type step struct {
	name  string
	takes time.Duration // about, on each peer of an idle machine
	run   func(ctx context.Context, p peer) error
}

// About how long parts take on an idle machine, beside what is measured.
const (
	startTakes   = 10 * time.Second // a peer's servers, with their stop, on average
	commandTakes = 2 * time.Second  // a load's start, and the end of what is in flight
	copyTakes    = 12 * time.Second // writing or reading a cold ledger, on average
	collectTakes = 75 * time.Second // half a minute to over a minute until collection begins
	perfTakes    = 35 * time.Second // until Apache's generator has told its third interval
	primeTimes   = 2                // how many closed loops' time a new server is driven for
)

// stages of a round, without the steps that -only leaves out.
func (b *benchmark) stages() []stage {
	all := b.peers()
	list := []stage{
		{name: "journal", peers: []peer{nil}},
		{name: "one", bookies: 1, peers: all},
		{name: "three", bookies: 3, peers: all},
		{name: "alone", peers: all},
		{name: "tier", peers: all[:1]},
	}
	for _, l := range loads() {
		s := step{name: l.name, takes: b.warmup + b.measured(l) + commandTakes, run: func(ctx context.Context, p peer) error { return b.load(ctx, p, l) }}
		switch l.server {
		case "":
			s.takes += 3 * time.Second // recycled segments first
			list[0].steps = append(list[0].steps, s)
		case "one":
			list[1].steps = append(list[1].steps, s)
		case "three":
			list[2].steps = append(list[2].steps, s)
		}
	}
	list[3].steps = []step{
		{"start: after kill -9, and idle", 3*startTakes + 2*primeTimes*b.duration, b.restart},
		{"catch-up: a cold ledger, and writers beside readers", 3*startTakes + 2*copyTakes + 2*(b.warmup+b.open), b.catchUp},
		{"collection: space given back, and writers beside it", startTakes + primeTimes*b.duration + collectTakes, b.collect},
	}
	list[4].steps = []step{{"offload: readers of the tail beside it", startTakes + 3*copyTakes + 2*(b.warmup+b.open), b.tier}}
	if b.apache {
		takes := startTakes
		for range perfLoads() {
			takes += perfTakes
		}
		list[3].steps = append(list[3].steps, step{perfStep, takes, b.perf})
	}
	var kept []stage
	for _, st := range list {
		steps := st.steps[:0]
		for _, s := range st.steps {
			if b.only.MatchString(s.name) {
				steps = append(steps, s)
			}
		}
		if st.steps = steps; len(steps) > 0 {
			kept = append(kept, st)
		}
	}
	return kept
}

// begins is about how long a stage takes to begin.
func (b *benchmark) begins(st stage) time.Duration {
	if st.bookies == 0 {
		return 0
	}
	return time.Duration(len(st.peers)) * (startTakes + primeTimes*b.duration)
}

// round is about how long a round takes.
func (b *benchmark) round() time.Duration {
	sum := b.diskTakes()
	for _, st := range b.stages() {
		sum += b.begins(st)
		for _, s := range st.steps {
			sum += time.Duration(len(st.peers)) * s.takes
		}
	}
	return sum
}

func (b *benchmark) diskTakes() time.Duration { return primeTimes*b.duration + commandTakes }

// plan prints what would be measured and about how long it would take.
func (b *benchmark) plan(w io.Writer) {
	for _, st := range b.stages() {
		if t := b.begins(st); t > 0 {
			fmt.Fprintf(w, "%8s  start and drive %s for a while\n", t.Round(time.Second), map[int]string{1: "one bookie", 3: "three bookies"}[st.bookies])
		}
		for _, s := range st.steps {
			fmt.Fprintf(w, "%8s  %s\n", (time.Duration(len(st.peers)) * s.takes).Round(time.Second), s.name)
		}
	}
	fmt.Fprintf(w, "%8s  the disk by itself\nabout %s a round, %s in all, on an idle machine\n", b.diskTakes().Round(time.Second), b.round().Round(time.Second), (time.Duration(b.rounds) * b.round()).Round(time.Second))
}

// progress says how far a run is. What is left is judged by how long what is done has taken.
type progress struct {
	begun       time.Time
	total, done time.Duration // by the plan
}

// add notes that a part that was to take d is done.
func (p *progress) add(d time.Duration) { p.done += d }

// left is about how long the rest takes.
func (p *progress) left(now time.Time) time.Duration {
	rest := p.total - p.done
	if p.done > 0 {
		rest = time.Duration(float64(rest) * float64(now.Sub(p.begun)) / float64(p.done))
	}
	return max(rest, 0)
}

// say prints a line of progress.
func (b *benchmark) say(format string, args ...any) {
	now := time.Now()
	fmt.Fprintf(os.Stderr, "%6s, about %s left  %s\n", now.Sub(b.progress.begun).Round(time.Second), b.progress.left(now).Round(10*time.Second), fmt.Sprintf(format, args...))
}

// late reports whether a part that takes about d would end after the time that -within allows, and notes what is left out.
func (b *benchmark) late(name string, d time.Duration) bool {
	if b.within == 0 || time.Since(b.progress.begun)+d <= b.within {
		return false
	}
	b.leftOut = append(b.leftOut, name)
	b.progress.add(d)
	return true
}
