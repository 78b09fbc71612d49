package storage

import (
	"encoding/binary"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPutAndCachedReadDoNotAllocate(t *testing.T) {
	e := newEnv(t, 1, 1, func(o *Options) { o.WriteCacheBytes = 64 << 20 }).open()
	e.mustAdd(1, 0, 1024)
	l, err := e.s.Ledger(1, true)
	require.NoError(t, err)
	body := testBody(1, 0, -1, 1024, 0)
	entry := int64(1)
	put := testing.AllocsPerRun(5000, func() {
		binary.BigEndian.PutUint64(body[8:], uint64(entry))
		if err := l.Reserve(len(body), false, time.Second); err != nil {
			t.Fatal(err)
		}
		l.Lock()
		if l.Replica.CheckAdd(testKey, false, 0) != 0 {
			t.Fatal("refused")
		}
		if err := l.Put(entry, body); err != nil {
			t.Fatal(err)
		}
		l.Replica.Accept(testKey, false)
		l.Unlock()
		entry++
	})
	require.Zero(t, put, "allocations per put")
	dst := make([]byte, 0, 2048)
	at := int64(1)
	read := func() {
		var err error
		if dst, err = l.Read(at, dst); err != nil {
			t.Fatal(err)
		}
		if at++; at == 1000 {
			at = 1
		}
	}
	require.Zero(t, testing.AllocsPerRun(5000, read), "allocations per read from the write cache")
	e.checkpoint()
	for range 2000 {
		read()
	}
	require.Zero(t, testing.AllocsPerRun(5000, read), "allocations per read from the read cache, found by the overlay")
	e.roll()
	require.Zero(t, e.s.Stats().OverlayPages)
	for range 2000 {
		read()
	}
	e.s.cache.main.Wait()
	at = 1
	for range 60 {
		read()
	}
	at = 1
	few := func() {
		read()
		if at > 50 {
			at = 1
		}
	}
	require.Zero(t, testing.AllocsPerRun(5000, few), "allocations per read from the read cache, found by a hint")
	handles := testing.AllocsPerRun(5000, func() {
		h, err := e.s.Ledger(1, false)
		if err != nil {
			t.Fatal(err)
		}
		h.Release()
	})
	require.Zero(t, handles, "allocations per handle")
	l.Release()
	e.close()
}

// TestC57IdleLedgersCostLittle: 100,000 ledgers that were written once cost less than 200 bytes each, before and after
// their log is in the index.
func TestC57IdleLedgersCostLittle(t *testing.T) {
	ledgers := int64(100_000)
	if testing.Short() {
		ledgers = 30_000
	}
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	e := newEnv(t, 2, 1, func(o *Options) {
		o.WriteCacheBytes = 128 << 20
		o.Log.LogSize = 1 << 30
		o.Log.PreallocateSize = 1 << 20
		o.IdleLedgersMax = 0
		o.OnCheckpoint = nil
	}).open()
	before := heap()
	body := testBody(0, 0, -1, 40, 0)
	for id := range ledgers {
		binary.BigEndian.PutUint64(body, uint64(id))
		l, err := e.s.Ledger(id, true)
		require.NoError(t, err)
		require.NoError(t, l.Reserve(len(body), false, 10*time.Second))
		l.Lock()
		require.NoError(t, l.Put(0, body))
		l.Replica.Accept(testKey, false)
		l.StateChanged()
		l.Unlock()
		l.Release()
	}
	e.checkpoint()
	disk := uint64(capacityUsed(t, e)) // the file system is in memory, too
	perLedger := (int64(heap()) - int64(before) - int64(disk)) / ledgers
	st := e.s.Stats()
	t.Logf("%d bytes a ledger; %d handles, %d bytes of overlay in %d pages", perLedger, st.Handles, st.OverlayBytes, st.OverlayPages)
	if ledgers == 100_000 { // some handles are kept whatever the number
		require.Less(t, perLedger, int64(200))
	}
	require.LessOrEqual(t, st.Handles, 20_000)
	start := time.Now()
	n := int64(0)
	for after := int64(-1); ; {
		ids, err := e.s.Ledgers(after, 10_000)
		require.NoError(t, err)
		if len(ids) == 0 {
			break
		}
		n += int64(len(ids))
		after = ids[len(ids)-1]
	}
	require.Equal(t, ledgers, n)
	t.Logf("listed in %v", time.Since(start))
	require.Less(t, time.Since(start), 30*time.Second)
	for id := int64(0); id < ledgers; id += 997 {
		e.requireNo(id, 1, ErrNoEntry)
	}
	e.close()
}
