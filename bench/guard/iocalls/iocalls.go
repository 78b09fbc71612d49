// Package iocalls counts the system calls by which this process read and wrote files and sockets, for benchmarks of paths
// whose number of calls must not grow. Linux counts those of the read and write families; elsewhere nothing is counted.
//
// The package starts no goroutine.
package iocalls

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// Unit is the unit of the metric.
const Unit = "io-calls/op"

// count is how many such calls there were. ok is false where nobody counts.
func count() (n int64, ok bool) {
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		if key != "syscr" && key != "syscw" {
			continue
		}
		v, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		if err != nil {
			return 0, false
		}
		n += v
	}
	return n, true
}

// Measure runs f, which is all that a benchmark measures, and reports the calls of one operation.
func Measure(b *testing.B, f func()) {
	b.ReportAllocs()
	before, ok := count()
	b.ResetTimer()
	f()
	b.StopTimer()
	if after, _ := count(); ok {
		b.ReportMetric(float64(after-before)/float64(b.N), Unit)
	}
}
