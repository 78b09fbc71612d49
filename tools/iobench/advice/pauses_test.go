package advice

import (
	"testing"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/journal"
	"github.com/binderylog/bindery/tools/iobench/result"
)

func TestTimePassesThroughPauses(t *testing.T) {
	p := Pauses{List: []Pause{{At: 20, Length: 10}, {At: 90, Length: 10}}, Span: 100}
	require.InDelta(t, 0.2, p.Share(), 1e-9)
	for _, c := range []struct{ t, d, want float64 }{
		{0, 5, 5},
		{0, 20, 30},   // it ends as the machine stops
		{0, 25, 35},   // one pause
		{25, 0, 30},   // in the middle of one
		{30, 5, 35},   // right after it
		{25, 70, 110}, // the rest of one, 60 until the next, 10 after it
		{0, 160, 200},
		{1020, 1, 1031}, // the watch is repeated
	} {
		require.InDelta(t, c.want, p.through(c.t, c.d), 1e-9, "%v from %v", c.d, c.t)
	}
	require.InDelta(t, 7.0, (&Pauses{}).through(3, 4), 0)

	for _, c := range []struct{ from, to, want time.Duration }{{0, 20, 0}, {0, 25, 5}, {22, 24, 2}, {25, 95, 10}, {30, 90, 0}, {0, 200, 20}, {101, 200, 0}} {
		require.Equal(t, c.want, p.Within(c.from, c.to), "%v to %v", c.from, c.to)
	}

	many := Pauses{Span: 100 * time.Second}
	for i := range 1000 {
		many.List = append(many.List, Pause{At: time.Duration(i) * 100 * time.Millisecond, Length: 10 * time.Millisecond})
	}
	require.InDelta(t, 0.06, many.Beyond(0.04, 1).Share(), 0.006)
	require.InDelta(t, 0.1, many.Beyond(0, 1).Share(), 1e-9)
	require.Zero(t, many.Beyond(0.2, 1).Share())
}

// TestPausesMakeTails: a machine that stands still for 10 ms in each 100 lets a tenth of all adds wait, half of that time on average.
func TestPausesMakeTails(t *testing.T) {
	h := result.NewHistogram()
	for range 100 {
		result.Record(h, 200*time.Microsecond)
	}
	m := Model{Sizes: []int{4096}, Times: []*hdr.Histogram{h}, Beside: []*hdr.Histogram{h}, Crowd: 1, InFlight: 2, GroupMax: journal.DefaultGroupBytesMax, Cores: 1}
	calm := m.At(1024, 10, 2000)
	m.Pauses = Pauses{List: []Pause{{At: 50 * time.Millisecond, Length: 10 * time.Millisecond}}, Span: 100 * time.Millisecond}
	o := m.At(1024, 10, 2000)
	require.InDelta(t, 9500, o.P99US-calm.P50US, 700, "of ten in a hundred, one waited longer than nine milliseconds")
	full := m.Peak(100, 1024).AddsPerS
	m.Pauses = Pauses{}
	require.InEpsilon(t, 0.9*m.Peak(100, 1024).AddsPerS, full, 0.02)
}
