package autorecovery

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/pace"
)

// auditor stands for the office, and while it has it watches the bookies and runs the checks.
type auditor struct {
	s       *Service
	elected atomic.Bool
}

func newAuditor(s *Service) *auditor { return &auditor{s: s} }

// run stands for auditor again and again until ctx ends.
func (a *auditor) run(ctx context.Context) {
	for ctx.Err() == nil {
		a.s.m.elections.Inc()
		err := a.office(ctx)
		if ctx.Err() != nil {
			return
		}
		a.s.o.Logger.Warn("not auditor any more; standing again", "error", err)
		_ = pace.Sleep(ctx, a.s.o.Backoff)
	}
}

// office waits for the office and holds it.
func (a *auditor) office(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	won, err := a.s.o.Views.Election.Campaign(ctx, a.s.o.Name)
	if err != nil {
		return err
	}
	a.elected.Store(true)
	a.s.o.Logger.Info("elected auditor", "name", a.s.o.Name)
	defer func() {
		a.elected.Store(false)
		a.s.m.marks.Store(0) // the next auditor's to tell
	}()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		_ = won.Resign(ctx) // what is left goes with the session
	}()
	// The office ends at once when the key goes: two auditors do no harm, but one is enough.
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		select {
		case <-won.Done():
			cancel()
		case <-ctx.Done():
		}
	})
	return a.serve(ctx)
}

// task is one of the checks.
type task uint8

const (
	taskAudit task = iota // look for ledgers of lost bookies
	taskLedgers
	taskPlacement
	taskReplicas
	taskCount // count the marks
	taskEnd
)

func (t task) String() string {
	return [...]string{"bookies", "all ledgers", "placement", "replicas", "marks"}[t]
}

// countEvery is how often the marks are counted, and retryPeriod how soon a check that was skipped is due again.
const (
	countEvery  = time.Minute
	retryPeriod = time.Minute
)

// watch is the auditor's state while it is in office; one goroutine owns it.
type watch struct {
	a       *auditor
	ctx     context.Context
	losses  *ledger.LossWatch
	up      []ledger.BookieID
	known   bool // up has been reported
	on      bool // replication is enabled
	delay   time.Duration
	delayed *time.Timer
	due     [taskEnd]time.Time // when a check runs; zero: never
	wanted  [taskEnd]bool
	running bool
	ended   chan taskResult
}

type taskResult struct {
	t   task
	err error
}

func (a *auditor) serve(ctx context.Context) error {
	w, err := a.begin(ctx)
	if err != nil {
		return err
	}
	v, r := a.s.o.Views, a.s.o.Views.Replication
	bookies := v.Bookies.Watch(ctx)
	delays := v.Store.Watch(ctx, r.DelayKey())
	switched := v.Store.Watch(ctx, r.DisableKey())
	var wg sync.WaitGroup
	defer wg.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	defer w.delayed.Stop()
	synced := false
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case list, ok := <-bookies:
			if !ok {
				return errWatchEnded
			}
			w.up, w.known = w.up[:0], true
			for _, b := range list {
				w.up = append(w.up, b.ID)
			}
			a.s.m.watched.Store(int64(len(w.up)))
			w.changed()
		case ev, ok := <-delays:
			if !ok {
				return errWatchEnded
			}
			switch {
			case ev.Kind == metadata.EventSynced:
				synced = true
			case ev.Kind == metadata.EventPut && ev.KV.Key == r.DelayKey():
				w.delayRead(ev.KV, synced)
			}
		case ev, ok := <-switched:
			if !ok {
				return errWatchEnded
			}
			switch ev.Kind {
			case metadata.EventPut:
				w.on = w.on && ev.KV.Key != r.DisableKey()
			case metadata.EventDelete, metadata.EventSynced:
				if w.on, err = r.Enabled(ctx); err != nil {
					return err
				}
				w.changed()
			}
		case <-w.delayed.C:
			if w.losses.Pending() {
				w.wanted[taskAudit] = true
			}
		case res := <-w.ended:
			w.finished(res)
		case <-timer.C:
			w.dueNow(time.Now())
		}
		w.start(&wg)
		timer.Reset(time.Until(w.next(time.Now())))
	}
}

var errWatchEnded = errors.New("a watch of the metadata store has ended")

// begin reads what the auditor has to know.
func (a *auditor) begin(ctx context.Context) (*watch, error) {
	o := &a.s.o
	r := o.Views.Replication
	if err := r.Init(ctx); err != nil {
		return nil, err
	}
	if err := r.SetDelay(ctx, max(o.LostBookieDelay, 0), true); err != nil {
		return nil, err
	}
	delay, err := r.Delay(ctx)
	if err != nil {
		return nil, err
	}
	known, err := o.Views.Cookies.List(ctx)
	if err != nil {
		return nil, err
	}
	on, err := r.Enabled(ctx)
	if err != nil {
		return nil, err
	}
	w := &watch{a: a, ctx: ctx, on: on, delay: delay, losses: ledger.NewLossWatch(known, int64(delay/time.Second)),
		delayed: time.NewTimer(time.Hour), ended: make(chan taskResult, 1)}
	w.delayed.Stop()
	// Nothing is looked at before the delay has passed: when a fleet starts, bookies that are about to come are not lost.
	now := time.Now()
	w.due[taskAudit], w.due[taskCount] = now.Add(delay), now
	for t, k := range map[task]metadata.CheckKind{taskLedgers: metadata.CheckLedgers, taskPlacement: metadata.CheckPlacement, taskReplicas: metadata.CheckReplicas} {
		every := a.every(t)
		if every <= 0 {
			continue
		}
		last, err := r.Checked(ctx, k)
		if err != nil {
			return nil, err
		}
		if w.due[t] = now.Add(delay); !last.IsZero() && last.Add(every).After(w.due[t]) {
			w.due[t] = last.Add(every)
		}
	}
	return w, nil
}

func (a *auditor) every(t task) time.Duration {
	return [...]time.Duration{a.s.o.BookieCheck, a.s.o.LedgerCheck, a.s.o.PlacementCheck, a.s.o.ReplicasCheck, countEvery}[t]
}

// changed looks at which bookies are up. While replication is off, nothing is noticed; afterwards the then present state is.
func (w *watch) changed() {
	if w.on && w.known {
		w.act(w.losses.Available(w.up))
	}
}

func (w *watch) delayRead(kv metadata.KV, synced bool) {
	d, err := metadata.ParseDelay(kv.Key, kv.Value)
	if err != nil {
		w.a.s.o.Logger.Warn("the delay of the audit can not be read; the old one holds", "error", err)
		return
	}
	if !synced && d == w.delay {
		return // what was read before the watch began
	}
	w.delay = d
	w.act(w.losses.Delay(int64(d / time.Second)))
}

func (w *watch) act(a ledger.LossAction) {
	m, log := w.a.s.m, w.a.s.o.Logger
	switch a {
	case ledger.LossAudit:
		w.delayed.Stop()
		w.wanted[taskAudit] = true
		log.Info("audit now", "missing", w.losses.Missing())
	case ledger.LossSchedule:
		w.delayed.Reset(w.delay)
		m.delayed.Inc()
		log.Warn("a bookie is missing", "bookies", w.losses.Missing(), "audit_in", w.delay)
	case ledger.LossCancel:
		w.delayed.Stop()
		m.cancelled.Inc()
		log.Info("the missing bookie is back")
	}
}

// next is when something is due by the clock.
func (w *watch) next(now time.Time) time.Time {
	next := now.Add(time.Hour)
	for _, at := range w.due {
		if !at.IsZero() && at.Before(next) {
			next = at
		}
	}
	return next
}

// dueNow asks for the checks whose time has come. A delayed audit goes first: what it is about to mark need not be looked at.
func (w *watch) dueNow(now time.Time) {
	for t := range taskEnd {
		if w.due[t].IsZero() || w.due[t].After(now) {
			continue
		}
		every := w.a.every(t)
		if t != taskCount && (!w.on || w.losses.Pending()) {
			w.a.s.m.skipped.Inc()
			w.due[t] = now.Add(retryPeriod)
			if every > 0 {
				w.due[t] = now.Add(min(every, retryPeriod))
			}
			continue
		}
		w.wanted[t] = true
		w.due[t] = time.Time{}
		if every > 0 {
			w.due[t] = now.Add(every)
		}
	}
}

// start runs the first check that is wanted, beside the watching.
func (w *watch) start(wg *sync.WaitGroup) {
	if w.running {
		return
	}
	for t := range taskEnd {
		if !w.wanted[t] || t != taskCount && !w.on {
			continue // an audit that is wanted while replication is off runs when it is on again
		}
		w.wanted[t], w.running = false, true
		if t == taskAudit {
			w.losses.Audited()
		}
		wg.Go(func() {
			w.ended <- taskResult{t, w.a.check(w.ctx, t)}
		})
		return
	}
}

// finished notes how a check ended. One that failed had trouble with the store, and is due again after the pause for that.
func (w *watch) finished(r taskResult) {
	w.running = false
	if r.err == nil || w.ctx.Err() != nil {
		return
	}
	w.a.s.o.Logger.Warn("check failed; it is repeated", "check", r.t.String(), "error", r.err)
	w.due[r.t] = time.Now().Add(w.a.s.o.Backoff)
}
