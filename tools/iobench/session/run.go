package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/binderylog/bindery/journal"
	"github.com/binderylog/bindery/tools/iobench/advice"
	"github.com/binderylog/bindery/tools/iobench/chapter"
	"github.com/binderylog/bindery/tools/iobench/device"
	"github.com/binderylog/bindery/tools/iobench/engine"
	"github.com/binderylog/bindery/tools/iobench/result"
)

// run is a plan under way.
type run struct {
	plan    *Plan
	sys     device.System
	facts   []*device.Facts
	places  []*chapter.Place
	locks   []io.Closer
	meter   *engine.Meter
	start   time.Time
	out     *result.Run
	done    float64 // share of the steps that are over
	share   float64 // of the step under way
	eta     eta
	method  journal.IOMethod
	hotest  map[int]float64
	company string // who else uses the disk
}

// Run does what the plan says. An error before anything was written comes without a run; later ones come with what was
// measured until then.
func Run(ctx context.Context, p Plan) (_ *result.Run, err error) {
	r := &run{plan: &p, meter: engine.NewMeter(p.MaxWrite), start: time.Now(), method: p.Method}
	defer func() {
		for _, l := range r.locks {
			err = errors.Join(err, l.Close())
		}
	}()
	if err := r.look(ctx); err != nil {
		return nil, err
	}
	r.begin()
	if p.Started != nil {
		p.Started(r.out)
	}
	calibration := engine.Calibrate()
	pauses, _ := engine.GCSample()
	cpu := engine.CPUTime()
	all, stolen := r.sys.Ticks()
	err = r.steps(ctx)
	out := r.out
	elapsed := time.Since(r.start)
	out.ElapsedS = elapsed.Seconds()
	out.Complete = err == nil
	out.Self = result.Self{OverheadNS: calibration.OverheadNS, TimerStepNS: calibration.TimerStepNS, CPUPercent: max(0, 100*(engine.CPUTime()-cpu).Seconds()/max(elapsed.Seconds(), 1e-9))}
	now, longest := engine.GCSample()
	out.Self.GCPauses, out.Self.GCPauseMaxUS = max(now-pauses, 0), longest
	if a, s := r.sys.Ticks(); a > all {
		out.Self.StealPercent = 100 * float64(s-stolen) / float64(a-all)
	}
	r.close(err)
	advice.Advise(out)
	return out, err
}

// look inspects, checks and locks every directory. Two of them may be on one disk: it is locked once.
func (r *run) look(ctx context.Context) error {
	locked := map[string]bool{}
	for _, d := range r.plan.Directories {
		var f *device.Facts
		var err error
		if r.plan.Raw {
			var l io.Closer
			if f, err = r.sys.InspectRaw(d.Path); err == nil {
				l, err = f.HoldRaw(device.Guard{NeedBytes: RawBytesMin, AllowUnsuitable: r.plan.AllowUnsuitable})
			}
			if err == nil {
				r.locks = append(r.locks, l)
			}
		} else if f, err = r.sys.Inspect(d.Path, d.Role); err == nil {
			err = f.Check(device.Guard{NeedBytes: r.plan.needBytes(), AllowUnsuitable: r.plan.AllowUnsuitable, AllowLive: r.plan.AllowLive})
		}
		if err != nil {
			return err
		}
		r.facts = append(r.facts, f)
	}
	for _, f := range r.facts {
		if locked[f.Number] {
			continue
		}
		locked[f.Number] = true
		l, err := f.Lock(ctx)
		if refused := (*device.RefusedError)(nil); errors.As(err, &refused) && r.plan.AllowLive {
			r.company = refused.What
			continue
		}
		if err != nil {
			return err
		}
		r.locks = append(r.locks, l)
	}
	return nil
}

// begin makes the run and its places.
func (r *run) begin() {
	p := r.plan
	r.out = &result.Run{
		Schema: result.Schema, ToolVersion: p.Version, RunID: fmt.Sprintf("%016x", rand.Uint64()), Command: p.Command,
		StartedAt: r.start.UTC().Truncate(time.Second), Labels: p.Labels, Environment: r.sys.Environment(), Chapters: []result.Chapter{},
		Plan: result.Plan{
			BudgetS: p.Budget.Seconds(), FileBytes: p.FileBytes, WriteBytes: p.MaxWrite, MaxWriteBytes: p.MaxWrite, Seed: p.Seed, Data: "random", Prefill: p.Prefill,
			Rounds: p.Rounds, GoalP99US: float64(p.Goal) / 1e3, RateMBPerS: p.Rate / 1e6, EntryBytes: p.EntryBytes, CapPercent: p.CapPercent, AllowUnsuited: p.AllowUnsuitable,
			GroupSizeBytes: p.Sizes, Chapters: []string{},
		},
	}
	for _, s := range p.Steps {
		r.out.Plan.Chapters = append(r.out.Plan.Chapters, s.Name)
	}
	for i, f := range r.facts {
		if i == 0 {
			r.out.Device = f.Device
		} else {
			r.out.OtherDevices = append(r.out.OtherDevices, f.Device)
		}
		r.out.Warnings = append(r.out.Warnings, f.Warnings(i)...)
		env := &engine.Env{FS: device.OS(), Dir: f.Dir, Meter: r.meter, Seed: p.Seed + uint64(i)<<32, Start: r.start, Sensors: r.sensors(i), Progress: r.progress}
		if p.Raw {
			env.Fixed, env.FixedEnd = f.Dir, f.SizeBytes
		}
		r.places = append(r.places, &chapter.Place{Env: env, Device: i})
	}
	if live := p.CapPercent > 0; p.AllowLive && !live && r.company == "" { // a bookie is what live is for
		r.company = r.facts[0].Live()
	}
	if r.company != "" {
		r.out.Warnings = append(r.out.Warnings, result.Warning{Code: result.WarnLiveBookie, Severity: result.SeverityWarning, Text: "measured beside others who used the disk: " + r.company})
	}
}

// sensors reads a disk's temperature and remembers the highest.
func (r *run) sensors(i int) func() engine.Sensed {
	f := r.facts[i]
	if r.hotest == nil {
		r.hotest = map[int]float64{}
	}
	return func() (s engine.Sensed) {
		if t, ok := f.Temperature(); ok {
			s.TemperatureC = t
			r.hotest[i] = max(r.hotest[i], t)
		}
		s.ClockMHz, _ = r.sys.ClockMHz()
		return s
	}
}

func (r *run) progress(p engine.Progress) {
	if r.plan.Progress == nil {
		return
	}
	s := Status{Chapter: p.Chapter, Cell: p.Cell, Done: min(r.done+r.share*p.Done, 1), Elapsed: time.Since(r.start), Written: r.meter.Written()}
	s.Left, s.Later = r.eta.left(time.Now(), p.Done)
	r.plan.Progress(s)
}

// preparing says that a chapter starts, whose test files have to be made before it measures.
func (r *run) preparing(name string, budget, later time.Duration) {
	r.eta.begin(time.Now(), budget, later)
	r.progress(engine.Progress{Chapter: name, Cell: "preparing"})
	r.eta.measuring = time.Time{} // not yet
}

// least is the shortest time that a chapter is given.
const least = 100 * time.Millisecond

// steps runs the chapters. Each gets its share of the time that is left, so that one that took longer to prepare costs the
// others some of theirs and the run ends in time.
func (r *run) steps(ctx context.Context) error {
	p := r.plan
	left := 0.0
	for _, s := range p.Steps {
		left += s.Share
	}
	total := left
	r.eta.began, r.eta.limit = r.start, p.Limit
	for _, s := range p.Steps {
		budget := time.Duration(float64(p.Budget) * s.Share / total)
		if p.Limit > 0 {
			const measuring = 0.8 // the rest is for preparing
			budget = min(budget, time.Duration(measuring*float64(p.Limit-time.Since(r.start))*s.Share/left))
		}
		r.share = s.Share / total
		const kept = 0.5 // of their shares, for those that come later: one that takes more does not starve them
		r.meter.Keep(int64(kept * float64(p.MaxWrite) * (left - s.Share) / total))
		budget = max(budget, least)
		r.preparing(s.Name, budget, time.Duration(float64(p.Budget)*(left-s.Share)/total))
		if err := r.step(ctx, s, budget, int64(float64(p.MaxWrite)*s.Share/total)); err != nil {
			return err
		}
		r.eta.end(time.Now())
		left -= s.Share
		r.done += r.share
	}
	return nil
}

func (r *run) step(ctx context.Context, s Step, budget time.Duration, bytes int64) error {
	o := chapter.Options{
		Budget: budget, Bytes: bytes, Rounds: r.plan.Rounds, FileBytes: r.plan.FileBytes, Prefill: r.plan.Prefill, Sizes: r.plan.Sizes, Methods: chapter.AllMethods,
		Method: r.usual(), Rate: r.plan.Rate, EntryBytes: r.plan.EntryBytes, Goal: r.plan.Goal, Hours: r.plan.Hours, CapPercent: r.plan.CapPercent,
	}
	if s.Adjust != nil {
		s.Adjust(&o)
	}
	room := r.facts[s.Device].FileSystem.AvailableBytes
	const mostOfRoom = 0.4
	if o.FileBytes > r.plan.FileBytes { // no more than there is room for, and than may be written at all
		o.FileBytes = max(min(o.FileBytes, int64(mostOfRoom*float64(room)), bytes), r.plan.FileBytes)
	}
	got, err := s.Run(ctx, r.places, o)
	if got != nil {
		r.out.Chapters = append(r.out.Chapters, got.Chapter)
		r.out.Warnings = append(r.out.Warnings, got.Warnings...)
	}
	if s.Name == result.ChapterSync && err == nil && r.plan.Method == "" {
		if m, _, _, ok := advice.Method(&r.out.Device, r.out.Chapter(result.ChapterSync, 0)); ok {
			r.method = m
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	return nil
}

// usual is the method of chapters that use one.
func (r *run) usual() journal.IOMethod {
	switch {
	case r.method != "":
		return r.method
	case !r.facts[0].FileSystem.DirectIO:
		return journal.IOBuffered
	}
	return journal.IODSync
}

// close notes how the run ended.
func (r *run) close(err error) {
	for i := range r.facts {
		if t, ok := r.hotest[i]; ok {
			d := r.out.DeviceAt(i)
			d.TemperatureMaxC = &t
		}
	}
	if err == nil {
		return
	}
	w := result.Warning{Code: result.WarnPartial, Severity: result.SeverityWarning, Text: "interrupted: the figures are of the time until then"}
	if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		w.Severity, w.Text = result.SeverityError, err.Error()
	}
	r.out.Warnings = append(r.out.Warnings, w)
}
