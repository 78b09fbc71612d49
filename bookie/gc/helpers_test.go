package gc

import (
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/binderylog/bindery/bookie/index"
	"github.com/binderylog/bindery/bookie/storage"
	"github.com/binderylog/bindery/entrylog"
	"github.com/binderylog/bindery/internal/intent"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeMetadata is metadata in memory that can be made to fail.
type fakeMetadata struct {
	mu       sync.Mutex
	records  map[int64]Record
	hidden   map[int64]bool // left out of listings, found by reads
	begin    error
	listErr  error
	listFrom int64 // listings fail past this id, if listErr is set
	readErr  map[int64]error
	locked   map[int64]bool
	onRead   func(id int64)
	reads    int
	passes   int
}

func newFakeMetadata() *fakeMetadata {
	return &fakeMetadata{records: map[int64]Record{}, hidden: map[int64]bool{}, readErr: map[int64]error{}, locked: map[int64]bool{}}
}

func (f *fakeMetadata) set(id int64, r Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.records[id] = r
}

func (f *fakeMetadata) remove(ids ...int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range ids {
		delete(f.records, id)
	}
}

func (f *fakeMetadata) BeginPass(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.passes++
	return f.begin
}

func (f *fakeMetadata) List(_ context.Context, after int64, limit int) ([]int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.listErr != nil && after >= f.listFrom {
		return nil, f.listErr
	}
	var ids []int64
	for _, id := range slices.Sorted(maps.Keys(f.records)) {
		if id > after && !f.hidden[id] && len(ids) < min(limit, 7) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

func (f *fakeMetadata) Read(_ context.Context, id int64) (Record, error) {
	f.mu.Lock()
	f.reads++
	r, err, hook := f.records[id], f.readErr[id], f.onRead
	f.mu.Unlock()
	if hook != nil {
		hook(id)
	}
	return r, err
}

func (f *fakeMetadata) Lock(_ context.Context, id int64) (func(), bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.locked[id] {
		return nil, false, nil
	}
	f.locked[id] = true
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.locked, id)
	}, true, nil
}

// bed is a storage in memory with a collector.
type bed struct {
	t    *testing.T
	fs   vfs.FS
	mem  *memfs.FS
	s    *storage.Storage
	meta *fakeMetadata
	c    *Collector
	pos  uint64
}

// Mark implements storage.MarkSource: nothing is journaled here, checkpoints are what counts.
func (b *bed) Mark() []uint64 { return []uint64{b.pos} }

func newBed(t *testing.T, dirs int) *bed {
	b := &bed{t: t, mem: memfs.New(), meta: newFakeMetadata()}
	b.fs = b.mem
	for i := range dirs {
		require.NoError(t, vfs.MkdirAllSync(b.mem, dirName(i)))
	}
	return b
}

func dirName(i int) string { return "/ledgers" + string(rune('0'+i)) }

func (b *bed) storageOptions(dirs int) storage.Options {
	o := storage.Options{
		Journals: []string{"journal"}, WriteCacheBytes: int64(dirs) * 2 * (1 << 20), ReadCacheBytes: 1 << 20, FlushInterval: time.Hour,
		Log:          entrylog.Options{LogSize: 4 << 10, BufferSize: 16 << 10, PreallocateSize: 16 << 10},
		ReserveBytes: 128 << 10,
		OpenIndex:    func(path string, o index.Options) (index.Index, error) { return index.OpenMem(b.fs, path, o) },
		OpenIntents:  func(dir string, o intent.Options) (intent.Log, error) { return intent.OpenVFS(b.fs, dir, o) },
		Logger:       slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	for i := range dirs {
		o.Dirs = append(o.Dirs, storage.DirOptions{Ledger: dirName(i)})
	}
	return o
}

func (b *bed) open(dirs int, tune func(*Options)) *bed {
	b.t.Helper()
	var err error
	b.s, err = storage.Open(b.fs, b.storageOptions(dirs))
	require.NoError(b.t, err)
	require.NoError(b.t, b.s.Start(b))
	require.NoError(b.t, b.s.Checkpoint(b.t.Context())) // the one that Start begins would take what a test writes at once apart
	o := Options{Interval: time.Hour, Grace: time.Millisecond, Quiet: time.Nanosecond, Rate: 1 << 30, MetadataRate: 1 << 20, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
	if tune != nil {
		tune(&o)
	}
	b.c, err = New(b.meta, b.s, b.s, o)
	require.NoError(b.t, err)
	b.c.Start()
	return b
}

func (b *bed) close() {
	b.t.Helper()
	b.c.Close()
	require.NoError(b.t, b.s.Close())
}

var key = []byte("0123456789abcdefghij")

func body(ledger, entry int64, n int) []byte {
	b := make([]byte, max(n, storage.MinEntry))
	binary.BigEndian.PutUint64(b, uint64(ledger))
	binary.BigEndian.PutUint64(b[8:], uint64(entry))
	binary.BigEndian.PutUint64(b[16:], uint64(entry-1))
	for i := storage.MinEntry; i < len(b); i++ {
		b[i] = byte(int64(i) + ledger*3 + entry*5)
	}
	return b
}

func (b *bed) put(id, entry int64, n int, recovery bool) error {
	l, err := b.s.Ledger(id, true)
	if err != nil {
		return err
	}
	defer l.Release()
	data := body(id, entry, n)
	if err := l.Reserve(len(data), recovery, 10*time.Second); err != nil {
		return err
	}
	l.Lock()
	defer l.Unlock()
	if err := l.Put(entry, data); err != nil {
		return err
	}
	if l.Replica.Accept(key, recovery) {
		l.StateChanged()
	}
	return nil
}

// fill writes entries of ledgers, interleaved, and creates their records.
func (b *bed) fill(ids []int64, entries int64, n int) {
	b.t.Helper()
	for entry := range entries {
		for _, id := range ids {
			require.NoError(b.t, b.put(id, entry, n, false))
		}
	}
	for _, id := range ids {
		b.meta.set(id, Record{Exists: true, Here: true})
	}
}

// seal makes everything collectable: the log is sealed and in the index.
func (b *bed) seal() {
	b.t.Helper()
	require.NoError(b.t, b.s.Checkpoint(b.t.Context()))
	require.Eventually(b.t, func() bool { return b.s.Stats().WaitingLogs == 0 && b.s.Stats().OverlayPages == 0 }, 30*time.Second, time.Millisecond)
}

func (b *bed) trigger(k Kind) error {
	b.t.Helper()
	return b.c.Trigger(b.t.Context(), k)
}

func (b *bed) requireAll(ids []int64, entries int64, n int) {
	b.t.Helper()
	for _, id := range ids {
		for entry := range entries {
			got, err := b.s.Read(id, entry, nil)
			require.NoError(b.t, err, "ledger %d entry %d", id, entry)
			require.Equal(b.t, body(id, entry, n), got)
		}
	}
}

func (b *bed) requireGone(ids ...int64) {
	b.t.Helper()
	for _, id := range ids {
		_, err := b.s.Read(id, 0, nil)
		require.ErrorIs(b.t, err, storage.ErrNoLedger, "ledger %d", id)
	}
}

// used returns the bytes on the disk.
func (b *bed) used() int64 {
	u, err := b.mem.Usage("/")
	require.NoError(b.t, err)
	return u.Total - u.Available
}

func (b *bed) logs() (n int) {
	for dir := range b.s.Dirs() {
		ids, err := b.s.CollectableLogs(dir)
		require.NoError(b.t, err)
		n += len(ids)
	}
	return n
}

func ids(from, to int64) (out []int64) {
	for id := from; id < to; id++ {
		out = append(out, id)
	}
	return out
}
