package autorecovery

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
)

func patient(o *Options) { o.LostBookieDelay = time.Hour }

func (k *kit) elected(n *node) {
	k.t.Helper()
	k.eventually("an auditor that has looked around", func() bool {
		return n.Status().Auditor && n.metric("bindery_auditor_bookies") >= 1 &&
			(n.o.LostBookieDelay > 0 || n.metric("auditor_AUDIT_BOOKIES_TIME_count") >= 1)
	})
}

func TestR1BookieLostAndBackWithinTheDelay(t *testing.T) {
	k := newKit(t, 4)
	k.closed(quorum(3, 3, 2), 5, "bk1")
	n := k.node("n1", auditorOnly, patient)
	k.elected(n)
	k.members[1].stop()
	k.eventually("the audit is delayed", func() bool { return n.metric("auditor_NUM_BOOKIE_AUDITS_DELAYED") == 1 })
	require.NoError(t, k.members[1].start())
	k.eventually("it is cancelled", func() bool { return n.metric("auditor_NUM_DELAYED_BOOKIE_AUDITS_CANCELLED") == 1 })
	require.Empty(t, k.marks(), "nothing was marked")
	require.Zero(t, n.metric("bindery_auditor_audits_total"))
}

func TestR2TwoBookiesLost(t *testing.T) {
	k := newKit(t, 4)
	both := k.closed(quorum(3, 3, 2), 5, "bk1", "bk2")
	one := k.closed(quorum(2, 2, 2), 5, "bk1", "bk0")
	none := k.closed(quorum(2, 2, 2), 5, "bk0", "bk3")
	open := k.create(quorum(2, 2, 2), 5, "bk2", "bk3")
	n := k.node("n1", auditorOnly, patient)
	k.elected(n)
	k.members[1].stop()
	k.eventually("the audit is delayed", func() bool { return n.metric("auditor_NUM_BOOKIE_AUDITS_DELAYED") == 1 })
	k.members[2].stop()
	k.eventually("all are marked at once", func() bool { return len(k.marks()) == 3 })
	require.Equal(t, map[ledger.ID][]ledger.BookieID{both: {"bk1", "bk2"}, one: {"bk1"}, open.ID(): {"bk2"}}, k.marks())
	require.NotContains(t, k.marks(), none)
}

func TestR3SameDelayWritten(t *testing.T) {
	k := newKit(t, 4)
	id := k.closed(quorum(3, 3, 2), 5, "bk1")
	n := k.node("n1", auditorOnly, patient)
	k.elected(n)
	k.members[1].stop()
	k.eventually("the audit is delayed", func() bool { return n.metric("auditor_NUM_BOOKIE_AUDITS_DELAYED") == 1 })
	require.Empty(t, k.marks())
	require.NoError(t, k.views.Replication.SetDelay(k.ctx(), time.Hour, false))
	k.eventually("audited at once", func() bool { return len(k.marks()) == 1 })
	require.Contains(t, k.marks(), id)
	k.eventually("the audit has ended", func() bool { return n.metric("auditor_AUDIT_BOOKIES_TIME_count") == 1 })
	time.Sleep(50 * time.Millisecond)
	require.Equal(t, 1.0, n.metric("bindery_auditor_audits_total"), "not run twice")
}

func TestR16AuditorsTakeOver(t *testing.T) {
	k := newKit(t, 3)
	first := k.node("n1", auditorOnly)
	k.elected(first)
	second := k.node("n2", auditorOnly)
	name, err := k.views.Election.Current(k.ctx())
	require.NoError(t, err)
	require.Equal(t, "n1", name)
	require.False(t, second.Status().Auditor)
	require.True(t, first.store.ExpireSession(), "its session is lost; the process lives on")
	k.elected(second)
	name, err = k.views.Election.Current(k.ctx())
	require.NoError(t, err)
	require.Equal(t, "n2", name)
	k.eventually("the first one stands down", func() bool { return !first.Status().Auditor })
	second.stop()
	k.eventually("the first one is elected again", func() bool { return first.Status().Auditor })
}

// TestSwitchedOff: nothing is noticed, marked or taken while the switch is off, and everything when it is on again.
func TestSwitchedOff(t *testing.T) {
	k := newKit(t, 4)
	id := k.closed(quorum(3, 3, 2), 5, "bk1")
	n := k.node("n1")
	k.elected(n)
	require.NoError(t, k.views.Replication.SetEnabled(k.ctx(), false))
	k.members[1].stop()
	k.mark(id, "bk1")
	time.Sleep(300 * time.Millisecond)
	require.Equal(t, map[ledger.ID][]ledger.BookieID{id: {"bk1"}}, k.marks())
	require.True(t, k.record(id).Names("bk1"))
	k.counted(n, "bindery_auditor_audits_total", 1.0)
	require.NoError(t, k.views.Replication.SetEnabled(k.ctx(), true))
	k.unmarked()
	require.False(t, k.record(id).Names("bk1"))
	k.check(id, 5)
}

// TestNothingIsMarkedWithoutBookies: a store that lost all sessions at once is no loss of data.
func TestNothingIsMarkedWithoutBookies(t *testing.T) {
	k := newKit(t, 3)
	k.closed(quorum(3, 3, 2), 5)
	n := k.node("n1", auditorOnly)
	k.elected(n)
	for _, m := range k.members {
		m.stop()
	}
	k.eventually("audited", func() bool { return n.metric("bindery_auditor_audits_total") >= 2 })
	for range 3 {
		require.NoError(t, k.views.Replication.SetDelay(k.ctx(), 0, false))
	}
	time.Sleep(100 * time.Millisecond)
	// While they went one by one, ledgers may have been marked; once all are gone, no audit marks anything.
	before := len(k.marks())
	require.NoError(t, k.views.Replication.SetDelay(k.ctx(), 0, false))
	time.Sleep(100 * time.Millisecond)
	require.Len(t, k.marks(), before)
}

// TestCheckOfAllLedgersFindsEmptiedBookies: a bookie that is up and lacks entries is found by reading them.
func TestCheckOfAllLedgersFindsEmptiedBookies(t *testing.T) {
	k := newKit(t, 3)
	id := k.closed(quorum(3, 3, 2), 20)
	k.closed(quorum(2, 2, 2), 0)
	k.members[1].stop()
	k.members[1].wipe()
	require.NoError(t, k.members[1].start())
	n := k.node("n1", auditorOnly, func(o *Options) { o.VerifyPercent = 100 })
	k.eventually("marked", func() bool { return len(k.marks()) == 1 })
	require.Equal(t, map[ledger.ID][]ledger.BookieID{id: {"bk1"}}, k.marks())
	k.eventually("remembered", func() bool {
		at, err := k.views.Replication.Checked(k.ctx(), metadata.CheckLedgers)
		require.NoError(t, err)
		return !at.IsZero()
	})
	require.GreaterOrEqual(t, n.metric("auditor_NUM_LEDGERS_CHECKED"), 2.0)
}

func TestCountReplicas(t *testing.T) {
	k := newKit(t, 3)
	k.closed(quorum(3, 3, 2), 10)        // loses one of three
	k.closed(quorum(2, 2, 2), 10, "bk1") // one of two: below its ack quorum
	k.closed(quorum(1, 1, 1), 10, "bk1") // its only one
	k.closed(quorum(2, 2, 2), 10, "bk0", "bk2")
	k.members[1].stop()
	n := k.node("n1", auditorOnly, patient, func(o *Options) {
		o.ReplicasCheck, o.BookieCheck, o.LedgerCheck = time.Hour, -1, -1
		o.private.noAuditor = true
	})
	require.NoError(t, n.auditor.countReplicas(k.ctx()))
	k.counted(n, "auditor_NUM_LEDGERS_HAVING_NO_REPLICA_OF_AN_ENTRY", 1.0)
	k.counted(n, "auditor_NUM_LEDGERS_HAVING_LESS_THAN_AQ_REPLICAS_OF_AN_ENTRY", 1.0)
	k.counted(n, "auditor_NUM_LEDGERS_HAVING_LESS_THAN_WQ_REPLICAS_OF_AN_ENTRY", 1.0)
	require.Empty(t, k.marks(), "it only counts")
}
