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
	}, 5*time.Second, time.Millisecond)
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
