package chapter

import (
	"context"
	"errors"
	"time"

	"github.com/binderylog/bindery/tools/iobench/engine"
	"github.com/binderylog/bindery/tools/iobench/result"
)

// Soak writes at a fixed rate for hours and says of each hour how much took longer than 1, 8 and 64 ms.
func Soak(ctx context.Context, p *Place, o Options) (*Result, error) {
	b := open(result.ChapterSoak, p, o)
	hour := 0
	err := b.fixedRate(ctx, "soak", o.Budget, func(probe *engine.Probe) {
		hour++
		if probe.Ops() == 0 {
			return
		}
		c := probe.Result()
		b.chapter.Exceedance = append(b.chapter.Exceedance, result.Hour{
			Hour: hour, Ops: c.Ops, P99US: c.Latency.P99US, MaxUS: c.Latency.MaxUS, MBPerS: c.MBPerS,
			Over1MSPct: probe.Share(time.Millisecond), Over8MSPct: probe.Share(8 * time.Millisecond), Over64MSPct: probe.Share(64 * time.Millisecond),
		})
	})
	return b.close(err)
}

// Live probes a disk that a bookie is using, with one small durable write after another and a rest after each, so that
// the probe takes at most a share of the disk's time.
func Live(ctx context.Context, p *Place, o Options) (*Result, error) {
	const size = 4 * engine.KiB
	b := open(result.ChapterLive, p, o)
	a, err := b.area(ctx, engine.AreaOptions{Size: 16 * engine.MiB, State: engine.Fallocate, Methods: methods1(o)})
	if err != nil {
		return b.close(err)
	}
	c := measured(result.Cell{ID: "live", Op: "write", Allocation: string(engine.Fallocate), Pattern: "sequential", BlockBytes: size, Background: "bookie"}, o.Method)
	w, err := a.DurableWriter(o.Method, size)
	if err != nil {
		b.unsupported(c, err)
		return b.close(a.Close())
	}
	p.Env.Report(b.chapter.Name, "live", 0)
	err = p.Env.Run(ctx, engine.Load{
		Probe: b.probe(c).Timed().Stalled().Rests(), Workers: []engine.Worker{engine.Gentle(w, o.CapPercent/100)}, Duration: o.Budget, OpsMin: opsMin, BytesMax: o.Bytes,
	})
	return b.close(errors.Join(err, a.Close()))
}
