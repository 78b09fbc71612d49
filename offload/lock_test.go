package offload

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/metadata/memmeta"
)

// TestLocksInDoubt: a lock that landed late, and one that could not be given back, do not stand in the way as long as their session lives.
func TestLocksInDoubt(t *testing.T) {
	w := threeTargets(t)
	lock := func(r *Records) (*Lock, bool, error) { return r.Lock(context.Background(), 7, "w") }
	other := NewRecords(w.views)

	w.meta.SetFaults(func(op memmeta.Op) memmeta.Fault {
		if op.Name == "txn" {
			return memmeta.Fault{Outcome: memmeta.Late}
		}
		return memmeta.Fault{}
	})
	_, ok, err := lock(w.records)
	require.Error(t, err)
	require.False(t, ok)
	w.healed()
	require.Equal(t, 1, w.meta.Tree().LandLate())
	_, ok, err = lock(other)
	require.NoError(t, err)
	require.False(t, ok, "for others it is somebody's")
	l, ok, err := lock(w.records)
	require.NoError(t, err)
	require.True(t, ok)
	_, ok, err = lock(w.records)
	require.NoError(t, err)
	require.False(t, ok, "it is held")

	w.meta.SetFaults(func(memmeta.Op) memmeta.Fault { return memmeta.Fault{Err: errors.New("down")} })
	l.Release(context.Background())
	w.healed()
	_, ok, err = lock(other)
	require.NoError(t, err)
	require.False(t, ok)
	l, ok, err = lock(w.records)
	require.NoError(t, err)
	require.True(t, ok)
	l.Release(context.Background())
	_, ok, err = lock(other)
	require.NoError(t, err)
	require.True(t, ok)
}
