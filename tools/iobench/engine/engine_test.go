package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"math"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/journal"
	"github.com/binderylog/bindery/tools/iobench/modeldisk"
	"github.com/binderylog/bindery/tools/iobench/result"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var flash = modeldisk.Times{Write: 30 * time.Microsecond, Flush: 70 * time.Microsecond, PerMiB: 400 * time.Microsecond, Read: 90 * time.Microsecond, Cached: 2 * time.Microsecond, FirstWrite: 300 * time.Microsecond, Grow: 200 * time.Microsecond}

// virtual runs f in virtual time on a model disk.
func virtual(t *testing.T, f func(t *testing.T, d *modeldisk.Disk, e *Env)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := modeldisk.New(flash)
		f(t, d, newEnv(d))
		names, open := d.Files()
		require.Empty(t, names, "no file has a name at the end")
		require.Zero(t, open, "no file is open at the end")
	})
}

func newEnv(d *modeldisk.Disk) *Env {
	return &Env{FS: d, Dir: "/d", Meter: NewMeter(0), Seed: 1, Start: time.Now(), Wait: func(t time.Time) { time.Sleep(time.Until(t)) }}
}

func area(t *testing.T, e *Env, o AreaOptions) *Area {
	t.Helper()
	if o.Size == 0 {
		o.Size = 16 * MiB
	}
	if o.State == "" {
		o.State = Recycled
	}
	if o.Methods == nil {
		o.Methods = []journal.IOMethod{journal.IODSync}
	}
	a, err := e.NewArea(t.Context(), o)
	require.NoError(t, err)
	return a
}

func durable(t *testing.T, a *Area, m journal.IOMethod, size int) Worker {
	t.Helper()
	w, err := a.DurableWriter(m, size)
	require.NoError(t, err)
	return w
}

func cell(id string) result.Cell { return result.Cell{ID: id, Op: "write", Depth: 1} }

// TestFiguresEqualTheConfiguredDelay: what is measured on a disk with fixed times is those times, within 5 %.
func TestFiguresEqualTheConfiguredDelay(t *testing.T) {
	for _, tc := range []struct {
		method journal.IOMethod
		size   int
		want   time.Duration
	}{
		{journal.IODSync, 4 * KiB, 100*time.Microsecond + 1562*time.Nanosecond},
		{journal.IODSync, MiB, 500 * time.Microsecond},
		{journal.IOFdatasync, MiB, 500 * time.Microsecond},
		{journal.IORWFDSync, 256 * KiB, 200 * time.Microsecond},
		{journal.IOBuffered, MiB, 502 * time.Microsecond},
	} {
		virtual(t, func(t *testing.T, _ *modeldisk.Disk, e *Env) {
			a := area(t, e, AreaOptions{Methods: []journal.IOMethod{tc.method}})
			defer a.Close()
			p := NewProbe(cell("x"))
			require.NoError(t, e.Run(t.Context(), Load{Probe: p, Workers: []Worker{durable(t, a, tc.method, tc.size)}, Duration: time.Second}))
			c := p.Result()
			for _, got := range []float64{c.Latency.P50US, c.Latency.P99US, c.Latency.MaxUS} {
				require.InEpsilon(t, us(int64(tc.want)), got, 0.05)
			}
			require.InEpsilon(t, float64(time.Second)/float64(tc.want), c.OpsPerS, 0.05)
			require.InEpsilon(t, c.OpsPerS*float64(tc.size)/1e6, c.MBPerS, 0.001)
		})
	}
}

// TestPercentilesOfATrace: a replayed trace of known latencies comes out within 1 %.
func TestPercentilesOfATrace(t *testing.T) {
	virtual(t, func(t *testing.T, d *modeldisk.Disk, e *Env) {
		rng := rand.New(rand.NewPCG(3, 3))
		trace := make([]time.Duration, 20000)
		for i := range trace {
			trace[i] = time.Duration(50e3 * math.Exp(0.8*rng.NormFloat64()))
		}
		var n int
		w := FuncWorker(nil, func() (Parts, error) {
			time.Sleep(trace[n])
			n++
			return Parts{}, nil
		})
		p := NewProbe(cell("trace"))
		require.NoError(t, e.Run(t.Context(), Load{Probe: p, Workers: []Worker{w}, Duration: time.Hour, OpsMax: len(trace)}))
		slices.Sort(trace)
		l := p.Result().Latency
		for q, got := range map[float64]float64{0.5: l.P50US, 0.9: l.P90US, 0.99: l.P99US, 0.999: l.P999US, 0.9999: l.P9999US} {
			require.InEpsilon(t, us(int64(trace[int(math.Ceil(q*float64(len(trace))))-1])), got, 0.01, "quantile %v", q)
		}
		require.InEpsilon(t, us(int64(trace[len(trace)-1])), l.MaxUS, 0.01)
	})
}

// TestPitfall08CoordinatedOmission: a stall of 1 s at R operations a second shows as R x 1 s late samples, not as one slow
// one; and the closed-loop maximum is shown apart.
func TestPitfall08CoordinatedOmission(t *testing.T) {
	virtual(t, func(t *testing.T, d *modeldisk.Disk, e *Env) {
		a := area(t, e, AreaOptions{})
		defer a.Close()
		base := d.Count("write")
		d.Extra = func(op string, n int64) time.Duration {
			if op == "write" && n == base+2000 {
				return time.Second
			}
			return 0
		}
		c := cell("open")
		c.Loop = "open"
		p := NewProbe(c).Stalled()
		const rate = 1000
		require.NoError(t, e.Run(t.Context(), Load{Probe: p, Workers: []Worker{durable(t, a, journal.IODSync, 4*KiB)}, Rate: rate, Duration: 10 * time.Second}))
		got := p.Result()
		require.Equal(t, int64(10*rate), got.Ops, "every operation that was due was done")
		require.InDelta(t, rate*1.1, got.Late, rate*0.05, "the backlog of 1 s, and what came due while it was worked off")
		require.InEpsilon(t, 1e6, got.Latency.MaxUS, 0.01)
		require.Greater(t, got.Latency.P99US, 800e3, "more than 1 % waited, nearly up to a second")
		require.InEpsilon(t, 1e6, got.ClosedMaxUS, 0.01)
		s := p.Stalls()
		require.Equal(t, int64(1), s.Over500MS)
		require.InEpsilon(t, 1e6, s.LongestUS, 0.01)
		require.Len(t, s.Events, 1)

		// The closed loop sees the same stall as one sample of thousands.
		base = d.Count("write")
		p = NewProbe(cell("closed"))
		require.NoError(t, e.Run(t.Context(), Load{Probe: p, Workers: []Worker{durable(t, a, journal.IODSync, 4*KiB)}, Duration: 10 * time.Second}))
		require.Less(t, p.Result().Latency.P99US, 200.0)
	})
}

// TestAnOverloadedOpenLoopCountsWhatItCouldNotStart: nothing that was due is left out.
func TestAnOverloadedOpenLoopCountsWhatItCouldNotStart(t *testing.T) {
	virtual(t, func(t *testing.T, _ *modeldisk.Disk, e *Env) {
		a := area(t, e, AreaOptions{})
		defer a.Close()
		p := NewProbe(cell("x"))
		require.NoError(t, e.Run(t.Context(), Load{Probe: p, Workers: []Worker{durable(t, a, journal.IODSync, 4*KiB)}, Rate: 100_000, Duration: time.Second}))
		c := p.Result()
		require.Equal(t, int64(100_000), c.Ops)
		require.Greater(t, c.Latency.P50US, 1e6)
	})
}

// TestPitfall03AlwaysAdvances: no block is written twice in a row, and none again before all others were.
func TestPitfall03AlwaysAdvances(t *testing.T) {
	virtual(t, func(t *testing.T, d *modeldisk.Disk, e *Env) {
		a := area(t, e, AreaOptions{})
		defer a.Close()
		var offs []int64
		d.OnWrite = func(_ string, _ []byte, off int64) { offs = append(offs, off) }
		p := NewProbe(cell("x"))
		require.NoError(t, e.Run(t.Context(), Load{Probe: p, Workers: []Worker{durable(t, a, journal.IODSync, 4*KiB)}, Duration: 2 * time.Second}))
		require.Greater(t, len(offs), 4096, "more than the file has blocks")
		for i := 1; i < len(offs); i++ {
			want := (offs[i-1] + 4*KiB) % a.Size()
			require.Equal(t, want, offs[i])
		}
	})
}

// TestPitfall04DataIsRandom: no two blocks are the same, and none can be compressed.
func TestPitfall04DataIsRandom(t *testing.T) {
	virtual(t, func(t *testing.T, d *modeldisk.Disk, e *Env) {
		a := area(t, e, AreaOptions{})
		defer a.Close()
		seen := map[[16]byte]bool{}
		var values [256]int
		d.OnWrite = func(_ string, p []byte, _ int64) {
			for off := 0; off < len(p); off += 512 {
				key := [16]byte(p[off : off+16])
				require.False(t, seen[key], "a sector that was written before")
				seen[key] = true
			}
			for _, b := range p {
				values[b]++
			}
		}
		w := []Worker{durable(t, a, journal.IODSync, 64*KiB), durable(t, a, journal.IODSync, 4*KiB)}
		for i := range w {
			require.NoError(t, e.Run(t.Context(), Load{Probe: NewProbe(cell("x")), Workers: w[i : i+1], Duration: 100 * time.Millisecond}))
		}
		total := 0
		for _, n := range values {
			total += n
		}
		entropy := 0.0
		for _, n := range values {
			if n > 0 {
				p := float64(n) / float64(total)
				entropy -= p * math.Log2(p)
			}
		}
		require.Greater(t, entropy, 7.95, "bits per byte")
		require.Greater(t, len(seen), 1000)
	})
}

// TestPitfall07HistogramsAreMerged: percentiles over rounds are those of all samples, not the mean of the rounds' own.
func TestPitfall07HistogramsAreMerged(t *testing.T) {
	virtual(t, func(t *testing.T, d *modeldisk.Disk, e *Env) {
		slow := time.Duration(0)
		w := FuncWorker(nil, func() (Parts, error) { time.Sleep(time.Millisecond + slow); return Parts{}, nil })
		p := NewProbe(cell("x"))
		for round := range 4 {
			slow = 0
			if round == 3 {
				slow = 99 * time.Millisecond
			}
			require.NoError(t, e.Run(t.Context(), Load{Probe: p, Workers: []Worker{w}, Duration: time.Hour, OpsMax: 100}))
		}
		c := p.Result()
		require.InEpsilon(t, 1000, c.Latency.P50US, 0.01)
		require.InEpsilon(t, 100e3, c.Latency.P90US, 0.01, "the mean of the rounds would be 25.75 ms")
		h, err := c.Latency.Decode()
		require.NoError(t, err)
		require.Equal(t, int64(400), h.TotalCount())
		require.Len(t, c.Rounds, 4)
	})
}

// TestPitfall11NoRankingInsideTheSpread.
func TestPitfall11NoRankingInsideTheSpread(t *testing.T) {
	make2 := func(name string, rounds ...float64) *result.Cell {
		p := NewProbe(cell(name))
		synctest.Test(t, func(t *testing.T) {
			e := &Env{Meter: NewMeter(0), Start: time.Now()}
			for _, us := range rounds {
				w := FuncWorker(nil, func() (Parts, error) { time.Sleep(time.Duration(us * 1e3)); return Parts{}, nil })
				require.NoError(t, e.Run(t.Context(), Load{Probe: p, Workers: []Worker{w}, Duration: time.Hour, OpsMax: 50}))
			}
		})
		c := p.Result()
		return &c
	}
	clear2 := []*result.Cell{make2("a", 100, 101, 102), make2("b", 150, 149, 151)}
	v, ok := Compare("q", ByP99, clear2)
	require.True(t, ok)
	require.True(t, v.Significant)
	require.Equal(t, "a", v.Best)
	require.Equal(t, 3, v.RoundsWon)
	require.InEpsilon(t, 1.48, v.Ratio, 0.02)

	// 2.7 times apart for the same thing: whoever is ahead by less is not ahead.
	v, ok = Compare("q", ByP50, []*result.Cell{make2("a", 100, 270, 120), make2("b", 150, 280, 160)})
	require.True(t, ok)
	require.Equal(t, 3, v.RoundsWon)
	require.False(t, v.Significant, "ahead in all rounds, but by less than the spread")

	v, _ = Compare("q", ByP50, []*result.Cell{make2("a", 100, 100, 210), make2("b", 200, 200, 200)})
	require.False(t, v.Significant, "not ahead in one round")

	v, _ = Compare("q", ByP50, []*result.Cell{make2("a", 100), make2("b", 200)})
	require.False(t, v.Significant, "one round says nothing")

	_, ok = Compare("q", ByP50, clear2[:1])
	require.False(t, ok)
}

// TestInterleavedRounds: a disk that slows down during the run hits all contenders alike.
func TestInterleavedRounds(t *testing.T) {
	virtual(t, func(t *testing.T, d *modeldisk.Disk, e *Env) {
		a := area(t, e, AreaOptions{Methods: []journal.IOMethod{journal.IODSync, journal.IOFdatasync}})
		defer a.Close()
		began := time.Now()
		d.Noise = func(string, int64) float64 { return 1 + time.Since(began).Seconds() } // twice as slow after a second
		var list []Contender
		var probes []*Probe
		for _, m := range []journal.IOMethod{journal.IODSync, journal.IOFdatasync} {
			p := NewProbe(cell(string(m)))
			probes = append(probes, p)
			list = append(list, Contender{Load: Load{Probe: p, Workers: []Worker{durable(t, a, m, 4*KiB)}, Duration: 50 * time.Millisecond}})
		}
		var seen []string
		e.Progress = func(p Progress) { seen = append(seen, p.Cell) }
		require.NoError(t, e.Interleave(t.Context(), 10, list, "sync"))
		require.Equal(t, []string{"dsync", "fdatasync", "fdatasync", "dsync", "dsync", "fdatasync"}, seen[:6])
		x, y := probes[0].Result(), probes[1].Result()
		require.InEpsilon(t, x.Latency.P50US, y.Latency.P50US, 0.10)
		v, ok := Compare("method", ByP50, []*result.Cell{&x, &y})
		require.True(t, ok)
		require.False(t, v.Significant)
	})
}

// TestPitfall05NotSteady.
func TestPitfall05NotSteady(t *testing.T) {
	require.True(t, SteadyWindows([]float64{500, 100, 100, 105, 99, 101}))
	require.False(t, SteadyWindows([]float64{100, 100, 100, 100, 115}))
	require.False(t, SteadyWindows([]float64{100, 100, 100, 100}), "four windows say nothing")
	require.False(t, SteadyWindows([]float64{0, 0, 0, 0, 0}))
	virtual(t, func(t *testing.T, d *modeldisk.Disk, e *Env) {
		a := area(t, e, AreaOptions{Size: 64 * MiB})
		defer a.Close()
		d.FastBytes, d.SlowPerMiB = 64*MiB+4000*MiB, 4*time.Millisecond
		ws, err := a.StreamWriters(MiB, 1, false)
		require.NoError(t, err)
		p := NewProbe(cell("x")).Timed()
		require.NoError(t, e.Run(t.Context(), Load{Probe: p, Workers: ws, Duration: 3 * time.Second}))
		require.False(t, p.Steady(), "the cache ran full on the way")
		p = NewProbe(cell("y")).Timed()
		require.NoError(t, e.Run(t.Context(), Load{Probe: p, Workers: ws, Duration: 12 * time.Second}))
		require.True(t, p.Steady())
		s := p.Series()
		require.Len(t, s.Ops, 12)
		require.InEpsilon(t, 260, s.MBPerS[5], 0.01)
		require.InEpsilon(t, 4030, s.P99US[5], 0.01)
	})
}

// TestPitfall16ToolOverhead: the tool knows what timing costs, and what it prepares is in no figure.
func TestPitfall16ToolOverhead(t *testing.T) {
	c := Calibrate()
	require.Positive(t, c.OverheadNS)
	require.Less(t, c.OverheadNS, 1e6)
	virtual(t, func(t *testing.T, _ *modeldisk.Disk, e *Env) {
		p := NewProbe(cell("x"))
		w := FuncWorker(func(context.Context) error { time.Sleep(5 * time.Millisecond); return nil },
			func() (Parts, error) { time.Sleep(time.Millisecond); return Parts{Written: 1000}, nil })
		require.NoError(t, e.Run(t.Context(), Load{Probe: p, Workers: []Worker{w}, Duration: time.Second}))
		r := p.Result()
		require.InEpsilon(t, 1000, r.Latency.MaxUS, 0.01)
		require.InEpsilon(t, 1000, r.OpsPerS, 0.05)
	})
}

// TestPitfall17ErrorsAreNoSamples: the first EIO ends the run.
func TestPitfall17ErrorsAreNoSamples(t *testing.T) {
	for _, op := range []string{"write", "sync", "read"} {
		virtual(t, func(t *testing.T, d *modeldisk.Disk, e *Env) {
			a := area(t, e, AreaOptions{Methods: []journal.IOMethod{journal.IOFdatasync}})
			defer a.Close()
			base := d.Count(op)
			d.Fail = func(kind string, n int64) error {
				if kind == op && n == base+10 {
					return syscall.EIO
				}
				return nil
			}
			w := durable(t, a, journal.IOFdatasync, 4*KiB)
			if op == "read" {
				w = a.Readers(4*KiB, 1, true)[0]
			}
			p := NewProbe(cell("x"))
			err := e.Run(t.Context(), Load{Probe: p, Workers: []Worker{w}, Duration: time.Second})
			var disk *DiskError
			require.ErrorAs(t, err, &disk)
			require.ErrorIs(t, err, syscall.EIO)
			require.ErrorContains(t, err, "the disk failed")
			require.Equal(t, int64(9), p.Result().Ops, "the tenth is no sample, and there was no eleventh")
		})
	}
}

// TestPitfall18WriteCap: nothing is written beyond the cap, and what was measured until then is kept.
func TestPitfall18WriteCap(t *testing.T) {
	virtual(t, func(t *testing.T, d *modeldisk.Disk, e *Env) {
		e.Meter = NewMeter(20 * MiB)
		var written int64
		d.OnWrite = func(_ string, p []byte, _ int64) { written += int64(len(p)) }
		a := area(t, e, AreaOptions{})
		defer a.Close()
		p := NewProbe(cell("x"))
		err := e.Run(t.Context(), Load{Probe: p, Workers: []Worker{durable(t, a, journal.IODSync, MiB)}, Duration: time.Second})
		require.ErrorIs(t, err, ErrWriteCap)
		require.LessOrEqual(t, written, int64(20*MiB))
		require.Equal(t, int64(4), p.Result().Ops)
		require.Zero(t, e.Meter.Left())
	})
}

// TestPitfall20DirectIORefused: what is refused is reported, and nothing takes its place.
func TestPitfall20DirectIORefused(t *testing.T) {
	virtual(t, func(t *testing.T, d *modeldisk.Disk, e *Env) {
		d.NoDirect = true
		a := area(t, e, AreaOptions{Sectors: true, Methods: []journal.IOMethod{journal.IODSync, journal.IOBuffered}})
		defer a.Close()
		require.False(t, a.Direct)
		require.ErrorIs(t, a.Refused(journal.IODSync), vfs.ErrNoDirectIO)
		_, err := a.DurableWriter(journal.IODSync, 4*KiB)
		require.ErrorIs(t, err, vfs.ErrNoDirectIO)
		require.True(t, IsUnsupported(err))
		_, err = a.DurableWriter(journal.IOBuffered, 4*KiB)
		require.NoError(t, err)
		_, err = a.StreamWriters(MiB, 1, false)
		require.ErrorIs(t, err, vfs.ErrNoDirectIO)
		require.Error(t, a.NoSectors())
	})
}

// TestAllocationStates: each state is what it says, and stays so when the file is full.
func TestAllocationStates(t *testing.T) {
	base := 100.0 + 1.5625
	for state, want := range map[Allocation]float64{Append: base + 500, Sparse: base + 300, Fallocate: base + 300, Zeroed: base, Recycled: base} {
		virtual(t, func(t *testing.T, _ *modeldisk.Disk, e *Env) {
			a := area(t, e, AreaOptions{State: state, Size: 8 * MiB})
			defer a.Close()
			p := NewProbe(cell("x"))
			// Three times round the file.
			require.NoError(t, e.Run(t.Context(), Load{Probe: p, Workers: []Worker{durable(t, a, journal.IODSync, 4*KiB)}, Duration: time.Hour, OpsMax: 6000}))
			l := p.Result().Latency
			require.InEpsilon(t, want, l.MinUS, 0.01, state)
			require.InEpsilon(t, want, l.MaxUS, 0.01, state)
		})
	}
}

// TestFillStopsInTime: on a slow disk a smaller file must do.
func TestFillStopsInTime(t *testing.T) {
	virtual(t, func(t *testing.T, d *modeldisk.Disk, e *Env) {
		d.PerMiB = 100 * time.Millisecond
		start := time.Now()
		a := area(t, e, AreaOptions{Size: 1024 * MiB, FillFor: 2 * time.Second})
		defer a.Close()
		require.Less(t, time.Since(start), 3*time.Second)
		require.InDelta(t, 20*MiB, a.Size(), 2*MiB)
	})
}

// TestCancelKeepsWhatWasMeasured.
func TestCancelKeepsWhatWasMeasured(t *testing.T) {
	virtual(t, func(t *testing.T, _ *modeldisk.Disk, e *Env) {
		a := area(t, e, AreaOptions{})
		defer a.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		p := NewProbe(cell("x"))
		err := e.Run(ctx, Load{Probe: p, Workers: []Worker{durable(t, a, journal.IODSync, 4*KiB)}, Duration: time.Hour})
		require.True(t, errors.Is(err, context.DeadlineExceeded))
		require.Greater(t, p.Result().Ops, int64(1000))
	})
}

func TestStallPeriod(t *testing.T) {
	var events []result.StallEvent
	for i := range 10 {
		events = append(events, result.StallEvent{AtS: 3 + 6.5*float64(i), GapUS: 2e4})
	}
	require.InEpsilon(t, 6.5, period(events), 0.01)
	require.Zero(t, period(events[:3]))
	for i := range events {
		events[i].AtS = float64(i * i)
	}
	require.Zero(t, period(events))
}

func TestSectorWriterUsesOddMultiples(t *testing.T) {
	virtual(t, func(t *testing.T, d *modeldisk.Disk, e *Env) {
		a := area(t, e, AreaOptions{Sectors: true})
		defer a.Close()
		for _, size := range []int{512, 2048, 4096, 16384} {
			w, err := a.SectorWriter(size)
			require.NoError(t, err)
			d.OnWrite = func(_ string, p []byte, off int64) {
				require.Len(t, p, size)
				require.Equal(t, int64(1), off/int64(size)%2)
				require.Zero(t, off%int64(size))
			}
			require.NoError(t, e.Run(t.Context(), Load{Probe: NewProbe(cell("x")), Workers: []Worker{w}, Duration: time.Hour, OpsMax: 100}))
		}
	})
}

func TestPayloadNumbersSectors(t *testing.T) {
	p := NewPayload(5, 4*KiB)
	first := binary.LittleEndian.Uint64(p.Next(4 * KiB))
	require.Equal(t, first+8, binary.LittleEndian.Uint64(p.Next(4*KiB)))
}

// TestMeterKeepsForLater: one part of a run can not take what the parts after it need.
func TestMeterKeepsForLater(t *testing.T) {
	m := NewMeter(100)
	m.Keep(40)
	require.NoError(t, m.Take(60))
	require.ErrorIs(t, m.Take(1), ErrWriteCap)
	require.Zero(t, m.Left())
	m.Keep(0)
	require.Equal(t, int64(40), m.Left())
	require.NoError(t, m.Take(40))
	require.ErrorIs(t, m.Take(1), ErrWriteCap)
	require.Equal(t, int64(100), m.Written())
	free := NewMeter(0) // without a bound there is nothing to keep
	free.Keep(5)
	require.NoError(t, free.Take(1<<40))
}

func TestADirectoryThatWentIsNoFailedDisk(t *testing.T) {
	err := &DiskError{"make a test file", &fs.PathError{Op: "open", Path: "/d", Err: syscall.ENOENT}}
	require.ErrorContains(t, err, "the directory was removed")
	require.NotContains(t, err.Error(), "the disk failed")
}
