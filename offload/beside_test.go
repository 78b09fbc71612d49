package offload

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/memmeta"
	"github.com/binderylog/bindery/offload/objstore/faulty"
)

// besideOps are what is done to a ledger of four targets and 2+1 that is in the tier, with shard 1 lost.
func besideOps(l *testLedger) map[string]func(context.Context, *world, *Worker) error {
	return map[string]func(context.Context, *world, *Worker) error{
		"repair": func(ctx context.Context, _ *world, x *Worker) error {
			_, err := x.Repair(ctx, l.id, RepairOptions{Level: VerifyHead})
			return err
		},
		"drain": func(ctx context.Context, w *world, x *Worker) error {
			_, err := x.Repair(ctx, l.id, RepairOptions{Level: VerifyHead, Drain: "t1"})
			return err
		},
		"scrub": func(ctx context.Context, _ *world, x *Worker) error {
			s, err := x.Scrub(ctx, ScrubOptions{Level: VerifyFull, Repair: true})
			return errors.Join(append(s.Problems, err)...)
		},
		"verify": func(ctx context.Context, _ *world, x *Worker) error {
			_, err := x.Verify(ctx, l.id, VerifyFull)
			return err
		},
		"orphans": func(ctx context.Context, _ *world, x *Worker) error {
			list, err := x.Orphans(ctx, "")
			for _, o := range list {
				o.Modified = time.Time{}
				err = errors.Join(err, x.DeleteOrphan(ctx, o))
			}
			return err
		},
		"release": func(ctx context.Context, _ *world, x *Worker) error { return x.Release(ctx, l.id, true) },
		"delete":  func(ctx context.Context, w *world, _ *Worker) error { return w.records.DeleteLedger(ctx, l.id) },
		"read": func(ctx context.Context, w *world, _ *Worker) error {
			h, err := w.reader(nil).Open(ctx, l.id)
			if err != nil {
				return err
			}
			n := 0
			for e, err := range h.Entries(ctx, 0, h.LastEntry()) {
				if err != nil {
					return err
				}
				require.Equal(w.t, l.bodies[e.ID], e.AppendBody(nil, l.id))
				n++
			}
			require.Equal(w.t, len(l.bodies), n, "no short success")
			return nil
		},
	}
}

// besideWorld is a ledger in the tier with a lost shard.
func besideWorld(t *testing.T, spec ledgerSpec) (*world, *testLedger, *Worker) {
	t.Helper()
	w, l := offloaded(t, 4, Geometry{2, 1}, spec)
	target, key := w.shard(l, 1)
	require.NoError(t, w.stores[target].Delete(t.Context(), key))
	return w, l, w.worker("r", func(o *Options) { o.Geometry = Geometry{2, 1} })
}

// TestLostRepliesOfWhateverIsDoneToALedger: the nth request is lost on its way there, on its way back, or arrives when all is over. What
// is late arrives within the grace.
func TestLostRepliesOfWhateverIsDoneToALedger(t *testing.T) {
	specs := []ledgerSpec{{seed: 2, sizes: even(300, 1000)}, {seed: 3, sizes: even(30, 450_000)}}
	effects := []faulty.Fault{faulty.LostReply(), faulty.Cut(), faulty.Late()}
	for _, name := range []string{"repair", "drain", "scrub", "release"} {
		t.Run(name, func(t *testing.T) {
			for i, spec := range specs {
				if i > 0 && (testing.Short() || name != "repair") {
					break
				}
				for n, happened := int64(1), true; happened; n++ {
					happened = false
					for _, effect := range effects {
						w, l, x := besideWorld(t, spec)
						do := besideOps(l)[name]
						if name == "release" {
							_, err := x.Repair(t.Context(), l.id, RepairOptions{})
							require.NoError(t, err)
						}
						w.nth(n, effect, func() { happened = true })
						_ = do(t.Context(), w, x)
						w.healed()
						w.requireSafe(l)
						_, err := x.Repair(t.Context(), l.id, RepairOptions{})
						require.NoError(t, err)
						require.NoError(t, x.Release(t.Context(), l.id, true))
						for _, f := range w.faults {
							f.Release()
						}
						w.requireReadable(l)
						w.janitor(x)
						findings, err := x.Verify(t.Context(), l.id, VerifyFull)
						require.NoError(t, err)
						require.Empty(t, findings)
						w.requireReadable(l)
						w.requireClean()

						// And away with it, with the nth request of the cleaning lost.
						require.NoError(t, w.records.DeleteLedger(t.Context(), l.id))
						w.nth(n, effect, func() { happened = true })
						_, err = x.Clean(t.Context())
						require.NoError(t, err)
						w.healed()
						for _, f := range w.faults {
							f.Release()
						}
						w.advance(2 * time.Hour)
						w.janitor(x)
						w.requireClean()
						_, _, err = w.records.Read(t.Context(), l.id)
						require.ErrorIs(t, err, ErrNoRecord)
						require.NoError(t, x.Close())
					}
				}
			}
		})
	}
}

// TestDeletionBesideWhateverIsDoneToALedger: at each metadata request the ledger is deleted, and in every other run also cleaned away.
// Nothing brings it back, and nothing is left of it.
func TestDeletionBesideWhateverIsDoneToALedger(t *testing.T) {
	spec := ledgerSpec{seed: 2, sizes: even(300, 1000)}
	for name := range besideOps(&testLedger{}) {
		t.Run(name, func(t *testing.T) {
			for n, happened := 1, true; happened; n++ {
				happened = false
				for _, released := range []bool{false, true} {
					for _, cleaned := range []bool{false, true} {
						w, l, x := besideWorld(t, spec)
						if released {
							_, err := x.Repair(t.Context(), l.id, RepairOptions{})
							require.NoError(t, err)
							require.NoError(t, x.Release(t.Context(), l.id, true))
						}
						other := w.worker("other", nil)
						count, within := 0, false
						w.meta.SetFaults(func(memmeta.Op) memmeta.Fault {
							if within {
								return memmeta.Fault{}
							}
							if count++; count == n {
								happened, within = true, true
								if err := w.records.DeleteLedger(t.Context(), l.id); name != "delete" || !errors.Is(err, metadata.ErrNoLedger) {
									require.NoError(t, err)
								}
								if cleaned {
									w.janitor(other)
								}
								within = false
							}
							return memmeta.Fault{}
						})
						_ = besideOps(l)[name](t.Context(), w, x) // with or without an error
						w.healed()
						if count >= n || name == "delete" {
							requireGone(t, w, l.id)
						} else {
							require.NoError(t, w.records.DeleteLedger(t.Context(), l.id))
						}
						w.janitor(other)
						w.requireClean()
						_, _, err := w.records.Read(t.Context(), l.id)
						require.ErrorIs(t, err, ErrNoRecord)
						require.NoError(t, errors.Join(x.Close(), other.Close()))
					}
				}
			}
		})
	}
}

func requireGone(t *testing.T, w *world, id ledger.ID) {
	t.Helper()
	_, _, err := w.views.Ledgers.Read(t.Context(), id)
	require.ErrorIs(t, err, metadata.ErrNoLedger)
	_, err = w.records.Offloaded(t.Context(), id)
	require.ErrorIs(t, err, metadata.ErrNoLedger)
}

// TestDeletionBesideAnOffloadAtEachRequest is the same while the ledger is on its way into the tier.
func TestDeletionBesideAnOffloadAtEachRequest(t *testing.T) {
	for name, spec := range crashLedgers() {
		step := int64(1)
		if testing.Short() && name == "two stripes" {
			step = 5
		}
		t.Run(name, func(t *testing.T) {
			for n, happened := int64(1), true; happened; n += step {
				happened = false
				w := threeTargets(t)
				l := w.add(spec)
				x := w.worker("w", func(o *Options) { o.Geometry = Geometry{2, 1} })
				w.nth(n, faulty.Fault{}, func() {
					happened = true
					require.NoError(t, w.records.DeleteLedger(context.Background(), l.id))
				})
				err := x.Offload(t.Context(), l.id)
				w.healed()
				if happened {
					requireGone(t, w, l.id)
					require.Error(t, err)
				} else {
					require.NoError(t, w.records.DeleteLedger(t.Context(), l.id))
				}
				w.janitor(x)
				w.requireClean()
				_, _, err = w.records.Read(t.Context(), l.id)
				require.ErrorIs(t, err, ErrNoRecord)
				require.Empty(t, x.Unfinished())
				require.NoError(t, x.Close())
			}
		})
	}
}
