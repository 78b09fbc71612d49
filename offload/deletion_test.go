package offload

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/memmeta"
)

// TestStatement24DeletionBesideAnOffload: a ledger that moves to the tier between the looks of whoever deletes it is deleted there.
func TestStatement24DeletionBesideAnOffload(t *testing.T) {
	for _, released := range []bool{false, true} {
		w := threeTargets(t)
		l := w.add(crashLedgers()["inline"])
		x := w.worker("w", nil)
		defer x.Close()
		begun := false
		w.meta.SetFaults(func(op memmeta.Op) memmeta.Fault {
			if op.Name == "txn" && !begun { // the deletion has looked
				begun = true
				require.NoError(t, x.Offload(t.Context(), l.id))
				if released {
					require.NoError(t, x.Release(t.Context(), l.id, true))
				}
			}
			return memmeta.Fault{}
		})
		require.NoError(t, w.records.DeleteLedger(t.Context(), l.id))
		require.Equal(t, StateDeleting, w.record(l.id).State)
		_, _, err := w.views.Ledgers.Read(t.Context(), l.id)
		require.ErrorIs(t, err, metadata.ErrNoLedger)
		require.ErrorIs(t, w.records.DeleteLedger(t.Context(), l.id), metadata.ErrNoLedger, "twice")
		w.janitor(x)
		w.requireClean()
		_, _, err = w.records.Read(t.Context(), l.id)
		require.ErrorIs(t, err, ErrNoRecord)
	}
}

// TestStatement12AnAttemptThatCameBack: the record of an attempt goes and comes back, by a write of its beginning that lands late, after
// the janitor has removed its objects: they are looked at again before the commit.
func TestStatement12AnAttemptThatCameBack(t *testing.T) {
	w := threeTargets(t)
	l := w.add(ledgerSpec{seed: 2, sizes: even(300, 1000)})
	x := w.worker("w", func(o *Options) { o.Geometry = Geometry{2, 1} })
	defer x.Close()
	record, begins, cleaned := w.records.Key(l.id), 0, false
	manifests := func() (n int) {
		for _, s := range w.stores {
			for _, key := range s.Keys() {
				if strings.HasSuffix(key, "manifest") {
					n++
				}
			}
		}
		return n
	}
	w.meta.SetFaults(func(op memmeta.Op) memmeta.Fault {
		switch {
		case op.Name == "txn" && slices.Contains(op.Keys, record):
			if begins++; begins == 1 {
				return memmeta.Fault{Outcome: memmeta.Late}
			}
		case op.Name == "get" && op.Keys[0] == record && manifests() == 2 && !cleaned: // all was read back; next is the commit
			cleaned = true
			r, v, err := w.records.Read(t.Context(), l.id)
			require.NoError(t, err)
			require.Equal(t, StateUploading, r.State)
			for _, s := range w.stores {
				for _, key := range s.Keys() {
					require.NoError(t, s.Delete(t.Context(), key))
				}
			}
			require.NoError(t, w.records.Remove(t.Context(), l.id, v))
			require.Equal(t, 1, w.meta.Tree().LandLate())
		}
		return memmeta.Fault{}
	})
	_ = x.Offload(t.Context(), l.id)
	require.True(t, cleaned)
	w.healed()
	w.requireSafe(l)
	require.NoError(t, x.Offload(t.Context(), l.id))
	w.requireReadable(l)
	require.NoError(t, x.Release(t.Context(), l.id, true))
	w.janitor(x)
	w.requireReadable(l)
	w.requireClean()
}
