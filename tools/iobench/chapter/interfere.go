package chapter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/binderylog/bindery/tools/iobench/engine"
	"github.com/binderylog/bindery/tools/iobench/result"
)

// The backgrounds of a bookie.
const (
	flushBurst  = 256 * engine.MiB // of the write cache
	flushEvery  = 10 * time.Second
	catchupSize = 256 * engine.KiB
	catchups    = 4
	indexSize   = 64 * engine.KiB
)

// background is what runs beside the journal: loads that go on until they are stopped.
type background struct {
	name  string
	loads []func() engine.Load
	rate  float64 // share of full speed, 0: as fast as it goes
	bytes int64   // after which there is enough of it; 0: no bound
}

// Interfere measures a journal at a fixed rate beside what else a bookie does, on its own disk and, if there are others,
// on those.
func Interfere(ctx context.Context, p *Place, o Options, others ...*Place) (*Result, error) {
	b := open(result.ChapterInterfere, p, o)
	a, err := b.area(ctx, engine.AreaOptions{Methods: methods1(o)})
	if err != nil {
		return b.close(err)
	}
	closers := []*engine.Area{a}
	closeAll := func(err error) error {
		for _, a := range closers {
			err = errors.Join(err, a.Close())
		}
		return err
	}
	w, err := a.DurableWriter(o.Method, stallSize)
	if err != nil {
		b.unsupported(measured(result.Cell{ID: "idle/same", Op: "write", BlockBytes: stallSize}, o.Method), err)
		return b.close(closeAll(nil))
	}
	rate, err := b.halfRate(ctx, w, o.Budget/20, stallSize)
	if err != nil {
		return b.close(closeAll(err))
	}
	places := append([]*Place{p}, others...)
	slice := engine.Slice(o.Budget, o.Rounds, 8+6*len(others))
	type turn struct {
		probe *engine.Probe
		back  background
	}
	var turns []turn
	for i, place := range places {
		ground, err := b.ground(ctx, place)
		if err != nil {
			return b.close(closeAll(err))
		}
		closers = append(closers, ground)
		disk := "same"
		if i > 0 {
			disk = "other"
			if i > 1 {
				disk = fmt.Sprintf("other%d", i)
			}
		}
		for _, back := range b.backgrounds(ground, i == 0) {
			if back.name == "idle" && i > 0 {
				continue
			}
			id := back.name + "/" + disk
			if back.rate > 0 {
				id = fmt.Sprintf("%s/%.0f", id, 100*back.rate)
			}
			c := measured(result.Cell{
				ID: id, Op: "write", Allocation: string(allocationOf(o)), Pattern: "sequential", BlockBytes: stallSize,
				Background: back.name, BackgroundDevice: place.Device, Loop: "open", AskedPerS: rate,
			}, o.Method)
			turns = append(turns, turn{b.probe(c), back})
		}
	}
	full := map[string]float64{} // rate of each background at full speed, bytes a second
	for round := range o.Rounds {
		for i := range turns {
			t := &turns[(i+round)%len(turns)]
			if t.back.rate > 0 && full[t.back.name] == 0 {
				continue // what full speed is will be known in the next round
			}
			p.Env.Report(b.chapter.Name, t.probe.Cell.ID, (float64(round)+float64(i)/float64(len(turns)))/float64(o.Rounds))
			const pair = 2 * streamBlock // compaction: a block read and one written
			t.back.bytes = b.bytesEach(len(turns))
			moved, err := b.beside(ctx, t.back, full[t.back.name]*t.back.rate/pair, func(ctx context.Context) error {
				return p.Env.Run(ctx, engine.Load{Probe: t.probe, Workers: []engine.Worker{w}, Rate: rate, Duration: slice})
			})
			if err != nil {
				return b.close(closeAll(err))
			}
			if t.back.rate == 0 {
				full[t.back.name] = max(full[t.back.name], moved)
			}
			t.probe.Cell.BackgroundMB = max(t.probe.Cell.BackgroundMB, moved/1e6)
		}
	}
	r, err := b.close(closeAll(nil))
	if idle := r.Chapter.Cell("idle/same"); err == nil && idle != nil && idle.Overloaded() {
		b.add(result.WarnNoisy, result.SeverityWarning, idle.ID, "even without anything beside it the disk did not keep %.0f writes a second, half of what it did at first: ratios to that say nothing", rate)
		r.Warnings = b.warn
	}
	return r, err
}

// ground is the file that backgrounds work on.
func (b *book) ground(ctx context.Context, place *Place) (*engine.Area, error) {
	c := *b
	c.place = place
	return c.area(ctx, engine.AreaOptions{State: engine.Recycled, Buffer: true})
}

// backgrounds are all that there are on an area. Compaction comes at several speeds on the journal's own disk: how fast it
// may be is a setting.
func (b *book) backgrounds(a *engine.Area, sweep bool) []background {
	writers, err := a.StreamWriters(streamBlock, 1, !a.Direct)
	if err != nil {
		return nil
	}
	flush := func() engine.Load { // it begins with a burst each time
		return engine.Load{Workers: []engine.Worker{engine.Bursts(writers[0], flushBurst/streamBlock, flushEvery)}}
	}
	copying, _ := a.StreamWriters(streamBlock, 1, !a.Direct) // it worked a moment ago
	compaction := always(engine.Pair(a.Readers(streamBlock, 1, true)[0], copying[0]))
	catchup := always(a.Readers(catchupSize, catchups, false)...)
	index := always(a.RandomWriter(indexSize))
	list := []background{
		{name: "idle"},
		{name: "flush", loads: []func() engine.Load{flush}},
		{name: "catchup", loads: []func() engine.Load{catchup}},
		{name: "compaction", loads: []func() engine.Load{compaction}},
		{name: "index", loads: []func() engine.Load{index}},
		{name: "all", loads: []func() engine.Load{flush, catchup, compaction, index}},
	}
	if sweep {
		for _, share := range []float64{0.25, 0.5} {
			list = append(list, background{name: "compaction", loads: []func() engine.Load{compaction}, rate: share})
		}
	}
	return list
}

func always(ws ...engine.Worker) func() engine.Load {
	return func() engine.Load { return engine.Load{Workers: ws} }
}

// beside runs f while the background works, with rate operations a second if that is not 0, and returns how many bytes a
// second the background moved. Once the background has written what it may, f is ended too, early and well.
func (b *book) beside(ctx context.Context, back background, rate float64, f func(context.Context) error) (moved float64, err error) {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	fore, enough := context.WithCancel(ctx)
	defer enough()
	const endless = 1000 * time.Hour
	var wg sync.WaitGroup
	errs := make([]error, len(back.loads))
	probes := make([]*engine.Probe, len(back.loads))
	start := time.Now()
	for i, load := range back.loads {
		l := load()
		l.Probe, l.Duration = engine.NewProbe(result.Cell{ID: back.name, Op: "write"}), endless
		l.BytesMax = back.bytes / int64(len(back.loads))
		if rate > 0 {
			l.Rate = rate
		}
		probes[i] = l.Probe
		wg.Go(func() {
			if err := b.place.Env.Run(inner, l); !errors.Is(err, context.Canceled) {
				errs[i] = err
				enough()
			}
		})
	}
	err = f(fore)
	if errors.Is(err, context.Canceled) && ctx.Err() == nil {
		err = nil
	}
	took := time.Since(start)
	cancel()
	wg.Wait()
	for _, p := range probes {
		moved += float64(p.Bytes()) / max(took.Seconds(), 1e-9)
	}
	return moved, errors.Join(append(errs, err)...)
}

// Coupling measures a journal while another disk is synced all the time: what they share shows.
func Coupling(ctx context.Context, p *Place, o Options, other *Place) (*Result, error) {
	b := open(result.ChapterCoupling, p, o)
	var areas []*engine.Area
	var workers []engine.Worker
	closeAll := func(err error) error {
		for _, a := range areas {
			err = errors.Join(err, a.Close())
		}
		return err
	}
	for _, place := range []*Place{p, other} {
		c := *b
		c.place = place
		a, err := c.area(ctx, engine.AreaOptions{Methods: methods1(o)})
		if err != nil {
			return b.close(closeAll(err))
		}
		areas = append(areas, a)
		w, err := a.DurableWriter(o.Method, stallSize)
		if err != nil {
			b.unsupported(measured(result.Cell{ID: "coupled", Op: "write", BlockBytes: stallSize, BackgroundDevice: other.Device}, o.Method), err)
			return b.close(closeAll(nil))
		}
		workers = append(workers, w)
	}
	base := measured(result.Cell{Op: "write", Allocation: string(allocationOf(o)), Pattern: "sequential", BlockBytes: stallSize, BackgroundDevice: other.Device}, o.Method)
	idle, coupled := base, base
	idle.ID, idle.Background, coupled.ID, coupled.Background = "idle", "idle", "coupled", "sync"
	probes := []*engine.Probe{b.probe(idle), b.probe(coupled)}
	slice := engine.Slice(o.Budget, o.Rounds, 2)
	backs := []background{{name: "idle"}, {name: "sync", loads: []func() engine.Load{always(workers[1:]...)}}}
	for round := range o.Rounds {
		for i := range probes {
			p.Env.Report(b.chapter.Name, probes[i].Cell.ID, (float64(round)+float64(i)/2)/float64(o.Rounds))
			_, err := b.beside(ctx, backs[i], 0, func(ctx context.Context) error {
				return p.Env.Run(ctx, engine.Load{Probe: probes[i], Workers: workers[:1], Duration: slice, OpsMin: opsMin})
			})
			if err != nil {
				return b.close(closeAll(err))
			}
		}
	}
	r, err := b.close(closeAll(nil))
	b.compare("the other disk idle or syncing", engine.ByP99, "idle", "coupled")
	r.Chapter = b.chapter
	return r, err
}
