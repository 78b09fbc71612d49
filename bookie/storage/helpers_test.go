package storage

import (
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/binderylog/bindery/bookie/index"
	"github.com/binderylog/bindery/entrylog"
	"github.com/binderylog/bindery/internal/intent"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testJournal is a journal in memory: every record is a group of its own, durable once it is appended.
type testJournal struct {
	mu      sync.Mutex
	records [][]Record
	next    []uint64
	trimmed []uint64
}

func newTestJournal(n int) *testJournal {
	j := &testJournal{records: make([][]Record, n), next: make([]uint64, n), trimmed: make([]uint64, n)}
	for i := range j.next {
		j.next[i] = 1
	}
	return j
}

func (j *testJournal) Mark() []uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]uint64(nil), j.next...)
}

func (j *testJournal) append(ledger int64, kind uint8, payload []byte) {
	j.mu.Lock()
	defer j.mu.Unlock()
	i := int(ledger % int64(len(j.next)))
	j.records[i] = append(j.records[i], Record{Journal: i, Position: j.next[i], Kind: kind, Tag: uint64(ledger), Payload: append([]byte(nil), payload...)})
	j.next[i]++
}

func (j *testJournal) trim(mark []uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i, p := range mark {
		if p < j.trimmed[i] {
			panic(fmt.Sprintf("journal %d: mark %d went back from %d", i, p, j.trimmed[i]))
		}
		j.trimmed[i] = p
		for len(j.records[i]) > 0 && j.records[i][0].Position < p {
			j.records[i] = j.records[i][1:]
		}
	}
}

func (j *testJournal) replay(s *Storage) (n int, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	mark := s.Marks()
	for i, list := range j.records {
		for _, r := range list {
			if r.Position < mark[i] {
				continue
			}
			if err := s.Replay(r); err != nil {
				return n, err
			}
			n++
		}
	}
	return n, nil
}

// env is a storage on a file system in memory, with its journal.
type env struct {
	t    testing.TB
	fs   vfs.FS
	mem  *memfs.FS
	dirs int
	j    *testJournal
	s    *Storage
	tune func(*Options)
	wrap func(vfs.FS) vfs.FS // what every new file system is wrapped in, or nil
}

func (e *env) options() Options {
	o := Options{
		WriteCacheBytes: int64(e.dirs) * 2 * (256 << 10), ReadCacheBytes: 2 << 20, FlushInterval: time.Hour,
		Log:          entrylog.Options{LogSize: 256 << 10, BufferSize: 16 << 10, PreallocateSize: 64 << 10},
		ReserveBytes: 64 << 10,
		OpenIndex:    func(path string, o index.Options) (index.Index, error) { return index.OpenMem(e.fs, path, o) },
		OpenIntents:  func(dir string, o intent.Options) (intent.Log, error) { return intent.OpenVFS(e.fs, dir, o) },
		OnCheckpoint: e.j.trim,
		Logger:       slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	for i := range e.dirs {
		o.Dirs = append(o.Dirs, DirOptions{Ledger: dirName(i)})
	}
	for i := range e.j.next {
		o.Journals = append(o.Journals, fmt.Sprintf("journal-%d", i))
	}
	if e.tune != nil {
		e.tune(&o)
	}
	return o
}

func dirName(i int) string { return fmt.Sprintf("/ledgers%d", i) }

func newEnv(t testing.TB, dirs, journals int, tune func(*Options)) *env {
	e := &env{t: t, mem: memfs.New(), dirs: dirs, j: newTestJournal(journals), tune: tune}
	e.fs = e.mem
	for i := range dirs {
		require.NoError(t, vfs.MkdirAllSync(e.mem, dirName(i)))
	}
	return e
}

// open opens the storage, replays and starts it.
func (e *env) open() *env {
	e.t.Helper()
	require.NoError(e.t, e.tryOpen())
	return e
}

func (e *env) tryOpen() error {
	s, err := Open(e.fs, e.options())
	if err != nil {
		return err
	}
	if _, err := e.j.replay(s); err != nil {
		_ = s.Close()
		return err
	}
	if err := s.Start(e.j); err != nil {
		_ = s.Close()
		return err
	}
	e.s = s
	return nil
}

func (e *env) close() {
	e.t.Helper()
	require.NoError(e.t, e.s.Close())
	e.s = nil
}

// crash drops the process and what was not synced, and leaves the storage closed. keep is the share of unsynced data that
// stays.
func (e *env) crash(seed uint64, keep float64) {
	e.t.Helper()
	// The journal first: a checkpoint in the background may trim it.
	e.j.mu.Lock()
	records := make([][]Record, len(e.j.records))
	for i := range records {
		records[i] = append([]Record(nil), e.j.records[i]...)
	}
	j := &testJournal{records: records, next: append([]uint64(nil), e.j.next...), trimmed: append([]uint64(nil), e.j.trimmed...)}
	e.j.mu.Unlock()
	clone := e.mem.CrashClone(seed, keep)
	_ = e.s.Close() // into the abandoned file system
	e.mem, e.fs, e.j, e.s = clone, clone, j, nil
	if e.wrap != nil {
		e.fs = e.wrap(clone)
	}
}

// testBody returns a valid body of n bytes that depends on everything.
func testBody(ledger, entry, lac int64, n int, version byte) []byte {
	b := make([]byte, max(n, MinEntry))
	binary.BigEndian.PutUint64(b, uint64(ledger))
	binary.BigEndian.PutUint64(b[8:], uint64(entry))
	binary.BigEndian.PutUint64(b[16:], uint64(lac))
	for i := MinEntry; i < len(b); i++ {
		b[i] = byte(int64(i)*31 + ledger*7 + entry*13 + int64(version))
	}
	return b
}

var testKey = []byte("0123456789abcdefghij")

// add does what a bookie does for an add.
func (e *env) add(ledger, entry int64, body []byte, recovery bool) error {
	l, err := e.s.Ledger(ledger, true)
	if err != nil {
		return err
	}
	defer l.Release()
	if err := l.Reserve(len(body), recovery, 10*time.Second); err != nil {
		return err
	}
	l.Lock()
	defer l.Unlock()
	if v := l.Replica.CheckAdd(testKey, recovery, 0); v != 0 {
		l.Unreserve(len(body))
		return fmt.Errorf("refused: %v", v)
	}
	if err := l.Put(entry, body); err != nil {
		return err
	}
	known, fenced, tomb := l.Replica.HasKey, l.Replica.Fenced, l.Replica.Tombstone
	if l.Replica.Accept(testKey, recovery) {
		l.StateChanged()
		if !known || fenced != l.Replica.Fenced || tomb != l.Replica.Tombstone {
			e.j.append(ledger, KindState, l.AppendState(nil))
		}
	}
	e.j.append(ledger, KindEntry, body)
	return nil
}

func (e *env) mustAdd(ledger, entry int64, n int) {
	e.t.Helper()
	require.NoError(e.t, e.add(ledger, entry, testBody(ledger, entry, entry-1, n, 0), false))
}

// fence does what a bookie does for a fence.
func (e *env) fence(ledger int64) error {
	l, err := e.s.Ledger(ledger, true)
	if err != nil {
		return err
	}
	defer l.Release()
	l.Lock()
	defer l.Unlock()
	v, changed := l.Replica.Fence(testKey)
	if v != 0 {
		return fmt.Errorf("refused: %v", v)
	}
	if changed {
		l.StateChanged()
		e.j.append(ledger, KindState, l.AppendState(nil))
	}
	return nil
}

func (e *env) checkpoint() {
	e.t.Helper()
	require.NoError(e.t, e.s.Checkpoint(e.t.Context()))
}

func (e *env) requireEntry(ledger, entry int64, n int) {
	e.t.Helper()
	got, err := e.s.Read(ledger, entry, nil)
	require.NoError(e.t, err, "ledger %d entry %d", ledger, entry)
	require.Equal(e.t, testBody(ledger, entry, entry-1, n, 0), got, "ledger %d entry %d", ledger, entry)
}

func (e *env) requireNo(ledger, entry int64, want error) {
	e.t.Helper()
	_, err := e.s.Read(ledger, entry, nil)
	require.ErrorIs(e.t, err, want, "ledger %d entry %d", ledger, entry)
}
