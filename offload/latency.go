package offload

import (
	"slices"
	"sync"
	"time"
)

const (
	latencySamples = 64
	hedgeMin       = 20 * time.Millisecond
)

// latencies remembers how long the last range reads of each target took, and what hedging may still spend.
type latencies struct {
	mu      sync.Mutex
	targets map[string]*latency
	reads   int64 // since the start
	hedges  int64
	budget  float64 // share of the reads that may be hedged
}

type latency struct {
	samples [latencySamples]time.Duration
	n       int
	p95     time.Duration
}

func newLatencies(budget float64) *latencies {
	return &latencies{targets: map[string]*latency{}, budget: budget}
}

// took notes one read.
func (l *latencies) took(target string, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	x := l.targets[target]
	if x == nil {
		x = &latency{}
		l.targets[target] = x
	}
	x.samples[x.n%latencySamples] = d
	if x.n++; x.n%16 == 0 || x.n < 16 {
		s := slices.Clone(x.samples[:min(x.n, latencySamples)])
		slices.Sort(s)
		x.p95 = s[len(s)*95/100]
	}
}

// p95 of a target, 0 if it is not known.
func (l *latencies) p95(target string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if x := l.targets[target]; x != nil {
		return x.p95
	}
	return 0
}

// read counts a read of a block and returns after how long it may be hedged.
func (l *latencies) read(target string) time.Duration {
	d := l.p95(target)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads++
	return max(hedgeMin, d)
}

// hedge asks for one more request than a healthy read needs.
func (l *latencies) hedge() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if float64(l.hedges+1) > l.budget*float64(l.reads)+1 {
		return false
	}
	l.hedges++
	return true
}
