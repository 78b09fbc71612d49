package engine

import (
	"runtime/metrics"
	"slices"
	"time"

	"github.com/binderylog/bindery/tools/iobench/result"
)

// Calibration is what the tool costs by itself.
type Calibration struct {
	OverheadNS  float64
	TimerStepNS float64
}

// Calibrate measures the timing and recording of operations that do nothing.
func Calibrate() Calibration {
	const batches, ops = 7, 20000
	p := NewProbe(result.Cell{})
	var per []float64
	for range batches {
		start := time.Now()
		for range ops {
			a := time.Now()
			b := time.Now()
			p.record(a, a, b, Parts{}, false)
		}
		per = append(per, float64(time.Since(start))/ops)
	}
	slices.Sort(per)
	step := time.Duration(1 << 62)
	for range ops {
		a := time.Now()
		b := time.Now()
		if d := b.Sub(a); d > 0 {
			step = min(step, d)
		}
	}
	if step == 1<<62 {
		step = 0 // the clock did not move
	}
	return Calibration{OverheadNS: per[len(per)/2], TimerStepNS: float64(step)}
}

// GCSample counts the pauses of the garbage collector so far, and the longest, as far as the runtime says.
func GCSample() (pauses int64, longestUS float64) {
	s := []metrics.Sample{{Name: "/sched/pauses/total/gc:seconds"}}
	metrics.Read(s)
	if s[0].Value.Kind() != metrics.KindFloat64Histogram {
		return 0, 0
	}
	h := s[0].Value.Float64Histogram()
	for i, n := range h.Counts {
		if n > 0 {
			pauses += int64(n)
			longestUS = h.Buckets[i] * 1e6
		}
	}
	return pauses, max(longestUS, 0)
}
