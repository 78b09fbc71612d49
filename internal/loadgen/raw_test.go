package loadgen

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
	"github.com/binderylog/bindery/internal/digest"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/wire"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// target is a bookie that keeps what it needs to check the client.
type target struct {
	ln    net.Listener
	wg    sync.WaitGroup
	code  func(ledger, entry int64) (wire.Code, time.Duration, bool) // false = never answer
	limit int                                                        // adds after which connections are cut; 0 = none

	mu    sync.Mutex
	seen  map[int64]int64 // ledger -> next entry
	adds  int
	wrong string
}

func newTarget(t *testing.T) *target {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &target{ln: ln, seen: map[int64]int64{}, code: func(int64, int64) (wire.Code, time.Duration, bool) { return wire.OK, 0, true }}
	s.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s.wg.Go(func() { s.serve(c) })
		}
	})
	t.Cleanup(func() { ln.Close(); s.wg.Wait() })
	return s
}

func (s *target) serve(c net.Conn) {
	defer c.Close()
	var d wire.Decoder
	dg, _ := digest.New(ledger.DigestCRC32C, nil)
	buf := make([]byte, 0, 1<<20)
	for {
		packet, rest, err := wire.Frame(buf, 1<<20)
		if errors.Is(err, wire.ErrShort) {
			copied := copy(buf[:cap(buf)], buf)
			n, rerr := c.Read(buf[copied:cap(buf)])
			if rerr != nil {
				return
			}
			buf = buf[:copied+n]
			continue
		}
		var r wire.Request
		if err != nil || d.Request(packet, &r) != nil {
			return
		}
		s.mu.Lock()
		s.adds++
		cut := s.limit > 0 && s.adds > s.limit
		if r.Op != wire.OpAdd || r.Entry != s.seen[r.Ledger] {
			s.wrong = "an add out of order"
		}
		s.seen[r.Ledger] = r.Entry + 1
		if e, err := dg.Open(r.Body, r.Ledger, r.Entry); err != nil || e.LAC >= r.Entry {
			s.wrong = "a bad body"
		}
		s.mu.Unlock()
		if cut {
			return
		}
		code, delay, answer := s.code(r.Ledger, r.Entry)
		if delay > 0 {
			time.Sleep(delay)
		}
		if answer {
			var resp wire.Response
			r.Answer(&resp, code)
			if _, err := c.Write(wire.AppendResponse(nil, &resp)); err != nil {
				return
			}
		}
		buf = append(buf[:0:cap(buf)], rest...)
	}
}

func (s *target) check(t *testing.T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Empty(t, s.wrong)
}

// calm runs a load for longer and longer, until it took place as planned: on a busy machine a short one may get no turn.
func calm(t *testing.T, planned func(r *Result) bool, run func(scale int) *Result) *Result {
	for scale := 1; ; scale *= 5 {
		r := run(scale)
		if planned(r) || scale > 25 {
			return r
		}
		t.Logf("once more: %d adds in %v s", r.Adds, r.Seconds)
	}
}

func times(n int, d time.Duration) time.Duration { return d * time.Duration(n) }

func TestClosedLoop(t *testing.T) {
	var s *target
	r := calm(t, func(r *Result) bool {
		return r.Adds > 100 && r.WarmupAdds > 10 && r.Adds+r.WarmupAdds+int64(s.adds/10) >= int64(s.adds) && r.Seconds < 0.35
	}, func(scale int) *Result {
		s = newTarget(t)
		d := &Raw{Address: s.ln.Addr().String(), KeepHistogram: true, Plan: Plan{Connections: 2, Ledgers: 5, Outstanding: 16, Size: 100, Warmup: times(scale, 50*time.Millisecond), Duration: times(scale, 200*time.Millisecond)}}
		r, err := d.Run(t.Context())
		require.NoError(t, err)
		s.check(t)
		r.Seconds /= float64(scale)
		return r
	})
	require.Len(t, s.seen, 5)
	require.Greater(t, r.Adds, int64(100))
	require.Greater(t, r.WarmupAdds, int64(10))
	require.Zero(t, r.Failed())
	require.Equal(t, "closed", r.Loop)
	require.InDelta(t, 0.2, r.Seconds, 0.15)
	require.Greater(t, r.LatencyUs["p99"], r.LatencyUs["p50"]*0.99)
	h, err := hdr.Decode([]byte(r.Histogram))
	require.NoError(t, err, "any reader of the format takes it")
	require.Positive(t, h.TotalCount())
	require.LessOrEqual(t, r.Adds+r.WarmupAdds, int64(s.adds))
	require.GreaterOrEqual(t, r.Adds+r.WarmupAdds+int64(s.adds/10), int64(s.adds), "everything but the last window was answered in time")
}

func TestOpenLoopCountsFromTheDueTime(t *testing.T) {
	r := calm(t, func(r *Result) bool { return r.hist.TotalCount() >= 990 }, func(int) *Result {
		s := newTarget(t)
		stalled := false
		s.code = func(int64, int64) (wire.Code, time.Duration, bool) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.adds > 300 && !stalled {
				stalled = true
				return wire.OK, 300 * time.Millisecond, true
			}
			return wire.OK, 0, true
		}
		d := &Raw{Address: s.ln.Addr().String(), Plan: Plan{Rate: 1000, Connections: 1, Size: 10, Duration: time.Second}}
		r, err := d.Run(t.Context())
		require.NoError(t, err)
		s.check(t)
		return r
	})
	require.Equal(t, "open", r.Loop)
	require.InDelta(t, 1000, r.hist.TotalCount(), 10, "the stall loses no sample")
	require.Zero(t, r.Failed())
	// A third of a second of stall at 1,000/s is some 300 late adds, up to 300 ms.
	require.Greater(t, r.Latency(85), 50*time.Millisecond)
	require.Greater(t, r.Latency(99), 250*time.Millisecond)
}

func TestRefusedAndUnanswered(t *testing.T) {
	r := calm(t, func(r *Result) bool { return r.Adds > 1000 }, func(scale int) *Result {
		s := newTarget(t)
		s.code = func(_, entry int64) (wire.Code, time.Duration, bool) {
			if entry%10 == 3 {
				return wire.ReadOnly, 0, true
			}
			return wire.OK, 0, true
		}
		d := &Raw{Address: s.ln.Addr().String(), Plan: Plan{Connections: 1, Outstanding: 4, Size: 10, Duration: times(scale, 100*time.Millisecond)}}
		r, err := d.Run(t.Context())
		require.NoError(t, err)
		return r
	})
	require.InDelta(t, float64(r.Adds)/9, r.Errors[wire.ReadOnly.String()], float64(r.Adds)/50+10)
}

func TestCutConnection(t *testing.T) {
	s := newTarget(t)
	s.limit = 50
	d := &Raw{Address: s.ln.Addr().String(), Plan: Plan{Connections: 1, Outstanding: 8, Size: 10, Duration: 5 * time.Minute}}
	start := time.Now()
	r, err := d.Run(t.Context())
	require.Error(t, err)
	require.True(t, errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || err != nil)
	require.Positive(t, r.Unanswered)
	require.Less(t, time.Since(start), 4*time.Minute, "nothing waits for a window that no answer frees")
}

func TestCancelled(t *testing.T) {
	s := newTarget(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var answers atomic.Int64
	s.code = func(_, _ int64) (wire.Code, time.Duration, bool) {
		if answers.Add(1) == 50 {
			cancel()
		}
		return wire.OK, 0, true
	}
	d := &Raw{Address: s.ln.Addr().String(), Plan: Plan{Connections: 3, Ledgers: 3, Duration: time.Minute, Rate: 1000}}
	r, err := d.Run(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Positive(t, r.Adds)
}

func TestNobodyListens(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := ln.Addr().String()
	ln.Close()
	_, err = (&Raw{Address: addr}).Run(t.Context())
	require.ErrorContains(t, err, "connect to the bookie")
	_, err = (&Raw{}).Run(t.Context())
	require.ErrorIs(t, err, errNothingToDrive)
	_, err = (&Raw{Address: addr, Plan: Plan{Size: 1 << 30}}).Run(t.Context())
	require.ErrorContains(t, err, "are outside")
}

func TestPaceSendsExactlyTheRate(t *testing.T) {
	for _, rate := range []float64{1, 7, 999, 5000, 123456} {
		start := time.Unix(1000, 0)
		p := newSchedule(start, rate, 0)
		for now := start; now.Before(start.Add(2 * time.Second)); now = now.Add(137 * time.Microsecond) {
			n, next := p.due(now)
			require.True(t, next.After(now.Add(-time.Nanosecond)))
			for i := range n {
				due := p.dueOf(p.sent + i)
				require.False(t, due.After(now), "rate %v: add %d was sent before it was due", rate, p.sent+i)
			}
			p.sent += n
		}
		require.InDelta(t, 2*rate, p.sent, rate*0.001+1)
	}
}
