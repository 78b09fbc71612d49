//go:build crash

package crash

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/wire"
)

// fakeBookie keeps everything in memory, across "restarts" too, except for what its lie says. It is here to prove that
// the checks of this package find what they are for.
type fakeBookie struct {
	listener net.Listener
	mu       sync.Mutex
	ledgers  map[int64]*fakeLedger
	conns    map[net.Conn]bool
	wg       sync.WaitGroup
}

type fakeLedger struct {
	key     []byte
	fenced  bool
	entries map[int64][]byte
	last    int64
	lac     []byte
}

func startFake(t *testing.T) *fakeBookie {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f := &fakeBookie{listener: l, ledgers: map[int64]*fakeLedger{}, conns: map[net.Conn]bool{}}
	f.wg.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.conns[nc] = true
			f.mu.Unlock()
			f.wg.Go(func() { f.serve(nc) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		f.mu.Lock()
		for nc := range f.conns {
			_ = nc.Close()
		}
		f.mu.Unlock()
		f.wg.Wait()
	})
	return f
}

func (f *fakeBookie) address() string { return f.listener.Addr().String() }

func (f *fakeBookie) serve(nc net.Conn) {
	defer nc.Close()
	var d wire.Decoder // V2 and V3 alike
	for {
		var length [4]byte
		if _, err := io.ReadFull(nc, length[:]); err != nil {
			return
		}
		packet := make([]byte, binary.BigEndian.Uint32(length[:]))
		if _, err := io.ReadFull(nc, packet); err != nil {
			return
		}
		var req wire.Request
		if err := d.Request(packet, &req); err != nil {
			return
		}
		var resp wire.Response
		f.mu.Lock()
		code, body := f.answer(&req)
		f.mu.Unlock()
		req.Answer(&resp, code)
		if resp.Body = body; req.Op == wire.OpReadLAC {
			resp.LACBody = body
		}
		if _, err := nc.Write(wire.AppendResponse(nil, &resp)); err != nil {
			return
		}
	}
}

func (f *fakeBookie) answer(r *wire.Request) (wire.Code, []byte) {
	id := r.Ledger
	if r.Op == wire.OpWriteLAC {
		id = int64(binary.BigEndian.Uint64(r.Body))
	}
	l := f.ledgers[id]
	if l == nil && (r.Op == wire.OpAdd || r.Op == wire.OpWriteLAC || r.Flags&wire.Fence != 0) {
		l = &fakeLedger{key: bytes.Clone(r.Key), entries: map[int64][]byte{}, last: -1}
		f.ledgers[id] = l
	}
	if r.Op == wire.OpForce {
		return wire.OK, nil
	}
	if l == nil {
		return wire.NoLedger, nil
	}
	if (r.Op == wire.OpAdd || r.Flags&wire.Fence != 0) && !bytes.Equal(l.key, r.Key) {
		return wire.UA, nil
	}
	switch r.Op {
	case wire.OpWriteLAC:
		l.lac = bytes.Clone(r.Body)
		return wire.OK, nil
	case wire.OpReadLAC:
		return wire.OK, l.lac
	case wire.OpAdd:
		if l.fenced && r.Flags&wire.RecoveryAdd == 0 {
			return wire.Fenced, nil
		}
		l.entries[r.Entry] = bytes.Clone(r.Body)
		l.last = max(l.last, r.Entry)
		return wire.OK, nil
	}
	if r.Flags&wire.Fence != 0 {
		l.fenced = true
	}
	entry := r.Entry
	if entry == -1 {
		entry = l.last
	}
	body, ok := l.entries[entry]
	if !ok {
		return wire.NoEntry, nil
	}
	return wire.OK, body
}

// each calls fn for every ledger that has entries.
func (f *fakeBookie) each(fn func(id int64, l *fakeLedger)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, l := range f.ledgers {
		if l.last >= 0 {
			fn(id, l)
		}
	}
}

func TestChecksFindBrokenPromises(t *testing.T) {
	for name, c := range map[string]struct {
		lie  func(f *fakeBookie)
		find string // "" = nothing to be found
	}{
		"honest": {func(*fakeBookie) {}, ""},
		"an entry is lost": {func(f *fakeBookie) {
			f.each(func(_ int64, l *fakeLedger) { delete(l.entries, l.last-1) })
		}, "acknowledged, and read answered ENOENTRY"},
		"the newest entry is lost": {func(f *fakeBookie) {
			f.each(func(_ int64, l *fakeLedger) { delete(l.entries, l.last); l.last-- })
		}, "acknowledged, and read answered ENOENTRY"},
		"the last entry is forgotten": {func(f *fakeBookie) {
			f.each(func(_ int64, l *fakeLedger) { l.last-- })
		}, "the last entry is said to be"},
		"a byte is changed": {func(f *fakeBookie) {
			f.each(func(_ int64, l *fakeLedger) { b := l.entries[l.last]; b[len(b)-1] ^= 1 })
		}, "read back other bytes"},
		"a fence is forgotten": {func(f *fakeBookie) {
			f.mu.Lock()
			defer f.mu.Unlock()
			for _, l := range f.ledgers {
				l.fenced = false
			}
		}, "it answered a fence, and answers an add with EOK"},
		"a key is forgotten": {func(f *fakeBookie) {
			f.each(func(id int64, l *fakeLedger) { l.key = content{7}.key(id ^ 1<<50) })
		}, "an add with another master key is answered EOK"},
		"an explicit LAC is forgotten": {func(f *fakeBookie) {
			f.each(func(id int64, l *fakeLedger) { l.lac = seal.SealLAC(nil, id, 0) })
		}, "an explicit LAC of"},
		"ledgers are lost": {func(f *fakeBookie) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.ledgers = map[int64]*fakeLedger{}
		}, "acknowledged, and read answered ENOLEDGER"},
	} {
		t.Run(name, func(t *testing.T) {
			f := startFake(t)
			w := newWorld(7, 1)
			w.round = 1
			for id := range int64(4) {
				w.add(id+1, true, false)
			}
			for n := 0; n < 50 && w.stats["adds acknowledged"] == 0; n++ { // on a busy machine nothing may be done in so short a time
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				w.load(ctx, []string{f.address()}, 3)
				cancel()
			}
			require.Positive(t, w.stats["adds acknowledged"])
			require.Empty(t, w.broken())
			if name == "a fence is forgotten" {
				c, err := dial(f.address())
				require.NoError(t, err)
				w.fence(c, w.all()[0].replicas[0], w.rng(0, 0))
				c.close()
			}
			c.lie(f)
			w.round = 2
			require.NoError(t, w.verifyAll([]string{f.address()}, 5))
			found := strings.Join(w.broken(), "\n")
			if c.find == "" {
				require.Empty(t, found)
			} else {
				require.Contains(t, found, c.find)
			}
		})
	}
}

// TestChecksFindAnEntryThatComesBack covers the one lie that takes two starts to tell.
func TestChecksFindAnEntryThatComesBack(t *testing.T) {
	f := startFake(t)
	w := newWorld(7, 1)
	r := w.add(1, true, false).replicas[0]
	r.mu.Lock()
	r.sentLocked(0)
	r.next = 1
	r.mu.Unlock()
	require.NoError(t, w.verifyAll([]string{f.address()}, 1))
	require.Empty(t, w.broken())
	f.mu.Lock()
	f.ledgers[1] = &fakeLedger{key: w.key(1), entries: map[int64][]byte{0: w.body(1, 0)}, last: 0}
	f.mu.Unlock()
	require.NoError(t, w.verifyAll([]string{f.address()}, 1))
	require.Contains(t, strings.Join(w.broken(), "\n"), "was not there after an earlier start, and is now")
}
