package memmeta_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/memmeta"
)

// TestLocksInDoubt: a replication lock whose creation or release had no clear answer does not keep others from the ledger for
// as long as its session lasts.
func TestLocksInDoubt(t *testing.T) {
	fault := func(f memmeta.Fault) func(memmeta.Op) memmeta.Fault {
		return func(op memmeta.Op) memmeta.Fault {
			if op.Name == "txn" {
				return f
			}
			return memmeta.Fault{}
		}
	}
	away := errors.New("away")
	for name, trouble := range map[string]func(t *testing.T, tree *memmeta.Tree, s *memmeta.Store, r *metadata.Replication){
		"its creation lands late": func(t *testing.T, tree *memmeta.Tree, s *memmeta.Store, r *metadata.Replication) {
			s.SetFaults(fault(memmeta.Fault{Outcome: memmeta.Late}))
			_, ok, err := r.Lock(t.Context(), 7, "first")
			require.NoError(t, err)
			require.False(t, ok)
			s.SetFaults(nil)
			_, err = r.Locked(t.Context()) // nothing is there yet: the doubt stays
			require.NoError(t, err)
			require.Equal(t, 1, tree.LandLate())
		},
		"its creation is not seen to have happened": func(t *testing.T, _ *memmeta.Tree, s *memmeta.Store, r *metadata.Replication) {
			s.SetFaults(func(op memmeta.Op) memmeta.Fault {
				switch op.Name {
				case "txn":
					return memmeta.Fault{Outcome: memmeta.Applied}
				case "get":
					return memmeta.Fault{Err: away}
				}
				return memmeta.Fault{}
			})
			_, ok, err := r.Lock(t.Context(), 7, "first")
			require.ErrorIs(t, err, metadata.ErrUnavailable)
			require.False(t, ok)
		},
		"its release fails": func(t *testing.T, _ *memmeta.Tree, s *memmeta.Store, r *metadata.Replication) {
			l, ok, err := r.Lock(t.Context(), 7, "first")
			require.NoError(t, err)
			require.True(t, ok)
			s.SetFaults(fault(memmeta.Fault{Err: away}))
			require.ErrorIs(t, l.Release(t.Context()), metadata.ErrUnavailable)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tree := memmeta.NewTree()
				s, other := tree.Open(), tree.Open()
				defer func() { _, _ = s.Close(), other.Close() }()
				r1, r2 := metadata.NewReplication(s, "/ledgers"), metadata.NewReplication(other, "/ledgers")
				trouble(t, tree, s, r1)
				s.SetFaults(nil)
				_, ok, err := r2.Lock(t.Context(), 7, "second")
				require.NoError(t, err)
				require.False(t, ok, "the first one's keys are in the way")
				time.Sleep(2 * time.Second)
				held, err := r1.Locked(t.Context())
				require.NoError(t, err)
				require.Empty(t, held)
				l, ok, err := r2.Lock(t.Context(), 7, "second")
				require.NoError(t, err)
				require.True(t, ok)
				time.Sleep(2 * time.Second)
				held, err = r1.Locked(t.Context())
				require.NoError(t, err)
				require.Len(t, held, 1, "what is not in doubt is left alone")
				require.NoError(t, l.Release(t.Context()))
			})
		})
	}
}

// TestOwnOfficeIsNotWaitedFor: an auditor that could not give up its office stands again, does not see at once whose the office
// is, and is elected all the same.
func TestOwnOfficeIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memmeta.NewTree().Open()
		defer func() { _ = s.Close() }()
		e := metadata.NewElection(s, "/ledgers")
		first, cancel := context.WithCancel(t.Context())
		won, err := e.Campaign(first, "a")
		require.NoError(t, err)
		away := memmeta.Fault{Err: errors.New("away")}
		s.SetFaults(func(memmeta.Op) memmeta.Fault { return away })
		require.Error(t, won.Resign(t.Context()))
		cancel()
		gets := 0
		s.SetFaults(func(op memmeta.Op) memmeta.Fault {
			if op.Name == "get" {
				if gets++; gets == 1 {
					return away
				}
			}
			return memmeta.Fault{}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = e.Campaign(ctx, "a")
		require.NoError(t, err)
	})
}
