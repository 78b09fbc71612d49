package storage

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/vfs/errorfs"
)

// TestC33FenceSurvivesARemovalThatWasCutOff stops between forgetting a compacted log and deleting its file. The next start
// finds the file again; it must not take the old states in it for new ones.
func TestC33FenceSurvivesARemovalThatWasCutOff(t *testing.T) {
	e := newEnv(t, 1, 1, nil)
	broken := errorfs.NewSwitch(errorfs.OnPath("*.log", errorfs.From(errorfs.Remove, 1, syscall.EPERM)))
	e.fs = errorfs.Wrap(e.mem, broken)
	e.open()
	e.mustAdd(1, 0, 500)
	e.mustAdd(2, 0, 500)
	e.roll()
	require.NoError(t, e.fence(1))
	e.mustAdd(3, 0, 500)
	e.roll()
	ids, err := e.s.CollectableLogs(0)
	require.NoError(t, err)
	require.NotEmpty(t, ids)
	broken.Set(true)
	_, _, err = e.s.Compact(t.Context(), 0, ids[:1], noLimit)
	require.ErrorIs(t, err, syscall.EPERM)

	for range 2 { // the second start knows what the first made of it
		broken.Set(false)
		e.crash(1, 1)
		e.open()
		l, err := e.s.Ledger(1, false)
		require.NoError(t, err)
		l.Lock()
		fenced := l.Replica.Fenced
		l.Unlock()
		l.Release()
		require.True(t, fenced, "the fence was durable, in a newer log")
		e.requireEntry(1, 0, 500)
		e.requireEntry(2, 0, 500)
		e.requireEntry(3, 0, 500)
		require.ErrorContains(t, e.add(1, 1, testBody(1, 1, 0, 100, 0), false), "refused")
		e.roll()
	}
	ids, err = e.s.CollectableLogs(0)
	require.NoError(t, err)
	indexed, err := e.s.dirs[0].ix.Logs()
	require.NoError(t, err)
	require.Subset(t, ids, indexed, "the index names no log that is gone")
	e.close()
}
