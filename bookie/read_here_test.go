package bookie

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/wire"
)

type blockTask chan struct{}

func (t blockTask) run(*worker) { <-t }

// TestCachedReadsNeedNoWorker: entries in the write cache, in the log that is being written and in the read cache are answered
// while every worker waits for a disk; what needs one waits.
func TestCachedReadsNeedNoWorker(t *testing.T) {
	b := startBookie(t, bookieConfig{mod: func(o *Options) { o.ReadWorkers = 1; o.Storage.FlushInterval = time.Hour }})
	require.NoError(t, b.eng.st.Checkpoint(t.Context())) // the one that a start begins takes no entries along
	c, c3 := b.dial(), b.dial()
	for e := range int64(20) {
		c.add(1, e, "entry")
	}
	// The LAC of a ledger is known once it has been asked for.
	require.Equal(t, wire.OK, c3.read(wire.V3, 1, 5).Code)
	blocked := make(blockTask)
	unblock := sync.OnceFunc(func() { close(blocked) })
	t.Cleanup(func() { unblock() })
	b.srv.reads.submit(blocked, laneOrdinary)
	require.Eventually(t, func() bool { n, _ := b.srv.reads.queued(); return n == 0 }, 30*time.Second, time.Millisecond)
	cached := func(where string) {
		t.Helper()
		for e := range int64(20) {
			require.Equal(t, body(1, e, e-1, "entry"), c.read(wire.V2, 1, e).Body, where)
		}
		r := c3.read(wire.V3, 1, 7)
		require.Equal(t, body(1, 7, 6, "entry"), r.Body, where)
		require.True(t, r.HasMaxLAC, where)
		require.EqualValues(t, 18, r.MaxLAC, where)
	}
	cached("write cache")
	require.NoError(t, b.eng.st.Checkpoint(t.Context()))

	// Flushed now, and read once by a worker, it is in the read cache.
	unblock()
	for e := range int64(20) {
		require.Equal(t, wire.OK, c.read(wire.V2, 1, e).Code)
	}
	blocked = make(blockTask)
	unblock = sync.OnceFunc(func() { close(blocked) })
	b.srv.reads.submit(blocked, laneOrdinary)
	require.Eventually(t, func() bool { n, _ := b.srv.reads.queued(); return n == 0 }, 30*time.Second, time.Millisecond)
	cached("read cache")
	hits := b.eng.figures.Dirs()[0].ReadCacheHits
	require.Greater(t, hits, uint64(20))

	// An entry that is not there is nobody's to deny without the index, and neither is an unknown ledger.
	other := b.dial()
	other.write(encode(t, wire.Request{Proto: wire.V2, Op: wire.OpRead, Ledger: 1, Entry: 99}))
	other.silent(50 * time.Millisecond)
	cached("beside a read that waits")
	unblock()
	require.Equal(t, wire.NoEntry, other.recv(wire.V2).Code)
	require.Equal(t, wire.NoLedger, other.read(wire.V2, 77, 0).Code)
}

// TestCachedReadsStopForASlowPeer: a peer that takes nothing does not fill the memory with cached reads.
func TestCachedReadsStopForASlowPeer(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	c := b.dial()
	big := string(make([]byte, 200<<10))
	for e := range int64(10) {
		c.add(1, e, big)
	}
	slow := b.dial()
	frame := encode(t, wire.Request{Proto: wire.V2, Op: wire.OpRead, Ledger: 1, Entry: 3})
	var frames []byte
	for range 500 { // 100 MB of answers
		frames = append(frames, frame...)
	}
	slow.write(frames)
	require.Never(t, func() bool { return b.srv.budget.used.Load() > 10<<20 }, 300*time.Millisecond, time.Millisecond)
	for range 500 {
		require.Greater(t, len(slow.recv(wire.V2).Body), len(big))
	}
	require.Equal(t, wire.OK, c.read(wire.V2, 1, 3).Code)
}
