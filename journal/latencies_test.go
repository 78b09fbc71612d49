package journal

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSummaryDescribesTheLastWindow: quantiles are those of a window of at least a minute, counts and sums of all time, and
// the labels are what dashboards match.
func TestSummaryDescribesTheLastWindow(t *testing.T) {
	var l latencies
	page := func(now time.Duration) string {
		var b bytes.Buffer
		l.summary(&b, "x", "0", int64(now))
		return b.String()
	}
	empty := page(time.Second)
	require.Contains(t, empty, "# TYPE x summary\n")
	require.Contains(t, empty, `x{journalIndex="0",success="true",quantile="1.0"} NaN`)
	require.Equal(t, 19, strings.Count(empty, "\n"))
	l.add(int64(time.Millisecond), 99)
	l.add(int64(time.Second), 1)
	require.Contains(t, page(30*time.Second), `quantile="0.5"} NaN`, "the window runs")
	full := page(90 * time.Second)
	require.Contains(t, full, `x_count{journalIndex="0",success="true"} 100`)
	require.Contains(t, full, `x_sum{journalIndex="0",success="true"} 1099`)
	require.Contains(t, full, `x_count{journalIndex="0",success="false"} 0`)
	p50 := valueOf(t, full, `x{journalIndex="0",success="true",quantile="0.5"} `)
	require.InDelta(t, 1, p50, 0.13)
	require.InDelta(t, 1, valueOf(t, full, `x{journalIndex="0",success="true",quantile="0.99"} `), 0.13)
	require.InDelta(t, 1000, valueOf(t, full, `x{journalIndex="0",success="true",quantile="1.0"} `), 130)
	l.add(int64(4*time.Millisecond), 10)
	require.InDelta(t, 1, valueOf(t, page(100*time.Second), `x{journalIndex="0",success="true",quantile="0.5"} `), 0.13)
	later := page(200 * time.Second)
	require.InDelta(t, 4, valueOf(t, later, `x{journalIndex="0",success="true",quantile="0.5"} `), 0.5)
	require.Contains(t, later, `x_count{journalIndex="0",success="true"} 110`)
}

func valueOf(t *testing.T, page, start string) float64 {
	t.Helper()
	_, rest, ok := strings.Cut(page, start)
	require.True(t, ok, "%s in\n%s", start, page)
	text, _, _ := strings.Cut(rest, "\n")
	var v float64
	_, err := fmt.Sscan(text, &v)
	require.NoError(t, err, text)
	return v
}
