package offload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/offload/objstore"
	"github.com/binderylog/bindery/offload/objstore/faulty"
)

// offloaded returns a world with one ledger in the tier.
func offloaded(t *testing.T, targets int, g Geometry, spec ledgerSpec) (*world, *testLedger) {
	t.Helper()
	var domains []string
	for i := range targets {
		domains = append(domains, fmt.Sprint("d", i))
	}
	w := newWorld(t, domains...)
	l := w.add(spec)
	x := w.worker("w", func(o *Options) { o.Geometry, o.Tolerated, o.MemoryBytes = g, -1, 1<<30 })
	require.NoError(t, x.Offload(t.Context(), l.id))
	require.NoError(t, x.Close())
	return w, l
}

// damage changes one byte of an object.
func (w *world) damage(target, key string, offset int64) {
	w.t.Helper()
	require.True(w.t, w.stores[target].Damage(key, func(b []byte) []byte { b[offset] ^= 0x10; return b }), "%s on %s", key, target)
}

func (w *world) shard(l *testLedger, i int) (target, key string) {
	r := w.record(l.id)
	return r.Placement[i].Target, ShardName(r.Attempt, l.id, i, r.Placement[i].Generation)
}

func TestStatement04EveryLossOfParityIsSurvivedAndOneMoreIsUnavailable(t *testing.T) {
	for _, g := range []Geometry{{1, 0}, {1, 1}, {2, 1}, {2, 2}, {3, 2}, {4, 2}} {
		n := g.Shards()
		w, l := offloaded(t, n, g, ledgerSpec{sizes: even(400, 1000)})
		r := w.record(l.id)
		for mask := range 1 << n {
			var lost []string
			for i := range n {
				down := mask&(1<<i) != 0
				if down {
					lost = append(lost, r.Placement[i].Target)
					w.faults[r.Placement[i].Target].Set(faulty.Always(faulty.Fail(objstore.KindUnreachable)))
				} else {
					w.faults[r.Placement[i].Target].Set(nil)
				}
			}
			switch {
			case len(lost) <= g.Parity:
				w.requireReadable(l)
			case len(lost) == g.Parity+1:
				err := readAll(w, l)
				if err == nil { // only parity was lost, and one copy of the manifest is left
					continue
				}
				require.ErrorIs(t, err, ErrUnavailable, "%s without %v", g, lost)
				require.NotErrorIs(t, err, ErrNoEntry)
				require.ErrorContains(t, err, lost[0])
			}
		}
	}
}

func readAll(w *world, l *testLedger) error {
	h, err := w.reader(nil).Open(context.Background(), l.id)
	if err != nil {
		return err
	}
	n := 0
	for e, err := range h.Entries(context.Background(), 0, h.LastEntry()) {
		if err != nil {
			return err
		}
		if string(e.AppendBody(nil, l.id)) != string(l.bodies[n]) {
			return fmt.Errorf("entry %d differs", n)
		}
		n++
	}
	return nil
}

func TestStatement10AValidBlockFromAWrongPlaceIsRefused(t *testing.T) {
	l := makeLedger(t, ledgerSpec{sizes: even(2000, 1000)})
	e := encode(t, l, testPlan(l, Geometry{2, 1}))
	c := &copyOf{id: l.id, manifest: e.manifest, codec: e.codec(t), record: &Record{Attempt: e.plan.attempt, Placement: make([]Placement, 3)}}
	b, err := c.openBlock(c.manifest.whole(), 2, e.block(2))
	require.NoError(t, err)
	require.NotEmpty(t, b.Entries)
	_, err = c.openBlock(c.manifest.whole(), 2, e.block(3))
	require.ErrorContains(t, err, "the manifest says")
	other := encode(t, makeLedger(t, ledgerSpec{seed: 7, sizes: even(2000, 1000)}), e.plan)
	_, err = c.openBlock(c.manifest.whole(), 2, other.block(2))
	require.ErrorContains(t, err, "the manifest says")
}

func TestStatement30AFlippedByteIsNeverReturned(t *testing.T) {
	w, l := offloaded(t, 3, Geometry{2, 1}, ledgerSpec{sizes: even(600, 1000)})
	rng := rand.New(rand.NewPCG(30, 30))
	for id, s := range w.stores {
		for _, key := range s.Keys() {
			for range 12 {
				info, err := s.Head(t.Context(), key)
				require.NoError(t, err)
				at := rng.Int64N(info.Size)
				w.damage(id, key, at)
				found := 0
				r := w.reader(func(o *ReaderOptions) { o.NoHedge, o.Report = true, func(Finding) { found++ } })
				h, err := r.Open(t.Context(), l.id)
				require.NoError(t, err, "%s on %s at %d", key, id, at)
				n := 0
				for e, err := range h.Entries(t.Context(), 0, h.LastEntry()) {
					require.NoError(t, err, "%s on %s at %d", key, id, at)
					require.Equal(t, l.bodies[n], e.AppendBody(nil, l.id))
					n++
				}
				name, ok := ParseName(key)
				require.True(t, ok)
				if !name.Manifest && name.Shard < 2 {
					require.Positive(t, found, "a repair is asked for")
				}
				w.damage(id, key, at)
			}
		}
	}
}

func TestStatement30WithoutParityDamageIsSaid(t *testing.T) {
	w, l := offloaded(t, 1, Geometry{1, 0}, ledgerSpec{sizes: even(600, 1000)})
	target, key := w.shard(l, 0)
	w.damage(target, key, 300_000)
	err := readAll(w, l)
	var c *corrupt.Error
	require.ErrorAs(t, err, &c)
	require.Equal(t, key, c.Path)
	h, err := w.reader(nil).Open(t.Context(), l.id)
	require.NoError(t, err)
	e, err := h.Entry(t.Context(), 0)
	require.NoError(t, err, "other blocks are read")
	require.Equal(t, l.bodies[0], e.AppendBody(nil, l.id))
}

func TestStatement31DamageInOneStripe(t *testing.T) {
	w, l := offloaded(t, 6, Geometry{4, 2}, ledgerSpec{sizes: even(800, 1000)})
	for i := range 2 {
		target, key := w.shard(l, i)
		for at := int64(40); at < 190_000; at += 10_000 {
			w.damage(target, key, at)
		}
	}
	w.requireReadable(l)
	target, key := w.shard(l, 4)
	for at := int64(40); at < 190_000; at += 10_000 {
		w.damage(target, key, at)
	}
	err := readAll(w, l)
	require.True(t, corrupt.Is(err), "%v", err)
}

func TestStatement32EachFailureHasItsPlan(t *testing.T) {
	w, l := offloaded(t, 6, Geometry{4, 2}, ledgerSpec{sizes: even(800, 1000)})
	target, key := w.shard(l, 0)
	for name, f := range map[string]faulty.Fault{
		"403": faulty.Fail(objstore.KindDenied), "503": faulty.Fail(objstore.KindThrottled), "404": faulty.Fail(objstore.KindNotFound),
		"416": faulty.Fail(objstore.KindRange), "cut": faulty.Cut(), "hanging": faulty.Hang(), "slow": faulty.Delay(300 * time.Millisecond), "flipped": faulty.Flip(777),
	} {
		w.faults[target].Set(faulty.OnKey(key[len(key)-7:], faulty.On(objstore.OpGet, faulty.Always(f))))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		h, err := w.reader(nil).Open(ctx, l.id)
		require.NoError(t, err, name)
		e, err := h.Entry(ctx, 0)
		require.NoError(t, err, name)
		require.Equal(t, l.bodies[0], e.AppendBody(nil, l.id), name)
		cancel()
		w.faults[target].Set(nil)
	}
	for _, change := range []func([]byte) []byte{ // each on top of the one before
		func(b []byte) []byte { return append(b, 1, 2, 3) },
		func(b []byte) []byte { return b[:1000] },
		func([]byte) []byte { return nil },
	} {
		require.True(t, w.stores[target].Damage(key, change))
		require.NoError(t, readAll(w, l))
	}
}

func TestStatement33HedgingStaysInItsBudget(t *testing.T) {
	w, l := offloaded(t, 3, Geometry{2, 1}, ledgerSpec{sizes: even(600, 1000)})
	target, _ := w.shard(l, 0)
	w.faults[target].Set(faulty.On(objstore.OpGet, faulty.Always(faulty.Delay(400*time.Millisecond))))
	r := w.reader(func(o *ReaderOptions) { o.BlockCacheBytes = 1 })
	h, err := r.Open(t.Context(), l.id)
	require.NoError(t, err)
	reads := 8
	for i := range reads {
		e, err := h.Entry(t.Context(), ledger.EntryID(i*7%200))
		require.NoError(t, err)
		require.Equal(t, l.bodies[e.ID], e.AppendBody(nil, l.id))
	}
	require.LessOrEqual(t, int(r.t.m.hedges.Get()), 1+reads/20+1)
	require.Positive(t, r.t.m.hedges.Get())
}

// TestASlowTargetIsReadAround: time is the bubble's, so only what waits takes any.
func TestASlowTargetIsReadAround(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l := offloaded(t, 36, Geometry{4, 2}, ledgerSpec{sizes: even(900, 1000)})
		target, _ := w.shard(l, 1)
		r := w.reader(func(o *ReaderOptions) { o.BlockCacheBytes = 1 })
		h, err := r.Open(t.Context(), l.id)
		require.NoError(t, err)
		read := func(n int) (slow int) {
			for i := range n {
				start := time.Now()
				e, err := h.Entry(t.Context(), ledger.EntryID(i*97%900))
				require.NoError(t, err)
				require.Equal(t, l.bodies[e.ID], e.AppendBody(nil, l.id))
				if time.Since(start) > 100*time.Millisecond {
					slow++
				}
			}
			return slow
		}
		for _, s := range w.faults {
			s.Set(faulty.On(objstore.OpGet, faulty.Always(faulty.Delay(3*time.Millisecond))))
		}
		require.Zero(t, read(100))
		require.Zero(t, r.t.m.hedges.Get())
		w.faults[target].Set(faulty.On(objstore.OpGet, faulty.Always(faulty.Delay(2*time.Second))))
		require.LessOrEqual(t, read(1000), lateMax)
		require.Positive(t, r.t.m.degraded.Get())
		require.LessOrEqual(t, int(r.t.m.hedges.Get()), 1100/20+1)

		w.faults[target].Set(faulty.On(objstore.OpGet, faulty.Always(faulty.Delay(3*time.Millisecond))))
		require.Zero(t, read(500))
		before := r.t.m.degraded.Get()
		require.Zero(t, read(500))
		require.Equal(t, before, r.t.m.degraded.Get(), "it is read again")
	})
}

func TestStatement34CachesKeepTheirBytes(t *testing.T) {
	c := newLRU[int](1000, func(v int) int { return v })
	rng := rand.New(rand.NewPCG(34, 34))
	for range 10_000 {
		k := rng.IntN(200)
		v, _, err := c.get(t.Context(), k, func() (int, error) { return 1 + k%90, nil })
		require.NoError(t, err)
		require.Equal(t, 1+k%90, v)
		require.LessOrEqual(t, c.bytes, 1000)
		require.Len(t, c.entries, c.order.Len())
	}
	_, _, err := c.get(t.Context(), 900, func() (int, error) { return 2000, nil })
	require.NoError(t, err)
	_, ok := c.peek(900)
	require.False(t, ok, "larger than the cache")
	failed := errors.New("failed")
	_, _, err = c.get(t.Context(), 901, func() (int, error) { return 0, failed })
	require.ErrorIs(t, err, failed)
	v, hit, err := c.get(t.Context(), 901, func() (int, error) { return 5, nil })
	require.NoError(t, err)
	require.False(t, hit, "a failure is not kept")
	require.Equal(t, 5, v)
}

func TestSequentialEntriesReadAhead(t *testing.T) {
	w, l := offloaded(t, 3, Geometry{2, 1}, ledgerSpec{sizes: even(8000, 1000)})
	h, err := w.reader(func(o *ReaderOptions) { o.NoHedge = true }).Open(t.Context(), l.id)
	require.NoError(t, err)
	before := w.requests(objstore.OpGet)
	for i := range l.bodies {
		e, err := h.Entry(t.Context(), ledger.EntryID(i))
		require.NoError(t, err)
		require.Equal(t, l.bodies[i], e.AppendBody(nil, l.id))
	}
	require.Less(t, w.requests(objstore.OpGet)-before, len(h.c.manifest.blocks)/2, "fewer requests than blocks")
}

func TestStatement36And37FindAndRepair(t *testing.T) {
	w, l := offloaded(t, 7, Geometry{4, 2}, ledgerSpec{sizes: even(40, 900_000)})
	x := w.worker("r", func(o *Options) { o.Geometry = Geometry{4, 2} })
	defer x.Close()
	r := w.record(l.id)
	for name, c := range map[string]struct {
		harm func()
		kind FindingKind
	}{
		"missing shard": {func() {
			target, key := w.shard(l, 1)
			require.NoError(t, w.stores[target].Delete(t.Context(), key))
		}, FindingMissing},
		"short shard": {func() {
			target, key := w.shard(l, 2)
			require.True(t, w.stores[target].Damage(key, func(b []byte) []byte { return b[:len(b)-1] }))
		}, FindingShort},
		"data byte":   {func() { target, key := w.shard(l, 0); w.damage(target, key, 7_000_000) }, FindingCell},
		"parity byte": {func() { target, key := w.shard(l, 5); w.damage(target, key, 123) }, FindingCell},
		"manifest byte": {func() {
			w.damage(r.Manifest.Targets[1], ManifestName(r.Attempt, l.id), 99)
		}, FindingManifest},
		"manifest gone": {func() {
			require.NoError(t, w.stores[r.Manifest.Targets[2]].Delete(t.Context(), ManifestName(r.Attempt, l.id)))
		}, FindingManifest},
	} {
		c.harm()
		findings, err := x.Verify(t.Context(), l.id, VerifyFull)
		require.NoError(t, err)
		require.NotEmpty(t, findings, name)
		kinds := map[FindingKind]bool{}
		for _, f := range findings {
			kinds[f.Kind] = true
			require.Contains(t, f.String(), f.Object)
		}
		if name == "manifest gone" {
			require.True(t, kinds[FindingMissing] || kinds[FindingManifest], "%s: %v", name, findings)
		} else {
			require.True(t, kinds[c.kind], "%s: %v", name, findings)
		}
		dry, err := x.Repair(t.Context(), l.id, RepairOptions{DryRun: true})
		require.NoError(t, err)
		require.Len(t, dry.Findings, len(findings))
		done, err := x.Repair(t.Context(), l.id, RepairOptions{})
		require.NoError(t, err, name)
		require.Equal(t, done, dry, "what a dry run says is what is done: %s", name)
		require.NotZero(t, len(done.Shards)+len(done.Manifests), name)
		findings, err = x.Verify(t.Context(), l.id, VerifyFull)
		require.NoError(t, err)
		require.Empty(t, findings, name)
		w.janitor(x)
		w.requireClean()
	}
	w.requireReadable(l)

	// A reader that holds the old record goes on while a target is emptied.
	h, err := w.reader(func(o *ReaderOptions) { o.BlockCacheBytes = 1 }).Open(t.Context(), l.id)
	require.NoError(t, err)
	drained := w.record(l.id).Placement[3].Target
	dry, err := x.Repair(t.Context(), l.id, RepairOptions{Level: VerifyHead, Drain: drained, DryRun: true})
	require.NoError(t, err)
	done, err := x.Repair(t.Context(), l.id, RepairOptions{Level: VerifyHead, Drain: drained})
	require.NoError(t, err)
	require.Equal(t, done, dry)
	w.janitor(x)
	require.Empty(t, w.stores[drained].Keys())
	for i := range l.bodies {
		e, err := h.Entry(t.Context(), ledger.EntryID(i))
		require.NoError(t, err)
		require.Equal(t, l.bodies[i], e.AppendBody(nil, l.id))
	}
	w.requireClean()
}

func TestStatement37RepairSurvivesAKillAtEachRequest(t *testing.T) {
	step := int64(1)
	if testing.Short() {
		step = 4
	}
	for n := int64(1); ; n += step {
		w, l := offloaded(t, 4, Geometry{2, 1}, ledgerSpec{sizes: even(400, 1000)})
		target, _ := w.shard(l, 1)
		w.stores[target].Wipe()
		x := w.worker("r", func(o *Options) { o.Geometry = Geometry{2, 1} })
		ctx, kill := context.WithCancel(t.Context())
		happened := false
		w.nth(n, []faulty.Fault{faulty.Hang(), faulty.LostReply()}[n%2], func() { happened = true; kill() })
		_, _ = x.Repair(ctx, l.id, RepairOptions{})
		kill()
		w.healed()
		w.requireReadable(l)
		_, err := x.Repair(t.Context(), l.id, RepairOptions{})
		require.NoError(t, err)
		findings, err := x.Verify(t.Context(), l.id, VerifyFull)
		require.NoError(t, err)
		require.Empty(t, findings)
		w.janitor(x)
		w.requireClean()
		require.NoError(t, x.Close())
		if !happened {
			require.Greater(t, n, int64(5))
			return
		}
	}
}

func TestStatement23ReleaseNeedsEveryObject(t *testing.T) {
	for name, harm := range map[string]func(w *world, l *testLedger){
		"shard missing": func(w *world, l *testLedger) { tgt, key := w.shard(l, 2); _ = w.stores[tgt].Delete(t.Context(), key) },
		"manifest missing": func(w *world, l *testLedger) {
			r := w.record(l.id)
			_ = w.stores[r.Manifest.Targets[1]].Delete(t.Context(), ManifestName(r.Attempt, l.id))
		},
		"target down": func(w *world, l *testLedger) {
			tgt, _ := w.shard(l, 0)
			w.faults[tgt].Set(faulty.Always(faulty.Fail(objstore.KindUnreachable)))
		},
	} {
		w, l := offloaded(t, 3, Geometry{2, 1}, ledgerSpec{sizes: even(400, 1000)})
		harm(w, l)
		x := w.worker("r", nil)
		var s *StoppedError
		require.ErrorAs(t, x.Release(t.Context(), l.id, true), &s, name)
		require.ErrorContains(t, s, "could not be seen to be whole", name)
		require.ErrorContains(t, s, "ledger 42: ", name)
		_, _, err := w.views.Ledgers.Read(t.Context(), l.id)
		require.NoError(t, err, name)
		require.NoError(t, x.Close())
	}
}

func TestDegradedWriteCommitsAndIsRepaired(t *testing.T) {
	w := six(t)
	x := w.worker("w", func(o *Options) { o.MinShards = 5 })
	defer x.Close()
	l := w.add(ledgerSpec{sizes: even(40, 900_000)})
	w.faults["t4"].Set(faulty.Always(faulty.Fail(objstore.KindUnreachable)))
	require.NoError(t, x.Offload(t.Context(), l.id))
	require.Equal(t, 1, w.record(l.id).Missing())
	w.requireReadable(l)
	require.Error(t, x.Release(t.Context(), l.id, true), "not before it is whole")
	w.healed()
	s, err := x.Scrub(t.Context(), ScrubOptions{Repair: true})
	require.NoError(t, err)
	require.Equal(t, 1, s.Repaired, "%v", s.Problems)
	require.Zero(t, w.record(l.id).Missing())
	require.NoError(t, x.Release(t.Context(), l.id, true))
	w.janitor(x)
	w.requireReadable(l)
	w.requireClean()
}

func TestStatement24DeleteWhileATargetIsDown(t *testing.T) {
	w, l := offloaded(t, 3, Geometry{2, 1}, ledgerSpec{sizes: even(400, 1000)})
	x := w.worker("r", nil)
	defer x.Close()
	w.faults["t2"].Set(faulty.Always(faulty.Fail(objstore.KindUnreachable)))
	require.NoError(t, x.Delete(t.Context(), l.id))
	for range 3 {
		s, err := x.Clean(t.Context())
		require.NoError(t, err)
		require.NotEmpty(t, s.Problems)
		w.advance(2 * time.Hour)
	}
	require.Equal(t, StateDeleting, w.record(l.id).State)
	w.healed()
	w.janitor(x)
	w.requireClean()
	require.ErrorIs(t, x.Delete(t.Context(), l.id), ErrNoRecord)
}
