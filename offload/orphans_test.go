package offload

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/memmeta"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/offload/objstore"
	"github.com/binderylog/bindery/offload/objstore/dir"
	"github.com/binderylog/bindery/offload/objstore/faulty"
)

// forget is what the restore of an old backup of the metadata store does to a released ledger.
func (w *world) forget(id ledger.ID) {
	w.t.Helper()
	_, v, err := w.records.Read(w.t.Context(), id)
	require.NoError(w.t, err)
	require.NoError(w.t, w.records.Remove(w.t.Context(), id, v))
}

// old makes an orphan old enough to be deleted.
func (w *world) old(o Orphan) Orphan {
	o.Modified = w.now().Add(-OrphanAge - time.Hour)
	return o
}

// TestShardsOfAStrayAreKeptWhereNoManifestIs: with 4+2, half of the targets have no copy of the manifest. Their shards are as much part of
// the stray as those beside one.
func TestShardsOfAStrayAreKeptWhereNoManifestIs(t *testing.T) {
	w, l := offloaded(t, 6, Geometry{4, 2}, ledgerSpec{sizes: even(3000, 100)})
	x := w.worker("r", nil)
	defer x.Close()
	require.NoError(t, x.Release(t.Context(), l.id, true))
	r := w.record(l.id)
	require.Len(t, r.Manifest.Targets, 3)
	w.forget(l.id)
	without := ""
	for _, p := range w.targets.Places() {
		if !contains(r.Manifest.Targets, p.Target) {
			without = p.Target
		}
	}
	for _, target := range []string{"", without} {
		list, err := x.Orphans(t.Context(), target)
		require.NoError(t, err)
		require.NotEmpty(t, list)
		for _, o := range list {
			require.True(t, o.Stray, "%s on %s", o.Key, o.Target)
			require.ErrorContains(t, x.DeleteOrphan(t.Context(), w.old(o)), "adopt it")
		}
	}
	// One copy of the manifest is enough, and one that is damaged does not stand for the others.
	w.damage(r.Manifest.Targets[0], ManifestName(r.Attempt, l.id), 100)
	list, err := x.Orphans(t.Context(), "")
	require.NoError(t, err)
	require.Len(t, list, 9)
	for _, o := range list {
		require.True(t, o.Stray, "%s on %s", o.Key, o.Target)
	}
	// Where the good ones can not be asked, nothing is deleted.
	for _, target := range r.Manifest.Targets[1:] {
		w.faults[target].Set(faulty.Always(faulty.Fail(objstore.KindUnreachable)))
	}
	list, err = x.Orphans(t.Context(), without)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.False(t, list[0].Stray)
	require.ErrorContains(t, x.DeleteOrphan(t.Context(), w.old(list[0])), "can not be told")
	w.healed()
	list, err = x.Orphans(t.Context(), r.Manifest.Targets[0])
	require.NoError(t, err)
	require.NoError(t, x.Adopt(t.Context(), list[0], []byte(testPassword)), "the other copies of the manifest are good")
	require.Len(t, w.record(l.id).Manifest.Targets, 2)
	w.requireReadable(l)
}

// TestAManifestOfANewerVersionIsNoOrphan: nor is what belongs to it.
func TestAManifestOfANewerVersionIsNoOrphan(t *testing.T) {
	w, l := offloaded(t, 1, Geometry{1, 0}, ledgerSpec{sizes: even(3000, 100)})
	x := w.worker("r", nil)
	defer x.Close()
	require.NoError(t, x.Release(t.Context(), l.id, true))
	key := ManifestName(w.record(l.id).Attempt, l.id)
	w.forget(l.id)
	require.True(t, w.stores["t1"].Damage(key, func(b []byte) []byte { b[9]++; resum(b); return b }))
	list, err := x.Orphans(t.Context(), "")
	require.NoError(t, err)
	require.Len(t, list, 2)
	for _, o := range list {
		require.ErrorIs(t, x.DeleteOrphan(t.Context(), w.old(o)), ErrVersion)
	}
	require.ErrorIs(t, x.Adopt(t.Context(), list[0], nil), ErrVersion)
}

// TestAManifestUnderAForeignNameIsNotAdopted: it is not that of the ledger that its name says.
func TestAManifestUnderAForeignNameIsNotAdopted(t *testing.T) {
	w, l := offloaded(t, 1, Geometry{1, 0}, ledgerSpec{sizes: even(10, 100)})
	x := w.worker("r", nil)
	defer x.Close()
	r := w.record(l.id)
	b := make([]byte, r.Manifest.Length)
	_, err := w.stores["t1"].GetRange(t.Context(), ManifestName(r.Attempt, l.id), 0, b)
	require.NoError(t, err)
	for _, n := range []Name{{Attempt: r.Attempt, Ledger: l.id + 1, Manifest: true}, {Attempt: AttemptID{7}, Ledger: l.id + 2, Manifest: true}} {
		_, err = w.stores["t1"].Put(t.Context(), ManifestName(n.Attempt, n.Ledger), objstore.NewBody(b), objstore.PutOptions{})
		require.NoError(t, err)
		require.ErrorContains(t, x.Adopt(t.Context(), Orphan{Target: "t1", Name: n}, nil), "no target has a good manifest")
	}
	list, err := x.Orphans(t.Context(), "")
	require.NoError(t, err)
	require.Len(t, list, 2)
	for _, o := range list {
		require.False(t, o.Stray)
		require.NoError(t, x.DeleteOrphan(t.Context(), w.old(o)))
	}
	w.requireReadable(l)
}

// TestAdoptFindsWhatRepairsMoved: the manifest still names the places of the first day.
func TestAdoptFindsWhatRepairsMoved(t *testing.T) {
	w, l := offloaded(t, 6, Geometry{2, 1}, ledgerSpec{sizes: even(3000, 100)})
	x := w.worker("r", nil)
	defer x.Close()
	require.NoError(t, x.Release(t.Context(), l.id, true))
	before := w.record(l.id)
	for i := range before.Placement {
		_, err := x.Repair(t.Context(), l.id, RepairOptions{Drain: before.Placement[i].Target})
		require.NoError(t, err)
	}
	w.janitor(x)
	after := w.record(l.id)
	for i := range after.Placement {
		require.NotZero(t, after.Placement[i].Generation)
	}
	// A backup from before the repairs: what they wrote is what is left of the ledger.
	_, v, err := w.records.Read(t.Context(), l.id)
	require.NoError(t, err)
	_, err = w.records.Write(t.Context(), l.id, before, v, LedgerCond{})
	require.NoError(t, err)
	list, err := x.Orphans(t.Context(), "")
	require.NoError(t, err)
	require.NotEmpty(t, list)
	for _, o := range list {
		require.True(t, o.Stray, "%s on %s", o.Key, o.Target)
	}
	for i := range before.Placement {
		_, err = w.stores[before.Placement[i].Target].Head(t.Context(), ShardName(before.Attempt, l.id, i, before.Placement[i].Generation))
		require.True(t, objstore.IsNotFound(err), "no shard is where the record has it")
	}
	require.ErrorContains(t, x.Adopt(t.Context(), list[0], []byte(testPassword)), "bindery offload repair", "it has a record")
	dry, err := x.Repair(t.Context(), l.id, RepairOptions{DryRun: true})
	require.NoError(t, err)
	require.Equal(t, []int{0, 1, 2}, dry.Found)
	require.Equal(t, before.Placement, w.record(l.id).Placement, "a dry run writes nothing")
	written := w.requests(objstore.OpPut, objstore.OpComplete)
	repaired, err := x.Repair(t.Context(), l.id, RepairOptions{})
	require.NoError(t, err)
	require.Equal(t, []int{0, 1, 2}, repaired.Found)
	require.Empty(t, repaired.Findings)
	require.Empty(t, repaired.Shards)
	require.Equal(t, written, w.requests(objstore.OpPut, objstore.OpComplete), "nothing has to be written anew")
	require.Equal(t, after.Placement, w.record(l.id).Placement)
	w.requireReadable(l)
	w.janitor(x)
	w.requireClean()
	list, err = x.Orphans(t.Context(), "")
	require.NoError(t, err)
	require.Empty(t, list)
	// One from before the offload.
	w.forget(l.id)
	list, err = x.Orphans(t.Context(), "")
	require.NoError(t, err)
	require.NoError(t, x.Adopt(t.Context(), list[0], []byte(testPassword)))
	require.Equal(t, after.Placement, w.record(l.id).Placement)
	w.requireReadable(l)
	w.requireClean()
}

// anew is a metadata store that knows nothing: not even which ids were given out.
func (w *world) anew() {
	w.meta = memmeta.Open("")
	w.t.Cleanup(func() { _ = w.meta.Close() })
	w.views = metadata.NewViews(w.meta, testRoot)
	w.records = NewRecords(w.views)
}

// TestALostMetadataStore: what is deleted as an orphan, however old all objects are, is nothing that an adopted ledger needs, and the id of
// that is given to no other.
func TestALostMetadataStore(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) *Targets{
		"folders": func(t *testing.T) *Targets {
			root := t.TempDir()
			var list []Target
			for i := range 6 {
				id := fmt.Sprint("t", i+1)
				s, err := dir.Open(vfs.OS(), filepath.Join(root, id), dir.Options{Create: true})
				require.NoError(t, err)
				list = append(list, Target{ID: id, Store: s})
			}
			targets, err := NewTargets(list)
			require.NoError(t, err)
			return targets
		},
		"buckets": func(t *testing.T) *Targets {
			x := newBuckets(t, false)
			t.Cleanup(x.close)
			return x.targets
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := six(t)
			w.targets = open(t)
			l := w.add(ledgerSpec{sizes: even(3000, 100)})
			x := w.worker("w", func(o *Options) { o.InlineBytes = -1 })
			require.NoError(t, x.Offload(t.Context(), l.id))
			require.NoError(t, x.Release(t.Context(), l.id, true))
			require.Len(t, w.record(l.id).Manifest.Targets, 3)
			require.NoError(t, x.Close())
			w.anew()
			w.clock = time.Now().Add(OrphanAge + time.Hour)
			x = w.worker("x", nil)
			defer x.Close()
			list, err := x.Orphans(t.Context(), "")
			require.NoError(t, err)
			require.Len(t, list, 9)
			for _, o := range list {
				require.Error(t, x.DeleteOrphan(t.Context(), o))
			}
			require.NoError(t, x.Adopt(t.Context(), list[0], []byte(testPassword)))
			w.requireReadable(l)
			require.ErrorIs(t, w.records.MayCreate(t.Context(), l.id), metadata.ErrExists)
			id, err := w.views.Ledgers.NewID(t.Context())
			require.NoError(t, err)
			require.Equal(t, l.id+1, id)
		})
	}
}
