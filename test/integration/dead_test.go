package integration

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/loadgen"
	"github.com/binderylog/bindery/ledgerclient"
)

// TestLoadEndsWithItsCluster: every bookie stops in the middle of a run. The run ends within seconds, says why, and gives the
// figures of the time before.
func TestLoadEndsWithItsCluster(t *testing.T) {
	c := newCluster(t, 3)
	client := c.client()
	stopped := make(chan time.Time, 1)
	timer := time.AfterFunc(500*time.Millisecond, func() {
		for _, m := range c.members {
			m.stop()
		}
		stopped <- time.Now()
	})
	defer timer.Stop()
	r, err := (&loadgen.Cluster{
		Plan: loadgen.Plan{Ledgers: 2, Outstanding: 10, Size: 100, Duration: time.Minute, Warmup: time.Millisecond}, Client: client,
		Create: ledgerclient.CreateOptions{Quorum: quorum(3, 3, 2)},
	}).Run(testContext(t))
	require.Less(t, time.Since(<-stopped), 8*time.Second)
	require.ErrorIs(t, err, ledgerclient.ErrNotEnoughBookies)
	require.ErrorContains(t, err, "the cluster failed ")
	require.ErrorContains(t, err, "adds failed, the first with: ledger ")
	require.Positive(t, r.Adds)
	require.Positive(t, r.Failed())
}
