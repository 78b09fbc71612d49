package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/binderylog/bindery/entrylog"
	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/errorfs"
	"github.com/stretchr/testify/require"
)

// home returns the directory in which a ledger lives.
func (e *env) home(id int64) *dir {
	e.t.Helper()
	l, err := e.s.Ledger(id, true)
	require.NoError(e.t, err)
	defer l.Release()
	return l.d
}

// ledgersIn adds ledgers until every directory has some, and returns one of each.
func (e *env) ledgersIn() []int64 {
	e.t.Helper()
	found := make([]int64, e.dirs)
	left := e.dirs
	for id := int64(1); left > 0; id++ {
		require.Less(e.t, id, int64(1000), "new ledgers do not spread")
		e.mustAdd(id, 0, 500)
		if d := e.home(id); found[d.index] == 0 {
			found[d.index] = id
			left--
		}
	}
	return found
}

// settle waits until the index holds every sealed log.
func (e *env) settle() {
	e.t.Helper()
	require.Eventually(e.t, func() bool { return e.s.Stats().WaitingLogs == 0 }, 30*time.Second, time.Millisecond)
}

// roll ends the current logs, so that they can be collected.
func (e *env) roll() {
	e.t.Helper()
	e.checkpoint()
	for _, d := range e.s.dirs {
		d.flushMu.Lock()
		id := d.log.Durable().Log
		require.NoError(e.t, d.log.Roll())
		d.flushMu.Unlock()
		if id == 0 {
			continue
		}
		require.Eventually(e.t, func() bool {
			ok, err := d.ix.Ingested(id)
			return ok || err != nil || d.logGone(id)
		}, 30*time.Second, time.Millisecond, "log %s was not ingested", id)
	}
	e.settle()
}

func (d *dir) logGone(id entrylog.LogID) bool {
	_, err := d.log.Log(id)
	return errors.Is(err, entrylog.ErrNoLog)
}

func (e *env) deleteLedger(id int64) {
	e.t.Helper()
	g, ok, err := e.s.Generation(id)
	require.NoError(e.t, err)
	require.True(e.t, ok)
	n, err := e.s.Delete(e.t.Context(), []int64{id}, []uint32{g})
	require.NoError(e.t, err)
	require.Equal(e.t, 1, n)
}

// TestC09JournalTrimmedWhileAnotherDirectoryIsUnflushed: the usable mark is the minimum over the directories.
func TestC09JournalTrimmedWhileAnotherDirectoryIsUnflushed(t *testing.T) {
	e := newEnv(t, 3, 1, nil).open()
	ids := e.ledgersIn()
	e.checkpoint()
	for entry := int64(1); entry < 20; entry++ {
		for _, id := range ids {
			e.mustAdd(id, entry, 300)
		}
	}
	require.NoError(t, e.s.dirs[0].request().wait(t.Context())) // only the first directory flushes
	e.crash(9, 0)
	e.open()
	for entry := int64(1); entry < 20; entry++ {
		for _, id := range ids {
			e.requireEntry(id, entry, 300)
		}
	}
	e.close()
}

// TestC10ReplayInReadOnlyModeAdvancesTheMark: nothing is added after the crash, and still the second start replays
// nothing.
func TestC10ReplayInReadOnlyModeAdvancesTheMark(t *testing.T) {
	e := newEnv(t, 2, 2, nil).open()
	for entry := range int64(5) {
		e.mustAdd(1, entry, 100)
		e.mustAdd(2, entry, 100)
	}
	e.crash(1, 0)
	e.open()
	require.Eventually(t, func() bool {
		mark, end := e.s.Marks(), e.j.Mark()
		return mark[0] == end[0] && mark[1] == end[1]
	}, 30*time.Second, time.Millisecond, "Start begins a checkpoint that covers what was replayed")
	for range 2 {
		e.crash(2, 0)
		s, err := Open(e.fs, e.options())
		require.NoError(t, err)
		n, err := e.j.replay(s)
		require.NoError(t, err)
		require.Zero(t, n, "the journal is replayed again")
		require.NoError(t, s.Start(e.j))
		e.s = s
		for entry := range int64(5) {
			e.requireEntry(1, entry, 100)
			e.requireEntry(2, entry, 100)
		}
	}
	e.close()
}

// TestC14UnreadableEntryMustNotBecomeNoSuchEntry: a flipped bit, and a log deleted by hand, are errors and on the list of
// damaged entries, never absence.
func TestC14UnreadableEntryMustNotBecomeNoSuchEntry(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart=%v", restart), func(t *testing.T) {
			e := newEnv(t, 1, 1, nil).open()
			for entry := range int64(10) {
				e.mustAdd(1, entry, 200)
			}
			e.roll()
			d := e.s.dirs[0]
			loc, err := d.ix.Locate(1, 5)
			require.NoError(t, err)
			name := filepath.Join(d.cur, loc.Log.String()+".log")
			flipBit(t, e.mem, name, loc.Offset+entrylog.RecordHeaderSize+100)
			_, err = e.s.Read(1, 5, nil)
			require.True(t, corrupt.Is(err), "%v", err)
			e.requireEntry(1, 4, 200)
			e.requireEntry(1, 6, 200)
			list, dropped := e.s.Damaged()
			require.Equal(t, []Damaged{{1, 5}}, list)
			require.Zero(t, dropped)
			if restart {
				e.close()
			}
			require.NoError(t, e.mem.Remove(name))
			if restart {
				e.open()
				list, _ = e.s.Damaged()
				require.Equal(t, []Damaged{{1, 5}}, list, "the list is durable")
			} else {
				sh, ahead := e.s.cache.ahead.slot(1)
				require.Eventually(t, func() bool { // nobody reads ahead any more
					sh.mu.Lock()
					defer sh.mu.Unlock()
					return ahead.job == nil
				}, 30*time.Second, time.Millisecond)
				e.s.cache.main.Clear()
				require.NoError(t, d.log.Close()) // its open handles would still serve the file
				d.log, _, err = entrylog.Open(e.fs, d.cur, e.options().Log)
				require.NoError(t, err)
			}
			for entry := range int64(10) {
				_, err := e.s.Read(1, entry, nil)
				if !restart && err == nil {
					continue // still in the read cache
				}
				require.Error(t, err)
				require.NotErrorIs(t, err, ErrNoEntry)
				require.NotErrorIs(t, err, ErrNoLedger)
			}
			last, err := e.s.Ledger(1, false)
			require.NoError(t, err)
			n, err := last.Last()
			require.NoError(t, err)
			require.EqualValues(t, 9, n)
			last.Release()
			e.s.Repaired(Damaged{1, 5})
			list, _ = e.s.Damaged()
			require.NotContains(t, list, Damaged{1, 5})
			e.close()
		})
	}
}

func flipBit(t testing.TB, fsys vfs.FS, name string, off int64) {
	t.Helper()
	f, err := fsys.Open(name, vfs.Mode{Write: true})
	require.NoError(t, err)
	var b [1]byte
	_, err = f.ReadAt(b[:], off)
	require.NoError(t, err)
	b[0] ^= 0x10
	_, err = f.WriteAt(b[:], off)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.NoError(t, f.Close())
}

// overwrite replaces a part of a file.
func overwrite(t testing.TB, fsys vfs.FS, name string, off int64, data []byte) {
	t.Helper()
	f, err := fsys.Open(name, vfs.Mode{Write: true})
	require.NoError(t, err)
	_, err = f.WriteAt(data, off)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.NoError(t, f.Close())
}

// TestC15WrongLogHeaderMustNotDeleteALiveLog: whatever the end of a log says, a log with living ledgers is not removed.
func TestC15WrongLogHeaderMustNotDeleteALiveLog(t *testing.T) {
	for _, damage := range []string{"header", "footer", "both", "tail garbage"} {
		t.Run(damage, func(t *testing.T) {
			e := newEnv(t, 1, 1, nil).open()
			for entry := range int64(30) {
				e.mustAdd(1, entry, 300)
			}
			e.roll()
			d := e.s.dirs[0]
			loc, err := d.ix.Locate(1, 29)
			require.NoError(t, err)
			name := filepath.Join(d.cur, loc.Log.String()+".log")
			e.close()
			info, err := e.mem.Stat(name)
			require.NoError(t, err)
			if damage == "header" || damage == "both" {
				overwrite(t, e.mem, name, 0, make([]byte, 64))
			}
			if damage == "footer" || damage == "both" {
				overwrite(t, e.mem, name, info.Size-200, make([]byte, 200))
			}
			if damage == "tail garbage" {
				overwrite(t, e.mem, name, info.Size-4096, []byte(strings.Repeat("garbage!", 512)))
			}
			e.open()
			ids, err := e.s.CollectableLogs(0)
			require.NoError(t, err)
			for _, id := range ids {
				_, _, ledgers, damaged, err := e.s.LogUsage(0, id)
				require.NoError(t, err)
				if id == loc.Log {
					require.True(t, ledgers > 0 || damaged, "the log looks empty")
				}
				if ledgers == 0 {
					_ = e.s.RemoveLog(t.Context(), 0, id)
				}
			}
			require.False(t, e.s.dirs[0].logGone(loc.Log), "the live log was deleted")
			for entry := range int64(30) {
				e.requireEntry(1, entry, 300)
			}
			e.close()
		})
	}
}

// TestC18DeletingTheLogFileFails: the log stays pending, is tried again, and goes when that works.
func TestC18DeletingTheLogFileFails(t *testing.T) {
	e := newEnv(t, 1, 1, nil)
	broken := errorfs.NewSwitch(errorfs.OnPath("*.log", errorfs.From(errorfs.Remove, 1, syscall.EPERM)))
	e.fs = errorfs.Wrap(e.mem, broken)
	e.open()
	e.mustAdd(1, 0, 500)
	e.roll()
	e.mustAdd(2, 0, 500)
	e.deleteLedger(1)
	e.roll()
	broken.Set(true)
	ids, err := e.s.CollectableLogs(0)
	require.NoError(t, err)
	var victim entrylog.LogID
	for _, id := range ids {
		_, _, ledgers, _, err := e.s.LogUsage(0, id)
		require.NoError(t, err)
		if ledgers == 0 {
			victim = id
			require.Error(t, e.s.RemoveLog(t.Context(), 0, id))
			break
		}
	}
	require.NotZero(t, victim)
	name := filepath.Join(e.s.dirs[0].cur, victim.String()+".log")
	for range 3 {
		left, err := e.s.RetryRemovals(0)
		require.Error(t, err)
		require.Equal(t, 1, left)
		_, err = e.mem.Stat(name)
		require.NoError(t, err)
	}
	ids, err = e.s.CollectableLogs(0)
	require.NoError(t, err)
	require.NotContains(t, ids, victim, "a pending log is not collected twice")
	e.requireEntry(2, 0, 500)
	broken.Set(false)
	left, err := e.s.RetryRemovals(0)
	require.NoError(t, err)
	require.Zero(t, left)
	_, err = e.mem.Stat(name)
	require.ErrorIs(t, err, fs.ErrNotExist)
	e.close()
}

// TestC20WriteCacheFlushedOnce: many writers, a small cache, flushes by size, by timer and by request at once; nothing is
// lost, nothing is doubled, before and after a restart.
func TestC20WriteCacheFlushedOnce(t *testing.T) {
	e := newEnv(t, 2, 2, func(o *Options) {
		o.WriteCacheBytes = 4 * (64 << 10)
		o.FlushInterval = 3 * time.Millisecond
	}).open()
	const writers, entries = 64, 150
	var wg sync.WaitGroup
	var bad atomic.Int64
	stop := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = e.s.Checkpoint(t.Context())
			}
		}
	})
	var adders sync.WaitGroup
	for w := range int64(writers) {
		adders.Go(func() {
			for entry := range int64(entries) {
				if err := e.add(w, entry, testBody(w, entry, entry-1, 100+int(entry%300), 0), false); err != nil {
					bad.Add(1)
					return
				}
				if body, err := e.s.Read(w, entry/2, nil); err != nil || len(body) != max(100+int(entry/2%300), MinEntry) {
					bad.Add(1)
				}
			}
		})
	}
	adders.Wait()
	close(stop)
	wg.Wait()
	require.Zero(t, bad.Load())
	check := func() {
		for w := range int64(writers) {
			l, err := e.s.Ledger(w, false)
			require.NoError(t, err)
			ranges, err := l.Entries()
			require.NoError(t, err)
			require.Equal(t, []Range{{0, entries - 1}}, ranges)
			l.Release()
			for entry := range int64(entries) {
				e.requireEntry(w, entry, 100+int(entry%300))
			}
		}
		require.NoError(t, e.s.Check(t.Context(), func(err error) { t.Error(err) }))
	}
	check()
	var flushed uint64
	for _, d := range e.s.dirs {
		flushed += d.flushedEntries.Load()
	}
	e.checkpoint()
	e.crash(20, 0)
	e.open()
	check()
	e.close()
	require.LessOrEqual(t, flushed, uint64(writers*entries), "an entry was flushed twice")
}

// TestC21DamagedIndexIsRebuilt: the index is rebuilt from the logs, with fences, deletions and re-creations.
func TestC21DamagedIndexIsRebuilt(t *testing.T) {
	for _, damage := range []string{"first 4 KiB zeroed", "all zeroed", "removed", "truncated"} {
		t.Run(damage, func(t *testing.T) {
			e := newEnv(t, 1, 1, nil).open()
			for entry := range int64(40) {
				for id := int64(1); id < 6; id++ {
					e.mustAdd(id, entry, 200)
				}
			}
			require.NoError(t, e.fence(2))
			e.deleteLedger(3)
			e.deleteLedger(4)
			e.roll()
			require.NoError(t, e.add(4, 7, testBody(4, 7, 6, 200, 0), true)) // comes back
			e.roll()
			e.close()
			dir := filepath.Join(dirName(0), "current")
			names, err := e.mem.List(dir)
			require.NoError(t, err)
			for _, name := range names {
				if !strings.HasPrefix(name, "index.db") {
					continue
				}
				path := filepath.Join(dir, name)
				st, err := e.mem.Stat(path)
				require.NoError(t, err)
				switch damage {
				case "first 4 KiB zeroed":
					overwrite(t, e.mem, path, 0, make([]byte, min(st.Size, 4096)))
				case "all zeroed":
					overwrite(t, e.mem, path, 0, make([]byte, st.Size))
				case "removed":
					require.NoError(t, e.mem.Remove(path))
				case "truncated":
					f, err := e.mem.Open(path, vfs.Mode{Write: true})
					require.NoError(t, err)
					require.NoError(t, f.Truncate(st.Size/2))
					require.NoError(t, f.Close())
				}
			}
			e.open()
			require.Empty(t, e.s.Lost(), "the logs prove everything")
			for entry := range int64(40) {
				for _, id := range []int64{1, 2, 5} {
					e.requireEntry(id, entry, 200)
				}
			}
			require.ErrorContains(t, e.add(2, 40, testBody(2, 40, 39, 100, 0), false), "fenced")
			e.requireNo(3, 0, ErrNoLedger)
			e.requireEntry(4, 7, 200)
			e.requireNo(4, 6, ErrNoEntry)
			require.ErrorContains(t, e.add(4, 8, testBody(4, 8, 7, 100, 0), false), "fenced")
			require.NoError(t, e.add(1, 40, testBody(1, 40, 39, 200, 0), false))
			e.close()
		})
	}
}

// TestC22LastEntryOfADeletedLedger: no such ledger, at once, at every moment of the deletion and after many others.
func TestC22LastEntryOfADeletedLedger(t *testing.T) {
	e := newEnv(t, 1, 1, nil).open()
	for entry := range int64(10) {
		e.mustAdd(1, entry, 100)
	}
	last, err := e.s.Read(1, -1, nil)
	require.NoError(t, err)
	require.Equal(t, testBody(1, 9, 8, 100, 0), last)
	e.roll()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var wrong atomic.Value
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			body, err := e.s.Read(1, -1, nil)
			if err == nil && int64(binary.BigEndian.Uint64(body[8:])) != 9 || err != nil && !errors.Is(err, ErrNoLedger) {
				wrong.Store(fmt.Sprint(body, err))
			}
		}
	})
	e.deleteLedger(1)
	e.requireNo(1, -1, ErrNoLedger)
	close(stop)
	wg.Wait()
	require.Nil(t, wrong.Load())
	// A million others were deleted, too: every third id, so that none share a run.
	ids := make([]int64, 1_000_000)
	for i := range ids {
		ids[i] = 10 + 3*int64(i)
	}
	d := e.s.dirs[0]
	d.tombs.Store(&tombs{set: d.tombs.Load().set.add(ids), births: d.tombs.Load().births})
	reads := d.log.Stats().Reads
	start := time.Now()
	for i := range 1000 {
		e.requireNo(ids[i*997%len(ids)], -1, ErrNoLedger)
	}
	require.Less(t, time.Since(start)/1000, 50*time.Millisecond)
	require.Equal(t, reads, d.log.Stats().Reads, "a log was read")
	require.Less(t, d.tombs.Load().set.size, 3*len(ids), "a deleted ledger costs more than three bytes")
	e.requireNo(11, -1, ErrNoLedger)
	e.close()
}

// TestC25LedgerDeviceFullDuringFlush: what can not be flushed stays readable and in the journal, whose mark does not
// move; after a crash the same; once there is space, the flush completes by itself.
func TestC25LedgerDeviceFullDuringFlush(t *testing.T) {
	e := newEnv(t, 1, 1, nil).open()
	for entry := range int64(100) {
		e.mustAdd(1, entry, 500)
	}
	e.checkpoint()
	before := e.s.Marks()
	for entry := int64(100); entry < 300; entry++ {
		e.mustAdd(1, entry, 500)
	}
	full := capacityUsed(t, e)
	e.mem.SetCapacity(full) // not a byte more
	err := e.s.Checkpoint(t.Context())
	require.ErrorIs(t, err, entrylog.ErrNoSpace)
	require.NoError(t, e.s.dirs[0].failure(), "a full directory is not a failed one")
	require.Equal(t, before, e.s.Marks(), "the mark moved past what is not durable")
	report := e.s.CheckDisks()
	require.True(t, report.ReadOnly)
	require.Equal(t, DiskFull, report.Dirs[0].State)
	require.ErrorIs(t, e.add(1, 300, testBody(1, 300, 299, 100, 0), false), ErrDirFull)
	for entry := range int64(300) {
		e.requireEntry(1, entry, 500)
	}
	e.crash(25, 0)
	e.mem.SetCapacity(full)
	e.open() // starts, full as it is
	for entry := range int64(300) {
		e.requireEntry(1, entry, 500)
	}
	e.mem.SetCapacity(full + 64<<20)
	require.Eventually(t, func() bool {
		e.s.CheckDisks()
		return e.s.Marks()[0] == e.j.Mark()[0]
	}, 30*time.Second, 10*time.Millisecond, "the flush does not complete after space has returned")
	require.False(t, e.s.CheckDisks().ReadOnly)
	require.NoError(t, e.add(1, 300, testBody(1, 300, 299, 500, 0), false))
	e.close()
}

// TestC26DeletionCutOffByAFullDiskIsFinished: a deletion that could not become durable is finished by a later pass, without a
// restart.
func TestC26DeletionCutOffByAFullDiskIsFinished(t *testing.T) {
	e := newEnv(t, 1, 1, nil)
	full := fullSwitch(e, "ledgers0/current/*")
	e.open()
	e.mustAdd(1, 0, 100)
	e.mustAdd(2, 0, 100)
	e.roll()
	g, _, err := e.s.Generation(1)
	require.NoError(t, err)
	full.Set(true)
	n, err := e.s.Delete(t.Context(), []int64{1}, []uint32{g})
	require.ErrorIs(t, err, entrylog.ErrNoSpace)
	require.Zero(t, n)
	_, err = e.s.RetryRemovals(0)
	require.ErrorIs(t, err, entrylog.ErrNoSpace)
	full.Set(false)
	_, err = e.s.RetryRemovals(0)
	require.NoError(t, err)
	require.True(t, e.s.dirs[0].tombs.Load().set.contains(1))
	require.Empty(t, e.s.dirs[0].intents.Pending())
	e.requireNo(1, 0, ErrNoLedger)
	e.requireEntry(2, 0, 100)
	e.crash(26, 0)
	e.open()
	e.requireNo(1, 0, ErrNoLedger)
	e.close()
}

// capacityUsed returns the bytes that the file system holds.
func capacityUsed(t testing.TB, e *env) int64 {
	t.Helper()
	u, err := e.mem.Usage("/")
	require.NoError(t, err)
	return max(u.Total-u.Available, 1)
}

// TestC27OneOfSeveralDisksDead: a directory that fails is taken out alone; its ledgers are unknown, never denied; the
// others serve, flush and let go of the journal; the next start knows.
func TestC27OneOfSeveralDisksDead(t *testing.T) {
	e := newEnv(t, 4, 1, nil)
	dead := errorfs.NewSwitch(errorfs.OnPath("ledgers1/current/*", errorfs.From(errorfs.Write|errorfs.Sync, 1, syscall.EIO)))
	e.fs = errorfs.Wrap(e.mem, dead)
	var failedDir atomic.Value
	e.tune = func(o *Options) { o.OnDirFailed = func(dir string, err error) { failedDir.Store(dir) } }
	e.open()
	ids := e.ledgersIn()
	for entry := int64(1); entry < 10; entry++ {
		for _, id := range ids {
			e.mustAdd(id, entry, 300)
		}
	}
	require.NoError(t, e.fence(ids[1]))
	dead.Set(true)
	if err := e.s.Checkpoint(t.Context()); err != nil { // unless a flush by itself met the dead disk before
		require.ErrorIs(t, err, ErrDirFailed)
	}
	require.ErrorIs(t, e.s.dirs[1].failure(), ErrDirFailed)
	require.Equal(t, dirName(1), failedDir.Load())
	report := e.s.CheckDisks()
	require.True(t, report.ReadOnly)
	require.Equal(t, DiskFailed, report.Dirs[1].State)
	require.Equal(t, DiskOK, report.Dirs[0].State)
	for i, id := range ids {
		if i == 1 {
			e.requireNo(id, 1, ErrUnknown)
			e.requireNo(id, 99, ErrUnknown)
			require.ErrorContains(t, e.add(id, 50, testBody(id, 50, 49, 100, 0), false), "limbo")
			continue
		}
		e.requireEntry(id, 1, 300)
		e.requireNo(id, 99, ErrNoEntry)
		e.mustAdd(id, 10, 300)
	}
	e.requireNo(123456, 0, ErrUnknown) // it may have lived in the failed directory
	require.NoError(t, e.add(ids[1], 3, testBody(ids[1], 3, 2, 300, 0), true), "repair writes to another directory")
	e.requireEntry(ids[1], 3, 300)
	e.requireNo(ids[1], 4, ErrUnknown)
	e.checkpoint()
	require.Eventually(t, func() bool { return e.s.Marks()[0] == e.j.Mark()[0] }, 30*time.Second, time.Millisecond,
		"a failed directory holds the journal back for ever")
	e.crash(27, 0)

	// The disk works again after a restart, but the journal went on without it.
	e.open()
	require.NotEmpty(t, e.s.Lost())
	e.requireNo(123456, 0, ErrUnknown)
	require.NoError(t, e.s.MarkLimbo(t.Context(), ids[1:2]))
	require.NoError(t, e.s.AcceptLoss(t.Context()))
	require.Empty(t, e.s.Lost())
	e.requireNo(123456, 0, ErrNoLedger)
	e.requireNo(ids[1], 99, ErrUnknown)
	e.requireEntry(ids[1], 3, 300)
	require.ErrorContains(t, e.add(ids[1], 50, testBody(ids[1], 50, 49, 100, 0), false), "limbo")
	e.close()
	e.open()
	require.Empty(t, e.s.Lost())
	e.requireNo(ids[1], 99, ErrUnknown)
	e.requireEntry(ids[1], 3, 300) // the repaired copy, in the other directory
	e.deleteLedger(ids[1])         // goes from both
	e.requireNo(ids[1], 3, ErrNoLedger)
	e.crash(28, 0)
	e.open()
	e.requireNo(ids[1], 3, ErrNoLedger)
	require.NoError(t, e.add(ids[1], 4, testBody(ids[1], 4, 3, 300, 0), true)) // comes back, in either
	e.requireEntry(ids[1], 4, 300)
	e.requireNo(ids[1], 3, ErrNoEntry)
	e.close()
	e.open()
	e.requireEntry(ids[1], 4, 300)
	e.requireNo(ids[1], 3, ErrNoEntry)
	e.close()
}

// TestC27FullDirectoryGetsNoNewLedgers: new ledgers avoid a full directory, which is not a failed one.
func TestC27FullDirectoryGetsNoNewLedgers(t *testing.T) {
	e := newEnv(t, 3, 1, nil).open()
	e.s.dirs[1].setDiskState(DiskFull)
	for id := range int64(60) {
		e.mustAdd(id, 0, 200)
		require.NotEqual(t, 1, e.home(id).index)
	}
	e.close()
}

// TestC32OneHandleForOneLedger: whoever touches the ledger first, nothing is accepted after the fence was answered.
func TestC32OneHandleForOneLedger(t *testing.T) {
	e := newEnv(t, 1, 1, nil).open()
	for entry := range int64(5) {
		e.mustAdd(1, entry, 100)
	}
	e.close()
	for round := range 20 {
		e.open()
		var fenced atomic.Bool
		var late atomic.Int64
		var handles sync.Map
		var wg sync.WaitGroup
		start := make(chan struct{})
		for g := range int64(64) {
			wg.Go(func() {
				<-start
				l, err := e.s.Ledger(int64(round+1), true)
				if err != nil {
					late.Add(1 << 20)
					return
				}
				handles.Store(l, true)
				defer l.Release()
				if g == 40 {
					_ = e.fence(int64(round + 1))
					fenced.Store(true)
					return
				}
				was := fenced.Load()
				if err := e.add(int64(round+1), 100+g, testBody(int64(round+1), 100+g, 0, 100, 0), false); err == nil && was {
					late.Add(1)
				}
			})
		}
		close(start)
		wg.Wait()
		n := 0
		handles.Range(func(_, _ any) bool { n++; return true })
		require.Equal(t, 1, n, "%d handles of one ledger", n)
		require.Zero(t, late.Load(), "an add was accepted after the fence")
		require.ErrorContains(t, e.add(int64(round+1), 500, testBody(int64(round+1), 500, 0, 100, 0), false), "fenced")
		e.close()
	}
}

// TestC33FenceForgottenByACrash: a fence that was journaled holds after a crash, flushed or not, for known and unknown
// ledgers.
func TestC33FenceForgottenByACrash(t *testing.T) {
	for _, flush := range []bool{false, true} {
		e := newEnv(t, 2, 1, nil).open()
		e.mustAdd(1, 0, 100)
		require.NoError(t, e.fence(1))
		require.NoError(t, e.fence(2)) // never written
		if flush {
			e.checkpoint()
		}
		for seed := range uint64(3) {
			e.crash(seed, 0)
			e.open()
			require.ErrorContains(t, e.add(1, 1, testBody(1, 1, 0, 100, 0), false), "fenced")
			require.ErrorContains(t, e.add(2, 0, testBody(2, 0, -1, 100, 0), false), "fenced")
			e.requireNo(2, 0, ErrNoEntry)
			e.requireEntry(1, 0, 100)
		}
		e.close()
	}
}

// TestC33FenceInTheJournalBeatsWorkBeforeReplay: what the storage writes by itself before the journal is replayed (here the
// state of a ledger, once more, since its log is about to go) does not make a journaled fence look old.
func TestC33FenceInTheJournalBeatsWorkBeforeReplay(t *testing.T) {
	e := newEnv(t, 1, 1, nil).open()
	e.mustAdd(1, 0, 100)
	e.checkpoint()
	require.NoError(t, e.fence(1))
	e.crash(1, 0)
	s, err := Open(e.fs, e.options())
	require.NoError(t, err)
	e.s = s
	for range 3 {
		l, err := s.Ledger(1, false)
		require.NoError(t, err)
		l.Lock()
		l.StateChanged()
		l.Unlock()
		l.Release()
		e.checkpoint()
	}
	_, err = e.j.replay(s)
	require.NoError(t, err)
	require.NoError(t, s.Start(e.j))
	require.ErrorContains(t, e.add(1, 1, testBody(1, 1, 0, 100, 0), false), "fenced")
	e.checkpoint()
	e.crash(2, 0)
	e.open()
	require.ErrorContains(t, e.add(1, 1, testBody(1, 1, 0, 100, 0), false), "fenced")
	e.close()
}

// TestC50IdsBeyond31And32Bits: every 63-bit ledger and entry id works everywhere.
func TestC50IdsBeyond31And32Bits(t *testing.T) {
	e := newEnv(t, 1, 1, nil).open()
	ids := []int64{0, 1<<31 - 1, 1 << 31, 1<<32 + 5, 1<<63 - 1}
	for _, id := range ids {
		for _, entry := range ids {
			require.NoError(t, e.add(id, entry, testBody(id, entry, entry-1, 100, 0), false))
		}
	}
	check := func() {
		t.Helper()
		for _, id := range ids {
			for _, entry := range ids {
				e.requireEntry(id, entry, 100)
			}
			last, err := e.s.Read(id, -1, nil)
			require.NoError(t, err)
			require.Equal(t, testBody(id, 1<<63-1, 1<<63-2, 100, 0), last)
			l, err := e.s.Ledger(id, false)
			require.NoError(t, err)
			ranges, err := l.Entries()
			require.NoError(t, err)
			require.Equal(t, []Range{{0, 0}, {1<<31 - 1, 1 << 31}, {1<<32 + 5, 1<<32 + 5}, {1<<63 - 1, 1<<63 - 1}}, ranges)
			l.Release()
		}
		got, err := e.s.Ledgers(-1, 100)
		require.NoError(t, err)
		require.Equal(t, ids, got)
	}
	check()
	e.checkpoint()
	check()
	e.roll()
	check()
	e.crash(50, 0)
	e.open()
	check()
	logs, err := e.s.CollectableLogs(0)
	require.NoError(t, err)
	_, _, err = e.s.Compact(t.Context(), 0, logs, noLimit)
	require.NoError(t, err)
	check()
	e.deleteLedger(1<<63 - 1)
	e.requireNo(1<<63-1, 0, ErrNoLedger)
	e.close()
	e.open()
	e.requireNo(1<<63-1, 0, ErrNoLedger)
	e.requireEntry(1<<32+5, 1<<63-1, 100)
	e.close()
}

// TestC53ZeroLengthEntry: an empty payload is an entry like any other, first, in the middle and last.
func TestC53ZeroLengthEntry(t *testing.T) {
	e := newEnv(t, 1, 1, nil).open()
	sizes := []int{MinEntry, 100, MinEntry, 200, MinEntry}
	for entry, n := range sizes {
		e.mustAdd(1, int64(entry), n)
	}
	check := func() {
		t.Helper()
		for entry, n := range sizes {
			e.requireEntry(1, int64(entry), n)
		}
		last, err := e.s.Read(1, -1, nil)
		require.NoError(t, err)
		require.Len(t, last, MinEntry)
	}
	check()
	e.crash(53, 0)
	e.open()
	check()
	e.roll()
	check()
	logs, err := e.s.CollectableLogs(0)
	require.NoError(t, err)
	copied, skipped, err := e.s.Compact(t.Context(), 0, logs, noLimit)
	require.NoError(t, err)
	require.Empty(t, skipped)
	require.Positive(t, copied)
	check()
	e.close()
}

// TestSetDiskLimits: limits that change hold from the next look on.
func TestSetDiskLimits(t *testing.T) {
	e := newEnv(t, 1, 1, nil).open()
	e.mustAdd(1, 0, 500)
	e.checkpoint()
	e.mem.SetCapacity(capacityUsed(t, e) * 2)
	require.Equal(t, DiskOK, e.s.CheckDisks().Dirs[0].State)
	require.Error(t, e.s.SetDiskLimits(DiskLimits{FullAt: 2}))
	require.NoError(t, e.s.SetDiskLimits(DiskLimits{FullAt: 0.3, WarnAt: 0.2, ResumeBelow: 0.25}))
	require.Equal(t, DiskFull, e.s.CheckDisks().Dirs[0].State)
	require.NoError(t, e.s.SetDiskLimits(DiskLimits{}))
	require.Equal(t, DiskOK, e.s.CheckDisks().Dirs[0].State)
	e.close()
}
