package memfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/vfs"
)

// outcomes returns the distinct results that see finds in clones of many seeds.
func outcomes(f *FS, see func(f *FS) string) map[string]int {
	seen := map[string]int{}
	for seed := range uint64(300) {
		seen[see(f.CrashClone(seed, 0.5))]++
	}
	return seen
}

func listing(dir string) func(f *FS) string {
	return func(f *FS) string {
		names, err := f.List(dir)
		if err != nil {
			return err.Error()
		}
		return strings.Join(names, " ")
	}
}

func whole(name string) func(f *FS) string {
	return func(f *FS) string {
		b, err := vfs.ReadFile(f, name)
		if errors.Is(err, fs.ErrNotExist) {
			return "(absent)"
		}
		return string(b)
	}
}

func keys(m map[string]int) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	return out
}

func TestDSyncWritesAreDurableAtOnce(t *testing.T) {
	f := New("/d")
	h, err := f.Open("/d/a", vfs.Mode{Write: true, Create: true, DSync: true})
	require.NoError(t, err)
	require.NoError(t, f.SyncDir("/d"))
	_, err = h.WriteAt([]byte("durable"), 0)
	require.NoError(t, err)
	require.Equal(t, "durable", content(t, f.CrashClone(1, 0), "/d/a"))

	b := put(t, f, "/d/b", strings.Repeat("b", 3*pageSize))
	require.NoError(t, f.SyncDir("/d"))
	_, err = b.(vfs.DSyncWriter).WriteAtDSync([]byte("X"), pageSize)
	require.NoError(t, err)
	got := content(t, f.CrashClone(1, 0), "/d/b")
	require.Len(t, got, 3*pageSize, "the size is durable with the write that needs it")
	require.Equal(t, strings.Repeat("\x00", pageSize), got[:pageSize], "other pages are not")
	require.Equal(t, "Xbbb", got[pageSize:pageSize+4])
}

func TestRenameIsKeptOrLostWhole(t *testing.T) {
	f := New("/d")
	require.NoError(t, vfs.WriteFileAtomic(f, "/d/a", []byte("old")))
	require.NoError(t, vfs.WriteFileAtomic(f, "/d/b", []byte("new")))
	require.NoError(t, f.Rename("/d/b", "/d/a"))
	require.ElementsMatch(t, []string{"a=old b", "a=new"}, keys(outcomes(f, func(f *FS) string {
		names := listing("/d")(f)
		return strings.Replace(names, "a", "a="+whole("/d/a")(f), 1)
	})))
	require.NoError(t, f.SyncDir("/d"))
	require.Equal(t, "new", content(t, f.CrashClone(1, 0), "/d/a"))
}

func TestNamesAreKeptInOrder(t *testing.T) {
	f := New("/d")
	h := put(t, f, "/d/a", "x")
	require.NoError(t, h.Sync())
	require.NoError(t, f.Rename("/d/a", "/d/b"))
	require.NoError(t, f.Rename("/d/b", "/d/c"))
	require.ElementsMatch(t, []string{"", "a", "b", "c"}, keys(outcomes(f, listing("/d"))), "one name or none, never two")

	put(t, f, "/d/x", "")
	put(t, f, "/d/y", "")
	require.Contains(t, outcomes(f, listing("/d")), "y", "operations on other names are independent")
}

func TestRenameBetweenDirectories(t *testing.T) {
	f := New("/d", "/e")
	require.NoError(t, vfs.WriteFileAtomic(f, "/d/a", []byte("x")))
	both := func(f *FS) string { return listing("/d")(f) + "|" + listing("/e")(f) }
	require.NoError(t, f.Rename("/d/a", "/e/a"))
	require.ElementsMatch(t, []string{"a|", "|a"}, keys(outcomes(f, both)))
	require.NoError(t, f.SyncDir("/e"))
	require.Equal(t, "|a", both(f.CrashClone(1, 0)), "syncing either directory makes the rename durable")

	put(t, f, "/d/n", "")
	require.NoError(t, f.Rename("/d/n", "/e/n"))
	require.NoError(t, f.SyncDir("/e"))
	require.Equal(t, "|a n", both(f.CrashClone(1, 0)), "and what it builds on, creation in the other directory")
	require.Equal(t, "|a n", both(f.CrashClone(1, 1)))
}

func TestADirectoryIsAsDurableAsItsName(t *testing.T) {
	f := New("/d")
	require.NoError(t, f.MkdirAll("/d/sub/deep"))
	require.NoError(t, vfs.WriteFileAtomic(f, "/d/sub/deep/a", []byte("x")))
	_, err := f.CrashClone(1, 0).Stat("/d/sub")
	require.ErrorIs(t, err, fs.ErrNotExist)

	require.NoError(t, vfs.MkdirAllSync(f, "/d/other/deep"))
	require.NoError(t, vfs.WriteFileAtomic(f, "/d/other/deep/a", []byte("x")))
	require.Equal(t, "x", content(t, f.CrashClone(1, 0), "/d/other/deep/a"))
}

func TestRemoveNeedsSyncDir(t *testing.T) {
	f := New("/d")
	require.NoError(t, vfs.WriteFileAtomic(f, "/d/a", []byte("x")))
	require.NoError(t, f.Remove("/d/a"))
	require.ElementsMatch(t, []string{"x", "(absent)"}, keys(outcomes(f, whole("/d/a"))))
	require.NoError(t, f.SyncDir("/d"))
	require.Equal(t, "(absent)", whole("/d/a")(f.CrashClone(1, 1)))
}

func TestUnsyncedGrowth(t *testing.T) {
	f := New("/d")
	h := put(t, f, "/d/a", strings.Repeat("o", 100))
	require.NoError(t, h.Sync())
	require.NoError(t, f.SyncDir("/d"))
	grown := strings.Repeat("n", 2*pageSize+700)
	_, err := h.WriteAt([]byte(grown), 0)
	require.NoError(t, err)
	sizes := map[int]bool{}
	for got := range outcomes(f, whole("/d/a")) {
		sizes[len(got)] = true
		require.GreaterOrEqual(t, len(got), 100)
		require.LessOrEqual(t, len(got), len(grown))
		for at := 0; at < len(got); at += sectorSize {
			sector := got[at:min(at+sectorSize, len(got))]
			kinds := []string{strings.Repeat("n", len(sector)), strings.Repeat("\x00", len(sector))}
			if at == 0 {
				kinds = append(kinds, strings.Repeat("o", 100)+strings.Repeat("\x00", len(sector)-100))
			}
			require.Contains(t, kinds, sector, "a sector holds old bytes, new bytes or zeros, nothing else")
		}
	}
	require.True(t, sizes[100])
	require.True(t, sizes[len(grown)])
	require.Greater(t, len(sizes), 2, "sizes in between, too")
}

func TestTornSectors(t *testing.T) {
	f := New("/d")
	h := put(t, f, "/d/a", strings.Repeat("o", pageSize))
	require.NoError(t, h.Sync())
	require.NoError(t, f.SyncDir("/d"))
	_, err := h.WriteAt(bytes.Repeat([]byte("n"), pageSize), 0)
	require.NoError(t, err)
	torn := 0
	for got := range outcomes(f, whole("/d/a")) {
		n := strings.Count(got, "n")
		require.Zero(t, n%sectorSize)
		if n > 0 && n < pageSize {
			torn++
		}
	}
	require.Positive(t, torn)
}

func TestUnsyncedTruncation(t *testing.T) {
	f := New("/d")
	h := put(t, f, "/d/a", strings.Repeat("o", 3*pageSize))
	require.NoError(t, h.Sync())
	require.NoError(t, f.SyncDir("/d"))
	require.NoError(t, h.Truncate(pageSize+10))
	require.ElementsMatch(t, []string{strings.Repeat("o", 3*pageSize), strings.Repeat("o", pageSize+10)},
		keys(outcomes(f, whole("/d/a"))))

	// What is written behind the cut is on disk only if the cut is.
	_, err := h.WriteAt([]byte("nnn"), pageSize+10)
	require.NoError(t, err)
	for got := range outcomes(f, whole("/d/a")) {
		if len(got) == 3*pageSize {
			require.Equal(t, strings.Repeat("o", 3*pageSize), got)
		} else {
			require.LessOrEqual(t, len(got), pageSize+13)
			require.NotContains(t, got[pageSize+10:], "o", "cut-off bytes do not come back")
		}
	}
	require.NoError(t, h.Sync())
	require.Equal(t, strings.Repeat("o", pageSize+10)+"nnn", content(t, f.CrashClone(1, 0), "/d/a"))
}

func TestPreallocationIsNotDurableBeforeSync(t *testing.T) {
	f := New("/d")
	h := put(t, f, "/d/a", "")
	require.NoError(t, f.SyncDir("/d"))
	require.NoError(t, h.Preallocate(10*pageSize))
	require.Equal(t, "", content(t, f.CrashClone(1, 0), "/d/a"))
	require.NoError(t, h.Sync())
	require.Len(t, content(t, f.CrashClone(1, 0), "/d/a"), 10*pageSize)
}

func TestSameSeedSameCrash(t *testing.T) {
	f := New("/d")
	for i := range 20 {
		put(t, f, fmt.Sprintf("/d/%d", i), strings.Repeat("x", i*1000))
	}
	dump := func(f *FS) string {
		out := ""
		names, err := f.List("/d")
		require.NoError(t, err)
		for _, name := range names {
			out += name + "=" + content(t, f, "/d/"+name) + "\n"
		}
		return out
	}
	require.Equal(t, dump(f.CrashClone(5, 0.5)), dump(f.CrashClone(5, 0.5)))
	require.NotEqual(t, dump(f.CrashClone(5, 0.5)), dump(f.CrashClone(6, 0.5)))
	require.Equal(t, dump(f), dump(f.Clone()))
	require.Equal(t, dump(f), dump(f.CrashClone(9, 1)))
}

func TestClonesAreIndependent(t *testing.T) {
	f := New("/d")
	h := put(t, f, "/d/a", strings.Repeat("a", 2*pageSize))
	g := f.Clone()
	var wg sync.WaitGroup
	for who, fsys := range map[string]*FS{"f": f, "g": g, "k": g.Clone()} {
		wg.Go(func() {
			mine, err := fsys.Open("/d/a", vfs.Mode{Write: true})
			if err != nil {
				t.Error(err)
				return
			}
			for i := range 100 {
				if _, err := mine.WriteAt([]byte(who), int64(i*50)); err != nil {
					t.Error(err)
				}
				if err := mine.Sync(); err != nil {
					t.Error(err)
				}
				fsys.CrashClone(uint64(i), 0.5)
			}
		})
	}
	wg.Wait()
	for at := range 100 {
		require.Equal(t, byte('f'), content(t, f, "/d/a")[at*50])
		require.Equal(t, byte('g'), content(t, g, "/d/a")[at*50])
	}
	require.NoError(t, h.Close())
}

func TestForgetDirty(t *testing.T) {
	f := New("/d")
	h := put(t, f, "/d/a", "old")
	require.NoError(t, h.Sync())
	require.NoError(t, f.SyncDir("/d"))
	_, err := h.WriteAt([]byte("new"), 0)
	require.NoError(t, err)
	require.NoError(t, f.ForgetDirty("/d/a"))
	require.NoError(t, h.Sync(), "a second sync succeeds and lies")
	require.Equal(t, "new", content(t, f, "/d/a"))
	require.Equal(t, "old", content(t, f.CrashClone(1, 1), "/d/a"))
	require.Equal(t, "new", content(t, f.Clone(), "/d/a"))
	_, err = h.WriteAt([]byte("N"), 0)
	require.NoError(t, err)
	require.NoError(t, h.Sync())
	require.Equal(t, "New", content(t, f.CrashClone(1, 0), "/d/a"))
}

func TestCrashNow(t *testing.T) {
	f := New("/d")
	h := put(t, f, "/d/a", "x")
	l, err := f.Lock("/d/lock")
	require.NoError(t, err)
	f.CrashNow()
	_, err = h.WriteAt([]byte("y"), 0)
	require.ErrorIs(t, err, ErrCrashed)
	_, err = h.ReadAt(make([]byte, 1), 0)
	require.ErrorIs(t, err, ErrCrashed)
	require.ErrorIs(t, h.Sync(), ErrCrashed)
	require.ErrorIs(t, h.Truncate(0), ErrCrashed)
	require.ErrorIs(t, h.Preallocate(1), ErrCrashed)
	_, err = h.Size()
	require.ErrorIs(t, err, ErrCrashed)
	_, err = f.Open("/d/a", vfs.Mode{})
	require.ErrorIs(t, err, ErrCrashed)
	require.ErrorIs(t, f.Remove("/d/a"), ErrCrashed)
	require.ErrorIs(t, f.Rename("/d/a", "/d/b"), ErrCrashed)
	require.ErrorIs(t, f.MkdirAll("/d/e"), ErrCrashed)
	require.ErrorIs(t, f.SyncDir("/d"), ErrCrashed)
	_, err = f.List("/d")
	require.ErrorIs(t, err, ErrCrashed)
	_, err = f.Stat("/d/a")
	require.ErrorIs(t, err, ErrCrashed)
	_, err = f.Usage("/d")
	require.ErrorIs(t, err, ErrCrashed)
	_, err = f.Lock("/d/lock")
	require.ErrorIs(t, err, ErrCrashed)

	g := f.CrashClone(1, 1)
	require.Equal(t, "x", content(t, g, "/d/a"))
	again, err := g.Lock("/d/lock")
	require.NoError(t, err, "locks die with the process")
	require.NoError(t, again.Close())
	require.NoError(t, l.Close())
	require.NoError(t, h.Close())
}

func TestCrashAtTearsTheWriteItHits(t *testing.T) {
	f := New("/d")
	h, err := f.Open("/d/a", vfs.Mode{Write: true, Create: true, DSync: true})
	require.NoError(t, err)
	require.NoError(t, f.SyncDir("/d"))
	_, err = h.WriteAt(bytes.Repeat([]byte("o"), 4*pageSize), 0)
	require.NoError(t, err)
	f.CrashAt(2)
	_, err = h.WriteAt(bytes.Repeat([]byte("1"), pageSize), 0)
	require.NoError(t, err)
	_, err = h.WriteAt(bytes.Repeat([]byte("2"), 4*pageSize), 0)
	require.ErrorIs(t, err, ErrCrashed)
	require.True(t, f.Crashed())
	before := strings.Repeat("1", pageSize) + strings.Repeat("o", 3*pageSize)
	seen := outcomes(f, whole("/d/a"))
	require.Greater(t, len(seen), 10, "a durable write that was under way is torn in many ways")
	for got := range seen {
		for i := range got {
			if got[i] != before[i] && got[i] != '2' {
				t.Fatalf("byte %d is %q, neither old nor new", i, got[i])
			}
		}
	}
	require.Equal(t, before, content(t, f.CrashClone(1, 0), "/d/a"))
	require.NoError(t, h.Close())
}

func TestSweepVisitsEveryChange(t *testing.T) {
	var states []string
	crashes := map[string]bool{}
	Sweep(t, func() *FS { return New("/d") }, func(f *FS) {
		_ = vfs.WriteFileAtomic(f, "/d/a", []byte("one"))
		_ = vfs.WriteFileAtomic(f, "/d/a", []byte("two"))
	}, func(f *FS, where string) {
		crashes[where] = true
		state := whole("/d/a")(f)
		require.Contains(t, []string{"(absent)", "one", "two"}, state, where)
		states = append(states, state)
	})
	require.Equal(t, "(absent)", states[0])
	require.Equal(t, "two", states[len(states)-1])
	require.Contains(t, states, "one")
	require.Len(t, crashes, len(states))
}

func TestCapacity(t *testing.T) {
	f := New("/d")
	f.SetCapacity(10 * pageSize)
	a := put(t, f, "/d/a", strings.Repeat("a", 4*pageSize))
	b, err := f.Open("/d/b", vfs.Mode{Write: true, Create: true})
	require.NoError(t, err)
	n, err := b.WriteAt(make([]byte, 8*pageSize), 100)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Equal(t, 6*pageSize-100, n, "as much as fits is written")
	size, err := b.Size()
	require.NoError(t, err)
	require.EqualValues(t, 6*pageSize, size)
	require.ErrorIs(t, b.Preallocate(7*pageSize), syscall.ENOSPC)
	size, err = b.Size()
	require.NoError(t, err)
	require.EqualValues(t, 6*pageSize, size, "preallocation is all or nothing")
	u, err := f.Usage("/d")
	require.NoError(t, err)
	require.Equal(t, int64(10*pageSize), u.Total)
	require.Zero(t, u.Available)
	_, err = a.WriteAt([]byte("overwriting needs no space"), 0)
	require.NoError(t, err)

	require.NoError(t, b.Truncate(pageSize))
	u, err = f.Usage("/d")
	require.NoError(t, err)
	require.Equal(t, int64(5*pageSize), u.Available)

	require.NoError(t, f.Remove("/d/a"))
	u, err = f.Usage("/d")
	require.NoError(t, err)
	require.Equal(t, int64(5*pageSize), u.Available, "an open file keeps its space")
	require.NoError(t, a.Close())
	u, err = f.Usage("/d")
	require.NoError(t, err)
	require.Equal(t, int64(9*pageSize), u.Available)

	require.NoError(t, b.Preallocate(10*pageSize))
	u, err = f.Usage("/d")
	require.NoError(t, err)
	require.Zero(t, u.Available)
	_, err = b.WriteAt(bytes.Repeat([]byte("b"), 9*pageSize), pageSize)
	require.NoError(t, err, "reserved space is there")
	require.NoError(t, b.Close())
}

// TestSpaceIsCountedRight compares the running count with one made afresh, through a long random run and its clones.
func TestSpaceIsCountedRight(t *testing.T) {
	count := func(f *FS) int64 {
		var pages int64
		var walk func(n *node)
		walk = func(n *node) {
			for i := range max(n.reserved, len(n.now.pages)) {
				if n.counted(i) {
					pages++
				}
			}
			for _, child := range n.live {
				walk(child)
			}
		}
		walk(f.root)
		return pages
	}
	rng := rand.New(rand.NewPCG(3, 3))
	f := New("/d")
	f.SetCapacity(60 * pageSize)
	for step := range 3000 {
		name := fmt.Sprintf("/d/%d", rng.IntN(5))
		h, err := f.Open(name, vfs.Mode{Write: true, Create: true})
		require.NoError(t, err)
		switch rng.IntN(7) {
		case 0:
			_ = h.Truncate(rng.Int64N(20 * pageSize))
		case 1:
			_ = h.Preallocate(rng.Int64N(20 * pageSize))
		case 2:
			_ = h.Sync()
		case 3:
			_ = f.Remove(name)
		case 4:
			_ = f.Rename(name, fmt.Sprintf("/d/%d", rng.IntN(5)))
		default:
			_, _ = h.WriteAt(make([]byte, rng.IntN(5*pageSize)), rng.Int64N(15*pageSize))
		}
		require.NoError(t, h.Close())
		require.Equal(t, count(f), f.used, "step %d", step)
		require.LessOrEqual(t, f.used, int64(60))
		if step%50 == 0 {
			g := f.CrashClone(uint64(step), 0.5)
			require.Equal(t, count(g), g.used)
			require.NoError(t, f.SyncDir("/d"))
		}
	}
}

func TestFlipBitInEveryFile(t *testing.T) {
	f := New("/d/e", "/g")
	require.NoError(t, vfs.WriteFileAtomic(f, "/d/e/a", []byte{1, 2}))
	h := put(t, f, "/g/b", "\x00")
	require.NoError(t, h.Preallocate(3*pageSize))
	require.Equal(t, []string{"/d/e/a", "/g/b"}, f.Files())
	require.NoError(t, f.FlipBit("/d/e/a", 9))
	require.Equal(t, "\x01\x00", content(t, f, "/d/e/a"))
	require.Equal(t, "\x01\x00", content(t, f.CrashClone(1, 0), "/d/e/a"))
	require.NoError(t, f.FlipBit("/g/b", 2*pageSize*8))
	require.Equal(t, byte(1), content(t, f, "/g/b")[2*pageSize])
	require.ErrorIs(t, f.FlipBit("/d/e/a", 16), syscall.EINVAL)
	require.ErrorIs(t, f.FlipBit("/none", 0), fs.ErrNotExist)
	require.NoError(t, h.Close())
}
