//go:build offloadbig

package offload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/freeport"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/driver"
	"github.com/binderylog/bindery/offload"
	"github.com/binderylog/bindery/offload/objstore/s3test"
)

// The [offload] settings of both forms. Reading the bookies is not slowed down; the lag is long enough to be seen.
const lag = 5 * time.Second

func settings() []string {
	return []string{"offload.after_age=1s", "offload.rate=0B", fmt.Sprintf("offload.deletion_lag=%s", lag)}
}

// place is where a target's objects are files.
type place struct {
	root   string // of everything, to be wiped
	object string // an object is the file object/KEY
	open   string // open multipart uploads are below it
}

// cluster is bookies and metadata in one process, and the tier.
type cluster struct {
	t        *testing.T
	program  string
	dir      string
	uri      string
	targets  string   // file
	keys     []string // credentials, as environment variables
	places   map[string]place
	patience time.Duration
	rng      *rand.Rand

	standalone *process
	workers    []*process // what is killed: the standalone itself, or a fleet beside it

	mu     sync.Mutex
	memory map[string]int64
	lines  []string // what was measured
}

func newCluster(t *testing.T, seed uint64, size int64) *cluster {
	program, err := filepath.Abs(os.Getenv("BINDERY_BIN"))
	require.NoError(t, err)
	c := &cluster{
		t: t, program: program, dir: t.TempDir(), places: map[string]place{}, patience: 10*time.Minute + time.Duration(size>>20)*time.Second, rng: rand.New(rand.NewPCG(seed, 3)),
		memory: map[string]int64{}, standalone: &process{name: "standalone", args: []string{"standalone"}},
	}
	require.NoError(t, os.Mkdir(filepath.Join(c.dir, "tmp"), 0o700))
	t.Cleanup(func() {
		for _, w := range c.workers {
			c.kill(w)
		}
		c.kill(c.standalone)
		if t.Failed() {
			for _, p := range append(c.workers, c.standalone) {
				t.Logf("%s: %s", p.name, c.logOf(p.name))
			}
		}
	})
	return c
}

func (c *cluster) startStandalone() {
	c.t.Helper()
	c.start(c.standalone, "ready")
	data, err := os.ReadFile(filepath.Join(c.dir, "bindery-data", "endpoints.json"))
	require.NoError(c.t, err)
	var e struct {
		Metadata string `json:"metadata"`
	}
	require.NoError(c.t, json.Unmarshal(data, &e))
	c.uri = e.Metadata
}

// inFolders makes the standalone offload to six folders.
func (c *cluster) inFolders() {
	tier := filepath.Join(c.dir, "tier")
	c.standalone.args = append(c.standalone.args, "--offload-dir", tier)
	for _, s := range settings() {
		c.standalone.args = append(c.standalone.args, "--set", s)
	}
	for i := range 6 {
		id := fmt.Sprint("t", i+1)
		root := filepath.Join(tier, id)
		c.places[id] = place{root: root, object: root, open: filepath.Join(root, ".bindery", "uploads")}
	}
	c.targets = filepath.Join(c.dir, "bindery-data", "offload-targets.toml")
	c.workers = []*process{c.standalone}
}

// inBuckets makes a fleet of workers that offload to six buckets of a real S3 server.
func (c *cluster) inBuckets(workers int) {
	t := c.t
	srv := s3test.Start(t, s3test.Options{})
	c.keys = []string{"STORE_ACCESS_KEY_ID=" + s3test.AccessKey, "STORE_SECRET_ACCESS_KEY=" + s3test.SecretKey}
	var b strings.Builder
	for i := range 6 {
		id, bucket := fmt.Sprint("t", i+1), fmt.Sprint("bucket-", i+1)
		root := filepath.Join(srv.Dir, "data", bucket)
		require.NoError(t, os.Mkdir(root, 0o755))
		fmt.Fprintf(&b, "[[target]]\nid = %q\nendpoint = %q\nregion = %q\nbucket = %q\nprefix = \"bk\"\nallow_insecure = true\ncredentials = { source = \"env\", env_prefix = \"STORE\" }\n",
			id, srv.URL, s3test.Region, bucket)
		// A prefix, so that losing all objects does not lose the bucket.
		c.places[id] = place{root: filepath.Join(root, "bk"), object: filepath.Join(root, "bk"), open: filepath.Join(root, ".sgwtmp", "multipart")}
	}
	c.targets = filepath.Join(c.dir, "targets.toml")
	require.NoError(t, os.WriteFile(c.targets, []byte(b.String()), 0o600))
	for i := range workers {
		name := fmt.Sprint("worker-", i+1)
		p := &process{name: name, args: []string{"run", "--set", "run.roles=offload", "--set", "metadata.uri=" + c.uri, "--set", "http.listen=" + freeport.Address(freeport.Test(t)),
			"--set", "offload.targets=" + c.targets, "--set", "offload.dir=" + filepath.Join(c.dir, name)}}
		for _, s := range settings() {
			p.args = append(p.args, "--set", s)
		}
		c.workers = append(c.workers, p)
	}
}

// startWorker starts what is killed.
func (c *cluster) startWorker(p *process) {
	if p == c.standalone {
		c.startStandalone()
		return
	}
	c.start(p, "")
}

// wipe loses everything on some targets.
func (c *cluster) wipe(targets ...string) {
	for _, id := range targets {
		require.NoError(c.t, os.RemoveAll(c.places[id].root))
	}
}

// stored lists all objects as target/key with their sizes, and open uploads with size -1.
func (c *cluster) stored() map[string]int64 {
	out := map[string]int64{}
	walk := func(root string, f func(rel string, info fs.FileInfo)) {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist): // goes meanwhile, or was never there
				return nil
			case err == nil && d.IsDir() && d.Name() == ".bindery" && path != root:
				return filepath.SkipDir
			case err != nil || d.IsDir():
				return err
			}
			info, err := d.Info()
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err == nil {
				rel, _ := filepath.Rel(root, path)
				f(rel, info)
			}
			return err
		})
		require.NoError(c.t, err)
	}
	for id, p := range c.places {
		walk(p.object, func(rel string, info fs.FileInfo) { out[id+"/"+filepath.ToSlash(rel)] = info.Size() })
		walk(p.open, func(rel string, _ fs.FileInfo) { out[id+" open upload "+filepath.ToSlash(rel)] = -1 })
	}
	return out
}

// named lists the objects that a record implies.
func named(id ledger.ID, r *offload.Record) map[string]bool {
	out := map[string]bool{}
	for i, p := range r.Placement {
		if !r.Inline {
			out[p.Target+"/"+offload.ShardName(r.Attempt, id, i, p.Generation)] = true
		}
	}
	for _, t := range r.Manifest.Targets {
		out[t+"/"+offload.ManifestName(r.Attempt, id)] = true
	}
	return out
}

// watcher reads both records of a ledger again and again.
type watcher struct {
	c      *cluster
	id     ledger.ID
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	record *offload.Record // as it was seen last
	looks  int
	broken []string // promises that were
}

const lookEvery = 50 * time.Millisecond

// watch begins to look. A standalone that is down is no news.
func (c *cluster) watch(id ledger.ID) *watcher {
	w := &watcher{c: c, id: id}
	var ctx context.Context
	ctx, w.cancel = context.WithCancel(c.t.Context())
	store, root, err := driver.Open(ctx, c.uri, driver.Options{})
	require.NoError(c.t, err)
	records := offload.NewRecords(metadata.NewViews(store, root))
	w.wg.Go(func() {
		defer store.Close()
		for tick := time.NewTicker(lookEvery); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
				w.look(ctx, records)
			}
		}
	})
	return w
}

// look reads the record before and after the ledger's own: only what did not change meanwhile says something.
func (w *watcher) look(ctx context.Context, records *offload.Records) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r, v, err := records.Read(ctx, w.id)
	none := errors.Is(err, offload.ErrNoRecord)
	if err != nil && !none {
		return
	}
	_, _, lerr := records.Ledger(ctx, w.id)
	gone := errors.Is(lerr, metadata.ErrNoLedger)
	if lerr != nil && !gone {
		return
	}
	_, again, err := records.Read(ctx, w.id)
	if none != errors.Is(err, offload.ErrNoRecord) || !none && (err != nil || again != v) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks++
	if none {
		w.check(!gone, "neither copy exists")
		return
	}
	w.record = r
	switch r.State {
	case offload.StateReleased:
		w.check(gone, "RELEASED, and the ledger exists")
		w.check(time.Duration(r.ReleasedAt-r.CompletedAt)*time.Millisecond >= lag, "released %d ms after the commit", r.ReleasedAt-r.CompletedAt)
		w.check(r.VerifiedAt > 0 && r.Missing() == 0, "released without having been read back")
	case offload.StateUploading, offload.StateComplete:
		w.check(!gone, "%s, and the ledger is gone", r.State)
	}
}

func (w *watcher) check(holds bool, format string, args ...any) {
	if !holds {
		w.broken = append(w.broken, fmt.Sprintf(format, args...))
	}
}

// state returns the state that was seen last, 0 for none.
func (w *watcher) state() offload.State {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.record == nil {
		return 0
	}
	return w.record.State
}

// stop ends the watch and returns the last record.
func (w *watcher) stop() *offload.Record {
	w.cancel()
	w.wg.Wait()
	require.Empty(w.c.t, w.broken)
	require.Positive(w.c.t, w.looks)
	return w.record
}
