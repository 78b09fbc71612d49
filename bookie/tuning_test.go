package bookie

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/bookie/gc"
	"github.com/binderylog/bindery/bookie/storage"
	"github.com/binderylog/bindery/internal/vfs/memfs"
	"github.com/binderylog/bindery/internal/wire"
)

func TestTune(t *testing.T) {
	s := newSite(t)
	s.mod = func(o *Options) { o.DiskCheckInterval = time.Hour }
	b, err := New(s.options())
	require.NoError(t, err)
	good := Tuning{InFlightBytes: 2 << 20, SlowClientTimeout: 2 * time.Second, GroupWait: time.Millisecond}
	require.ErrorIs(t, b.Tune(good), ErrStopped, "not started yet")
	b = s.start()
	c := s.dial(b)
	c.add(1, 0, "x")
	for name, change := range map[string]func(*Tuning){
		"limits.in_flight":           func(t *Tuning) { t.InFlightBytes = 1 << 40 },
		"limits.slow_client_timeout": func(t *Tuning) { t.SlowClientTimeout = 0 },
		"journal.max_group_wait":     func(t *Tuning) { t.GroupWait = time.Second },
		"gc.interval":                func(t *Tuning) { t.GC.Interval = time.Millisecond },
		"disk full_at":               func(t *Tuning) { t.Disk.FullAt = 3 },
	} {
		bad := good
		change(&bad)
		require.ErrorContains(t, b.Tune(bad), name)
	}
	require.Equal(t, b.o.InFlightBytes, b.srv.allowed(), "a refused change changes nothing")

	used := usedBytes(t, s.fs.(*memfs.FS))
	s.fs.(*memfs.FS).SetCapacity(used * 20) // room for what the journal prepares meanwhile
	good.Disk = storage.DiskLimits{FullAt: 0.03, WarnAt: 0.01, ResumeBelow: 0.02}
	good.GC = gc.Options{Interval: time.Hour}
	require.NoError(t, b.Tune(good))
	require.EqualValues(t, 2<<20, b.srv.allowed())
	require.Equal(t, 2*time.Second, b.srv.slowClientTimeout())
	s.eventuallyRegistered(true)
	require.Equal(t, wire.ReadOnly, c.do(addReq(wire.V2, 1, 1, 0, "y")).Code)
	good.Disk = storage.DiskLimits{}
	require.NoError(t, b.Tune(good))
	s.eventuallyRegistered(false)
	c.add(1, 1, "y")
	s.stop(b)
	require.ErrorIs(t, b.Tune(good), ErrStopped)
}

// TestBudgetShrinks: who waits for more than a smaller budget has gets all of it.
func TestBudgetShrinks(t *testing.T) {
	b := newBudget(1000)
	require.EqualValues(t, 900, b.acquire(5000, laneOrdinary, nil))
	got := make(chan int64)
	go func() { got <- b.acquire(800, laneOrdinary, nil) }()
	require.Eventually(t, b.pressed, 30*time.Second, time.Millisecond)
	b.setLimit(100)
	b.release(900)
	require.EqualValues(t, 90, <-got)
	b.release(90)
	b.setLimit(1000)
	require.True(t, b.try(900, laneOrdinary))
	require.False(t, b.try(1, laneOrdinary))
	b.release(900)
	require.Zero(t, b.used.Load())
}
