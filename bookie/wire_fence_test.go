package bookie

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/wire"
)

// TestWire43And44FenceOfAnUnknownLedger: the fence is durable when the answer is there, though there is no entry.
func TestWire43And44FenceOfAnUnknownLedger(t *testing.T) {
	for _, p := range protos {
		b := startBookie(t, bookieConfig{})
		c := b.dial()
		require.Equal(t, wire.NoEntry, c.fence(p, 7, keyK).Code)
		require.Equal(t, wire.Fenced, c.do(addReq(p, 7, 0, -1, "late")).Code)
		b = startBookie(t, bookieConfig{fs: b.crash()})
		c = b.dial()
		require.Equal(t, wire.Fenced, c.do(addReq(p, 7, 0, -1, "late")).Code)
		r := addReq(p, 7, 0, -1, "late")
		r.Key = keyX
		require.Equal(t, wire.UA, c.do(r).Code, "the key was bound by the fence")
		require.Equal(t, wire.NoEntry, c.fence(p, 7, keyK).Code)
	}
}

func TestWire45FenceWithEntries(t *testing.T) {
	for _, p := range protos {
		b := startBookie(t, bookieConfig{})
		c := b.dial()
		c.add(1, 0, "a")
		c.add(1, 1, "b")
		c = b.dial()
		r := c.fence(p, 1, keyK)
		require.Equal(t, wire.OK, r.Code)
		require.Equal(t, int64(-1), r.Entry)
		require.Equal(t, body(1, 1, 0, "b"), r.Body)
		b = startBookie(t, bookieConfig{fs: b.crash()})
		require.Equal(t, wire.Fenced, b.dial().do(addReq(p, 1, 2, 1, "late")).Code)
	}
}

func TestWire46And47FenceNeedsTheKey(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	c := b.dial()
	c.add(1, 0, "a")
	c3 := b.dial()
	require.Equal(t, wire.UA, c3.fence(wire.V3, 1, nil).Code)
	require.Equal(t, wire.UA, c3.fence(wire.V3, 404, nil).Code)
	// Version 1 has no key to give.
	f := make([]byte, 24)
	f[3] = 20
	copy(f[4:], []byte{1, 2, 0, 1})
	f[15] = 1
	c.write(f)
	r := c.recv(wire.V2)
	require.Equal(t, wire.UA, r.Code)
	for _, p := range protos {
		require.Equal(t, wire.UA, b.dial().fence(p, 1, keyX).Code)
	}
	c.add(1, 1, "not fenced")
	require.Equal(t, wire.NoLedger, c.read(wire.V2, 404, 0).Code, "a refused fence creates nothing")
}

func TestWire48FenceTwice(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	b.dial().add(1, 0, "a")
	for _, p := range protos {
		c := b.dial()
		first := c.fence(p, 1, keyK)
		second := c.fence(p, 1, keyK)
		second.TxnID = first.TxnID
		require.Equal(t, first.Code, second.Code)
		require.Equal(t, first.Body, second.Body)
		require.Equal(t, wire.NoEntry, c.fence(p, 9, keyK).Code)
		require.Equal(t, wire.NoEntry, c.fence(p, 9, keyK).Code)
	}
}

// A second fencing read that finds the fence set, but not durable yet, waits for it too.
func TestWire48SecondFenceWaitsForTheFirst(t *testing.T) {
	fs := newStallFS(newMemFS(), "/journal/")
	b := startBookie(t, bookieConfig{fs: fs})
	b.dial().add(1, 0, "a")
	fs.stall(true)
	defer fs.stall(false)
	req := encode(t, wire.Request{Op: wire.OpRead, Ledger: 1, Entry: -1, Flags: wire.Fence, Key: keyK})
	c1, c2 := b.dial(), b.dial()
	c1.write(req)
	require.Eventually(t, func() bool { return b.srv.fences.has(1) }, 30*time.Second, time.Millisecond)
	c2.write(req)
	c2.silent(100 * time.Millisecond)
	c1.silent(10 * time.Millisecond)
	require.Equal(t, wire.Fenced, b.dial().do(addReq(wire.V2, 1, 1, 0, "late")).Code, "adds are refused from the first moment on")
	fs.stall(false)
	require.Equal(t, body(1, 0, -1, "a"), c1.recv(wire.V2).Body)
	require.Equal(t, body(1, 0, -1, "a"), c2.recv(wire.V2).Body)
	require.Eventually(t, func() bool { return !b.srv.fences.has(1) }, 30*time.Second, time.Millisecond)
}

func TestWire49FenceOnReadOnlyBookie(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	b.state.set(ReasonOperator, true, "")
	b.state.setRecoveryRoom(false)
	require.Equal(t, wire.NoEntry, b.dial().fence(wire.V2, 1, keyK).Code)
	b = startBookie(t, bookieConfig{fs: b.crash()})
	require.Equal(t, wire.Fenced, b.dial().do(addReq(wire.V2, 1, 0, -1, "x")).Code)
}

func TestWire50StoredBeforeTheFenceIsVisible(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	c := b.dial()
	var out []byte
	for e := range int64(100) {
		out = append(out, encode(t, addReq(wire.V2, 1, e, e-1, "x"))...)
	}
	out = append(out, encode(t, wire.Request{Op: wire.OpRead, Ledger: 1, Entry: -1, Flags: wire.Fence, Key: keyK})...)
	c.write(out)
	added := 0
	for range 101 {
		r := c.recv(wire.V2)
		require.Equal(t, wire.OK, r.Code)
		if r.Op == wire.OpRead {
			require.Equal(t, body(1, 99, 98, "x"), r.Body)
		} else {
			added++
		}
	}
	require.Equal(t, 100, added)
	require.Equal(t, wire.OK, b.dial().read(wire.V2, 1, 99).Code)
}

func TestWire51FenceEndsLongPoll(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	b.dial().add(1, 0, "a")
	c := b.dial()
	c.write(encode(t, poll3(1, 5, 3_600_000))) // far longer than an answer is waited for
	c.silent(50 * time.Millisecond)
	require.Equal(t, wire.OK, b.dial().fence(wire.V2, 1, keyK).Code)
	require.Equal(t, wire.OK, c.recv(wire.V3).Code)
	// Fenced already: at once.
	require.Equal(t, wire.OK, b.dial().do(poll3(1, 5, 3_600_000)).Code)
}

// TestC32TwoHandlesForOneLedger: after a restart many first touch a ledger at once; after the fence's answer nothing is
// acknowledged any more.
func TestC32TwoHandlesForOneLedger(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	c := b.dial()
	for l := range int64(8) {
		c.add(l, 0, "a")
	}
	b = b.restart(bookieConfig{})
	for l := range int64(8) {
		var fenced atomic.Int64 // time of the fence's answer
		var wg sync.WaitGroup
		begin := make(chan struct{})
		for g := range 64 {
			c := b.dial()
			wg.Go(func() {
				<-begin
				if g == 20 {
					if r := c.fence(wire.V2, l, keyK); r.Code != wire.OK {
						t.Errorf("fence: %s", r.Code)
					}
					fenced.Store(now())
					return
				}
				for e := int64(1); e < 20; e++ {
					sent := now()
					r := c.do(addReq(wire.V2, l, int64(g)*100+e, -1, "b"))
					if at := fenced.Load(); r.Code == wire.OK && at != 0 && sent > at {
						t.Errorf("add sent %d ns after the fence's answer was acknowledged", sent-at)
					}
				}
			})
		}
		close(begin)
		wg.Wait()
		require.Equal(t, wire.Fenced, b.dial().do(addReq(wire.V2, l, 9999, -1, "late")).Code)
	}
}

// TestC33FenceForgottenByACrash: power is lost right after the answer, many times, at changing load.
func TestC33FenceForgottenByACrash(t *testing.T) {
	fs := newMemFS()
	for round := range int64(6) {
		b := startBookie(t, bookieConfig{fs: fs})
		c := b.dial()
		for l := range round {
			require.Equal(t, wire.Fenced, b.dial().do(addReq(wire.V2, l*2, 50, 0, "late")).Code, "fence of ledger %d, round %d", l*2, round)
			require.Equal(t, wire.Fenced, b.dial().do(addReq(wire.V2, l*2+1, 50, 0, "late")).Code)
		}
		for e := range round * 10 {
			c.add(round*2, e, "x")
		}
		require.Contains(t, []wire.Code{wire.OK, wire.NoEntry}, c.fence(wire.V2, round*2, keyK).Code)
		require.Equal(t, wire.NoEntry, c.fence(wire.V2, round*2+1, keyK).Code)
		fs = b.crash()
	}
}
