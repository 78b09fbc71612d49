package autorecovery

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/ledgerclient"
)

// TestLostBookieIsReplaced: the whole way, from the loss to ledgers that are whole again, striped ones and those of several
// fragments too.
func TestLostBookieIsReplaced(t *testing.T) {
	k := newKit(t, 4)
	n := k.node("n1")
	ids := map[ledger.ID]int{
		k.closed(quorum(3, 3, 2), 40, "bk1"): 40,
		k.closed(quorum(3, 2, 2), 41, "bk1"): 41,
		k.closed(quorum(3, 2, 1), 1, "bk1"):  1,
		k.closed(quorum(2, 2, 2), 0, "bk1"):  0,
	}
	k.eventually("an auditor", func() bool { return n.Status().Auditor })
	k.members[1].stop()
	for id := range ids {
		k.eventually("bk1 is replaced", func() bool { return !k.record(id).Names("bk1") })
	}
	k.unmarked()
	for id, entries := range ids {
		k.check(id, entries)
	}
	require.GreaterOrEqual(t, n.outcomes(OutcomeRepaired), 4.0)
	// Only what stripes to the place is copied: 40 + some of 41 (2 of 3), not 41.
	require.Less(t, n.metric("replication_worker_NUM_ENTRIES_WRITTEN"), 40.0+41+1)
}

// idleQuorum leaves nothing pending once the last append is confirmed. With a smaller ack quorum a copy may still be on its way
// to a bookie that is stopped or made read-only then, and the writer replaces that bookie by itself, before any worker looks.
var idleQuorum = quorum(3, 3, 3)

func TestR4LiveWriterReplacesTheBookieInTheGracePeriod(t *testing.T) {
	k := newKit(t, 4)
	w := k.create(idleQuorum, 20, "bk1")
	k.members[1].stop()
	n := k.node("n1", workerOnly, func(o *Options) { o.OpenGrace = 2 * time.Second })
	k.mark(w.ID(), "bk1")
	k.eventually("it waits for the writer", func() bool {
		st := n.Status().Ledgers
		return len(st) == 1 && st[0].State == "waiting for its writer"
	})
	k.append(w, 20, 60) // and changes the ensemble
	k.unmarked()
	m := k.record(w.ID())
	require.Equal(t, ledger.StateOpen, m.State, "the writer is not fenced")
	require.False(t, m.Names("bk1"), "the earlier fragment was repaired, too")
	k.append(w, 60, 70)
	require.NoError(t, w.Close(k.ctx()))
	k.check(w.ID(), 70)
}

func TestR5IdleWriterIsFenced(t *testing.T) {
	k := newKit(t, 4)
	w := k.create(idleQuorum, 20, "bk1")
	k.members[1].stop()
	n := k.node("n1", workerOnly)
	k.mark(w.ID(), "bk1")
	k.unmarked()
	m := k.record(w.ID())
	require.Equal(t, ledger.StateClosed, m.State)
	require.False(t, m.Names("bk1"))
	k.check(w.ID(), 20)
	k.counted(n, "bindery_replication_ledgers_recovered_total", 1.0)
	_, err := w.Append(k.ctx(), []byte("late"))
	require.ErrorIs(t, err, ledgerclient.ErrFenced)
}

func TestR13ReadOnlyBookieInAnOpenEnsembleCountsAsMissing(t *testing.T) {
	k := newKit(t, 4)
	w := k.create(idleQuorum, 10, "bk1")
	require.NoError(t, k.members[1].b.SetReadOnly(k.ctx(), true))
	k.eventually("bk1 is read-only", func() bool {
		list, err := k.client.Bookies(k.ctx())
		require.NoError(t, err)
		for _, b := range list {
			if b.ID == "bk1" {
				return b.ReadOnly
			}
		}
		return false
	})
	k.node("n1", workerOnly)
	k.mark(w.ID(), "bk0") // for another reason
	k.unmarked()
	m := k.record(w.ID())
	require.Equal(t, ledger.StateClosed, m.State)
	require.True(t, m.Names("bk1"), "it answers reads: its copies stay")
	k.check(w.ID(), 10)
}

func TestR14NotEnoughBookies(t *testing.T) {
	k := newKit(t, 3)
	id := k.closed(quorum(3, 3, 2), 12)
	k.members[2].stop()
	n := k.node("n1")
	k.eventually("it has failed", func() bool { return n.outcomes(OutcomeNoBookies) >= 1 })
	require.Contains(t, k.marks(), id, "the mark stays")
	require.True(t, k.record(id).Names("bk2"))
	k.add()
	k.unmarked()
	require.False(t, k.record(id).Names("bk2"))
	k.check(id, 12)
}

// TestR15FinalFragmentsDoNotDependOnTheLAC: a fragment that has a successor is copied up to that, whatever a reader knows of
// the LAC, which may lag behind.
func TestR15FinalFragmentsDoNotDependOnTheLAC(t *testing.T) {
	k := newKit(t, 5)
	w := k.create(quorum(3, 3, 2), 10, "bk1", "bk2")
	k.members[1].stop()
	k.append(w, 10, 11) // changes the ensemble; nothing after it says that 10 is confirmed
	k.eventually("the ensemble has changed", func() bool { return len(k.record(w.ID()).Fragments) == 2 })
	m := k.record(w.ID())
	k.node("n1", workerOnly)
	k.mark(w.ID(), "bk1")
	k.unmarked()
	after := k.record(w.ID())
	require.Equal(t, ledger.StateOpen, after.State)
	require.False(t, after.Names("bk1"))
	copies, err := k.client.Copies(w.ID(), after)
	require.NoError(t, err)
	for e := range m.Fragments[1].First {
		for _, b := range after.Fragments[0].Bookies {
			_, answer, err := copies.Read(k.ctx(), b, e)
			require.Equal(t, ledger.AnswerOK, answer, "entry %d on %s: %v", e, b, err)
		}
	}
	require.NoError(t, w.Close(k.ctx()))
	k.check(w.ID(), 11)
}

func TestFiniteOutcomes(t *testing.T) {
	k := newKit(t, 3)
	single := k.closed(quorum(1, 1, 1), 5, "bk2")
	pair := k.closed(quorum(2, 2, 2), 5, "bk1", "bk2")
	deleted := k.closed(quorum(2, 2, 2), 5)
	require.NoError(t, k.client.Delete(k.ctx(), deleted))
	whole := k.closed(quorum(2, 2, 2), 5, "bk0", "bk1")
	k.members[2].stop()
	for _, id := range []ledger.ID{single, pair, deleted, whole, 1 << 40} {
		k.mark(id, "bk2")
	}
	n := k.node("n1", workerOnly)
	k.eventually("each has its outcome", func() bool {
		return n.outcomes(OutcomeSingle) >= 1 && n.outcomes(OutcomeGone) == 2 && n.outcomes(OutcomeRepaired) == 2
	})
	require.Equal(t, []ledger.ID{single}, keys(k.marks()), "it waits for its only copy")
	require.False(t, k.record(pair).Names("bk2"))
	require.NoError(t, k.members[2].start())
	k.unmarked()
	k.check(single, 5)
}

func keys(m map[ledger.ID][]ledger.BookieID) []ledger.ID {
	var out []ledger.ID
	for id := range m {
		out = append(out, id)
	}
	return out
}

// TestRepairableLedgersDoNotWaitForOthers: more ledgers that can not be repaired than a worker may hold do not keep it from
// the one that can.
func TestRepairableLedgersDoNotWaitForOthers(t *testing.T) {
	k := newKit(t, 3)
	for range 12 {
		k.closed(quorum(1, 1, 1), 1, "bk2")
	}
	good := k.closed(quorum(2, 2, 2), 5, "bk1", "bk2")
	k.members[2].stop()
	n := k.node("n1", patient, func(o *Options) { o.Parallel, o.InHand, o.FailedHold = 2, 4, time.Hour; o.private.noAuditor = true })
	require.NoError(t, n.auditor.auditBookies(k.ctx()))
	require.Len(t, k.marks(), 13)
	k.eventually("the good one is repaired", func() bool { return !k.record(good).Names("bk2") })
	k.eventually("each of the others was looked at", func() bool { return n.outcomes(OutcomeSingle) >= 12 })
	require.NoError(t, k.members[2].start())
	k.unmarked()
	k.check(good, 5)
}
