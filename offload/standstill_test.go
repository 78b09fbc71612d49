package offload

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/offload/objstore/faulty"
)

// TestAProcessThatStoodStill: at the nth request to a target the process stands still, its lock goes, the grace ends, the janitor of another
// one works once or until nothing changes, and, in every other run, another repair does the work first. Then it goes on.
func TestAProcessThatStoodStill(t *testing.T) {
	for name, g := range map[string]Geometry{"repair": {2, 1}, "drain": {1, 0}, "drain with parity": {2, 1}, "release": {2, 1}, "adopt": {2, 1}, "orphans": {2, 1}} {
		t.Run(name, func(t *testing.T) {
			for _, spec := range []ledgerSpec{{seed: 1, sizes: even(20, 100)}, {seed: 2, sizes: even(300, 1000)}, {seed: 3, sizes: even(30, 450_000)}} {
				step := int64(1)
				switch short := testing.Short(); {
				case short && spec.seed == 3:
					step = 17
				case short || spec.seed == 3:
					step = 4
				}
				for n, stood := int64(1), true; stood; n += step {
					stood = false
					for _, other := range []bool{false, true} {
						for _, rounds := range []int{1, 3} {
							standStill(t, name, g, spec, n, rounds, other, &stood)
						}
					}
				}
			}
		})
	}
}

func standStill(t *testing.T, name string, g Geometry, spec ledgerSpec, n int64, rounds int, other bool, stood *bool) {
	t.Helper()
	w, l := offloaded(t, 5, g, spec)
	change := func(o *Options) { o.Geometry, o.Tolerated = g, -1 }
	x := w.worker("r", change)
	var direct []Target // the stores behind the faults, which take one request at a time
	for _, p := range w.targets.Places() {
		direct = append(direct, Target{ID: p.Target, Domain: p.Domain, Store: w.stores[p.Target]})
	}
	targets, err := NewTargets(direct)
	require.NoError(t, err)
	y := w.worker("j", func(o *Options) { change(o); o.Targets = targets })
	if name != "release" {
		require.NoError(t, x.Release(t.Context(), l.id, true))
	}
	if name == "repair" && !w.record(l.id).Inline {
		target, key := w.shard(l, 1)
		require.NoError(t, w.stores[target].Delete(t.Context(), key))
	}
	drain := ""
	if g.Parity == 0 || name == "drain with parity" {
		drain = w.record(l.id).Manifest.Targets[0]
	}
	switch name {
	case "adopt":
		w.forget(l.id)
	case "orphans":
		w.surplus(l)
	}
	orphans, err := x.Orphans(t.Context(), "")
	require.NoError(t, err)
	w.nth(n, faulty.Fault{}, func() {
		*stood = true
		w.meta.ExpireSession()
		w.advance(2 * time.Hour)
		var err error
		switch {
		case other && name == "adopt":
			if _, _, rerr := w.records.Read(context.Background(), l.id); errors.Is(rerr, ErrNoRecord) {
				err = y.Adopt(context.Background(), orphans[0], []byte(testPassword))
			}
		case other:
			_, err = y.Repair(context.Background(), l.id, RepairOptions{Level: VerifyHead, Drain: drain})
		}
		for range rounds {
			_, cerr := y.Clean(context.Background())
			err = errors.Join(err, cerr)
			w.advance(2 * time.Hour)
		}
		require.NoError(t, err)
	})
	switch name {
	case "release":
		_ = x.Release(t.Context(), l.id, true)
	case "adopt":
		_ = x.Adopt(t.Context(), orphans[0], []byte(testPassword))
	case "orphans":
		require.Len(t, orphans, 1)
		_ = x.DeleteOrphan(t.Context(), w.old(orphans[0]))
	default:
		_, _ = x.Repair(t.Context(), l.id, RepairOptions{Level: VerifyHead, Drain: drain})
	}
	w.healed()
	w.requireReadable(l)
	w.janitor(y)
	w.requireReadable(l)
	_, err = y.Repair(t.Context(), l.id, RepairOptions{})
	require.NoError(t, err)
	orphans, err = y.Orphans(t.Context(), "")
	require.NoError(t, err)
	for _, o := range orphans { // what it still wrote when its name had been cleaned away
		require.False(t, o.Stray, "%s on %s", o.Key, o.Target)
		require.NoError(t, y.DeleteOrphan(t.Context(), w.old(o)))
	}
	require.NoError(t, y.Release(t.Context(), l.id, true))
	w.janitor(y)
	w.requireReadable(l)
	w.requireClean()
	require.NoError(t, errors.Join(x.Close(), y.Close()))
}
