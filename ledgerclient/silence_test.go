package ledgerclient

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/wire"
)

// TestDeadPeerIsNoticed: the bookie that a tailing reader polls falls silent, its connection stays up. It is found out by a
// ping that it does not answer, and the reader has long gone on with another one.
func TestDeadPeerIsNoticed(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 3)
	client, _ := c.client()
	reader, _ := c.client(func(o *Options) { o.PeerTimeout = 2 * time.Second; o.LongPollTimeout = time.Hour })
	w, err := client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	appendMany(t, w, 0, 0)
	r, err := reader.Open(ctx, w.ID(), OpenOptions{})
	require.NoError(t, err)
	var dead atomic.Pointer[fakeBookie]
	for _, b := range c.bookies {
		b.setFault(func(q *wire.Request) fault {
			if q.Op == wire.OpRead && q.LongPoll() {
				dead.CompareAndSwap(nil, b)
			}
			return fault{drop: dead.Load() == b && q.Op != wire.OpAdd && q.Op != wire.OpWriteLAC}
		})
	}
	got := make(chan EntryID, 10)
	go func() {
		for e, err := range r.Tail(ctx, 1) {
			if err != nil {
				return
			}
			got <- e.ID
		}
		close(got)
	}()
	require.Eventually(t, func() bool { return dead.Load() != nil }, 30*time.Second, time.Millisecond)
	appendMany(t, w, 1, 2)
	select {
	case e := <-got:
		require.Equal(t, EntryID(1), e)
	case <-ctx.Done():
		t.Fatal("the reader waits for the dead bookie")
	}
	require.Eventually(t, func() bool { return figure(t, reader, "bindery_client_dead_peers_total") >= 1 }, time.Minute, 10*time.Millisecond)
	require.Eventually(t, func() bool { return reader.quarantined(dead.Load().id) }, time.Minute, 10*time.Millisecond)
	require.NoError(t, w.Close(ctx))
	require.Equal(t, EntryID(2), <-got)
	_, open := <-got
	require.False(t, open)
}

// TestQuietPeerIsAlive: a poll without news is no sign of death; the bookie answers pings.
func TestQuietPeerIsAlive(t *testing.T) {
	for patience := 300 * time.Millisecond; ; patience *= 4 { // a slow machine answers late
		dead, pings := quietTail(t, patience)
		if dead == 0 && pings >= 2 {
			return
		}
		require.Less(t, patience, 10*time.Second, "%v of silent peers found dead, %v pings", dead, pings)
	}
}

// quietTail follows a ledger without news for several times patience, after which silence is death, and long enough for polls that
// last as long.
func quietTail(t *testing.T, patience time.Duration) (dead, pings float64) {
	c := newCluster(t, 3)
	client, _ := c.client(func(o *Options) { o.PeerTimeout = patience; o.LongPollTimeout = time.Hour })
	w, err := client.Create(testContext(t), CreateOptions{})
	require.NoError(t, err)
	appendMany(t, w, 0, 0)
	r, err := client.Open(testContext(t), w.ID(), OpenOptions{})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(testContext(t), 5*time.Second+5*patience)
	defer cancel()
	for _, err := range r.Tail(ctx, 1) {
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	return figure(t, client, "bindery_client_dead_peers_total"), figure(t, client, "bindery_client_requests_total", `op="ping"`, `result="ok"`)
}

// TestSlowReplicaIsReplaced: one bookie of three takes 5 ms for each add, the others next to nothing. What waits for it holds
// the memory of adds; it is replaced before it sets the pace, and the bound holds all the time.
func TestSlowReplicaIsReplaced(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 4)
	client, _ := c.client(func(o *Options) { o.MaxPendingBytes = 6 << 20; o.AddTimeout = 4 * time.Second })
	w, err := client.Create(ctx, CreateOptions{Quorum: quorum(3, 3, 2)})
	require.NoError(t, err)
	other, err := client.Create(ctx, CreateOptions{Quorum: quorum(3, 3, 2)})
	require.NoError(t, err)
	slow := c.bookie(c.record(w.ID()).Last().Bookies[1])
	slow.setFault(func(q *wire.Request) fault {
		if q.Op == wire.OpAdd {
			return fault{delay: 5 * time.Millisecond}
		}
		return fault{}
	})
	var failed atomic.Int64
	n := 0
	for deadline := time.Now().Add(90 * time.Second); figure(t, client, "bindery_client_slow_replicas_total") == 0; n += 100 {
		require.True(t, time.Now().Before(deadline), "the slow bookie sets the pace")
		for range 100 {
			w.AppendAsync(make([]byte, 8<<10), func(_ EntryID, err error) {
				if err != nil {
					failed.Add(1)
				}
			})
		}
		require.GreaterOrEqual(t, client.budget.free.Load(), int64(0))
	}
	slow.setFault(nil)
	_, err = other.Append(ctx, []byte("x"))
	require.NoError(t, err)
	last, err := w.Append(ctx, []byte("end"))
	require.NoError(t, err)
	require.Equal(t, EntryID(n), last)
	require.Zero(t, failed.Load())
	require.NotContains(t, c.record(w.ID()).Last().Bookies, slow.id)
	require.NoError(t, w.Close(ctx))
	c.checkStored(w.ID(), last)
}
