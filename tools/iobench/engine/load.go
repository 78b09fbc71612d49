package engine

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Load is operations to be done for a time.
type Load struct {
	Probe    *Probe
	Also     *Probe // counts the same; may be nil
	Workers  []Worker
	Rate     float64       // open loop: operations a second over all workers; 0: closed loop
	Duration time.Duration // operations begin, or are due, within it
	OpsMin   int           // closed loop: at least so many, whatever the time
	OpsMax   int           // at most so many; 0: no bound
	BytesMax int64         // ends after so many bytes written; 0: no bound
	Finish   func() error  // after the last operation, within the measured time: a sync, for example
}

// grace is how much longer than its duration an open loop may take to catch up, as a share of it, and at least.
const (
	graceShare = 0.5
	graceMin   = 2 * time.Second
)

// run is a load under way.
type run struct {
	load  Load
	probe *Probe
	env   *Env
	ctx   context.Context
	start time.Time
	end   time.Time
	stop  time.Time // an open loop gives up catching up
	due   int64     // operations of an open loop
	index atomic.Int64
	bytes atomic.Int64
	prep  atomic.Int64 // nanoseconds that workers of a closed loop spent on getting ready
	over  atomic.Bool
	mu    sync.Mutex
	err   error
}

// Run does the load as one round of its probe. It returns ErrWriteCap if the meter ended it: what was measured is kept.
func (e *Env) Run(ctx context.Context, l Load) error {
	for _, w := range l.Workers {
		if err := w.Prepare(ctx); err != nil {
			return err
		}
	}
	r := &run{load: l, probe: l.Probe, env: e, ctx: ctx}
	for _, p := range r.probes() {
		p.beginRound(e)
	}
	r.start = time.Now()
	r.end = r.start.Add(l.Duration)
	if l.Rate > 0 {
		r.due = int64(l.Rate * l.Duration.Seconds())
		r.stop = r.end.Add(max(graceMin, time.Duration(graceShare*float64(l.Duration))))
	}
	var wg sync.WaitGroup
	for _, w := range l.Workers {
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			if l.Rate > 0 {
				r.open(w)
			} else {
				r.closed(w)
			}
		})
	}
	wg.Wait()
	if r.err == nil && l.Finish != nil {
		if err := l.Finish(); err != nil {
			r.fail(err)
		}
	}
	// What a worker prepares between two operations is not the disk's time.
	elapsed := time.Since(r.start) - time.Duration(r.prep.Load()/int64(max(len(l.Workers), 1)))
	for _, p := range r.probes() {
		p.endRound(e, elapsed)
	}
	if r.err == nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return r.err
}

func (r *run) probes() []*Probe {
	if r.load.Also == nil {
		return []*Probe{r.probe}
	}
	return []*Probe{r.probe, r.load.Also}
}

func (r *run) record(intended, start, end time.Time, parts Parts, late bool) {
	r.probe.record(intended, start, end, parts, late)
	if r.load.Also != nil {
		r.load.Also.record(intended, start, end, parts, late)
	}
}

// fail keeps the first error and ends the load. What the meter or the context say passes as it is; all else is the disk.
func (r *run) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		var disk *DiskError
		if !errors.Is(err, ErrWriteCap) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &disk) {
			err = &DiskError{r.probe.Cell.ID, err}
		}
		r.err = err
	}
	r.over.Store(true)
}

// done reports whether nothing more is to be started.
func (r *run) done() bool {
	if r.over.Load() || r.ctx.Err() != nil {
		return true
	}
	return r.load.BytesMax > 0 && r.bytes.Load() >= r.load.BytesMax
}

func (r *run) closed(w Worker) {
	for !r.done() {
		n := r.index.Add(1)
		if n > int64(r.load.OpsMin) && !time.Now().Before(r.end) || r.load.OpsMax > 0 && n > int64(r.load.OpsMax) {
			return
		}
		start := time.Now()
		parts, err := w.Do()
		end := time.Now()
		if err != nil {
			r.fail(err)
			return
		}
		r.bytes.Add(parts.Written)
		r.record(start, start, end, parts, false)
		if err := w.Prepare(r.ctx); err != nil {
			r.fail(err)
			return
		}
		r.prep.Add(int64(time.Since(end)))
	}
}

func (r *run) open(w Worker) {
	interval := float64(time.Second) / r.load.Rate
	for !r.done() {
		n := r.index.Add(1) - 1
		if n >= r.due || r.load.OpsMax > 0 && n >= int64(r.load.OpsMax) {
			return
		}
		intended := r.start.Add(time.Duration(float64(n) * interval))
		now := time.Now()
		late := now.After(intended)
		switch {
		case now.After(r.stop):
			// Never started: it has waited at least so long.
			r.record(intended, now, now, Parts{}, true)
			continue
		case !late:
			r.env.wait(intended)
		}
		start := time.Now()
		parts, err := w.Do()
		end := time.Now()
		if err != nil {
			r.fail(err)
			return
		}
		if !late {
			intended = start // it was waiting: what the kernel took to wake it is not the disk's
		}
		r.bytes.Add(parts.Written)
		r.record(intended, start, end, parts, late)
		if err := w.Prepare(r.ctx); err != nil {
			r.fail(err)
			return
		}
	}
}
