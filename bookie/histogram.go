package bookie

import (
	"fmt"
	"io"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
)

// histogramBounds are the upper bounds in seconds of the latency histograms.
var histogramBounds = [...]float64{20e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 100e-3, 500e-3, 2, 10}

// histogram is a Prometheus histogram of durations. Observing takes no lock and allocates nothing.
type histogram struct {
	buckets [len(histogramBounds) + 1]atomic.Uint64
	nanos   atomic.Uint64
}

func (h *histogram) observe(nanos int64) {
	s := float64(nanos) * 1e-9
	i := 0
	for i < len(histogramBounds) && s > histogramBounds[i] {
		i++
	}
	h.buckets[i].Add(1)
	h.nanos.Add(uint64(max(nanos, 0))) //nolint:gosec // not negative
}

func (h *histogram) write(w io.Writer, name string) {
	fmt.Fprintf(w, "# TYPE %s histogram\n", name)
	var n uint64
	for i, b := range histogramBounds {
		n += h.buckets[i].Load()
		fmt.Fprintf(w, "%s_bucket{le=\"%g\"} %d\n", name, b, n)
	}
	n += h.buckets[len(histogramBounds)].Load()
	fmt.Fprintf(w, "%s_bucket{le=\"+Inf\"} %d\n%s_sum %g\n%s_count %d\n", name, n, name, float64(h.nanos.Load())*1e-9, name, n)
}

// summaryWindow is the time in nanoseconds that the quantiles of a summary describe, as BookKeeper's do.
const summaryWindow = 60e9

// summaryBuckets: 8 per power of two from 1 microsecond to 2^26 (67 s).
const (
	summarySub     = 8
	summaryBuckets = 27 * summarySub
)

// summary is an operation statistic as BookKeeper exposes it: quantiles of the last whole window in milliseconds, count
// and sum of all time.
type summary struct {
	counts [summaryBuckets]atomic.Uint64
	n      atomic.Uint64
	nanos  atomic.Uint64
	window atomic.Int64 // the one that counts belongs to

	mu   sync.Mutex // guards what follows, and the turn of a window
	last [summaryBuckets]uint64
}

func (s *summary) observe(nanos int64) {
	s.turn(now())
	s.counts[summaryIndex(nanos)].Add(1)
	s.n.Add(1)
	s.nanos.Add(uint64(max(nanos, 0))) //nolint:gosec // not negative
}

// turn ends the window that is over. The few observations that race with it may go to the new one.
func (s *summary) turn(at int64) {
	w := at / summaryWindow
	if s.window.Load() == w {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.window.Load()
	if old == w {
		return
	}
	for i := range s.counts {
		n := s.counts[i].Swap(0)
		if old != w-1 {
			n = 0 // the window before this one saw nothing
		}
		s.last[i] = n
	}
	s.window.Store(w)
}

func summaryIndex(nanos int64) int {
	us := uint64(max(nanos/1000, 1)) //nolint:gosec // not negative
	p := bits.Len64(us) - 1
	var sub int
	if p >= 3 {
		sub = int(us>>(p-3)) & (summarySub - 1) //nolint:gosec // three bits
	} else {
		sub = int(us<<(3-p)) & (summarySub - 1) //nolint:gosec // three bits
	}
	return min(p*summarySub+sub, summaryBuckets-1)
}

// summaryValue returns the middle of a bucket in milliseconds.
func summaryValue(i int) float64 {
	p, sub := i/summarySub, i%summarySub
	return math.Exp2(float64(p)) * (1 + (float64(sub)+0.5)/summarySub) / 1000
}

// The last one must read 1.0: dashboards match the text.
var summaryQuantiles = [...]struct {
	q    float64
	text string
}{{0.5, "0.5"}, {0.75, "0.75"}, {0.95, "0.95"}, {0.99, "0.99"}, {0.999, "0.999"}, {0.9999, "0.9999"}, {1, "1.0"}}

func (s *summary) write(w io.Writer, name, success string) {
	s.turn(now())
	s.mu.Lock()
	last := s.last
	s.mu.Unlock()
	var total uint64
	for _, n := range last {
		total += n
	}
	for _, q := range summaryQuantiles {
		value := math.NaN()
		if total > 0 {
			rank, seen := uint64(math.Ceil(q.q*float64(total))), uint64(0)
			for i, n := range last {
				if seen += n; seen >= rank {
					value = summaryValue(i)
					break
				}
			}
		}
		fmt.Fprintf(w, "%s{success=\"%s\",quantile=\"%s\"} %g\n", name, success, q.text, value)
	}
	fmt.Fprintf(w, "%s_count{success=\"%s\"} %d\n%s_sum{success=\"%s\"} %g\n", name, success, s.n.Load(), name, success, float64(s.nanos.Load())/1e6)
}

// summaryPair is a summary of successes and one of failures: BookKeeper always exposes both.
type summaryPair struct{ ok, failed summary }

func (p *summaryPair) observe(ok bool, nanos int64) {
	if ok {
		p.ok.observe(nanos)
	} else {
		p.failed.observe(nanos)
	}
}

func (p *summaryPair) write(w io.Writer, name string) {
	fmt.Fprintf(w, "# TYPE %s summary\n", name)
	p.ok.write(w, name, "true")
	p.failed.write(w, name, "false")
}
