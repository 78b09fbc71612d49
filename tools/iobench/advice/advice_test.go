package advice

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/binderylog/bindery/journal"
	"github.com/binderylog/bindery/tools/iobench/chapter"
	"github.com/binderylog/bindery/tools/iobench/engine"
	"github.com/binderylog/bindery/tools/iobench/modeldisk"
	"github.com/binderylog/bindery/tools/iobench/result"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// measured makes a cell of rounds that each hold the same latency.
func measured(c result.Cell, rounds ...time.Duration) result.Cell {
	h := result.NewHistogram()
	for _, d := range rounds {
		for range 100 {
			result.Record(h, d)
		}
		v := us(d)
		c.Rounds = append(c.Rounds, result.Round{Ops: 100, P50US: v, P99US: v, MaxUS: v, MBPerS: float64(c.BlockBytes) / v})
	}
	c.Op, c.Loop, c.Depth, c.Ops = "write", "closed", 1, h.TotalCount()
	c.Latency = result.NewLatency(h)
	c.MBPerS = float64(c.BlockBytes) / c.Latency.MeanUS
	return c
}

func ms(v ...float64) (d []time.Duration) {
	for _, x := range v {
		d = append(d, time.Duration(x*1e3))
	}
	return d
}

func cellOf(m journal.IOMethod, size int, micros ...float64) result.Cell {
	return measured(result.Cell{ID: fmt.Sprintf("%s/%d", m, size), Method: string(m), BlockBytes: size, Durable: true}, ms(micros...)...)
}

func run(cells ...result.Cell) *result.Run {
	no := false
	return &result.Run{
		Schema: result.Schema, ToolVersion: "v1", RunID: "1", Command: "test", Complete: true, StartedAt: time.Date(2026, 8, 21, 0, 0, 0, 0, time.UTC),
		Environment: result.Environment{Kernel: "6.8", Cores: 4},
		Device:      result.Device{Role: "journal", Dir: "/d", Kind: "nvme", Model: "X", SerialHash: "ab12", Rotational: &no, FileSystem: result.FileSystem{Type: "xfs", MountOptions: "rw,noatime"}},
		Plan:        result.Plan{GoalP99US: 5000, EntryBytes: 1024, Rounds: 5, Prefill: true},
		Chapters:    []result.Chapter{{Name: result.ChapterSync, Cells: cells, Complete: true, LimitedBy: "device"}},
	}
}

func setting(t *testing.T, r *result.Run, key string) result.Setting {
	t.Helper()
	for _, s := range r.Recommendation.Settings {
		if s.Key == key {
			return s
		}
	}
	t.Fatalf("no setting %s", key)
	return result.Setting{}
}

func TestSettingsOfAFlashDisk(t *testing.T) {
	r := run(
		cellOf(journal.IODSync, 4096, 70, 71, 72, 71, 70), cellOf(journal.IODSync, 65536, 80, 80, 80, 80, 80),
		cellOf(journal.IODSync, 262144, 100, 100, 100, 100, 100), cellOf(journal.IODSync, 1<<20, 9000, 9000, 9000, 9000, 9000),
		cellOf(journal.IOFdatasync, 4096, 118, 119, 118, 120, 118),
	)
	Advise(r)
	require.NoError(t, r.Validate())
	rec := r.Recommendation
	io := setting(t, r, "io")
	require.Equal(t, `"dsync"`, io.Value)
	require.Equal(t, "dsync p99 72us vs fdatasync 120us, first in 5/5 rounds", io.Evidence)
	require.False(t, io.WithinSpread)
	require.Equal(t, `"0"`, setting(t, r, "max_group_wait").Value)
	group := setting(t, r, "max_group_bytes")
	require.Equal(t, `"256KiB"`, group.Value)
	require.Contains(t, group.Evidence, "1.4x of 4KiB at 256KiB")
	require.Contains(t, group.Evidence, "x of 4KiB at 1MiB")
	require.Equal(t, "A", rec.JournalGrade)
	require.Equal(t, "high", rec.Confidence)
	require.Len(t, rec.Predictions, 4)
	require.Equal(t, 100.0, rec.Predictions[0].LoadPct)
}

// TestPitfall11TheUsualMethodInsideTheSpread: a lead that the rounds do not bear out changes no setting.
func TestPitfall11TheUsualMethodInsideTheSpread(t *testing.T) {
	r := run(cellOf(journal.IODSync, 4096, 100, 180, 120, 150, 90), cellOf(journal.IOFdatasync, 4096, 95, 170, 110, 140, 85))
	Advise(r)
	io := setting(t, r, "io")
	require.Equal(t, `"dsync"`, io.Value)
	require.Contains(t, io.Evidence, "within the spread")
	require.True(t, io.WithinSpread)

	r = run(cellOf(journal.IODSync, 4096, 200, 201, 202, 200, 200), cellOf(journal.IOFdatasync, 4096, 100, 101, 100, 102, 100))
	Advise(r)
	require.Equal(t, `"fdatasync"`, setting(t, r, "io").Value)
	require.False(t, setting(t, r, "io").WithinSpread)

	// A spinning disk.
	yes := true
	r = run(cellOf(journal.IODSync, 4096, 8000, 8100, 8000), cellOf(journal.IOBuffered, 4096, 8050, 8000, 8100))
	r.Device.Kind, r.Device.Rotational = "hdd", &yes
	Advise(r)
	require.Equal(t, `"buffered"`, setting(t, r, "io").Value)

	// One that only has buffered.
	r = run(cellOf(journal.IOBuffered, 4096, 100, 100, 100))
	Advise(r)
	require.Equal(t, `"buffered"`, setting(t, r, "io").Value)
	require.Contains(t, setting(t, r, "io").Evidence, "dsync does not work here")
}

// TestGroupBytesOfScatteredFigures: a small group that took longer than a large one says nothing about the large one.
func TestGroupBytesOfScatteredFigures(t *testing.T) {
	r := run(cellOf(journal.IODSync, 4096, 10_000), cellOf(journal.IODSync, 16384, 49_000), cellOf(journal.IODSync, 65536, 13_000),
		cellOf(journal.IODSync, 262144, 29_000), cellOf(journal.IODSync, 1<<20, 60_000))
	Advise(r)
	group := setting(t, r, "max_group_bytes")
	require.Equal(t, `"64KiB"`, group.Value)
	require.Equal(t, "p99 13ms (1.3x of 4KiB at 64KiB), 2.9x of 4KiB at 256KiB", group.Evidence)

	r = run(cellOf(journal.IODSync, 4096, 20_000), cellOf(journal.IODSync, 32768, 34_000), cellOf(journal.IODSync, 1<<20, 28_000))
	Advise(r)
	group = setting(t, r, "max_group_bytes")
	require.Equal(t, `"1MiB"`, group.Value)
	require.Equal(t, "p99 28ms (1.4x of 4KiB at 1MiB)", group.Evidence)
}

// TestPitfall13SuspiciouslyFast: a flush that costs nothing on a disk of which nothing is known.
func TestPitfall13SuspiciouslyFast(t *testing.T) {
	fast := func() result.Cell {
		c := cellOf(journal.IOFdatasync, 4096, 22, 22, 22, 22, 22)
		part := cellOf("", 4096, 20)
		c.WritePart, c.SyncPart = part.Latency, cellOf("", 4096, 2).Latency
		return c
	}
	r := run(fast())
	r.Device.Kind = "virtual"
	Advise(r)
	require.True(t, r.HasWarning(result.WarnSuspiciouslyFast))
	require.Equal(t, "unknown", r.Device.PowerLossHint)
	require.Equal(t, "low", r.Recommendation.Confidence)

	volatile := false
	r = run(fast())
	r.Device.VolatileWriteCache = &volatile
	Advise(r)
	require.False(t, r.HasWarning(result.WarnSuspiciouslyFast), "a disk that says it has no volatile cache may be so fast")
	require.Equal(t, "likely", r.Device.PowerLossHint)

	slow := cellOf(journal.IOFdatasync, 4096, 900, 900, 900)
	slow.WritePart = cellOf("", 4096, 100).Latency
	r = run(slow)
	Advise(r)
	require.Equal(t, "unlikely", r.Device.PowerLossHint)
}

// TestPitfall19ResultsNameTheirDisk: what settings were measured on, with what and when.
func TestPitfall19ResultsNameTheirDisk(t *testing.T) {
	r := run(cellOf(journal.IODSync, 4096, 70, 71, 72))
	Advise(r)
	for _, want := range []string{"v1", "2026-08-21", "X", "serial#ab12", "kernel 6.8", "xfs", "noatime", "grade A"} {
		require.Contains(t, r.Recommendation.Header, want)
	}
	require.Equal(t, "ab12", r.Device.Key())
}

// TestPitfall05FreshDrive and the other doubts about a whole run.
func TestPitfall05FreshDrive(t *testing.T) {
	r := run(cellOf(journal.IODSync, 4096, 70, 71, 72))
	r.Device.FileSystem.TotalBytes, r.Device.FileSystem.AvailableBytes = 100, 99
	r.Plan.Prefill = false
	r.Self = result.Self{OverheadNS: 5000, StealPercent: 10}
	Advise(r)
	for _, code := range []string{result.WarnFreshDrive, result.WarnNoPrefill, result.WarnOverhead, result.WarnStolen} {
		require.True(t, r.HasWarning(code), code)
	}
	beside := run()
	beside.Plan.Prefill, beside.Plan.CapPercent = false, 5
	Advise(beside)
	require.False(t, beside.HasWarning(result.WarnNoPrefill), "live fills nothing, on purpose")
	require.Equal(t, "medium", r.Recommendation.Confidence)
	r.Complete = false
	Advise(r)
	require.Equal(t, "low", r.Recommendation.Confidence)
}

func TestInterferenceGivesRatesGradesAndAVerdict(t *testing.T) {
	r := run(cellOf(journal.IODSync, 4096, 70, 71, 72))
	beside := func(id, background string, mb float64, micros float64) result.Cell {
		c := cellOf(journal.IODSync, 16384, micros, micros, micros)
		c.ID, c.Background, c.BackgroundMB = id, background, mb
		return c
	}
	r.Chapters = append(r.Chapters, result.Chapter{Name: result.ChapterInterfere, Cells: []result.Cell{
		beside("idle/same", "idle", 0, 100), beside("compaction/same/25", "compaction", 100, 900), beside("compaction/same/50", "compaction", 200, 4900),
		beside("compaction/same", "compaction", 400, 9000), beside("all/same", "all", 900, 12000),
	}})
	Advise(r)
	require.NoError(t, r.Validate())
	require.Equal(t, `"95MiB"`, setting(t, r, "rate").Value)
	require.Contains(t, setting(t, r, "rate").Evidence, "4.9ms with 100 MB/s copied beside it, 9.0ms with 200")
	require.Equal(t, "C", r.Recommendation.JournalGrade)
	require.Contains(t, fmt.Sprint(r.Recommendation.Reasons), "separate disks are needed")

	r.Plan.RateMBPerS = 100
	r.OtherDevices = []result.Device{{Role: "ledger", Dir: "/l", Kind: "ssd"}}
	r.Chapters = append(r.Chapters, result.Chapter{Name: result.ChapterSustain, Device: 1, Complete: true, Cells: []result.Cell{}, Sustained: &result.Sustain{SteadyMBPerS: 260}})
	Advise(r)
	require.Equal(t, "B", r.Recommendation.LedgerGrade, "260 of the 200 MB/s that 100 MB/s with compaction need")
}

// TestWhatEndedEarlyIsNotJudged: neither a rate of copying that was never tried, nor ledgers whose disk's cache was not full.
func TestWhatEndedEarlyIsNotJudged(t *testing.T) {
	r := run(cellOf(journal.IODSync, 4096, 70, 71, 72))
	r.Plan.RateMBPerS = 100
	r.Chapters = append(r.Chapters, result.Chapter{Name: result.ChapterInterfere, Cells: []result.Cell{}},
		result.Chapter{Name: result.ChapterSustain, Cells: []result.Cell{}, Sustained: &result.Sustain{SteadyMBPerS: 260}})
	r.Warnings = append(r.Warnings, result.Warning{Code: result.WarnWriteCap, Severity: result.SeverityWarning, Chapter: result.ChapterInterfere, Text: "interfere ended early"})
	Advise(r)
	require.NotContains(t, fmt.Sprint(r.Recommendation.Reasons), "rate of copying")
	require.Empty(t, r.Recommendation.LedgerGrade)
	require.Equal(t, "medium", r.Recommendation.Confidence)

	slow := cellOf(journal.IODSync, 16384, 9000)
	slow.ID, slow.Background = "compaction/same", "compaction"
	r.Chapters[1].Cells = []result.Cell{slow}
	Advise(r)
	require.Contains(t, fmt.Sprint(r.Recommendation.Reasons), "No rate of copying")
}

func TestAlignmentAndJournals(t *testing.T) {
	r := run(cellOf(journal.IODSync, 4096, 70, 71, 72))
	r.Device.PhysicalBlockBytes, r.Device.LogicalBlockBytes = 512, 512
	r.Chapters = append(r.Chapters,
		result.Chapter{Name: result.ChapterAlign, Cells: []result.Cell{cellOf("dsync", 512, 250), cellOf("dsync", 4096, 100), cellOf("dsync", 8192, 101)}},
		result.Chapter{Name: result.ChapterJournals, Cells: []result.Cell{
			func() result.Cell {
				c := cellOf("dsync", 65536, 100)
				c.ID, c.Journals, c.MBPerS = "1", 1, 500
				return c
			}(),
			func() result.Cell {
				c := cellOf("dsync", 65536, 110)
				c.ID, c.Journals, c.MBPerS = "2", 2, 950
				return c
			}(),
			func() result.Cell {
				c := cellOf("dsync", 65536, 200)
				c.ID, c.Journals, c.MBPerS = "4", 4, 1000
				return c
			}(),
		}})
	Advise(r)
	require.True(t, r.HasWarning(result.WarnAlignment))
	require.Contains(t, fmt.Sprint(r.Recommendation.Reasons), "Journals on this disk: 2")
	require.Contains(t, fmt.Sprint(r.Recommendation.Reasons), "writes of 4096 bytes")
	require.InEpsilon(t, 1.1, crowd(r.Chapter(result.ChapterJournals, 0)), 0.01)
}

func TestNoFiguresNoAdvice(t *testing.T) {
	r := run()
	Advise(r)
	require.Nil(t, r.Recommendation)
}

// TestPredictionOfTheModelDisk: on a disk whose writes take a fixed time the figures follow from arithmetic.
func TestPredictionOfTheModelDisk(t *testing.T) {
	r := run(cellOf(journal.IODSync, 4096, 100, 100, 100), cellOf(journal.IODSync, 1<<20, 500, 500, 500))
	m, ok := NewModel(&r.Chapters[0], "dsync")
	require.True(t, ok)

	// One in flight: each add is a group of one block.
	o := m.Closed(1, 1024, 2000, 1)
	require.InEpsilon(t, 100*time.Microsecond, o.P50, 0.01)
	require.InEpsilon(t, 10_000, o.AddsPerS, 0.01)
	require.InEpsilon(t, 4096, o.GroupBytes, 0.01)
	require.InEpsilon(t, 1.0, o.DiskBusy, 0.01)

	// Few and far between: an add waits for nothing.
	o = m.Open(100, 1024, 10*time.Second, 1)
	require.InEpsilon(t, 100*time.Microsecond, o.P99, 0.01)
	require.InEpsilon(t, 100, o.AddsPerS, 0.02)

	// Many in flight.
	o = m.Closed(200, 1024, 200_000, 1)
	require.InEpsilon(t, 200, o.AddsPerS*o.P50.Seconds(), 0.3, "as many in flight as were allowed")
	require.Less(t, us(o.P50), 200.0, "no group waits for more than another one")
	require.Greater(t, o.AddsPerS, 1e6)

	// The processor is the limit if it needs longer.
	m.CPU, m.Cores = 10*time.Microsecond, 1
	o = m.Closed(200, 1024, 100_000, 1)
	require.InEpsilon(t, 100_000, o.AddsPerS, 0.02)
	require.InEpsilon(t, 1.0, o.CPUBusy, 0.01)
	list := m.Predict(1024)
	require.Equal(t, "CPU", list[0].LimitedBy)
	require.InEpsilon(t, 50_000, list[2].AddsPerS, 0.02)
	require.Less(t, list[1].P50US, list[3].P99US)
}

// TestPredictionMatchesTheRealJournal: the simulation and the journal itself, on the same model disk in virtual time.
func TestPredictionMatchesTheRealJournal(t *testing.T) {
	for _, rate := range []float64{500, 5000, 50_000} {
		synctest.Test(t, func(t *testing.T) {
			d := modeldisk.New(modeldisk.Times{Write: 30 * time.Microsecond, Flush: 70 * time.Microsecond, PerMiB: 400 * time.Microsecond})
			env := &engine.Env{FS: d, Dir: "/d", Meter: engine.NewMeter(0), Seed: 1, Start: time.Now(), Wait: func(t time.Time) { time.Sleep(time.Until(t)) }}
			p := &chapter.Place{Env: env}
			sync, err := chapter.Sync(t.Context(), p, chapter.Options{
				Budget: 200 * time.Millisecond, Rounds: 5, FileBytes: 8 * engine.MiB, Prefill: true, Sizes: []int{4096, 65536, 1 << 20}, Methods: []journal.IOMethod{journal.IODSync},
			})
			require.NoError(t, err)
			m, ok := NewModel(&sync.Chapter, "dsync")
			require.True(t, ok)
			want := m.Open(rate, 1024, 500*time.Millisecond, 1)

			probe := engine.NewProbe(result.Cell{ID: "journal", Op: "add"})
			require.NoError(t, chapter.PacedOn(t.Context(), p, d, probe, 1024, rate, 500*time.Millisecond))
			require.InEpsilon(t, float64(want.P50), float64(probe.P50()), 0.20, "p50 at %v adds/s", rate)
			require.InEpsilon(t, float64(want.P99), float64(probe.P99()), 0.25, "p99 at %v adds/s", rate)
		})
	}
}

// TestPipelinePredictsADiskThatDoesOneThingAtATime: two groups in flight wait for one another there, which only writes two
// at once show. (The p99 is of adds behind the zeroing of new segments, of which the model does not know.)
func TestPipelinePredictsADiskThatDoesOneThingAtATime(t *testing.T) {
	for _, rate := range []float64{5000, 80_000} {
		synctest.Test(t, func(t *testing.T) {
			d := modeldisk.New(modeldisk.Times{Write: 30 * time.Microsecond, Flush: 70 * time.Microsecond, PerMiB: 2 * time.Millisecond})
			d.Width = 1
			env := &engine.Env{FS: d, Dir: "/d", Meter: engine.NewMeter(0), Seed: 1, Start: time.Now(), Wait: func(t time.Time) { time.Sleep(time.Until(t)) }}
			p := &chapter.Place{Env: env}
			o := chapter.Options{Budget: 200 * time.Millisecond, Rounds: 1, FileBytes: 8 * engine.MiB, Prefill: true, Method: journal.IODSync}
			pipe, err := chapter.OpenPipeline(t.Context(), p, o)
			require.NoError(t, err)
			first, err := pipe.Measure(t.Context(), "x", 200*time.Millisecond, 0)
			require.NoError(t, err)
			second, err := pipe.Measure(t.Context(), "x", 200*time.Millisecond, 0)
			require.NoError(t, err)
			r, err := pipe.Close(nil)
			require.NoError(t, err)
			require.Len(t, r.Chapter.Cell("x/65536/2").Rounds, 2)
			require.InEpsilon(t, 2*r.Chapter.Cell("x/65536/1").Latency.P50US, r.Chapter.Cell("x/65536/2").Latency.P50US, 0.02)

			m, ok := PipelineModel(cellsOf(first), cellsOf(second))
			require.True(t, ok)
			want := m.Open(rate, 1024, 300*time.Millisecond, 1)
			probe := engine.NewProbe(result.Cell{ID: "journal", Op: "add"})
			require.NoError(t, chapter.PacedOn(t.Context(), p, d, probe, 1024, rate, 300*time.Millisecond))
			require.InEpsilon(t, float64(want.P50), float64(probe.P50()), 0.20, "p50 at %v adds/s", rate)
		})
	}
	_, ok := PipelineModel(nil)
	require.False(t, ok)
}

func cellsOf(slices []chapter.Slice) (cells []result.Cell) {
	for _, s := range slices {
		cells = append(cells, s.Cell)
	}
	return cells
}
