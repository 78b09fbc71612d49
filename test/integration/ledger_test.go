package integration

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/ledgerclient"
)

func TestLedgersOnRealBookies(t *testing.T) {
	c := newCluster(t, 4)
	client := c.client()
	for _, q := range []ledgerclient.Quorum{quorum(3, 3, 2), quorum(4, 2, 2), quorum(1, 1, 1)} {
		for _, d := range []ledgerclient.DigestType{ledgerclient.DigestCRC32C, ledgerclient.DigestHMAC, ledgerclient.DigestDummy} {
			t.Run(fmt.Sprintf("E%dQw%dQa%d/%v", q.Ensemble, q.Write, q.Ack, d), func(t *testing.T) {
				ctx := testContext(t)
				w, err := client.Create(ctx, ledgerclient.CreateOptions{Quorum: q, Digest: d, Password: []byte("p")})
				require.NoError(t, err)
				for e := range ledgerclient.EntryID(10) {
					id, err := w.Append(ctx, payload(e))
					require.NoError(t, err)
					require.Equal(t, e, id)
				}
				stop := make(chan struct{})
				l := startLoad(w, 10, 200, stop)
				time.Sleep(100 * time.Millisecond)
				close(stop)
				<-l.done
				require.NoError(t, l.err)
				last := ledgerclient.EntryID(l.acked.Load())
				open, err := client.Open(ctx, w.ID(), ledgerclient.OpenOptions{Password: []byte("p")})
				require.NoError(t, err)
				readAll(t, open, 0, open.LastAddConfirmed())
				require.NoError(t, w.Close(ctx))
				r, err := client.Open(ctx, w.ID(), ledgerclient.OpenOptions{Password: []byte("p")})
				require.NoError(t, err)
				require.Equal(t, last, r.LastAddConfirmed())
				readAll(t, r, 0, last)
				require.NoError(t, client.Delete(ctx, w.ID()))
			})
		}
	}
}

// TestRollingRestart: every bookie is stopped and started again, one after the other, under load.
func TestRollingRestart(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 4)
	client := c.client()
	w, err := client.Create(ctx, ledgerclient.CreateOptions{})
	require.NoError(t, err)
	stop := make(chan struct{})
	l := startLoad(w, 0, 50, stop)
	for _, m := range c.members {
		time.Sleep(100 * time.Millisecond)
		m.stop()
		time.Sleep(100 * time.Millisecond)
		m.start()
	}
	time.Sleep(100 * time.Millisecond)
	close(stop)
	<-l.done
	require.NoError(t, l.err)
	require.NoError(t, w.Close(ctx))
	r, err := c.client().Open(ctx, w.ID(), ledgerclient.OpenOptions{})
	require.NoError(t, err)
	require.Equal(t, l.acked.Load(), int64(r.LastAddConfirmed()))
	readAll(t, r, 0, r.LastAddConfirmed())
}

func TestFencedByRecovery(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 4)
	client := c.client()
	for round := range 5 {
		w, err := client.Create(ctx, ledgerclient.CreateOptions{})
		require.NoError(t, err)
		l := startLoad(w, 0, 30, nil)
		time.Sleep(time.Duration(20+20*round) * time.Millisecond)
		var wg sync.WaitGroup
		ends := make([]ledgerclient.EntryID, 2)
		for i := range ends {
			other := c.client()
			wg.Go(func() {
				r, err := other.Open(ctx, w.ID(), ledgerclient.OpenOptions{Recover: true})
				if err != nil {
					t.Error(err)
					return
				}
				ends[i] = r.LastAddConfirmed()
			})
		}
		wg.Wait()
		<-l.done
		require.ErrorIs(t, l.err, ledgerclient.ErrFenced)
		require.Equal(t, ends[0], ends[1])
		require.GreaterOrEqual(t, int64(ends[0]), l.acked.Load())
		r, err := client.Open(ctx, w.ID(), ledgerclient.OpenOptions{})
		require.NoError(t, err)
		require.Equal(t, ends[0], r.LastAddConfirmed())
		readAll(t, r, 0, ends[0])
	}
}

// TestPowerLossOfEverything: the power of all bookies goes at one instant under load, again and again; whatever was
// acknowledged until then is there afterwards, and the writer can not go on.
func TestPowerLossOfEverything(t *testing.T) {
	rounds := 6
	if testing.Short() {
		rounds = 2
	}
	ctx := testContext(t)
	c := newCluster(t, 3)
	for round := range rounds {
		client := c.client(func(o *ledgerclient.Options) { o.MetadataTimeout = 2 * time.Second })
		w, err := client.Create(ctx, ledgerclient.CreateOptions{})
		require.NoError(t, err)
		stop := make(chan struct{})
		l := startLoad(w, 0, 100, stop)
		time.Sleep(time.Duration(50+30*round) * time.Millisecond)
		acked := l.acked.Load() // before the clones are taken: everything up to here was promised
		for i, m := range c.members {
			m.powerLoss(uint64(round*10+i), float64(round%3)/2)
		}
		require.NoError(t, client.Close())
		close(stop)
		<-l.done
		for _, m := range c.members {
			m.start()
		}
		r, err := c.client().Open(ctx, w.ID(), ledgerclient.OpenOptions{Recover: true})
		require.NoError(t, err)
		require.GreaterOrEqual(t, int64(r.LastAddConfirmed()), acked, "round %d", round)
		readAll(t, r, 0, r.LastAddConfirmed())
		t.Logf("round %d: %d acknowledged before the loss, closed at %d", round, acked, r.LastAddConfirmed())
	}
}

// TestPowerLossOfOne: one bookie loses its power and comes back while the writer lives.
func TestPowerLossOfOne(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 4)
	client := c.client()
	w, err := client.Create(ctx, ledgerclient.CreateOptions{})
	require.NoError(t, err)
	stop := make(chan struct{})
	l := startLoad(w, 0, 50, stop)
	for round := range 4 {
		time.Sleep(100 * time.Millisecond)
		m := c.members[round%len(c.members)]
		m.powerLoss(uint64(round), 0.5)
		m.start()
	}
	time.Sleep(100 * time.Millisecond)
	close(stop)
	<-l.done
	require.NoError(t, l.err)
	require.NoError(t, w.Close(ctx))
	r, err := c.client().Open(ctx, w.ID(), ledgerclient.OpenOptions{})
	require.NoError(t, err)
	readAll(t, r, 0, r.LastAddConfirmed())
	require.Equal(t, l.acked.Load(), int64(r.LastAddConfirmed()))
}

// TestWipedBookie: a member loses its disk. It comes back in limbo, is replaced, and the ledger is whole.
func TestWipedBookie(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 4)
	client := c.client()
	w, err := client.Create(ctx, ledgerclient.CreateOptions{})
	require.NoError(t, err)
	stop := make(chan struct{})
	l := startLoad(w, 0, 50, stop)
	time.Sleep(100 * time.Millisecond)
	victim := c.record(w.ID()).Last().Bookies[0]
	for _, m := range c.members {
		if m.id == string(victim) {
			m.stop()
			m.loseDisk()
			m.start()
		}
	}
	time.Sleep(200 * time.Millisecond)
	close(stop)
	<-l.done
	require.NoError(t, l.err)
	require.NoError(t, client.Close()) // the writer dies, too
	r, err := c.client().Open(ctx, w.ID(), ledgerclient.OpenOptions{Recover: true})
	require.NoError(t, err)
	require.GreaterOrEqual(t, int64(r.LastAddConfirmed()), l.acked.Load())
	readAll(t, r, 0, r.LastAddConfirmed())
}

func TestDeferredSyncOnRealBookies(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 4)
	client := c.client()
	w, err := client.Create(ctx, ledgerclient.CreateOptions{DeferredSync: true})
	require.NoError(t, err)
	for e := range ledgerclient.EntryID(50) {
		_, err := w.Append(ctx, payload(e))
		require.NoError(t, err)
	}
	require.Equal(t, ledgerclient.InvalidEntry, w.LastAddConfirmed())
	require.NoError(t, w.Force(ctx))
	require.Equal(t, ledgerclient.EntryID(49), w.LastAddConfirmed())
	// Everything loses its power right after: what was forced is there.
	for i, m := range c.members {
		m.powerLoss(uint64(i), 0)
	}
	require.NoError(t, client.Close())
	for _, m := range c.members {
		m.start()
	}
	r, err := c.client().Open(ctx, w.ID(), ledgerclient.OpenOptions{Recover: true})
	require.NoError(t, err)
	require.GreaterOrEqual(t, r.LastAddConfirmed(), ledgerclient.EntryID(49))
	readAll(t, r, 0, 49)
}

func TestTailOnRealBookies(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 4)
	w, err := c.client().Create(ctx, ledgerclient.CreateOptions{})
	require.NoError(t, err)
	r, err := c.client().Open(ctx, w.ID(), ledgerclient.OpenOptions{})
	require.NoError(t, err)
	var seen atomic.Int64
	seen.Store(-1)
	done := make(chan error, 1)
	go func() {
		for e, err := range r.Tail(ctx, 0) {
			if err != nil {
				done <- err
				return
			}
			if int64(e.ID) != seen.Load()+1 || string(e.Data) != string(payload(e.ID)) {
				done <- fmt.Errorf("entry %d after %d", e.ID, seen.Load())
				return
			}
			seen.Store(int64(e.ID))
		}
		done <- nil
	}()
	for e := range ledgerclient.EntryID(200) {
		_, err := w.Append(ctx, payload(e))
		require.NoError(t, err)
		if e%50 == 49 {
			require.Eventually(t, func() bool { return seen.Load() == int64(e) }, 30*time.Second, time.Millisecond, "an idle writer's last entry becomes visible")
		}
	}
	require.NoError(t, w.Close(ctx))
	require.NoError(t, <-done)
	require.Equal(t, int64(199), seen.Load())
}
