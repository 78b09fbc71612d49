package journal

import (
	"fmt"
	"io"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// latencies is a histogram of durations with eight steps per power of two, good for quantiles within a tenth. Recording
// is a few atomic additions. It counts since the start; the quantiles of a summary are those of its last window.
type latencies struct {
	buckets [latencyBuckets]atomic.Uint64
	count   atomic.Uint64
	sum     atomic.Uint64 // nanoseconds

	mu     sync.Mutex    // guards what follows
	turned int64         // when the window now running began; 0 before the first page
	begun  latencyCounts // buckets at that time
	window latencyCounts // of the window before it
}

const latencyBuckets = 8 * 44

// bucketOf maps nanoseconds to a bucket: exact below 8, then by the three bits behind the leading one.
func bucketOf(nanos int64) int {
	if nanos < 8 {
		return int(max(nanos, 0))
	}
	p := bits.Len64(uint64(nanos)) - 1
	return min((p-2)*8+int(nanos>>(p-3)&7), latencyBuckets-1)
}

// upperOf is the highest duration of a bucket.
func upperOf(b int) int64 {
	if b < 8 {
		return int64(b)
	}
	p := b/8 + 2
	return int64(8+b%8+1)<<(p-3) - 1
}

// add records n times the same duration.
func (l *latencies) add(nanos int64, n uint64) {
	l.buckets[bucketOf(nanos)].Add(n)
	l.count.Add(n)
	l.sum.Add(uint64(max(nanos, 0)) * n)
}

// quantile returns the duration that a share q of all values do not exceed, 0 if there are none.
func (l *latencies) quantile(q float64) int64 {
	c := l.counts()
	nanos, _ := c.quantile(q)
	return nanos
}

// counts returns the buckets since the start.
func (l *latencies) counts() (c latencyCounts) {
	for i := range l.buckets {
		c[i] = l.buckets[i].Load()
	}
	return c
}

// summaryWindow is the least time that the quantiles of a summary describe.
const summaryWindow = int64(time.Minute)

// quantileTexts are the labels as dashboards match them, to the letter.
var quantileTexts = [...]struct {
	q    float64
	text string
}{{0.5, "0.5"}, {0.75, "0.75"}, {0.95, "0.95"}, {0.99, "0.99"}, {0.999, "0.999"}, {0.9999, "0.9999"}, {1, "1.0"}}

// summary writes the figures as BookKeeper exposes an operation: milliseconds, with the quantiles of the time from the
// last but one page to the last one that was a minute after it, and one set for successes and one for failures. A journal
// that fails takes nothing more, so failures are never counted.
func (l *latencies) summary(w io.Writer, name, journal string, now int64) {
	if journal == firstLabel {
		fmt.Fprintf(w, "# TYPE %s summary\n", name)
	}
	window := l.turn(now)
	for _, success := range []bool{true, false} {
		label := fmt.Sprintf("journalIndex=%q,success=\"%v\"", journal, success)
		var count, sum uint64
		if success {
			count, sum = l.count.Load(), l.sum.Load()
		}
		for _, q := range quantileTexts {
			value := math.NaN()
			if v, ok := window.quantile(q.q); ok && success {
				value = float64(v) / 1e6
			}
			fmt.Fprintf(w, "%s{%s,quantile=\"%s\"} %g\n", name, label, q.text, value)
		}
		fmt.Fprintf(w, "%s_count{%s} %d\n", name, label, count)
		fmt.Fprintf(w, "%s_sum{%s} %g\n", name, label, float64(sum)/1e6)
	}
}

// latencyCounts are the buckets of some span of time.
type latencyCounts [latencyBuckets]uint64

// turn returns the counts of the last whole window, and begins a new one when the present one is long enough.
func (l *latencies) turn(now int64) latencyCounts {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.turned == 0 || now-l.turned >= summaryWindow {
		counts := l.counts()
		for i, n := range counts {
			l.window[i] = n - l.begun[i]
		}
		l.begun = counts
		l.turned = max(now, 1)
	}
	return l.window
}

// quantile returns the duration that a share q of the values do not exceed; ok is false if there are none.
func (c *latencyCounts) quantile(q float64) (nanos int64, ok bool) {
	var total uint64
	for _, n := range c {
		total += n
	}
	rank, seen := uint64(math.Ceil(q*float64(total))), uint64(0)
	for i, n := range c {
		if seen += n; n > 0 && seen >= rank {
			return upperOf(i), true
		}
	}
	return 0, false
}
