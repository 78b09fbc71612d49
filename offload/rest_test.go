package offload

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/intent"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/offload/objstore"
	"github.com/binderylog/bindery/offload/objstore/faulty"
)

func TestStatement19ResumeNeverAsksTheStoreForItsParts(t *testing.T) {
	w, l := killedAfterStripes(t, func(*Options) {})
	x := w.worker("w", nil)
	defer x.Close()
	require.NoError(t, x.Offload(t.Context(), l.id))
	for _, f := range w.faults {
		complete := map[string]bool{}
		for _, c := range f.Calls() {
			switch c.Op {
			case objstore.OpComplete:
				complete[c.Key] = true
			case objstore.OpUploads:
				require.True(t, complete[c.Key], "a cut part may be listed whole: what is not noted is sent again")
			}
		}
	}
	w.requireReadable(l)
}

func TestStatement25UsedIdsAreRefused(t *testing.T) {
	w, l := offloaded(t, 3, Geometry{2, 1}, ledgerSpec{sizes: even(10, 10)})
	err := w.records.MayCreate(t.Context(), l.id)
	require.ErrorIs(t, err, metadata.ErrExists)
	require.ErrorContains(t, err, "its id may not be used again")
	require.NoError(t, w.records.MayCreate(t.Context(), l.id+1))
}

func TestStatement26StraysAreReportedAndAdopted(t *testing.T) {
	for _, size := range []int{10, 3000} {
		w, l := offloaded(t, 3, Geometry{2, 1}, ledgerSpec{sizes: even(size, 100)})
		x := w.worker("r", nil)
		orphans, err := x.Orphans(t.Context(), "")
		require.NoError(t, err)
		require.Empty(t, orphans)
		require.NoError(t, x.Release(t.Context(), l.id, true))
		// An old backup knows nothing of it.
		_, v, err := w.records.Read(t.Context(), l.id)
		require.NoError(t, err)
		require.NoError(t, w.records.Remove(t.Context(), l.id, v))
		stray := ShardName(AttemptID{9}, 77, 0, 0)
		_, err = w.stores["t1"].Put(t.Context(), stray, objstore.NewBody([]byte("left")), objstore.PutOptions{})
		require.NoError(t, err)
		orphans, err = x.Orphans(t.Context(), "")
		require.NoError(t, err)
		require.NotEmpty(t, orphans)
		var manifest *Orphan
		for i := range orphans {
			o := &orphans[i]
			if o.Key == stray {
				require.False(t, o.Stray)
				require.ErrorContains(t, x.DeleteOrphan(t.Context(), *o), "only objects older than")
				o.Modified = w.now().Add(-OrphanAge - time.Hour)
				require.NoError(t, x.DeleteOrphan(t.Context(), *o))
				continue
			}
			if o.Name.Manifest {
				manifest = o
				require.True(t, o.Stray)
				require.ErrorContains(t, x.DeleteOrphan(t.Context(), *o), "adopt it")
			}
		}
		w.janitor(x)
		held := 0
		for _, s := range w.stores {
			held += len(s.Keys())
		}
		require.Equal(t, len(orphans)-1, held, "nothing is deleted by itself")
		require.NoError(t, x.Adopt(t.Context(), *manifest, []byte(testPassword)))
		w.requireReadable(l)
		w.requireClean()
		require.NoError(t, x.Close())
	}
}

func TestStatement27IntentsWithATornTailResume(t *testing.T) {
	w, l := killedAfterStripes(t, func(*Options) {})
	// Cutting is the log's own matter (internal/intent tests every byte); here: whatever prefix of the notes is left resumes.
	log, err := intent.OpenVFS(w.fs, "/w", intent.Options{})
	require.NoError(t, err)
	all := log.Pending()
	require.NoError(t, log.Close())
	require.GreaterOrEqual(t, len(all), 3)
	for keep := range len(all) + 1 {
		log, err := intent.OpenVFS(w.fs, fmt.Sprintf("/cut%d", keep), intent.Options{})
		require.NoError(t, err)
		for _, r := range all[:keep] {
			_, err := log.Append(t.Context(), r.Data)
			require.NoError(t, err)
		}
		n, err := openIntents(log, "/w")
		require.NoError(t, err)
		left := n.of(l.id)
		require.Equal(t, keep > 0, left != nil)
		if left != nil {
			require.Len(t, left.checkpoints, max(keep-2, 0))
			p := left.progress()
			require.Len(t, p.stripes, len(left.checkpoints))
		}
		require.NoError(t, log.Close())
	}
	// A note in the middle is missing: what lies behind it is not used.
	log, err = intent.OpenVFS(w.fs, "/gap", intent.Options{})
	require.NoError(t, err)
	for i, r := range all {
		if i != 2 {
			_, err := log.Append(t.Context(), r.Data)
			require.NoError(t, err)
		}
	}
	n, err := openIntents(log, "/w")
	require.NoError(t, err)
	require.Empty(t, n.of(l.id).checkpoints)
	require.NoError(t, log.Close())
	w.healed()
	w.meta.ExpireSession()
	x := w.worker("cut2", nil)
	require.NoError(t, x.Offload(t.Context(), l.id))
	require.NoError(t, x.Close())
	w.requireReadable(l)
}

func TestStatement29ReleaseWhileAReaderScans(t *testing.T) {
	w, l := offloaded(t, 3, Geometry{2, 1}, ledgerSpec{sizes: even(3000, 1000)})
	x := w.worker("r", nil)
	defer x.Close()
	h, err := w.reader(nil).Open(t.Context(), l.id)
	require.NoError(t, err)
	n := 0
	for e, err := range h.Entries(t.Context(), 0, h.LastEntry()) {
		require.NoError(t, err)
		require.EqualValues(t, n, e.ID)
		if n == 1000 {
			require.NoError(t, x.Release(t.Context(), l.id, true))
		}
		n++
	}
	require.Equal(t, 3000, n)
}

func TestStatement43MemoryDoesNotGrowWithTheLedger(t *testing.T) {
	for _, g := range []Geometry{{2, 1}, {4, 2}, {10, 4}} {
		w := newWorld(t, "a")
		var peaks []uint64
		for _, mib := range []int{200, 400} {
			l := &testLedger{id: ledger.ID(mib), meta: makeLedger(t, ledgerSpec{sizes: []int{1}}).meta}
			l.meta.LastEntry, l.meta.Length = ledger.EntryID(mib*4-1), int64(mib)<<20
			p := testPlan(l, g)
			p.blockBytes = BlockBytesDefault
			const inFlight = 4
			pool := testPool(t, g.Shards()+inFlight, p.cellBytes)
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			peak := uint64(0)
			e, err := newEncoder(p, progress{}, pool, func(_ context.Context, s *codedStripe) error {
				runtime.ReadMemStats(&after)
				peak = max(peak, after.HeapAlloc-min(before.HeapAlloc, after.HeapAlloc)+uint64(len(pool.mapped)*pool.size))
				for _, c := range s.cells {
					pool.put(c)
				}
				return nil
			})
			require.NoError(t, err)
			payload := make([]byte, 256<<10-100)
			for i := range mib * 4 {
				entry := Entry{ID: ledger.EntryID(i), LAC: ledger.EntryID(i - 1), Length: int64(i+1) * int64(len(payload)), Digest: make([]byte, 4), Payload: payload}
				require.NoError(t, e.add(t.Context(), &entry))
			}
			_, err = e.finish(t.Context())
			require.NoError(t, err)
			require.LessOrEqual(t, int64(peak), int64(g.Shards()+inFlight)*int64(p.cellBytes)*5/4+32<<20, "%s, %d MiB", g, mib)
			peaks = append(peaks, peak)
		}
		_ = w
		t.Logf("%s: %v bytes", g, peaks)
	}
}

func TestStatement40FlippedOnTheWayIsRefusedOrFound(t *testing.T) {
	for n := 1; n <= 3; n++ {
		w := threeTargets(t)
		l := w.add(ledgerSpec{sizes: even(400, 1000)})
		x := w.worker("w", nil)
		w.faults["t2"].Set(faulty.On(objstore.OpPut, faulty.Nth(n, faulty.Flip(int64(n)*1000))))
		err := x.Offload(t.Context(), l.id)
		w.healed()
		if err != nil {
			require.NoError(t, x.Offload(t.Context(), l.id))
		}
		w.requireReadable(l)
		findings, err := x.Verify(t.Context(), l.id, VerifyFull)
		require.NoError(t, err)
		require.Empty(t, findings)
		w.janitor(x)
		w.requireClean()
		require.NoError(t, x.Close())
	}
}

func TestForeignObjectUnderOurNameIsLeftAlone(t *testing.T) {
	w := threeTargets(t)
	l := w.add(ledgerSpec{sizes: even(10, 100)})
	x := w.worker("w", nil)
	defer x.Close()
	foreign := []byte("somebody else's")
	var mu sync.Mutex
	var key, target string
	for id := range w.faults {
		w.faults[id].Set(faulty.On(objstore.OpPut, func(c faulty.Call) faulty.Fault {
			mu.Lock()
			defer mu.Unlock()
			if key == "" {
				key, target = c.Key, id
				_, err := w.stores[id].Put(t.Context(), c.Key, objstore.NewBody(foreign), objstore.PutOptions{})
				require.NoError(t, err)
			}
			return faulty.Fault{}
		}))
	}
	require.ErrorContains(t, x.Offload(t.Context(), l.id), "look at who else writes to this bucket and prefix")
	got := make([]byte, len(foreign))
	_, err := w.stores[target].GetRange(t.Context(), key, 0, got)
	require.NoError(t, err)
	require.Equal(t, foreign, got)
	require.Equal(t, "somebody else's", string(got))
	_, _, err = w.views.Ledgers.Read(t.Context(), l.id)
	require.NoError(t, err, "the ledger stays where it is")
}

func TestEntriesThatCanNotBeReadStayOnTheBookies(t *testing.T) {
	w := threeTargets(t)
	l := w.add(ledgerSpec{sizes: even(100, 1000)})
	l.bodies = l.bodies[:60]
	x := w.worker("w", nil)
	defer x.Close()
	require.ErrorContains(t, x.Offload(t.Context(), l.id), "no such entry")
	require.Equal(t, StateUploading, w.record(l.id).State)
	_, err := w.reader(nil).Open(t.Context(), l.id)
	require.ErrorIs(t, err, ErrNotOffloaded)
	// Nobody goes on with it: after a day it is garbage, then nothing.
	w.advance(48 * time.Hour)
	w.janitor(x)
	w.advance(48 * time.Hour)
	w.janitor(x)
	_, _, err = w.records.Read(t.Context(), l.id)
	require.ErrorIs(t, err, ErrNoRecord)
	w.requireClean()
}

func TestLedgerDeletedByOthersIsGoneFromTheTierToo(t *testing.T) {
	w, l := offloaded(t, 3, Geometry{2, 1}, ledgerSpec{sizes: even(400, 1000)})
	x := w.worker("r", nil)
	defer x.Close()
	require.NoError(t, w.views.Ledgers.Delete(t.Context(), l.id, metadata.Any))
	_, err := x.Clean(t.Context())
	require.NoError(t, err)
	require.Equal(t, StateComplete, w.record(l.id).State, "one look is not enough")
	w.janitor(x)
	_, _, err = w.records.Read(t.Context(), l.id)
	require.ErrorIs(t, err, ErrNoRecord)
	w.requireClean()
}

func TestMetricsAreWritten(t *testing.T) {
	w, l := offloaded(t, 3, Geometry{2, 1}, ledgerSpec{sizes: even(400, 1000)})
	r := w.reader(nil)
	h, err := r.Open(t.Context(), l.id)
	require.NoError(t, err)
	_, err = h.Entry(t.Context(), 3)
	require.NoError(t, err)
	pr, pw := io.Pipe()
	go func() { r.WriteMetrics(pw); _ = pw.Close() }()
	text, err := io.ReadAll(pr)
	require.NoError(t, err)
	require.Contains(t, string(text), "bindery_offload_entries_read_total 1\n")
	require.Contains(t, string(text), `bindery_offload_entry_read_seconds_count{path="healthy"} 1`)
}

func TestProgressAndReasons(t *testing.T) {
	w := threeTargets(t)
	l := w.add(ledgerSpec{sizes: even(40, 400_000)})
	x := w.worker("w", nil)
	defer x.Close()
	var at []Progress
	w.onRead = func(e ledger.EntryID) {
		if e == 20 {
			at = x.Progress()
		}
	}
	require.NoError(t, x.Offload(t.Context(), l.id))
	require.Len(t, at, 1)
	require.Equal(t, Progress{Ledger: l.id, Stage: StageUploading, Done: 20 * 400_000, Total: 40 * 400_000, Since: w.now()}, at[0])
	require.Equal(t, 10*time.Second, at[0].Left(w.now().Add(10*time.Second)))
	require.Empty(t, x.Progress())
	require.Error(t, x.Offload(t.Context(), 99))
	var b strings.Builder
	x.WriteMetrics(&b)
	require.Contains(t, b.String(), `bindery_offload_ledgers_failed_total{reason="no_ledger"} 1`)
	require.Contains(t, b.String(), "bindery_offload_ledgers_committed_total 1\n")
}

func TestSettingsChangedBetweenRunsDoNotLowerWhatMustArrive(t *testing.T) {
	w, l := killedAfterStripes(t, func(o *Options) { o.Geometry = Geometry{1, 1} })
	x := w.worker("w", func(o *Options) { o.Geometry, o.Tolerated = Geometry{1, 0}, -1 })
	defer x.Close()
	w.faults["t2"].Set(faulty.Always(faulty.Fail(objstore.KindUnreachable)))
	require.Error(t, x.Offload(t.Context(), l.id), "two shards were begun, two must arrive")
	w.healed()
	require.NoError(t, x.Offload(t.Context(), l.id))
	require.Zero(t, w.record(l.id).Missing())
	w.requireReadable(l)
}

func TestOneBlockLeavesShardsEmpty(t *testing.T) {
	w := six(t)
	l := w.add(ledgerSpec{sizes: []int{5}})
	x := w.worker("w", func(o *Options) { o.InlineBytes = -1 })
	defer x.Close()
	require.NoError(t, x.Offload(t.Context(), l.id))
	require.False(t, w.record(l.id).Inline)
	w.requireReadable(l)
	w.requireClean()
	target, _ := w.shard(l, 3)
	w.stores[target].Wipe()
	findings, err := x.Verify(t.Context(), l.id, VerifyFull)
	require.NoError(t, err)
	require.NotEmpty(t, findings, "an empty shard is missed too")
	_, err = x.Repair(t.Context(), l.id, RepairOptions{})
	require.NoError(t, err)
	w.janitor(x)
	w.requireClean()
}
