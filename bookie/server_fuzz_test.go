package bookie

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/wire"
)

// FuzzConnection feeds a connection with arbitrary bytes, in pieces: nothing may panic, hang, or stay behind when the
// connection has ended, and another connection is served as ever.
func FuzzConnection(f *testing.F) {
	add := func(parts ...[]byte) {
		var stream []byte
		for _, p := range parts {
			stream = append(stream, p...)
		}
		f.Add(stream, uint8(7))
		f.Add(stream, uint8(255))
	}
	lacReq, pollReq := writeLAC(5, 1), poll3(5, 0, 5)
	add(encode(f, addReq(wire.V2, 5, 0, -1, "x")), encode(f, wire.Request{Op: wire.OpRead, Ledger: 5}), encode(f, batchReq(0, 5, 1000)))
	add(encode(f, wire.Request{Op: wire.OpRead, Ledger: 6, Entry: -1, Flags: wire.Fence, Key: keyK}), encode(f, addReq(wire.V2, 6, 0, -1, "x")))
	add(encode(f, addReq(wire.V3, 5, 0, -1, "x")), encode(f, lacReq), encode(f, pollReq))
	for _, op := range []wire.Op{wire.OpReadLAC, wire.OpForce, wire.OpListEntries, wire.OpBookieInfo, wire.OpStartTLS} {
		add(encode(f, wire.Request{Proto: wire.V3, Op: op, Ledger: 5, Requested: 3}))
	}
	add(encode(f, wire.Request{Proto: wire.V3, Op: wire.OpAuth, AuthPlugin: "sasl", AuthPayload: []byte{1}}))
	add([]byte("GET / HTTP/1.1\r\n\r\n"))
	add([]byte{0x16, 3, 1, 0, 9})
	add([]byte{0, 0, 0, 0})

	b := startBookie(f, bookieConfig{mod: func(o *Options) { o.FrameLimit = 64 << 10 }})
	f.Fuzz(func(t *testing.T, stream []byte, piece uint8) {
		if len(stream) > 256<<10 {
			return
		}
		nc, err := net.Dial("tcp", b.addr)
		require.NoError(t, err)
		go func() {
			for rest := stream; len(rest) > 0; {
				n := min(len(rest), int(piece)*16+1)
				if _, err := nc.Write(rest[:n]); err != nil {
					break
				}
				rest = rest[n:]
			}
			_ = nc.(*net.TCPConn).CloseWrite()
		}()
		_ = nc.SetReadDeadline(time.Now().Add(20 * time.Second))
		_, err = io.Copy(io.Discard, nc)
		var timeout net.Error
		if ok := asNetError(err, &timeout); ok && timeout.Timeout() {
			t.Fatal("the connection hangs")
		}
		_ = nc.Close()
		// A poll that ended while it waited for a read worker is counted until the worker has seen it.
		require.Eventually(t, func() bool {
			return b.srv.m.connections.Load() == 0 && b.srv.used() == 0 && b.srv.polls.Load() == 0
		}, 30*time.Second, time.Millisecond)
	})
}

func asNetError(err error, target *net.Error) bool {
	ne, ok := err.(net.Error) //nolint:errorlint // io.Copy returns it bare
	if ok {
		*target = ne
	}
	return ok
}
