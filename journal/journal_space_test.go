package journal

import (
	"errors"
	"strings"
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

// fullDisk returns a journal of several segments on a disk with 0 bytes free: no spare, and no segment without a group.
func fullDisk(t *testing.T, o Options) (*memfs.FS, *history) {
	t.Helper()
	mem, h := filled(t, o, 20)
	d, err := readDirectory(mem, "/j")
	require.NoError(t, err)
	for _, f := range d.spares {
		require.NoError(t, mem.Remove(f.name))
	}
	places := groupPlaces(t, mem, "/j")
	for _, s := range d.segments {
		if s.id > places[len(places)-1].id {
			require.NoError(t, mem.Remove(s.name))
		}
	}
	d, err = readDirectory(mem, "/j")
	require.NoError(t, err)
	n := note{seq: 1, highest: d.maxID, newest: d.segments[len(d.segments)-1].id}
	require.NoError(t, vfs.WriteFileAtomic(mem, "/j/current/"+noteName, append(append(n.encode(), make([]byte, noteSlot-noteBytes)...), n.encode()...)))
	mem.SetCapacity(1)
	return mem, h
}

// TestStartWithoutSpace: with 0 bytes free and no spare the journal can be opened and replayed. The start fails with an
// error that says what to do and so do appends; nothing is changed, nothing is read again. Trimming or free space helps.
func TestStartWithoutSpace(t *testing.T) {
	o := Options{SegmentSize: 64 << 10, MaxGroupBytes: 8 << 10, IO: IODSync, Reserve: -1}
	for _, way := range []string{"trim", "free space"} {
		t.Run(way, func(t *testing.T) {
			mem, h := fullDisk(t, o)
			fs := errorfs.Wrap(mem, errorfs.None())
			k := mustOpen(t, fs, "/j", o)
			r, err := k.Replay(0, nil)
			require.NoError(t, err)
			require.EqualValues(t, h.next, r.Records)
			reads := fs.Count(errorfs.Read)
			for range 3 {
				err = k.Start()
				require.ErrorIs(t, err, syscall.ENOSPC)
				require.ErrorContains(t, err, "no space for a segment of 65536 bytes and no spare one: free space, or trim the journal")
				var full *NoSpaceError
				require.True(t, errors.As(err, &full))
				require.EqualValues(t, 64<<10, full.Need)

				_, err = k.Append(1, 0, []byte("x"), nil, Token{})
				require.ErrorIs(t, err, ErrNotStarted)
				require.ErrorIs(t, err, syscall.ENOSPC)
				require.ErrorContains(t, err, "the journal is not started: start journal /j: no space")
				err = k.Reserve(1, time.Minute)
				require.ErrorIs(t, err, ErrNotStarted)
				require.ErrorIs(t, err, syscall.ENOSPC)
				require.NoError(t, k.Err(), "a full disk is not a failed one")
				require.Equal(t, r.End, k.Mark())
			}
			require.Equal(t, reads, fs.Count(errorfs.Read), "a start that only waits for space read the journal again")
			h.check(t, mem, o, "after the failed starts")

			if way == "trim" {
				require.NoError(t, k.Trim(r.End))
				h.mark = r.End
			} else {
				mem.SetCapacity(1 << 30)
			}
			require.NoError(t, k.Start())
			require.NoError(t, h.appendBatch(k, 3, 100))
			require.NoError(t, k.Close())
			h.check(t, mem, o, "after the start")
		})
	}
}

// TestCloseWithoutSpace: a journal that could not be started can be closed.
func TestCloseWithoutSpace(t *testing.T) {
	o := Options{SegmentSize: 64 << 10, MaxGroupBytes: 8 << 10, IO: IODSync, Reserve: -1}
	mem, h := fullDisk(t, o)
	k := mustOpen(t, mem, "/j", o)
	require.ErrorIs(t, k.Start(), syscall.ENOSPC)
	require.NoError(t, k.Close())
	_, err := k.Append(1, 0, []byte("x"), nil, Token{})
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, k.Reserve(1, 0), ErrClosed)
	require.ErrorIs(t, k.Start(), ErrClosed)
	h.check(t, mem, o, "after it was closed")
}

// TestStartInANewDirectoryWithoutSpace: the first start of all meets a full disk.
func TestStartInANewDirectoryWithoutSpace(t *testing.T) {
	o := smallOptions()
	for _, full := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		mem := memfs.New()
		sw := errorfs.NewSwitch(errorfs.From(errorfs.Create|errorfs.Preallocate, 1, full))
		sw.Set(true)
		j := mustOpen(t, errorfs.Wrap(mem, sw), "/j", o)
		r, err := j.Replay(0, nil)
		require.NoError(t, err)
		require.Equal(t, Replayed{Whole: true}, Replayed{Whole: r.Whole, Records: r.Records, Segments: r.Segments})
		err = j.Start()
		require.ErrorIs(t, err, full)
		var typed *NoSpaceError
		require.True(t, errors.As(err, &typed))
		sw.Set(false)
		require.NoError(t, j.Start())
		h := newHistory()
		require.NoError(t, h.appendBatch(j, 2, 100))
		require.NoError(t, j.Close())
		h.check(t, mem, o, "later")
	}
}

// full makes a disk full for files of segments, for as long as it is on.
func full() *errorfs.Switch {
	return errorfs.NewSwitch(errorfs.OnPath("*.alloc", errorfs.From(errorfs.Create|errorfs.Preallocate, 1, syscall.ENOSPC)))
}

// TestPreparationMeetsAFullDisk: a segment that nobody waits for yet can not be prepared. The journal goes on in the one it
// has, tries again, and takes what a trim gives back; it does not touch what is kept for the next start.
func TestPreparationMeetsAFullDisk(t *testing.T) {
	for _, way := range []string{"trim", "free space"} {
		synctest.Test(t, func(t *testing.T) {
			o := smallOptions()
			sw := full()
			mem := memfs.New()
			log := &logBuffer{}
			o.Logger = log.logger()
			j := mustStart(t, errorfs.Wrap(mem, sw), "/j", o)
			defer j.Close() //nolint:errcheck // again, if a check failed
			h := newHistory()
			waitPrepared(t, j)
			require.NoError(t, h.appendBatch(j, 1, 10)) // into the planned segment: the first one waits for a trim
			waitPrepared(t, j)
			sw.Set(true)
			// Two zeroed segments are at hand (one planned, one spare beside the reserve), and then none.
			waitsForSpace := func() bool {
				j.mu.Lock()
				defer j.mu.Unlock()
				return j.prepRetry > 0
			}
			for n := 0; !waitsForSpace(); n++ {
				require.Less(t, n, 100)
				require.NoError(t, h.appendBatch(j, 1, 7000))
				waitFor(t, func() bool { return waitsForSpace() || j.prepared() })
			}
			waitFor(t, func() bool { return len(log.lines("the next segment can not be had")) > 0 })
			require.NoError(t, j.Err())
			require.NoError(t, h.appendBatch(j, 1, 1000), "there is room in the current segment")
			require.GreaterOrEqual(t, j.Stats().Spares, 1, "the reserve was used up")
			if way == "trim" {
				require.NoError(t, h.trim(j, 1))
			} else {
				sw.Set(false)
			}
			waitFor(t, func() bool { return !waitsForSpace() || j.prepared() })
			for range 12 { // over a segment switch
				require.NoError(t, h.appendBatch(j, 1, 7000))
				require.NoError(t, h.trim(j, 1))
				waitFor(t, func() bool { return j.prepared() })
			}
			require.NoError(t, j.Close())
			h.check(t, mem, o, "restart")
		})
	}
}

// prepared says whether the next segment is ready.
func (j *Journal) prepared() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.unprepared) == 0 && (len(j.planned) > 0 || !j.cur.nearlyFull())
}

// TestSegmentNeededOnAFullDisk: once groups wait for a segment that can not be had, Reserve refuses more; the journal has not
// failed. When there is room, those that waited are acknowledged and it takes records again. What is kept for the next start
// is not touched, and everything is there after a restart.
func TestSegmentNeededOnAFullDisk(t *testing.T) {
	for name, fault := range map[string]error{"no space": syscall.ENOSPC, "quota": syscall.EDQUOT, "no handles": syscall.EMFILE, "a bad block": syscall.EIO} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := smallOptions()
				var changes atomic.Int32
				o.OnWaiting = func() { changes.Add(1) }
				sw := errorfs.NewSwitch(errorfs.OnPath("*.alloc", errorfs.From(errorfs.Create|errorfs.Preallocate, 1, fault)))
				mem := memfs.New()
				j := mustStart(t, errorfs.Wrap(mem, sw), "/j", o)
				defer j.Close() //nolint:errcheck // again, if a check failed
				h := newHistory()
				waitPrepared(t, j)
				sw.Set(true)
				l := newListener()
				for !j.Blocked() {
					require.Less(t, h.next, 200)
					p := appendOne(t, j, h.next, 6992, l)
					h.appended[h.next] = p
					h.next++
					j.Commit()
					synctest.Wait()
				}
				blocked, err := j.Waiting()
				require.True(t, blocked)
				require.ErrorIs(t, err, ErrWaiting)
				require.ErrorIs(t, err, fault)
				require.ErrorContains(t, err, "free space there")
				require.NoError(t, j.Err())
				require.False(t, j.Stats().Failed)
				err = j.Reserve(1, time.Minute)
				require.ErrorIs(t, err, ErrWaiting)
				require.ErrorIs(t, err, fault)
				require.NotErrorIs(t, err, ErrPoisoned)
				require.Positive(t, changes.Load())
				require.Less(t, l.count(), h.next, "nothing waits")
				require.GreaterOrEqual(t, j.Stats().Spares, 1, "the reserve was used up")
				time.Sleep(time.Minute)
				require.True(t, j.Blocked())
				told := changes.Load()

				sw.Set(false)
				time.Sleep(2 * retryPause)
				synctest.Wait()
				blocked, err = j.Waiting()
				require.NoError(t, err)
				require.False(t, blocked)
				require.Greater(t, changes.Load(), told)
				require.Equal(t, h.next, l.count())
				for i, err := range l.errs {
					require.NoError(t, err)
					h.acked[i] = true
				}
				for range 20 {
					require.NoError(t, h.appendBatch(j, 1, 7000))
				}
				require.NoError(t, j.Close())
				h.check(t, mem, o, "restart")
			})
		})
	}
}

// TestCloseWhileWaitingForASegment: whoever waits for a segment hears that there is none, and nothing hangs. A start finds
// what was acknowledged, and the spare that was kept for it.
func TestCloseWhileWaitingForASegment(t *testing.T) {
	o := smallOptions()
	sw := full()
	mem := memfs.New()
	j := mustStart(t, errorfs.Wrap(mem, sw), "/j", o)
	h := newHistory()
	waitPrepared(t, j)
	sw.Set(true)
	var err error
	for n := 0; err == nil; n++ {
		require.Less(t, n, 100)
		err = h.appendBatch(j, 1, 7000) // closes the journal in the end
	}
	require.ErrorIs(t, err, ErrPoisoned)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Contains(t, err.Error(), "prepare segment")
	_ = j.Close()
	h.check(t, mem, o, "restart")

	mem.SetCapacity(1) // not a byte more
	names, err := mem.List("/j/current")
	require.NoError(t, err)
	spares := 0
	for _, n := range names {
		if !strings.HasSuffix(n, liveSuffix) {
			spares++
		}
	}
	require.Positive(t, spares)
	k := mustStart(t, mem, "/j", o)
	require.NoError(t, h.appendBatch(k, 2, 1000))
	require.NoError(t, k.Close())
	h.check(t, mem, o, "after a start on the full disk")
}

// TestTwoDirectoriesOneFails: a journal is one directory; another one on a sound disk goes on.
func TestTwoDirectoriesOneFails(t *testing.T) {
	o := smallOptions()
	mem := memfs.New()
	sw := errorfs.NewSwitch(errorfs.From(errorfs.Write, 1, syscall.EIO))
	fs := prefixed{mem, errorfs.Wrap(mem, sw), "/sick"}
	a, b := mustStart(t, fs, "/sick", o), mustStart(t, fs, "/sound", o)
	la, lb := newListener(), newListener()
	appendOne(t, a, 0, 100, la)
	appendOne(t, b, 0, 100, lb)
	a.Commit()
	b.Commit()
	la.wait(1)
	lb.wait(1)
	sw.Set(true)
	waitFor(t, func() bool { // whatever is written meanwhile, by the preparer too
		if a.Err() == nil {
			if _, err := a.Append(1, 0, body(1, 100), la, Token{}); err == nil {
				a.Commit()
			}
		}
		return a.Err() != nil
	})
	for i := 1; i < 200; i++ { // over segment switches
		appendOne(t, b, i, 1000, lb)
		b.Commit()
		lb.wait(i + 1)
	}
	for _, err := range lb.errs {
		require.NoError(t, err)
	}
	require.NoError(t, b.Err())
	require.False(t, b.Stats().Failed)
	require.ErrorIs(t, a.Close(), syscall.EIO)
	require.NoError(t, b.Close())
	got, r := replayAll(t, mem, "/sound", o, 0)
	require.Equal(t, numbers(0, 200), got)
	require.True(t, r.Whole)
	got, r = replayAll(t, mem, "/sick", o, 0)
	require.Contains(t, got, 0)
	require.Empty(t, r.Damage)
}

// prefixed is a file system whose files under prefix lie on a disk with faults.
type prefixed struct {
	vfs.FS
	sick   vfs.FS
	prefix string
}

func (p prefixed) Open(name string, m vfs.Mode) (vfs.File, error) {
	if strings.HasPrefix(name, p.prefix+"/") {
		return p.sick.Open(name, m)
	}
	return p.FS.Open(name, m)
}
