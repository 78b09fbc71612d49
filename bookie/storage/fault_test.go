package storage

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/binderylog/bindery/entrylog"
	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/errorfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
	"github.com/stretchr/testify/require"
)

// promise is what a script was told; everything else may or may not have happened.
type promise struct {
	entries map[[2]int64]int // size of each acknowledged entry
	fenced  map[int64]bool   // acknowledged fences
	deleted map[int64]bool   // acknowledged deletions
	doubt   map[int64]bool   // ledgers whose deletion was begun and not acknowledged
}

// script does a bit of everything and stops at the first error, as a dead process would. Every step that is acknowledged
// is in the promise.
func script(e *env, p *promise) {
	add := func(id, from, to int64, n int) bool {
		for entry := from; entry < to; entry++ {
			if e.add(id, entry, testBody(id, entry, entry-1, n, 0), false) != nil {
				return false
			}
			p.entries[[2]int64{id, entry}] = n
		}
		return true
	}
	fence := func(id int64) bool {
		if e.fence(id) != nil {
			return false
		}
		p.fenced[id] = true
		return true
	}
	checkpoint := func() bool { return e.s.Checkpoint(e.t.Context()) == nil }
	remove := func(id int64) bool {
		g, ok, err := e.s.Generation(id)
		if err != nil || !ok {
			return false
		}
		p.doubt[id] = true
		n, err := e.s.Delete(e.t.Context(), []int64{id}, []uint32{g})
		if err != nil || n != 1 {
			return false
		}
		delete(p.doubt, id)
		p.deleted[id] = true
		return true
	}
	collect := func() bool {
		for dir := range e.s.Dirs() {
			ids, err := e.s.CollectableLogs(dir)
			if err != nil {
				return false
			}
			var group []entrylog.LogID
			for _, id := range ids {
				_, _, ledgers, damaged, err := e.s.LogUsage(dir, id)
				switch {
				case err != nil || damaged:
					return false
				case ledgers == 0:
					if e.s.RemoveLog(e.t.Context(), dir, id) != nil {
						return false
					}
				default:
					group = append(group, id)
				}
			}
			if len(group) > 0 {
				if _, skipped, err := e.s.Compact(e.t.Context(), dir, group, noLimit); err != nil || len(skipped) > 0 {
					return false
				}
			}
		}
		return true
	}
	rollAll := func() bool {
		if !checkpoint() {
			return false
		}
		for _, d := range e.s.dirs {
			d.flushMu.Lock()
			id := d.log.Durable().Log
			err := d.log.Roll()
			d.flushMu.Unlock()
			if err != nil || d.failed.Load() {
				return false
			}
			for id != 0 && !d.logGone(id) { // the index keeper goes on in the background
				if ok, err := d.ix.Ingested(id); ok || err != nil || d.failed.Load() || d.ingestFailures.Load() > 0 {
					break
				}
			}
		}
		return true
	}
	_ = add(1, 0, 6, 300) && fence(2) && checkpoint() && add(3, 0, 4, 900) && add(1, 6, 8, 300) && rollAll() &&
		remove(3) && add(4, 0, 3, 200) && rollAll() && collect() && fence(4) && add(1, 8, 10, 100) && checkpoint()
}

func newPromise() *promise {
	return &promise{map[[2]int64]int{}, map[int64]bool{}, map[int64]bool{}, map[int64]bool{}}
}

// verify compares a storage with a promise. With doubtful set, an error that is not a denial is fine for any entry.
func (p *promise) verify(t testing.TB, s *Storage, where string, doubtful bool) {
	t.Helper()
	for k, n := range p.entries {
		id, entry := k[0], k[1]
		got, err := s.Read(id, entry, nil)
		switch {
		case p.deleted[id] && doubtful:
			require.Error(t, err, "%s: deleted ledger %d entry %d", where, id, entry)
		case p.deleted[id]:
			require.ErrorIs(t, err, ErrNoLedger, "%s: deleted ledger %d entry %d", where, id, entry)
		case p.doubt[id] && errors.Is(err, ErrNoLedger):
		case err != nil && doubtful && !errors.Is(err, ErrNoEntry) && !errors.Is(err, ErrNoLedger):
		default:
			require.NoError(t, err, "%s: ledger %d entry %d", where, id, entry)
			require.Equal(t, testBody(id, entry, entry-1, n, 0), got, "%s: ledger %d entry %d", where, id, entry)
		}
	}
	for id := range p.fenced {
		l, err := s.Ledger(id, true)
		if err != nil && doubtful {
			continue
		}
		require.NoError(t, err, where)
		l.Lock()
		fenced := l.Replica.Fenced
		l.Unlock()
		l.Release()
		require.True(t, fenced, "%s: the fence of ledger %d is gone", where, id)
	}
}

func faultEnv(t testing.TB, fsys vfs.FS, mem *memfs.FS) *env {
	e := &env{t: t, fs: fsys, mem: mem, dirs: 1, j: newTestJournal(1), tune: func(o *Options) {
		o.WriteCacheBytes = 2 * (64 << 10)
		o.ReadCacheBytes = 1 << 20
		o.Log.LogSize = 1 << 20
		o.ReserveBytes = 64 << 10
	}}
	return e
}

func freshDisk(t testing.TB) *memfs.FS {
	mem := memfs.New()
	require.NoError(t, vfs.MkdirAllSync(mem, dirName(0)))
	return mem
}

// TestPowerLossAtEveryChange cuts the power in the middle of every change of the file system, and again during recovery:
// what was acknowledged is there afterwards, and can be written on.
func TestPowerLossAtEveryChange(t *testing.T) {
	var p *promise
	var j *testJournal
	memfs.Sweep(t, func() *memfs.FS { return freshDisk(t) }, func(mem *memfs.FS) {
		p = newPromise()
		e := faultEnv(t, mem, mem)
		j = e.j
		if e.tryOpen() != nil {
			return
		}
		script(e, p)
		_ = e.s.Close()
	}, func(mem *memfs.FS, where string) {
		e := faultEnv(t, mem, mem)
		e.j = j.clone()
		require.NoError(t, e.tryOpen(), where)
		require.Empty(t, e.s.Lost(), where)
		p.verify(t, e.s, where, false)
		require.NoError(t, e.s.Check(t.Context(), func(err error) { t.Errorf("%s: %v", where, err) }), where)
		require.NoError(t, e.add(77, 0, testBody(77, 0, -1, 100, 0), false), where)
		require.NoError(t, e.s.Close(), where)
		require.NoError(t, e.tryOpen(), where)
		p.verify(t, e.s, where+", second start", false)
		e.requireEntry(77, 0, 100)
		require.NoError(t, e.s.Close(), where)
	})
}

func (j *testJournal) clone() *testJournal {
	j.mu.Lock()
	defer j.mu.Unlock()
	c := &testJournal{records: make([][]Record, len(j.records)), next: append([]uint64(nil), j.next...), trimmed: append([]uint64(nil), j.trimmed...)}
	for i := range j.records {
		c.records[i] = append([]Record(nil), j.records[i]...)
	}
	return c
}

// TestEveryOperationFails makes the nth operation of each kind fail, once: the script gets an error or not; what was
// acknowledged is read back, or answered with an error that is no denial, by the same process and, in full, by the next.
func TestEveryOperationFails(t *testing.T) {
	for _, c := range []struct {
		name  string
		kinds errorfs.Kind
		err   error
	}{
		{"write EIO", errorfs.Write, syscall.EIO},
		{"sync EIO", errorfs.Sync, syscall.EIO},
		{"read EIO", errorfs.Read, syscall.EIO},
		{"open EIO", errorfs.Open, syscall.EIO},
		{"write ENOSPC", errorfs.Write, syscall.ENOSPC},
		{"rename, remove, truncate, preallocate EIO", errorfs.Rename | errorfs.Remove | errorfs.Truncate | errorfs.Preallocate, syscall.EIO},
		{"preallocate ENOSPC", errorfs.Preallocate, syscall.ENOSPC},
	} {
		t.Run(c.name, func(t *testing.T) {
			var mem *memfs.FS
			errorfs.Sweep(t, func() vfs.FS { mem = freshDisk(t); return mem }, func(n int64) errorfs.Injector {
				return errorfs.Nth(c.kinds, n, c.err)
			}, func(fsys *errorfs.FS, n int64) {
				where := fmt.Sprintf("%s, operation %d (%s)", c.name, n, fsys.Last())
				p := newPromise()
				e := faultEnv(t, fsys, mem)
				if e.tryOpen() == nil {
					script(e, p)
					p.verify(t, e.s, where, true)
					_ = e.s.Close()
				}
				where = fmt.Sprintf("%s, operation %d (%s)", c.name, n, fsys.Last())
				// What a failed sync left is not trusted: power is lost as well.
				clone := mem.CrashClone(uint64(n), 0.5)
				next := faultEnv(t, clone, clone)
				next.j = e.j.clone()
				require.NoError(t, next.tryOpen(), where)
				p.verify(t, next.s, where+", next start", len(next.s.Lost()) > 0)
				require.NoError(t, next.s.Close(), where)
			})
		})
	}
}

// TestBitFlipsInEveryFile flips a bit in every region of every file, one at a time, and starts on the result: the outcome
// is right data, an error that is no denial, or a start that is refused with a reason.
func TestBitFlipsInEveryFile(t *testing.T) {
	mem := freshDisk(t)
	e := faultEnv(t, mem, mem)
	require.NoError(t, e.tryOpen())
	p := newPromise()
	script(e, p)
	require.Len(t, p.deleted, 1, "the script did not run to its end")
	require.NoError(t, e.add(9, 0, testBody(9, 0, -1, 100, 0), false))
	require.NoError(t, e.s.Close())
	files := listFiles(t, mem, dirName(0))
	require.NotEmpty(t, files)
	flips, refused := 0, 0
	for name, size := range files {
		if strings.HasSuffix(name, "entrylog.reserve") {
			continue
		}
		step := max(size/40, 1)
		for off := int64(0); off < size; off += step {
			clone := mem.CrashClone(1, 1)
			at := min(off+int64(flips*31)%step, size-1)
			flipBit(t, clone, name, at)
			flips++
			where := fmt.Sprintf("bit flip in %s at %d of %d", name, at, size)
			f := faultEnv(t, clone, clone)
			f.j = e.j.clone()
			if err := f.tryOpen(); err != nil {
				refused++
				require.True(t, corrupt.Is(err) || strings.Contains(err.Error(), "version") || strings.Contains(err.Error(), "newer"), "%s: refused with %v", where, err)
				continue
			}
			lost := len(f.s.Lost()) > 0
			pp := *p
			if lost {
				pp.deleted = map[int64]bool{} // which ledgers were deleted may be what was lost
				pp.doubt = p.deleted
			}
			pp.verify(t, f.s, where, true)
			_ = f.s.Close()
			if t.Failed() {
				return
			}
		}
	}
	t.Logf("%d flips in %d files, %d starts refused", flips, len(files), refused)
}

func listFiles(t testing.TB, fsys vfs.FS, dir string) map[string]int64 {
	t.Helper()
	files := map[string]int64{}
	var walk func(string)
	walk = func(dir string) {
		names, err := fsys.List(dir)
		require.NoError(t, err)
		for _, name := range names {
			path := filepath.Join(dir, name)
			st, err := fsys.Stat(path)
			require.NoError(t, err)
			if st.Dir {
				walk(path)
			} else if st.Size > 0 {
				files[path] = st.Size
			}
		}
	}
	walk(dir)
	return files
}
