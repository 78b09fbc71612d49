package offload

import (
	"slices"
	"sync"
	"time"
)

const (
	latencySamples = 64
	hedgeMin       = 20 * time.Millisecond
	hedgeTypical   = 4       // a read is late after so many times what reads of the other targets take
	lateMax        = 3       // a target of which so many reads in a row were late is read around
	lateBytesMax   = 1 << 20 // larger reads may take their time
	probeEvery     = 64      // reads around a target before one looks whether it is well again
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
	late    int // reads in a row that took too long
	around  int // reads around it since
}

func newLatencies(budget float64) *latencies {
	return &latencies{targets: map[string]*latency{}, budget: budget}
}

func (l *latencies) ofLocked(target string) *latency {
	x := l.targets[target]
	if x == nil {
		x = &latency{}
		l.targets[target] = x
	}
	return x
}

// took notes one read of n bytes.
func (l *latencies) took(target string, d time.Duration, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	x := l.ofLocked(target)
	switch typical := l.typicalLocked(); {
	case typical > 0 && d > max(hedgeMin, hedgeTypical*typical):
		if n <= lateBytesMax {
			x.late++
		}
	default:
		x.late = 0
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

// lostTo notes a read of a target that was late and that the other shards won.
func (l *latencies) lostTo(target string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ofLocked(target).late++
}

// slow reports whether the last reads of a target were late.
func (l *latencies) slow(target string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	x := l.targets[target]
	return x != nil && x.late >= lateMax
}

// avoid says whether to read around a target: its last reads were late, and this is not the one in many that looks whether it is well again.
func (l *latencies) avoid(target string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	x := l.targets[target]
	if x == nil || x.late < lateMax {
		return false
	}
	x.around++
	return x.around%probeEvery != 0
}

// typicalLocked is the median of what is known of all targets, 0 if that is nothing.
func (l *latencies) typicalLocked() time.Duration {
	var all []time.Duration
	for _, x := range l.targets {
		if x.n > 0 {
			all = append(all, x.p95)
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[(len(all)-1)/2]
}

// read counts a read of a block and returns after how long it may be hedged: when most reads of this target are done, and not many times
// later than those of the others.
func (l *latencies) read(target string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads++
	x := l.targets[target]
	if x == nil || x.n == 0 {
		return hedgeMin
	}
	return max(hedgeMin, min(x.p95, hedgeTypical*l.typicalLocked()))
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
