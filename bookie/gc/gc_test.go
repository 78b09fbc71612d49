package gc

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/binderylog/bindery/bookie/storage"
	"github.com/binderylog/bindery/entrylog"
	"github.com/stretchr/testify/require"
)

func TestDeletedLedgersGoAndTheirLogsWithThem(t *testing.T) {
	b := newBed(t, 1).open(1, nil)
	b.fill(ids(1, 11), 20, 500)
	b.seal()
	require.NotZero(t, b.logs())
	before := b.used()
	b.meta.remove(ids(1, 11)...)
	require.NoError(t, b.trigger(Pass))
	b.requireGone(ids(1, 11)...)
	s := b.c.Status()
	require.EqualValues(t, 10, s.LedgersDeleted)
	require.NotZero(t, s.LogsRemoved)
	require.NoError(t, b.trigger(Pass)) // what the deletion itself wrote
	require.Zero(t, b.logs())
	require.Less(t, b.used(), before-60_000)
	b.close()
}

func TestNothingIsDeletedWithoutTwoProofs(t *testing.T) {
	trouble := errors.New("the store can not be reached")
	for name, spoil := range map[string]func(*fakeMetadata){
		"the pass is refused":                         func(m *fakeMetadata) { m.begin = trouble },
		"the listing fails at once":                   func(m *fakeMetadata) { m.listErr, m.listFrom = trouble, -1 },
		"the listing fails in the middle":             func(m *fakeMetadata) { m.listErr, m.listFrom = trouble, 5 },
		"the read of the record fails":                func(m *fakeMetadata) { m.readErr[3] = trouble },
		"the listing lacks it, the read finds it":     func(m *fakeMetadata) { m.set(3, Record{Exists: true, Here: true}); m.hidden[3] = true },
		"it exists and does not name us, but is open": func(m *fakeMetadata) { m.set(3, Record{Exists: true}) },
		"closed, not ours, and somebody copies it": func(m *fakeMetadata) {
			m.set(3, Record{Exists: true, Closed: true})
			m.locked[3] = true
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, 1).open(1, func(o *Options) { o.OverReplicatedEvery = time.Nanosecond })
			b.fill(ids(1, 20), 3, 200)
			b.seal()
			b.meta.remove(3)
			spoil(b.meta)
			_ = b.trigger(Pass)
			_ = b.trigger(Pass)
			b.requireAll(ids(1, 20), 3, 200)
			require.Zero(t, b.c.Status().LedgersDeleted)
			b.close()
		})
	}
}

func TestCopyTooManyIsDeletedAfterQuietTime(t *testing.T) {
	b := newBed(t, 1).open(1, func(o *Options) { o.OverReplicatedEvery = time.Nanosecond })
	b.fill(ids(1, 4), 3, 200)
	b.seal()
	b.meta.set(2, Record{Exists: true, Closed: true})
	require.NoError(t, b.trigger(Pass))
	b.requireAll([]int64{2}, 3, 200) // seen once
	require.NoError(t, b.put(2, 9, 100, true))
	require.NoError(t, b.trigger(Pass))
	b.requireAll([]int64{2}, 3, 200) // a recovery add came in between
	require.NoError(t, b.trigger(Pass))
	b.requireGone(2)
	b.requireAll([]int64{1, 3}, 3, 200)
	b.close()
}

// TestRecoveryAddBetweenProofAndDelete is decision 40: the generation is tested under the lock under which the ledger is
// deleted.
func TestRecoveryAddBetweenProofAndDelete(t *testing.T) {
	b := newBed(t, 1).open(1, nil)
	b.fill(ids(1, 3), 3, 200)
	b.seal()
	b.meta.remove(1)
	b.meta.onRead = func(id int64) { // the second proof is under way: a replicator copies an entry here
		require.NoError(t, b.put(id, 7, 200, true))
	}
	require.NoError(t, b.trigger(Pass))
	b.requireAll(ids(1, 3), 3, 200)
	require.Zero(t, b.c.Status().LedgersDeleted)
	b.meta.mu.Lock()
	b.meta.onRead = nil
	b.meta.mu.Unlock()
	require.NoError(t, b.trigger(Pass))
	b.requireGone(1)
	b.close()
}

func TestMinorAndMajorCompaction(t *testing.T) {
	for _, c := range []struct {
		kind    Kind
		keep    int64 // of 20 ledgers
		compact bool
	}{
		{Pass, 2, false}, {Minor, 2, true}, {Minor, 8, false}, {Major, 8, true}, {Major, 14, false},
	} {
		b := newBed(t, 1).open(1, nil)
		b.fill(ids(0, 20), 10, 400)
		b.seal()
		b.meta.remove(ids(c.keep, 20)...)
		require.NoError(t, b.trigger(c.kind))
		s := b.c.Status()
		require.EqualValues(t, 20-c.keep, s.LedgersDeleted)
		if c.compact {
			require.NotZero(t, s.LogsCompacted, "%v of %d", c.kind, c.keep)
			require.NotZero(t, s.BytesCopied)
			require.LessOrEqual(t, s.BytesCopied, uint64(c.keep*10*400))
		} else {
			require.Zero(t, s.LogsCompacted, "%v of %d", c.kind, c.keep)
		}
		b.requireAll(ids(0, c.keep), 10, 400)
		b.requireGone(ids(c.keep, 20)...)
		require.NoError(t, b.s.Check(t.Context(), func(err error) { t.Error(err) }))
		b.close()
		b.open(1, nil)
		b.requireAll(ids(0, c.keep), 10, 400)
		b.requireGone(ids(c.keep, 20)...)
		b.close()
	}
}

func TestSuspendAndResume(t *testing.T) {
	b := newBed(t, 1).open(1, nil)
	b.fill(ids(0, 20), 10, 400)
	b.seal()
	b.meta.remove(ids(2, 20)...)
	b.c.Suspend(true, true)
	require.NoError(t, b.trigger(Major))
	s := b.c.Status()
	require.True(t, s.MinorSuspended && s.MajorSuspended)
	require.EqualValues(t, 18, s.LedgersDeleted, "deleting goes on")
	require.Zero(t, s.LogsCompacted)
	b.c.Resume(false, true)
	require.NoError(t, b.trigger(Major))
	s = b.c.Status()
	require.True(t, s.MinorSuspended)
	require.False(t, s.MajorSuspended)
	require.NotZero(t, s.LogsCompacted)
	b.requireAll(ids(0, 2), 10, 400)
	b.close()
}

func TestPlan(t *testing.T) {
	logs := []usage{{1, 100, 0, 0}, {2, 100, 19, 1}, {3, 100, 40, 2}, {4, 100, 60, 3}, {5, 100, 5, 1}, {6, 0, 0, 0}}
	remove, groups := plan(logs, 0, 1000, false)
	require.Equal(t, []entrylog.LogID{1, 6}, remove)
	require.Empty(t, groups)
	_, groups = plan(logs, 0.2, 1000, false)
	require.Equal(t, [][]entrylog.LogID{{2, 5}}, groups)
	_, groups = plan(logs, 0.5, 1000, false)
	require.Equal(t, [][]entrylog.LogID{{2, 3, 5}}, groups)
	_, groups = plan(logs, 0.5, 50, false)
	require.Equal(t, [][]entrylog.LogID{{2}, {3, 5}}, groups)
	_, groups = plan(logs, 0.5, 1000, true)
	require.Equal(t, [][]entrylog.LogID{{5}, {2}, {3}}, groups, "on a tight disk one by one, the emptiest first")
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{
		{Interval: time.Millisecond}, {Minor: Compaction{Below: 1.5, Every: time.Hour}}, {Major: Compaction{Below: 0.5, Every: -1}},
		{Rate: 5}, {Grace: -1}, {MetadataRate: -1},
	} {
		_, err := New(newFakeMetadata(), nil, nil, o)
		require.Error(t, err, "%+v", o)
	}
}

func TestClosedCollector(t *testing.T) {
	b := newBed(t, 1).open(1, nil)
	b.c.Close()
	b.c.Close()
	require.ErrorIs(t, b.c.Trigger(t.Context(), Pass), ErrClosed)
	require.NoError(t, b.s.Close())
}

func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter{perSecond: func() float64 { return 1000 }}
		start := time.Now()
		for range 5000 {
			require.NoError(t, l.wait(t.Context(), 1))
		}
		took := time.Since(start)
		require.Greater(t, took, 4800*time.Millisecond)
		require.Less(t, took, 5200*time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, l.wait(ctx, 1_000_000), context.Canceled)
	})
}

// TestSchedule runs a collector over an idle storage for a simulated week.
func TestSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(newFakeMetadata(), noLedgers{}, noLogs{}, Options{})
		require.NoError(t, err)
		c.Start()
		time.Sleep(7*24*time.Hour + time.Minute)
		s := c.Status()
		require.EqualValues(t, 7*24*4, s.Passes)
		require.EqualValues(t, 7*24, s.MinorRuns)
		require.EqualValues(t, 7, s.MajorRuns)
		require.Zero(t, s.FailedRuns)
		c.Close()
	})
}

type noLedgers struct{}

func (noLedgers) Ledgers(int64, int) ([]int64, error)                    { return nil, nil }
func (noLedgers) Generation(int64) (uint32, bool, error)                 { return 0, false, nil }
func (noLedgers) Delete(context.Context, []int64, []uint32) (int, error) { return 0, nil }

type noLogs struct{ Logs }

func (noLogs) Dirs() int { return 0 }

var (
	_ Ledgers = (*storage.Storage)(nil)
	_ Logs    = (*storage.Storage)(nil)
)
