package journal

import (
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/errorfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
)

// TestForceOnAnIdleRelaxedJournal: a force that comes when no record is open takes no sequence number. Otherwise the empty
// group that covers the last one would get the number that the next record's group thinks is its own.
func TestForceOnAnIdleRelaxedJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := smallOptions()
		o.IO, o.Relaxed = IOBuffered, true
		mem := memfs.New()
		j := mustStart(t, mem, "/j", o)
		defer j.Close() //nolint:errcheck // again, if a check failed
		h := newHistory()
		for range 3 {
			require.NoError(t, h.appendBatch(j, 2, 100))
			l := newListener()
			_, err := j.Append(0, 0, nil, l, Token{})
			require.NoError(t, err)
			j.Commit()
			l.wait(1)
			require.NoError(t, l.errs[0])
			time.Sleep(3 * syncEvery) // by the journal's own clock: the cover is written, and synced
		}
		mark := j.Mark()
		p := appendOne(t, j, h.next, 10, nil)
		require.GreaterOrEqual(t, p, mark, "a mark hides a later record")
		require.NoError(t, j.Close())
		got, r := replayAll(t, mem, "/j", o, 0)
		require.Equal(t, numbers(0, h.next+1), got)
		require.Nil(t, r.Cut)
		require.True(t, r.Whole)
	})
}

// lateSync is a file system whose first Sync, once armed, has failed inside and keeps the caller waiting before it says so,
// as a thread that is not scheduled. The kernel reports a failed write-back once: later syncs succeed. The first write returns
// in between.
type lateSync struct {
	vfs.FS
	armed  chan struct{} // closed: armed
	wrote  atomic.Bool   // the first write has come
	failed chan struct{} // closed once the failure has happened
	report chan struct{} // the caller hears of it when this is closed
}

func (f *lateSync) on() bool {
	select {
	case <-f.armed:
		return true
	default:
		return false
	}
}

func (f *lateSync) Open(name string, m vfs.Mode) (vfs.File, error) {
	file, err := f.FS.Open(name, m)
	return &lateSyncFile{file, f}, err
}

type lateSyncFile struct {
	vfs.File
	fs *lateSync
}

func (f *lateSyncFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(p, off)
	if f.fs.on() && f.fs.wrote.CompareAndSwap(false, true) {
		<-f.fs.failed
	}
	return n, err
}

func (f *lateSyncFile) Sync() error {
	if !f.fs.on() {
		return f.File.Sync()
	}
	select {
	case <-f.fs.failed:
		return nil // what it should have written is gone, and it does not know
	default:
	}
	close(f.fs.failed)
	<-f.fs.report
	return syscall.EIO
}

// TestNoSyncFollowsAFailedOne: the first error of a sync is what every later one returns.
func TestNoSyncFollowsAFailedOne(t *testing.T) {
	j := mustOpen(t, memfs.New(), "/j", smallOptions())
	mem := memfs.New("/d")
	fs := errorfs.Wrap(mem, errorfs.Nth(errorfs.Sync, 2, syscall.EIO))
	f, err := fs.Open("/d/a", vfs.Mode{Write: true, Create: true})
	require.NoError(t, err)
	require.NoError(t, j.syncGroup(f))
	for range 3 {
		require.ErrorIs(t, j.syncGroup(f), syscall.EIO)
	}
	require.EqualValues(t, 2, fs.Count(errorfs.Sync))
	require.NoError(t, f.Close())
	require.NoError(t, j.Close())
}

// TestC06TheOtherSyncDoesNotHideTheError: with two groups in flight in one file, a failed write-back is reported to one of
// the two syncs only. The other one's group must not be acknowledged, however late the report is.
func TestC06TheOtherSyncDoesNotHideTheError(t *testing.T) {
	for _, io := range []IOMethod{IOFdatasync, IOBuffered} {
		synctest.Test(t, func(t *testing.T) {
			o := Options{SegmentSize: 1 << 20, IO: io, GroupsInFlight: 2}
			fs := &lateSync{FS: memfs.New(), armed: make(chan struct{}), failed: make(chan struct{}), report: make(chan struct{})}
			j := mustStart(t, fs, "/j", o)
			h := newHistory()
			waitPrepared(t, j)
			require.NoError(t, h.appendBatch(j, 1, 10)) // leaves the unzeroed segment
			waitPrepared(t, j)
			synctest.Wait()
			close(fs.armed)
			l := newListener()
			for i := range 2 {
				appendOne(t, j, i, earlyBytes, l)
				j.Commit()
				synctest.Wait()
			}
			heard := l.count()
			close(fs.report)
			l.wait(2)
			require.Zero(t, heard, "acknowledged although its sync failed")
			require.ErrorIs(t, l.errs[0], syscall.EIO)
			require.ErrorIs(t, l.errs[1], syscall.EIO)
			require.ErrorIs(t, j.Close(), ErrPoisoned)
		})
	}
}
