package offload

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/memmeta"
	"github.com/binderylog/bindery/offload/objstore"
	"github.com/binderylog/bindery/offload/objstore/faulty"
)

// crashLedgers are one ledger in its manifest, one of a stripe, one of two.
func crashLedgers() map[string]ledgerSpec {
	return map[string]ledgerSpec{
		"inline":      {seed: 1, sizes: even(20, 100)},
		"one stripe":  {seed: 2, sizes: even(300, 1000)},
		"two stripes": {seed: 3, sizes: even(30, 450_000)},
	}
}

// every calls all targets' requests by one count, and does something to the nth.
func (w *world) nth(n int64, f faulty.Fault, then func()) {
	var count atomic.Int64
	for _, s := range w.faults {
		s.Set(func(faulty.Call) faulty.Fault {
			if count.Add(1) == n {
				then()
				return f
			}
			return faulty.Fault{}
		})
	}
}

func (w *world) healed() {
	for _, s := range w.faults {
		s.Set(nil)
	}
	w.meta.SetFaults(nil)
}

// requireSafe says that the ledger is on the bookies or in the tier.
func (w *world) requireSafe(l *testLedger) {
	w.t.Helper()
	if _, _, err := w.views.Ledgers.Read(context.Background(), l.id); err == nil {
		return
	}
	require.Equal(w.t, StateReleased, w.record(l.id).State)
	w.requireReadable(l)
}

// recovered lets a worker start after a crash, the same or another one, and requires that all ends well.
func (w *world) recovered(l *testLedger, dir string) {
	w.t.Helper()
	w.requireSafe(l)
	x := w.worker(dir, func(o *Options) { o.Geometry = Geometry{2, 1} })
	defer x.Close()
	for _, s := range w.faults {
		s.Release() // what was late arrives now
	}
	require.NoError(w.t, x.Offload(w.t.(*testing.T).Context(), l.id))
	w.requireReadable(l)
	require.NoError(w.t, x.Release(context.Background(), l.id, true))
	w.requireSafe(l)
	w.janitor(x)
	w.requireReadable(l)
	w.requireClean()
	require.Empty(w.t, x.Unfinished())
}

func threeTargets(t testing.TB) *world { return newWorld(t, "a", "b", "c") }

func TestStatement12And13KilledAtEveryRequest(t *testing.T) {
	for name, spec := range crashLedgers() {
		step := int64(1)
		if testing.Short() && name == "two stripes" {
			step = 5
		}
		t.Run(name, func(t *testing.T) {
			for n := int64(1); ; n += step {
				happened := false
				for _, dir := range []string{"w", "other"} {
					w := threeTargets(t)
					l := w.add(spec)
					x := w.worker("w", func(o *Options) { o.Geometry = Geometry{2, 1} })
					ctx, kill := context.WithCancel(t.Context())
					effect := []faulty.Fault{faulty.Hang(), faulty.LostReply(), faulty.Late()}[n%3]
					w.nth(n, effect, func() { happened = true; kill() })
					_ = x.Offload(ctx, l.id)
					kill()
					require.NoError(t, x.Close())
					w.healed()
					w.recovered(l, dir)
				}
				if !happened {
					require.Greater(t, n, int64(8))
					return
				}
			}
		})
	}
}

func TestStatement12RequestsFail(t *testing.T) {
	for name, spec := range crashLedgers() {
		step := int64(1)
		if testing.Short() && name == "two stripes" {
			step = 4
		}
		t.Run(name, func(t *testing.T) {
			for n := int64(1); ; n += step {
				w := threeTargets(t)
				l := w.add(spec)
				x := w.worker("w", func(o *Options) { o.Geometry = Geometry{2, 1} })
				happened := false
				effect := []faulty.Fault{
					faulty.Fail(objstore.KindThrottled), faulty.Cut(), faulty.LostReply(), faulty.Late(), faulty.Fail(objstore.KindDenied), faulty.Fail(objstore.KindChecksum),
				}[n%6]
				w.nth(n, effect, func() { happened = true })
				_ = x.Offload(t.Context(), l.id) // with or without an error: the next try makes it whole
				require.NoError(t, x.Close())
				w.healed()
				w.recovered(l, "w")
				if !happened {
					return
				}
			}
		})
	}
}

func TestStatement12And16MetadataFails(t *testing.T) {
	for name, spec := range crashLedgers() {
		if name == "two stripes" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			for n := int64(1); ; n++ {
				happened := false
				for _, fault := range []memmeta.Fault{{Err: errors.New("down")}, {Outcome: memmeta.Applied}, {Outcome: memmeta.Dropped}, {Outcome: memmeta.Late}} {
					w := threeTargets(t)
					l := w.add(spec)
					x := w.worker("w", func(o *Options) { o.Geometry = Geometry{2, 1} })
					var count int64
					w.meta.SetFaults(func(op memmeta.Op) memmeta.Fault {
						if fault.Outcome != 0 && op.Name != "txn" {
							return memmeta.Fault{}
						}
						if count++; count == n {
							happened = true
							return fault
						}
						return memmeta.Fault{}
					})
					_ = x.Offload(t.Context(), l.id)
					rerr := x.Release(t.Context(), l.id, true)
					require.NoError(t, x.Close())
					w.healed()
					w.requireSafe(l)
					if rerr == nil {
						require.Equal(t, StateReleased, w.record(l.id).State)
					}
					w.meta.Tree().LandLate()
					w.meta.ExpireSession() // what an unclear lock left goes with its session
					w.requireSafe(l)
					w.recovered(l, "w")
				}
				if !happened {
					require.Greater(t, n, int64(4))
					return
				}
			}
		})
	}
}

func TestStatement16StoreDownForAnHour(t *testing.T) {
	w := threeTargets(t)
	l := w.add(ledgerSpec{sizes: even(300, 1000)})
	x := w.worker("w", nil)
	defer x.Close()
	w.meta.SetFaults(func(op memmeta.Op) memmeta.Fault {
		if len(w.stores["t1"].Keys()) > 0 { // from the first object on
			return memmeta.Fault{Err: errors.New("down")}
		}
		return memmeta.Fault{}
	})
	require.Error(t, x.Offload(t.Context(), l.id))
	_, err := x.Clean(t.Context())
	require.ErrorIs(t, err, metadata.ErrUnavailable)
	held := len(w.stores["t1"].Keys())
	require.Positive(t, held)
	w.advance(time.Hour)
	_, _ = x.Clean(t.Context())
	require.Len(t, w.stores["t1"].Keys(), held, "nothing is deleted meanwhile")
	w.healed()
	w.meta.ExpireSession()
	require.NoError(t, x.Offload(t.Context(), l.id))
	w.janitor(x)
	w.requireReadable(l)
	w.requireClean()
}

func TestStatement17LosingTheIntentsCostsWorkOnly(t *testing.T) {
	for n := int64(1); n < 40; n += 6 {
		w := threeTargets(t)
		l := w.add(crashLedgers()["two stripes"])
		x := w.worker("w", nil)
		ctx, kill := context.WithCancel(t.Context())
		w.nth(n, faulty.Hang(), kill)
		_ = x.Offload(ctx, l.id)
		kill()
		require.NoError(t, x.Close())
		w.healed()
		w.recovered(l, fmt.Sprintf("fresh%d", n))
	}
}

// killedAfterStripes runs an offload of four stripes of 1+1 and kills it when the third one's first part is sent.
func killedAfterStripes(t *testing.T, change func(*Options)) (*world, *testLedger) {
	t.Helper()
	w := newWorld(t, "a", "b")
	l := w.add(ledgerSpec{sizes: even(50, 450_000), text: true})
	x := w.worker("w", func(o *Options) { o.InFlight = 1; change(o) })
	ctx, kill := context.WithCancel(t.Context())
	for _, s := range w.faults {
		s.Set(faulty.On(objstore.OpPart, func(c faulty.Call) faulty.Fault {
			if c.Part == 3 {
				return faulty.Hang()
			}
			return faulty.Fault{}
		}))
	}
	done := make(chan error, 1)
	go func() { done <- x.Offload(ctx, l.id) }()
	require.Eventually(t, func() bool { return len(x.notes.log.Pending()) >= 4 }, time.Minute, time.Millisecond, "begin, uploads and two checkpoints")
	kill()
	require.Error(t, <-done)
	require.NoError(t, x.Close())
	w.healed()
	require.Positive(t, len(w.stores["t1"].Uploads()))
	return w, l
}

func TestStatement18ResumeSendsOnlyWhatIsMissing(t *testing.T) {
	w, l := killedAfterStripes(t, func(*Options) {})
	w.reads = map[ledger.EntryID]int{}
	before := w.requests(objstore.OpPart)
	x := w.worker("w", func(o *Options) { o.Compression = CompressZstd }) // a setting changed in between
	defer x.Close()
	require.Equal(t, 1, len(x.Unfinished()))
	require.NoError(t, x.Offload(t.Context(), l.id))
	require.LessOrEqual(t, w.requests(objstore.OpPart)-before, 2*2, "the stripes that were not noted, and no more")
	require.NotContains(t, w.reads, ledger.EntryID(0), "no entry before the last checkpoint is read again")
	require.NotContains(t, w.reads, ledger.EntryID(25))
	require.EqualValues(t, 1, w.record(l.id).Number, "the same attempt")
	w.requireReadable(l)
	w.janitor(x)
	w.requireClean()
}

// TestWhoeverWasKilledGoesOnWhileOthersWait: another worker that found the attempt leaves its lock free until it displaces it.
func TestWhoeverWasKilledGoesOnWhileOthersWait(t *testing.T) {
	w, l := killedAfterStripes(t, func(*Options) {})
	other := w.worker("other", func(o *Options) { o.Name, o.TakeOver = "other", time.Hour })
	defer other.Close()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- other.Offload(ctx, l.id) }()
	require.Eventually(t, func() bool { return len(other.Progress()) == 1 }, time.Minute, time.Millisecond)
	x := w.worker("w", nil)
	defer x.Close()
	require.Eventually(t, func() bool { return x.Offload(t.Context(), l.id) == nil }, time.Minute, time.Millisecond)
	require.EqualValues(t, 1, w.record(l.id).Number, "the same attempt")
	stop()
	require.ErrorIs(t, <-ended, context.Canceled)
	w.requireReadable(l)
	w.janitor(x)
	w.requireClean()
}

func TestStatement18EncryptedResumeUsesNoNonceTwice(t *testing.T) {
	keys := &Keys{Current: "k", ByID: map[string][]byte{"k": make([]byte, 32)}}
	w, l := killedAfterStripes(t, func(o *Options) { o.Keys, o.Encryption = keys, EncryptAESGCM })
	x := w.worker("w", func(o *Options) { o.Keys, o.Encryption = keys, EncryptAESGCM })
	defer x.Close()
	require.NoError(t, x.Offload(t.Context(), l.id))
	r := w.reader(func(o *ReaderOptions) { o.Keys = keys })
	h, err := r.Open(t.Context(), l.id)
	require.NoError(t, err)
	n := 0
	for e, err := range h.Entries(t.Context(), 0, h.LastEntry()) {
		require.NoError(t, err)
		require.Equal(t, l.bodies[n], e.AppendBody(nil, l.id))
		n++
	}
	epochs := map[uint32]int{}
	for i := range h.c.manifest.blocks {
		s := h.c.spanOf(h.c.whole, i, i)
		b, err := r.t.get(t.Context(), h.c, s.stripe, s.shard, s.from, s.to)
		require.NoError(t, err)
		epochs[binary.BigEndian.Uint32(b[blockHeaderSize:])]++
	}
	require.Len(t, epochs, 2, "the second run sealed under an epoch of its own")
}

func TestStatement20UploadsExpiredOnTheServer(t *testing.T) {
	w, l := killedAfterStripes(t, func(*Options) {})
	for _, s := range w.stores {
		s.ExpireUploads()
	}
	x := w.worker("w", nil)
	defer x.Close()
	require.NoError(t, x.Offload(t.Context(), l.id))
	require.EqualValues(t, 2, w.record(l.id).Number, "a new attempt")
	w.janitor(x)
	w.requireReadable(l)
	w.requireClean()
}

func TestStatement15ZombieCommitsNothingAndLeavesNothing(t *testing.T) {
	w := threeTargets(t)
	l := w.add(crashLedgers()["two stripes"])
	zombie := w.worker("zombie", func(o *Options) { o.Name = "zombie" })
	defer zombie.Close()
	other := w.worker("other", func(o *Options) { o.Name = "other" })
	defer other.Close()
	frozen, thaw := make(chan struct{}), make(chan struct{})
	var once atomic.Bool
	w.onRead = func(e ledger.EntryID) {
		if e == 25 && once.CompareAndSwap(false, true) { // the first stripe is on its way
			close(frozen)
			<-thaw
		}
	}
	done := make(chan error, 1)
	go func() { done <- zombie.Offload(context.Background(), l.id) }()
	<-frozen
	w.meta.ExpireSession() // its lock goes; it does not know
	require.NoError(t, other.Offload(t.Context(), l.id))
	close(thaw)
	require.Error(t, <-done)
	w.janitor(other)
	w.requireReadable(l)
	w.requireClean()
}

func TestStatement44ManyLedgersUnderRandomFailures(t *testing.T) {
	count := 200
	if testing.Short() {
		count = 40
	}
	w := threeTargets(t)
	x := w.worker("w", nil)
	var all []*testLedger
	for i := range count {
		all = append(all, w.add(ledgerSpec{seed: uint64(i), sizes: even(1+i%150, 700)}))
	}
	for id, s := range w.faults {
		s.Set(faulty.Rate(uint64(len(id)+int(id[1])), 0.01, faulty.Fail(objstore.KindTransient)))
	}
	for round := range 30 {
		failed := 0
		for i, l := range all {
			if round == 0 && i == count/2 {
				w.faults["t3"].Set(faulty.Between(1, 20, faulty.Fail(objstore.KindUnreachable))) // it restarts
			}
			if err := x.Offload(t.Context(), l.id); err != nil {
				failed++
			}
		}
		if failed == 0 {
			break
		}
	}
	w.healed()
	w.janitor(x)
	require.NoError(t, x.Close())
	for _, l := range all {
		require.Equal(t, StateComplete, w.record(l.id).State)
	}
	w.requireReadable(all[count-1])
	w.requireClean()
}
