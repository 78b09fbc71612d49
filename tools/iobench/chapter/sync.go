package chapter

import (
	"context"
	"errors"
	"fmt"

	"github.com/binderylog/bindery/journal"
	"github.com/binderylog/bindery/tools/iobench/engine"
	"github.com/binderylog/bindery/tools/iobench/result"
)

// Sync measures each method at each size, the rounds of all interleaved.
func Sync(ctx context.Context, p *Place, o Options) (*Result, error) {
	b := open(result.ChapterSync, p, o)
	a, err := b.area(ctx, engine.AreaOptions{Methods: o.Methods})
	if err != nil {
		return b.close(err)
	}
	var list []engine.Contender
	for _, size := range o.Sizes {
		for _, m := range o.Methods {
			c := measured(result.Cell{ID: fmt.Sprintf("%s/%d", m, size), Op: "write", Allocation: string(allocationOf(o)), Pattern: "sequential", BlockBytes: size}, m)
			if size == o.Sizes[0] {
				if err := try(ctx, a, m); err != nil {
					if !engine.IsUnsupported(err) {
						return b.close(errors.Join(err, a.Close()))
					}
					b.unsupported(c, err)
					continue
				}
			}
			w, err := a.DurableWriter(m, size)
			if err != nil {
				continue // said once, at the first size
			}
			list = append(list, engine.Contender{Load: engine.Load{Probe: b.probe(c), Workers: []engine.Worker{w}, OpsMin: opsMin}})
		}
	}
	for i := range list {
		list[i].Duration = engine.Slice(o.Budget, o.Rounds, len(list))
		list[i].BytesMax = b.bytesEach(len(list))
	}
	err = p.Env.Interleave(ctx, o.Rounds, list, b.chapter.Name)
	r, err := b.close(errors.Join(err, a.Close()))
	for _, size := range o.Sizes {
		var ids []string
		for _, m := range o.Methods {
			ids = append(ids, fmt.Sprintf("%s/%d", m, size))
		}
		b.compare(fmt.Sprintf("method at %d bytes", size), engine.ByP99, ids...)
	}
	r.Chapter = b.chapter
	return r, err
}

func allocationOf(o Options) engine.Allocation {
	if o.Prefill {
		return engine.Recycled
	}
	return engine.Fallocate
}

// try makes one write with a method, which shows whether the kernel and the file system have it.
func try(ctx context.Context, a *engine.Area, m journal.IOMethod) error {
	w, err := a.DurableWriter(m, 4*engine.KiB)
	if err != nil {
		return err
	}
	if err := w.Prepare(ctx); err != nil {
		return err
	}
	_, err = w.Do()
	if err != nil && engine.IsUnsupported(err) {
		a.Refuse(m, err)
	}
	return err
}

// Alloc measures one method on blocks in each state.
func Alloc(ctx context.Context, p *Place, o Options) (*Result, error) {
	const size = 4 * engine.KiB
	b := open(result.ChapterAlloc, p, o)
	var list []engine.Contender
	var areas []*engine.Area
	var ids []string
	closeAll := func(err error) error {
		for _, a := range areas {
			err = errors.Join(err, a.Close())
		}
		return err
	}
	for _, state := range []engine.Allocation{engine.Append, engine.Sparse, engine.Fallocate, engine.Zeroed, engine.Recycled} {
		c := measured(result.Cell{ID: string(state), Op: "write", Allocation: string(state), Pattern: "sequential", BlockBytes: size}, o.Method)
		a, err := b.area(ctx, engine.AreaOptions{State: state, Size: min(o.FileBytes, 32*engine.MiB), Methods: []journal.IOMethod{o.Method}})
		if err != nil {
			return b.close(closeAll(err))
		}
		areas = append(areas, a)
		w, err := a.DurableWriter(o.Method, size)
		if err != nil {
			b.unsupported(c, err)
			continue
		}
		ids = append(ids, c.ID)
		list = append(list, engine.Contender{Load: engine.Load{Probe: b.probe(c), Workers: []engine.Worker{w}, OpsMin: opsMin}})
	}
	for i := range list {
		list[i].Duration = engine.Slice(o.Budget, o.Rounds, len(list))
		list[i].BytesMax = b.bytesEach(len(list))
	}
	err := p.Env.Interleave(ctx, o.Rounds, list, b.chapter.Name)
	r, err := b.close(closeAll(err))
	b.compare("allocation", engine.ByP99, ids...)
	if v := b.chapter.Verdicts; len(v) > 0 && (v[0].Significant || worst(&b.chapter) > 1.5) && b.chapter.LimitedBy == "device" {
		b.chapter.LimitedBy = "file system" // the same disk, the same writes; only the file system's own work differs
	}
	r.Chapter = b.chapter
	return r, err
}

// worst is how much slower the slowest cell's p50 is than the fastest one's.
func worst(c *result.Chapter) float64 {
	lo, hi := 0.0, 0.0
	for _, cell := range c.Cells {
		if cell.Latency == nil {
			continue
		}
		if v := cell.Latency.P50US; lo == 0 || v < lo {
			lo = v
		}
		hi = max(hi, cell.Latency.P50US)
	}
	if lo == 0 {
		return 0
	}
	return hi / lo
}

// Align measures writes of one sector up to several blocks, each at offsets that are odd multiples of its size.
func Align(ctx context.Context, p *Place, o Options) (*Result, error) {
	b := open(result.ChapterAlign, p, o)
	a, err := b.area(ctx, engine.AreaOptions{Sectors: true})
	if err != nil {
		return b.close(err)
	}
	var list []engine.Contender
	for _, size := range []int{512, 1024, 2048, 4096, 8192, 16384} {
		c := measured(result.Cell{ID: fmt.Sprint(size), Op: "write", Allocation: string(allocationOf(o)), Pattern: "sequential", BlockBytes: size, AlignBytes: size}, journal.IODSync)
		w, err := a.SectorWriter(size)
		if err == nil {
			if err = w.Prepare(ctx); err == nil {
				_, err = w.Do()
			}
		}
		switch {
		case err == nil:
			list = append(list, engine.Contender{Load: engine.Load{Probe: b.probe(c), Workers: []engine.Worker{w}, OpsMin: opsMin}})
		case engine.IsUnsupported(err):
			b.unsupported(c, err)
		default:
			return b.close(errors.Join(&engine.DiskError{Op: "align", Err: err}, a.Close()))
		}
	}
	for i := range list {
		list[i].Duration = engine.Slice(o.Budget, o.Rounds, len(list))
		list[i].BytesMax = b.bytesEach(len(list))
	}
	err = p.Env.Interleave(ctx, o.Rounds, list, b.chapter.Name)
	return b.close(errors.Join(err, a.Close()))
}

// Journals measures independent journals at once: how many a disk can take.
func Journals(ctx context.Context, p *Place, o Options) (*Result, error) {
	const size, most = 64 * engine.KiB, 8
	b := open(result.ChapterJournals, p, o)
	var workers []engine.Worker
	var areas []*engine.Area
	closeAll := func(err error) error {
		for _, a := range areas {
			err = errors.Join(err, a.Close())
		}
		return err
	}
	for range most {
		a, err := b.area(ctx, engine.AreaOptions{Size: max(o.FileBytes/most, 8*engine.MiB), Methods: []journal.IOMethod{o.Method}, FillFor: max(o.Budget/(4*most), engine.FillMin)})
		if err != nil {
			return b.close(closeAll(err))
		}
		areas = append(areas, a)
		w, err := a.DurableWriter(o.Method, size)
		if err != nil {
			b.unsupported(measured(result.Cell{ID: "1", Op: "write", BlockBytes: size}, o.Method), err)
			return b.close(closeAll(nil))
		}
		workers = append(workers, w)
	}
	var list []engine.Contender
	for _, n := range []int{1, 2, 4, 8} {
		c := measured(result.Cell{ID: fmt.Sprint(n), Op: "write", Allocation: string(allocationOf(o)), Pattern: "sequential", BlockBytes: size, Depth: 1, Journals: n}, o.Method)
		list = append(list, engine.Contender{Load: engine.Load{Probe: b.probe(c), Workers: workers[:n], OpsMin: opsMin * n}})
	}
	for i := range list {
		list[i].Duration = engine.Slice(o.Budget, o.Rounds, len(list))
		list[i].BytesMax = b.bytesEach(len(list))
	}
	err := p.Env.Interleave(ctx, o.Rounds, list, b.chapter.Name)
	r, err := b.close(closeAll(err))
	b.compare("journals on one disk", engine.ByRate, "1", "2", "4", "8")
	r.Chapter = b.chapter
	return r, err
}
