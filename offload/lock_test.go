package offload

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata/memmeta"
	"github.com/binderylog/bindery/offload/protocol"
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

// TestWhoHoldsALockIsSaid, and what to do then; who waits for it goes on when it is free.
func TestWhoHoldsALockIsSaid(t *testing.T) {
	w := threeTargets(t)
	l := w.add(ledgerSpec{sizes: even(100, 100)})
	held, ok, err := NewRecords(w.views).Lock(t.Context(), l.id, "host-a:17")
	require.NoError(t, err)
	require.True(t, ok)
	x := w.worker("x", nil)
	_, rerr := x.Repair(t.Context(), l.id, RepairOptions{})
	for _, err := range []error{x.Offload(t.Context(), l.id), rerr} {
		var s *StoppedError
		require.ErrorAs(t, err, &s)
		require.Equal(t, protocol.Busy, s.Reason)
		require.Equal(t, "host-a:17", s.Holder)
		require.ErrorContains(t, err, "another attempt is under way, by worker host-a:17: let it finish; if it was killed, try again in half a minute")
	}
	require.NoError(t, x.Close())

	var told []string
	patient := w.worker("y", func(o *Options) {
		o.LockWait = time.Hour
		o.Waiting = func(id ledger.ID, holder string) {
			require.Equal(t, l.id, id)
			told = append(told, holder)
			time.AfterFunc(2*lockRetry, func() { held.Release(context.Background()) })
		}
	})
	defer patient.Close()
	require.NoError(t, patient.Offload(t.Context(), l.id))
	require.Equal(t, []string{"host-a:17"}, told)
	w.requireReadable(l)

	again, ok, err := NewRecords(w.views).Lock(t.Context(), l.id, "host-b:3")
	require.NoError(t, err)
	require.True(t, ok)
	ctx, cancel := context.WithCancel(t.Context())
	patient.o.Waiting = func(ledger.ID, string) { cancel() }
	_, err = patient.Repair(ctx, l.id, RepairOptions{})
	require.ErrorIs(t, err, context.Canceled, "an interrupted wait ends")
	again.Release(t.Context())
}
