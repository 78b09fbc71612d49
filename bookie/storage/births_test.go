package storage

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/vfs/errorfs"
)

// fencedStill checks that a ledger refuses adds, now and after a crash and more deletions.
func (e *env) fencedStill(id int64) {
	e.t.Helper()
	for round := range uint64(3) {
		require.ErrorContains(e.t, e.add(id, 9, testBody(id, 9, 0, 100, 0), false), "fenced", "round %d", round)
		other := 1000*id + int64(round)
		e.mustAdd(other, 0, 100)
		e.deleteLedger(other) // raises the number in the file of deleted ledgers
		e.checkpoint()
		e.crash(round, 0)
		e.open()
	}
	require.ErrorContains(e.t, e.add(id, 9, testBody(id, 9, 0, 100, 0), false), "fenced")
}

// TestDeletedLedgersBackDuringReplay: a flush in the middle of replay writes nothing about ledgers that replay has yet to
// bring back.
func TestDeletedLedgersBackDuringReplay(t *testing.T) {
	e := newEnv(t, 1, 1, nil).open()
	for id := int64(1); id <= 2; id++ {
		e.mustAdd(id, 0, 100)
		e.deleteLedger(id)
	}
	require.NoError(t, e.fence(2)) // the first life that the journal brings
	require.NoError(t, e.fence(1)) // the second, with a higher number
	e.crash(1, 0)
	e.j.records[0][len(e.j.records[0])-2], e.j.records[0][len(e.j.records[0])-1] = e.j.records[0][len(e.j.records[0])-1], e.j.records[0][len(e.j.records[0])-2]
	for i := range e.j.records[0] { // the higher number comes first
		e.j.records[0][i].Position = uint64(i + 1)
	}
	s, err := Open(e.fs, e.options())
	require.NoError(t, err)
	e.s = s
	for _, r := range e.j.records[0] {
		require.NoError(t, s.Replay(r))
		e.checkpoint()
	}
	require.NoError(t, s.Start(e.j))
	e.checkpoint()
	e.fencedStill(1)
	e.fencedStill(2)
	e.close()
}

// TestDeletionCutOffBeforeALedgerCameBack: a deletion that a crash cut off is finished after replay, and leaves alone what
// replay brought back.
func TestDeletionCutOffBeforeALedgerCameBack(t *testing.T) {
	e := newEnv(t, 1, 1, nil).open()
	e.mustAdd(1, 0, 100)
	d := e.s.dirs[0]
	l, err := e.s.Ledger(1, false)
	require.NoError(t, err)
	step, err := d.appendIntent(t.Context(), encodeDeleteIntent([]int64{1}))
	require.NoError(t, err)
	require.NotZero(t, step)
	require.Equal(t, []int64{1}, d.bury([]*Ledger{l}, []uint32{l.Replica.Generation}))
	l.Release()
	e.checkpoint()
	require.NoError(t, e.fence(1))
	require.NoError(t, e.s.dirs[0].markFile.Sync())
	e.mustAdd(2, 0, 100)
	e.crash(1, 0)
	e.open()
	require.Eventually(t, func() bool {
		e.s.dirs[0].intentMu.Lock()
		defer e.s.dirs[0].intentMu.Unlock()
		return len(e.s.dirs[0].intents.Pending()) == 0
	}, 30*time.Second, time.Millisecond, "the deletion is not finished")
	e.fencedStill(1)
	e.close()
}

// TestLedgerComesBackWhileItIsDeleted: at every step of its deletion.
func TestLedgerComesBackWhileItIsDeleted(t *testing.T) {
	steps := []func(d *dir) error{
		func(d *dir) error { return d.request().wait(t.Context()) },
		func(d *dir) error { return d.forgetTombstones() },
		func(d *dir) error { return d.bookDeleted([]int64{1}) },
		func(d *dir) error { return d.forgetTombstones() },
	}
	for at := range len(steps) + 1 {
		e := newEnv(t, 1, 1, nil).open()
		e.mustAdd(1, 0, 100)
		d := e.s.dirs[0]
		l, err := e.s.Ledger(1, false)
		require.NoError(t, err)
		d.indexMu.Lock()
		done := e.s.births.dying([]int64{1})
		require.Equal(t, []int64{1}, d.bury([]*Ledger{l}, []uint32{l.Replica.Generation}))
		for i, step := range steps {
			if i == at {
				require.NoError(t, e.fence(1))
			}
			require.NoError(t, step(d))
		}
		done()
		d.indexMu.Unlock()
		l.Release()
		if at == len(steps) {
			require.NoError(t, e.fence(1))
		}
		e.fencedStill(1)
		e.close()
	}
}

// TestDeletedLedgerCameBackInAnotherDirectory: a ledger is deleted, the directory that knows of it is away, the ledger is
// fenced in another one, and the first directory returns.
func TestDeletedLedgerCameBackInAnotherDirectory(t *testing.T) {
	e := newEnv(t, 2, 1, nil).open()
	ids := e.ledgersIn()
	id := ids[1]
	e.deleteLedger(id)
	e.roll()
	e.close()
	all := e.tune
	e.tune = func(o *Options) {
		if all != nil {
			all(o)
		}
		o.Dirs = o.Dirs[:1]
	}
	e.open()
	require.NoError(t, e.fence(id))
	e.close()
	e.tune = all
	e.open()
	refused := func() {
		require.ErrorContains(t, e.add(id, 1, testBody(id, 1, 0, 100, 0), false), "limbo")
	}
	refused()
	require.NoError(t, e.s.AcceptLoss(t.Context()))
	for other := int64(1000); e.s.dirs[1].tombs.Load().births == 0; other++ { // raise the number in the second directory's file
		e.mustAdd(other, 0, 100)
		e.deleteLedger(other)
		require.NoError(t, e.fence(other))
		e.checkpoint()
	}
	refused()
	e.crash(1, 0)
	e.open()
	refused()
	e.close()
}

// TestDeletionCutOffAgain: the file of deleted ledgers can not be written, the log with the tombstones is ingested, and the
// file can not be written again: what then says that the ledger is deleted must stay until the file does.
func TestDeletionCutOffAgain(t *testing.T) {
	e := newEnv(t, 1, 1, nil)
	broken := errorfs.NewSwitch(errorfs.OnPath("tombstones*", errorfs.From(errorfs.Write, 1, syscall.ENOSPC)))
	e.fs = errorfs.Wrap(e.mem, broken)
	e.open()
	e.mustAdd(1, 0, 100)
	require.NoError(t, e.fence(1))
	broken.Set(true)
	l, err := e.s.Ledger(1, false)
	require.NoError(t, err)
	_, err = e.s.Delete(t.Context(), []int64{1}, []uint32{l.Replica.Generation})
	require.ErrorIs(t, err, syscall.ENOSPC)
	l.Release()
	e.roll() // seals the log, which goes into the index
	e.settle()
	for range 2 {
		_, err = e.s.RetryRemovals(0)
		require.ErrorIs(t, err, syscall.ENOSPC)
	}
	broken.Set(false)
	_, err = e.s.RetryRemovals(0)
	require.NoError(t, err)
	for range 2 {
		require.ErrorContains(t, e.add(1, 9, testBody(1, 9, 0, 100, 0), false), "needs verification", "a deleted ledger takes nothing from an old writer")
		e.close()
		e.open()
	}
	e.close()
}
