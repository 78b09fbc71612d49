package ledgerclient

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/wire"
)

func TestLatencyEstimateFollowsAndDecays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l latency
		_, _, known := l.usual()
		require.False(t, known)
		for range 50 {
			l.observe(2*time.Millisecond, true)
		}
		mean, late, known := l.usual()
		require.True(t, known)
		require.InDelta(t, 0.002, mean.Seconds(), 0.0001)
		require.Less(t, late, 3*time.Millisecond)
		for range 50 {
			l.observe(200*time.Millisecond, true)
		}
		mean, _, _ = l.usual()
		require.InDelta(t, 0.2, mean.Seconds(), 0.01)
		for range 50 {
			l.observe(time.Microsecond, false) // quick failures are not quick answers
		}
		mean, _, _ = l.usual()
		require.InDelta(t, 0.2, mean.Seconds(), 0.01)
		time.Sleep(latencyMemory + time.Second)
		_, _, known = l.usual()
		require.False(t, known, "an old estimate says nothing")
		for range 4 {
			l.observe(time.Millisecond, true)
		}
		mean, _, _ = l.usual()
		require.InDelta(t, 0.001, mean.Seconds(), 0.0001)
	})
}

func TestHedgesAreLent(t *testing.T) {
	var h hedges
	require.False(t, h.spend())
	for range 25 {
		h.earn()
	}
	require.True(t, h.spend())
	require.True(t, h.spend())
	require.False(t, h.spend(), "one in ten")
	for range 100000 {
		h.earn()
	}
	n := 0
	for h.spend() {
		n++
	}
	require.Equal(t, hedgesMax, n)
}

// TestSpeculativeReadByLatency: a bookie that answers within a millisecond falls silent. The reads that it owes are asked
// elsewhere long before HedgeDelay, and later reads begin with the bookie that answers.
func TestSpeculativeReadByLatency(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 3)
	client, _ := c.client(func(o *Options) { o.HedgeDelay = 20 * time.Minute; o.ReadTimeout = 30 * time.Minute })
	w, err := client.Create(ctx, CreateOptions{Quorum: quorum(3, 3, 3)})
	require.NoError(t, err)
	appendMany(t, w, 0, 9)
	require.NoError(t, w.Close(ctx))
	r, err := client.Open(ctx, w.ID(), OpenOptions{})
	require.NoError(t, err)
	for range 40 { // the client learns how quick the bookies are, and earns hedges
		readAll(t, r, 3, 3)
	}
	quick := r.Metadata().Last().Bookies[r.prefer.Load()]
	c.bookie(quick).setFault(func(q *wire.Request) fault { return fault{drop: q.Op == wire.OpRead} })
	readAll(t, r, 4, 4)
	require.NotEqual(t, quick, r.Metadata().Last().Bookies[r.prefer.Load()], "the reader stays with the one that answered")
	before := c.bookie(quick)
	before.setFault(nil)
	readAll(t, r, 5, 9)
}

// TestSlowBookieIsAskedLast: a bookie that takes much longer than the others is not the first to be asked, though it is the one
// that the reader began with.
func TestSlowBookieIsAskedLast(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 3)
	client, _ := c.client()
	w, err := client.Create(ctx, CreateOptions{Quorum: quorum(3, 3, 3)})
	require.NoError(t, err)
	appendMany(t, w, 0, 9)
	require.NoError(t, w.Close(ctx))
	r, err := client.Open(ctx, w.ID(), OpenOptions{})
	require.NoError(t, err)
	bookies := r.Metadata().Last().Bookies
	for i, b := range bookies {
		for range 10 {
			d := 2 * time.Millisecond
			if i == 1 {
				d = 300 * time.Millisecond
			}
			client.peer(b).reads.observe(d, true)
		}
	}
	r.prefer.Store(1)
	asked := make(chan struct{}, 100)
	c.bookie(bookies[1]).setFault(func(q *wire.Request) fault {
		if q.Op == wire.OpRead || q.Op == wire.OpBatchRead {
			asked <- struct{}{}
		}
		return fault{}
	})
	readAll(t, r, 0, 9)
	require.Empty(t, asked)
}
