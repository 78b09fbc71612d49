package session

import (
	"context"
	"errors"
	"io"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/binderylog/bindery/journal"
	"github.com/binderylog/bindery/tools/iobench/advice"
	"github.com/binderylog/bindery/tools/iobench/chapter"
	"github.com/binderylog/bindery/tools/iobench/device"
	"github.com/binderylog/bindery/tools/iobench/engine"
	"github.com/binderylog/bindery/tools/iobench/result"
)

// VerifyOptions are what `verify` needs beside a plan.
type VerifyOptions struct {
	Bindery     string        // program
	Connections int           // to the bookie
	Each        time.Duration // measured time of a load, all rounds together
	Rounds      int
	Memory      string    // directory in memory for the second bookie; "": none
	Log         io.Writer // what is going on, for people; may be nil
}

// Verify measures durable writes by each method, starts one bookie on the disk with the best one, and then, for full speed
// and for 10, 50 and 80 % of it, takes in turns: what writes take the disk, one by one and two at once, beside as much
// flushing as that load causes; what an add takes beside the disk, with a second bookie whose disk is memory; and what the
// bookie on the disk does. Each round is predicted from the disk's figures right before and after it, so that prediction
// and measurement meet the same machine, whoever else uses it.
func Verify(ctx context.Context, p Plan, o VerifyOptions) (*result.Run, error) {
	v := &verifier{o: o, entry: p.EntryBytes}
	p.Steps = []Step{Single(result.ChapterSync)[0], {Name: result.ChapterPipeline, Run: v.chapter}}
	run, err := Run(ctx, p)
	if run == nil {
		return nil, err
	}
	run.Verification = v.out
	if err == nil && (v.out == nil || len(v.out.Rows) < len(advice.Loads)) {
		err = engine.ErrWriteCap // the only end of a chapter that is no error of its own
	}
	return run, err
}

type verifier struct {
	o       VerifyOptions
	entry   int
	place   *chapter.Place
	method  journal.IOMethod
	pipe    *chapter.Pipeline
	disk    *bookie
	out     *result.Verification
	started float64 // adds a second at the start

	processors float64 // as rounds have it
}

const (
	verifyWindow = 1000      // adds in flight at full speed, over all connections
	leadBytes    = 320 << 20 // payload after which journal segments are recycled ones
	leadLoads    = 4         // not more, however slow the disk
	memoryRoom   = 4 << 30   // that a file system in memory must have for a bookie
	leastLoad    = time.Second
	// At full speed a prediction is also what it assumes: the flushing beside it. So many rounds bring the two together.
	settlingRounds = 2
)

// chapter measures, between the calibrations that are its cells.
func (v *verifier) chapter(ctx context.Context, places []*chapter.Place, o chapter.Options) (*chapter.Result, error) {
	v.place, v.method = places[0], o.Method
	pipe, err := chapter.OpenPipeline(ctx, v.place, o)
	if err != nil {
		return nil, err
	}
	v.pipe = pipe
	if v.disk, err = startBookie(ctx, v.o.Bindery, v.place.Env.Dir, "BINDERY_JOURNAL__IO="+string(v.method)); err == nil {
		say(v.o.Log, "bookie of process %d in %s, journal.io %s", v.disk.pid, v.disk.dir, v.method)
		err = errors.Join(v.loads(ctx), v.disk.stop())
	}
	return pipe.Close(err)
}

// loads takes one load after the other.
func (v *verifier) loads(ctx context.Context) error {
	if err := v.lead(ctx); err != nil {
		return err
	}
	v.out = &result.Verification{Rows: []result.Verified{}, Command: v.o.Bindery}
	for _, a := range v.disk.args(v.load(0, v.slice())) {
		v.out.Command += " " + a
	}
	peak, err := v.rounds(ctx, 100, 0)
	if err != nil {
		return err
	}
	measured, predicted := peak.measured(rateOf), peak.predicted(perSecond)
	v.out.PeakMeasuredPerS, v.out.PeakPredictedPerS, v.out.PeakNoisePct = median(measured), median(predicted), peak.noise
	v.out.PeakPausedPct = peak.paused()
	v.out.PeakWithin = near(v.out.PeakPredictedPerS, v.out.PeakMeasuredPerS)
	v.out.Rest = peak.rest
	if peak.list[0].echo == nil {
		v.processors = peak.processorsAllow()
	}
	// Loads are shares of what the bookie could do in its worst round: above that there is no latency to speak of.
	top := min(lowest(measured), lowest(predicted))
	for _, pct := range advice.Loads {
		r, err := v.rounds(ctx, pct, top*pct/100)
		if err != nil {
			return err
		}
		v.out.Rows = append(v.out.Rows, r.row())
	}
	v.out.Judge()
	return nil
}

// lead drives the bookie until its journal's segments are recycled ones.
func (v *verifier) lead(ctx context.Context) error {
	total := 0.0
	for range leadLoads {
		m, err := v.bench(ctx, v.disk, v.load(0, max(v.o.Each/2, leastLoad)))
		if err != nil {
			return err
		}
		v.started = m.AddsPerS
		if total += float64(m.Adds) * float64(v.entry); total >= leadBytes {
			break
		}
	}
	return nil
}

func (v *verifier) load(rate float64, d time.Duration) load {
	return load{entry: v.entry, connections: v.o.Connections, rate: rate, duration: d}
}

// slice is the time of a load in one round.
func (v *verifier) slice() time.Duration {
	return max((v.o.Each / time.Duration(v.o.Rounds)).Truncate(time.Millisecond), leastLoad)
}

// bench runs a load and counts what it wrote.
func (v *verifier) bench(ctx context.Context, b *bookie, l load) (measured, error) {
	watch := watchPauses()
	m, err := b.bench(ctx, l)
	m.pauses = watch().Pauses
	if err == nil && b == v.disk && m.Server != nil {
		err = v.place.Env.Meter.Take(m.Server.WrittenBytes)
	}
	return m, err
}

// rounds measures one load in turns: disk, memory, bookie, disk, memory, bookie, disk.
func (v *verifier) rounds(ctx context.Context, pct, rate float64) (*rounds, error) {
	r := &rounds{pct: pct, rate: rate, entry: v.entry, connections: v.o.Connections, processors: v.processors}
	ingest, settling := rate, 0
	if rate == 0 {
		ingest, settling = v.started, settlingRounds
	}
	for i := range settling + v.o.Rounds + 1 {
		var one round
		last := i == settling+v.o.Rounds
		if err := v.calibrate(ctx, r, ingest, &one, last); err != nil {
			return nil, err
		}
		if 0 < i && i <= settling {
			var err error
			if ingest, err = r.settle(ingest); err != nil {
				return nil, err
			}
		}
		if last {
			break
		}
		var err error
		if one.disk, err = v.bench(ctx, v.disk, v.load(rate, v.slice())); err != nil {
			return nil, err
		}
		r.list = append(r.list, one)
		say(v.o.Log, "%3.0f %%: %s", pct, &one.disk)
		if one.echo == nil {
			say(v.o.Log, "       %s; disk in memory", &one.rest)
		}
	}
	return r, r.predict()
}

// calibrate takes one slice of what writes take the disk, beside the flushing of a rate, and unless it is the last one what an add takes
// beside the disk.
func (v *verifier) calibrate(ctx context.Context, r *rounds, ingest float64, one *round, last bool) (err error) {
	memory, err := v.memory(ctx)
	if err != nil {
		return err
	}
	if memory == nil {
		r.rest = "echoes over loopback, and processor time of the measured bookie at full speed; what a bookie takes beside them is not in it"
		if one.echo, err = echoes(ctx, v.entry); err != nil {
			return err
		}
		return v.writes(ctx, r, ingest, nil)
	}
	defer func() { err = errors.Join(err, memory.stop()) }()
	r.rest = "a bookie whose disk is memory, " + v.o.Memory
	if err := v.writes(ctx, r, ingest, memory); err != nil || last {
		return err
	}
	one.rest, err = v.bench(ctx, memory, v.load(r.rate, max(v.slice()/2, leastLoad)))
	return err
}

// writes measures the disk, beside what else adds of that rate ask of the processors if there is a bookie for it: a write's thread waits for
// its turn there, too.
func (v *verifier) writes(ctx context.Context, r *rounds, ingest float64, beside *bookie) error {
	slice := v.slice()
	var g errgroup.Group
	g.Go(func() error {
		watch := watchPauses()
		slices, err := v.pipe.Measure(ctx, label(r.pct), slice, ingest*float64(v.entry))
		w := watch()
		r.disks = append(r.disks, running(slices, &w))
		return err
	})
	if beside != nil {
		g.Go(func() error {
			_, err := v.bench(ctx, beside, v.load(ingest, time.Duration(float64(slice)/(1+warmShare))))
			return err
		})
	}
	return g.Wait()
}

// memory starts a bookie whose disk is memory, nil if there is none. It is made anew for each round, since all that is added
// stays in memory.
func (v *verifier) memory(ctx context.Context) (*bookie, error) {
	if v.o.Memory == "" {
		return nil, nil //nolint:nilnil // none is a fine answer
	}
	var sys device.System
	f, err := sys.Inspect(v.o.Memory, "disk")
	if err != nil || f.FileSystem.Type != "tmpfs" || f.FileSystem.AvailableBytes < memoryRoom {
		say(v.o.Log, "%s is no tmpfs with %d GiB: echoes over loopback stand for what an add takes beside the disk", v.o.Memory, memoryRoom>>30)
		return nil, nil //nolint:nilnil,nilerr // as above: it has been said
	}
	b, err := startBookie(ctx, v.o.Bindery, v.o.Memory, "BINDERY_JOURNAL__IO="+string(v.method), "BINDERY_DISK__ALLOW_ANY_FS=true")
	if err != nil && ctx.Err() == nil {
		say(v.o.Log, "no bookie in memory, echoes over loopback stand for what an add takes beside the disk: %v", err)
		return nil, nil //nolint:nilnil,nilerr // as above; it was said
	}
	return b, err
}
