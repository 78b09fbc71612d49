package bookie

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/memmeta"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/wire"
)

// forgetIDs makes a store forget that ids were drawn, as one that was restored from a backup does.
func forgetIDs(t *testing.T, s *memmeta.Store, drawn int) {
	t.Helper()
	ctx := context.Background()
	require.NoError(t, s.Delete(ctx, "/ledgers/idgen", metadata.Any))
	for range drawn {
		_, err := s.Sequence(ctx, "/ledgers/idgen/ID-")
		require.NoError(t, err)
	}
}

func TestCheckStore(t *testing.T) {
	ctx := context.Background()
	h := newHome(t)
	h.mustPrepare()
	i := h.mustOpen()
	nothing := func(from, to int64) (int64, error) {
		require.Less(t, from, to)
		return -1, nil
	}
	draw := func(n int) (last ledger.ID) {
		for range n {
			var err error
			last, err = h.o.Views.Ledgers.NewID(ctx)
			require.NoError(t, err)
		}
		return last
	}
	require.NoError(t, i.CheckStore(ctx))
	draw(20)
	require.NoError(t, i.CheckStore(ctx))
	require.NoError(t, i.CheckStore(ctx))

	forgetIDs(t, h.store, 15)
	require.ErrorIs(t, i.CheckStore(ctx), ErrStoreRolledBack)
	draw(100) // nobody could tell by the ids any more
	require.ErrorIs(t, i.CheckStore(ctx), ErrStoreRolledBack)
	require.NoError(t, i.Close())
	i = h.mustOpen()
	require.ErrorIs(t, i.CheckStore(ctx), ErrStoreRolledBack, "it is remembered")
	_, err := i.BeginGCPass(ctx)
	require.ErrorIs(t, err, ErrStoreRolledBack)
	require.NoError(t, i.AdvanceIDs(ctx, nothing))
	require.ErrorIs(t, i.CheckStore(ctx), ErrStoreRolledBack)
	require.NoError(t, i.AcceptRollback(ctx))
	require.NoError(t, i.CheckStore(ctx))
	_, err = i.BeginGCPass(ctx)
	require.NoError(t, err)

	// Ids that are known, or that ledgers here have since the last look, are not given out again; what callers chose far away
	// is no matter of the generator.
	forgetIDs(t, h.store, 3)
	require.NoError(t, i.AdvanceIDs(ctx, nothing))
	require.Equal(t, ledger.ID(115), draw(1), "115 had been drawn")
	require.NoError(t, i.AdvanceIDs(ctx, func(from, to int64) (int64, error) {
		require.Equal(t, int64(115), from)
		require.Equal(t, int64(115+idsAhead), to)
		return 200, nil
	}))
	require.Equal(t, ledger.ID(201), draw(1))

	// One damaged note is outvoted, and written again.
	require.NoError(t, i.CheckStore(ctx))
	require.NoError(t, vfs.WriteFileAtomic(h.fs, "/data/l1/current/IDS", []byte("ids 7\n")))
	require.NoError(t, i.CheckStore(ctx))
	b, err := vfs.ReadFile(h.fs, "/data/l1/current/IDS")
	require.NoError(t, err)
	require.Equal(t, string(encodeIDs(202)), string(b))

	// A store that can not be reached has forgotten nothing.
	h.store.SetFaults(func(memmeta.Op) memmeta.Fault { return memmeta.Fault{Err: os.ErrDeadlineExceeded} })
	err = i.CheckStore(ctx)
	require.ErrorIs(t, err, metadata.ErrUnavailable)
	require.NotErrorIs(t, err, ErrStoreRolledBack)
	h.store.SetFaults(nil)
}

// TestStoreRolledBack: a bookie under which the metadata store goes back in time takes no normal adds, also after a restart,
// and the ids of ledgers that it knows are not given out again. An operator ends that.
func TestStoreRolledBack(t *testing.T) {
	ctx := context.Background()
	s := newSite(t)
	s.mod = func(o *Options) { o.StoreCheckInterval = 5 * time.Millisecond }
	create := func() int64 {
		id, err := s.views.Ledgers.NewID(ctx)
		require.NoError(t, err)
		_, err = s.views.Ledgers.Create(ctx, id, &ledger.Metadata{
			FormatVersion: 3, Ensemble: 1, WriteQuorum: 1, AckQuorum: 1, State: ledger.StateOpen, LastEntry: -1,
			Fragments: []ledger.Fragment{{First: 0, Bookies: []ledger.BookieID{"b1"}}}, Digest: ledger.DigestCRC32C, HasPassword: true,
		})
		require.NoError(t, err)
		return int64(id)
	}
	b := s.start()
	c := s.dial(b)
	last := int64(-1)
	for range 30 {
		last = create()
		c.add(last, 0, "an entry of the old ledger")
	}
	s.stop(b)

	var lost []ledger.ID
	for id := ledger.ID(10); int64(id) <= last; id++ { // the backup had ten ledgers
		require.NoError(t, s.views.Ledgers.Delete(ctx, id, metadata.Any))
		lost = append(lost, id)
	}
	forgetIDs(t, s.store, 10)
	check := func(b *Bookie) {
		s.eventuallyRegistered(true)
		r := addReq(wire.V2, 3, 1, 0, "x")
		require.Equal(t, wire.ReadOnly, s.dial(b).do(r).Code)
		require.Contains(t, b.state.get().Text, "restored from an older backup")
		require.Equal(t, "an entry of the old ledger", string(s.dial(b).read(wire.V3, last, 0).Body[36:]), "nothing is deleted")
	}
	b = s.start()
	check(b)
	s.stop(b)
	b = s.start()
	check(b)
	require.Equal(t, 1, strings.Count(s.logs.String(), "takes no new entries")-1, "once in each process")
	require.NoError(t, gcView{b}.AcceptRollback(ctx))
	s.eventuallyRegistered(false)
	fresh := create()
	require.Greater(t, fresh, last, "whoever draws it")
	s.dial(b).add(fresh, 0, "new")
	require.Equal(t, wire.NoEntry, s.dial(b).read(wire.V3, fresh, 1).Code)
	require.NotContains(t, lost, ledger.ID(fresh))

	// It is noticed while it runs, too, and ended by a newer backup.
	stored, _, err := s.views.Incarnations.GCCounter(ctx, "b1")
	require.NoError(t, err)
	_, err = b.identity.BeginGCPass(ctx)
	require.NoError(t, err)
	_, err = s.views.Incarnations.SetGCCounter(ctx, "b1", stored, metadata.Any)
	require.NoError(t, err)
	s.eventuallyRegistered(true)
	_, err = s.views.Incarnations.SetGCCounter(ctx, "b1", stored+1, metadata.Any)
	require.NoError(t, err)
	s.eventuallyRegistered(false)
}

// TestLockLeftByTheCollector: a replication lock that the collector could not give back goes soon, though nothing takes another
// one in this process; until then no worker could copy the ledger.
func TestLockLeftByTheCollector(t *testing.T) {
	ctx := context.Background()
	s := newSite(t)
	s.mod = func(o *Options) { o.StoreCheckInterval = 5 * time.Millisecond }
	b := s.start()
	release, ok, err := s.views.Replication.Locker("b1")(ctx, 7)
	require.NoError(t, err)
	require.True(t, ok)
	s.store.SetFaults(func(op memmeta.Op) memmeta.Fault {
		if op.Name == "txn" {
			return memmeta.Fault{Err: os.ErrDeadlineExceeded}
		}
		return memmeta.Fault{}
	})
	release()
	s.store.SetFaults(nil)
	require.Eventually(t, func() bool {
		holder, err := s.views.Replication.Holder(ctx, 7)
		return err == nil && holder == ""
	}, time.Minute, 10*time.Millisecond)
	s.stop(b)
}

func FuzzDecodeIDs(f *testing.F) {
	f.Add(encodeIDs(0))
	f.Add(encodeIDs(1 << 62))
	f.Add([]byte("ids -1\ncrc32c 00000000\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := decodeIDs("IDS", b)
		if again, aerr := decodeIDs("IDS", encodeIDs(n)); err == nil && (aerr != nil || again != n || n < 0) {
			t.Fatalf("%q is %d, and again %d (%v)", b, n, again, aerr)
		}
	})
}
