package storage

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/binderylog/bindery/entrylog"
	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
	"github.com/stretchr/testify/require"
)

func TestIDSetAgainstMap(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 2))
		set, want := &idSet{}, map[int64]bool{}
		span := int64(1) << (4 + r.IntN(12))
		for range 30 {
			ids := map[int64]bool{}
			for range r.IntN(3000) {
				id := r.Int64N(span)
				if r.IntN(50) == 0 {
					id = 1<<63 - 1 - r.Int64N(5)
				}
				ids[id] = true
			}
			sorted := slices.Sorted(maps.Keys(ids))
			if r.IntN(3) == 0 {
				set = set.remove(sorted)
				for id := range ids {
					delete(want, id)
				}
			} else {
				set = set.add(sorted)
				maps.Copy(want, ids)
			}
			var got []int64
			for run := range set.all() {
				for id := run.first; ; id++ {
					got = append(got, id)
					if id == run.last {
						break
					}
				}
			}
			require.Equal(t, slices.Sorted(maps.Keys(want)), got, "seed %d", seed)
			for range 50 {
				id := r.Int64N(span + 5)
				require.Equal(t, want[id], set.contains(id), "seed %d id %d", seed, id)
			}
			back, births, _, err := decodeTombstones(encodeTombstones(set, 7))
			require.NoError(t, err)
			require.EqualValues(t, 7, births)
			require.Equal(t, set.runs, back.runs)
			require.Equal(t, set.size, back.size)
		}
	}
}

// TestOverlayAgainstMap adds checkpoints of random shape, with re-adds, to an overlay and compares every look-up.
func TestOverlayAgainstMap(t *testing.T) {
	type key struct{ ledger, entry int64 }
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 3))
		var o overlay
		want := map[key]entrylog.Location{}
		states := map[int64]string{}
		log, off := entrylog.LogID(1), int64(4096)
		stride := 1 + r.Int64N(3)
		for range 30 {
			if r.IntN(8) == 0 {
				log, off = log+1, 4096
			}
			entries := map[key]uint32{}
			for range r.IntN(400) {
				k := key{r.Int64N(6), r.Int64N(2000) * stride}
				size := uint32(100)
				if r.IntN(2) == 0 {
					size = 24 + r.Uint32N(5000)
				}
				entries[k] = size
			}
			keys := slices.SortedFunc(maps.Keys(entries), func(a, b key) int {
				if a.ledger != b.ledger {
					return compareInt64(a.ledger, b.ledger)
				}
				return compareInt64(a.entry, b.entry)
			})
			var b entrylog.RunBuilder
			for _, k := range keys {
				loc := entrylog.Location{Log: log, Offset: off, Size: entries[k]}
				b.Add(k.ledger, k.entry, loc)
				want[k] = loc
				off += entrylog.RecordHeaderSize + int64(loc.Size)
			}
			off += r.Int64N(3) * 4096 // tables lie between checkpoints
			var list []entrylog.LedgerState
			for id := range int64(6) {
				if r.IntN(3) == 0 {
					states[id] = fmt.Sprintf("state %d of %d at %d", r.Int(), id, off)
					list = append(list, entrylog.LedgerState{Ledger: id, Data: []byte(states[id])})
				}
			}
			o.add(pagesOf(log, b.Runs(), list))
		}
		require.Less(t, len(o.load()), 60)
		last := map[int64]int64{}
		for k, loc := range want {
			got, ok := o.find(k.ledger, k.entry, 0)
			require.True(t, ok, "seed %d %v", seed, k)
			require.Equal(t, loc, got, "seed %d %v", seed, k)
			last[k.ledger] = max(last[k.ledger], k.entry)
			_, ok = o.find(k.ledger, k.entry, loc.Log)
			require.False(t, ok, "seed %d: an entry of log %s was found above that log", seed, loc.Log)
		}
		for id := range int64(7) {
			n, ok := o.last(id, 0)
			want, has := last[id]
			require.Equal(t, has, ok)
			if has {
				require.Equal(t, want, n)
			}
			b, ok := o.state(id)
			require.Equal(t, states[id], string(b))
			require.Equal(t, states[id] != "", ok)
		}
		for range 500 {
			k := key{r.Int64N(7), r.Int64N(7000)}
			_, has := want[k]
			_, ok := o.find(k.ledger, k.entry, 0)
			require.Equal(t, has, ok, "seed %d %v", seed, k)
		}
		// The runs of a log cover its newest entries exactly once.
		merged := o.merged(log)
		if merged == nil {
			continue
		}
		n := 0
		prev := key{-1, -1}
		for run := range merged.runs() {
			require.NoError(t, run.Check())
			for i := range int(run.Count) {
				k := key{run.Ledger, run.First + int64(i)}
				require.True(t, k.ledger > prev.ledger || k.entry > prev.entry, "seed %d: %v follows %v", seed, k, prev)
				prev = k
				require.Equal(t, want[k], run.Location(i), "seed %d %v", seed, k)
				n++
			}
		}
		for _, loc := range want {
			if loc.Log == log {
				n--
			}
		}
		require.Zero(t, n, "seed %d", seed)
		o.drop(log)
		require.Nil(t, o.merged(log))
	}
}

// TestWriteCacheConcurrently has writers of many ledgers, and readers that must see either nothing or a whole body.
func TestWriteCacheConcurrently(t *testing.T) {
	c, err := newWriteCache(0, 8<<20)
	require.NoError(t, err)
	const ledgers, entries = 8, 2000
	var wg sync.WaitGroup
	var mu sync.Mutex
	var problems []string
	for id := range int64(ledgers) {
		wg.Go(func() {
			prev := uint32(0)
			for entry := range int64(entries) {
				for version := range byte(2) {
					at, ok := c.put(id, entry, 1, prev, testBody(id, entry, 0, 100, version))
					if !ok {
						mu.Lock()
						problems = append(problems, "full")
						mu.Unlock()
						return
					}
					prev = at
				}
			}
		})
		wg.Go(func() {
			for entry := range int64(entries) {
				if b := c.get(id, entry, 1); b != nil {
					if l, e := entrylog.IDs(b); l != id || e != entry || len(b) != 100 {
						mu.Lock()
						problems = append(problems, fmt.Sprint(l, e, len(b)))
						mu.Unlock()
					}
				}
				if c.get(id, entry, 0) != nil {
					mu.Lock()
					problems = append(problems, "an entry of another life")
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	require.Empty(t, problems)
	require.EqualValues(t, ledgers*entries, c.entries.Load())
	for id := range int64(ledgers) {
		for entry := range int64(entries) {
			require.Equal(t, testBody(id, entry, 0, 100, 1), c.get(id, entry, 1), "the latest copy wins")
		}
	}
	epoch := c.epoch
	c.reset()
	require.NotEqual(t, epoch, c.epoch)
	require.Nil(t, c.get(1, 1, 1))
	require.NoError(t, c.free())
}

// TestWriteCacheFull fills a cache with the smallest entries: the table never gets too full, and the cost is what was
// reserved.
func TestWriteCacheFull(t *testing.T) {
	for _, size := range []int64{minCacheBytes, 1 << 20, 3 << 20} {
		c, err := newWriteCache(0, size)
		require.NoError(t, err)
		n := int64(0)
		for {
			if _, ok := c.put(1, n, 0, 0, testBody(1, n, 0, MinEntry, 0)); !ok {
				break
			}
			n++
		}
		require.LessOrEqual(t, n, int64(len(c.table))*4/5)
		require.Greater(t, n, int64(len(c.table))/2)
		require.LessOrEqual(t, n*c.cost(MinEntry), c.capacity())
		require.Greater(t, (n+1)*c.cost(MinEntry), c.capacity())
		for entry := range n {
			require.NotNil(t, c.get(1, entry, 0))
		}
		require.Nil(t, c.get(1, n, 0))
		require.NoError(t, c.free())
	}
}

func TestPace(t *testing.T) {
	const mb = 1 << 20
	for _, c := range []struct {
		name                        string
		done, total, fill, capacity int64
		elapsed                     time.Duration
		wantPause                   bool
	}{
		{"nothing written", 0, 10 * mb, 0, 10 * mb, time.Second, false},
		{"ahead of an idle cache", 5 * mb, 10 * mb, 0, 10 * mb, time.Second, true},
		{"as fast as it fills", 5 * mb, 10 * mb, 4 * mb, 10 * mb, time.Second, false},
		{"behind", 2 * mb, 10 * mb, 4 * mb, 10 * mb, time.Second, false},
		{"the cache is nearly full", 9 * mb, 10 * mb, 9 * mb, 10 * mb, 100 * time.Millisecond, false},
		{"time is up", 9 * mb, 10 * mb, 0, 10 * mb, 6 * time.Second, false},
	} {
		got := pace(c.done, c.total, c.fill, c.capacity, c.elapsed, 5*time.Second)
		require.Equal(t, c.wantPause, got > 0, "%s: %v", c.name, got)
		require.LessOrEqual(t, got, pacePauseMax)
	}
	// A flush of 50 MiB while the other cache of 60 MiB fills in one second ends when that is four fifths full.
	now, done := time.Duration(0), int64(0)
	for done < 50*mb {
		done += paceStep
		now += time.Millisecond / 2 // what the disk takes
		now += pace(done, 50*mb, int64(60*mb*now.Seconds()), 60*mb, now, 5*time.Second)
	}
	require.InDelta(t, 0.8, now.Seconds(), 0.1)
}

func TestDiskStates(t *testing.T) {
	var l DiskLimits
	l.EnsureDefaults()
	require.NoError(t, l.Validate())
	for _, c := range []struct {
		prev DiskState
		used float64
		want DiskState
	}{
		{DiskOK, 0.5, DiskOK}, {DiskOK, 0.9, DiskWarn}, {DiskOK, 0.95, DiskFull}, {DiskWarn, 0.94, DiskWarn},
		{DiskFull, 0.94, DiskFull}, {DiskFull, 0.92, DiskFull}, {DiskFull, 0.919, DiskWarn}, {DiskFull, 0.5, DiskOK},
		{DiskFailed, 0.1, DiskFailed},
	} {
		require.Equal(t, c.want, l.Next(c.prev, c.used), "%v at %v", c.prev, c.used)
	}
	dirs := func(states ...DiskState) (out []DirStatus) {
		for _, s := range states {
			out = append(out, DirStatus{State: s})
		}
		return out
	}
	readOnly := func(when string, states ...DiskState) bool {
		l.ReadOnlyWhen = when
		ro, reason := l.ReadOnly(dirs(states...))
		require.Equal(t, ro, reason != "")
		return ro
	}
	require.False(t, readOnly("any", DiskOK, DiskWarn))
	require.True(t, readOnly("any", DiskOK, DiskFull))
	require.False(t, readOnly("all", DiskOK, DiskFull))
	require.True(t, readOnly("all", DiskFull, DiskFull))
	require.True(t, readOnly("all", DiskOK, DiskFailed))
	for _, bad := range []DiskLimits{
		{FullAt: 1.2}, {FullAt: 0.9, WarnAt: 0.95}, {ResumeBelow: 0.99}, {ReadOnlyWhen: "some"}, {FullAt: -1},
	} {
		bad.EnsureDefaults()
		require.Error(t, bad.Validate(), "%+v", bad)
	}
}

func TestMarkFile(t *testing.T) {
	mem := memfs.New()
	require.NoError(t, vfs.MkdirAllSync(mem, "/d"))
	_, err := readMark(mem, "/d")
	require.ErrorIs(t, err, errNoMark)
	require.NoError(t, createMark(mem, "/d"))
	_, err = readMark(mem, "/d")
	require.ErrorIs(t, err, errNoMark)
	last, err := vfs.ReadFile(mem, "/d/lastMark")
	require.NoError(t, err)
	require.Len(t, last, 16)
	f, err := openMark(mem, "/d")
	require.NoError(t, err)
	for seq := uint64(1); seq < 6; seq++ {
		want := &markTable{seq: seq, run: 3, births: 9, journals: []string{"a", "b"}, rows: []dirMark{{id: 5, pos: []uint64{seq, 2 * seq}}, {id: 6, failed: true, pos: []uint64{1, 1}}}}
		require.NoError(t, writeMark(f, want))
		got, err := readMark(mem, "/d")
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Equal(t, 2*seq, got.posFor(&got.rows[0], "b"))
		require.Zero(t, got.posFor(&got.rows[0], "c"))
	}
	// A torn write leaves the other slot.
	flipBit(t, mem, "/d/mark", markSlot*(5&1)+markHeader+3)
	got, err := readMark(mem, "/d")
	require.NoError(t, err)
	require.EqualValues(t, 4, got.seq)
	flipBit(t, mem, "/d/mark", markSlot*(4&1)+markHeader+3)
	_, err = readMark(mem, "/d")
	require.True(t, corrupt.Is(err), "%v", err)
	require.NoError(t, f.Close())
}

func TestOptionsAreChecked(t *testing.T) {
	good := func() Options {
		o := Options{Dirs: []DirOptions{{Ledger: "/a"}}, Journals: []string{"j"}}
		o.EnsureDefaults()
		return o
	}
	o := good()
	require.NoError(t, o.Validate())
	for name, spoil := range map[string]func(*Options){
		"no directory":   func(o *Options) { o.Dirs = nil },
		"twice":          func(o *Options) { o.Dirs = append(o.Dirs, o.Dirs[0]) },
		"no journal":     func(o *Options) { o.Journals = nil },
		"same journal":   func(o *Options) { o.Journals = []string{"a", "a"} },
		"small cache":    func(o *Options) { o.WriteCacheBytes = 1000 },
		"negative flush": func(o *Options) { o.FlushInterval = -1 },
		"disk":           func(o *Options) { o.Disk.FullAt = 7 },
	} {
		o := good()
		spoil(&o)
		require.Error(t, o.Validate(), name)
	}
}
