package offload

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/intent"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata/memmeta"
	"github.com/binderylog/bindery/internal/vfs/memfs"
	"github.com/binderylog/bindery/offload/objstore"
	"github.com/binderylog/bindery/offload/objstore/faulty"
	"github.com/binderylog/bindery/offload/protocol"
)

// TestTwoRepairsWriteNoObjectInCommon: one has lost its lock at its last write and does not know it; another one goes on where that one
// was and is killed at its nth request. The bookies have nothing any more, and the first geometry has no parity.
func TestTwoRepairsWriteNoObjectInCommon(t *testing.T) {
	for _, g := range []Geometry{{1, 0}, {2, 1}} {
		for _, spec := range []ledgerSpec{{seed: 2, sizes: even(300, 1000)}, {seed: 3, sizes: even(30, 450_000)}} {
			step := int64(1)
			if testing.Short() && spec.seed == 3 {
				step = 6
			}
			for n, killed := int64(1), true; killed; n += step {
				killed = false
				w, l := offloaded(t, 4, g, spec)
				first := w.worker("first", func(o *Options) { o.Geometry, o.Tolerated, o.Name = g, -1, "first" })
				second := w.worker("second", func(o *Options) { o.Geometry, o.Tolerated, o.Name = g, -1, "second" })
				require.NoError(t, first.Release(t.Context(), l.id, true))
				drained, _ := w.shard(l, 0)
				record, writes := w.records.Key(l.id), 0
				w.meta.SetFaults(func(op memmeta.Op) memmeta.Fault {
					if op.Name != "txn" || !slices.Contains(op.Keys, record) {
						return memmeta.Fault{}
					}
					if writes++; writes == 2 { // the plan was the first; now all is written
						w.meta.ExpireSession()
						ctx, kill := context.WithCancel(context.Background())
						w.nth(n, faulty.Cut(), func() { killed = true; kill() })
						_, _ = second.Repair(ctx, l.id, RepairOptions{Drain: drained, Level: VerifyHead})
						kill()
						for _, f := range w.faults {
							f.Set(nil)
						}
					}
					return memmeta.Fault{}
				})
				_, _ = first.Repair(t.Context(), l.id, RepairOptions{Drain: drained, Level: VerifyHead})
				w.healed()
				require.GreaterOrEqual(t, writes, 2)
				w.requireReadable(l)
				w.janitor(second)
				w.requireReadable(l)
				w.meta.ExpireSession()
				_, err := second.Repair(t.Context(), l.id, RepairOptions{Drain: drained})
				require.NoError(t, err)
				w.janitor(second)
				w.requireReadable(l)
				w.requireClean()
				findings, err := second.Verify(t.Context(), l.id, VerifyFull)
				require.NoError(t, err)
				require.Empty(t, findings)
				require.NoError(t, errors.Join(first.Close(), second.Close()))
			}
		}
	}
}

// TestARepairEndsWithItsLock: it does not go on writing for as long as its target takes.
func TestARepairEndsWithItsLock(t *testing.T) {
	w, l := offloaded(t, 4, Geometry{2, 1}, ledgerSpec{sizes: even(300, 1000)})
	x := w.worker("r", func(o *Options) { o.Geometry = Geometry{2, 1} })
	defer x.Close()
	target, key := w.shard(l, 1)
	require.NoError(t, w.stores[target].Delete(t.Context(), key))
	writing := make(chan struct{}, 1)
	w.faults[target].Set(faulty.On(objstore.OpPut, func(faulty.Call) faulty.Fault {
		select {
		case writing <- struct{}{}:
		default:
		}
		return faulty.Hang()
	}))
	done := make(chan error, 1)
	go func() { _, err := x.Repair(t.Context(), l.id, RepairOptions{}); done <- err }()
	<-writing
	w.meta.ExpireSession()
	select {
	case err := <-done:
		require.Error(t, err)
	case <-time.After(time.Minute):
		t.Fatal("the repair goes on without its lock")
	}
	w.healed()
	_, err := x.Repair(t.Context(), l.id, RepairOptions{})
	require.NoError(t, err)
	w.janitor(x)
	w.requireReadable(l)
	w.requireClean()
}

// TestOneWorkerDoesNotGoOnTwice: the lock went with its session while the bookies did not answer; the same worker is asked again.
func TestOneWorkerDoesNotGoOnTwice(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	l := w.add(crashLedgers()["two stripes"])
	x := w.worker("w", func(o *Options) { o.Geometry = Geometry{2, 1} })
	defer x.Close()
	frozen, thaw := make(chan struct{}), make(chan struct{})
	var once atomic.Bool
	w.onRead = func(e ledger.EntryID) {
		if e == 25 && once.CompareAndSwap(false, true) {
			close(frozen)
			<-thaw
		}
	}
	done := make(chan error, 1)
	go func() { done <- x.Offload(context.Background(), l.id) }()
	<-frozen
	w.meta.ExpireSession()
	err := x.Offload(t.Context(), l.id)
	var s *StoppedError
	require.ErrorAs(t, err, &s, "its first call is still on its way out")
	require.Equal(t, protocol.Busy, s.Reason)
	close(thaw)
	require.ErrorIs(t, <-done, errLockLost)
	require.NoError(t, x.Offload(t.Context(), l.id))
	require.EqualValues(t, 1, w.record(l.id).Number, "the same attempt")
	w.janitor(x)
	w.requireReadable(l)
	w.requireClean()
}

// TestAnUploadBegunAfterTheCommitIsAborted: the request that creates it was given up, sent again, and arrives when nobody expects it.
func TestAnUploadBegunAfterTheCommitIsAborted(t *testing.T) {
	w := newWorld(t, "a", "b", "c", "d")
	var list []Target
	for _, p := range w.targets.Places() {
		list = append(list, Target{ID: p.Target, Domain: p.Domain, Store: objstore.NewTarget(w.faults[p.Target], objstore.TargetOptions{ID: p.Target, RetryBase: time.Millisecond})})
	}
	var err error
	w.targets, err = NewTargets(list)
	require.NoError(t, err)
	late := func() {
		for _, f := range w.faults {
			f.Set(faulty.On(objstore.OpCreate, faulty.Nth(1, faulty.Late())))
		}
	}
	arrive := func() (n int) {
		for _, f := range w.faults {
			n += f.Release()
		}
		return n
	}
	l := w.add(crashLedgers()["two stripes"])
	x := w.worker("w", func(o *Options) { o.Geometry = Geometry{2, 1} })
	defer x.Close()
	late()
	require.NoError(t, x.Offload(t.Context(), l.id))
	require.Equal(t, 3, arrive())
	w.janitor(x)
	w.requireClean()

	target, key := w.shard(l, 1)
	require.NoError(t, w.stores[target].Delete(t.Context(), key))
	late()
	_, err = x.Repair(t.Context(), l.id, RepairOptions{})
	require.NoError(t, err)
	require.Equal(t, 1, arrive())
	w.janitor(x)
	w.requireClean()
	w.requireReadable(l)
}

// TestIntentsFromAnOlderCopySealUnderNoEpochTwice: two runs that go on from the same notes have no nonce in common.
func TestIntentsFromAnOlderCopySealUnderNoEpochTwice(t *testing.T) {
	keys := &Keys{Current: "k", ByID: map[string][]byte{"k": make([]byte, 32)}}
	sealed := func(o *Options) { o.Keys, o.Encryption = keys, EncryptAESGCM }
	w, l := killedAfterStripes(t, sealed)
	log, err := intent.OpenVFS(w.fs, "/w", intent.Options{})
	require.NoError(t, err)
	notes := log.Pending()
	require.NoError(t, log.Close())
	epochs := map[uint32]bool{0: true}
	for run := range 4 {
		w.fs = memfs.New()
		log, err := intent.OpenVFS(w.fs, "/w", intent.Options{})
		require.NoError(t, err)
		for _, r := range notes {
			_, err := log.Append(t.Context(), r.Data)
			require.NoError(t, err)
		}
		require.NoError(t, log.Close())
		w.readErr = errors.New("bookies are down")
		if run == 3 {
			w.readErr = nil
		}
		x := w.worker("w", sealed)
		err = x.Offload(t.Context(), l.id)
		if run < 3 {
			require.Error(t, err)
			epoch := x.notes.of(l.id).epoch
			require.False(t, epochs[epoch], "epoch %d was used before", epoch)
			epochs[epoch] = true
		} else {
			require.NoError(t, err)
		}
		require.NoError(t, x.Close())
	}
	h, err := w.reader(func(o *ReaderOptions) { o.Keys = keys }).Open(t.Context(), l.id)
	require.NoError(t, err)
	n := 0
	for e, err := range h.Entries(t.Context(), 0, h.LastEntry()) {
		require.NoError(t, err)
		require.Equal(t, l.bodies[n], e.AppendBody(nil, l.id))
		n++
	}
	require.Equal(t, len(l.bodies), n)
}
