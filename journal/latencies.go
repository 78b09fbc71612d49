package journal

import (
	"fmt"
	"io"
	"math/bits"
	"sync/atomic"
)

// latencies is a histogram of durations with eight steps per power of two, good for quantiles within a tenth. Recording
// is two atomic additions. It counts since the start; the quantiles of a summary are those of everything since then.
type latencies struct {
	buckets [8 * 44]atomic.Uint64
	count   atomic.Uint64
	sum     atomic.Uint64 // nanoseconds
}

// bucketOf maps nanoseconds to a bucket: exact below 8, then by the three bits behind the leading one.
func bucketOf(nanos int64) int {
	if nanos < 8 {
		return int(max(nanos, 0))
	}
	p := bits.Len64(uint64(nanos)) - 1
	return min((p-2)*8+int(nanos>>(p-3)&7), 8*44-1)
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

// quantile returns the duration that a share q of the values do not exceed, 0 if there are none.
func (l *latencies) quantile(q float64) int64 {
	var total uint64
	for i := range l.buckets {
		total += l.buckets[i].Load()
	}
	rank := uint64(q * float64(total))
	var n uint64
	last := int64(0)
	for i := range l.buckets {
		c := l.buckets[i].Load()
		if c == 0 {
			continue
		}
		n += c
		last = upperOf(i)
		if n > rank {
			break
		}
	}
	return last
}

// summary writes the values as BookKeeper does: a summary in milliseconds.
func (l *latencies) summary(w io.Writer, name, journal string) {
	if journal == firstLabel {
		fmt.Fprintf(w, "# TYPE %s summary\n", name)
	}
	label := fmt.Sprintf("journalIndex=%q,success=\"true\"", journal)
	for _, q := range []float64{0.5, 0.75, 0.95, 0.99, 0.999, 0.9999, 1} {
		fmt.Fprintf(w, "%s{%s,quantile=\"%v\"} %g\n", name, label, q, float64(l.quantile(q))/1e6)
	}
	fmt.Fprintf(w, "%s_count{%s} %d\n", name, label, l.count.Load())
	fmt.Fprintf(w, "%s_sum{%s} %g\n", name, label, float64(l.sum.Load())/1e6)
}
