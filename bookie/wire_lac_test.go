package bookie

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/wire"
)

// poll3 is a piggy-backing long poll.
func poll3(l, previous, millis int64) wire.Request {
	return wire.Request{
		Proto: wire.V3, Op: wire.OpRead, TxnID: 77, Ledger: l, Entry: -1, Piggyback: true,
		PreviousLAC: previous, HasPreviousLAC: true, TimeoutMillis: millis, HasTimeout: true,
	}
}

func writeLAC(l, lac int64) wire.Request {
	return wire.Request{Proto: wire.V3, Op: wire.OpWriteLAC, Ledger: l, LAC: lac, Key: keyK, Body: crc.SealLAC(nil, l, lac)}
}

func TestWire52ExplicitLAC(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	c := b.dial()
	require.Equal(t, wire.OK, c.do(writeLAC(1, 17)).Code)
	check := func(b *testBookie) {
		r := b.dial().do(wire.Request{Proto: wire.V3, Op: wire.OpReadLAC, Ledger: 1})
		require.Equal(t, wire.OK, r.Code, "also without an entry")
		require.Equal(t, crc.SealLAC(nil, 1, 17), r.LACBody)
		require.Nil(t, r.LastEntryBody)
	}
	check(b)
	b = startBookie(t, bookieConfig{fs: b.crash()})
	check(b)
	b = b.restart(bookieConfig{})
	check(b)
	require.Equal(t, wire.OK, b.dial().do(writeLAC(1, 12)).Code, "an older one is taken and ignored")
	check(b)
	r := addReq(wire.V3, 1, 3, 2, "x")
	require.Equal(t, wire.OK, b.dial().do(r).Code)
	require.Equal(t, int64(17), b.dial().read(wire.V3, 1, 3).MaxLAC)
}

func TestWire53And54ReadLAC(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	c := b.dial()
	require.Equal(t, wire.NoEntry, c.do(wire.Request{Proto: wire.V3, Op: wire.OpReadLAC, Ledger: 404}).Code)
	b.dial().fence(wire.V2, 2, keyK)
	require.Equal(t, wire.NoEntry, c.do(wire.Request{Proto: wire.V3, Op: wire.OpReadLAC, Ledger: 2}).Code)
	b.dial().add(1, 0, "a")
	b.dial().add(1, 5, "b")
	r := c.do(wire.Request{Proto: wire.V3, Op: wire.OpReadLAC, Ledger: 1})
	require.Equal(t, wire.OK, r.Code)
	require.Equal(t, body(1, 5, 4, "b"), r.LastEntryBody)
	require.Nil(t, r.LACBody)
}

func TestWire55WriteLACRefusals(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	b.dial().add(1, 0, "a")
	c := b.dial()
	r := writeLAC(1, 0)
	r.Key = keyX
	require.Equal(t, wire.UA, c.do(r).Code)
	b.dial().fence(wire.V2, 1, keyK)
	require.Equal(t, wire.OK, c.do(writeLAC(1, 0)).Code, "on a fenced ledger")
	b.state.set(ReasonOperator, true, "")
	require.Equal(t, wire.ReadOnly, c.do(writeLAC(1, 1)).Code)
	r = writeLAC(1, 1)
	r.Flags = wire.HighPriority
	require.Equal(t, wire.ReadOnly, c.do(r).Code, "priority is no exemption")
}

func TestWire56LongPollWithProgress(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	c := b.dial()
	for e := range int64(6) {
		c.add(1, e, "x")
	}
	b = b.restart(bookieConfig{}) // nothing about the ledger is in memory
	c = b.dial()
	r := c.do(poll3(1, 2, 3_600_000)) // far longer than an answer is waited for
	require.Equal(t, wire.OK, r.Code)
	require.Equal(t, int64(3), r.Entry)
	require.Equal(t, body(1, 3, 2, "x"), r.Body)
	require.Equal(t, int64(4), r.MaxLAC)
	require.False(t, r.HasLACUpdate, "nothing was waited for")

	// Without a timeout it is evaluated at once.
	p := poll3(1, 9, 0)
	p.HasTimeout = false
	r = c.do(p)
	require.Equal(t, wire.OK, r.Code)
	require.Equal(t, int64(-1), r.Entry)
	require.Nil(t, r.Body)

	// Without the piggyback flag it is a read that waits.
	p = poll3(1, 2, 3_600_000)
	p.Piggyback, p.Entry = false, 1
	r = c.do(p)
	require.Equal(t, body(1, 1, 0, "x"), r.Body)
	require.Equal(t, int64(4), r.MaxLAC)
}

func TestWire56LongPollWokenByAdd(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	w := b.dial()
	w.add(1, 0, "x")
	c := b.dial()
	c.write(encode(t, poll3(1, 0, 3_600_000)))
	c.silent(50 * time.Millisecond)
	w.add(1, 1, "y") // LAC 0: not enough
	c.silent(50 * time.Millisecond)
	w.add(1, 2, "z") // LAC 1
	r := c.recv(wire.V3)
	require.Equal(t, wire.OK, r.Code)
	require.Equal(t, int64(1), r.Entry)
	require.Equal(t, body(1, 1, 0, "y"), r.Body)
	require.True(t, r.HasLACUpdate)
	require.InDelta(t, time.Now().UnixMilli(), r.LACUpdateTimestamp, 60_000)

	c.write(encode(t, poll3(1, 1, 3_600_000)))
	c.silent(50 * time.Millisecond)
	require.Equal(t, wire.OK, b.dial().do(writeLAC(1, 2)).Code)
	r = c.recv(wire.V3)
	require.Equal(t, int64(2), r.Entry)
	require.Equal(t, body(1, 2, 1, "z"), r.Body)

	// The LAC is beyond what is stored here: no body.
	c.write(encode(t, poll3(1, 5, 3_600_000)))
	require.Equal(t, wire.OK, b.dial().do(writeLAC(1, 9)).Code)
	r = c.recv(wire.V3)
	require.Equal(t, wire.OK, r.Code)
	require.Equal(t, int64(-1), r.Entry)
	require.Nil(t, r.Body)
	require.Equal(t, int64(9), r.MaxLAC)
	require.Zero(t, b.srv.polls.Load())
}

func TestWire57LongPollWithoutProgress(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	b.dial().add(1, 0, "x")
	c := b.dial()
	best := time.Hour
	for range 10 { // a busy machine may be late
		start := time.Now()
		r := c.do(poll3(1, 0, 300))
		took := time.Since(start)
		require.Equal(t, wire.OK, r.Code)
		require.Nil(t, r.Body)
		require.Equal(t, int64(-1), r.Entry)
		require.True(t, r.HasMaxLAC)
		require.Equal(t, int64(-1), r.MaxLAC)
		require.False(t, r.HasLACUpdate)
		require.GreaterOrEqual(t, took, 300*time.Millisecond)
		if best = min(best, took); best < 350*time.Millisecond {
			break
		}
	}
	require.Less(t, best, 10*time.Second)
	require.Zero(t, b.srv.polls.Load())
}

func TestWire58PiggybackOfAnEntry(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	b.dial().add(1, 0, "x")
	r := poll3(1, 0, 10_000)
	r.Entry = 0
	require.Equal(t, wire.BadReq, b.dial().do(r).Code)
}

func TestWire59LongPollOfAnUnknownLedger(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	require.Equal(t, wire.NoLedger, b.dial().do(poll3(404, 0, 3_600_000)).Code)
}

func TestLongPollsEndWithTheirConnection(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	b.dial().add(1, 0, "x")
	c := b.dial()
	for i := range 100 {
		r := poll3(1, 0, 3_600_000)
		r.TxnID = uint64(i)
		c.write(encode(t, r))
	}
	require.Eventually(t, func() bool { return b.srv.polls.Load() == 100 }, 30*time.Second, time.Millisecond)
	_ = c.c.Close()
	require.Eventually(t, func() bool { return b.srv.polls.Load() == 0 }, 30*time.Second, time.Millisecond)
	c = b.dial()
	c.write(encode(t, poll3(1, 0, 3_600_000)))
	require.Eventually(t, func() bool { return b.srv.polls.Load() == 1 }, 30*time.Second, time.Millisecond)
	b.stop() // does not wait for long polls
	c.closed()
}
