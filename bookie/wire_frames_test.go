package bookie

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/binderylog/bindery/internal/wire"
)

// The tests named TestWireNN prove the items of the protocol's conformance checklist, over TCP against engine and server.
// Not here: 63, 64 and the TLS half of 65 need authentication and TLS, 68 needs Java clients; they come with those.
// 67 and the coding half of 61 and 66 are in internal/wire and internal/digest.

func TestWire01LargestFrame(t *testing.T) {
	b := startBookie(t, bookieConfig{mod: func(o *Options) { o.FrameLimit = 64 << 10 }})
	c := b.dial()
	overhead := 4 + 4 + 20 + 32 + 4
	r := addReq(wire.V2, 1, 0, -1, strings.Repeat("x", 64<<10-overhead))
	f := encode(t, r)
	require.Len(t, f, 64<<10)
	c.write(f)
	require.Equal(t, wire.OK, c.recv(wire.V2).Code)

	f = encode(t, addReq(wire.V2, 1, 1, 0, strings.Repeat("x", 64<<10-overhead+1)))
	c.write(f[:8])
	c.closed()
	require.Contains(t, b.logs.String(), "over the limit")
}

func TestWire02LengthOfAllOnes(t *testing.T) {
	c := startBookie(t, bookieConfig{}).dial()
	c.write([]byte{0xff, 0xff, 0xff, 0xff})
	c.closed()
}

func TestWire03ZeroLengthFrame(t *testing.T) {
	c := startBookie(t, bookieConfig{}).dial()
	c.write([]byte{0, 0, 0, 0})
	c.closed()
}

func TestWire04And05FirstByteDecides(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	require.Equal(t, wire.NoLedger, b.dial().read(wire.V3, 9, 0).Code)
	require.Equal(t, wire.NoLedger, b.dial().read(wire.V2, 9, 0).Code)
}

func TestWire06V3ThenV2(t *testing.T) {
	c := startBookie(t, bookieConfig{}).dial()
	require.Equal(t, wire.BadReq, c.do(wire.Request{Proto: wire.V3, Op: wire.OpStartTLS}).Code)
	require.Equal(t, wire.OK, c.do(addReq(wire.V3, 1, 0, -1, "a")).Code)
	require.Equal(t, wire.OK, c.do(addReq(wire.V2, 1, 1, 0, "b")).Code)
	require.Equal(t, wire.OK, c.read(wire.V2, 1, 0).Code)
}

func TestWire07V3AfterV2Closes(t *testing.T) {
	c := startBookie(t, bookieConfig{}).dial()
	c.add(1, 0, "a")
	c.write(encode(t, wire.Request{Proto: wire.V3, Op: wire.OpRead, Ledger: 1, TxnID: 4}))
	c.closed()
}

// What was sent in front of a frame that can not be read is answered, whatever way it takes: adds that a journal answers, reads,
// long polls.
func TestWire07AnswersBeforeClosing(t *testing.T) {
	bad := map[string][]byte{
		"V3 after V2":   encode(t, wire.Request{Proto: wire.V3, Op: wire.OpRead, Ledger: 1, TxnID: 4}),
		"no request":    {0, 0, 0, 0},
		"too long":      {0x7f, 0xff, 0xff, 0xff},
		"no operation":  append([]byte{0, 0, 0, 76, 2, 9}, make([]byte, 74)...),
		"TLS handshake": {0x16, 3, 1, 0, 0xf9, 1, 0, 0, 0xf5, 3, 3},
	}
	for name, frame := range bad {
		t.Run(name, func(t *testing.T) {
			c := startBookie(t, bookieConfig{}).dial()
			const n = 300 // more than one batch
			var out []byte
			r := addReq(wire.V3, 1, 0, -1, "first")
			r.TxnID = 7
			out = append(out, encode(t, r)...)
			poll := wire.Request{Proto: wire.V3, Op: wire.OpRead, Ledger: 1, Entry: 9, TxnID: 8, HasPreviousLAC: true, PreviousLAC: 8, HasTimeout: true, TimeoutMillis: 60_000}
			out = append(out, encode(t, poll)...)
			for e := range int64(n) {
				out = append(out, encode(t, addReq(wire.V2, 1, e+1, e, "entry"))...)
			}
			out = append(out, encode(t, wire.Request{Proto: wire.V2, Op: wire.OpRead, Ledger: 2, Entry: 5})...)
			c.write(append(out, frame...))
			adds, answers := map[int64]bool{}, map[wire.Op]int{}
			for range n + 3 {
				f := c.frame()
				var resp wire.Response
				proto := wire.V2
				if f[4] == 0x0a {
					proto = wire.V3
				}
				require.NoError(t, wire.DecodeResponse(proto, f[4:], &resp))
				answers[resp.Op]++
				if resp.Op == wire.OpAdd {
					require.Equal(t, wire.OK, resp.Code)
					adds[resp.Entry] = true
				}
			}
			require.Len(t, adds, n+1)
			require.Equal(t, map[wire.Op]int{wire.OpAdd: n + 1, wire.OpRead: 2}, answers)
			c.closed()
		})
	}
}

func TestWire08UnknownV2OpcodesClose(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	for _, op := range []byte{0, 4, 5, 6, 8, 9} {
		c := b.dial()
		packet := make([]byte, 80)
		packet[3] = 76
		packet[4], packet[5] = 2, op
		c.write(packet)
		c.closed()
	}
}

func TestWire09To11VersionsAndFlags(t *testing.T) {
	c := startBookie(t, bookieConfig{}).dial()
	send := func(head ...byte) []byte {
		f := make([]byte, 24)
		f[3] = 20
		copy(f[4:], head)
		c.write(f)
		return c.frame()[4:]
	}
	f := send(3, 2, 0, 4)
	require.Equal(t, []byte{3, 2, 0, 0}, f[:4])
	require.Equal(t, uint32(103), binary.BigEndian.Uint32(f[4:]))
	f = send(0, 0, 0, 2)
	require.Equal(t, []byte{0, 0, 0, 2, 0, 0, 0, 1}, f[:8])
	f = send(2, 2, 0xff, 0xfe)
	require.Equal(t, []byte{2, 2, 0, 0, 0, 0, 0, 1}, f[:8], "flags of answers are 0")
	f = send(1, 2, 0, 0)
	require.Equal(t, []byte{1, 2, 0, 0}, f[:4])
}

func TestWire12TenThousandPipelinedAdds(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	for _, p := range protos {
		c := b.dial()
		const n = 10_000
		go func() {
			var out []byte
			for e := range int64(n) {
				r := addReq(p, 40+int64(p), e, e-1, fmt.Sprintf("entry %d", e))
				r.TxnID = uint64(e) + 1
				out = append(out, encode(t, r)...)
			}
			_, _ = c.c.Write(out)
		}()
		seen := map[int64]bool{}
		for range n {
			r := c.recv(p)
			require.Equal(t, wire.OK, r.Code)
			require.Equal(t, 40+int64(p), r.Ledger)
			require.False(t, seen[r.Entry])
			seen[r.Entry] = true
			if p == wire.V3 {
				require.Equal(t, uint64(r.Entry)+1, r.TxnID)
			}
		}
		require.Len(t, seen, n)
		require.Equal(t, int64(0), b.srv.addsInProgress.Load())
	}
}

func TestWire13To15V3HeadersAndUnknownOperations(t *testing.T) {
	c := startBookie(t, bookieConfig{}).dial()
	r := wire.Request{Proto: wire.V3, Op: wire.OpRead, TxnID: 1 << 60, Ledger: 3}
	require.Equal(t, wire.NoLedger, c.do(r).Code)

	// Header version 2: EBADVERSION with the operation's message.
	for _, op := range []wire.Op{wire.OpAdd, wire.OpRead, wire.OpReadLAC, wire.OpWriteLAC, wire.OpForce, wire.OpListEntries, wire.OpBookieInfo} {
		f := encode(t, wire.Request{Proto: wire.V3, Op: op, TxnID: 9, Ledger: 3, Key: keyK, Body: body(3, 0, -1, "x")})
		require.Equal(t, []byte{0x08, 3}, f[6:8])
		f[7] = 2
		c.write(f)
		resp := c.frame()
		var got wire.Response
		require.NoError(t, wire.DecodeResponse(wire.V3, resp[4:], &got))
		require.Equal(t, wire.BadVersion, got.Code, "%s", op)
		require.True(t, hasSubMessage(resp[4:]), "%s", op)
		require.Equal(t, uint64(9), got.TxnID)
	}
	for _, op := range []uint32{3, 4, 12, 13, 77} {
		resp := c.do(wire.Request{Proto: wire.V3, Op: wire.OpUnsupported, RawOp: op})
		require.Equal(t, wire.BadReq, resp.Code)
		require.Equal(t, op, resp.RawOp)
	}
	require.Equal(t, wire.NoLedger, c.read(wire.V3, 3, 0).Code, "the connection is open")
}

// hasSubMessage reports whether a V3 response holds a message of an operation.
func hasSubMessage(packet []byte) bool {
	for len(packet) > 0 {
		num, typ, n := protowire.ConsumeTag(packet)
		if num >= 100 && typ == protowire.BytesType {
			return true
		}
		packet = packet[n:]
		packet = packet[protowire.ConsumeFieldValue(num, typ, packet):]
	}
	return false
}

func TestWire16FieldOrderOverTheWire(t *testing.T) {
	c := startBookie(t, bookieConfig{}).dial()
	c.add(1, 0, "a")
	c = startBookie(t, bookieConfig{}).dial()
	// Sub-message before the header's fields are in order, an unknown field between.
	head := []byte{0x18, 7, 0x10, 1, 0x08, 3}
	packet := append([]byte{0x0a, byte(len(head))}, head...)
	packet = append(packet, 0xf8, 0x2e, 1) // field 751
	packet = append(packet, 0xa2, 0x06, 4, 0x10, 5, 0x08, 9)
	c.write(append(binary.BigEndian.AppendUint32(nil, uint32(len(packet))), packet...))
	r := c.recv(wire.V3)
	require.Equal(t, wire.NoLedger, r.Code)
	require.Equal(t, int64(9), r.Ledger)
	require.Equal(t, int64(5), r.Entry)
}

func TestWire17IdleConnectionStays(t *testing.T) {
	b := startBookie(t, bookieConfig{mod: func(o *Options) { o.SlowClientTimeout = time.Second }})
	c := b.dial()
	c.add(1, 0, "a")
	time.Sleep(1500 * time.Millisecond)
	c.add(1, 1, "b")
	require.Zero(t, b.srv.m.slowClosed.Load())
}

// TestC60MalformedFrames: bounded reads, one rate-limited line with a guess, close, no panic.
func TestC60MalformedFrames(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	for _, raw := range []string{
		"16030100f9010000f50303", // TLS client hello
		hex.EncodeToString([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")),
		"00000000", "00000003020100", "ffffffff", "7fffffff",
		"000000080a0808031002180a", // truncated protobuf: header longer than the packet
		"00000008" + "0a7f080310021801",
		"0000000402630000",                                 // unknown opcode
		"00000014020200010000000000000001ffffffffffffffff", // fencing without its key
		"00000018020100000000000000000000000000000000000000000000",
	} {
		c := b.dial()
		p, err := hex.DecodeString(raw)
		require.NoError(t, err)
		c.write(p)
		c.closed()
	}
	require.Equal(t, 1, strings.Count(b.logs.String(), "does not speak the bookie protocol"), "one line, the rest is counted")
	require.Contains(t, b.logs.String(), "looks like a TLS handshake")
	require.Equal(t, uint64(11), b.srv.m.malformed.Load())
	b.dial().add(1, 0, "the bookie goes on")
}

// What a peer claims is believed as far as it has sent: room is taken for all of a frame, memory in steps.
func TestLargeFrameGetsMemoryInSteps(t *testing.T) {
	b := startBookie(t, bookieConfig{mod: func(o *Options) { o.InFlightBytes = 64 << 20 }})
	c := &conn{srv: b.srv, closing: make(chan struct{})}
	c.takeIn(bufSmall)
	*c.in = append(*c.in, 0, 0x4f, 0, 0, 2, 1, 0, 0)
	require.NoError(t, c.keep(0))
	require.LessOrEqual(t, cap(*c.in), bufLarge)
	require.EqualValues(t, 0x4f0000+wire.LengthSize, b.srv.frames.used.Load())
	for step := bufLarge; step < 4<<20; step *= 2 {
		*c.in = (*c.in)[:cap(*c.in)]
		require.NoError(t, c.keep(0))
		require.LessOrEqual(t, cap(*c.in), 2*step, "twice what was sent")
	}
	require.EqualValues(t, 0x4f0000+wire.LengthSize, b.srv.frames.used.Load())
	c.dropIn()
	require.Zero(t, b.srv.used())
}

// A peer that claims a large frame and stops holds little memory, and not for ever.
func TestStalledFrameIsCut(t *testing.T) {
	b := startBookie(t, bookieConfig{mod: func(o *Options) { o.SlowClientTimeout = time.Second }})
	c := b.dial()
	c.write([]byte{0, 0x4f, 0, 0, 2, 1, 0, 0})
	require.Eventually(t, func() bool { return b.srv.used() > 0 }, 30*time.Second, time.Millisecond)
	c.closed()
	require.Equal(t, uint64(1), b.srv.m.slowClosed.Load())
	require.Eventually(t, func() bool { return b.srv.used() == 0 }, 30*time.Second, time.Millisecond)
}
