package chapter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/binderylog/bindery/tools/iobench/engine"
	"github.com/binderylog/bindery/tools/iobench/result"
)

const streamBlock = engine.MiB

// Bandwidth measures sequential writing of large blocks. Each round ends with a sync that counts as its time, so a page
// cache or a disk's own can not pass for the disk; single writes are not durable all the same, and say so.
func Bandwidth(ctx context.Context, p *Place, o Options) (*Result, error) {
	b := open(result.ChapterBandwidth, p, o)
	a, err := b.area(ctx, engine.AreaOptions{Buffer: true})
	if err != nil {
		return b.close(err)
	}
	finish := func() error { _, err := a.Sync(); return err }
	var list []engine.Contender
	add := func(c result.Cell, depth int, buffered bool) {
		ws, err := a.StreamWriters(streamBlock, depth, buffered)
		if err != nil {
			b.unsupported(c, err)
			return
		}
		list = append(list, engine.Contender{Load: engine.Load{Probe: b.probe(c), Workers: ws, OpsMin: opsMin, Finish: finish}})
	}
	for _, depth := range []int{1, 4, 16, 32} {
		add(result.Cell{ID: fmt.Sprintf("direct/%d", depth), Op: "write", Pattern: "sequential", BlockBytes: streamBlock, Depth: depth}, depth, false)
	}
	add(result.Cell{ID: "buffered/1", Op: "write", Pattern: "sequential", BlockBytes: streamBlock, Depth: 1, Buffered: true}, 1, true)
	for i := range list {
		list[i].Duration = engine.Slice(o.Budget, o.Rounds, len(list))
		list[i].BytesMax = b.bytesEach(len(list))
	}
	err = p.Env.Interleave(ctx, o.Rounds, list, b.chapter.Name)
	b.add(result.WarnNotDurable, result.SeverityInfo, "", "NOT DURABLE: latencies of bandwidth are of writes without a sync; their rates include one at the end of each round")
	return b.close(errors.Join(err, a.Close()))
}

// Read measures reading blocks and streams, cold.
func Read(ctx context.Context, p *Place, o Options) (*Result, error) {
	b := open(result.ChapterRead, p, o)
	a, err := b.area(ctx, engine.AreaOptions{State: engine.Recycled})
	if err != nil {
		return b.close(err)
	}
	var list []engine.Contender
	for _, r := range []struct {
		pattern string
		size    int
		depths  []int
	}{
		{"random", 4 * engine.KiB, []int{1, 8, 64}}, {"random", 16 * engine.KiB, []int{1, 8}}, {"random", 64 * engine.KiB, []int{1, 8}},
		{"sequential", 64 * engine.KiB, []int{1}}, {"sequential", 256 * engine.KiB, []int{1, 8, 32}}, {"sequential", engine.MiB, []int{1, 8}},
	} {
		for _, depth := range r.depths {
			c := result.Cell{ID: fmt.Sprintf("%s/%d/%d", r.pattern, r.size, depth), Op: "read", Pattern: r.pattern, BlockBytes: r.size, Depth: depth, Buffered: !a.Direct}
			ws := a.Readers(r.size, depth, r.pattern == "random")
			list = append(list, engine.Contender{
				Load:   engine.Load{Probe: b.probe(c), Workers: ws, OpsMin: opsMin * depth},
				Before: func(context.Context) error { a.DropCache(); return nil },
			})
		}
	}
	for i := range list {
		list[i].Duration = engine.Slice(o.Budget, o.Rounds, len(list))
	}
	err = p.Env.Interleave(ctx, o.Rounds, list, b.chapter.Name)
	return b.close(errors.Join(err, a.Close()))
}

// Sustain writes at full speed until the fast part of the disk is full, and then at the asked rate, to see how long it
// takes to recover.
func Sustain(ctx context.Context, p *Place, o Options) (*Result, error) {
	const depth = 4
	b := open(result.ChapterSustain, p, o)
	// Blocks that were never written, as those of a new entry log are.
	a, err := b.area(ctx, engine.AreaOptions{State: engine.Fallocate, Buffer: true})
	if err != nil {
		return b.close(err)
	}
	full := b.probe(result.Cell{ID: "sustain", Op: "write", Pattern: "sequential", BlockBytes: streamBlock, Depth: depth}).Timed()
	ws, err := a.StreamWriters(streamBlock, depth, !a.Direct)
	if err != nil {
		return b.close(errors.Join(err, a.Close()))
	}
	p.Env.Report(b.chapter.Name, "sustain", 0)
	err = p.Env.Run(ctx, engine.Load{
		Probe: full, Workers: ws, Duration: o.Budget * 3 / 4, BytesMax: o.Bytes, OpsMin: opsMin,
		Finish: func() error { _, err := a.Sync(); return err },
	})
	s := sustained(full)
	if s != nil {
		b.chapter.Sustained = s
	}
	if err == nil && s != nil {
		rate := o.Rate
		if rate == 0 {
			rate = s.SteadyMBPerS * 1e6 / 2
		}
		calm := b.probe(result.Cell{ID: "recover", Op: "write", Pattern: "sequential", BlockBytes: streamBlock, Depth: depth, Loop: "open", AskedPerS: rate / streamBlock}).Timed()
		p.Env.Report(b.chapter.Name, "recover", 0.75)
		err = p.Env.Run(ctx, engine.Load{Probe: calm, Workers: ws, Rate: rate / streamBlock, Duration: o.Budget / 4})
		s.RecoverS = recovery(calm.Series())
	}
	r, err := b.close(errors.Join(err, a.Close()))
	if s != nil && s.Throttled {
		r.Warnings = append(r.Warnings, result.Warning{Code: result.WarnThermal, Severity: result.SeverityWarning, Device: p.Device, Chapter: b.chapter.Name, Cell: "sustain", Text: "the rate fell while the disk grew hot: better cooling would help"})
	}
	return r, err
}

// sustained finds the drop in a time line: the fast part lasts until the rate stays below the middle between the start's
// and the end's.
func sustained(p *engine.Probe) *result.Sustain {
	line := p.Series()
	n := len(line.Ops)
	if n == 0 {
		return nil
	}
	part := max(n/5, 1)
	mean := func(v []float64) float64 {
		sum := 0.0
		for _, x := range v {
			sum += x
		}
		return sum / float64(len(v))
	}
	s := &result.Sustain{FastMBPerS: mean(line.MBPerS[:part]), SteadyMBPerS: mean(line.MBPerS[n-part:])}
	const drop = 0.8
	end := n
	if s.SteadyMBPerS < drop*s.FastMBPerS {
		s.Dropped = true
		middle := (s.SteadyMBPerS + s.FastMBPerS) / 2
		for end > 0 && line.MBPerS[end-1] < middle {
			end--
		}
		s.FastMBPerS = mean(line.MBPerS[:max(end, 1)])
	} else {
		s.FastMBPerS = mean(line.MBPerS)
	}
	for _, mb := range line.MBPerS[:end] {
		s.FastBytes += int64(mb * 1e6)
	}
	const hotter, hot = 15, 65 // degrees
	if t := line.TemperatureC; s.Dropped && len(t) == n && end < n && (t[min(end, n-1)]-t[0] >= hotter || t[min(end, n-1)] >= hot) {
		s.Throttled = true
	}
	return s
}

// recovery is after how many seconds latency stayed near what it was in the end.
func recovery(line *result.Series) float64 {
	n := len(line.P99US)
	if n < 4 {
		return 0
	}
	last := 0.0
	for _, v := range line.P99US[n/2:] {
		last = max(last, v)
	}
	at := 0
	for i, v := range line.P99US[:n/2] {
		if v > 1.5*last {
			at = i + 1
		}
	}
	return float64(at)
}

// Stalls measures the gaps between completions at a fixed rate.
func Stalls(ctx context.Context, p *Place, o Options) (*Result, error) {
	b := open(result.ChapterStalls, p, o)
	err := b.fixedRate(ctx, "stalls", o.Budget, nil)
	return b.close(err)
}

// stallSize is the group that is written at a fixed rate.
const stallSize = 16 * engine.KiB

// fixedRate writes groups at a rate that leaves the disk half idle. each is called with the probe after each hour.
func (b *book) fixedRate(ctx context.Context, id string, d time.Duration, each func(*engine.Probe)) (err error) {
	o, env := b.o, b.place.Env
	a, err := b.area(ctx, engine.AreaOptions{Methods: methods1(o)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	c := measured(result.Cell{ID: id, Op: "write", Allocation: string(allocationOf(o)), Pattern: "sequential", BlockBytes: stallSize}, o.Method)
	w, err := a.DurableWriter(o.Method, stallSize)
	if err != nil {
		b.unsupported(c, err)
		return nil
	}
	rate, err := b.halfRate(ctx, w, d/10, stallSize)
	if err != nil {
		return err
	}
	c.Loop, c.AskedPerS = "open", rate
	probe := b.probe(c).Timed().Stalled()
	env.Report(b.chapter.Name, id, 0)
	for left := d; left > 0; left -= time.Hour {
		part := min(left, time.Hour)
		single := engine.NewProbe(c)
		err = env.Run(ctx, engine.Load{Probe: probe, Also: single, Workers: []engine.Worker{w}, Rate: rate, Duration: part})
		if each != nil {
			each(single)
		}
		if err != nil {
			return err
		}
		env.Report(b.chapter.Name, id, 1-float64(left-part)/float64(d))
	}
	return nil
}

// halfRate finds out how many operations a second the disk does, and returns half of that, or what the operator asked for
// if that is less.
func (b *book) halfRate(ctx context.Context, w engine.Worker, d time.Duration, size int) (float64, error) {
	const most = 1000 // the wake-ups of more would cost more than they tell
	trial := engine.NewProbe(result.Cell{ID: "trial", Op: "write"})
	if err := b.place.Env.Run(ctx, engine.Load{Probe: trial, Workers: []engine.Worker{w}, Duration: min(max(d, time.Second/2), 2*time.Second), OpsMin: 10 * opsMin}); err != nil {
		return 0, err
	}
	rate := min(trial.Result().OpsPerS/2, most)
	if b.o.Rate > 0 {
		rate = min(rate, b.o.Rate/float64(size))
	}
	return max(rate, 1), nil
}
