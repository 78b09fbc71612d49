package bookie

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/wire"
)

// fakeRecords answers the question about ledgers' records.
type fakeRecords struct {
	open, here atomic.Bool
	down       atomic.Bool
	asked      atomic.Int64
	hold       chan struct{} // not nil: answers wait for it
}

func (f *fakeRecords) check(ctx context.Context, id int64) (bool, bool, error) {
	f.asked.Add(1)
	if f.hold != nil {
		select {
		case <-f.hold:
		case <-ctx.Done():
			return false, false, ctx.Err()
		}
	}
	if f.down.Load() {
		return false, false, errors.New("the store can not be reached")
	}
	return f.open.Load(), f.here.Load(), nil
}

// TestUnverifiedLedgers (decision 36): on a bookie that lost something, the first normal add to a ledger reads its record.
func TestUnverifiedLedgers(t *testing.T) {
	f := &fakeRecords{}
	b := startBookie(t, bookieConfig{check: f.check, lossEpoch: 3})
	c := b.dial()
	f.down.Store(true)
	require.Equal(t, wire.TooMany, c.do(addReq(wire.V2, 1, 0, -1, "x")).Code)
	f.down.Store(false)
	require.Equal(t, wire.Fenced, c.do(addReq(wire.V2, 1, 0, -1, "x")).Code, "not open")
	r := addReq(wire.V2, 1, 5, -1, "recovery")
	r.Flags = wire.RecoveryAdd
	before := f.asked.Load()
	require.Equal(t, wire.OK, c.do(r).Code)
	require.Equal(t, before, f.asked.Load(), "recovery adds ask nothing")
	c3 := b.dial()
	require.Equal(t, wire.IO, c3.do(wire.Request{Proto: wire.V3, Op: wire.OpForce, Ledger: 1}).Code, "nothing vouches for what was there")

	f.open.Store(true)
	require.Equal(t, wire.OK, c.do(addReq(wire.V2, 1, 0, -1, "x")).Code)
	asked := f.asked.Load()
	for e := int64(1); e < 4; e++ {
		require.Equal(t, wire.OK, c.do(addReq(wire.V2, 1, e, -1, "x")).Code)
	}
	require.Equal(t, asked, f.asked.Load(), "verified once")
	require.Equal(t, wire.OK, c3.do(wire.Request{Proto: wire.V3, Op: wire.OpForce, Ledger: 1}).Code)

	b = startBookie(t, bookieConfig{fs: b.crash(), check: f.check, lossEpoch: 3})
	require.Equal(t, wire.OK, b.dial().do(addReq(wire.V2, 1, 9, -1, "x")).Code)
	require.Equal(t, asked, f.asked.Load(), "durably")
	b.stop()
	b = startBookie(t, bookieConfig{fs: b.fs, check: f.check, lossEpoch: 4})
	require.Equal(t, wire.OK, b.dial().do(addReq(wire.V2, 1, 10, -1, "x")).Code)
	require.Equal(t, asked+1, f.asked.Load(), "again after the next loss")
}

// TestTombstones (decision 36): an add to a ledger that was deleted here is taken only if the record is open and names
// this bookie; a recovery add or a fence brings the ledger back fenced.
func TestTombstones(t *testing.T) {
	f := &fakeRecords{}
	b := startBookie(t, bookieConfig{check: f.check})
	c := b.dial()
	for l := int64(1); l <= 3; l++ {
		c.add(l, 0, "x")
	}
	deleteAll := func(ids ...int64) {
		for _, id := range ids {
			g, ok, err := b.eng.st.Generation(id)
			require.NoError(t, err)
			require.True(t, ok)
			n, err := b.eng.st.Delete(context.Background(), []int64{id}, []uint32{g})
			require.NoError(t, err)
			require.Equal(t, 1, n)
		}
	}
	deleteAll(1, 2, 3)
	require.Equal(t, wire.NoLedger, c.read(wire.V2, 1, 0).Code)
	require.Equal(t, wire.Fenced, c.do(addReq(wire.V2, 1, 1, 0, "late")).Code)
	f.open.Store(true)
	require.Equal(t, wire.Fenced, c.do(addReq(wire.V2, 1, 1, 0, "late")).Code, "open, but elsewhere")
	require.Equal(t, wire.NoLedger, b.dial().do(writeLAC(1, 0)).Code)

	r := addReq(wire.V2, 2, 1, 0, "copy")
	r.Flags = wire.RecoveryAdd
	require.Equal(t, wire.OK, c.do(r).Code)
	require.Equal(t, wire.Fenced, c.do(addReq(wire.V2, 2, 2, 1, "late")).Code)
	require.Equal(t, wire.NoEntry, c.fence(wire.V2, 3, keyK).Code)
	require.Equal(t, wire.Fenced, c.do(addReq(wire.V2, 3, 2, 1, "late")).Code)

	b = startBookie(t, bookieConfig{fs: b.crash(), check: f.check})
	c = b.dial()
	require.Equal(t, wire.NoLedger, c.read(wire.V2, 1, 0).Code, "deleted entries do not come back")
	require.Equal(t, wire.NoEntry, c.read(wire.V2, 2, 0).Code)
	require.Equal(t, body(2, 1, 0, "copy"), c.read(wire.V2, 2, 1).Body)
	for _, l := range []int64{2, 3} {
		require.Equal(t, wire.Fenced, c.do(addReq(wire.V2, l, 2, 1, "late")).Code)
	}
	require.Equal(t, wire.Fenced, c.do(addReq(wire.V2, 1, 1, 0, "late")).Code)
	f.here.Store(true)
	require.Equal(t, wire.OK, c.do(addReq(wire.V2, 1, 1, 0, "created again under its id")).Code)
}

// A metadata store that hangs holds up the adds that need it and nothing else, and a fence that comes meanwhile holds.
func TestVerificationHoldsUpNothingElse(t *testing.T) {
	f := &fakeRecords{hold: make(chan struct{})}
	f.open.Store(true)
	b := startBookie(t, bookieConfig{check: f.check, lossEpoch: 3})
	c := b.dial()
	const n = 300
	for e := range int64(n) {
		c.write(encode(t, addReq(wire.V2, 1, e, -1, "x")))
	}
	c.write(encode(t, wire.Request{Op: wire.OpRead, Ledger: 404}))
	require.Equal(t, wire.NoLedger, c.recv(wire.V2).Code, "the same connection goes on")
	require.Eventually(t, func() bool { return f.asked.Load() == 1 }, 30*time.Second, time.Millisecond)
	require.Equal(t, wire.NoEntry, b.dial().fence(wire.V2, 1, keyK).Code)
	close(f.hold)
	for range n {
		require.Equal(t, wire.Fenced, c.recv(wire.V2).Code)
	}
	require.Equal(t, int64(1), f.asked.Load(), "one read for all of them")
	require.Eventually(t, func() bool { return b.srv.used() <= bufSmall }, 30*time.Second, time.Millisecond)
}

// A stop does not wait for a metadata store that hangs.
func TestStopWithAddsInVerification(t *testing.T) {
	for range 10 { // on a slow machine the question may end by its own time-out before the stop comes
		f := &fakeRecords{hold: make(chan struct{})}
		asked := make(chan error, 1)
		b := startBookie(t, bookieConfig{lossEpoch: 3, check: func(ctx context.Context, id int64) (bool, bool, error) {
			open, here, err := f.check(ctx, id)
			asked <- err
			return open, here, err
		}})
		c := b.dial()
		c.write(encode(t, addReq(wire.V2, 1, 0, -1, "x")))
		require.Eventually(t, func() bool { return f.asked.Load() == 1 }, 30*time.Second, time.Millisecond)
		b.stop()
		if err := <-asked; errors.Is(err, context.Canceled) {
			return
		}
	}
	t.Fatal("each stop waited until the question timed out")
}
