package offload

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/memmeta"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/offload/objstore"
	"github.com/binderylog/bindery/offload/objstore/dir"
)

// Ratios of the targets of docs/formats/offload.md's design, measured in one run: pairs in turns, medians. What is measured against is the
// same bytes through the same store without the format.

// median of the ratios a/b of interleaved pairs.
func ratio(b *testing.B, pairs int, x, y func() time.Duration) float64 {
	b.Helper()
	x()
	y() // warm
	var rs []float64
	for range pairs {
		rs = append(rs, float64(x())/float64(y()))
	}
	slices.Sort(rs)
	return rs[len(rs)/2]
}

func timed(b *testing.B, f func() error) time.Duration {
	b.Helper()
	start := time.Now()
	if err := f(); err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}

// BenchmarkEncode packs, sums and codes on one core (P2).
func BenchmarkEncode(b *testing.B) {
	for _, g := range []Geometry{{1, 0}, {2, 1}, {4, 2}, {10, 4}} {
		b.Run(g.String(), func(b *testing.B) {
			l := makeLedger(b, ledgerSpec{sizes: even(32<<10, 1024)})
			p := testPlan(l, g)
			p.cellBytes, p.blockBytes = CellBytesDefault, BlockBytesDefault
			pool := newBufferPool(g.Shards()+4, p.cellBytes)
			b.SetBytes(l.meta.Length)
			for b.Loop() {
				e, err := newEncoder(p, progress{}, pool, func(_ context.Context, s *codedStripe) error {
					for _, c := range s.cells {
						pool.put(c)
					}
					return nil
				})
				require.NoError(b, err)
				for i := range l.bodies {
					entry := l.entry(b, i)
					if err := e.add(b.Context(), &entry); err != nil {
						b.Fatal(err)
					}
				}
				_, err = e.finish(b.Context())
				require.NoError(b, err)
			}
		})
	}
}

// benchSource yields entries of 1 KiB without a copy of the ledger.
func benchSource(payload []byte) EntrySource {
	return func(_ context.Context, _ ledger.ID, _ *ledger.Metadata, first, last ledger.EntryID) iter.Seq2[Entry, error] {
		return func(yield func(Entry, error) bool) {
			for e := first; e <= last; e++ {
				if !yield(Entry{ID: e, LAC: e - 1, Length: int64(e+1) * int64(len(payload)), Digest: payload[:4], Payload: payload}, nil) {
					return
				}
			}
		}
	}
}

// BenchmarkUploadAgainstPut compares an offload into folders, without verification, with raw multipart uploads of the same bytes (P1).
func BenchmarkUploadAgainstPut(b *testing.B) {
	for _, g := range []Geometry{{2, 1}, {4, 2}} {
		b.Run(g.String(), func(b *testing.B) {
			var list []Target
			for i := range g.Shards() {
				s, err := dir.Open(vfs.OS(), b.TempDir(), dir.Options{Create: true})
				require.NoError(b, err)
				defer s.Close()
				list = append(list, Target{ID: fmt.Sprint("t", i), Store: s})
			}
			targets, err := NewTargets(list)
			require.NoError(b, err)
			store := memmeta.Open("")
			defer store.Close()
			views := metadata.NewViews(store, testRoot)
			payload := make([]byte, 1024)
			const entries = 96 << 10
			w, err := NewWorker(Options{
				Records: NewRecords(views), Targets: targets, Entries: benchSource(payload), Dir: b.TempDir(), Geometry: g, ReadRate: -1, Verify: VerifyHead,
			})
			require.NoError(b, err)
			defer w.Close()
			id := ledger.ID(0)
			meta := makeLedger(b, ledgerSpec{sizes: []int{1}}).meta
			meta.LastEntry, meta.Length = entries-1, entries<<10
			var stored int64
			offload := func() time.Duration {
				id++
				_, err := views.Ledgers.Create(b.Context(), id, meta.Clone())
				require.NoError(b, err)
				before := int64(w.m.bytesStored.Get())
				d := timed(b, func() error { return w.Offload(b.Context(), id) })
				stored = int64(w.m.bytesStored.Get()) - before
				return d
			}
			n := 0
			raw := func() time.Duration {
				n++
				body := objstore.NewBody(make([]byte, CellBytesDefault))
				parts := int(stored) / CellBytesDefault / g.Shards()
				return timed(b, func() error { return rawUpload(b.Context(), targets, n, parts, body) })
			}
			offload()
			for b.Loop() {
				b.ReportMetric(1/ratio(b, 7, offload, raw), "of-raw-put")
			}
		})
	}
}

// rawUpload sends parts to each target, four under way at once, as an offload does.
func rawUpload(ctx context.Context, targets *Targets, n, parts int, body objstore.Body) error {
	sem := make(chan struct{}, 4)
	errs := make(chan error, len(targets.places))
	for _, p := range targets.places {
		go func() {
			store, key := targets.byID[p.Target], fmt.Sprintf("raw/%d", n)
			id, err := store.CreateUpload(ctx, key, objstore.UploadOptions{})
			var done []objstore.Part
			for i := 0; i < parts && err == nil; i++ {
				sem <- struct{}{}
				var part objstore.Part
				part, err = store.PutPart(ctx, key, id, i+1, body)
				<-sem
				done = append(done, part)
			}
			if err == nil {
				_, err = store.CompleteUpload(ctx, key, id, done)
			}
			errs <- err
		}()
	}
	var err error
	for range targets.places {
		if e := <-errs; e != nil {
			err = e
		}
	}
	return err
}

// BenchmarkReadsAgainstGets compares reads with raw GETs of the same lengths, degraded with healthy ones, and a rebuild (P3, P4, P5, P9).
func BenchmarkReadsAgainstGets(b *testing.B) {
	w := newWorld(b, "a", "b", "c", "d", "e", "f")
	for id := range w.targets.byID {
		w.targets.byID[id] = w.stores[id] // without the counting wrapper, which keeps every call
	}
	l := w.add(ledgerSpec{sizes: even(64<<10, 1024)})
	x := w.worker("w", func(o *Options) { o.CellBytes, o.Verify = CellBytesDefault, VerifyHead })
	defer x.Close()
	require.NoError(b, x.Offload(b.Context(), l.id))
	ctx := b.Context()
	open := func() *Handle {
		h, err := w.reader(func(o *ReaderOptions) { o.BlockCacheBytes, o.NoHedge = 1, true }).Open(ctx, l.id)
		require.NoError(b, err)
		return h
	}
	h := open()
	m := h.c.manifest
	const reads = 100
	entry := func(h *Handle) func() time.Duration {
		return func() time.Duration {
			return timed(b, func() error {
				for i := range reads {
					if _, err := h.Entry(ctx, ledger.EntryID(i*617%int(h.LastEntry()))); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	rawGet := func() time.Duration {
		buf := make([]byte, m.blocks[0].stored)
		return timed(b, func() error {
			for i := range reads {
				r := h.c.record.Placement[i%4]
				if _, err := w.stores[r.Target].GetRange(ctx, h.c.shardName(i%4), int64(i)*1000, buf); err != nil {
					return err
				}
			}
			return nil
		})
	}
	scan := func() time.Duration {
		return timed(b, func() error {
			for _, err := range h.Entries(ctx, 0, h.LastEntry()) {
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	rawScan := func() time.Duration {
		buf := make([]byte, CellBytesDefault)
		return timed(b, func() error {
			for s := range m.stripes {
				for i := range 4 {
					n := m.stripes[s].lengths[i]
					if n == 0 {
						continue
					}
					if _, err := w.stores[h.c.record.Placement[i].Target].GetRange(ctx, h.c.shardName(i), h.c.cellOffset(s, i), buf[:n]); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	broken := open()
	broken.c = &copyOf{}
	*broken.c = *h.c
	broken.c.record = h.c.record.Clone()
	for i := range 2 {
		broken.c.record.Placement[i].Missing = true
	}
	for b.Loop() {
		b.ReportMetric(ratio(b, 7, entry(h), rawGet), "entry/raw-get")
		b.ReportMetric(1/ratio(b, 7, scan, rawScan), "scan-of-raw")
		b.ReportMetric(ratio(b, 7, entry(broken), entry(h)), "degraded/healthy")
	}
}
