package offload

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/binderylog/bindery/internal/digest"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/memmeta"
	"github.com/binderylog/bindery/offload/objstore"
	"github.com/binderylog/bindery/offload/objstore/faultproxy"
	"github.com/binderylog/bindery/offload/objstore/s3"
	"github.com/binderylog/bindery/offload/objstore/s3test"
)

// Ratios of the tier's work to raw requests for the same bytes, against a real S3 server, each target a bucket of it. What is compared is
// measured in turns, and the median counts. `make bench-offload` runs them; docs/benchmarks.md has the targets, P1 to P11.

const (
	benchPairs   = 7
	benchEntries = 96 << 10 // of 1 KiB
	benchReads   = 300
)

// bucketsOf is a tier of six buckets and a metadata store in memory.
type bucketsOf struct {
	views   *metadata.Views
	store   *memmeta.Store
	targets *Targets
	proxies []*faultproxy.Proxy
}

func (x *bucketsOf) close() {
	for _, p := range x.targets.places {
		_ = x.targets.byID[p.Target].(*objstore.Target).Close()
	}
	_ = x.store.Close()
}

// newBuckets starts the server; proxied targets have a proxy before each.
func newBuckets(b testing.TB, proxied bool) *bucketsOf {
	b.Helper()
	srv := s3test.Start(b, s3test.Options{})
	makeBuckets(b, srv, 6)
	var stores []objstore.Store
	var proxies []*faultproxy.Proxy
	for i := range 6 {
		url := srv.URL
		if proxied {
			p := faultproxy.Start(b, srv.URL)
			proxies, url = append(proxies, p), p.URL
		}
		s, err := openBucket(url, i)
		require.NoError(b, err)
		stores = append(stores, s)
	}
	x, err := bucketsIn(stores)
	require.NoError(b, err)
	x.proxies = proxies
	return x
}

// bucketsIn makes targets of stores.
func bucketsIn(stores []objstore.Store) (x *bucketsOf, err error) {
	x = &bucketsOf{store: memmeta.Open("")}
	x.views = metadata.NewViews(x.store, testRoot)
	var list []Target
	for i, s := range stores {
		id := fmt.Sprint("t", i+1)
		list = append(list, Target{ID: id, Store: objstore.NewTarget(s, objstore.TargetOptions{ID: id})})
	}
	x.targets, err = NewTargets(list)
	return x, err
}

// makeBuckets makes the buckets of that many targets, and this process and its children know how to enter them.
func makeBuckets(b testing.TB, srv *s3test.Server, count int) {
	b.Helper()
	b.Setenv("STORE_ACCESS_KEY_ID", s3test.AccessKey)
	b.Setenv("STORE_SECRET_ACCESS_KEY", s3test.SecretKey)
	for i := range count {
		require.NoError(b, os.Mkdir(filepath.Join(srv.Dir, "data", bucketName(i)), 0o755))
	}
}

func bucketName(i int) string { return fmt.Sprint("bucket-", i+1) }

// openBucket opens the bucket of target i.
func openBucket(url string, i int) (objstore.Store, error) {
	return s3.Open(s3.Options{Endpoint: url, Region: s3test.Region, Bucket: bucketName(i), AllowInsecure: true, Credentials: s3.Credentials{Source: "env", EnvPrefix: "STORE"}})
}

// worker offloads made-up ledgers of entries of 1 KiB and verifies no more than that the objects are there.
func (x *bucketsOf) worker(b *testing.B, g Geometry) *Worker {
	b.Helper()
	w, err := NewWorker(Options{
		Records: NewRecords(x.views), Targets: x.targets, Entries: benchSource(), Dir: b.TempDir(), Geometry: g, ReadRate: -1, ScrubRate: -1, Verify: VerifyHead,
	})
	require.NoError(b, err)
	return w
}

// ledger makes the record of a ledger that benchSource has.
func (x *bucketsOf) ledger(b *testing.B, id ledger.ID, entries int) {
	b.Helper()
	_, err := x.views.Ledgers.Create(b.Context(), id, benchRecord(entries))
	require.NoError(b, err)
}

// benchRecord is the record of a closed ledger of entries of 1 KiB.
func benchRecord(entries int) *ledger.Metadata {
	return closedRecord(ledger.DigestCRC32C, ledger.EntryID(entries-1), int64(entries)<<10)
}

// benchSource yields entries of 1 KiB that do not compress, without holding a ledger.
func benchSource() EntrySource {
	random := make([]byte, 64<<10)
	fillRandom(rand.New(rand.NewPCG(1, 2)), random, false)
	return func(_ context.Context, _ ledger.ID, _ *ledger.Metadata, first, last ledger.EntryID) iter.Seq2[Entry, error] {
		return func(yield func(Entry, error) bool) {
			for e := first; e <= last; e++ {
				payload := random[int(e*61)%(len(random)-1024):][:1024]
				if !yield(Entry{ID: e, LAC: e - 1, Length: int64(e+1) << 10, Digest: payload[:4], Payload: payload}, nil) {
					return
				}
			}
		}
	}
}

func timed(b *testing.B, f func() error) time.Duration {
	b.Helper()
	start := time.Now()
	if err := f(); err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}

// median of durations or ratios.
func median[T time.Duration | float64](xs []T) T {
	s := slices.Clone(xs)
	slices.Sort(s)
	return s[len(s)/2]
}

// ratio is the median of x/y over pairs taken in turns, after one of each to warm up.
func ratio(x, y func() time.Duration) float64 {
	x()
	y()
	var rs []float64
	for range benchPairs {
		rs = append(rs, float64(x())/float64(y()))
	}
	return median(rs)
}

// BenchmarkTierUpload compares an offload with raw multipart uploads of the same number of bytes, parts and parts under way (P1), says how
// much faster one core packs and codes than that (P2), and how many bytes are stored (P7, P8).
func BenchmarkTierUpload(b *testing.B) {
	for _, g := range []Geometry{{2, 1}, {4, 2}} {
		b.Run(g.String(), func(b *testing.B) {
			x := newBuckets(b, false)
			defer x.close()
			w := x.worker(b, g)
			defer w.Close()
			id, stored := ledger.ID(0), int64(0)
			offload := func() time.Duration {
				id++
				x.ledger(b, id, benchEntries)
				before := int64(w.m.bytesStored.Get())
				d := timed(b, func() error { return w.Offload(b.Context(), id) })
				stored = int64(w.m.bytesStored.Get()) - before
				r, _, err := w.o.Records.Read(b.Context(), id)
				require.NoError(b, err)
				x.drop(b, r, id)
				return d
			}
			body := make([]byte, CellBytesDefault)
			fillRandom(rand.New(rand.NewPCG(3, 4)), body, false)
			n := 0
			var raws []time.Duration
			raw := func() time.Duration {
				n++
				d := timed(b, func() error { return x.rawUpload(b.Context(), g.Shards(), n, stored, body) })
				raws = append(raws, d)
				x.dropRaw(b, g.Shards(), n)
				return d
			}
			offload()
			for b.Loop() {
				b.ReportMetric(1/ratio(offload, raw), "P1-of-raw-put")
				packed := packOneCore(b, g)
				b.ReportMetric(median(raws).Seconds()/packed.Seconds(), "P2-times-raw-put")
			}
			payloads := int64(benchEntries) << 10
			bound := 1.01*(1+float64(g.Parity)/float64(g.Data))*float64(payloads+4*benchEntries) + float64(8<<10*g.Shards())
			b.ReportMetric(float64(stored)/bound, "P7-of-bound")
			x.ledger(b, 1<<40, benchEntries)
			require.NoError(b, w.Offload(b.Context(), 1<<40))
			r, _, err := w.o.Records.Read(b.Context(), 1<<40)
			require.NoError(b, err)
			b.ReportMetric(100*float64(r.Manifest.Length)/float64(payloads), "P8-manifest-%")
		})
	}
}

// packOneCore checks digests, packs, sums and codes as much as an offload of BenchmarkTierUpload does, without sending it.
func packOneCore(b *testing.B, g Geometry) time.Duration {
	b.Helper()
	const entries = 8 << 10
	l := makeLedger(b, ledgerSpec{sizes: even(entries, 1024)})
	d, err := digest.New(l.meta.Digest, []byte(testPassword))
	require.NoError(b, err)
	p := testPlan(l, g)
	p.cellBytes, p.blockBytes = CellBytesDefault, BlockBytesDefault
	pool := testPool(b, g.Shards()+4, p.cellBytes)
	one := func() time.Duration {
		return timed(b, func() error {
			e, err := newEncoder(p, progress{}, pool, func(_ context.Context, s *codedStripe) error {
				for _, c := range s.cells {
					pool.put(c)
				}
				return nil
			})
			if err != nil {
				return err
			}
			for i, body := range l.bodies {
				if _, err := d.Open(body, int64(l.id), int64(i)); err != nil {
					return err
				}
				entry, err := ParseEntry(body, l.meta.Digest)
				if err != nil {
					return err
				}
				if err := e.add(b.Context(), &entry); err != nil {
					return err
				}
			}
			_, err = e.finish(b.Context())
			return err
		})
	}
	one()
	var ds []time.Duration
	for range benchPairs {
		ds = append(ds, one())
	}
	return median(ds) * (benchEntries / entries)
}

// rawUpload sends stored bytes in whole parts to the first targets, four parts under way at once, as an offload does.
func (x *bucketsOf) rawUpload(ctx context.Context, shards, n int, stored int64, part []byte) error {
	body := objstore.NewBody(part)
	sem := make(chan struct{}, defaultInFlight)
	var g errgroup.Group
	for _, p := range x.targets.places[:shards] {
		g.Go(func() error {
			store, key := x.targets.byID[p.Target], fmt.Sprintf("raw/%d", n)
			id, err := store.CreateUpload(ctx, key, objstore.UploadOptions{})
			var done []objstore.Part
			for left, i := stored/int64(shards), 1; left > 0 && err == nil; i++ {
				b := body
				if left < int64(len(part)) {
					b = objstore.NewBody(part[:left])
				}
				sem <- struct{}{}
				var one objstore.Part
				one, err = store.PutPart(ctx, key, id, i, b)
				<-sem
				done, left = append(done, one), left-int64(len(b.Data))
			}
			if err == nil {
				_, err = store.CompleteUpload(ctx, key, id, done)
			}
			return err
		})
	}
	return g.Wait()
}

func (x *bucketsOf) dropRaw(b *testing.B, shards, n int) {
	for _, p := range x.targets.places[:shards] {
		require.NoError(b, x.targets.byID[p.Target].Delete(b.Context(), fmt.Sprintf("raw/%d", n)))
	}
}

func (x *bucketsOf) drop(b *testing.B, r *Record, id ledger.ID) {
	for i, p := range r.Placement {
		require.NoError(b, x.targets.byID[p.Target].Delete(b.Context(), ShardName(r.Attempt, id, i, p.Generation)))
	}
}

// offloaded offloads one ledger and opens it for reading without a cache and without hedging.
func (x *bucketsOf) offloaded(b *testing.B) (*Worker, *Handle) {
	b.Helper()
	w := x.worker(b, Geometry{4, 2})
	x.ledger(b, 1, benchEntries)
	require.NoError(b, w.Offload(b.Context(), 1))
	return w, x.open(b, true)
}

func (x *bucketsOf) open(b *testing.B, noHedge bool) *Handle {
	r, err := NewReader(ReaderOptions{Records: NewRecords(x.views), Targets: x.targets, BlockCacheBytes: 1, NoHedge: noHedge})
	require.NoError(b, err)
	h, err := r.Open(b.Context(), 1)
	require.NoError(b, err)
	return h
}

// blockSpan is where the block of an entry lies.
func blockSpan(h *Handle, e ledger.EntryID) span {
	i := h.c.manifest.blockOf(e)
	return h.c.spanOf(h.c.whole, i, i)
}

// random returns the nth entry to read.
func random(h *Handle, n int) ledger.EntryID {
	return ledger.EntryID(n * 40503 % int(h.LastEntry()+1))
}

func readOne(b *testing.B, h *Handle, e ledger.EntryID) time.Duration {
	return timed(b, func() error { _, err := h.Entry(b.Context(), e); return err })
}

// BenchmarkTierEntry compares reads of single entries with raw GETs of the same lengths from the same objects (P3), and reads that have to
// rebuild with those that have not (P5).
func BenchmarkTierEntry(b *testing.B) {
	x := newBuckets(b, false)
	defer x.close()
	w, h := x.offloaded(b)
	defer w.Close()
	broken := x.open(b, true)
	lost := *broken.c
	lost.record = lost.record.Clone()
	broken.c = &lost
	for i := range 2 {
		lost.record.Placement[i].Missing = true
	}
	rawGet := func(e ledger.EntryID) time.Duration {
		s := blockSpan(h, e)
		buf := make([]byte, s.to-s.from)
		return timed(b, func() error {
			_, err := x.targets.byID[h.c.record.Placement[s.shard].Target].GetRange(b.Context(), h.c.shardName(s.shard), s.object+int64(s.from), buf)
			return err
		})
	}
	for b.Loop() {
		var healthy, raw, degraded, alike []time.Duration
		gets := h.r.t.m.blockGets.Get()
		for n := range benchReads {
			e := random(h, n)
			healthy, raw = append(healthy, readOne(b, h, e)), append(raw, rawGet(e))
			if blockSpan(h, e).shard < 2 {
				degraded, alike = append(degraded, readOne(b, broken, e)), append(alike, healthy[len(healthy)-1])
			}
		}
		b.ReportMetric(float64(median(healthy).Microseconds())/1e3, "entry-p50-ms")
		b.ReportMetric(float64(median(healthy))/float64(median(raw)), "P3-of-raw-get")
		b.ReportMetric(float64(h.r.t.m.blockGets.Get()-gets)/benchReads, "P3-gets")
		b.ReportMetric(float64(median(degraded))/float64(median(alike)), "P5-degraded")
	}
}

// BenchmarkTierScan compares a sequential read with raw GETs of whole cells, two under way at once, as a scan has them (P4).
func BenchmarkTierScan(b *testing.B) {
	x := newBuckets(b, false)
	defer x.close()
	w, h := x.offloaded(b)
	defer w.Close()
	m := h.c.manifest
	scan := func() time.Duration {
		return timed(b, func() error {
			for _, err := range h.Entries(b.Context(), 0, h.LastEntry()) {
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	cells := 0
	raw := func() time.Duration {
		return timed(b, func() error {
			var g errgroup.Group
			g.SetLimit(2)
			cells = 0
			for s := range m.stripes {
				for i, n := range m.stripes[s].lengths {
					if n == 0 {
						continue
					}
					cells++
					g.Go(func() error {
						_, err := x.targets.byID[h.c.record.Placement[i].Target].GetRange(b.Context(), h.c.shardName(i), h.c.cellOffset(s, i), make([]byte, n))
						return err
					})
				}
			}
			return g.Wait()
		})
	}
	for b.Loop() {
		before := h.r.t.m.blockGets.Get()
		b.ReportMetric(1/ratio(scan, raw), "P4-of-raw-gets")
		b.ReportMetric(float64(h.r.t.m.blockGets.Get()-before)/(benchPairs+1)-float64(cells), "P4-gets-above-cells")
	}
}

// BenchmarkTierRebuild compares the repair of a lost shard with raw GETs of as many shards as it takes and a PUT of one (P9).
func BenchmarkTierRebuild(b *testing.B) {
	x := newBuckets(b, false)
	defer x.close()
	w, h := x.offloaded(b)
	defer w.Close()
	m, ctx := h.c.manifest, b.Context()
	repair := func() time.Duration {
		r, _, err := w.o.Records.Read(ctx, 1)
		require.NoError(b, err)
		require.NoError(b, x.targets.byID[r.Placement[0].Target].Delete(ctx, ShardName(r.Attempt, 1, 0, r.Placement[0].Generation)))
		return timed(b, func() error {
			_, err := w.Repair(ctx, 1, RepairOptions{Level: VerifyHead})
			return err
		})
	}
	n := 0
	raw := func() time.Duration {
		n++
		r, _, err := w.o.Records.Read(ctx, 1)
		require.NoError(b, err)
		target := x.targets.byID[r.Placement[0].Target]
		d := timed(b, func() error {
			key := fmt.Sprintf("raw/%d", n)
			id, err := target.CreateUpload(ctx, key, objstore.UploadOptions{})
			if err != nil {
				return err
			}
			var parts []objstore.Part
			for s := range m.stripes {
				var g errgroup.Group
				for i := 1; i < 5; i++ {
					n := m.stripes[s].length(i)
					if n == 0 {
						continue
					}
					g.Go(func() error {
						_, err := x.targets.byID[r.Placement[i].Target].GetRange(ctx, ShardName(r.Attempt, 1, i, r.Placement[i].Generation), h.c.cellOffset(s, i), make([]byte, n))
						return err
					})
				}
				if err := g.Wait(); err != nil {
					return err
				}
				p, err := target.PutPart(ctx, key, id, s+1, objstore.NewBody(make([]byte, m.stripes[s].length(0))))
				if err != nil {
					return err
				}
				parts = append(parts, p)
			}
			_, err = target.CompleteUpload(ctx, key, id, parts)
			return err
		})
		require.NoError(b, target.Delete(ctx, fmt.Sprintf("raw/%d", n)))
		return d
	}
	for b.Loop() {
		b.ReportMetric(1/ratio(repair, raw), "P9-of-raw")
	}
}

// BenchmarkTierSlowTarget compares the slowest reads while one of six targets answers after two seconds with those of healthy ones (P11).
func BenchmarkTierSlowTarget(b *testing.B) {
	x := newBuckets(b, true)
	defer x.close()
	w, _ := x.offloaded(b)
	defer w.Close()
	h := x.open(b, false)
	p99 := func() time.Duration {
		var ds []time.Duration
		for n := range 4 * benchReads {
			ds = append(ds, readOne(b, h, random(h, n)))
		}
		slices.Sort(ds)
		return ds[len(ds)*99/100]
	}
	slow := slices.IndexFunc(x.targets.places, func(p Place) bool { return p.Target == h.c.record.Placement[1].Target })
	for b.Loop() {
		x.proxies[slow].Set(nil)
		healthy := p99()
		x.proxies[slow].Set(faultproxy.Always(faultproxy.Delay(2 * time.Second)))
		b.ReportMetric(float64(p99())/float64(healthy), "P11-p99-slow")
		b.ReportMetric(float64(healthy.Microseconds())/1e3, "p99-ms")
		x.proxies[slow].Set(nil)
	}
}
