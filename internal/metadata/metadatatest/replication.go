package metadatatest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
)

func testReplicationMarks(t *testing.T, c Cluster) {
	ctx, root := contextOf(t), freshDir()
	s := open(t, c)
	r := metadata.NewReplication(s, root)
	require.NoError(t, r.Init(ctx))
	require.NoError(t, r.Init(ctx), "what is there is left")
	kv, err := s.Get(ctx, root+"/underreplication/LAYOUT")
	require.NoError(t, err)
	require.Equal(t, "type: \"BASIC\"\nversion: 1\n", string(kv.Value))

	at := time.UnixMilli(1700000000123)
	for _, id := range []ledger.ID{42, 4294967301, 1<<63 - 1} {
		changed, err := r.Mark(ctx, id, []ledger.BookieID{"b1:3181"}, at)
		require.NoError(t, err)
		require.True(t, changed)
	}
	key := root + "/underreplication/ledgers/0000/0000/0000/002a/urL0000000042"
	require.Equal(t, key, r.MarkKey(42))
	kv, err = s.Get(ctx, key)
	require.NoError(t, err)
	require.Equal(t, "replica: \"b1:3181\"\nctime: 1700000000123\n", string(kv.Value))
	require.Equal(t, root+"/underreplication/ledgers/7fff/ffff/ffff/ffff/urL9223372036854775807", r.MarkKey(1<<63-1))

	changed, err := r.Mark(ctx, 42, []ledger.BookieID{"b1:3181"}, at.Add(time.Second))
	require.NoError(t, err)
	require.False(t, changed, "the same bookie again changes nothing, not even the version")
	changed, err = r.Mark(ctx, 42, []ledger.BookieID{"b2:3181", "b1:3181"}, at.Add(time.Second))
	require.NoError(t, err)
	require.True(t, changed)
	m, err := r.Get(ctx, 42)
	require.NoError(t, err)
	require.Equal(t, []ledger.BookieID{"b1:3181", "b2:3181"}, m.Replicas)
	require.Equal(t, at.Add(time.Second).UnixMilli(), m.CTime)

	var ids []ledger.ID
	for m, err := range r.All(ctx, -1) {
		require.NoError(t, err)
		ids = append(ids, m.Ledger)
	}
	require.Equal(t, []ledger.ID{42, 4294967301, 1<<63 - 1}, ids)
	ids = nil
	for m, err := range r.All(ctx, 42) {
		require.NoError(t, err)
		ids = append(ids, m.Ledger)
	}
	require.Equal(t, []ledger.ID{4294967301, 1<<63 - 1}, ids)
}

func testReplicationLocks(t *testing.T, c Cluster) {
	ctx, root := contextOf(t), freshDir()
	s1, s2 := open(t, c), open(t, c)
	r1, r2 := metadata.NewReplication(s1, root), metadata.NewReplication(s2, root)
	_, err := r1.Mark(ctx, 7, []ledger.BookieID{"b1"}, time.UnixMilli(5))
	require.NoError(t, err)

	lock, ok, err := r1.Lock(ctx, 7, "worker-1")
	require.NoError(t, err)
	require.True(t, ok)
	_, ok, err = r2.Lock(ctx, 7, "worker-2")
	require.NoError(t, err)
	require.False(t, ok, "P3: one holder at most")
	holder, err := r2.Holder(ctx, 7)
	require.NoError(t, err)
	require.Equal(t, "worker-1", holder)
	held, err := r2.Locked(ctx)
	require.NoError(t, err)
	require.Equal(t, map[ledger.ID]string{7: "worker-1"}, held)

	// R6: the mark is added to while the ledger is copied.
	m, err := r1.Get(ctx, 7)
	require.NoError(t, err)
	_, err = r2.Mark(ctx, 7, []ledger.BookieID{"b2"}, time.UnixMilli(6))
	require.NoError(t, err)
	cleared, err := r1.Clear(ctx, m, lock)
	require.NoError(t, err)
	require.False(t, cleared, "the mark has changed and stays")
	m, err = r1.Get(ctx, 7)
	require.NoError(t, err)
	require.Equal(t, []ledger.BookieID{"b1", "b2"}, m.Replicas)

	// A worker that lost its lock clears nothing, also when it has the lock anew, or another worker has.
	require.NoError(t, lock.Release(ctx))
	_, err = r1.Clear(ctx, m, lock)
	require.ErrorIs(t, err, metadata.ErrLockLost)
	other, ok, err := r2.Lock(ctx, 7, "worker-2")
	require.NoError(t, err)
	require.True(t, ok)
	_, err = r1.Clear(ctx, m, lock)
	require.ErrorIs(t, err, metadata.ErrLockLost, "another holder's lock is not ours")
	cleared, err = r2.Clear(ctx, m, other)
	require.NoError(t, err)
	require.True(t, cleared)
	_, err = r1.Get(ctx, 7)
	require.ErrorIs(t, err, metadata.ErrNotFound)
	cleared, err = r2.Clear(ctx, m, other)
	require.NoError(t, err)
	require.False(t, cleared, "gone already")

	release, ok, err := r1.Locker("gc")(ctx, 7)
	require.NoError(t, err)
	require.False(t, ok, "P7: no collector while a worker has the ledger")
	require.Nil(t, release)
	require.NoError(t, s2.Close())
	gone(t, s1, r1.LockKey(7))
	release, ok, err = r1.Locker("gc")(ctx, 7)
	require.NoError(t, err)
	require.True(t, ok, "the lock of a dead worker goes with its session")
	release()
	holder, err = r1.Holder(ctx, 7)
	require.NoError(t, err)
	require.Empty(t, holder)
}

func testReplicationSettings(t *testing.T, c Cluster) {
	ctx, root := contextOf(t), freshDir()
	s := open(t, c)
	r := metadata.NewReplication(s, root)
	on, err := r.Enabled(ctx)
	require.NoError(t, err)
	require.True(t, on)
	require.ErrorIs(t, r.SetEnabled(ctx, true), metadata.ErrSwitched)
	require.NoError(t, r.SetEnabled(ctx, false))
	_, err = s.Get(ctx, root+"/underreplication/disable")
	require.NoError(t, err)
	require.ErrorIs(t, r.SetEnabled(ctx, false), metadata.ErrSwitched)
	require.NoError(t, r.SetEnabled(ctx, true))
	on, err = r.Enabled(ctx)
	require.NoError(t, err)
	require.True(t, on)

	_, err = r.Delay(ctx)
	require.ErrorIs(t, err, metadata.ErrNotFound)
	require.NoError(t, r.SetDelay(ctx, 10*time.Minute, true))
	require.NoError(t, r.SetDelay(ctx, time.Minute, true), "a stored delay wins over a configured one")
	d, err := r.Delay(ctx)
	require.NoError(t, err)
	require.Equal(t, 10*time.Minute, d)
	kv, err := s.Get(ctx, root+"/underreplication/lostBookieRecoveryDelay")
	require.NoError(t, err)
	require.Equal(t, "600", string(kv.Value))

	for kind, name := range map[metadata.CheckKind]string{metadata.CheckLedgers: "checkallledgersctime",
		metadata.CheckPlacement: "placementpolicycheckctime", metadata.CheckReplicas: "replicascheckctime"} {
		at, err := r.Checked(ctx, kind)
		require.NoError(t, err)
		require.True(t, at.IsZero())
		require.NoError(t, r.SetChecked(ctx, kind, time.UnixMilli(300)))
		at, err = r.Checked(ctx, kind)
		require.NoError(t, err)
		require.Equal(t, int64(300), at.UnixMilli())
		kv, err := s.Get(ctx, root+"/underreplication/"+name)
		require.NoError(t, err)
		require.Equal(t, []byte{0x08, 0xac, 0x02}, kv.Value)
	}

	require.NoError(t, r.SetDraining(ctx, "b1:3181", true, time.Unix(0, 0)))
	ids, err := r.Draining(ctx)
	require.NoError(t, err)
	require.Equal(t, []ledger.BookieID{"b1:3181"}, ids)
	require.NoError(t, r.SetDraining(ctx, "b1:3181", false, time.Unix(0, 0)))
	ids, err = r.Draining(ctx)
	require.NoError(t, err)
	require.Empty(t, ids)
}

// testElection: the first candidate is elected, the second takes over when the first one's session ends.
func testElection(t *testing.T, c Cluster) {
	ctx, root := contextOf(t), freshDir()
	s1, s2 := open(t, c), open(t, c)
	e1, e2 := metadata.NewElection(s1, root), metadata.NewElection(s2, root)
	name, err := e1.Current(ctx)
	require.NoError(t, err)
	require.Empty(t, name)
	won, err := e1.Campaign(ctx, "bk1:3181")
	require.NoError(t, err)
	name, err = e2.Current(ctx)
	require.NoError(t, err)
	require.Equal(t, "bk1:3181", name)

	second, cancel := context.WithCancel(ctx)
	defer cancel()
	elected := make(chan *metadata.Elected, 1)
	go func() {
		w, _ := e2.Campaign(second, "bk2:3181")
		elected <- w
	}()
	select {
	case <-elected:
		t.Fatal("two are elected")
	case <-won.Done():
		t.Fatal("the office was lost")
	case <-time.After(100 * time.Millisecond):
	}
	require.NoError(t, s1.Close())
	select {
	case <-won.Done():
	case <-time.After(patience):
		t.Fatal("the first one does not notice")
	}
	var w *metadata.Elected
	select {
	case w = <-elected:
		require.NotNil(t, w)
	case <-time.After(patience):
		t.Fatal("nobody takes over")
	}
	name, err = e2.Current(ctx)
	require.NoError(t, err)
	require.Equal(t, "bk2:3181", name)
	require.NoError(t, w.Resign(ctx))
	select {
	case <-w.Done():
	case <-time.After(patience):
		t.Fatal("resigned, and still in office")
	}
	name, err = e2.Current(ctx)
	require.NoError(t, err)
	require.Empty(t, name)
}

// RunElection runs the test of the auditors' election alone, for a store that elects in another way as well.
func RunElection(t *testing.T, c Cluster) { testElection(t, c) }
