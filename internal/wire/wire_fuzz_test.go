package wire

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"
)

func seedPackets(f *testing.F, requests bool) {
	f.Helper()
	v2, v3 := loadFrames(f)
	for _, v := range v2 {
		if (v.Direction == "req") == requests {
			f.Add(v.frame(f)[4:])
		}
	}
	for _, v := range v3 {
		if (v.Message == "Request") == requests {
			f.Add(v.frame(f)[4:])
		}
	}
	for _, s := range []string{"", "0a", "0a00", "0a0608031001180100", "02020001", "0302000000", "0a7f", "16030102"} {
		b, _ := hex.DecodeString(s)
		f.Add(b)
	}
}

// FuzzRequest: what decodes can be answered, and encodes to something that decodes to the same request.
func FuzzRequest(f *testing.F) {
	seedPackets(f, true)
	f.Fuzz(func(t *testing.T, packet []byte) {
		var d Decoder
		var r Request
		if d.Request(packet, &r) != nil {
			return
		}
		var resp Response
		r.Answer(&resp, IO)
		frame := AppendResponse(nil, &resp)
		if _, _, err := Frame(frame, DefaultFrameLimit); err != nil {
			t.Fatalf("answer to %+v: %v", r, err)
		}
		if r.Invalid != "" || r.Version != byte(r.Proto) {
			return
		}
		again, err := AppendRequest(nil, &r)
		require.NoError(t, err)
		var d2 Decoder
		var r2 Request
		require.NoError(t, d2.Request(again[4:], &r2))
		require.Equal(t, r, r2)
	})
}

// FuzzResponse: what decodes encodes to something that decodes to the same response.
func FuzzResponse(f *testing.F) {
	seedPackets(f, false)
	f.Fuzz(func(t *testing.T, packet []byte) {
		for _, p := range []Proto{V2, V3} {
			var r Response
			if DecodeResponse(p, packet, &r) != nil || !r.Code.Listed() || r.Version != byte(p) || r.Code.V2() != r.Code {
				continue
			}
			if p == V3 && (r.Code != OK || r.Op == OpAuth && r.AuthPayload == nil) {
				continue // lenient decoding: a refusal without the message, an AUTH without payload; ours always has them
			}
			var r2 Response
			require.NoError(t, DecodeResponse(p, AppendResponse(nil, &r)[4:], &r2))
			require.Equal(t, r, r2)
		}
	})
}

// FuzzFrame: frames are taken out of a stream in order and without losing a byte.
func FuzzFrame(f *testing.F) {
	f.Add([]byte{0, 0, 0, 2, 1, 2, 0, 0, 0, 0, 0, 0, 0, 9})
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		rest, taken := stream, 0
		for {
			packet, next, err := Frame(rest, 1024)
			if err != nil {
				require.Equal(t, stream[taken:], rest)
				return
			}
			require.LessOrEqual(t, len(packet)+LengthSize, 1024)
			taken += len(packet) + LengthSize
			rest = next
		}
	})
}

// FuzzAvailability: an accepted list agrees with itself.
func FuzzAvailability(f *testing.F) {
	f.Add(AppendAvailability(nil, nil))
	f.Add(AppendAvailability(nil, []Run{{0, 5}, {9, 1}}))
	periodic, _ := hex.DecodeString("000000000000000100000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000003000000000000000f0000000200000006")
	f.Add(periodic)
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := DecodeAvailability(b)
		if err != nil {
			return
		}
		var n, runs int64
		for r := range a.Runs() {
			require.True(t, a.Contains(r.First))
			require.True(t, a.Contains(r.First+r.Count-1))
			n += r.Count
			if runs++; runs == 10_000 {
				return
			}
		}
		require.Equal(t, a.Count(), n)
	})
}
