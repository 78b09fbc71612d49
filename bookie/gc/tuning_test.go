package gc

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTune changes the intervals of a running collector: the time to the next pass is counted anew, whatever the old one was.
func TestTune(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(newFakeMetadata(), noLedgers{}, noLogs{}, Options{Interval: 7 * 24 * time.Hour})
		require.NoError(t, err)
		c.Start()
		time.Sleep(time.Hour)
		require.Zero(t, c.Status().Passes)
		require.Error(t, c.Tune(Options{Interval: time.Millisecond}))
		require.Error(t, c.Tune(Options{Rate: -1}))
		require.NoError(t, c.Tune(Options{Interval: time.Minute, Minor: Compaction{0.1, 10 * time.Minute}, Rate: 1 << 20}))
		time.Sleep(time.Hour + time.Second)
		s := c.Status()
		require.EqualValues(t, 60, s.Passes)
		require.EqualValues(t, 6, s.MinorRuns)
		require.Zero(t, s.MajorRuns)
		require.Equal(t, float64(1<<20), c.rate.perSecond())
		below, _ := c.below(work{minor: true}, false)
		require.Equal(t, 0.1, below)
		below, _ = c.below(work{major: true}, false)
		require.Equal(t, 0.5, below)
		c.Close()
	})
}
