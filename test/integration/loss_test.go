package integration

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/ledgerclient"
)

// TestD34TwoLimboBookiesBlock: two of three bookies lose their disks and come back in limbo. Neither denies the tail, so no
// ordinary recovery can end the ledger; one that accepts loss does, keeps everything that the third bookie has, and leaves a
// note.
func TestD34TwoLimboBookiesBlock(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 3)
	client := c.client()
	w, err := client.Create(ctx, ledgerclient.CreateOptions{})
	require.NoError(t, err)
	for e := range ledgerclient.EntryID(10) {
		_, err := w.Append(ctx, payload(e))
		require.NoError(t, err)
	}
	require.NoError(t, client.Close())
	for _, m := range c.members[:2] {
		m.stop()
		m.loseDisk()
	}
	for _, m := range c.members[:2] {
		m.start()
	}
	other := c.client()
	_, err = other.Open(ctx, w.ID(), ledgerclient.OpenOptions{Recover: true})
	require.ErrorIs(t, err, ledgerclient.ErrNotEnoughBookies)
	require.ErrorIs(t, err, ledgerclient.ErrUnknownState, "limbo bookies say that they can not vouch")
	require.Equal(t, ledgerclient.StateInRecovery, c.record(w.ID()).State)

	m, loss, err := other.RecoverAcceptingLoss(ctx, w.ID(), ledgerclient.OpenOptions{}, "two disks burnt")
	require.NoError(t, err)
	require.NotNil(t, loss)
	require.Len(t, loss.Unfenced, 2)
	require.GreaterOrEqual(t, m.LastEntry, ledgerclient.EntryID(8), "what the third bookie confirms is kept")
	require.Equal(t, m.LastEntry+1, loss.Cut)
	stored := c.record(w.ID())
	require.Equal(t, ledgerclient.StateClosed, stored.State)
	require.Contains(t, string(stored.Custom[ledgerclient.LossKey]), "(two disks burnt)")
	r, err := other.Open(ctx, w.ID(), ledgerclient.OpenOptions{})
	require.NoError(t, err)
	readAll(t, r, 0, m.LastEntry)
}
