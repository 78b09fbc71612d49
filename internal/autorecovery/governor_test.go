package autorecovery

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// window feeds a governor a window of adds that take about d each, and returns the time after it.
func window(g *governor, now time.Time, d time.Duration) time.Time {
	for range 20 {
		now = now.Add(governWindow/20 + time.Millisecond)
		g.added(now, d)
	}
	return now
}

func TestGovernor(t *testing.T) {
	const limit = 16 << 20
	g := newGovernor(limit)
	require.Equal(t, int64(limit/8), g.current(), "it begins low")
	now := time.Now()
	for range 20 {
		now = window(g, now, time.Millisecond)
	}
	require.Equal(t, int64(limit), g.current(), "nothing is in the way: up to the limit")
	now = window(g, now, 10*time.Millisecond)
	require.Equal(t, int64(limit/2), g.current(), "slow adds halve it")
	for range 10 {
		now = window(g, now, 10*time.Millisecond)
	}
	require.Equal(t, int64(limit/16), g.current(), "and again, but it never stops")
	for range 20 {
		now = window(g, now, 1500*time.Microsecond)
	}
	require.Equal(t, int64(limit), g.current(), "twice the quiet time is nothing to worry about")
	for range 400 {
		now = window(g, now, 4*time.Millisecond)
	}
	require.Equal(t, int64(limit), g.current(), "what is slow for long is how the bookies are")

	g.setLimit(256 << 10)
	require.Equal(t, int64(256<<10), g.current(), "so little is in nobody's way")
	for range 5 {
		now = window(g, now, time.Second)
	}
	require.Equal(t, int64(256<<10), g.current())
	g.setLimit(-1)
	window(g, now, time.Second)
	require.NoError(t, g.b.Wait(t.Context(), 1<<40), "no limit")
}
