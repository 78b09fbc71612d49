package chapter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/binderylog/bindery/journal"
	"github.com/binderylog/bindery/tools/iobench/engine"
	"github.com/binderylog/bindery/tools/iobench/modeldisk"
	"github.com/binderylog/bindery/tools/iobench/result"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var flash = modeldisk.Times{
	Write: 30 * time.Microsecond, Flush: 70 * time.Microsecond, PerMiB: 400 * time.Microsecond, Read: 90 * time.Microsecond, Cached: 2 * time.Microsecond,
	FirstWrite: 300 * time.Microsecond, Grow: 200 * time.Microsecond, Misaligned: 150 * time.Microsecond, Name: 20 * time.Microsecond, SyncDir: 120 * time.Microsecond,
	Preallocate: 60 * time.Microsecond,
}

func options() Options {
	return Options{
		Budget: 400 * time.Millisecond, Rounds: 5, FileBytes: 8 * engine.MiB, Prefill: true, Sizes: []int{4096, 65536, 1 << 20},
		Methods: AllMethods, Method: journal.IODSync, EntryBytes: 1024, Goal: 5 * time.Millisecond, CapPercent: 5,
	}
}

// on runs a chapter on a model disk in virtual time, and checks that the result can be written and nothing stayed.
func on(t *testing.T, setup func(d *modeldisk.Disk), o Options, f Func, check func(d *modeldisk.Disk, r *Result, err error)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := modeldisk.New(flash)
		if setup != nil {
			setup(d)
		}
		p := place(d)
		r, err := f(t.Context(), p, o)
		names, open := d.Files()
		require.Empty(t, names)
		require.Zero(t, open)
		valid(t, r)
		check(d, r, err)
	})
}

func place(d *modeldisk.Disk) *Place {
	return &Place{Env: &engine.Env{FS: d, Dir: "/d", Meter: engine.NewMeter(0), Seed: 1, Start: time.Now(), Wait: func(t time.Time) { time.Sleep(time.Until(t)) }}}
}

// valid: whatever happened, what there is makes a valid file.
func valid(t *testing.T, r *Result) {
	t.Helper()
	run := result.Run{Schema: result.Schema, RunID: "1", Command: "test", Device: result.Device{Role: "disk", Dir: "/d", Kind: "model"}, Chapters: []result.Chapter{r.Chapter}, Warnings: r.Warnings}
	require.NoError(t, run.Validate())
}

func warned(r *Result, code string) bool {
	for _, w := range r.Warnings {
		if w.Code == code {
			return true
		}
	}
	return false
}

func TestSyncFindsTheBestMethod(t *testing.T) {
	on(t, func(d *modeldisk.Disk) { d.FUA = true }, options(), Sync, func(d *modeldisk.Disk, r *Result, err error) {
		require.NoError(t, err)
		c := r.Chapter
		require.True(t, c.Complete)
		require.Len(t, c.Cells, len(AllMethods)*3)
		require.Equal(t, "device", c.LimitedBy)
		// With forced unit access a durable write costs a tenth of a flush.
		require.InEpsilon(t, 38.6, c.Cell("dsync/4096").Latency.P99US, 0.01)
		require.InEpsilon(t, 101.6, c.Cell("fdatasync/4096").Latency.P99US, 0.01)
		require.InEpsilon(t, 70, c.Cell("fdatasync/4096").SyncPart.P50US, 0.01)
		require.InEpsilon(t, 31.6, c.Cell("fdatasync/4096").WritePart.P50US, 0.01)
		require.InEpsilon(t, 103.6, c.Cell("buffered/4096").Latency.P99US, 0.01)
		require.Len(t, c.Verdicts, 3)
		require.False(t, c.Verdicts[0].Significant, "dsync and rwf_dsync are the same")
		require.Contains(t, []string{"dsync/4096", "rwf_dsync/4096"}, c.Verdicts[0].Best)
		for _, cell := range c.Cells {
			require.Len(t, cell.Rounds, 5)
			require.True(t, cell.Durable)
			require.True(t, cell.Steady, cell.ID)
		}
		require.Positive(t, c.WrittenBytes)
	})
}

// TestPitfall01PageCache: buffered writes are measured with their sync; a figure without one is stamped.
func TestPitfall01PageCache(t *testing.T) {
	on(t, nil, options(), Sync, func(_ *modeldisk.Disk, r *Result, err error) {
		require.NoError(t, err)
		c := r.Chapter.Cell("buffered/1048576")
		require.True(t, c.Buffered)
		require.True(t, c.Durable)
		require.InEpsilon(t, 502, c.Latency.P50US, 0.01, "the disk's time, not the 2 us of the page cache")
	})
	on(t, nil, options(), Bandwidth, func(d *modeldisk.Disk, r *Result, err error) {
		require.NoError(t, err)
		b := r.Chapter.Cell("buffered/1")
		require.False(t, b.Durable)
		require.Empty(t, b.Method)
		require.True(t, warned(r, result.WarnNotDurable))
		require.InEpsilon(t, 1e6*1.048576/400, b.MBPerS, 0.05, "the sync at the end of a round counts: no more than the disk can do")
		require.Less(t, b.Latency.P50US, 10.0, "a write to the page cache, and that is why it is not durable")
	})
}

// TestPitfall02PreallocationHidesItsCost: every state of allocation is measured, and the one used is named.
func TestPitfall02PreallocationHidesItsCost(t *testing.T) {
	on(t, nil, options(), Alloc, func(_ *modeldisk.Disk, r *Result, err error) {
		require.NoError(t, err)
		for id, want := range map[string]float64{"append": 601.6, "sparse": 401.6, "fallocate": 401.6, "zeroed": 101.6, "recycled": 101.6} {
			c := r.Chapter.Cell(id)
			require.Equal(t, id, c.Allocation)
			require.InEpsilon(t, want, c.Latency.P50US, 0.01, id)
		}
		require.Equal(t, "file system", r.Chapter.LimitedBy)
	})
	o := options()
	o.Prefill = false
	on(t, nil, o, Sync, func(_ *modeldisk.Disk, r *Result, err error) {
		require.NoError(t, err)
		require.Equal(t, "fallocate", r.Chapter.Cells[0].Allocation, "without prefill the state is another, and says so")
	})
}

// TestPitfall06CacheExhaustion: writing on finds the end of the fast part and the rate behind it.
func TestPitfall06CacheExhaustion(t *testing.T) {
	o := options()
	o.Budget = 16 * time.Second
	on(t, func(d *modeldisk.Disk) {
		d.Width = 1
		d.FastBytes, d.SlowPerMiB = 4_000*engine.MiB, 2*time.Millisecond
	}, o, Sustain, func(_ *modeldisk.Disk, r *Result, err error) {
		require.NoError(t, err)
		s := r.Chapter.Sustained
		require.NotNil(t, s)
		require.True(t, s.Dropped)
		require.InEpsilon(t, 1048.576/0.430, s.FastMBPerS, 0.2)
		require.InEpsilon(t, 1048.576/2.030, s.SteadyMBPerS, 0.05)
		require.InEpsilon(t, 4_000.0*engine.MiB, float64(s.FastBytes), 0.15)
		require.False(t, s.Throttled)
		require.Len(t, r.Chapter.Series, 2)
	})
	on(t, func(d *modeldisk.Disk) { d.Width = 1 }, o, Sustain, func(_ *modeldisk.Disk, r *Result, err error) {
		require.NoError(t, err)
		require.False(t, r.Chapter.Sustained.Dropped)
		require.True(t, r.Chapter.Cell("sustain").Steady)
	})
}

// TestPitfall15ThermalThrottle: a drop that comes with heat is told from one that does not.
func TestPitfall15ThermalThrottle(t *testing.T) {
	o := options()
	o.Budget = 16 * time.Second
	synctest.Test(t, func(t *testing.T) {
		d := modeldisk.New(flash)
		d.Width = 1
		d.FastBytes, d.SlowPerMiB = 8_000*engine.MiB, 2*time.Millisecond
		p := place(d)
		began := time.Now()
		p.Env.Sensors = func() engine.Sensed {
			return engine.Sensed{TemperatureC: min(40+10*time.Since(began).Seconds(), 75), ClockMHz: 2000}
		}
		r, err := Sustain(t.Context(), p, o)
		require.NoError(t, err)
		require.True(t, r.Chapter.Sustained.Throttled)
		require.True(t, warned(r, result.WarnThermal))
		require.Greater(t, r.Chapter.Series[0].TemperatureC[2], 50.0)
		require.Equal(t, 2000.0, r.Chapter.Series[0].ClockMHz[2])
	})
}

// TestPitfall09QueueDepth: figures of another queue depth stand beside the one of depth 1, each with its depth.
func TestPitfall09QueueDepth(t *testing.T) {
	on(t, nil, options(), Read, func(_ *modeldisk.Disk, r *Result, err error) {
		require.NoError(t, err)
		one, many := r.Chapter.Cell("random/4096/1"), r.Chapter.Cell("random/4096/64")
		require.Equal(t, 1, one.Depth)
		require.Equal(t, 64, many.Depth)
		require.InEpsilon(t, 1e6/91.6, one.OpsPerS, 0.02)
		require.InEpsilon(t, 64*1e6/91.6, many.OpsPerS, 0.02)
		require.InEpsilon(t, 91.6, one.Latency.P99US, 0.01)
	})
}

// TestPitfall10UnitsAndSizes: every figure has its size, and MB are decimal.
func TestPitfall10UnitsAndSizes(t *testing.T) {
	on(t, nil, options(), Bandwidth, func(_ *modeldisk.Disk, r *Result, err error) {
		require.NoError(t, err)
		for _, c := range r.Chapter.Cells {
			require.Equal(t, 1<<20, c.BlockBytes)
			require.InEpsilon(t, c.OpsPerS*1048576/1e6, c.MBPerS, 0.001)
		}
	})
}

// TestPitfall20Unsupported: a method that the system refuses is a cell that says so.
func TestPitfall20Unsupported(t *testing.T) {
	on(t, func(d *modeldisk.Disk) { d.NoDSyncWrite = true }, options(), Sync, func(_ *modeldisk.Disk, r *Result, err error) {
		require.NoError(t, err)
		c := r.Chapter.Cell("rwf_dsync/4096")
		require.NotEmpty(t, c.Unsupported)
		require.Zero(t, c.Ops)
		require.Nil(t, c.Latency)
		require.Nil(t, r.Chapter.Cell("rwf_dsync/65536"), "said once")
		require.True(t, warned(r, result.WarnUnsupported))
	})
	on(t, func(d *modeldisk.Disk) { d.NoDirect = true }, options(), Sync, func(_ *modeldisk.Disk, r *Result, err error) {
		require.NoError(t, err)
		require.NotEmpty(t, r.Chapter.Cell("dsync/4096").Unsupported)
		require.NotNil(t, r.Chapter.Cell("buffered/4096").Latency)
	})
	for name, f := range map[string]Func{"journals": Journals, "stalls": Stalls, "align": Align, "live": Live, "alloc": Alloc, "interfere": func(ctx context.Context, p *Place, o Options) (*Result, error) { return Interfere(ctx, p, o) }} {
		on(t, func(d *modeldisk.Disk) { d.NoDirect = true }, options(), f, func(_ *modeldisk.Disk, r *Result, err error) {
			require.NoError(t, err, name)
			require.NotEmpty(t, r.Chapter.Cells[0].Unsupported, name)
		})
	}
}

// TestPitfall17ADiskErrorEndsTheChapter, and what was measured until then is kept.
func TestPitfall17ADiskErrorEndsTheChapter(t *testing.T) {
	on(t, func(d *modeldisk.Disk) {
		d.Fail = func(op string, n int64) error {
			if op == "write" && n > 1500 {
				return syscall.EIO
			}
			return nil
		}
	}, options(), Sync, func(_ *modeldisk.Disk, r *Result, err error) {
		var disk *engine.DiskError
		require.ErrorAs(t, err, &disk)
		require.False(t, r.Chapter.Complete)
		require.NotEmpty(t, r.Chapter.Cells)
	})
}

// TestPitfall18CapEndsTheChapter in good order.
func TestPitfall18CapEndsTheChapter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := modeldisk.New(flash)
		p := place(d)
		p.Env.Meter = engine.NewMeter(30 * engine.MiB)
		r, err := Sync(t.Context(), p, options())
		require.NoError(t, err)
		require.True(t, warned(r, result.WarnWriteCap))
		require.LessOrEqual(t, p.Env.Meter.Written(), int64(30*engine.MiB))
		valid(t, r)
	})
	// A share of bytes for each cell ends its rounds, not the chapter.
	o := options()
	o.Bytes = 60 * engine.MiB
	on(t, nil, o, Sync, func(_ *modeldisk.Disk, r *Result, err error) {
		require.NoError(t, err)
		require.True(t, r.Chapter.Complete)
		require.Less(t, r.Chapter.WrittenBytes, int64(100*engine.MiB))
		for _, c := range r.Chapter.Cells {
			require.Len(t, c.Rounds, 5)
		}
	})
}

// TestNoiseIsSaid: medians of the same thing far apart.
func TestNoiseIsSaid(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	on(t, func(d *modeldisk.Disk) {
		factor := 1.0
		d.Noise = func(_ string, n int64) float64 {
			if n%100 == 0 {
				factor = math.Exp(0.8 * rng.NormFloat64())
			}
			return factor
		}
	}, options(), Sync, func(_ *modeldisk.Disk, r *Result, err error) {
		require.NoError(t, err)
		require.True(t, warned(r, result.WarnNoisy))
		require.True(t, warned(r, result.WarnNotSteady))
	})
}

func TestAlignFindsThePhysicalBlock(t *testing.T) {
	on(t, nil, options(), Align, func(_ *modeldisk.Disk, r *Result, err error) {
		require.NoError(t, err)
		for _, id := range []string{"512", "1024", "2048"} {
			require.Greater(t, r.Chapter.Cell(id).Latency.P50US, 240.0, id)
		}
		require.InEpsilon(t, 101.6, r.Chapter.Cell("4096").Latency.P50US, 0.01)
	})
}

func TestJournalsSaturateADisk(t *testing.T) {
	on(t, func(d *modeldisk.Disk) { d.Width = 2 }, options(), Journals, func(_ *modeldisk.Disk, r *Result, err error) {
		require.NoError(t, err)
		one := r.Chapter.Cell("1").MBPerS
		require.InEpsilon(t, 2*one, r.Chapter.Cell("2").MBPerS, 0.02)
		require.InEpsilon(t, 2*one, r.Chapter.Cell("8").MBPerS, 0.02, "the disk does two at once")
	})
}

// TestInterference: on a disk that does one thing at a time the journal waits for the others, on another one it does not.
func TestInterference(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, other := modeldisk.New(flash), modeldisk.New(flash)
		d.Width, other.Width = 1, 1
		p, q := place(d), place(other)
		q.Device = 1
		o := options()
		o.Budget, o.Rounds = 12*time.Second, 3
		r, err := Interfere(t.Context(), p, o, q)
		require.NoError(t, err)
		c := r.Chapter
		idle := c.Cell("idle/same").Latency.P99US
		require.Greater(t, c.Cell("all/same").Latency.P99US, 3*idle)
		require.Greater(t, c.Cell("compaction/same").BackgroundMB, 100.0)
		require.Less(t, c.Cell("compaction/same/25").BackgroundMB, 0.4*c.Cell("compaction/same").BackgroundMB)
		require.InEpsilon(t, idle, c.Cell("all/other").Latency.P99US, 0.01)
		require.Equal(t, 1, c.Cell("all/other").BackgroundDevice)
		require.Equal(t, "open", c.Cell("idle/same").Loop)
		require.Nil(t, c.Cell("idle/other"))
		valid2 := result.Run{Schema: result.Schema, RunID: "1", Command: "test", Device: result.Device{Role: "disk", Dir: "/d", Kind: "model"}, OtherDevices: []result.Device{{Role: "ledger", Dir: "/e", Kind: "model"}}, Chapters: []result.Chapter{c}}
		require.NoError(t, valid2.Validate())

		r, err = Coupling(t.Context(), p, o, q)
		require.NoError(t, err)
		require.InEpsilon(t, r.Chapter.Cell("idle").Latency.P99US, r.Chapter.Cell("coupled").Latency.P99US, 0.01)
		require.False(t, r.Chapter.Verdicts[0].Significant)
	})
}

func TestStallsAreFoundWithTheirRhythm(t *testing.T) {
	o := options()
	o.Budget = 60 * time.Second
	o.Rate = 200 * stallSize
	synctest.Test(t, func(t *testing.T) {
		d := modeldisk.New(flash)
		next := time.Now().Add(10 * time.Second)
		d.Extra = func(op string, _ int64) time.Duration {
			if op == "write" && time.Now().After(next) {
				next = next.Add(5 * time.Second)
				return 120 * time.Millisecond
			}
			return 0
		}
		r, err := Stalls(t.Context(), place(d), o)
		require.NoError(t, err)
		s := r.Chapter.Stalls[0]
		require.InDelta(t, 10, s.Over100MS, 1)
		require.InEpsilon(t, 5, s.PeriodS, 0.05)
		require.InEpsilon(t, 120e3, s.LongestUS, 0.06)
		require.Greater(t, r.Chapter.Cells[0].Late, int64(9*20), "each held up what was due meanwhile")
		valid(t, r)
	})
}

func TestMetadataOperations(t *testing.T) {
	on(t, nil, options(), Metadata, func(_ *modeldisk.Disk, r *Result, err error) {
		require.NoError(t, err)
		for id, want := range map[string]float64{"create": 20, "rename": 20, "dirsync": 120, "fallocate": 60, "unlink": 20} {
			require.InEpsilon(t, want, r.Chapter.Cell(id).Latency.P50US, 0.01, id)
		}
	})
	// A failure half way leaves nothing either.
	on(t, func(d *modeldisk.Disk) {
		d.Fail = func(op string, n int64) error {
			if op == "syncdir" && n == 3 {
				return syscall.EIO
			}
			return nil
		}
	}, options(), Metadata, func(_ *modeldisk.Disk, r *Result, err error) {
		require.ErrorIs(t, err, syscall.EIO)
	})
}

func TestSoakCountsExceedances(t *testing.T) {
	o := options()
	o.Budget = 2 * time.Hour
	o.Rate = 5 * stallSize
	on(t, func(d *modeldisk.Disk) {
		d.Extra = func(op string, n int64) time.Duration {
			if op == "write" && n > 10000 && n%100 == 0 {
				return 10 * time.Millisecond
			}
			return 0
		}
	}, o, Soak, func(_ *modeldisk.Disk, r *Result, err error) {
		require.NoError(t, err)
		require.Len(t, r.Chapter.Exceedance, 2)
		last := r.Chapter.Exceedance[1]
		require.Equal(t, 2, last.Hour)
		require.Equal(t, int64(5*3600), last.Ops)
		require.InDelta(t, 1.0, last.Over8MSPct, 0.1)
		require.Zero(t, last.Over64MSPct)
	})
}

// TestPitfall14LiveIsGentle: the probe beside a bookie uses no more of the disk than it may.
func TestPitfall14LiveIsGentle(t *testing.T) {
	o := options()
	o.Budget = 3 * time.Second
	on(t, nil, o, Live, func(d *modeldisk.Disk, r *Result, err error) {
		require.NoError(t, err)
		c := r.Chapter.Cell("live")
		busy := float64(c.Ops) * c.Latency.MeanUS / 1e6 / 3
		require.InEpsilon(t, 0.05, busy, 0.05)
	})
}

func TestInterruptedChapterIsValid(t *testing.T) {
	for name, f := range map[string]Func{"sync": Sync, "alloc": Alloc, "read": Read, "bandwidth": Bandwidth, "stalls": Stalls, "sustain": Sustain, "interfere": func(ctx context.Context, p *Place, o Options) (*Result, error) { return Interfere(ctx, p, o) }} {
		synctest.Test(t, func(t *testing.T) {
			d := modeldisk.New(flash)
			ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
			defer cancel()
			r, err := f(ctx, place(d), options())
			require.True(t, errors.Is(err, context.DeadlineExceeded), "%s: %v", name, err)
			require.False(t, r.Chapter.Complete)
			valid(t, r)
			names, open := d.Files()
			require.Empty(t, names)
			require.Zero(t, open, name)
		})
	}
}

// TestRepeatability: the same idle disk twice gives the same p50 within 10 %.
func TestRepeatability(t *testing.T) {
	var got []float64
	for seed := range uint64(2) {
		rng := rand.New(rand.NewPCG(seed, 1))
		on(t, func(d *modeldisk.Disk) {
			d.Noise = func(string, int64) float64 { return math.Exp(0.3 * rng.NormFloat64()) }
		}, options(), Sync, func(_ *modeldisk.Disk, r *Result, err error) {
			require.NoError(t, err)
			got = append(got, r.Chapter.Cell("dsync/4096").Latency.P50US)
		})
	}
	require.InEpsilon(t, got[0], got[1], 0.10)
}

func TestSomeNamesAFew(t *testing.T) {
	require.Equal(t, "a, b", some([]string{"a", "b"}, 9))
	require.Equal(t, "a, b, c and 2 more of 9", some(strings.Split("abcde", ""), 9))
	require.Equal(t, "5", fmt.Sprint(len(strings.Split("abcde", ""))))
}
