package offload

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/metadata/memmeta"
	"github.com/binderylog/bindery/offload/objstore"
	"github.com/binderylog/bindery/offload/objstore/faulty"
)

// TestARepairOfAManifestThatStoodStill: the process stands still before its nth metadata request, after it has written the copy or before.
// The
// grace ends, the janitor works once or until nothing changes, and the repair goes on. The record never names a copy that is gone: of a ledger
// without parity it would be the only one.
func TestARepairOfAManifestThatStoodStill(t *testing.T) {
	for _, g := range []Geometry{{1, 0}, {2, 1}} {
		for _, rounds := range []int{1, 2, 5} {
			for n, stood := 1, true; stood; n++ {
				stood = false
				w, l := offloaded(t, 5, g, ledgerSpec{seed: 1, sizes: even(20, 100)}) // inline: the manifest is all there is
				change := func(o *Options) { o.Geometry, o.Tolerated = g, -1 }
				x, janitor := w.worker("r", change), w.worker("j", change)
				require.NoError(t, x.Release(t.Context(), l.id, true))
				count, within := 0, false
				w.meta.SetFaults(func(op memmeta.Op) memmeta.Fault {
					if within {
						return memmeta.Fault{}
					}
					if count++; count == n {
						stood, within = true, true
						w.meta.ExpireSession()
						w.advance(2 * time.Hour)
						for range rounds {
							_, err := janitor.Clean(context.Background())
							require.NoError(t, err)
							w.advance(2 * time.Hour)
						}
						within = false
					}
					return memmeta.Fault{}
				})
				_, _ = x.Repair(t.Context(), l.id, RepairOptions{Level: VerifyHead, Drain: w.record(l.id).Manifest.Targets[0]})
				w.healed()
				w.requireReadable(l)
				for _, target := range w.record(l.id).Manifest.Targets {
					_, err := w.stores[target].Head(t.Context(), ManifestName(w.record(l.id).Attempt, l.id))
					require.NoError(t, err, "request %d, %d rounds: the record names a copy on %s", n, rounds, target)
				}
				w.janitor(janitor)
				w.requireReadable(l)
				_, err := janitor.Repair(t.Context(), l.id, RepairOptions{})
				require.NoError(t, err)
				w.janitor(janitor)
				w.requireReadable(l)
				w.requireClean()
				require.NoError(t, errors.Join(x.Close(), janitor.Close()))
			}
		}
	}
}

// TestARepairThatGoesOnWithinTheJanitorsPass: the janitor has removed the copy and not written the record yet.
func TestARepairThatGoesOnWithinTheJanitorsPass(t *testing.T) {
	for n, met := int64(1), true; met; n++ {
		met = false
		w, l := offloaded(t, 3, Geometry{1, 0}, ledgerSpec{seed: 1, sizes: even(20, 100)})
		change := func(o *Options) { o.Geometry, o.Tolerated = Geometry{1, 0}, -1 }
		x, janitor := w.worker("r", change), w.worker("j", change)
		require.NoError(t, x.Release(t.Context(), l.id, true))
		writes, held, goOn, done := 0, make(chan struct{}), make(chan struct{}), make(chan error, 1)
		record := w.records.Key(l.id)
		w.meta.SetFaults(func(op memmeta.Op) memmeta.Fault {
			if op.Name == "txn" && slices.Contains(op.Keys, record) {
				if writes++; writes == 2 { // the repair's: the copy is written
					w.meta.ExpireSession()
					go func() { // the janitor's pass, on which the repair goes on at the nth request
						w.nth(n, faulty.Fault{}, func() { met = true; close(goOn); <-held })
						_, err := janitor.Clean(context.Background())
						if !met {
							close(goOn)
						}
						done <- err
					}()
					w.advance(2 * time.Hour)
					<-goOn
				}
			}
			return memmeta.Fault{}
		})
		_, _ = x.Repair(t.Context(), l.id, RepairOptions{Level: VerifyHead, Drain: w.record(l.id).Manifest.Targets[0]})
		close(held)
		require.NoError(t, <-done)
		w.healed()
		w.requireReadable(l)
		w.janitor(janitor)
		w.requireReadable(l)
		w.requireClean()
		require.NoError(t, errors.Join(x.Close(), janitor.Close()))
	}
}

// surplus puts a copy of a ledger's manifest where its record has none.
func (w *world) surplus(l *testLedger) (target, key string) {
	w.t.Helper()
	r := w.record(l.id)
	key = ManifestName(r.Attempt, l.id)
	b := make([]byte, r.Manifest.Length)
	_, err := w.stores[r.Manifest.Targets[0]].GetRange(w.t.Context(), key, 0, b)
	require.NoError(w.t, err)
	for _, p := range w.targets.Places() {
		if target == "" && !contains(r.Manifest.Targets, p.Target) {
			target = p.Target
		}
	}
	_, err = w.stores[target].Put(w.t.Context(), key, objstore.NewBody(b), objstore.PutOptions{})
	require.NoError(w.t, err)
	return target, key
}

// TestASurplusCopyOfAManifestGoes by way of the record, and only while the copies that this names are good.
func TestASurplusCopyOfAManifestGoes(t *testing.T) {
	w, l := offloaded(t, 4, Geometry{2, 1}, ledgerSpec{sizes: even(300, 1000)})
	x := w.worker("r", func(o *Options) { o.Geometry = Geometry{2, 1} })
	defer x.Close()
	require.NoError(t, x.Release(t.Context(), l.id, true))
	target, key := w.surplus(l)
	one := func() Orphan {
		list, err := x.Orphans(t.Context(), "")
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, key, list[0].Key)
		require.Equal(t, target, list[0].Target)
		return w.old(list[0])
	}
	surplus := one()
	require.True(t, surplus.Surplus)
	young := surplus
	young.Modified = w.now()
	require.ErrorIs(t, x.DeleteOrphan(t.Context(), young), ErrYoung)

	// A copy that the record names can not be asked, or is not good.
	named := w.record(l.id).Manifest.Targets[0]
	w.faults[named].Set(faulty.On(objstore.OpGet, faulty.Always(faulty.Fail(objstore.KindUnreachable))))
	require.ErrorContains(t, x.DeleteOrphan(t.Context(), surplus), "can not be told")
	require.ErrorContains(t, x.DeleteOrphan(t.Context(), one()), "can not be told")
	w.healed()
	w.damage(named, key, 100)
	require.ErrorContains(t, x.DeleteOrphan(t.Context(), surplus), "`bindery offload repair")
	require.True(t, one().Stray)
	require.ErrorContains(t, x.DeleteOrphan(t.Context(), one()), "adopt it")
	require.Empty(t, w.record(l.id).Stale)
	_, err := x.Repair(t.Context(), l.id, RepairOptions{})
	require.NoError(t, err)

	// It is given up once, stays for the grace, and then goes.
	require.NoError(t, x.DeleteOrphan(t.Context(), surplus))
	require.NoError(t, x.DeleteOrphan(t.Context(), surplus))
	require.Len(t, w.record(l.id).Stale, 1)
	list, err := x.Orphans(t.Context(), "")
	require.NoError(t, err)
	require.Empty(t, list)
	_, err = w.stores[target].Head(t.Context(), key)
	require.NoError(t, err)
	w.janitor(x)
	w.requireReadable(l)
	w.requireClean()

	// One that a repair names meanwhile is no surplus any more.
	target, key = w.surplus(l)
	surplus = one()
	_, err = x.Repair(t.Context(), l.id, RepairOptions{Drain: w.record(l.id).Manifest.Targets[0]})
	require.NoError(t, err)
	require.Contains(t, w.record(l.id).Manifest.Targets, target)
	require.NoError(t, x.DeleteOrphan(t.Context(), surplus))
	w.janitor(x)
	w.requireReadable(l)
	w.requireClean()
	require.NoError(t, w.records.DeleteLedger(t.Context(), l.id))
	require.NoError(t, x.DeleteOrphan(t.Context(), surplus), "the janitor's already")
	w.janitor(x)
	require.ErrorContains(t, x.DeleteOrphan(t.Context(), surplus), "gone")
	w.requireClean()
}

// strayWorld is a ledger of which only objects are left, or also the bookies' record.
func strayWorld(t *testing.T, g Geometry, released bool) (*world, *testLedger, *Worker, Orphan) {
	t.Helper()
	w, l := offloaded(t, 4, g, ledgerSpec{seed: 2, sizes: even(300, 1000)})
	x := w.worker("r", func(o *Options) { o.Geometry, o.Tolerated = g, -1 })
	if released {
		require.NoError(t, x.Release(t.Context(), l.id, true))
	}
	w.forget(l.id)
	list, err := x.Orphans(t.Context(), "")
	require.NoError(t, err)
	require.NotEmpty(t, list)
	require.True(t, list[0].Stray)
	return w, l, x, list[0]
}

// TestAdoptionWithEveryRequestLost: the nth request to a target is lost, or the process killed at it; and the same with the requests to the
// metadata store. It is adopted or it is not, and can be adopted then; no more is left of it than its record names.
func TestAdoptionWithEveryRequestLost(t *testing.T) {
	effects := []faulty.Fault{faulty.LostReply(), faulty.Cut(), faulty.Late(), faulty.Fail(objstore.KindUnreachable)}
	for _, g := range []Geometry{{1, 0}, {2, 1}} {
		for _, released := range []bool{false, true} {
			end := func(w *world, l *testLedger, x *Worker, o Orphan) {
				w.healed()
				_, _, err := w.records.Read(t.Context(), l.id)
				if errors.Is(err, ErrNoRecord) {
					err = x.Adopt(t.Context(), o, []byte(testPassword))
				}
				require.NoError(t, err)
				for _, f := range w.faults {
					f.Release()
				}
				require.NotEmpty(t, w.record(l.id).Manifest.Targets)
				w.requireReadable(l)
				_, err = x.Repair(t.Context(), l.id, RepairOptions{})
				require.NoError(t, err)
				list, err := x.Orphans(t.Context(), "")
				require.NoError(t, err)
				for _, left := range list { // copies of the manifest on targets that did not answer
					require.True(t, left.Surplus)
					require.NoError(t, x.DeleteOrphan(t.Context(), w.old(left)))
				}
				require.NoError(t, x.Release(t.Context(), l.id, true))
				w.janitor(x)
				w.requireReadable(l)
				w.requireClean()
				require.NoError(t, x.Close())
			}
			for n, met := int64(1), true; met; n++ {
				met = false
				for i := range len(effects) + 1 {
					w, l, x, o := strayWorld(t, g, released)
					ctx, kill := context.WithCancel(t.Context())
					effect := faulty.Cut()
					if i < len(effects) {
						effect = effects[i]
					}
					w.nth(n, effect, func() {
						met = true
						if i == len(effects) {
							kill()
						}
					})
					_ = x.Adopt(ctx, o, []byte(testPassword)) // with or without an error
					kill()
					end(w, l, x, o)
				}
			}
			for n, met := 1, true; met; n++ {
				met = false
				for _, fault := range []memmeta.Fault{{Outcome: memmeta.Applied}, {Outcome: memmeta.Dropped}, {Err: errors.New("no quorum")}} {
					w, l, x, o := strayWorld(t, g, released)
					count := 0
					w.meta.SetFaults(func(memmeta.Op) memmeta.Fault {
						if count++; count == n {
							met = true
							return fault
						}
						return memmeta.Fault{}
					})
					_ = x.Adopt(t.Context(), o, []byte(testPassword))
					end(w, l, x, o)
				}
			}
		}
	}
}

// TestAdoptionBesideWhateverElse: at each metadata request of it somebody else adopts the ledger, deletes it, or offloads it anew.
func TestAdoptionBesideWhateverElse(t *testing.T) {
	others := map[string]func(*world, *testLedger, *Worker, Orphan) error{
		"adopt": func(_ *world, _ *testLedger, x *Worker, o Orphan) error {
			return x.Adopt(context.Background(), o, []byte(testPassword))
		},
		"delete": func(w *world, l *testLedger, _ *Worker, _ Orphan) error {
			return w.records.DeleteLedger(context.Background(), l.id)
		},
		"adopt, delete and clean": func(w *world, l *testLedger, x *Worker, o Orphan) error {
			if err := x.Adopt(context.Background(), o, []byte(testPassword)); err != nil {
				return err
			}
			err := w.records.DeleteLedger(context.Background(), l.id)
			w.janitor(x)
			return err
		},
		"offload": func(_ *world, l *testLedger, x *Worker, _ Orphan) error { return x.Offload(context.Background(), l.id) },
		"release": func(_ *world, l *testLedger, x *Worker, o Orphan) error {
			return errors.Join(x.Adopt(context.Background(), o, []byte(testPassword)), x.Release(context.Background(), l.id, true))
		},
	}
	for name, do := range others {
		t.Run(name, func(t *testing.T) {
			for _, released := range []bool{false, true} {
				for n, met := 1, true; met; n++ {
					met = false
					w, l, x, o := strayWorld(t, Geometry{2, 1}, released)
					other := w.worker("other", func(o *Options) { o.Geometry = Geometry{2, 1} })
					count, within := 0, false
					var theirs error
					w.meta.SetFaults(func(memmeta.Op) memmeta.Fault {
						if within {
							return memmeta.Fault{}
						}
						if count++; count == n {
							met, within = true, true
							theirs = do(w, l, other, o)
							within = false
						}
						return memmeta.Fault{}
					})
					ours := x.Adopt(t.Context(), o, []byte(testPassword))
					w.healed()
					deleted := met && theirs == nil && (name == "delete" || name == "adopt, delete and clean")
					switch {
					case deleted && name == "delete" && released:
						t.Fatal("there was nothing to delete")
					case deleted && ours == nil: // it was a stray again, since then
						w.requireReadable(l)
					case deleted && name == "delete":
						requireGone(t, w, l.id)
					case deleted:
						requireGone(t, w, l.id)
						w.requireClean()
					case ours == nil || theirs == nil:
						w.requireReadable(l)
					}
					r, _, err := w.records.Read(t.Context(), l.id)
					if err == nil && r.State != StateDeleting {
						_, err = other.Repair(t.Context(), l.id, RepairOptions{})
						require.NoError(t, err)
						w.janitor(other)
						w.requireReadable(l)
					}
					require.NoError(t, errors.Join(x.Close(), other.Close()))
				}
			}
		})
	}
}

// TestAZombieBesideTheAdoptionOfItsAttempt: the metadata store forgot an upload that is still under way. What the worker does when its
// attempt has been adopted changes nothing.
func TestAZombieBesideTheAdoptionOfItsAttempt(t *testing.T) {
	for n := 1; n < 8; n++ {
		w := newWorld(t, "a", "b", "c", "d")
		l := w.add(ledgerSpec{seed: 2, sizes: even(300, 1000)})
		zombie := w.worker("z", func(o *Options) { o.Geometry = Geometry{2, 1} })
		x := w.worker("r", func(o *Options) { o.Geometry = Geometry{2, 1} })
		count, adopted := 0, error(nil)
		record, within := w.records.Key(l.id), false
		w.meta.SetFaults(func(op memmeta.Op) memmeta.Fault {
			if within || !slices.Contains(op.Keys, record) {
				return memmeta.Fault{}
			}
			if count++; count == n {
				within = true
				w.meta.ExpireSession()
				if _, v, err := w.records.Read(context.Background(), l.id); err == nil {
					require.NoError(t, w.records.Remove(context.Background(), l.id, v))
				}
				list, err := x.Orphans(context.Background(), "")
				require.NoError(t, err)
				adopted = errors.New("no stray")
				if i := slices.IndexFunc(list, func(o Orphan) bool { return o.Stray }); i >= 0 {
					adopted = x.Adopt(context.Background(), list[i], []byte(testPassword))
				}
				within = false
			}
			return memmeta.Fault{}
		})
		_ = zombie.Offload(t.Context(), l.id)
		w.healed()
		if adopted == nil && count >= n {
			w.requireReadable(l)
		} else {
			require.NoError(t, x.Offload(t.Context(), l.id))
		}
		w.requireReadable(l)
		w.meta.ExpireSession()
		require.NoError(t, x.Release(t.Context(), l.id, true))
		w.janitor(x)
		w.requireReadable(l)
		require.NoError(t, errors.Join(zombie.Close(), x.Close()))
	}
}
