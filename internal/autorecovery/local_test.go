package autorecovery

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/bookie"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/ledgerclient"
)

// TestScrubFindsBitRotAndRepairsIt: a flipped bit on disk is found by reading everything, and the entry is written anew with
// what a peer has.
func TestScrubFindsBitRotAndRepairsIt(t *testing.T) {
	k := newKit(t, 3, func(o *bookie.Options) { o.Storage.ReadCacheBytes = 1 << 16 })
	id := k.closed(quorum(3, 3, 2), 300)
	m := k.members[1]
	require.NoError(t, m.b.Flush(k.ctx()))
	flipped := false
	for _, f := range m.fs.Files() {
		if strings.HasPrefix(f, "/ledgers/") && !strings.Contains(f, "index") && m.fs.FlipBit(f, 8*40_000) == nil {
			flipped = true
		}
	}
	require.True(t, flipped, "%v", m.fs.Files())
	n := k.node("n1", neither, func(o *Options) {
		o.Local, o.ScrubEvery, o.ScrubRate = []LocalBookie{m.b}, 50*time.Millisecond, 1<<30
	})
	k.eventually("damage is found", func() bool { return n.metric("bindery_scrub_errors_total") >= 1 })
	k.eventually("and repaired", func() bool {
		list, _ := m.b.Damaged()
		return n.metric("bindery_scrub_repaired_total") >= 1 && len(list) == 0
	})
	k.check(id, 300)
	require.Positive(t, n.metric("bindery_scrub_bytes_total"))
	require.Empty(t, k.marks())
}

// TestEmptiedBookieGetsItsCopiesBack: decision 34: a bookie that lost its disk is a target for its own places, also in a
// cluster without spare bookies; its ledgers leave limbo when everything is there, open ones after they were recovered.
func TestEmptiedBookieGetsItsCopiesBack(t *testing.T) {
	k := newKit(t, 3)
	closed := k.closed(quorum(3, 3, 2), 50)
	striped := k.closed(quorum(3, 2, 2), 50)
	open := k.create(quorum(3, 3, 3), 20)
	m := k.members[1]
	m.stop()
	m.wipe()
	require.NoError(t, m.start())
	ids, err := m.b.Limbo(-1, 100)
	require.NoError(t, err)
	require.Len(t, ids, 3)
	n := k.node("n1", patient, func(o *Options) { o.Local = []LocalBookie{m.b} })
	k.eventually("no ledger is in limbo", func() bool {
		ids, err := m.b.Limbo(-1, 100)
		require.NoError(t, err)
		return len(ids) == 0
	})
	k.unmarked()
	k.counted(n, "bindery_limbo_ended_total", 3.0)
	for id, entries := range map[ledger.ID]int{closed: 50, striped: 50, open.ID(): 20} {
		require.True(t, k.record(id).Names("bk1"))
		k.check(id, entries)
	}
	_, err = open.Append(k.ctx(), []byte("late"))
	require.ErrorIs(t, err, ledgerclient.ErrFenced)
}

// TestRateBoundsCopying: many ledgers at once keep to the rate together.
func TestRateBoundsCopying(t *testing.T) {
	k := newKit(t, 4)
	for range 6 {
		k.closed(quorum(3, 3, 2), 60, "bk1")
	}
	k.members[1].stop()
	n := k.node("n1", func(o *Options) { o.Rate = 80 << 10 })
	started := time.Now()
	k.eventually("it copies", func() bool { return n.metric("replication_worker_NUM_BYTES_WRITTEN") > 0 })
	k.unmarked()
	bytes, took := n.metric("replication_worker_NUM_BYTES_WRITTEN"), time.Since(started).Seconds()
	require.Less(t, bytes/(took+0.5), 1.2*(80<<10), "%v bytes in %v s", bytes, took)
}

// TestRotIsRepairedFromAnotherProcess: a bookie whose process has no scrubber leaves a damaged entry out of what it says it
// has, so that a worker of another process gives it back; once it is written anew it is listed again.
func TestRotIsRepairedFromAnotherProcess(t *testing.T) {
	k := newKit(t, 3, func(o *bookie.Options) { o.Storage.ReadCacheBytes = 1 << 16 })
	id := k.closed(quorum(3, 3, 2), 300)
	m := k.members[1]
	require.NoError(t, m.b.Flush(k.ctx()))
	for _, f := range m.fs.Files() {
		if strings.HasPrefix(f, "/ledgers/") && !strings.Contains(f, "index") {
			_ = m.fs.FlipBit(f, 8*40_000)
		}
	}
	n := k.node("n1", func(o *Options) { o.VerifyPercent = 100 })
	k.eventually("damage is found and repaired", func() bool { return n.metric("replication_worker_NUM_ENTRIES_WRITTEN") >= 1 })
	k.unmarked()
	k.check(id, 300)
	list, _ := m.b.Damaged()
	require.Empty(t, list)
}
