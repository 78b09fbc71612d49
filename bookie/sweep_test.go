package bookie

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/errorfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
	"github.com/binderylog/bindery/internal/wire"
)

// promises is what a client has been told.
type promises struct {
	added  map[int64][]int64 // ledger to entries
	fenced map[int64]bool
	lac    map[int64]int64
}

func newPromises() *promises {
	return &promises{added: map[int64][]int64{}, fenced: map[int64]bool{}, lac: map[int64]int64{}}
}

// script drives a bookie and notes what it promises. It goes on after errors, as long as the connection holds.
func (p *promises) script(b *Bookie) {
	nc, err := net.DialTimeout("tcp", b.Addr().String(), patience)
	if err != nil {
		return
	}
	defer nc.Close()
	c := &quietClient{c: nc}
	for round := range int64(2) {
		for l := int64(1); l <= 3; l++ {
			for e := round * 4; e < round*4+4; e++ {
				r := addReq(wire.V3, l, e, e-1, strings.Repeat("x", 400))
				if c.do(r) == wire.OK {
					p.added[l] = append(p.added[l], e)
				}
			}
		}
		if c.do(wire.Request{Proto: wire.V3, Op: wire.OpRead, Ledger: 3 + round, Entry: -1, Flags: wire.Fence, Key: keyK, HasKey: true}) != codeLost {
			if c.last == wire.OK || c.last == wire.NoEntry {
				p.fenced[3+round] = true
			}
		}
		if c.do(writeLAC(2, round+10)) == wire.OK {
			p.lac[2] = round + 10
		}
		_ = b.Flush(context.Background())
	}
}

// check proves on a bookie that started again that every promise is kept.
func (p *promises) check(t testing.TB, s *site, b *Bookie, where string) {
	c := s.dial(b)
	c3 := s.dial(b)
	for l, entries := range p.added {
		for _, e := range entries {
			require.Equal(t, body(l, e, e-1, strings.Repeat("x", 400)), c.read(wire.V2, l, e).Body, "entry %d of ledger %d, %s", e, l, where)
		}
		r := addReq(wire.V2, l, 999, 0, "wrong key")
		r.Key = keyX
		require.Equal(t, wire.UA, c.do(r).Code, "key of ledger %d, %s", l, where)
	}
	for l := range p.fenced {
		require.Equal(t, wire.Fenced, c.do(addReq(wire.V2, l, 999, 0, "late")).Code, "fence of ledger %d, %s", l, where)
	}
	for l, lac := range p.lac {
		r := c3.do(wire.Request{Proto: wire.V3, Op: wire.OpReadLAC, Ledger: l})
		got, err := crc.OpenLAC(r.LACBody, l)
		require.NoError(t, err, where)
		require.GreaterOrEqual(t, got, lac, "explicit LAC of ledger %d, %s", l, where)
	}
}

const codeLost wire.Code = -9

// quietClient is a client that may lose its connection.
type quietClient struct {
	c    net.Conn
	txn  uint64
	last wire.Code
}

func (q *quietClient) do(r wire.Request) wire.Code {
	q.txn++
	r.TxnID = q.txn
	q.last = codeLost
	f, err := wire.AppendRequest(nil, &r)
	if err != nil {
		return codeLost
	}
	_ = q.c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := q.c.Write(f); err != nil {
		return codeLost
	}
	buf := make([]byte, 64<<10)
	n := 0
	for {
		m, err := q.c.Read(buf[n:])
		if err != nil {
			return codeLost
		}
		n += m
		packet, _, err := wire.Frame(buf[:n], len(buf))
		if errors.Is(err, wire.ErrShort) {
			continue
		}
		var resp wire.Response
		if wire.DecodeResponse(wire.V3, packet, &resp) != nil {
			return codeLost
		}
		q.last = resp.Code
		return resp.Code
	}
}

// sweepSite is a site whose bookie is small, on the given file system.
func sweepSite(t testing.TB, fs vfs.FS) *site {
	s := newSite(t)
	s.fs = fs
	s.mod = func(o *Options) {
		o.Journal.SegmentSize = 1 << 20
		o.Storage.WriteCacheBytes, o.Storage.ReadCacheBytes = 1<<20, 1<<20
		o.Storage.Log.LogSize = 1 << 20
		o.Storage.ReserveBytes = 64 << 10
		o.FrameLimit = 128 << 10
		o.InFlightBytes = 1 << 20
		o.ReadWorkers = 2
	}
	return s
}

func (s *site) stopAnyhow(b *Bookie) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = b.Stop(ctx)
}

// TestPowerLossAnywhere: power is lost in the middle of the nth change to the disk, for every n over start, load and stop,
// with one of three shares of what was not synced kept; every promise is kept.
func TestPowerLossAnywhere(t *testing.T) {
	step := 3
	if testing.Short() {
		step = 13
	}
	for i, keep := range []float64{0, 0.5, 1} {
		n := 1 + i%step
		for ; crashAt(t, n, keep); n += step {
		}
		require.Greater(t, n, 100, "the run is long enough to mean something")
		t.Logf("%d crashes with %.0f%% of what was not synced kept", n/step, keep*100)
	}
}

// crashAt loses power in the middle of the nth change; false if the run had fewer.
func crashAt(t *testing.T, n int, keep float64) bool {
	where := fmt.Sprintf("crash %d, %.0f%% of what was not synced kept", n, keep*100)
	fs := memfs.New("/")
	s := sweepSite(t, fs)
	p := newPromises()
	fs.CrashAt(int64(n))
	b, err := s.tryStart()
	if err == nil {
		p.script(b)
		s.stopAnyhow(b)
	}
	if !fs.Crashed() {
		require.NoError(t, err)
		return false
	}
	s2 := sweepSite(t, fs.CrashClone(uint64(n), keep))
	s2.store, s2.views = s.store, s.views
	b2, err := s2.tryStart()
	if err != nil {
		// A preparation that was cut off may have to be finished by hand; nothing was promised then.
		requireExitError(t, err, where)
		require.Empty(t, p.added, "%s: %v", where, err)
		return true
	}
	p.check(t, s2, b2, where)
	s2.stopAnyhow(b2)
	return true
}

func requireExitError(t *testing.T, err error, where string) {
	t.Helper()
	var exit *ExitError
	require.ErrorAs(t, err, &exit, where)
}

// TestDiskFaultAnywhere: the nth write, sync, rename, open ... fails, once. The bookie does not start, or serves with
// typed refusals; every promise is kept, during and after.
func TestDiskFaultAnywhere(t *testing.T) {
	step := int64(1)
	if testing.Short() {
		step = 11
	}
	for _, kind := range []errorfs.Kind{errorfs.Write, errorfs.Sync, errorfs.Rename, errorfs.Open, errorfs.SyncDir, errorfs.Preallocate} {
		faults := 0
		for n := int64(1); ; n += step {
			inner := memfs.New("/")
			fs := errorfs.Wrap(inner, errorfs.Nth(kind, n, syscall.EIO))
			s := sweepSite(t, fs)
			p := newPromises()
			b, err := s.tryStart()
			if err != nil {
				requireExitError(t, err, fmt.Sprint(kind, n))
			} else {
				p.script(b)
				s.stopAnyhow(b)
			}
			if fs.Injected() == 0 {
				require.NoError(t, err)
				break
			}
			faults++
			where := fmt.Sprintf("%s %d failed: %s", kind, n, fs.Last())
			s2 := sweepSite(t, inner)
			s2.store, s2.views = s.store, s.views
			b2, err := s2.tryStart()
			if err != nil {
				require.Empty(t, p.added, "%s: %v", where, err)
				continue
			}
			p.check(t, s2, b2, where)
			s2.stopAnyhow(b2)
		}
		t.Logf("%s: %d faults", kind, faults)
	}
}
