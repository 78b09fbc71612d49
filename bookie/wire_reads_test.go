package bookie

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/wire"
)

// readsBothWays runs fn on a bookie that has entries 0 to 9 and 20 in ledger 1, in memory and after they went to disk.
func readsBothWays(t *testing.T, fn func(t *testing.T, b *testBookie)) {
	b := startBookie(t, bookieConfig{})
	c := b.dial()
	for e := range int64(10) {
		c.add(1, e, fmt.Sprintf("entry %d", e))
	}
	c.add(1, 20, "entry 20")
	require.Equal(t, wire.NoEntry, c.fence(wire.V2, 2, keyK).Code) // a known ledger without entries
	t.Run("memory", func(t *testing.T) { fn(t, b) })
	b = b.restart(bookieConfig{})
	t.Run("disk", func(t *testing.T) { fn(t, b) })
}

func TestWire33To36And38PlainReads(t *testing.T) {
	readsBothWays(t, func(t *testing.T, b *testBookie) {
		for _, p := range protos {
			c := b.dial()
			require.Equal(t, wire.NoLedger, c.read(p, 404, 0).Code)
			require.Equal(t, wire.NoLedger, c.read(p, 404, -1).Code)
			require.Equal(t, wire.NoEntry, c.read(p, 1, 15).Code)
			require.Equal(t, wire.NoEntry, c.read(p, 1, 21).Code)
			require.Equal(t, wire.NoEntry, c.read(p, 2, -1).Code)
			r := c.read(p, 1, -1)
			require.Equal(t, wire.OK, r.Code)
			require.Equal(t, int64(-1), r.Entry)
			require.Equal(t, body(1, 20, 19, "entry 20"), r.Body)
			r = c.read(p, 1, 7)
			require.Equal(t, int64(7), r.Entry)
			require.Equal(t, body(1, 7, 6, "entry 7"), r.Body)
		}
		c := b.dial()
		c.write(encode(t, wire.Request{Op: wire.OpRead, Ledger: 404, Entry: 3}))
		f := c.frame()
		require.Len(t, f, 28)
		require.Equal(t, uint32(1), binary.BigEndian.Uint32(f[8:]))
		require.Equal(t, int64(3), int64(binary.BigEndian.Uint64(f[20:])))
	})
}

func TestWire37MaxLAC(t *testing.T) {
	readsBothWays(t, func(t *testing.T, b *testBookie) {
		c := b.dial()
		r := c.read(wire.V3, 1, 3)
		require.True(t, r.HasMaxLAC)
		require.Equal(t, int64(19), r.MaxLAC)
		require.False(t, c.read(wire.V3, 1, 11).HasMaxLAC, "on success only")
		require.False(t, c.fence(wire.V3, 1, keyK).HasMaxLAC)
	})
}

func batchReq(first int64, count int32, size int64) wire.Request {
	return wire.Request{Op: wire.OpBatchRead, Ledger: 1, Entry: first, RequestID: 1 << 40, MaxCount: count, MaxSize: size}
}

func TestWire39To42BatchReads(t *testing.T) {
	readsBothWays(t, func(t *testing.T, b *testBookie) {
		c := b.dial()
		check := func(r wire.Request, want ...int64) {
			t.Helper()
			c.write(encode(t, r))
			f := c.frame()
			var resp wire.Response
			require.NoError(t, wire.DecodeResponse(wire.V2, f[4:], &resp))
			require.Equal(t, wire.OK, resp.Code)
			require.Equal(t, int64(1<<40), resp.RequestID)
			require.Equal(t, r.Entry, resp.Entry)
			require.Len(t, resp.Entries, len(want))
			for i, e := range want {
				require.Equal(t, body(1, e, e-1, fmt.Sprintf("entry %d", e)), resp.Entries[i])
			}
			if len(want) > 1 {
				require.LessOrEqual(t, int64(len(f)), r.MaxSize)
			}
		}
		check(batchReq(0, 0, 1<<20), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
		check(batchReq(0, 3, 1<<20), 0, 1, 2)
		check(batchReq(0, 0, 1), 0)
		check(batchReq(4, -1, -7), 4)
		check(batchReq(8, 100, 1<<20), 8, 9)
		check(batchReq(20, 100, 1<<40), 20)
		entry := int64(4 + len(body(1, 0, -1, "entry 0")))
		check(batchReq(0, 0, 36+3*entry), 0, 1, 2)
		check(batchReq(0, 0, 36+3*entry-1), 0, 1)
		check(batchReq(0, 0, 36+4*entry-1), 0, 1, 2)

		c.write(encode(t, batchReq(11, 5, 1<<20)))
		f := c.frame()
		require.Len(t, f, 36)
		require.Equal(t, uint32(2), binary.BigEndian.Uint32(f[8:]))
		require.Equal(t, uint64(1<<40), binary.BigEndian.Uint64(f[28:]))
		require.Equal(t, wire.BadReq, c.do(batchReq(-1, 1, 1)).Code)
		r := batchReq(0, 1, 1)
		r.Ledger = 404
		require.Equal(t, wire.NoLedger, c.do(r).Code)
	})
}

func TestBatchReadFences(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	c := b.dial()
	c.add(1, 0, "a")
	r := batchReq(0, 10, 1<<20)
	r.Flags, r.Key = wire.Fence|wire.HighPriority, keyK
	resp := c.do(r)
	require.Equal(t, wire.OK, resp.Code)
	require.Len(t, resp.Entries, 1)
	require.Equal(t, wire.Fenced, c.do(addReq(wire.V2, 1, 1, 0, "b")).Code)
}

// A batch larger than one buffer, with entries of sizes that leave rests of every kind in them.
func TestBatchAnswerInSeveralBuffers(t *testing.T) {
	readsBothWays(t, func(t *testing.T, b *testBookie) {
		c := b.dial()
		var want []string
		for e, n := range []int{100 << 10, 150 << 10, 1, bufLarge - 100, 3, 400 << 10, 70 << 10, 200 << 10, 0, 90 << 10} {
			payload := strings.Repeat(string(rune('a'+e)), n)
			want = append(want, payload)
			c.write(encode(t, addReq(wire.V2, 77, int64(e), int64(e)-1, payload)))
			require.Equal(t, wire.OK, c.recv(wire.V2).Code)
		}
		r := batchReq(0, 0, batchReadMax)
		r.Ledger = 77
		for range 3 {
			c.write(encode(t, r))
			f := c.frame()
			var resp wire.Response
			require.NoError(t, wire.DecodeResponse(wire.V2, f[4:], &resp))
			require.Len(t, resp.Entries, len(want))
			for e, payload := range want {
				require.Equal(t, body(77, int64(e), int64(e)-1, payload), resp.Entries[e])
			}
		}
	})
}

func TestWire42ServerCap(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	c := b.dial()
	payload := strings.Repeat("x", 1<<20)
	for e := range int64(8) {
		c.add(1, e, payload)
	}
	c.write(encode(t, batchReq(0, 0, 1<<40)))
	f := c.frame()
	require.LessOrEqual(t, len(f), batchReadMax)
	var resp wire.Response
	require.NoError(t, wire.DecodeResponse(wire.V2, f[4:], &resp))
	require.Len(t, resp.Entries, 4)
}

func TestWire60BookieInfo(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	c := b.dial()
	for _, want := range []int64{1, 2, 3, 0} {
		r := c.do(wire.Request{Proto: wire.V3, Op: wire.OpBookieInfo, Requested: want})
		require.Equal(t, wire.OK, r.Code)
		require.Equal(t, want&1 != 0, r.HasTotalCapacity)
		require.Equal(t, want&2 != 0, r.HasFreeSpace)
		if want == 3 {
			require.Positive(t, r.TotalCapacity)
			require.Positive(t, r.FreeSpace)
			require.LessOrEqual(t, r.FreeSpace, r.TotalCapacity)
		}
	}
}

func TestWire61ListOfEntries(t *testing.T) {
	readsBothWays(t, func(t *testing.T, b *testBookie) {
		c := b.dial()
		r := c.do(wire.Request{Proto: wire.V3, Op: wire.OpListEntries, Ledger: 1})
		require.Equal(t, wire.OK, r.Code)
		require.Equal(t, wire.AppendAvailability(nil, []wire.Run{{First: 0, Count: 10}, {First: 20, Count: 1}}), r.Availability)
		r = c.do(wire.Request{Proto: wire.V3, Op: wire.OpListEntries, Ledger: 2})
		require.Equal(t, wire.OK, r.Code)
		require.Equal(t, wire.AppendAvailability(nil, nil), r.Availability)
		require.Equal(t, wire.NoLedger, c.do(wire.Request{Proto: wire.V3, Op: wire.OpListEntries, Ledger: 404}).Code)
	})
}

func TestWire62AuthDisabled(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	for _, plugin := range []string{wire.AuthDisabledPlugin, "sasl"} {
		for _, p := range protos {
			c := b.dial()
			r := c.do(wire.Request{Proto: p, Op: wire.OpAuth, AuthPlugin: plugin, AuthPayload: []byte{1}})
			require.Equal(t, wire.OK, r.Code)
			require.Equal(t, wire.AuthDisabledPlugin, r.AuthPlugin)
			require.Empty(t, r.AuthPayload)
			require.Equal(t, wire.NoLedger, c.read(p, 1, 0).Code)
		}
	}
}

// TestC59HandshakeNamesTheBookie is the bookie's part of C59: a client that reached another bookie than it meant is told.
func TestC59HandshakeNamesTheBookie(t *testing.T) {
	b := startBookie(t, bookieConfig{mod: func(o *Options) { o.ID = "b1" }})
	name := func(r wire.Request, id string) wire.Request {
		r.Proto = wire.V3
		r.Context = []wire.ContextPair{{Key: []byte("other"), Value: []byte("x")}, {Key: []byte(wire.ContextBookieID), Value: []byte(id)}}
		return r
	}
	for _, r := range []wire.Request{
		addReq(wire.V3, 1, 0, -1, "x"), {Op: wire.OpRead, Ledger: 1, Entry: -1, Flags: wire.Fence, Key: keyK, HasKey: true},
		{Op: wire.OpBookieInfo}, {Op: wire.OpForce, Ledger: 1}, writeLAC(1, 0), poll3(1, -1, 10_000), {Op: wire.OpAuth, AuthPlugin: "x"},
	} {
		require.Equal(t, wire.UA, b.dial().do(name(r, "b2")).Code, "%s", r.Op)
	}
	c := b.dial()
	require.Equal(t, wire.NoLedger, c.do(name(wire.Request{Op: wire.OpRead, Ledger: 1}, "b1")).Code)
	require.Equal(t, wire.OK, c.do(addReq(wire.V3, 1, 0, -1, "x")).Code)
}

func TestWire65StartTLSWithoutTLS(t *testing.T) {
	c := startBookie(t, bookieConfig{}).dial()
	r := c.do(wire.Request{Proto: wire.V3, Op: wire.OpStartTLS})
	require.Equal(t, wire.BadReq, r.Code)
	require.Equal(t, wire.NoLedger, c.read(wire.V2, 1, 0).Code, "the connection is usable, in clear")
}

// TestWire66SubMessagesOnErrors: a V3 answer has its operation's message whatever the status.
func TestWire66SubMessagesOnErrors(t *testing.T) {
	c := startBookie(t, bookieConfig{}).dial()
	wrong := addReq(wire.V3, 1, 1, 0, "x")
	wrong.Key = keyX
	requests := []wire.Request{
		addReq(wire.V3, 1, 0, -1, "x"), wrong,
		{Op: wire.OpAdd, Ledger: 1, Key: keyK, Body: []byte("short")},
		{Op: wire.OpRead, Ledger: 404}, {Op: wire.OpRead, Ledger: 1, Entry: 9}, {Op: wire.OpRead, Ledger: 1, Entry: -7},
		{Op: wire.OpRead, Ledger: 1, Flags: wire.Fence}, {Op: wire.OpReadLAC, Ledger: 404}, {Op: wire.OpReadLAC, Ledger: -1},
		{Op: wire.OpWriteLAC, Ledger: 1, Key: keyX, Body: crc.SealLAC(nil, 1, 5)}, {Op: wire.OpWriteLAC, Ledger: 1, Key: keyK, Body: []byte("short")},
		{Op: wire.OpForce, Ledger: -1}, {Op: wire.OpListEntries, Ledger: 404}, {Op: wire.OpBookieInfo},
		{Op: wire.OpRead, Ledger: 404, Entry: -1, HasPreviousLAC: true, Piggyback: true},
	}
	for i, r := range requests {
		r.Proto, r.TxnID = wire.V3, uint64(i)+1
		c.write(encode(t, r))
		f := c.frame()
		require.True(t, hasSubMessage(f[4:]), "%d %s", i, r.Op)
		var resp wire.Response
		require.NoError(t, wire.DecodeResponse(wire.V3, f[4:], &resp))
		require.Equal(t, i != 0 && r.Op != wire.OpBookieInfo, resp.Code != wire.OK, "%d %s: %s", i, r.Op, resp.Code)
	}
	// A request without its message can still be answered.
	packet := []byte{0x0a, 6, 8, 3, 0x10, 2, 0x18, 5}
	c.write(append([]byte{0, 0, 0, 8}, packet...))
	f := c.frame()
	require.True(t, hasSubMessage(f[4:]))
}
