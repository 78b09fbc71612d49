package chapter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/binderylog/bindery/journal"
	"github.com/binderylog/bindery/tools/iobench/engine"
	"github.com/binderylog/bindery/tools/iobench/result"
)

// Place is a directory to measure in.
type Place struct {
	Env    *engine.Env
	Device int // index in the run
}

// Options are what a chapter may use and what it is to find out.
type Options struct {
	Budget     time.Duration // measured time
	Bytes      int64         // to write at most, shared among the cells; 0: no bound
	Rounds     int
	FileBytes  int64
	Prefill    bool
	Sizes      []int              // of groups
	Methods    []journal.IOMethod // to compare
	Method     journal.IOMethod   // for chapters that use one
	Rate       float64            // bytes a second that the operator wants to take in; 0: not said
	EntryBytes int
	Goal       time.Duration // p99 of an add
	Hours      int           // of soak
	CapPercent float64       // of live
}

// Result is what a chapter found.
type Result struct {
	Chapter  result.Chapter
	Warnings []result.Warning
}

// Func runs a chapter.
type Func func(ctx context.Context, p *Place, o Options) (*Result, error)

// AllMethods are the ways to make writes durable that this build has.
var AllMethods = []journal.IOMethod{journal.IODSync, journal.IOFdatasync, journal.IORWFDSync, journal.IOBuffered}

// GroupSizes are those of a journal's groups.
var GroupSizes = []int{4 * engine.KiB, 8 * engine.KiB, 16 * engine.KiB, 32 * engine.KiB, 64 * engine.KiB, 128 * engine.KiB, 256 * engine.KiB, 512 * engine.KiB, engine.MiB}

// opsMin is how many operations a cell does in a round at least, however slow the disk.
const opsMin = 8

// book collects what a chapter measures.
type book struct {
	place   *Place
	o       Options
	chapter result.Chapter
	warn    []result.Warning
	began   time.Time
	written int64
	read    int64
	probes  []*engine.Probe
}

func open(name string, p *Place, o Options) *book {
	return &book{
		place: p, o: o, began: time.Now(), written: p.Env.Meter.Written(), read: p.Env.Meter.ReadBytes(),
		chapter: result.Chapter{Name: name, Device: p.Device, StartedS: time.Since(p.Env.Start).Seconds(), Cells: []result.Cell{}},
	}
}

// probe adds a cell.
func (b *book) probe(c result.Cell) *engine.Probe {
	if c.Depth == 0 {
		c.Depth = 1
	}
	p := engine.NewProbe(c)
	b.probes = append(b.probes, p)
	return p
}

// unsupported adds a cell that could not be measured.
func (b *book) unsupported(c result.Cell, err error) {
	if c.Depth == 0 {
		c.Depth = 1
	}
	c.Loop, c.Unsupported = "closed", err.Error()
	b.chapter.Cells = append(b.chapter.Cells, c)
	b.add(result.WarnUnsupported, result.SeverityInfo, c.ID, "%s: not supported here: %v", c.ID, err)
}

func (b *book) add(code, severity, cell, format string, args ...any) {
	b.warn = append(b.warn, result.Warning{Code: code, Severity: severity, Device: b.place.Device, Chapter: b.chapter.Name, Cell: cell, Text: fmt.Sprintf(format, args...)})
}

// bytesEach is what one of n loads may write in one round.
func (b *book) bytesEach(n int) int64 {
	if b.o.Bytes == 0 {
		return 0
	}
	return max(b.o.Bytes/int64(max(n*b.o.Rounds, 1)), engine.MiB)
}

// close makes the result. An error of the meter is no failure: the chapter is as complete as it was allowed to be.
func (b *book) close(err error) (*Result, error) {
	c := &b.chapter
	for _, p := range b.probes {
		if p.Ops() == 0 {
			continue
		}
		c.Cells = append(c.Cells, p.Result())
		if s := p.Series(); s != nil && len(s.Ops) > 0 {
			c.Series = append(c.Series, *s)
		}
		if s := p.Stalls(); s != nil {
			c.Stalls = append(c.Stalls, *s)
		}
	}
	c.ElapsedS = time.Since(b.began).Seconds()
	c.WrittenBytes = b.place.Env.Meter.Written() - b.written
	c.ReadBytes = b.place.Env.Meter.ReadBytes() - b.read
	c.Complete = err == nil
	if errors.Is(err, engine.ErrWriteCap) {
		b.add(result.WarnWriteCap, result.SeverityWarning, "", "%s ended early: %v", c.Name, err)
		err = nil
	}
	b.limits()
	return &Result{Chapter: b.chapter, Warnings: b.warn}, err
}

// limits says what limited the chapter, and warns of what makes its figures doubtful.
func (b *book) limits() {
	c := &b.chapter
	c.LimitedBy = "device"
	var busy, unsteady, noisy, few []string
	for i := range c.Cells {
		cell := &c.Cells[i]
		if cell.Ops == 0 {
			continue
		}
		// One worker can use one processor; it and the runtime beside it somewhat more.
		if cell.Loop == "closed" && cell.CPUPercent > 90*float64(min(max(cell.Depth, cell.Journals, 1), 2)) {
			busy = append(busy, cell.ID)
		}
		if len(cell.Rounds) >= 5 && !cell.Steady || len(cell.Rounds) < 5 && cell.ElapsedS >= 10 && !cell.Steady {
			unsteady = append(unsteady, cell.ID)
		}
		if len(cell.Rounds) > 1 && engine.Spread(cell, engine.ByP50) > noisySpread {
			noisy = append(noisy, cell.ID)
		}
		if cell.Latency != nil && cell.Latency.Count < 100 {
			few = append(few, cell.ID)
		}
	}
	n := len(c.Cells)
	if len(unsteady) > 0 {
		b.add(result.WarnNotSteady, result.SeverityWarning, unsteady[0], "NOT STEADY: %s: the last five windows differ by more than 10 %%", some(unsteady, n))
	}
	if len(few) > 0 {
		b.add(result.WarnFewSamples, result.SeverityInfo, few[0], "%s: under 100 samples; their p99 says little", some(few, n))
	}
	if len(noisy) > 0 {
		b.add(result.WarnNoisy, result.SeverityWarning, noisy[0], "%s: medians of the rounds lie more than %d %% apart", some(noisy, n), noisySpread)
		if 2*len(noisy) > n {
			c.LimitedBy = "noise"
		}
	}
	if len(busy) > 0 {
		b.add(result.WarnCPULimited, result.SeverityWarning, busy[0], "CPU LIMITED: %s: the processor was the limit, not the disk", some(busy, n))
		if 2*len(busy) > n {
			c.LimitedBy = "CPU"
		}
	}
}

// noisySpread is how far, in percent, medians of the same thing may lie apart.
const noisySpread = 50

// some names cells, or how many of all.
func some(ids []string, all int) string {
	const most = 3
	if len(ids) <= most {
		return join(ids)
	}
	return fmt.Sprintf("%s and %d more of %d", join(ids[:most]), len(ids)-most, all)
}

func join(ids []string) string {
	s := ""
	for i, id := range ids {
		if i > 0 {
			s += ", "
		}
		s += id
	}
	return s
}

// compare adds a verdict on cells whose ids are given.
func (b *book) compare(question string, m engine.Metric, ids ...string) {
	var cells []*result.Cell
	for i := range b.chapter.Cells {
		if slices.Contains(ids, b.chapter.Cells[i].ID) {
			cells = append(cells, &b.chapter.Cells[i])
		}
	}
	if v, ok := engine.Compare(question, m, cells); ok {
		b.chapter.Verdicts = append(b.chapter.Verdicts, v)
	}
}

// area makes a test file. Without prefill its blocks were never written before.
func (b *book) area(ctx context.Context, o engine.AreaOptions) (*engine.Area, error) {
	if o.Size == 0 {
		o.Size = b.o.FileBytes
	}
	if o.State == "" {
		o.State = engine.Recycled
		if !b.o.Prefill {
			o.State = engine.Fallocate
		}
	}
	if b.place.Env.Fixed != "" {
		o.State = engine.Recycled // a device has no other blocks
	}
	if o.FillFor == 0 {
		o.FillFor = max(b.o.Budget/4, time.Second)
	}
	a, err := b.place.Env.NewArea(ctx, o)
	if err != nil {
		return nil, err
	}
	return a, nil
}

func methods1(o Options) []journal.IOMethod { return []journal.IOMethod{o.Method} }

// measured fits a cell's flags to a method.
func measured(c result.Cell, m journal.IOMethod) result.Cell {
	c.Method, c.Durable, c.Buffered = string(m), true, m == journal.IOBuffered
	return c
}
