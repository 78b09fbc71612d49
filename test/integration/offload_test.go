package integration

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/digest"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/memmeta"
	"github.com/binderylog/bindery/offload"
	"github.com/binderylog/bindery/offload/objstore"
	"github.com/binderylog/bindery/offload/objstore/driver"
	"github.com/binderylog/bindery/offload/objstore/faultproxy"
	"github.com/binderylog/bindery/offload/objstore/objstoretest"
	"github.com/binderylog/bindery/offload/objstore/s3"
	"github.com/binderylog/bindery/offload/objstore/s3test"
)

// tierKit offloads a ledger that is held in memory to real targets.
type tierKit struct {
	t       *testing.T
	records *offload.Records
	targets *offload.Targets
	worker  *offload.Worker
	id      ledger.ID
	bodies  [][]byte
	folders []string // where each target's objects are files
}

// newTierKit makes a closed ledger of n entries of that size.
func newTierKit(t *testing.T, n, size int, targets []driver.Options, folders []string) *tierKit {
	t.Helper()
	store := memmeta.Open("")
	t.Cleanup(func() { _ = store.Close() })
	views := metadata.NewViews(store, "/ledgers")
	k := &tierKit{t: t, records: offload.NewRecords(views), id: 4711, folders: folders}

	d, err := digest.New(ledger.DigestCRC32C, []byte("password"))
	require.NoError(t, err)
	for i := range n {
		k.bodies = append(k.bodies, d.Seal(nil, int64(k.id), int64(i), int64(i)-1, int64((i+1)*size), objstoretest.Bytes(uint64(i), size)))
	}
	_, err = views.Ledgers.Create(t.Context(), k.id, &ledger.Metadata{
		FormatVersion: metadata.LedgerFormatV3, Ensemble: 3, WriteQuorum: 3, AckQuorum: 2, State: ledger.StateClosed, LastEntry: ledger.EntryID(n - 1),
		Length: int64(n * size), Digest: ledger.DigestCRC32C, Password: []byte("password"), HasPassword: true,
		Fragments: []ledger.Fragment{{First: 0, Bookies: []ledger.BookieID{"a:1", "b:1", "c:1"}}},
		Custom:    map[string][]byte{"bindery.tier": []byte("release")},
	})
	require.NoError(t, err)

	var list []offload.Target
	for _, o := range targets {
		s, err := driver.Open(o)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		_, err = s.Check(t.Context())
		require.NoError(t, err)
		list = append(list, offload.Target{ID: s.ID(), Store: s})
	}
	k.targets, err = offload.NewTargets(list)
	require.NoError(t, err)
	k.worker, err = offload.NewWorker(offload.Options{
		Records: k.records, Targets: k.targets, Entries: k.entries, Dir: t.TempDir(), CellBytes: offload.CellBytesMin,
		ReadRate: -1, ScrubRate: -1, TakeOver: time.Millisecond, Grace: time.Millisecond,
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = k.worker.Close() })
	return k
}

func (k *tierKit) entries(_ context.Context, _ ledger.ID, _ *ledger.Metadata, first, last ledger.EntryID) iter.Seq2[offload.Entry, error] {
	return func(yield func(offload.Entry, error) bool) {
		for e := first; e <= last; e++ {
			if !yield(offload.ParseEntry(k.bodies[e], ledger.DigestCRC32C)) {
				return
			}
		}
	}
}

// requireIdentical reads the ledger from the targets and compares it by SHA-256.
func (k *tierKit) requireIdentical() {
	k.t.Helper()
	r, err := offload.NewReader(offload.ReaderOptions{Records: k.records, Targets: k.targets})
	require.NoError(k.t, err)
	h, err := r.Open(k.t.Context(), k.id)
	require.NoError(k.t, err)
	want, got := sha256.New(), sha256.New()
	for _, b := range k.bodies {
		want.Write(b)
	}
	for e, err := range h.Entries(k.t.Context(), 0, h.LastEntry()) {
		require.NoError(k.t, err)
		got.Write(e.AppendBody(nil, k.id))
	}
	require.Equal(k.t, want.Sum(nil), got.Sum(nil))
}

// files returns what is stored at all targets.
func (k *tierKit) files() (out []string) {
	k.t.Helper()
	for _, folder := range k.folders {
		err := filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
			if errors.Is(err, os.ErrNotExist) {
				return nil
			}
			if err == nil && d.IsDir() && d.Name() == ".bindery" {
				return filepath.SkipDir
			}
			if err == nil && !d.IsDir() {
				out = append(out, path)
			}
			return err
		})
		require.NoError(k.t, err)
	}
	return out
}

// lifeOfALedger offloads, loses two targets' objects, reads, repairs, verifies, releases, reads again, deletes, and leaves nothing.
func (k *tierKit) lifeOfALedger(settled func()) {
	t, ctx := k.t, k.t.Context()
	require.NoError(t, k.worker.Offload(ctx, k.id))
	k.requireIdentical()
	require.Len(t, k.files(), 6+3, "six shards and three manifests")

	for _, lost := range [][]int{{0, 1}, {2, 5}} {
		for _, i := range lost {
			require.NoError(t, os.RemoveAll(k.folders[i]))
		}
		k.requireIdentical()
		_, err := k.worker.Repair(ctx, k.id, offload.RepairOptions{})
		require.NoError(t, err)
		findings, err := k.worker.Verify(ctx, k.id, offload.VerifyFull)
		require.NoError(t, err)
		require.Empty(t, findings)
		k.requireIdentical()
	}
	settled()
	require.NoError(t, k.worker.Release(ctx, k.id, true))
	k.requireIdentical()
	require.NoError(t, k.worker.Delete(ctx, k.id))
	for range 5 {
		swept, err := k.worker.Clean(ctx)
		require.NoError(t, err)
		require.Empty(t, swept.Problems)
		time.Sleep(2 * time.Millisecond) // the grace
	}
	require.Empty(t, k.files())
	_, _, err := k.records.Read(ctx, k.id)
	require.ErrorIs(t, err, offload.ErrNoRecord)
}

// TestOffloadToFolders is what standalone does: six folders, any two of which may be lost.
func TestOffloadToFolders(t *testing.T) {
	root := t.TempDir()
	targets := driver.FoldersOf(root, 6)
	var folders []string
	for _, o := range targets {
		folders = append(folders, o.Dir)
	}
	newTierKit(t, 300, 100<<10, targets, folders).lifeOfALedger(func() {})
}

// TestOffloadToRealBuckets does the same with six buckets of a real S3 server, each behind a proxy that refuses, resets, loses replies and damages
// bodies on their way in.
func TestOffloadToRealBuckets(t *testing.T) {
	srv := s3test.Start(t, s3test.Options{})
	t.Setenv("STORE_ACCESS_KEY_ID", s3test.AccessKey)
	t.Setenv("STORE_SECRET_ACCESS_KEY", s3test.SecretKey)
	var (
		targets []driver.Options
		folders []string
		proxies []*faultproxy.Proxy
	)
	for i := range 6 {
		bucket := fmt.Sprint("bucket-", i+1)
		require.NoError(t, os.Mkdir(filepath.Join(srv.Dir, "data", bucket), 0o755))
		p := faultproxy.Start(t, srv.URL)
		proxies = append(proxies, p)
		targets = append(targets, driver.Options{
			S3: s3.Options{Endpoint: p.URL, Region: s3test.Region, Bucket: bucket, AllowInsecure: true, Credentials: s3.Credentials{Source: "env", EnvPrefix: "STORE"}},
			// A prefix, so that losing all objects does not lose the bucket.
			Prefix: "bk", Target: objstore.TargetOptions{ID: fmt.Sprint("t", i+1), RetryBase: time.Millisecond},
		})
		folders = append(folders, filepath.Join(srv.Dir, "data", bucket, "bk"))
	}
	k := newTierKit(t, 300, 100<<10, targets, folders)
	for i, p := range proxies {
		seed := uint64(i)
		faults := []faultproxy.Injector{
			faultproxy.Rate(seed+10, 0.015, faultproxy.Refuse(http.StatusServiceUnavailable, "SlowDown")),
			faultproxy.Rate(seed+20, 0.015, faultproxy.Refuse(http.StatusInternalServerError, "InternalError")),
			faultproxy.Rate(seed+30, 0.01, faultproxy.Reset()),
			faultproxy.Rate(seed+40, 0.015, faultproxy.LoseReply()),
			faultproxy.On(http.MethodPut, faultproxy.Rate(seed+50, 0.02, faultproxy.FlipRequest(12345))),
			faultproxy.On(http.MethodGet, faultproxy.Rate(seed+70, 0.015, faultproxy.CutReply(1000))),
		}
		p.Set(func(r faultproxy.Request) (f faultproxy.Fault) {
			for _, in := range faults {
				if g := in(r); f == (faultproxy.Fault{}) {
					f = g
				}
			}
			return f
		})
	}
	k.lifeOfALedger(func() {
		injected := 0
		for _, p := range proxies {
			injected += p.Injected()
			p.Set(nil)
		}
		require.Positive(t, injected)
		t.Logf("%d faults", injected)
	})
	for i, p := range proxies {
		require.False(t, slices.ContainsFunc(p.Requests(), func(r faultproxy.Request) bool { return r.Header.Get("X-Amz-Trailer") != "" }), "target %d", i)
	}
}
