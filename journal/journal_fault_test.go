package journal

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/errorfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
)

// TestEveryOperationFails lets the nth operation of each kind fail, once and for good, for every n. Whatever happens, the
// run ends, what was acknowledged is there afterwards, also after a power loss, and what failed says why.
func TestEveryOperationFails(t *testing.T) {
	batches := 24
	if raceEnabled || testing.Short() {
		batches = 8
	}
	kinds := []struct {
		kind errorfs.Kind
		err  error
	}{
		{errorfs.Write, syscall.EIO},
		{errorfs.Write, syscall.ENOSPC},
		{errorfs.Sync, syscall.EIO},
		{errorfs.SyncDir, syscall.EIO},
		{errorfs.Rename, syscall.EIO},
		{errorfs.Create, syscall.ENOSPC},
		{errorfs.Preallocate, syscall.ENOSPC},
		{errorfs.Open | errorfs.Create, syscall.EMFILE},
		{errorfs.Lookups | errorfs.Remove | errorfs.Mkdir, syscall.EIO},
		{errorfs.Close, syscall.EIO},
	}
	for _, k := range kinds {
		for _, io := range []IOMethod{IODSync, IOFdatasync} {
			t.Run(fmt.Sprintf("%s/%v/%s", k.kind, k.err, io), func(t *testing.T) {
				t.Parallel()
				o := crashOptions(io)
				var mem *memfs.FS
				fresh := func() vfs.FS { mem = memfs.New(); return mem }
				run := func(fs *errorfs.FS, n int64) {
					h := newHistory()
					err := workload(h, fs, o, batches)
					if err != nil {
						require.ErrorIs(t, err, k.err, "the cause is not in the error")
					}
					h.check(t, mem.Clone(), o, "restart")
					lost := mem.CrashClone(uint64(n), 0)
					h.check(t, lost, o, "restart after a power loss")
					require.NoError(t, workload(h, lost, o, 4))
					h.check(t, lost, o, "second life")
				}
				met := errorfs.Sweep(t, fresh, func(n int64) errorfs.Injector { return errorfs.Nth(k.kind, n, k.err) }, run)
				if k.kind&(errorfs.Close|errorfs.Preallocate|errorfs.Create) == 0 {
					require.Greater(t, met, int64(1))
				}
				if k.kind&errorfs.Write != 0 {
					errorfs.Sweep(t, fresh, func(n int64) errorfs.Injector { return errorfs.From(k.kind, n, k.err) }, run)
				}
			})
		}
	}
}

// TestShortWrites lets every write stop in the middle, at several lengths.
func TestShortWrites(t *testing.T) {
	o := crashOptions(IODSync)
	for _, bytes := range []int{0, 100, 512, 4096, 6000} {
		var mem *memfs.FS
		errorfs.Sweep(t, func() vfs.FS { mem = memfs.New(); return mem },
			func(n int64) errorfs.Injector { return errorfs.ShortWrite(n, bytes, syscall.ENOSPC) },
			func(fs *errorfs.FS, n int64) {
				h := newHistory()
				err := workload(h, fs, o, 16)
				if err != nil {
					require.ErrorIs(t, err, syscall.ENOSPC)
				}
				h.check(t, mem.Clone(), o, "restart")
			})
	}
}

// filled returns a file system with a journal of several segments that was closed cleanly, and its history.
func filled(t testing.TB, o Options, batches int) (*memfs.FS, *history) {
	t.Helper()
	mem, h := memfs.New(), newHistory()
	j := mustStart(t, mem, "/j", o)
	for b := range batches {
		require.NoError(t, h.appendBatch(j, 1+b%4, 1000*(1+b%7)))
	}
	require.NoError(t, j.Close())
	return mem, h
}

// account replays a damaged directory and fails unless every acknowledged record that is missing is accounted for, and
// every record that is there is right. It returns the missing ones.
func (h *history) account(t testing.TB, fs vfs.FS, o Options, where string) (missing []int, r Replayed, err error) {
	t.Helper()
	j, err := Open(fs, "/j", o)
	if err != nil {
		return nil, r, err
	}
	defer j.Close() //nolint:errcheck // never started
	got := map[int]bool{}
	r, err = j.Replay(0, func(r Record) error {
		i := checkBody(t, r.Payload)
		require.Equal(t, h.appended[i], r.Position, "%s: record %d", where, i)
		require.Equal(t, uint64(i%7), r.Tag, "%s: record %d", where, i)
		require.False(t, got[i], "%s: record %d twice", where, i)
		got[i] = true
		return nil
	})
	if err != nil {
		return nil, r, err
	}
	named := map[string]int{}
	for _, d := range r.Damage {
		if d.Known {
			named[fmt.Sprint(d.Position, d.Tag)]++
		}
	}
	for i := range h.next {
		if !h.acked[i] || got[i] {
			continue
		}
		missing = append(missing, i)
		key := fmt.Sprint(h.appended[i], uint64(i%7))
		if named[key] == 0 {
			require.False(t, r.Whole, "%s: record %d is missing and nothing says so: %+v", where, i, r)
		}
		named[key]--
	}
	return missing, r, nil
}

// TestReadsFail lets the nth read of a replay fail or return a flipped bit.
func TestReadsFail(t *testing.T) {
	o := crashOptions(IODSync)
	mem, h := filled(t, o, 30)
	met := errorfs.Sweep(t, func() vfs.FS { return mem.Clone() },
		func(n int64) errorfs.Injector { return errorfs.Nth(errorfs.Read, n, syscall.EIO) },
		func(fs *errorfs.FS, _ int64) {
			_, _, err := h.account(t, fs, o, "a read fails once")
			require.NoError(t, err)
		})
	require.Greater(t, met, int64(5))
	errorfs.Sweep(t, func() vfs.FS { return mem.Clone() },
		func(n int64) errorfs.Injector { return errorfs.From(errorfs.Read, n, syscall.EIO) },
		func(fs *errorfs.FS, n int64) {
			_, r, err := h.account(t, fs, o, "all reads fail")
			if err == nil && fs.Injected() > 0 {
				require.False(t, r.Whole, "read %d and later failed", n)
			}
		})
	step := int64(40961)
	if raceEnabled || testing.Short() {
		step *= 5
	}
	for bit := int64(0); bit < 1<<19; bit += step {
		errorfs.Sweep(t, func() vfs.FS { return mem.Clone() },
			func(n int64) errorfs.Injector { return errorfs.FlipBit(n, bit) },
			func(fs *errorfs.FS, _ int64) {
				missing, _, err := h.account(t, fs, o, "a read returns a flipped bit")
				require.NoError(t, err)
				require.LessOrEqual(t, len(missing), 1)
			})
	}
}

// TestPoisoned: after the first failed write everything fails with the same cause, at once, and nothing is retried.
func TestPoisoned(t *testing.T) {
	o := smallOptions()
	for _, op := range []string{"write", "sync"} {
		t.Run(op, func(t *testing.T) {
			kind := errorfs.Write
			o := o
			o.GroupsInFlight = 1 // so that no other write is under way when one fails
			if op == "sync" {
				kind, o.IO = errorfs.Sync, IOFdatasync
			}
			sw := errorfs.NewSwitch(errorfs.Nth(kind, 1, syscall.EIO))
			mem := memfs.New()
			fs := errorfs.Wrap(mem, sw)
			j := mustStart(t, fs, "/j", o)
			h := newHistory()
			waitPrepared(t, j)
			require.NoError(t, h.appendBatch(j, 3, 100)) // leaves the unzeroed segment
			waitPrepared(t, j)
			sw.Set(true)
			err := h.appendBatch(j, 3, 100)
			require.ErrorIs(t, err, ErrPoisoned)
			require.ErrorIs(t, err, syscall.EIO)
			writes := fs.Count(errorfs.Write)

			_, err = j.Append(1, 0, []byte("x"), nil, Token{})
			require.ErrorIs(t, err, ErrPoisoned)
			_, err = j.Append(0, 0, nil, newListener(), Token{})
			require.ErrorIs(t, err, ErrPoisoned)
			require.ErrorIs(t, j.Reserve(1, time.Second), ErrPoisoned)
			require.ErrorIs(t, j.Trim(j.Mark()), ErrPoisoned)
			require.ErrorIs(t, j.Err(), ErrPoisoned)
			require.True(t, j.Stats().Failed)
			j.Commit()
			require.ErrorIs(t, j.Close(), ErrPoisoned)
			require.Equal(t, writes, fs.Count(errorfs.Write), "something was written after the failure")
			require.Len(t, h.acked, 3)
			h.check(t, mem, o, "restart")
		})
	}
}

// waitPrepared blocks until the preparer has nothing to do.
func waitPrepared(t testing.TB, j *Journal) {
	t.Helper()
	require.Eventually(t, func() bool {
		j.mu.Lock()
		defer j.mu.Unlock()
		if len(j.unprepared) > 0 || len(j.planned) == 0 || len(j.spares) < j.o.Reserve+1 {
			return false
		}
		for _, f := range j.spares {
			if !f.zeroed {
				return false
			}
		}
		return true
	}, 30*time.Second, time.Millisecond)
}

// TestPendingFailTogether: groups that are sealed, in flight and open when one fails all hear the error, in order, once.
func TestPendingFailTogether(t *testing.T) {
	o := smallOptions()
	o.GroupsInFlight = 2
	g := newGate()
	fail := errorfs.NewSwitch(errorfs.From(errorfs.Write, 1, syscall.EIO))
	j := mustStart(t, errorfs.Wrap(memfs.New(), errorfs.All(g, fail)), "/j", o)
	waitPrepared(t, j)
	l := newListener()
	g.hold()
	const n = 60
	for i := range n {
		appendOne(t, j, i, 1000, l)
		j.Commit()
	}
	g.await(1)
	fail.Set(true)
	g.open()
	l.wait(n)
	for i, tok := range l.done {
		require.Equal(t, int64(i), tok.A)
	}
	failed := 0
	for _, err := range l.errs {
		if err != nil {
			require.ErrorIs(t, err, syscall.EIO)
			failed++
		} else {
			require.Zero(t, failed, "an acknowledgement after a failure")
		}
	}
	require.Positive(t, failed)
	require.ErrorIs(t, j.Close(), ErrPoisoned)
	require.Len(t, l.done, n)
	require.Zero(t, j.budget.used.Load()) // Close has joined everybody
}

// TestNoDirectIO: where the file system refuses direct I/O, the error names the way out; nothing falls back by itself.
func TestNoDirectIO(t *testing.T) {
	for _, io := range []IOMethod{IOAuto, IODSync, IOFdatasync, IORWFDSync} {
		o := smallOptions()
		o.IO = io
		fs := noDirect{memfs.New()}
		j := mustOpen(t, fs, "/j", o)
		err := j.Start()
		require.ErrorIs(t, err, vfs.ErrNoDirectIO)
		require.ErrorContains(t, err, `journal.io = "buffered"`)
		var typed *NoDirectIOError
		require.True(t, errors.As(err, &typed))
		require.NoError(t, j.Close())

		o.IO = IOBuffered
		h := newHistory()
		require.NoError(t, workload(h, fs, o, 4))
		h.check(t, fs, o, "buffered")
	}
}

// noDirect is a file system without direct I/O.
type noDirect struct{ vfs.FS }

func (f noDirect) Open(name string, m vfs.Mode) (vfs.File, error) {
	if m.Direct {
		return nil, fmt.Errorf("open %s: %w", name, vfs.ErrNoDirectIO)
	}
	return f.FS.Open(name, m)
}
