package autorecovery

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/ledger"
)

// TestRunsOfUnequalEntries: runs are planned by the size that entries had so far. Those that come back short because larger ones
// follow are continued, and every entry is copied once.
func TestRunsOfUnequalEntries(t *testing.T) {
	k := newKit(t, 4)
	w := k.create(quorum(3, 3, 2), 0, "bk1")
	size := func(e int) int {
		if e >= 100 && e < 110 {
			return 48 << 10
		}
		return 20 + e
	}
	const n = 200
	for e := range n {
		_, err := w.Append(k.ctx(), make([]byte, size(e)))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close(k.ctx()))
	k.members[1].stop()
	node := k.node("n1", workerOnly)
	require.NoError(t, node.auditor.auditBookies(k.ctx()))
	k.unmarked()

	m := k.record(w.ID())
	require.False(t, m.Names("bk1"))
	copies, err := k.client.Copies(w.ID(), m)
	require.NoError(t, err)
	for _, b := range m.Fragments[0].Bookies {
		for e := range ledger.EntryID(n) {
			_, answer, err := copies.Read(k.ctx(), b, e)
			require.Equal(t, ledger.AnswerOK, answer, "entry %d on %s: %v", e, b, err)
		}
	}
	require.Equal(t, float64(n), node.metric("replication_worker_NUM_ENTRIES_READ"))
	require.Equal(t, float64(n), node.metric("replication_worker_NUM_ENTRIES_WRITTEN"))
	require.Less(t, node.metric("replication_worker_WRITE_DATA_LATENCY_count"), float64(n)/3, "entries go together")
}
