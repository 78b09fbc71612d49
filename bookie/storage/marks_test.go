package storage

import (
	"sync"
	"testing"
	"time"

	"github.com/binderylog/bindery/internal/vfs/errorfs"
	"github.com/stretchr/testify/require"
)

// TestIdleDirectoryIsNotOneThatFlushesStates: a flush that writes nothing but a fence holds the mark back as one of
// entries does, while another directory's checkpoint asks who is idle.
func TestIdleDirectoryIsNotOneThatFlushesStates(t *testing.T) {
	e := newEnv(t, 2, 1, nil)
	var mu sync.Mutex
	hold := map[string]chan struct{}{}
	e.fs = errorfs.Wrap(e.mem, errorfs.Latency(errorfs.Sync, func(op errorfs.Op) time.Duration {
		mu.Lock()
		c := hold[op.Path]
		mu.Unlock()
		if c != nil {
			<-c
		}
		return 0
	}))
	e.open()
	ids := e.ledgersIn()
	e.checkpoint()
	require.NoError(t, e.fence(ids[1]))
	at := e.j.Mark()[0] - 1 // the fence's record
	// The second directory's checkpoint stops before its sync.
	name := "/ledgers1/current/" + e.s.dirs[1].log.Durable().Log.String() + ".log"
	stopped := make(chan struct{})
	mu.Lock()
	hold[name] = stopped
	mu.Unlock()
	held := e.s.dirs[1].request()
	require.Eventually(t, func() bool {
		e.s.dirs[1].dirtyMu.Lock()
		defer e.s.dirs[1].dirtyMu.Unlock()
		return len(e.s.dirs[1].dirty) == 0
	}, 30*time.Second, time.Millisecond)
	e.mustAdd(ids[0], 1, 100)
	require.NoError(t, e.s.dirs[0].request().wait(t.Context()))
	require.LessOrEqual(t, e.s.Marks()[0], at, "the mark passed a fence that is not durable")
	close(stopped)
	require.NoError(t, held.wait(t.Context()))
	mu.Lock()
	delete(hold, name)
	mu.Unlock()
	e.close()
}

// TestReplayedIntoAnotherDirectory: a ledger that was not flushed before a crash is replayed into a directory whose mark
// lies behind its records already. That mark must not let go of them.
func TestReplayedIntoAnotherDirectory(t *testing.T) {
	e := newEnv(t, 2, 1, nil).open()
	e.checkpoint()
	// Records of a ledger of the first directory, then a checkpoint of the second one.
	first, second := int64(-1), int64(-1)
	for id := int64(1); first < 0 || second < 0; id++ {
		e.mustAdd(id, 0, 200)
		if e.home(id).index == 0 {
			first = id
		} else {
			second = id
		}
	}
	e.mustAdd(first, 1, 200)
	e.mustAdd(second, 1, 200)
	require.NoError(t, e.s.dirs[1].request().wait(t.Context()))
	e.crash(1, 0)
	// Now the first ledger goes to the second directory, which does not flush; the first one does, and there is a crash.
	s, err := Open(e.fs, e.options())
	require.NoError(t, err)
	e.s = s
	l, err := s.ledgers.get(first)
	require.NoError(t, err)
	l.d = s.dirs[1]
	_, err = e.j.replay(s)
	require.NoError(t, err)
	l.Release()
	var m MarkSource = e.j
	s.source.Store(&m)
	require.NoError(t, s.dirs[0].request().wait(t.Context()))
	e.crash(2, 0)
	e.open()
	for entry := range int64(2) {
		e.requireEntry(first, entry, 200)
		e.requireEntry(second, entry, 200)
	}
	e.checkpoint()
	require.Equal(t, e.j.Mark(), e.s.Marks(), "the marks move once everybody has flushed")
	e.close()
}

// TestReplayCutOffInAnotherDirectory: a ledger is replayed in part into a directory whose mark lies behind its records, and
// that part becomes durable. The next start replays all of it.
func TestReplayCutOffInAnotherDirectory(t *testing.T) {
	e := newEnv(t, 2, 1, nil).open()
	e.checkpoint()
	first, second := int64(-1), int64(-1)
	for id := int64(1); first < 0 || second < 0; id++ {
		e.mustAdd(id, 0, 200)
		if e.home(id).index == 0 {
			first = id
		} else {
			second = id
		}
	}
	for entry := int64(1); entry < 10; entry++ {
		e.mustAdd(first, entry, 200)
	}
	require.NoError(t, e.s.dirs[1].request().wait(t.Context()))
	e.crash(1, 0)
	s, err := Open(e.fs, e.options())
	require.NoError(t, err)
	e.s = s
	l, err := s.ledgers.get(first)
	require.NoError(t, err)
	l.d = s.dirs[1]
	n := 0
	for _, r := range e.j.records[0] {
		if int64(r.Tag) == first {
			if n++; n == 5 {
				break
			}
		}
		require.NoError(t, s.Replay(r))
	}
	l.Release()
	require.NoError(t, s.dirs[1].request().wait(t.Context()))
	e.crash(2, 0)
	e.open()
	for entry := range int64(10) {
		e.requireEntry(first, entry, 200)
	}
	e.requireEntry(second, 0, 200)
	e.close()
}
