package index

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/binderylog/bindery/entrylog"
	"github.com/binderylog/bindery/internal/vfs/memfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// subject makes and reopens an index of one kind.
type subject struct {
	name string
	make func(t *testing.T) func(o Options) (Index, error)
}

var subjects = []subject{
	{"bolt", func(t *testing.T) func(Options) (Index, error) {
		path := filepath.Join(t.TempDir(), FileName)
		return func(o Options) (Index, error) { return OpenBolt(path, o) }
	}},
	{"mem", func(t *testing.T) func(Options) (Index, error) {
		fs := memfs.New("/data")
		return func(o Options) (Index, error) { return OpenMem(fs, "/data/"+FileName, o) }
	}},
}

// conform runs a test against every kind of index.
func conform(t *testing.T, fn func(t *testing.T, open func(Options) (Index, error))) {
	for _, s := range subjects {
		t.Run(s.name, func(t *testing.T) { fn(t, s.make(t)) })
	}
}

func opened(t *testing.T, open func(Options) (Index, error)) Index {
	t.Helper()
	x, err := open(Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	return x
}

func seqOf(runs []entrylog.Run) iter.Seq2[entrylog.Run, error] {
	return func(yield func(entrylog.Run, error) bool) {
		for _, r := range runs {
			if !yield(r, nil) {
				return
			}
		}
	}
}

func logInfo(id entrylog.LogID) entrylog.LogInfo { return entrylog.LogInfo{ID: id, Precedence: id} }

// run makes a run of entries of one size.
func run(ledger, first int64, count int, log entrylog.LogID, offset int64, size uint32) entrylog.Run {
	return entrylog.Run{Ledger: ledger, First: first, Log: log, Offset: offset, Count: uint32(count), Sizes: []uint32{size}}
}

func ingestRuns(t *testing.T, x Index, info entrylog.LogInfo, runs ...entrylog.Run) {
	t.Helper()
	require.NoError(t, x.Ingest(context.Background(), info, seqOf(runs), nil))
}

func checked(t *testing.T, x Index) {
	t.Helper()
	require.NoError(t, x.Check(context.Background(), func(err error) { t.Errorf("check: %v", err) }))
}

func TestLocate(t *testing.T) {
	conform(t, func(t *testing.T, open func(Options) (Index, error)) {
		x := opened(t, open)
		_, err := x.Locate(1, 0)
		require.ErrorIs(t, err, ErrNotFound)
		_, err = x.Last(1)
		require.ErrorIs(t, err, ErrNotFound)

		mixed := entrylog.Run{Ledger: 7, First: 10, Log: 1, Offset: 9000, Count: 3, Sizes: []uint32{30, 40, 50}}
		ingestRuns(t, x, logInfo(1), run(1, 0, 300, 1, 4096, 100), mixed, run(7, 20, 1, 1, 9999, 24), run(1<<62, 1<<62, 2, 1, 12000, 60))
		for _, want := range []struct {
			ledger, entry int64
			loc           entrylog.Location
		}{
			{1, 0, entrylog.Location{Log: 1, Offset: 4096, Size: 100}},
			{1, 128, entrylog.Location{Log: 1, Offset: 4096 + 128*108, Size: 100}},
			{1, 299, entrylog.Location{Log: 1, Offset: 4096 + 299*108, Size: 100}},
			{7, 10, entrylog.Location{Log: 1, Offset: 9000, Size: 30}},
			{7, 12, entrylog.Location{Log: 1, Offset: 9000 + 38 + 48, Size: 50}},
			{7, 20, entrylog.Location{Log: 1, Offset: 9999, Size: 24}},
			{1 << 62, 1<<62 + 1, entrylog.Location{Log: 1, Offset: 12068, Size: 60}},
		} {
			loc, err := x.Locate(want.ledger, want.entry)
			require.NoError(t, err)
			require.Equal(t, want.loc, loc)
		}
		for _, absent := range [][2]int64{{0, 0}, {1, 300}, {2, 0}, {7, 0}, {7, 9}, {7, 13}, {7, 19}, {7, 21}, {1 << 62, 0}, {1 << 62, 1<<62 + 2}, {1<<62 + 1, 0}, {-1, 0}, {1, -1}, {1<<63 - 1, 1<<63 - 1}} {
			_, err := x.Locate(absent[0], absent[1])
			require.ErrorIs(t, err, ErrNotFound, "%v", absent)
		}
		for ledger, want := range map[int64]int64{1: 299, 7: 20, 1 << 62: 1<<62 + 1} {
			last, err := x.Last(ledger)
			require.NoError(t, err)
			require.Equal(t, want, last)
		}
		r, err := x.LocateRun(1, 200)
		require.NoError(t, err)
		require.Equal(t, int64(128), r.First)
		require.Equal(t, int64(127), r.Prev)
		ids, err := x.Ledgers(-1, 10)
		require.NoError(t, err)
		require.Equal(t, []int64{1, 7, 1 << 62}, ids)
		ids, err = x.Ledgers(1, 1)
		require.NoError(t, err)
		require.Equal(t, []int64{7}, ids)
		checked(t, x)
	})
}

// reference is a slow, obvious index.
type reference struct {
	at     map[[2]int64]entrylog.Location
	ages   map[entrylog.LogID]age
	states map[int64]stateRecord
}

func newReference() *reference {
	return &reference{at: map[[2]int64]entrylog.Location{}, ages: map[entrylog.LogID]age{}, states: map[int64]stateRecord{}}
}

func (r *reference) clone() *reference {
	return &reference{maps.Clone(r.at), maps.Clone(r.ages), maps.Clone(r.states)}
}

func (r *reference) ingest(info entrylog.LogInfo, runs []entrylog.Run, states []entrylog.LedgerState) {
	a := age{info.Precedence, info.ID}
	r.ages[info.ID] = a
	for _, run := range runs {
		for i := range int(run.Count) {
			id := [2]int64{run.Ledger, run.First + int64(i)}
			loc := run.Location(i)
			old, ok := r.at[id]
			if !ok || old.Log == loc.Log && old.Offset < loc.Offset || old.Log != loc.Log && r.ages[old.Log].before(a) {
				r.at[id] = loc
			}
		}
	}
	for _, s := range states {
		if old, ok := r.states[s.Ledger]; !ok || !a.before(old.age) {
			r.states[s.Ledger] = stateRecord{a, s.Data}
		}
	}
}

// same compares an index with the reference in every way of asking.
func (r *reference) same(t *testing.T, x Index, where string) {
	t.Helper()
	last := map[int64]int64{}
	entries := map[int64]int{}
	for id, want := range r.at {
		loc, err := x.Locate(id[0], id[1])
		require.NoError(t, err, "%s: %v", where, id)
		require.Equal(t, want, loc, "%s: %v", where, id)
		if l, ok := last[id[0]]; !ok || l < id[1] {
			last[id[0]] = id[1]
		}
		entries[id[0]]++
	}
	ledgers := map[int64]bool{}
	for ledger, want := range last {
		got, err := x.Last(ledger)
		require.NoError(t, err, where)
		require.Equal(t, want, got, where)
		n := 0
		for run, err := range x.Runs(ledger, 0) {
			require.NoError(t, err, where)
			n += int(run.Count)
			for i := range int(run.Count) {
				require.Equal(t, r.at[[2]int64{ledger, run.First + int64(i)}], run.Location(i), where)
			}
		}
		require.Equal(t, entries[ledger], n, "%s: entries of ledger %d", where, ledger)
		for e := int64(0); e <= want+1; e++ {
			if _, ok := r.at[[2]int64{ledger, e}]; !ok {
				_, err := x.Locate(ledger, e)
				require.ErrorIs(t, err, ErrNotFound, "%s: %d:%d", where, ledger, e)
			}
		}
		ledgers[ledger] = true
	}
	for ledger, want := range r.states {
		data, ok, err := x.State(ledger)
		require.NoError(t, err, where)
		require.True(t, ok, where)
		require.Equal(t, string(want.data), string(data), where)
		ledgers[ledger] = true
	}
	ids, err := x.Ledgers(-1, 1<<20)
	require.NoError(t, err, where)
	require.Equal(t, slices.Sorted(maps.Keys(ledgers)), slices.Sorted(slices.Values(ids)), where)
}

// randomLog makes runs of a few ledgers as a log would hold them; they may overlap one another.
func randomLog(rng *rand.Rand, id entrylog.LogID) (runs []entrylog.Run, states []entrylog.LedgerState) {
	off := int64(4096)
	for ledger := range int64(4) {
		first := int64(0)
		for range rng.IntN(5) {
			first = max(0, first+int64(rng.IntN(12))-4)
			count := 1 + rng.IntN(20)
			r := entrylog.Run{Ledger: ledger, First: first, Log: id, Offset: off, Count: uint32(count), Sizes: []uint32{uint32(24 + rng.IntN(3))}}
			if rng.IntN(2) == 0 {
				r.Sizes = nil
				for range count {
					r.Sizes = append(r.Sizes, uint32(24+rng.IntN(300)))
				}
			}
			off += r.Bytes()
			if rng.IntN(3) == 0 {
				off += 100
			}
			first += int64(count)
			runs = append(runs, r)
		}
		if rng.IntN(3) == 0 {
			states = append(states, entrylog.LedgerState{Ledger: ledger, Data: fmt.Appendf(nil, "state %d of log %d", ledger, id)})
		}
	}
	slices.SortStableFunc(runs, func(a, b entrylog.Run) int {
		if a.Ledger != b.Ledger {
			return int(a.Ledger - b.Ledger)
		}
		return int(a.First - b.First)
	})
	return runs, states
}

// TestRandomAgainstReference does random things to an index and to the reference, reopening now and then.
func TestRandomAgainstReference(t *testing.T) {
	conform(t, func(t *testing.T, open func(Options) (Index, error)) {
		seeds := uint64(6)
		if testing.Short() {
			seeds = 2
		}
		for seed := range seeds {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 1))
				x, err := open(Options{})
				require.NoError(t, err)
				var all []int64
				all, err = x.Ledgers(-1, 100)
				require.NoError(t, err)
				require.NoError(t, x.DeleteLedgers(all))
				ref := newReference()
				base := entrylog.LogID(1000 * (seed + 1))
				for step := range 60 {
					where := fmt.Sprintf("seed %d, step %d", seed, step)
					switch what := rng.IntN(10); {
					case what < 4:
						info := logInfo(base + entrylog.LogID(rng.IntN(40)))
						if rng.IntN(4) == 0 {
							info.Precedence = base + entrylog.LogID(rng.IntN(40))
						}
						if _, ok := ref.ages[info.ID]; ok {
							continue // a log never changes
						}
						runs, states := randomLog(rng, info.ID)
						require.NoError(t, x.Ingest(context.Background(), info, seqOf(runs), states), where)
						ref.ingest(info, runs, states)
						ok, err := x.Ingested(info.ID)
						require.NoError(t, err)
						require.True(t, ok)
						if rng.IntN(3) == 0 { // again: nothing may change
							require.NoError(t, x.Ingest(context.Background(), info, seqOf(runs), states), where)
						}
					case what < 7:
						var moves []Move
						want := 0
						off := int64(1 << 20)
						for _, id := range slices.SortedFunc(maps.Keys(ref.at), func(a, b [2]int64) int {
							return slices.Compare(a[:], b[:])
						}) {
							if rng.IntN(3) > 0 {
								continue
							}
							old := ref.at[id]
							next := entrylog.Location{Log: base + 900 + entrylog.LogID(step), Offset: off, Size: old.Size}
							off += 8 + int64(old.Size)
							m := Move{Ledger: id[0], Entry: id[1], Old: old, New: next}
							if rng.IntN(5) == 0 {
								m.Old.Offset++ // not there any more
							} else {
								ref.at[id] = next
								want++
							}
							moves = append(moves, m)
						}
						moves = append(moves, Move{Ledger: 2, Entry: 1 << 40, Old: entrylog.Location{Log: 1, Offset: 5000, Size: 30}, New: entrylog.Location{Log: 2, Offset: 5000, Size: 30}})
						rng.Shuffle(len(moves), func(i, j int) { moves[i], moves[j] = moves[j], moves[i] })
						got, err := x.Relocate(moves)
						require.NoError(t, err, where)
						require.Equal(t, want, got, where)
						ref.ages[base+900+entrylog.LogID(step)] = age{base + 900 + entrylog.LogID(step), base + 900 + entrylog.LogID(step)}
					case what < 8:
						ledger := rng.Int64N(4)
						require.NoError(t, x.DeleteLedgers([]int64{ledger}, MetaValue{"deleted", []byte{byte(ledger)}}), where)
						for id := range ref.at {
							if id[0] == ledger {
								delete(ref.at, id)
							}
						}
						delete(ref.states, ledger)
						v, ok, err := x.Meta("deleted")
						require.NoError(t, err)
						require.True(t, ok)
						require.Equal(t, []byte{byte(ledger)}, v)
					case what < 9:
						require.NoError(t, x.Close())
						x, err = open(Options{MustExist: true})
						require.NoError(t, err)
					}
					ref.same(t, x, where)
					checked(t, x)
				}
				require.NoError(t, x.Close())
			})
		}
	})
}

// TestCheckBesideChanges checks a sound index while it changes and is read.
func TestCheckBesideChanges(t *testing.T) {
	conform(t, func(t *testing.T, open func(Options) (Index, error)) {
		x := opened(t, open)
		ingestRuns(t, x, logInfo(1), run(1, 0, 100, 1, 4096, 50))
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for n := entrylog.LogID(2); ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := x.Ingest(context.Background(), logInfo(n), seqOf([]entrylog.Run{run(int64(n%5), int64(n)*10, 20, n, 4096, 50)}), nil); err != nil {
					t.Errorf("ingest: %v", err)
					return
				}
			}
		})
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if loc, err := x.Locate(1, 3); err != nil || loc.Log != 1 {
					t.Errorf("locate: %v, %v", loc, err)
					return
				}
			}
		})
		for range 10 {
			checked(t, x)
			_, err := x.Stats()
			require.NoError(t, err)
		}
		close(stop)
		wg.Wait()
		require.NoError(t, x.Err())
	})
}
