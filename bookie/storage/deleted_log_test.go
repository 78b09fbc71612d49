package storage

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/corrupt"
)

// TestDeletedEntryLogs: an operator deletes an entry log, each in turn, with and without the index. What it held is never
// absent: with the index reading it fails; without it the directory has lost something, at every start until that is accepted.
func TestDeletedEntryLogs(t *testing.T) {
	const ledgers, logs = 3, 4
	build := func(clean bool) *env {
		e := newEnv(t, 1, 1, nil).open()
		for n := range int64(logs) {
			for l := range int64(ledgers) {
				e.mustAdd(l, n, 500)
			}
			if n == 0 {
				e.mustAdd(8, 0, 300)
			}
			if n == 1 {
				require.NoError(t, e.fence(8)) // known to one log alone
				require.NoError(t, e.fence(9)) // of a ledger without entries
			}
			e.mustAdd(100+n, 0, 300) // a ledger in this log alone
			if n < logs-1 {
				e.roll()
			}
		}
		e.checkpoint()
		if clean {
			e.close()
		} else {
			e.crash(1, 0)
		}
		return e
	}
	for _, clean := range []bool{true, false} {
		names := logNames(t, build(clean))
		require.GreaterOrEqual(t, len(names), logs)
		for i, name := range names {
			for _, withIndex := range []bool{true, false} {
				where := fmt.Sprintf("clean %v, %s (%d of %d) deleted, index kept %v", clean, name, i+1, len(names), withIndex)
				e := build(clean)
				require.NoError(t, e.mem.Remove(filepath.Join(dirName(0), "current", name)), where)
				if !withIndex {
					e.removeIndex()
				}
				for range 2 { // found again until it has been accepted
					e.open()
					missing := 0
					for n := range int64(logs) {
						for _, id := range append(slices.Collect(ids(ledgers)), 100+n) {
							entry := n
							if id >= 100 {
								entry = 0
							}
							switch _, err := e.s.Read(id, entry, nil); {
							case err == nil:
							case corrupt.Is(err):
								missing++
							default: // what a bookie makes unknown before its first answer
								require.NotEmpty(t, e.s.Lost(), "%s: ledger %d entry %d: %v", where, id, entry, err)
								missing++
							}
						}
					}
					require.Positive(t, missing, where)
					if !withIndex {
						require.NotEmpty(t, e.s.Lost(), where)
						require.ErrorContains(t, e.s.Lost()[0], name)
						e.requireNo(777, 0, ErrUnknown)
					}
					findings := 0
					require.NoError(t, e.s.Check(t.Context(), func(error) { findings++ }), where)
					require.Positive(t, findings, where)
					e.close()
				}
				if withIndex { // it knew; now nobody does
					e.removeIndex()
				}
				e.open()
				require.NotEmpty(t, e.s.Lost(), where)
				require.NoError(t, e.s.MarkLimbo(t.Context(), []int64{0, 1, 2, 8, 9, 100, 101, 102, 103}))
				require.NoError(t, e.s.AcceptLoss(t.Context()))
				e.close()
				e.open()
				require.Empty(t, e.s.Lost(), "%s: it was accepted", where)
				e.close()
			}
		}
	}
}

// TestCollectedLogsAreNotMissed: logs that collection and compaction delete are no loss, nor is an index made again afterwards,
// also if every kind of stop comes in between.
func TestCollectedLogsAreNotMissed(t *testing.T) {
	e := newEnv(t, 1, 1, nil).open()
	for round := range int64(6) {
		for n := range int64(4) {
			e.mustAdd(10*round, n, 400)
			e.mustAdd(10*round+1, n, 400)
			e.roll()
		}
		_, err := e.s.Delete(t.Context(), []int64{10 * round}, []uint32{0})
		require.NoError(t, err)
		ids, err := e.s.CollectableLogs(0)
		require.NoError(t, err)
		if len(ids) > 2 {
			_, _, err = e.s.Compact(t.Context(), 0, ids[:len(ids)-1], noLimit)
			require.NoError(t, err)
		}
		e.checkpoint()
		if round%2 == 0 {
			e.close()
		} else {
			e.crash(uint64(round), 0.5)
		}
		if round%3 == 0 {
			e.removeIndex()
		}
		e.open()
		require.Empty(t, e.s.Lost(), "round %d", round)
		for n := range int64(4) {
			e.requireEntry(10*round+1, n, 400)
		}
	}
	e.close()
}

func ids(n int64) func(func(int64) bool) {
	return func(yield func(int64) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}

// logNames returns the files of entry logs.
func logNames(t *testing.T, e *env) []string {
	names, err := e.mem.List(filepath.Join(dirName(0), "current"))
	require.NoError(t, err)
	return slices.DeleteFunc(names, func(n string) bool { return !strings.HasSuffix(n, ".log") || strings.HasPrefix(n, "index") })
}

// removeIndex deletes the index's files.
func (e *env) removeIndex() {
	e.t.Helper()
	names, err := e.mem.List(filepath.Join(dirName(0), "current"))
	require.NoError(e.t, err)
	for _, n := range names {
		if strings.HasPrefix(n, "index.db") {
			require.NoError(e.t, e.mem.Remove(filepath.Join(dirName(0), "current", n)))
		}
	}
}
