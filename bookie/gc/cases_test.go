package gc

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/binderylog/bindery/bookie/storage"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/errorfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
	"github.com/stretchr/testify/require"
)

// TestC15OneCorruptLogDoesNotStopTheOthers: the damaged log is kept and counted, the others are collected.
func TestC15OneCorruptLogDoesNotStopTheOthers(t *testing.T) {
	b := newBed(t, 1).open(1, nil)
	for i := range int64(4) {
		b.fill(ids(10*i, 10*i+10), 5, 600)
		b.seal()
	}
	logs, err := b.s.CollectableLogs(0)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(logs), 4)
	b.close()
	// The last log loses its header, its footer and some records.
	name := filepath.Join(dirName(0), "current", logs[len(logs)-1].String()+".log")
	f, err := b.mem.Open(name, vfs.Mode{Write: true})
	require.NoError(t, err)
	size, err := f.Size()
	require.NoError(t, err)
	for off := int64(0); off < size; off += 4096 {
		_, err = f.WriteAt(make([]byte, 512), off)
		require.NoError(t, err)
	}
	_, err = f.WriteAt(make([]byte, 300), size-300)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.NoError(t, f.Close())
	b.open(1, nil)
	for i := range int64(4) {
		b.meta.remove(ids(10*i+1, 10*i+10)...) // one of ten lives in each
	}
	_ = b.trigger(Major)
	s := b.c.Status()
	require.Positive(t, s.DamagedLogs)
	require.NotZero(t, s.LogsCompacted)
	for _, i := range []int64{0, 1, 2} {
		b.requireAll([]int64{10 * i}, 5, 600)
	}
	_, err = b.mem.Stat(name)
	require.NoError(t, err, "the damaged log was deleted")
	for entry := range int64(5) {
		if got, err := b.s.Read(30, entry, nil); err == nil {
			require.Equal(t, body(30, entry, 600), got)
		} else {
			require.NotErrorIs(t, err, storage.ErrNoEntry)
			require.NotErrorIs(t, err, storage.ErrNoLedger)
		}
	}
	b.close()
}

// TestC17CrashPointsOfCompaction cuts the power in the middle of every change that deletion and compaction make: every
// living entry is readable at every point, and the next pass leaves no double space.
func TestC17CrashPointsOfCompaction(t *testing.T) {
	base := newBed(t, 1).open(1, nil)
	base.fill(ids(0, 10), 6, 500)
	base.seal()
	base.fill(ids(10, 20), 6, 500)
	base.seal()
	base.close()
	alive := []int64{3, 14}
	var meta *fakeMetadata
	memfs.Sweep(t, func() *memfs.FS { return base.mem.CrashClone(1, 1) }, func(mem *memfs.FS) {
		b := &bed{t: t, fs: mem, mem: mem, meta: newFakeMetadata()}
		meta = b.meta
		for _, id := range alive {
			meta.set(id, Record{Exists: true, Here: true})
		}
		s, err := storage.Open(mem, b.storageOptions(1))
		if err != nil {
			return
		}
		b.s = s
		if s.Start(b) == nil {
			c, err := New(meta, s, s, Options{Interval: time.Hour, Grace: time.Nanosecond, Rate: 1 << 30})
			require.NoError(t, err)
			c.Start()
			_ = c.Trigger(t.Context(), Major)
			c.Close()
		}
		_ = s.Close()
	}, func(mem *memfs.FS, where string) {
		b := &bed{t: t, fs: mem, mem: mem, meta: meta}
		b.open(1, nil)
		require.Empty(t, b.s.Lost(), where)
		for _, id := range alive {
			for entry := range int64(6) {
				got, err := b.s.Read(id, entry, nil)
				require.NoError(t, err, "%s: ledger %d entry %d", where, id, entry)
				require.Equal(t, body(id, entry, 500), got, where)
			}
		}
		require.NoError(t, b.trigger(Major), where)
		require.Eventually(t, func() bool { return b.s.Stats().WaitingLogs == 0 }, 30*time.Second, time.Millisecond)
		require.NoError(t, b.trigger(Major), where)
		b.requireAll(alive, 6, 500)
		b.requireGone(1, 11)
		total := int64(0)
		for dir := range b.s.Dirs() {
			list, err := b.s.CollectableLogs(dir)
			require.NoError(t, err)
			for _, id := range list {
				bytes, _, _, _, err := b.s.LogUsage(dir, id)
				require.NoError(t, err)
				total += bytes
			}
		}
		require.LessOrEqual(t, total, int64(2*6*520), "%s: entries take double space", where)
		b.close()
	})
}

// TestC18UnlinkFailsInThreePasses: the file stays pending, is counted, and goes when it can.
func TestC18UnlinkFailsInThreePasses(t *testing.T) {
	b := newBed(t, 1)
	broken := errorfs.NewSwitch(errorfs.OnPath("*.log", errorfs.From(errorfs.Remove, 1, syscall.EPERM)))
	b.fs = errorfs.Wrap(b.mem, broken)
	b.open(1, nil)
	b.fill(ids(1, 5), 10, 500)
	b.seal()
	b.meta.remove(ids(1, 5)...)
	broken.Set(true)
	name := filepath.Join(dirName(0), "current", "1.log")
	for range 3 {
		_ = b.trigger(Pass)
		_, err := b.mem.Stat(name)
		require.NoError(t, err)
	}
	require.NotZero(t, b.c.Status().PendingRemovals)
	broken.Set(false)
	require.NoError(t, b.trigger(Pass))
	require.Zero(t, b.c.Status().PendingRemovals)
	_, err := b.mem.Stat(name)
	require.Error(t, err)
	b.close()
}

// TestC26FullDiskFreesItself: the disk is full of garbage to the last byte; the collector brings it below the low mark
// unaided, and nothing that lives is lost.
func TestC26FullDiskFreesItself(t *testing.T) {
	b := newBed(t, 1).open(1, nil)
	var alive []int64
	for i := range int64(30) {
		b.fill(ids(10*i, 10*i+10), 4, 500)
		b.seal()
		alive = append(alive, 10*i)
	}
	for i := range int64(30) {
		b.meta.remove(ids(10*i+1, 10*i+10)...)
	}
	require.NoError(t, b.s.Checkpoint(t.Context()))
	b.s.CheckDisks() // lays down the reserve
	b.mem.SetCapacity(b.used() + 1)
	report := b.s.CheckDisks()
	require.True(t, report.ReadOnly)
	require.Greater(t, report.Dirs[0].Used, 0.95)
	for range 6 {
		_ = b.trigger(Pass) // not asked to compact: a tight disk is reason enough
		if report = b.s.CheckDisks(); !report.ReadOnly {
			break
		}
	}
	require.False(t, report.ReadOnly, "usage %v after %+v", report.Dirs[0].Used, b.c.Status())
	require.Less(t, report.Dirs[0].Used, 0.92)
	b.requireAll(alive, 4, 500)
	b.requireGone(1, 11, 21)
	b.close()
}

// TestC27CollectionGoesOnBesideADeadDisk: a failed directory stops nothing in the others.
func TestC27CollectionGoesOnBesideADeadDisk(t *testing.T) {
	b := newBed(t, 3)
	dead := errorfs.NewSwitch(errorfs.OnPath("ledgers1/current/*", errorfs.From(errorfs.Write|errorfs.Sync, 1, syscall.EIO)))
	b.fs = errorfs.Wrap(b.mem, dead)
	b.open(3, nil)
	b.fill(ids(0, 60), 10, 500)
	b.seal()
	dead.Set(true)
	for id := range int64(60) {
		_ = b.put(id, 10, 500, false)
	}
	_ = b.s.Checkpoint(t.Context())
	_, level := b.s.DirLevel(1)
	require.Equal(t, levelFailed, level)
	b.meta.remove(ids(0, 60)...)
	_ = b.trigger(Major)
	s := b.c.Status()
	require.Greater(t, s.LedgersDeleted, uint64(20))
	require.Positive(t, s.LogsRemoved)
	unknown := 0
	for id := range int64(60) {
		_, err := b.s.Read(id, 0, nil)
		require.Error(t, err)
		if !strings.Contains(err.Error(), storage.ErrNoLedger.Error()) {
			require.ErrorIs(t, err, storage.ErrUnknown)
			unknown++
		}
	}
	require.Positive(t, unknown)
	b.c.Close()
	_ = b.s.Close()
}
