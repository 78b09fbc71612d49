package offload

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/offload/objstore"
	"github.com/binderylog/bindery/offload/objstore/faulty"
)

// TestAFailureThatPassesCostsNoRedundancy: a target that can not be reached for a moment keeps its shard and its copy of the manifest when
// every other place has one, so that another target may be lost afterwards. The simulator found it.
func TestAFailureThatPassesCostsNoRedundancy(t *testing.T) {
	for _, g := range []Geometry{{1, 1}, {2, 1}} {
		w, l := offloaded(t, g.Shards(), g, ledgerSpec{sizes: even(500, 1000)})
		x := w.worker("r", func(o *Options) { o.Geometry = g })
		before := w.record(l.id)
		first := before.Manifest.Targets[0]
		w.faults[first].Set(faulty.Always(faulty.Fail(objstore.KindUnreachable)))
		_, err := x.Repair(t.Context(), l.id, RepairOptions{})
		require.ErrorIs(t, err, errStays)
		require.ErrorContains(t, err, "--drain")
		w.healed()
		w.janitor(x)
		require.Len(t, w.record(l.id).Manifest.Targets, g.Parity+1)
		require.Equal(t, before.Placement, w.record(l.id).Placement)
		w.stores[before.Manifest.Targets[1]].Wipe()
		w.requireReadable(l)
		out, err := x.Repair(t.Context(), l.id, RepairOptions{})
		require.NoError(t, err)
		require.Len(t, out.Shards, 1)
		w.stores[first].Wipe()
		w.requireReadable(l)
		require.NoError(t, x.Close())
	}
}
