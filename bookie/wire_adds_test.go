package bookie

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/digest"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/wire"
)

func TestWire18FirstAddBindsKey(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	for _, p := range protos {
		c := b.dial()
		l := int64(p)
		require.Equal(t, wire.OK, c.do(addReq(p, l, 0, -1, "a")).Code)
		r := addReq(p, l, 1, 0, "b")
		r.Key = keyX
		require.Equal(t, wire.UA, c.do(r).Code)
		require.Equal(t, wire.OK, c.do(addReq(p, l, 1, 0, "b")).Code)
	}
}

func TestWire19WrongKeyAlsoAfterRestart(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	b.dial().add(1, 0, "a")
	check := func(b *testBookie) {
		c := b.dial()
		for _, key := range [][]byte{keyX, make([]byte, 20)} {
			for _, p := range protos {
				r := addReq(p, 1, 1, 0, "b")
				r.Key = key
				require.Equal(t, wire.UA, c.do(r).Code)
				c = b.dial()
			}
		}
		r := addReq(wire.V3, 1, 1, 0, "b")
		r.Key = []byte{}
		require.Equal(t, wire.UA, b.dial().do(r).Code, "an empty key is no exception")
	}
	check(b)
	b = b.restart(bookieConfig{})
	check(b)
	b = startBookie(t, bookieConfig{fs: b.crash()})
	check(b)
	b.dial().add(1, 1, "b")
}

func TestWire20DuplicateAdd(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	c := b.dial()
	c.add(1, 0, "a")
	c.add(1, 0, "a")
	require.Equal(t, body(1, 0, -1, "a"), c.read(wire.V2, 1, 0).Body)
}

func TestWire21IDsInAnyOrder(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	c := b.dial()
	for _, e := range []int64{5, 3, 9} {
		c.add(1, e, string(rune('a'+e)))
	}
	for _, e := range []int64{5, 3, 9} {
		require.Equal(t, body(1, e, e-1, string(rune('a'+e))), c.read(wire.V2, 1, e).Body)
	}
	require.Equal(t, wire.NoEntry, c.read(wire.V2, 1, 4).Code)
}

func TestWire22AcknowledgedIsDurable(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	c := b.dial()
	for e := range int64(100) {
		c.add(1, e, "payload")
	}
	b = startBookie(t, bookieConfig{fs: b.crash()})
	c = b.dial()
	for e := range int64(100) {
		require.Equal(t, body(1, e, e-1, "payload"), c.read(wire.V2, 1, e).Body)
	}
	require.Equal(t, wire.NoEntry, c.read(wire.V2, 1, 100).Code)
}

func TestWire23BodiesComeBackAsTheyWere(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	c := b.dial()
	e := int64(0)
	for _, typ := range []ledger.DigestType{ledger.DigestCRC32, ledger.DigestHMAC, ledger.DigestCRC32C, ledger.DigestDummy} {
		d, err := digest.New(typ, []byte("pw"))
		require.NoError(t, err)
		for _, wrong := range []bool{false, true} {
			body := d.Seal(nil, 1, e, e-1, 7, []byte("payload"))
			if wrong && d.Size() > 0 {
				body[33] ^= 0xff
			}
			require.Equal(t, wire.OK, c.do(wire.Request{Op: wire.OpAdd, Ledger: 1, Entry: e, Key: keyK, Body: body}).Code)
			require.Equal(t, body, c.read(wire.V2, 1, e).Body)
			e++
		}
	}
	// The least body: ids and LAC.
	short := body(1, e, e-1, "")[:24]
	require.Equal(t, wire.OK, c.do(wire.Request{Op: wire.OpAdd, Ledger: 1, Entry: e, Key: keyK, Body: short}).Code)
	require.Equal(t, short, c.read(wire.V2, 1, e).Body)
}

func TestWire24V3AddGoesByTheBody(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	c := b.dial()
	r := addReq(wire.V3, 1, 5, 4, "x")
	r.Ledger, r.Entry = 77, 88
	resp := c.do(r)
	require.Equal(t, wire.OK, resp.Code)
	require.Equal(t, int64(77), resp.Ledger)
	require.Equal(t, int64(88), resp.Entry)
	require.Equal(t, body(1, 5, 4, "x"), c.read(wire.V3, 1, 5).Body)
	require.Equal(t, wire.NoLedger, c.read(wire.V3, 77, 88).Code)
}

func TestWire25ShortBodyAndBadIDs(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	for _, p := range protos {
		c := b.dial()
		for _, r := range []wire.Request{
			{Op: wire.OpAdd, Ledger: 1, Key: keyK, Body: body(1, 0, -1, "")[:23]},
			{Op: wire.OpAdd, Ledger: -1, Key: keyK, Body: body(-1, 0, -1, "")},
			{Op: wire.OpAdd, Ledger: 1, Entry: -1, Key: keyK, Body: body(1, -1, -1, "")},
			{Op: wire.OpAdd, Ledger: 1, Entry: -0x1000, Key: keyK, Body: body(1, -0x1000, -1, "")},
			{Op: wire.OpRead, Ledger: -5, Entry: 0},
			{Op: wire.OpRead, Ledger: 5, Entry: -2},
		} {
			r.Proto = p
			require.Equal(t, wire.BadReq, c.do(r).Code, "%+v", r)
		}
		require.Equal(t, wire.NoLedger, c.read(p, 1, 0).Code, "nothing was stored and the connection is open")
	}
}

func TestWire26And27FencedLedger(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	for _, p := range protos {
		l := int64(p)
		c := b.dial()
		require.Equal(t, wire.OK, c.do(addReq(p, l, 0, -1, "a")).Code)
		require.Equal(t, wire.OK, c.fence(p, l, keyK).Code)
		require.Equal(t, wire.Fenced, c.do(addReq(p, l, 1, 0, "b")).Code)
		r := addReq(p, l, 1, 0, "b")
		r.Key = keyX
		require.Equal(t, wire.UA, c.do(r).Code, "the key is tested first")
		r.Flags = wire.RecoveryAdd
		require.Equal(t, wire.UA, c.do(r).Code)
		r.Key = keyK
		require.Equal(t, wire.OK, c.do(r).Code)
		r.Flags = wire.HighPriority
		require.Equal(t, wire.Fenced, c.do(r).Code)
		require.Equal(t, body(l, 1, 0, "b"), c.read(p, l, 1).Body)
	}
}

func TestWire28ReadOnlyBookie(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	b.dial().add(1, 0, "a")
	b.state.set(ReasonOperator, true, "test")
	for _, p := range protos {
		c := b.dial()
		r := addReq(p, 1, 1, 0, "b")
		require.Equal(t, wire.ReadOnly, c.do(r).Code)
		r.Flags = wire.RecoveryAdd
		require.Equal(t, wire.ReadOnly, c.do(r).Code, "the flag alone does not help")
		r.Flags = wire.HighPriority
		require.Equal(t, wire.OK, c.do(r).Code)
		r.Flags = wire.HighPriority | wire.RecoveryAdd
		require.Equal(t, wire.OK, c.do(r).Code)
		b.state.setRecoveryRoom(false)
		require.Equal(t, wire.ReadOnly, c.do(r).Code)
		b.state.setRecoveryRoom(true)
		require.Equal(t, wire.OK, c.read(p, 1, 0).Code)
	}
	b.state.set(ReasonOperator, false, "")
	b.dial().add(1, 2, "c")
}

func TestWire29DeferredSyncAndForce(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	c := b.dial()
	for e := range int64(10) {
		r := addReq(wire.V3, 1, e, -1, "deferred")
		r.WriteFlags = wire.DeferredSync
		require.Equal(t, wire.OK, c.do(r).Code)
	}
	resp := c.do(wire.Request{Proto: wire.V3, Op: wire.OpForce, Ledger: 1})
	require.Equal(t, wire.OK, resp.Code)
	require.Equal(t, int64(1), resp.Ledger)
	b = startBookie(t, bookieConfig{fs: b.crash()})
	for e := range int64(10) {
		require.Equal(t, body(1, e, -1, "deferred"), b.dial().read(wire.V3, 1, e).Body)
	}
}

func TestWire30ForceOfAnUnknownLedger(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	require.Equal(t, wire.OK, b.dial().do(wire.Request{Proto: wire.V3, Op: wire.OpForce, Ledger: 404}).Code)
	b.state.set(ReasonOperator, true, "")
	require.Equal(t, wire.OK, b.dial().do(wire.Request{Proto: wire.V3, Op: wire.OpForce, Ledger: 404}).Code, "also when read-only")
}

func TestWire32AddAnswersHaveOneSize(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	c := b.dial()
	c.fence(wire.V2, 2, keyK)
	wrong := addReq(wire.V2, 1, 1, 0, "x")
	wrong.Key = keyX
	for _, want := range []struct {
		r    wire.Request
		code wire.Code
	}{
		{addReq(wire.V2, 1, 0, -1, "x"), wire.OK},
		{wrong, wire.UA},
		{addReq(wire.V2, 2, 0, -1, "x"), wire.Fenced},
		{wire.Request{Op: wire.OpAdd, Ledger: -1, Key: keyK, Body: body(-1, 0, -1, "")}, wire.BadReq},
	} {
		c.write(encode(t, want.r))
		f := c.frame()
		require.Len(t, f, 28)
		require.Equal(t, uint32(want.code), binary.BigEndian.Uint32(f[8:]))
		require.Equal(t, want.r.Ledger, int64(binary.BigEndian.Uint64(f[12:])))
		require.Equal(t, want.r.Entry, int64(binary.BigEndian.Uint64(f[20:])))
	}
}

// TestC50IDsBeyond31And32Bits: ids go through add, read, list and restart unchanged.
func TestC50IDsBeyond31And32Bits(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	ids := []int64{1<<31 - 1, 1 << 31, 1<<32 + 5, 1<<63 - 1}
	c := b.dial()
	for _, l := range ids {
		for _, e := range ids {
			c.add(l, e, "x")
		}
	}
	check := func(b *testBookie) {
		c, c3 := b.dial(), b.dial()
		for _, l := range ids {
			for _, e := range ids {
				require.Equal(t, body(l, e, e-1, "x"), c.read(wire.V2, l, e).Body)
			}
			require.Equal(t, body(l, 1<<63-1, 1<<63-2, "x"), c.read(wire.V2, l, -1).Body)
			r := c3.do(wire.Request{Proto: wire.V3, Op: wire.OpListEntries, Ledger: l})
			require.Equal(t, wire.OK, r.Code)
			a, err := wire.DecodeAvailability(r.Availability)
			require.NoError(t, err)
			require.Equal(t, int64(4), a.Count())
			require.True(t, a.Contains(1<<63-1))
		}
	}
	check(b)
	b = b.restart(bookieConfig{})
	check(b)
	check(startBookie(t, bookieConfig{fs: b.crash()}))
}

// TestC53ZeroLengthEntry: an empty payload is an entry like any other.
func TestC53ZeroLengthEntry(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	c := b.dial()
	c.add(1, 0, "")
	c.add(1, 1, "middle")
	c.add(1, 2, "")
	b = startBookie(t, bookieConfig{fs: b.crash()})
	b = b.restart(bookieConfig{})
	c = b.dial()
	for e, want := range []string{"", "middle", ""} {
		got, err := crc.Open(c.read(wire.V2, 1, int64(e)).Body, 1, int64(e))
		require.NoError(t, err)
		require.Equal(t, want, string(got.Payload))
	}
	require.Equal(t, body(1, 2, 1, ""), c.read(wire.V2, 1, -1).Body)
}

// TestC56DigestOverSplitBuffers is the bookie's part: a stream cut at any place is the same stream.
func TestC56DigestOverSplitBuffers(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	c := b.dial()
	var stream []byte
	const n = 40
	for e := range int64(n) {
		stream = append(stream, encode(t, addReq(wire.V2, 1, e, e-1, string(make([]byte, e*37))))...)
	}
	for i := 0; i < len(stream); {
		j := min(len(stream), i+1+i%177)
		c.write(stream[i:j])
		i = j
	}
	for range n {
		require.Equal(t, wire.OK, c.recv(wire.V2).Code)
	}
	for e := range int64(n) {
		got, err := crc.Open(c.read(wire.V2, 1, e).Body, 1, e)
		require.NoError(t, err)
		require.Len(t, got.Payload, int(e*37))
	}
}

// TestWire31FullQueue: an add that finds no room in the write cache for two seconds gets ETOOMANYREQUESTS, what was sent
// with it gets the same soon, and the connection goes on.
func TestWire31FullQueue(t *testing.T) {
	fs := newStallFS(newMemFS(), ".log")
	b := startBookie(t, bookieConfig{fs: fs, mod: func(o *Options) { o.Storage.WriteCacheBytes = 1 << 20 }})
	fs.stall(true)
	defer fs.stall(false)
	c := b.dial()
	payload := string(make([]byte, 100<<10))
	start := time.Now()
	go func() {
		for e := range int64(30) {
			_, _ = c.c.Write(encode(t, addReq(wire.V2, 1, e, e-1, payload)))
		}
	}()
	codes := map[wire.Code]int{}
	for range 30 {
		codes[c.recv(wire.V2).Code]++
	}
	took := time.Since(start)
	require.Positive(t, codes[wire.OK])
	require.Positive(t, codes[wire.TooMany])
	require.Equal(t, 30, codes[wire.OK]+codes[wire.TooMany])
	require.GreaterOrEqual(t, took, addWaitMax)
	require.Greater(t, codes[wire.TooMany], 5)
	require.Less(t, took, time.Duration(codes[wire.TooMany])*addWaitMax, "only the first one waits")
	require.Equal(t, wire.OK, c.read(wire.V2, 1, 0).Code)
}
