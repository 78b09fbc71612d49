package bookie

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHistogram(t *testing.T) {
	var h histogram
	for _, ns := range []int64{1, 20_000, 20_001, 99_000_000, 11e9, -5} {
		h.observe(ns)
	}
	var w bytes.Buffer
	h.write(&w, "x_seconds")
	for _, line := range []string{
		"# TYPE x_seconds histogram", `x_seconds_bucket{le="2e-05"} 3`, `x_seconds_bucket{le="5e-05"} 4`, `x_seconds_bucket{le="0.1"} 5`,
		`x_seconds_bucket{le="10"} 5`, `x_seconds_bucket{le="+Inf"} 6`, "x_seconds_count 6",
	} {
		require.Contains(t, w.String(), line+"\n")
	}
	require.Zero(t, testing.AllocsPerRun(100, func() { h.observe(1234) }))
}

// The value that a summary shows is within a sixteenth of what was observed.
func TestSummaryBuckets(t *testing.T) {
	last := -1
	for us := int64(1); us < 60_000_000; us += 1 + us/7 {
		i := summaryIndex(us * 1000)
		require.GreaterOrEqual(t, i, last)
		last = i
		require.InEpsilon(t, float64(us)/1000, summaryValue(i), 0.0625+0.5/math.Max(float64(us), 8), "%d us", us)
	}
	require.Equal(t, summaryBuckets-1, summaryIndex(math.MaxInt64))
	require.Equal(t, 0, summaryIndex(-1))
}

func TestSummaryWindows(t *testing.T) {
	var s summary
	for i := range int64(1000) {
		s.observe((i + 1) * 1_000_000)
	}
	var w bytes.Buffer
	s.write(&w, "op", "true")
	require.Contains(t, w.String(), `op{success="true",quantile="0.5"} NaN`, "the window is not over")
	require.Contains(t, w.String(), `op_count{success="true"} 1000`)
	require.Contains(t, w.String(), `op_sum{success="true"} 500500`)
	s.turn(now() + summaryWindow)
	w.Reset()
	s.mu.Lock()
	last := s.last
	s.mu.Unlock()
	require.NotZero(t, last)
	var value float64
	for _, line := range strings.Split(func() string { s.window.Store(now() / summaryWindow); s.write(&w, "op", "true"); return w.String() }(), "\n") {
		if n, _ := fmt.Sscanf(line, `op{success="true",quantile="0.99"} %g`, &value); n == 1 {
			require.InEpsilon(t, 990, value, 0.07)
		}
	}
	require.NotZero(t, value)
	require.Contains(t, w.String(), `quantile="1.0"`)
	s.turn(now() + 5*summaryWindow)
	require.Zero(t, s.last, "old figures are not shown as new ones")
}
