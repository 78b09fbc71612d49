package offload

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/intent"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/memmeta"
	"github.com/binderylog/bindery/internal/vfs/memfs"
	"github.com/binderylog/bindery/offload/objstore"
	"github.com/binderylog/bindery/offload/objstore/faulty"
	"github.com/binderylog/bindery/offload/objstore/mem"
)

// world is a cluster in memory: a metadata store, targets, bookies that hold ledgers, and a clock that tests turn.
type world struct {
	t       testing.TB
	meta    *memmeta.Store
	views   *metadata.Views
	records *Records
	stores  map[string]*mem.Store
	faults  map[string]*faulty.Store
	targets *Targets
	fs      *memfs.FS

	mu      sync.Mutex
	clock   time.Time
	ledgers map[ledger.ID]*testLedger
	reads   map[ledger.EntryID]int // entries asked of the bookies
	readErr error
	onRead  func(ledger.EntryID)
}

const testRoot = "/ledgers"

func newWorld(t testing.TB, domains ...string) *world {
	t.Helper()
	w := &world{
		t: t, meta: memmeta.Open(""), stores: map[string]*mem.Store{}, faults: map[string]*faulty.Store{}, fs: memfs.New(),
		clock: time.UnixMilli(1_700_000_000_000), ledgers: map[ledger.ID]*testLedger{}, reads: map[ledger.EntryID]int{},
	}
	t.Cleanup(func() { _ = w.meta.Close() })
	w.views = metadata.NewViews(w.meta, testRoot)
	w.records = NewRecords(w.views)
	var list []Target
	for i, d := range domains {
		id := fmt.Sprintf("t%d", i+1)
		w.stores[id] = mem.New()
		w.faults[id] = faulty.Wrap(w.stores[id], nil)
		list = append(list, Target{ID: id, Domain: d, Store: w.faults[id]})
	}
	var err error
	w.targets, err = NewTargets(list)
	require.NoError(t, err)
	return w
}

// six has six targets in domains of their own.
func six(t testing.TB) *world { return newWorld(t, "a", "b", "c", "d", "e", "f") }

func (w *world) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.clock
}

func (w *world) advance(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock = w.clock.Add(d)
}

// add writes a closed ledger. Its owner agrees to the release.
func (w *world) add(spec ledgerSpec) *testLedger {
	w.t.Helper()
	l := makeLedger(w.t, spec)
	l.meta.Custom = map[string][]byte{releaseCustom: []byte(releaseCustomValue)}
	_, err := w.views.Ledgers.Create(context.Background(), l.id, l.meta)
	require.NoError(w.t, err)
	w.mu.Lock()
	w.ledgers[l.id] = l
	w.mu.Unlock()
	return l
}

// entries is the EntrySource: bookies have a ledger as long as its record exists.
func (w *world) entries(ctx context.Context, id ledger.ID, _ *ledger.Metadata, first, last ledger.EntryID) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for e := first; e <= last; e++ {
			if ctx.Err() != nil {
				yield(Entry{}, ctx.Err())
				return
			}
			if w.onRead != nil {
				w.onRead(e)
			}
			w.mu.Lock()
			l, err := w.ledgers[id], w.readErr
			w.reads[e]++
			w.mu.Unlock()
			if err == nil && (l == nil || int(e) >= len(l.bodies)) {
				err = errors.New("no such entry")
			}
			if err != nil {
				yield(Entry{}, err)
				return
			}
			entry, err := ParseEntry(l.bodies[e], l.meta.Digest)
			if !yield(entry, err) {
				return
			}
		}
	}
}

// options are those of a test's worker: small cells, no waiting.
func (w *world) options() Options {
	return Options{
		Records: w.records, Targets: w.targets, Entries: w.entries, Name: "w1", CellBytes: CellBytesMin, ReadRate: -1, ScrubRate: -1, TakeOver: time.Millisecond, now: w.now,
	}
}

// worker starts a worker with intents in a directory of the world's disk.
func (w *world) worker(dir string, change func(*Options)) *Worker {
	w.t.Helper()
	o := w.options()
	if change != nil {
		change(&o)
	}
	log, err := intent.OpenVFS(w.fs, "/"+dir, intent.Options{})
	require.NoError(w.t, err)
	o.Intents = log
	x, err := NewWorker(o)
	require.NoError(w.t, err)
	return x
}

func (w *world) reader(change func(*ReaderOptions)) *Reader {
	w.t.Helper()
	o := ReaderOptions{Records: w.records, Targets: w.targets}
	if change != nil {
		change(&o)
	}
	r, err := NewReader(o)
	require.NoError(w.t, err)
	return r
}

// requireReadable reads the whole ledger from the tier and compares it, byte for byte.
func (w *world) requireReadable(l *testLedger) {
	w.t.Helper()
	h, err := w.reader(nil).Open(context.Background(), l.id)
	require.NoError(w.t, err)
	require.Equal(w.t, l.meta.Password, h.Metadata().Password)
	want, got := sha256.New(), sha256.New()
	for _, b := range l.bodies {
		want.Write(b)
	}
	n := 0
	for e, err := range h.Entries(context.Background(), 0, h.LastEntry()) {
		require.NoError(w.t, err)
		require.EqualValues(w.t, n, e.ID)
		n++
		got.Write(e.AppendBody(nil, l.id))
	}
	require.Equal(w.t, len(l.bodies), n)
	require.True(w.t, bytes.Equal(want.Sum(nil), got.Sum(nil)), "content of ledger %d", l.id)
}

// implied lists, by target, the objects that the records name.
func (w *world) implied() map[string][]string {
	out := map[string][]string{}
	for x, err := range w.records.All(context.Background()) {
		require.NoError(w.t, err)
		require.NoError(w.t, x.Err)
		r := x.Record
		if r.State != StateComplete && r.State != StateReleased {
			continue
		}
		for _, t := range r.Manifest.Targets {
			out[t] = append(out[t], ManifestName(r.Attempt, x.Ledger))
		}
		if !r.Inline {
			for i, p := range r.Placement {
				if !p.Missing {
					out[p.Target] = append(out[p.Target], ShardName(r.Attempt, x.Ledger, i, p.Generation))
				}
			}
		}
	}
	for t := range out {
		slices.Sort(out[t])
	}
	return out
}

// requireClean compares what the targets hold with what the records imply: nothing more, nothing less, no open upload.
func (w *world) requireClean() {
	w.t.Helper()
	implied := w.implied()
	for id, s := range w.stores {
		require.Equal(w.t, len(implied[id]), len(s.Keys()), "target %s: %v, the records imply %v", id, s.Keys(), implied[id])
		require.ElementsMatch(w.t, implied[id], s.Keys(), "target %s", id)
		require.Empty(w.t, s.Uploads(), "target %s", id)
	}
}

// janitor cleans with the grace elapsed between its rounds, until nothing changes any more.
func (w *world) janitor(x *Worker) {
	w.t.Helper()
	for range 5 {
		s, err := x.Clean(context.Background())
		require.NoError(w.t, err)
		require.Empty(w.t, s.Problems)
		w.advance(2 * time.Hour)
	}
}

func (w *world) record(id ledger.ID) *Record {
	w.t.Helper()
	r, _, err := w.records.Read(context.Background(), id)
	require.NoError(w.t, err)
	return r
}

func (w *world) requests(ops ...objstore.Op) (n int) {
	for _, f := range w.faults {
		n += f.Count(ops...)
	}
	return n
}
