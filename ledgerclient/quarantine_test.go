package ledgerclient

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/ledgerclient/placement"
)

func TestPenaltyDecays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const half = 30 * time.Second
		var p penalty
		require.Zero(t, p.now(half))
		require.InDelta(t, 1, p.add(half), 0.001, "the first quarantine has its own length")
		time.Sleep(half)
		require.InDelta(t, 0.5, p.now(half), 0.001)
		require.InDelta(t, 1.414, p.add(half), 0.01, "the next one is longer")
		require.InDelta(t, 2.828, p.add(half), 0.01)
		for range 20 {
			p.add(half)
		}
		require.InDelta(t, quarantineFactorMax, p.add(half), 0.001)
		before := p.now(half)
		p.halve(half)
		require.InDelta(t, before/2, p.now(half), 0.001)
		time.Sleep(10 * half)
		require.Zero(t, p.now(half), "it fades to nothing")
	})
}

// TestQuarantineDecays: a bookie that failed is chosen again when its quarantine is over, but less often than the others
// until that is forgotten.
func TestQuarantineDecays(t *testing.T) {
	c := newCluster(t, 4)
	client, _ := c.client(func(o *Options) { o.Quarantine = 10 * time.Minute })
	require.NoError(t, client.waitForView(testContext(t)))
	bad := client.peer("b1")
	share := func() float64 {
		n := 0
		for range 4000 {
			ids, err := placement.Choose(client.candidates(), 1, random)
			require.NoError(t, err)
			if ids[0] == "b1" {
				n++
			}
		}
		return float64(n) / 4000
	}
	require.InDelta(t, 0.25, share(), 0.04)
	bad.quarantine(ErrTimeout)
	bad.quarantine(ErrTimeout) // the same trouble
	require.Zero(t, share())
	require.InDelta(t, 0.5, bad.weight(), 0.02)
	bad.quarantined.Store(0) // its time is over
	require.InDelta(t, 0.5/3.5, share(), 0.03)
	bad.penalty.mu.Lock()
	bad.penalty.at = time.Now().Add(-10 * 10 * time.Minute)
	bad.penalty.mu.Unlock()
	require.InDelta(t, 0.25, share(), 0.04)
}

// TestWhoRegistersAnewIsPardoned: a bookie that has registered anew leaves its quarantine, also if a list of the bookies tells
// the client before its watch does.
func TestWhoRegistersAnewIsPardoned(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 3)
	client, _ := c.client(func(o *Options) { o.Quarantine = time.Hour })
	require.NoError(t, client.waitForView(ctx))
	bad := client.peer("b1")
	quarantined := func() bool {
		view, err := client.Candidates(ctx)
		require.NoError(t, err)
		i := slices.IndexFunc(view, func(b placement.Bookie) bool { return b.ID == "b1" })
		return view[i].Quarantined
	}
	require.Eventually(t, func() bool { // to the first view every bookie is new
		bad.quarantine(ErrTimeout)
		return quarantined()
	}, 30*time.Second, time.Millisecond)
	client.view.mu.Lock()
	b := client.view.bookies["b1"]
	b.Version-- // what the watch has told is older than what is stored
	client.view.bookies["b1"] = b
	client.view.mu.Unlock()
	require.False(t, quarantined())
}
