package chapter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/binderylog/bindery/tools/iobench/engine"
	"github.com/binderylog/bindery/tools/iobench/result"
)

// pipelineSizes are those of a journal's groups; what lies between them is interpolated.
var pipelineSizes = []int{4 * engine.KiB, 16 * engine.KiB, 64 * engine.KiB, 256 * engine.KiB, 512 * engine.KiB}

// pipelineDepth is how many groups a journal has in flight.
const pipelineDepth = 2

// Pipeline measures durable writes as a journal makes them: one by one, and two at once in one file; alone, or beside the
// stream of large writes by which the write cache is flushed. It is measured slice by slice, so that others can have the
// disk in between.
type Pipeline struct {
	b      *book
	areas  []*engine.Area
	writes []pipelineWrite
	stream engine.Worker
	probes map[string]*engine.Probe // of all slices
}

type pipelineWrite struct {
	cell    result.Cell
	workers []engine.Worker
}

// OpenPipeline makes the test files.
func OpenPipeline(ctx context.Context, p *Place, o Options) (_ *Pipeline, err error) {
	l := &Pipeline{b: open(result.ChapterPipeline, p, o), probes: map[string]*engine.Probe{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.closeAreas())
		}
	}()
	a, err := l.b.area(ctx, engine.AreaOptions{State: engine.Recycled, Methods: methods1(o)})
	if err != nil {
		return nil, err
	}
	l.areas = append(l.areas, a)
	ground, err := l.b.ground(ctx, p)
	if err != nil {
		return nil, err
	}
	l.areas = append(l.areas, ground)
	streams, err := ground.StreamWriters(streamBlock, 1, !ground.Direct)
	if err != nil {
		return nil, err
	}
	l.stream = streams[0]
	for _, size := range pipelineSizes {
		for depth := 1; depth <= pipelineDepth; depth++ {
			ws, err := a.DurableWriters(o.Method, size, depth)
			if err != nil {
				return nil, err
			}
			c := measured(result.Cell{Op: "write", Allocation: string(engine.Recycled), Pattern: "sequential", BlockBytes: size, Depth: depth}, o.Method)
			l.writes = append(l.writes, pipelineWrite{c, ws})
		}
	}
	return l, nil
}

// Slice is what one slice of a write came to.
type Slice struct {
	result.Cell
	Spans []engine.Span // of the operations
}

// Measure takes one slice of every write beside a stream of so many bytes a second, and returns what it found. Slices of
// one label are the rounds of a cell of the chapter.
func (l *Pipeline) Measure(ctx context.Context, label string, d time.Duration, stream float64) ([]Slice, error) {
	var list []engine.Contender
	var probes []*engine.Probe
	each := d / time.Duration(len(l.writes))
	for _, w := range l.writes {
		c := w.cell
		c.ID = fmt.Sprintf("%s/%d/%d", label, c.BlockBytes, c.Depth)
		c.Background = "idle"
		if stream > 0 {
			c.Background, c.BackgroundMB = "flush", stream/1e6
		}
		if l.probes[c.ID] == nil {
			l.probes[c.ID] = l.b.probe(c)
		}
		p := engine.NewProbe(c).Spanned()
		probes = append(probes, p)
		list = append(list, engine.Contender{Load: engine.Load{Probe: p, Also: l.probes[c.ID], Workers: w.workers, Duration: each, OpsMin: opsMin * c.Depth}})
	}
	back := background{name: "idle"}
	if stream > 0 {
		back = background{name: "flush", loads: []func() engine.Load{always(l.stream)}}
	}
	_, err := l.b.beside(ctx, back, stream/streamBlock, func(ctx context.Context) error {
		return l.b.place.Env.Interleave(ctx, 1, list, l.b.chapter.Name)
	})
	var out []Slice
	for _, p := range probes {
		if p.Ops() > 0 {
			out = append(out, Slice{p.Result(), p.Spans()})
		}
	}
	return out, err
}

// Close gives the files back. err is how the measuring ended.
func (l *Pipeline) Close(err error) (*Result, error) {
	return l.b.close(errors.Join(err, l.closeAreas()))
}

func (l *Pipeline) closeAreas() error {
	var errs []error
	for _, a := range l.areas {
		errs = append(errs, a.Close())
	}
	l.areas = nil
	return errors.Join(errs...)
}
