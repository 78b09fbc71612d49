package wire

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protowire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type frameVector struct {
	Name      string `json:"name"`
	Direction string `json:"direction"`
	Message   string `json:"message"`
	Hex       string `json:"frame_hex"`
}

func (v frameVector) frame(t testing.TB) []byte {
	t.Helper()
	b, err := hex.DecodeString(v.Hex)
	require.NoError(t, err)
	return b
}

func loadFrames(t testing.TB) (v2, v3 []frameVector) {
	t.Helper()
	b, err := os.ReadFile("testdata/bookie-frames.json")
	require.NoError(t, err)
	var v struct {
		V2 []frameVector `json:"v2"`
		V3 []frameVector `json:"v3"`
	}
	require.NoError(t, json.Unmarshal(b, &v))
	require.Len(t, v.V2, 15)
	require.Len(t, v.V3, 19)
	return v.V2, v.V3
}

// emptyKey is the master key of the empty password.
var emptyKey, _ = hex.DecodeString("850bf1071c5e3d8c24235676f8816ae0cbe2f14f")

// helloBody is the body of ledger 1, entry 0, LAC -1, payload "hello" under CRC32C.
var helloBody, _ = hex.DecodeString("00000000000000010000000000000000ffffffffffffffff0000000000000005e3a5f74d68656c6c6f")

func lacBody(t testing.TB) []byte {
	b, err := hex.DecodeString("00000000000000010000000000000000b64e4ca2")
	require.NoError(t, err)
	return b
}

func v2Requests() map[string]Request {
	return map[string]Request{
		"add_request": {Op: OpAdd, Key: emptyKey, Body: helloBody, Ledger: 1},
		"recovery_add_request_high_priority": {
			Op: OpAdd, Flags: RecoveryAdd | HighPriority, Key: emptyKey, Body: helloBody, Ledger: 1,
		},
		"read_request":            {Op: OpRead, Ledger: 1},
		"read_last_entry_request": {Op: OpRead, Ledger: 1, Entry: -1},
		"fencing_read_request":    {Op: OpRead, Flags: Fence, Ledger: 1, Entry: -1, Key: emptyKey},
		"batch_read_request":      {Op: OpBatchRead, Ledger: 1, Entry: 7, RequestID: 99, MaxCount: 10, MaxSize: 1 << 20},
		"batch_read_request_fencing": {
			Op: OpBatchRead, Flags: Fence | HighPriority, Ledger: 1, Entry: 7, RequestID: 99, MaxCount: 10, MaxSize: 1 << 20, Key: emptyKey,
		},
		"auth_request": {Op: OpAuth, AuthPlugin: AuthDisabledPlugin, AuthPayload: []byte{}},
	}
}

func v2Responses() map[string]Response {
	return map[string]Response{
		"auth_response_disabled": {Op: OpAuth, AuthPlugin: AuthDisabledPlugin, AuthPayload: []byte{}},
		"add_response_ok":        {Op: OpAdd, Ledger: 1},
		"add_response_fenced":    {Op: OpAdd, Code: Fenced, Ledger: 1},
		"read_response_ok":       {Op: OpRead, Ledger: 1, Body: helloBody},
		"read_response_noentry":  {Op: OpRead, Code: NoEntry, Ledger: 1, Entry: 9},
		"batch_read_response_two_entries": {
			Op: OpBatchRead, Ledger: 1, Entry: 7, RequestID: 99, Entries: [][]byte{{1, 2, 3}, {4, 5}},
		},
		"batch_read_response_noledger": {Op: OpBatchRead, Code: NoLedger, Ledger: 1, Entry: 7, RequestID: 99},
	}
}

func v3Requests(t testing.TB) map[string]Request {
	return map[string]Request{
		"read_last_entry_request": {Op: OpRead, TxnID: 1, Ledger: 1, Entry: -1},
		"fencing_read_request": {
			Op: OpRead, TxnID: 2, Priority: 100, Flags: Fence | HighPriority, Ledger: 1, Entry: -1, Key: emptyKey, HasKey: true,
		},
		"long_poll_request": {
			Op: OpRead, TxnID: 3, Ledger: 1, Entry: -1, Piggyback: true, PreviousLAC: 4, HasPreviousLAC: true, TimeoutMillis: 1000, HasTimeout: true,
		},
		"add_request_deferred_sync": {
			Op: OpAdd, TxnID: 300, Ledger: 1, Key: emptyKey, HasKey: true, Body: helloBody, WriteFlags: DeferredSync,
		},
		"recovery_add_request": {
			Op: OpAdd, TxnID: 5, Priority: 100, Flags: RecoveryAdd | HighPriority, Ledger: 1, Key: emptyKey, HasKey: true, Body: helloBody,
		},
		"start_tls_request":           {Op: OpStartTLS, TxnID: 1},
		"auth_request":                {Op: OpAuth, TxnID: 1, AuthPlugin: "sasl", AuthPayload: []byte{1, 2}},
		"get_bookie_info_request":     {Op: OpBookieInfo, TxnID: 6, Requested: 3},
		"batch_read_op12_request":     {Op: OpUnsupported, RawOp: 12, TxnID: 6},
		"force_ledger_request":        {Op: OpForce, TxnID: 7, Ledger: 1},
		"write_lac_request":           {Op: OpWriteLAC, TxnID: 8, Ledger: 1, Key: emptyKey, HasKey: true, Body: lacBody(t)},
		"read_lac_request":            {Op: OpReadLAC, TxnID: 9, Ledger: 77},
		"get_list_of_entries_request": {Op: OpListEntries, TxnID: 10, Ledger: 77},
	}
}

func v3Responses() map[string]Response {
	return map[string]Response{
		"add_response_fenced":               {Op: OpAdd, TxnID: 5, Code: Fenced, Ledger: 1},
		"read_response_ok":                  {Op: OpRead, TxnID: 1, Ledger: 1, Entry: -1, Body: helloBody, MaxLAC: -1, HasMaxLAC: true},
		"read_lac_response_noentry":         {Op: OpReadLAC, TxnID: 9, Code: NoEntry, Ledger: 77},
		"start_tls_response_ok":             {Op: OpStartTLS, TxnID: 1},
		"start_tls_response_not_configured": {Op: OpStartTLS, TxnID: 1, Code: BadReq},
		"auth_response_disabled":            {Op: OpAuth, TxnID: 1, AuthPlugin: AuthDisabledPlugin, AuthPayload: []byte{}},
	}
}

// rawOp fills in the number that decoding adds.
func rawOp(p Proto, op Op, raw uint32) uint32 {
	if op == OpUnsupported {
		return raw
	}
	if p == V2 {
		return uint32(ops[op].v2)
	}
	return uint32(ops[op].v3)
}

func checkRequest(t *testing.T, p Proto, frame []byte, want Request) {
	t.Helper()
	want.Proto, want.Version = p, byte(p)
	encoded, err := AppendRequest([]byte("before"), &want)
	require.NoError(t, err)
	require.Equal(t, hex.EncodeToString(frame), hex.EncodeToString(encoded[6:]))
	packet, rest, err := Frame(append(bytes.Clone(frame), "after"...), DefaultFrameLimit)
	require.NoError(t, err)
	require.Equal(t, "after", string(rest))
	var d Decoder
	var got Request
	require.NoError(t, d.Request(packet, &got))
	want.RawOp = rawOp(p, want.Op, want.RawOp)
	want.HasKey = want.Key != nil
	got.Context = nil
	require.Equal(t, want, got)
}

func checkResponse(t *testing.T, p Proto, frame []byte, want Response) {
	t.Helper()
	want.Proto, want.Version = p, byte(p)
	require.Equal(t, hex.EncodeToString(frame), hex.EncodeToString(AppendResponse(nil, &want)))
	packet, _, err := Frame(frame, DefaultFrameLimit)
	require.NoError(t, err)
	var got Response
	require.NoError(t, DecodeResponse(p, packet, &got))
	want.RawOp = rawOp(p, want.Op, want.RawOp)
	require.Equal(t, want, got)
}

// TestWire67Frames is the frame half of the conformance item 67: every vector encodes to the very bytes, V3 too, and
// decodes to the very values.
func TestWire67Frames(t *testing.T) {
	v2, v3 := loadFrames(t)
	requests, responses := v2Requests(), v2Responses()
	for _, v := range v2 {
		t.Run("v2/"+v.Name, func(t *testing.T) {
			if v.Direction == "req" {
				require.Contains(t, requests, v.Name)
				checkRequest(t, V2, v.frame(t), requests[v.Name])
			} else {
				require.Contains(t, responses, v.Name)
				checkResponse(t, V2, v.frame(t), responses[v.Name])
			}
		})
	}
	requests, responses = v3Requests(t), v3Responses()
	for _, v := range v3 {
		t.Run("v3/"+v.Name, func(t *testing.T) {
			if v.Message == "Request" {
				require.Contains(t, requests, v.Name)
				checkRequest(t, V3, v.frame(t), requests[v.Name])
			} else {
				require.Contains(t, responses, v.Name)
				checkResponse(t, V3, v.frame(t), responses[v.Name])
			}
		})
	}
}

func TestAddAnswerShortcut(t *testing.T) {
	for _, c := range codes {
		want := AppendResponse(nil, &Response{Proto: V2, Version: 2, Op: OpAdd, Code: c.code, Ledger: 1 << 40, Entry: -7})
		require.Equal(t, want, AppendAddAnswerV2(nil, 2, c.code, 1<<40, -7))
	}
}

func TestCodesTranslateBothWays(t *testing.T) {
	for _, c := range codes {
		require.Equal(t, c.status, c.code.Status())
		require.Equal(t, c.code, CodeOfStatus(c.status))
		require.Equal(t, c.name, c.code.String())
		require.True(t, c.code.Listed())
	}
	require.Equal(t, IO, UnknownState.V2(), "Java's V2 client hangs up on 107")
	require.Equal(t, IO, Code(77).V2())
	require.Equal(t, Fenced, Fenced.V2())
	require.False(t, CodeOfStatus(599).Listed())
	require.Equal(t, IO, CodeOfStatus(100), "a V2 number is no V3 status")
}

func TestFrameLimits(t *testing.T) {
	const limit = 64
	ok := append([]byte{0, 0, 0, 60}, make([]byte, 60)...)
	packet, rest, err := Frame(ok, limit)
	require.NoError(t, err)
	require.Len(t, packet, 60)
	require.Empty(t, rest)
	_, _, err = Frame(ok[:63], limit)
	require.ErrorIs(t, err, ErrShort)
	_, _, err = Frame(ok[:3], limit)
	require.ErrorIs(t, err, ErrShort)
	var long *FrameTooLongError
	_, _, err = Frame([]byte{0, 0, 0, 61}, limit)
	require.ErrorAs(t, err, &long)
	require.Equal(t, int64(65), long.Size)
	_, _, err = Frame([]byte{0xff, 0xff, 0xff, 0xff}, limit)
	require.ErrorAs(t, err, &long)
	require.Equal(t, int64(1<<32+3), long.Size)
	packet, _, err = Frame([]byte{0, 0, 0, 0}, limit)
	require.NoError(t, err)
	var d Decoder
	require.Error(t, d.Request(packet, new(Request)), "an empty packet is malformed")
}

func TestGuessNamesTheOtherProtocol(t *testing.T) {
	_, _, err := Frame([]byte("GET / HTTP/1.1\r\n"), DefaultFrameLimit)
	require.ErrorContains(t, err, "looks like HTTP")
	_, _, err = Frame([]byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc}, DefaultFrameLimit)
	require.ErrorContains(t, err, "looks like a TLS handshake")
	require.Empty(t, Guess([]byte{0, 0, 0, 20, 2}))
	require.Empty(t, Guess(nil))
}

func TestV2VersionsAndOpcodes(t *testing.T) {
	read := make([]byte, 20)
	copy(read, []byte{0, 0, 0, 2})
	var d Decoder
	var r Request
	require.NoError(t, d.Request(read, &r))
	require.Equal(t, OpRead, r.Op)
	require.True(t, r.VersionOK())
	resp := Response{}
	r.Answer(&resp, NoLedger)
	require.Equal(t, []byte{0, 0, 0, 24, 0, 0, 0, 2, 0, 0, 0, 1}, AppendResponse(nil, &resp)[:12])

	copy(read, []byte{3, 2, 0, 4})
	require.NoError(t, d.Request(read, &r))
	require.False(t, r.VersionOK())
	r.Answer(&resp, BadVersion)
	require.Equal(t, []byte{0, 0, 0, 24, 3, 2, 0, 0, 0, 0, 0, 103}, AppendResponse(nil, &resp)[:12])

	copy(read, []byte{0x80, 2, 0, 1})
	require.NoError(t, d.Request(read, &r), "a negative version carries no key")
	require.False(t, r.VersionOK())
	require.False(t, r.HasKey)

	for _, op := range []byte{0, 4, 5, 6, 8, 9, 12, 255} {
		packet := make([]byte, 80)
		copy(packet, []byte{2, op})
		require.Error(t, d.Request(packet, &r), "opcode %d", op)
	}
	copy(read, []byte{2, 2, 0, 1})
	require.Error(t, d.Request(read, &r), "fencing without its key")
	copy(read, []byte{1, 2, 0, 1})
	require.NoError(t, d.Request(read, &r), "version 1 has no key")
	require.Equal(t, Fence, r.Flags)
	require.False(t, r.HasKey)
	copy(read, []byte{2, 2, 0xff, 0xf8})
	require.NoError(t, d.Request(read, &r))
	require.Zero(t, r.Flags, "unknown bits are ignored")
}

func TestV2RequestsIgnoreTrailingBytes(t *testing.T) {
	for _, op := range []byte{2, 7} {
		packet := make([]byte, 100)
		copy(packet, []byte{2, op, 0, 0})
		var d Decoder
		require.NoError(t, d.Request(packet, new(Request)))
	}
}

func TestStickyV2(t *testing.T) {
	v2, v3 := loadFrames(t)
	var d Decoder
	var r Request
	packet3 := v3[0].frame(t)[4:]
	require.NoError(t, d.Request(packet3, &r))
	require.Equal(t, V3, r.Proto)
	require.NoError(t, d.Request(v2[0].frame(t)[4:], &r))
	require.Equal(t, V2, r.Proto)
	require.Error(t, d.Request(packet3, &r))
}

// field3 builds one V3 field.
func field3(num protowire.Number, v any) []byte {
	switch v := v.(type) {
	case int:
		return appendVarint(nil, num, uint64(v))
	case []byte:
		return appendBytes(nil, num, v)
	case string:
		return appendBytes(nil, num, []byte(v))
	}
	panic("no such field")
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func TestWire16FieldsInAnyOrderAndUnknown(t *testing.T) {
	head := join(field3(3, 5), field3(9, "new"), field3(2, 2), field3(1, 3))
	add := join(field3(4, helloBody), field3(77, 1), field3(3, emptyKey), field3(2, 4), field3(1, 1), field3(100, 1))
	// Fixed-width unknown fields, and a group, which old encoders may still write.
	unknown := join(protowire.AppendFixed64(protowire.AppendTag(nil, 300, protowire.Fixed64Type), 1),
		protowire.AppendFixed32(protowire.AppendTag(nil, 301, protowire.Fixed32Type), 1),
		protowire.AppendTag(nil, 302, protowire.StartGroupType), field3(1, 1), protowire.AppendTag(nil, 302, protowire.EndGroupType))
	context := field3(200, join(field3(1, "bindery.bookie-id"), field3(2, "b1")))
	for _, packet := range [][]byte{
		join(field3(1, head), unknown, context, field3(101, add)),
		join(field3(1, head), field3(101, add), unknown, context),
		// A sub-message in two parts is one message.
		join(field3(1, head), field3(101, add[:len(field3(4, helloBody))]), field3(101, add[len(field3(4, helloBody)):]), context),
	} {
		var d Decoder
		var r Request
		require.NoError(t, d.Request(packet, &r))
		require.Empty(t, r.Invalid)
		require.Equal(t, OpAdd, r.Op)
		require.Equal(t, uint64(5), r.TxnID)
		require.Equal(t, int64(1), r.Ledger)
		require.Equal(t, int64(4), r.Entry)
		require.Equal(t, RecoveryAdd, r.Flags)
		require.Equal(t, helloBody, r.Body)
		require.Equal(t, []ContextPair{{[]byte("bindery.bookie-id"), []byte("b1")}}, r.Context)
	}
}

func TestV3InvalidRequestsCanBeAnswered(t *testing.T) {
	head := func(op int) []byte { return field3(1, join(field3(1, 3), field3(2, op), field3(3, 9))) }
	var d Decoder
	var r Request
	for _, op := range []int{3, 4, 12, 13, 1 << 20} {
		require.NoError(t, d.Request(head(op), &r))
		require.Equal(t, OpUnsupported, r.Op)
		require.Equal(t, uint32(op), r.RawOp)
		var resp Response
		r.Answer(&resp, BadReq)
		packet, _, err := Frame(AppendResponse(nil, &resp), DefaultFrameLimit)
		require.NoError(t, err)
		require.Equal(t, join(field3(1, join(field3(1, 3), field3(2, op), field3(3, 9))), field3(2, 404)), packet)
	}
	for _, op := range []int{1, 2, 5, 6, 7, 8, 9, 10, 11} {
		require.NoError(t, d.Request(head(op), &r))
		require.Equal(t, "the operation's message is missing", r.Invalid, "operation %d", op)
	}
	require.NoError(t, d.Request(join(head(2), field3(101, join(field3(1, 1), field3(2, 0), field3(3, emptyKey)))), &r))
	require.Equal(t, "a required field is missing", r.Invalid, "an add without a body")
	require.NoError(t, d.Request(join(head(7), field3(105, field3(1, "text"))), &r))
	require.NotEmpty(t, r.Invalid, "a field of another wire type is an unknown field")

	require.Error(t, d.Request(field3(1, join(field3(1, 3), field3(2, 1))), &r), "no transaction id")
	require.Error(t, d.Request(join(head(1), []byte{0xff}), &r))
	require.Error(t, d.Request(join(head(1), field3(100, []byte{0x08})), &r), "varint cut off")
	require.Error(t, d.Request([]byte{headerTag, 0x7f, 1}, &r), "length beyond the packet")
}

// TestEveryV3ErrorHasItsSubMessage: clients up to 4.17 take the ids from it, later ones may throw without it.
func TestWire66EveryV3ErrorHasItsSubMessage(t *testing.T) {
	for _, op := range []Op{OpAdd, OpRead, OpReadLAC, OpWriteLAC, OpBookieInfo, OpForce, OpListEntries} {
		for _, c := range codes {
			frame := AppendResponse(nil, &Response{Proto: V3, Op: op, Code: c.code, TxnID: 4, Ledger: 1 << 40, Entry: -1})
			f := fields{rest: frame[4:]}
			found := false
			for f.next() {
				if f.bytes(subField(op)) {
					found = true
					sub := fields{rest: f.b}
					require.True(t, sub.next() && sub.varint(1))
					require.Equal(t, uint64(c.status), sub.u)
				}
			}
			require.True(t, found && !f.bad, "%s %s", op, c.name)
		}
	}
}

func TestInnerStatusCountsOnlyIfOuterIsOK(t *testing.T) {
	head := field3(1, join(field3(1, 3), field3(2, 2), field3(3, 9)))
	var r Response
	require.NoError(t, DecodeResponse(V3, join(head, field3(2, 0), field3(101, join(field3(1, 504), field3(2, 7), field3(3, 1)))), &r))
	require.Equal(t, Fenced, r.Code)
	require.Equal(t, int64(7), r.Ledger)
	require.NoError(t, DecodeResponse(V3, join(head, field3(2, 502), field3(101, field3(1, 504))), &r))
	require.Equal(t, UA, r.Code)
	require.NoError(t, DecodeResponse(V3, join(head, field3(2, 502)), &r), "EUA before authentication has no message")
	require.Error(t, DecodeResponse(V3, join(head, field3(2, 0)), &r))
	require.Error(t, DecodeResponse(V3, head, &r))
	require.Error(t, DecodeResponse(V2, []byte{2, 9, 0, 0}, &r))
	require.Error(t, DecodeResponse(V2, append([]byte{2, 1, 0, 0}, make([]byte, 19)...), &r))
}

func TestBatchResponseIsChecked(t *testing.T) {
	base := AppendResponse(nil, &Response{Proto: V2, Version: 2, Op: OpBatchRead, Ledger: 1, Entry: 0, RequestID: 5})
	built := CloseFrame(AppendBatchEntry(AppendBatchEntry(bytes.Clone(base), []byte("one")), []byte("second")), 0)
	whole := AppendResponse(nil, &Response{Proto: V2, Version: 2, Op: OpBatchRead, Ledger: 1, RequestID: 5, Entries: [][]byte{[]byte("one"), []byte("second")}})
	require.Equal(t, whole, built)
	var r Response
	for cut := 33; cut < len(whole)-4; cut++ {
		err := DecodeResponse(V2, whole[4:4+cut], &r)
		if cut == 32+4+3 {
			require.NoError(t, err)
			continue
		}
		require.Error(t, err, "cut at %d", cut)
	}
	require.Error(t, DecodeResponse(V2, append(bytes.Clone(base[4:]), 0, 0, 0, 0), &r), "an entry of no bytes")
	require.Error(t, DecodeResponse(V2, append(bytes.Clone(base[4:]), 0xff, 0xff, 0xff, 0xff, 1), &r))
	require.Error(t, DecodeResponse(V2, base[4:30], &r))
}

func TestRequestsThatAFormDoesNotHave(t *testing.T) {
	for _, r := range []Request{
		{Proto: V2, Version: 2, Op: OpForce}, {Proto: V2, Version: 2, Op: OpAdd, Key: []byte("short")},
		{Proto: V2, Version: 2, Op: OpRead, Flags: Fence}, {Proto: 7, Op: OpAdd}, {Proto: V2, Op: 99},
	} {
		dst, err := AppendRequest([]byte("keep"), &r)
		require.Error(t, err)
		require.Equal(t, "keep", string(dst))
	}
	require.True(t, strings.HasPrefix(Op(99).String(), "op "))
}

func TestContextIsBounded(t *testing.T) {
	packet := field3(1, join(field3(1, 3), field3(2, 10), field3(3, 9)))
	for range 1000 {
		packet = append(packet, field3(200, nil2())...)
	}
	var d Decoder
	var r Request
	require.NoError(t, d.Request(packet, &r))
	require.Len(t, r.Context, contextMax)
}

func nil2() []byte { return []byte{} }

func TestCodecAllocatesNothing(t *testing.T) {
	body := append(bytes.Clone(helloBody), make([]byte, 1024)...)
	buf := make([]byte, 0, 8192)
	out := make([]byte, 0, 8192)
	for _, p := range []Proto{V2, V3} {
		for _, req := range []Request{
			{Op: OpAdd, Ledger: 1, Key: emptyKey, Body: body}, {Op: OpRead, Ledger: 1, Entry: 5},
		} {
			req.Proto, req.Version, req.TxnID = p, byte(p), 1<<20
			var d Decoder
			var got Request
			var resp, back Response
			allocs := testing.AllocsPerRun(100, func() {
				frame, err := AppendRequest(buf, &req)
				if err != nil {
					t.Fatal(err)
				}
				packet, _, err := Frame(frame, DefaultFrameLimit)
				if err != nil {
					t.Fatal(err)
				}
				if err := d.Request(packet, &got); err != nil {
					t.Fatal(err)
				}
				got.Answer(&resp, OK)
				resp.Body = got.Body
				answer := AppendResponse(out, &resp)
				if err := DecodeResponse(p, answer[4:], &back); err != nil {
					t.Fatal(err)
				}
			})
			require.Zero(t, allocs, "V%d %s", p, req.Op)
		}
	}
}
