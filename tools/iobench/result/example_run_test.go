package result

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// exampleRun is a `full` run with a journal on one disk and ledgers on another, made from a seed. Its figures are
// invented but hang together as those of a data centre NVMe drive and a SATA one do.
func exampleRun(seed uint64) *Run {
	rng := rand.New(rand.NewPCG(seed, 7))
	yes, no := true, false
	temperature, hottest := 38.0, 61.0
	r := &Run{
		Schema: Schema, ToolVersion: "v0.0.0-example", RunID: fmt.Sprintf("%016x", rng.Uint64()), Command: "full",
		StartedAt: time.Date(2026, 8, 21, 9, 30, 0, 0, time.UTC), ElapsedS: 1191.4, Complete: true,
		Labels:      map[string]string{"rack": "r7"},
		Environment: Environment{Host: fmt.Sprintf("bookie-%02d", seed), OS: "linux", Arch: "amd64", Kernel: "6.8.0", CPUModel: "example CPU", Cores: 32, MemoryBytes: 128 << 30, GoVersion: "go1.26"},
		Device: Device{
			Role: "journal", Dir: "/data/journal",
			FileSystem: FileSystem{Type: "xfs", Source: "/dev/nvme1n1", MountPoint: "/data/journal", MountOptions: "rw,noatime", BlockBytes: 4096, TotalBytes: 960e9, AvailableBytes: 890e9, DirectIO: true, DirectIOAlign: 512},
			Name:       "nvme1n1", Kind: "nvme", Bus: "nvme", Model: "EXAMPLE NVME 960G", Firmware: "1.0", SerialHash: fmt.Sprintf("%012x", seed*0x9e3779b97f4a7c15>>16), SizeBytes: 960e9,
			Rotational: &no, LogicalBlockBytes: 512, PhysicalBlockBytes: 4096, Scheduler: "none", QueueRequests: 1023, WriteCache: "write back", FUA: &yes, VolatileWriteCache: &yes,
			TemperatureC: &temperature, TemperatureMaxC: &hottest, PowerLossHint: "likely",
		},
		OtherDevices: []Device{{
			Role: "ledger", Dir: "/data/ledgers",
			FileSystem: FileSystem{Type: "ext4", Source: "/dev/sda1", MountPoint: "/data/ledgers", MountOptions: "rw,relatime", BlockBytes: 4096, TotalBytes: 3840e9, AvailableBytes: 3500e9, DirectIO: true, DirectIOAlign: 512},
			Name:       "sda", Kind: "ssd", Bus: "sata", Model: "EXAMPLE SSD 3.84T", Firmware: "2.0", SerialHash: fmt.Sprintf("%012x", seed*0xd1b54a32d192ed03>>16), SizeBytes: 3840e9,
			Rotational: &no, LogicalBlockBytes: 512, PhysicalBlockBytes: 4096, Scheduler: "mq-deadline", WriteCache: "write back", FUA: &no, PowerLossHint: "unknown",
		}},
		Plan: Plan{
			Chapters: []string{ChapterSync, ChapterAlloc, ChapterAlign, ChapterJournals, ChapterBandwidth, ChapterRead, ChapterInterfere, ChapterSustain, ChapterStalls, ChapterMetadata},
			BudgetS:  1200, FileBytes: 4 << 30, WriteBytes: 150e9, MaxWriteBytes: 200 << 30, Seed: 1, Data: "random", Prefill: true, Rounds: 9, GoalP99US: 5000, RateMBPerS: 300, EntryBytes: 1024,
			GroupSizeBytes: []int{4096, 16384, 65536, 262144, 1 << 20},
		},
		Warnings: []Warning{
			{Code: WarnScheduler, Severity: SeverityInfo, Device: 1, Text: "scheduler mq-deadline on a flash disk; none is usual"},
			{Code: WarnNotSteady, Severity: SeverityWarning, Device: 1, Chapter: ChapterSustain, Cell: "sustain", Text: "the last five windows differ by 14 %"},
		},
		Self: Self{OverheadNS: 180, TimerStepNS: 30, CPUPercent: 41, GCPauses: 12, GCPauseMaxUS: 90},
	}
	e := exampleMaker{rng: rng, run: r}
	e.sync()
	e.alloc()
	e.align()
	e.journals()
	e.bandwidth()
	e.read()
	e.interfere()
	e.sustain()
	e.stalls()
	e.metadata()
	at := 0.0
	for i := range r.Chapters {
		c := &r.Chapters[i]
		c.StartedS, c.ElapsedS, c.Complete, c.LimitedBy = at, 110, true, "device"
		at += 115
		for _, cell := range c.Cells {
			if cell.Op == "read" {
				c.ReadBytes += cell.Bytes
			} else {
				c.WrittenBytes += cell.Bytes
			}
		}
	}
	r.Recommendation = &Recommendation{
		Settings: []Setting{
			{Table: "journal", Key: "io", Value: `"dsync"`, Evidence: "dsync p99 71us vs fdatasync 118us, 9/9 rounds"},
			{Table: "journal", Key: "max_group_wait", Value: `"0"`, Evidence: "sync p50 34us; waiting costs more than it saves"},
			{Table: "journal", Key: "max_group_bytes", Value: `"256KiB"`, Evidence: "knee: p99 1.4x of 4KiB at 256KiB, 2.9x at 1MiB"},
			{Table: "gc", Key: "rate", Value: `"180MB/s"`, Evidence: "journal p99 stays under the goal of 5ms up to here"},
		},
		Reasons:    []string{"dsync had the lowest p99 in 9 of 9 rounds, by more than the spread of 6 %."},
		Confidence: "high", Why: "9 rounds agree, the disk was steady and nothing else used it", LimitedBy: "device", JournalGrade: "A", LedgerGrade: "B",
		Header: "iobench 2026-08-21 EXAMPLE NVME 960G serial#" + r.Device.SerialHash + " kernel 6.8.0 xfs rw,noatime, journal grade A",
	}
	for _, load := range []float64{10, 50, 80, 100} {
		r.Recommendation.Predictions = append(r.Recommendation.Predictions, Prediction{
			EntryBytes: 1024, LoadPct: load, AddsPerS: 6000 * load, MBPerS: 6000 * load * 1024 / 1e6, P50US: 40 + load, P99US: 80 + 3*load, P99LowUS: 70 + 3*load, P99HighUS: 95 + 3*load,
			GroupBytes: int(4096 + load*1000), LimitedBy: "CPU", Model: "run of the group commit over the measured distribution",
		})
	}
	return r
}

type exampleMaker struct {
	rng *rand.Rand
	run *Run
}

// cell fills a cell with a log-normal distribution around median microseconds with the given tail.
func (e *exampleMaker) cell(c Cell, median, tail float64) Cell {
	const rounds, perRound = 9, 250
	h := NewHistogram()
	for i := range rounds {
		rh := NewHistogram()
		shift := 1 + 0.03*e.rng.NormFloat64()
		for range perRound {
			us := median * shift * math.Exp(tail*e.rng.NormFloat64())
			Record(rh, time.Duration(us*1e3))
		}
		h.Merge(rh)
		c.Rounds = append(c.Rounds, Round{
			StartedS: float64(i) * 10, ElapsedS: rh.Mean() * perRound / 1e9, Ops: perRound, P50US: micros(rh.ValueAtQuantile(50)), P99US: micros(rh.ValueAtQuantile(99)),
			MaxUS: micros(rh.Max()), MBPerS: float64(c.BlockBytes) * float64(max(c.Depth, 1)) / (rh.Mean() / 1e3),
		})
	}
	if c.Loop == "" {
		c.Loop = "closed"
	}
	if c.Depth == 0 {
		c.Depth = 1
	}
	c.Ops = h.TotalCount()
	c.Bytes = c.Ops * int64(c.BlockBytes)
	c.OpsPerS = 1e9 / h.Mean() * float64(c.Depth) * float64(max(c.Journals, 1))
	c.ElapsedS = float64(c.Ops) / c.OpsPerS
	c.MBPerS = c.OpsPerS * float64(c.BlockBytes) / 1e6
	c.Latency = NewLatency(h)
	c.Steady = true
	return c
}

func (e *exampleMaker) add(c Chapter) { e.run.Chapters = append(e.run.Chapters, c) }

func (e *exampleMaker) sync() {
	c := Chapter{Name: ChapterSync}
	for _, m := range []struct {
		name string
		base float64
	}{{"dsync", 34}, {"fdatasync", 55}, {"rwf_dsync", 36}, {"buffered", 80}} {
		for _, size := range e.run.Plan.GroupSizeBytes {
			median := m.base + float64(size)/2200
			cell := e.cell(Cell{ID: fmt.Sprintf("%s/%d", m.name, size), Op: "write", Method: m.name, Allocation: "zeroed", Pattern: "sequential", BlockBytes: size, Durable: true, Buffered: m.name == "buffered"}, median, 0.25)
			if m.name == "fdatasync" || m.name == "buffered" {
				part := e.cell(Cell{BlockBytes: size}, median*0.3, 0.2)
				cell.WritePart = part.Latency
				part = e.cell(Cell{BlockBytes: size}, median*0.7, 0.3)
				cell.SyncPart = part.Latency
			}
			c.Cells = append(c.Cells, cell)
		}
	}
	c.Verdicts = []Verdict{
		{Question: "method at 4096 bytes", Best: "dsync/4096", Second: "rwf_dsync/4096", Metric: "p99_us", Ratio: 1.03, RoundsWon: 6, Rounds: 9, SpreadPct: 6, Significant: false},
		{Question: "method at 262144 bytes", Best: "dsync/262144", Second: "fdatasync/262144", Metric: "p99_us", Ratio: 1.5, RoundsWon: 9, Rounds: 9, SpreadPct: 6, Significant: true},
	}
	e.add(c)
}

func (e *exampleMaker) alloc() {
	c := Chapter{Name: ChapterAlloc}
	for _, a := range []struct {
		name   string
		median float64
	}{{"append", 95}, {"sparse", 130}, {"fallocate", 120}, {"zeroed", 34}, {"recycled", 34}} {
		c.Cells = append(c.Cells, e.cell(Cell{ID: a.name, Op: "write", Method: "dsync", Allocation: a.name, Pattern: "sequential", BlockBytes: 4096, Durable: true}, a.median, 0.25))
	}
	c.Verdicts = []Verdict{{Question: "allocation at 4096 bytes", Best: "zeroed", Second: "recycled", Metric: "p99_us", Ratio: 1.01, RoundsWon: 5, Rounds: 9, SpreadPct: 7}}
	e.add(c)
}

func (e *exampleMaker) align() {
	c := Chapter{Name: ChapterAlign}
	for _, size := range []int{512, 1024, 2048} {
		c.Cells = append(c.Cells, Cell{ID: fmt.Sprint(size), Op: "write", Method: "dsync", BlockBytes: size, AlignBytes: size, Loop: "closed", Depth: 1, Durable: true, Unsupported: "not tried: this build writes whole blocks of 4096 bytes"})
	}
	for _, size := range []int{4096, 8192, 16384} {
		c.Cells = append(c.Cells, e.cell(Cell{ID: fmt.Sprint(size), Op: "write", Method: "dsync", Allocation: "zeroed", Pattern: "sequential", BlockBytes: size, AlignBytes: size, Durable: true}, 34+float64(size)/4000, 0.25))
	}
	e.add(c)
}

func (e *exampleMaker) journals() {
	c := Chapter{Name: ChapterJournals}
	for _, n := range []int{1, 2, 4, 8} {
		c.Cells = append(c.Cells, e.cell(Cell{ID: fmt.Sprint(n), Op: "write", Method: "dsync", Allocation: "zeroed", Pattern: "sequential", BlockBytes: 65536, Journals: n, Durable: true}, 60*math.Pow(float64(n), 0.6), 0.3))
	}
	e.add(c)
}

func (e *exampleMaker) bandwidth() {
	for device, base := range []float64{420, 2100} { // us for 1 MiB
		c := Chapter{Name: ChapterBandwidth, Device: device}
		for _, depth := range []int{1, 4, 16, 32} {
			c.Cells = append(c.Cells, e.cell(Cell{ID: fmt.Sprintf("direct/%d", depth), Op: "write", Pattern: "sequential", BlockBytes: 1 << 20, Depth: depth}, base*math.Sqrt(float64(depth)), 0.2))
		}
		c.Cells = append(c.Cells, e.cell(Cell{ID: "buffered/1", Op: "write", Pattern: "sequential", BlockBytes: 1 << 20, Depth: 1, Buffered: true}, base*0.8, 0.4))
		e.add(c)
	}
}

func (e *exampleMaker) read() {
	c := Chapter{Name: ChapterRead, Device: 1}
	for _, pattern := range []string{"sequential", "random"} {
		for _, size := range []int{4096, 65536} {
			for _, depth := range []int{1, 16, 64} {
				c.Cells = append(c.Cells, e.cell(Cell{ID: fmt.Sprintf("%s/%d/%d", pattern, size, depth), Op: "read", Pattern: pattern, BlockBytes: size, Depth: depth}, (90+float64(size)/500)*math.Pow(float64(depth), 0.3), 0.3))
			}
		}
	}
	e.add(c)
}

func (e *exampleMaker) interfere() {
	c := Chapter{Name: ChapterInterfere}
	for device := range 2 {
		for _, b := range []struct {
			name   string
			factor float64
		}{{"idle", 1}, {"flush", 2.2}, {"catchup", 1.4}, {"compaction", 2.6}, {"index", 1.8}, {"all", 4.5}} {
			factor, disk := b.factor, "same"
			if device == 1 {
				factor, disk = 1+(factor-1)*0.05, "other"
			}
			cell := e.cell(Cell{
				ID: b.name + "/" + disk, Op: "write", Method: "dsync", Allocation: "zeroed", Pattern: "sequential", BlockBytes: 16384, Durable: true,
				Background: b.name, BackgroundDevice: device, Loop: "open", AskedPerS: 500,
			}, 40*factor, 0.2+0.1*factor)
			if b.name != "idle" {
				cell.BackgroundMB = 180
			}
			c.Cells = append(c.Cells, cell)
		}
	}
	e.add(c)
}

func (e *exampleMaker) sustain() {
	const seconds, drop = 180, 70
	cell := e.cell(Cell{ID: "sustain", Op: "write", Pattern: "sequential", BlockBytes: 1 << 20, Depth: 4}, 8000, 0.2)
	cell.Steady = false
	s := Series{Cell: "sustain", IntervalS: 1}
	for t := range seconds {
		rate, heat := 520.0, 38+float64(t)/8
		if t >= drop {
			rate = 290
		}
		rate *= 1 + 0.04*e.rng.NormFloat64()
		s.Ops = append(s.Ops, int64(rate*1e6/(1<<20)))
		s.MBPerS = append(s.MBPerS, math.Round(rate*10)/10)
		s.P50US = append(s.P50US, math.Round(4*1e6/rate))
		s.P99US = append(s.P99US, math.Round(9*1e6/rate))
		s.MaxUS = append(s.MaxUS, math.Round(20*1e6/rate))
		s.TemperatureC = append(s.TemperatureC, math.Round(heat))
	}
	e.add(Chapter{
		Name: ChapterSustain, Device: 1, Cells: []Cell{cell}, Series: []Series{s},
		Sustained: &Sustain{FastMBPerS: 520, SteadyMBPerS: 290, FastBytes: drop * 520e6, Dropped: true, RecoverS: 35},
	})
}

func (e *exampleMaker) stalls() {
	const seconds = 60
	cell := e.cell(Cell{ID: "stalls", Op: "write", Method: "dsync", Allocation: "zeroed", Pattern: "sequential", BlockBytes: 16384, Durable: true, Loop: "open", AskedPerS: 1000, Late: 480}, 42, 0.35)
	cell.ClosedMaxUS = 310000
	s := Series{Cell: "stalls", IntervalS: 1}
	st := Stalls{Cell: "stalls", LongestUS: 310000, Over10MS: 9, Over50MS: 5, Over100MS: 3, PeriodS: 6.5}
	for range seconds {
		s.Ops = append(s.Ops, 1000)
		s.MBPerS = append(s.MBPerS, 16.4)
		s.P99US = append(s.P99US, math.Round(70+5*e.rng.Float64()))
		s.MaxUS = append(s.MaxUS, math.Round(200+300*e.rng.Float64()))
	}
	for i, gap := range []float64{14000, 310000, 60000, 12000, 120000, 55000, 105000, 11000, 13000} {
		st.Events = append(st.Events, StallEvent{AtS: 3 + 6.5*float64(i), GapUS: gap})
		s.MaxUS[3+int(6.5*float64(i))] = gap
	}
	e.add(Chapter{Name: ChapterStalls, Cells: []Cell{cell}, Series: []Series{s}, Stalls: []Stalls{st}})
}

func (e *exampleMaker) metadata() {
	c := Chapter{Name: ChapterMetadata}
	for _, m := range []struct {
		op     string
		median float64
	}{{"create", 30}, {"rename", 25}, {"unlink", 900}, {"dirsync", 120}, {"fallocate", 60}} {
		c.Cells = append(c.Cells, e.cell(Cell{ID: m.op, Op: m.op}, m.median, 0.4))
	}
	e.add(c)
}
