package index

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/entrylog"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
)

const logsDir = "/data/current"

func logOptions() entrylog.Options {
	return entrylog.Options{
		LogSize: 32 << 10, BufferSize: 8 << 10, PreallocateSize: 16 << 10,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
}

func entryBody(ledger, entry int64, fillTo int, version byte) []byte {
	b := make([]byte, fillTo)
	binary.BigEndian.PutUint64(b, uint64(ledger))
	binary.BigEndian.PutUint64(b[8:], uint64(entry))
	for i := 24; i < len(b); i++ {
		b[i] = version
	}
	return b
}

// writeLogs fills a directory with several logs and returns what each entry's newest body is, and each ledger's state.
func writeLogs(t *testing.T, s *entrylog.Store) (map[[2]int64][]byte, map[int64]string) {
	t.Helper()
	bodies, states := map[[2]int64][]byte{}, map[int64]string{}
	for c := range 30 {
		var b entrylog.RunBuilder
		for ledger := range int64(4) {
			for i := range int64(5) {
				entry := int64(c)*5 + i
				if i == 4 && c > 0 {
					entry = int64(c-1)*5 + 1 // added again
				}
				body := entryBody(ledger, entry, 100+int(ledger)*40, byte(c))
				loc, err := s.Append(body)
				require.NoError(t, err)
				b.Add(ledger, entry, loc)
				bodies[[2]int64{ledger, entry}] = body
			}
		}
		st := entrylog.LedgerState{Ledger: int64(c % 5), Data: fmt.Appendf(nil, "fenced at %d", c)}
		states[st.Ledger] = string(st.Data)
		require.NoError(t, s.Checkpoint(b.Runs(), []entrylog.LedgerState{st}))
	}
	return bodies, states
}

func holdsAll(t *testing.T, s *entrylog.Store, x Index, bodies map[[2]int64][]byte, states map[int64]string) {
	t.Helper()
	for id, want := range bodies {
		loc, err := x.Locate(id[0], id[1])
		require.NoError(t, err, "%v", id)
		got, err := s.Read(loc, nil)
		require.NoError(t, err)
		require.Equal(t, want, got, "%v at %s", id, loc)
	}
	for ledger, want := range states {
		data, ok, err := x.State(ledger)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, want, string(data))
	}
}

// TestC21RebuildFromLogs makes the index again from the logs alone, with fences and keys.
func TestC21RebuildFromLogs(t *testing.T) {
	conform(t, func(t *testing.T, open func(Options) (Index, error)) {
		fs := memfs.New(logsDir)
		s, _, err := entrylog.Open(fs, logsDir, logOptions())
		require.NoError(t, err)
		bodies, states := writeLogs(t, s)
		require.NoError(t, s.Close())
		s, _, err = entrylog.Open(fs, logsDir, logOptions())
		require.NoError(t, err)
		require.Greater(t, len(s.Logs()), 3)

		// In the order of ages, and against it.
		x := opened(t, open)
		report, err := Rebuild(context.Background(), s, x, nil)
		require.NoError(t, err)
		require.Empty(t, report.Damage)
		require.Equal(t, int64(len(bodies)), report.Entries)
		require.Equal(t, int64(5), report.States)
		holdsAll(t, s, x, bodies, states)
		_, suspect, err := x.Meta(MetaSuspect)
		require.NoError(t, err)
		require.False(t, suspect)
		checked(t, x)

		ids, err := x.Ledgers(-1, 100)
		require.NoError(t, err)
		require.NoError(t, x.DeleteLedgers(ids))
		logs := s.Logs()
		for i := len(logs) - 1; i >= 0; i-- {
			f, err := s.Footer(logs[i].ID)
			require.NoError(t, err)
			require.NoError(t, x.Ingest(context.Background(), logs[i], f.Runs(), f.States))
		}
		holdsAll(t, s, x, bodies, states)
		checked(t, x)
		require.NoError(t, s.Close())
	})
}

// TestRebuildOverDamage rebuilds what it can and says that it could not prove everything.
func TestRebuildOverDamage(t *testing.T) {
	fs := memfs.New(logsDir)
	s, _, err := entrylog.Open(fs, logsDir, logOptions())
	require.NoError(t, err)
	bodies, _ := writeLogs(t, s)
	require.NoError(t, s.Close())
	garbage := make([]byte, 4096)
	for i := range garbage {
		garbage[i] = byte(i * 3)
	}
	name := filepath.Join(logsDir, "2.log")
	st, err := fs.Stat(name)
	require.NoError(t, err)
	f, err := fs.Open(name, vfs.Mode{Write: true})
	require.NoError(t, err)
	for off := int64(0); off < st.Size; off += 4096 {
		_, err := f.WriteAt(garbage, off)
		require.NoError(t, err)
	}
	require.NoError(t, f.Close())

	s, r, err := entrylog.Open(fs, logsDir, logOptions())
	require.NoError(t, err)
	require.Len(t, r.Damage, 1)
	x, err := OpenMem(fs, memPath, Options{})
	require.NoError(t, err)
	report, err := Rebuild(context.Background(), s, x, func(done, total int) { require.LessOrEqual(t, done, total) })
	require.NoError(t, err)
	require.Len(t, report.Damage, 1)
	require.Equal(t, entrylog.LogID(2), report.Damage[0].Log)
	_, suspect, err := x.Meta(MetaSuspect)
	require.NoError(t, err)
	require.True(t, suspect)
	found := 0
	for id := range bodies {
		if _, err := x.Locate(id[0], id[1]); err == nil {
			found++
		}
	}
	require.Positive(t, found)
	require.Less(t, found, len(bodies))
	require.NoError(t, x.Close())
	require.NoError(t, s.Close())
}

// TestC22LastOfDeletedLedger answers from the index alone, at once, also among many deleted ledgers.
func TestC22LastOfDeletedLedger(t *testing.T) {
	conform(t, func(t *testing.T, open func(Options) (Index, error)) {
		x := opened(t, open)
		const ledgers = 20_000
		var runs []entrylog.Run
		for l := range int64(ledgers) {
			runs = append(runs, run(l, 0, 3, 1, 4096+l*200, 24))
		}
		ingestRuns(t, x, logInfo(1), runs...)
		last, err := x.Last(77)
		require.NoError(t, err)
		require.Equal(t, int64(2), last)
		var all []int64
		for l := range int64(ledgers) {
			all = append(all, l)
		}
		require.NoError(t, x.DeleteLedgers(all))
		_, err = x.Last(77)
		require.ErrorIs(t, err, ErrNotFound)
		_, _, err = x.State(77)
		require.NoError(t, err)
		ids, err := x.Ledgers(-1, 10)
		require.NoError(t, err)
		require.Empty(t, ids)
		checked(t, x)
	})
}

// TestIngestResumes stops half way, as a crash does, and goes on.
func TestIngestResumes(t *testing.T) {
	conform(t, func(t *testing.T, open func(Options) (Index, error)) {
		x, err := open(Options{})
		require.NoError(t, err)
		runs := []entrylog.Run{run(1, 0, 10, 5, 4096, 30), run(2, 0, 10, 5, 8000, 30)}
		cut := fmt.Errorf("stop here")
		info := entrylog.LogInfo{ID: 5, Precedence: 3}
		err = x.Ingest(context.Background(), info, func(yield func(entrylog.Run, error) bool) {
			_ = yield(runs[0], nil) && yield(entrylog.Run{}, cut)
		}, nil)
		require.ErrorIs(t, err, cut)
		ok, err := x.Ingested(5)
		require.NoError(t, err)
		require.False(t, ok)
		require.NoError(t, x.Close())
		x, err = open(Options{MustExist: true})
		require.NoError(t, err)
		ingestRuns(t, x, info, runs...)
		// A log between its sources and itself is newer than a compaction's.
		ingestRuns(t, x, logInfo(4), run(1, 3, 1, 4, 4096, 30))
		loc, err := x.Locate(1, 3)
		require.NoError(t, err)
		require.Equal(t, entrylog.LogID(4), loc.Log)
		require.NoError(t, x.Drop(5))
		ok, err = x.Ingested(5)
		require.NoError(t, err)
		require.False(t, ok)
		logs, err := x.Logs()
		require.NoError(t, err)
		require.Equal(t, []entrylog.LogID{4}, logs)
		checked(t, x)
		require.NoError(t, x.Close())
		_, err = x.Locate(1, 3)
		require.ErrorIs(t, err, ErrClosed)
	})
}

// TestStateOfNewestLogStays ingests in both orders.
func TestStateOfNewestLogStays(t *testing.T) {
	conform(t, func(t *testing.T, open func(Options) (Index, error)) {
		x := opened(t, open)
		put := func(log entrylog.LogID, data string) {
			require.NoError(t, x.Ingest(context.Background(), logInfo(log), seqOf(nil), []entrylog.LedgerState{{Ledger: 9, Data: []byte(data)}}))
		}
		put(5, "newer")
		put(3, "older")
		data, ok, err := x.State(9)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, "newer", string(data))
		put(6, "newest")
		data, _, err = x.State(9)
		require.NoError(t, err)
		require.Equal(t, "newest", string(data))
		_, ok, err = x.State(10)
		require.NoError(t, err)
		require.False(t, ok)
		_, err = x.Last(9)
		require.ErrorIs(t, err, ErrNotFound, "a ledger with a state but no entries")
		ids, err := x.Ledgers(-1, 10)
		require.NoError(t, err)
		require.Equal(t, []int64{9}, ids)
	})
}

// TestDeleteInSeveralTransactions deletes a ledger too large for one.
func TestDeleteInSeveralTransactions(t *testing.T) {
	fs := memfs.New("/data")
	x, err := OpenMem(fs, memPath, Options{})
	require.NoError(t, err)
	var runs []entrylog.Run
	const n = txBytesMax/(4*runBytesGuess) + 100
	for i := range int64(n) {
		runs = append(runs, run(1, i*2, 1, 1, 4096+i*40, 24))
	}
	ingestRuns(t, x, logInfo(1), runs...)
	before := x.(*runIndex).count.transactions.Load()
	require.NoError(t, x.DeleteLedgers([]int64{1, 2}))
	require.Greater(t, x.(*runIndex).count.transactions.Load(), before+1)
	_, err = x.Last(1)
	require.ErrorIs(t, err, ErrNotFound)
	st, err := x.Stats()
	require.NoError(t, err)
	require.Zero(t, st.Runs)
	checked(t, x)
	require.NoError(t, x.Close())
}
