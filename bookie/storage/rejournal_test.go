package storage

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/errorfs"
	"github.com/stretchr/testify/require"
)

// The test journal as a Rejournal: every record is a segment's worth, more than 300 of them are too many.
func (j *testJournal) Pinned(mark []uint64) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i, p := range mark {
		if j.next[i]-p > 300 {
			return true
		}
	}
	return false
}

func (j *testJournal) Reserve(int64, int) error { return nil }
func (j *testJournal) Release(int64, int)       {}

func (j *testJournal) Append(ledger int64, kind uint8, payload []byte) error {
	j.append(ledger, kind, payload)
	return nil
}

func (j *testJournal) Sync(context.Context) error { return nil }

func (j *testJournal) held() (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, list := range j.records {
		n += len(list)
	}
	return n
}

// TestFullDirectoryLetsGoOfTheJournal: one directory is full and can not flush, the other goes on for ever. The journal
// does not grow for ever, and a crash at any time loses nothing of either.
func TestFullDirectoryLetsGoOfTheJournal(t *testing.T) {
	e := newEnv(t, 2, 1, func(o *Options) {
		o.Disk.ReadOnlyWhen = "all"
		o.FlushInterval = 5 * time.Millisecond
	})
	plain := e.tune
	e.tune = func(o *Options) { plain(o); o.Rejournal = e.j }
	full := fullSwitch(e, "ledgers1/current/*")
	e.open()
	ids := e.ledgersIn()
	e.checkpoint()
	full.Set(true)
	for entry := int64(1); entry < 60; entry++ {
		e.mustAddTo(ids[1], entry, 200)
	}
	require.NoError(t, e.add(ids[1], 5, testBody(ids[1], 5, 4, 200, 0), true)) // a re-add, in the same cache
	e.mustAddTo(500, 0, 100)
	require.NoError(t, e.fence(ids[1]))
	most := 0
	for entry := int64(1); entry < 3000; entry++ {
		e.mustAddTo(ids[0], entry, 100)
		most = max(most, e.j.held())
		if entry%100 == 0 {
			_ = e.s.dirs[0].request().wait(t.Context())
		}
		if entry%500 == 0 || entry == 2999 { // however slow the machine is
			require.Eventually(t, func() bool { return e.j.held() < 700 }, 30*time.Second, time.Millisecond, "the journal grows as long as one directory is full")
		}
	}
	require.Less(t, most, 2500, "the journal grows as long as one directory is full")
	for round := range uint64(2) {
		e.crash(round, 0)
		e.open()
		for entry := int64(1); entry < 60; entry++ {
			e.requireEntry(ids[1], entry, 200)
		}
		l, err := e.s.Ledger(ids[1], false)
		require.NoError(t, err)
		l.Lock()
		require.True(t, l.Replica.Fenced)
		l.Unlock()
		l.Release()
		e.requireEntry(500, 0, 100)
		for entry := int64(1); entry < 3000; entry++ {
			e.requireEntry(ids[0], entry, 100)
		}
	}
	full.Set(false)
	require.Eventually(t, func() bool {
		e.s.CheckDisks()
		return e.j.held() == 0
	}, 30*time.Second, 5*time.Millisecond)
	e.close()
}

// fullSwitch makes the disk of what matches pattern full while it is on.
func fullSwitch(e *env, pattern string) *errorfs.Switch {
	full := errorfs.NewSwitch(errorfs.OnPath(pattern, errorfs.From(errorfs.Preallocate|errorfs.Write, 1, syscall.ENOSPC)))
	logs := errorfs.OnPath("[0-9a-f]*.log", full)
	e.wrap = func(fsys vfs.FS) vfs.FS { return errorfs.Wrap(fsys, logs) }
	e.fs = e.wrap(e.mem)
	return full
}

// mustAddTo adds an entry although the ledger's directory may be full: it was taken before that was noticed.
func (e *env) mustAddTo(ledger, entry int64, n int) {
	e.t.Helper()
	body := testBody(ledger, entry, entry-1, n, 0)
	l, err := e.s.Ledger(ledger, true)
	require.NoError(e.t, err)
	defer l.Release()
	require.NoError(e.t, l.Reserve(len(body), true, 10*time.Second))
	l.Lock()
	defer l.Unlock()
	require.Zero(e.t, l.Replica.CheckAdd(testKey, false, 0))
	require.NoError(e.t, l.Put(entry, body))
	if l.Replica.Accept(testKey, false) {
		l.StateChanged()
		e.j.append(ledger, KindState, l.AppendState(nil))
	}
	e.j.append(ledger, KindEntry, body)
}
