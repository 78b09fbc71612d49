package autorecovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/binderylog/bindery/internal/pace"
	"golang.org/x/sync/semaphore"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/ledgerclient"
)

// Outcome is how the work on a ledger ended.
type Outcome string

// The outcomes. All but the first three leave the mark: the ledger is taken again after a hold.
const (
	OutcomeRepaired   Outcome = "repaired"     // nothing is missing any more
	OutcomeGone       Outcome = "gone"         // the ledger was deleted
	OutcomeAgain      Outcome = "marked again" // the mark was added to meanwhile: it is taken again at once
	OutcomeUnreadable Outcome = "unreadable"   // an entry is on no bookie that answers
	OutcomeSingle     Outcome = "no other copy"
	OutcomeNoBookies  Outcome = "not enough bookies"
	OutcomeOpen       Outcome = "not recoverable" // the open ledger could not be closed
	OutcomeDamaged    Outcome = "damaged record"
	OutcomeLockLost   Outcome = "lock lost"
	OutcomeFailed     Outcome = "failed"
)

const (
	roundsMax   = 16   // looks at one ledger before it is left for later
	holdSteps   = 5    // doublings from the shortest hold to Options.FailedHold
	failuresMax = 2000 // ledgers whose failures are remembered
	sweepPage   = 1000
)

// worker takes marked ledgers and repairs them.
type worker struct {
	s     *Service
	wake  chan struct{} // has room for one: there may be something to do
	slots *semaphore.Weighted
	hands *semaphore.Weighted

	mu       sync.Mutex
	inHand   map[ledger.ID]*LedgerState
	failures map[ledger.ID]int
	later    map[ledger.ID]time.Time // not taken before, though nobody holds its lock
	held     int                     // ledgers in hand that only wait
	changed  chan struct{}           // closed and replaced when bookies came or went
}

func newWorker(s *Service) *worker {
	return &worker{s: s, wake: make(chan struct{}, 1), slots: semaphore.NewWeighted(int64(s.o.Parallel)), hands: semaphore.NewWeighted(int64(s.o.InHand)),
		inHand: map[ledger.ID]*LedgerState{}, failures: map[ledger.ID]int{}, later: map[ledger.ID]time.Time{}, changed: make(chan struct{})}
}

func (w *worker) states() []LedgerState {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]LedgerState, 0, len(w.inHand))
	for _, st := range w.inHand {
		out = append(out, *st)
	}
	slices.SortFunc(out, func(a, b LedgerState) int { return cmp.Compare(a.Ledger, b.Ledger) })
	return out
}

func (w *worker) state(id ledger.ID, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if st := w.inHand[id]; st != nil {
		st.State, st.Since = text, time.Now()
	}
}

func (w *worker) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run takes ledgers until ctx ends, and waits for those in hand.
func (w *worker) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { w.watchMarks(ctx) })
	wg.Go(func() { w.watchBookies(ctx) })
	for ctx.Err() == nil {
		if err := w.sweep(ctx, &wg); err != nil && ctx.Err() == nil {
			w.s.o.Logger.Warn("under-replicated ledgers can not be taken; trying again", "error", err)
		}
		t := time.NewTimer(w.s.o.Backoff)
		select {
		case <-w.wake:
		case <-t.C: // locks of other workers that went
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// watchMarks wakes the dispatcher for marks and for the switch.
func (w *worker) watchMarks(ctx context.Context) {
	r := w.s.o.Views.Replication
	marks, disable := w.s.o.Views.Store.Watch(ctx, r.MarksPrefix()), w.s.o.Views.Store.Watch(ctx, r.DisableKey())
	for marks != nil || disable != nil {
		select {
		case ev, ok := <-marks:
			if !ok {
				marks = nil
			} else if ev.Kind == metadata.EventPut {
				w.poke()
			}
		case ev, ok := <-disable:
			if !ok {
				disable = nil
			} else if ev.Kind == metadata.EventDelete {
				w.poke()
			}
		}
	}
}

// watchBookies ends the hold of ledgers that failed for want of bookies.
func (w *worker) watchBookies(ctx context.Context) {
	for range w.s.o.Views.Bookies.Watch(ctx) {
		w.mu.Lock()
		close(w.changed)
		w.changed = make(chan struct{})
		clear(w.later)
		w.mu.Unlock()
	}
}

// sweep takes what it can get.
func (w *worker) sweep(ctx context.Context, wg *sync.WaitGroup) error {
	r := w.s.o.Views.Replication
	on, err := r.Enabled(ctx)
	if err != nil || !on {
		return err
	}
	held, err := r.Locked(ctx)
	if err != nil {
		return err
	}
	page := make([]metadata.Mark, 0, sweepPage)
	flush := func() error {
		// Workers that begin with different ledgers do not get into each other's way.
		rand.Shuffle(len(page), func(i, j int) { page[i], page[j] = page[j], page[i] })
		for _, m := range page {
			if err := w.take(ctx, m, wg); err != nil {
				return err
			}
		}
		page = page[:0]
		return nil
	}
	for m, err := range r.All(ctx, -1) {
		if err != nil {
			return err
		}
		if held[m.Ledger] != "" || w.has(m.Ledger) {
			continue
		}
		if page = append(page, m); len(page) == sweepPage {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

func (w *worker) has(id ledger.ID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at, ok := w.later[id]; ok {
		if time.Now().Before(at) {
			return true
		}
		delete(w.later, id)
	}
	return w.inHand[id] != nil
}

// mayHold reports whether one more ledger that only waits may keep its lock. Beyond half of the hands they are let go, and
// remembered: those that can be repaired must not wait for those that can not.
func (w *worker) mayHold(id ledger.ID, d time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held < w.s.o.InHand/2 {
		w.held++
		return true
	}
	w.later[id] = time.Now().Add(d)
	return false
}

func (w *worker) unhold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held--
}

// take locks one ledger and works on it beside the dispatcher. It waits for a slot.
func (w *worker) take(ctx context.Context, m metadata.Mark, wg *sync.WaitGroup) error {
	r := w.s.o.Views.Replication
	if err := w.hands.Acquire(ctx, 1); err != nil {
		return err
	}
	if err := w.slots.Acquire(ctx, 1); err != nil {
		w.hands.Release(1)
		return err
	}
	back := func() { w.slots.Release(1); w.hands.Release(1) }
	on, err := r.Enabled(ctx)
	if err != nil || !on {
		back()
		return err
	}
	lock, ok, err := r.Lock(ctx, m.Ledger, w.s.o.Name)
	if err != nil || !ok {
		back()
		return err
	}
	w.mu.Lock()
	w.inHand[m.Ledger] = &LedgerState{Ledger: m.Ledger, State: "copying", Since: time.Now()}
	w.mu.Unlock()
	wg.Go(func() {
		w.hold(ctx, m.Ledger, lock)
		w.mu.Lock()
		delete(w.inHand, m.Ledger)
		w.mu.Unlock()
		w.hands.Release(1)
	})
	return nil
}

// hold works on a locked ledger and gives the lock back, after a while if the work failed. It has a slot, and gives it back.
func (w *worker) hold(ctx context.Context, id ledger.ID, lock *metadata.Lock) {
	work, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-lock.Lost():
			cancel(metadata.ErrLockLost)
		case <-work.Done():
		}
	})
	started := time.Now()
	j := &job{w: w, id: id, lock: lock, filled: map[placeID]bool{}}
	err := j.run(work)
	w.slots.Release(1)
	outcome := j.outcome(err)
	w.s.m.done(outcome, time.Since(started))
	log := w.s.o.Logger.With("ledger", int64(id), "outcome", string(outcome))
	switch outcome {
	case OutcomeRepaired, OutcomeGone, OutcomeAgain:
		w.forget(id)
		log.Info("under-replicated ledger is done", "took", time.Since(started))
	case OutcomeLockLost:
		log.Warn("under-replicated ledger is left to others", "error", err)
	default:
		if ctx.Err() == nil {
			d := w.failed(id)
			log.Warn("under-replicated ledger can not be repaired now", "again_in", d, "error", err)
			if w.mayHold(id, d) {
				w.s.m.held.Inc()
				w.state(id, "held: "+string(outcome))
				w.wait(work, d)
				w.unhold()
			}
		}
	}
	cancel(nil)
	wg.Wait()
	release, cancelRelease := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancelRelease()
	if err := lock.Release(release); err != nil {
		log.Warn("replication lock not released; it goes with the session", "error", err)
	}
	w.poke()
}

// wait waits, or until bookies came or went: then what failed may work.
func (w *worker) wait(ctx context.Context, d time.Duration) {
	w.mu.Lock()
	changed := w.changed
	w.mu.Unlock()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-changed:
	case <-ctx.Done():
	}
}

// failed notes a failure and returns how long the ledger is left alone.
func (w *worker) failed(id ledger.ID) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.failures) >= failuresMax {
		clear(w.failures)
	}
	n := w.failures[id]
	w.failures[id] = n + 1
	return w.s.o.FailedHold >> max(0, holdSteps-n)
}

func (w *worker) forget(id ledger.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.failures, id)
}

// job is the work on one locked ledger.
type job struct {
	w      *worker
	id     ledger.ID
	lock   *metadata.Lock
	filled map[placeID]bool
	gone   bool
	again  bool
	single bool // a place has no other copy
}

// run does what ledger.NextRepair says until the mark is cleared or something fails.
func (j *job) run(ctx context.Context) error {
	s := j.w.s
	waited := false
	var failed error
	for range roundsMax {
		mark, err := s.o.Views.Replication.Get(ctx, j.id)
		if errors.Is(err, metadata.ErrNotFound) {
			return nil // done by another worker, before the lock was taken
		}
		if err != nil && !corrupt.Is(err) {
			return err
		}
		mark.Ledger = j.id
		m, _, err := s.o.Views.Ledgers.Read(ctx, j.id)
		if isNoLedger(err) {
			j.gone = true
			return j.clear(ctx, mark)
		}
		if err != nil {
			return err
		}
		cl, err := s.look(ctx)
		if err != nil {
			return err
		}
		var bad []place
		if failed == nil {
			n := inspection{s: s, cl: cl, id: j.id, m: m, suspects: mark.Replicas, places: s.o.RepairPlacement, filled: j.filled}
			if bad, err = n.run(ctx); err != nil {
				return err
			}
		}
		missing, err := j.missing(ctx, cl, m, mark.Replicas)
		if err != nil {
			return err
		}
		switch ledger.NextRepair(m, len(bad), missing, waited) {
		case ledger.RepairClear:
			if failed != nil {
				return failed
			}
			return j.clear(ctx, mark)
		case ledger.RepairCopy:
			if failed, err = j.copy(ctx, cl, m, bad); err != nil {
				return err
			}
		case ledger.RepairAwait:
			if err := j.await(ctx); err != nil {
				return err
			}
			waited = true
		case ledger.RepairRecover:
			if err := j.recover(ctx); err != nil {
				return errors.Join(failed, err)
			}
			failed = nil // the end is agreed: look at everything again
		}
	}
	return errors.Join(fmt.Errorf("the ledger kept changing through %d looks", roundsMax), failed)
}

// missing says which bookies of an open tail can not take part in it: those that take no adds, and those that the mark names
// and that can not vouch for the ledger.
func (j *job) missing(ctx context.Context, cl *cluster, m *ledger.Metadata, suspects []ledger.BookieID) (func(ledger.BookieID) bool, error) {
	var mute []ledger.BookieID
	if m.State != ledger.StateClosed {
		copies, err := j.w.s.o.Client.Copies(j.id, m)
		if err != nil {
			return nil, err
		}
		for _, b := range m.Last().Bookies {
			if !slices.Contains(suspects, b) || !cl.writable(b) {
				continue
			}
			vouches, err := copies.Vouches(ctx, b)
			if err != nil {
				return nil, err
			}
			if !vouches {
				mute = append(mute, b)
			}
		}
	}
	return func(b ledger.BookieID) bool { return !cl.writable(b) || slices.Contains(mute, b) }, nil
}

// copy fills the places one after another. What one of them fails with does not keep the others from being filled; err is
// only what ends the work on the ledger.
func (j *job) copy(ctx context.Context, cl *cluster, m *ledger.Metadata, bad []place) (failed, err error) {
	copies, err := j.w.s.o.Client.Copies(j.id, m)
	if err != nil {
		return nil, err
	}
	for _, p := range bad {
		f := filling{s: j.w.s, cl: cl, id: j.id, m: m, lock: j.lock, copies: copies, p: p}
		err := f.run(ctx)
		switch {
		case err == nil:
			j.filled[placeID{m.Fragments[p.fragment].First, p.index, p.bookie}] = true
			if p.to != "" {
				j.w.s.m.placed.Inc()
			}
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.Is(err, errObsolete):
			return nil, nil // look again
		case errors.Is(err, metadata.ErrLockLost):
			return nil, err
		default:
			if errors.Is(err, ErrUnreadable) && m.WriteQuorum == 1 {
				j.single = true
			}
			failed = errors.Join(failed, err)
		}
	}
	return failed, nil
}

// await gives the writer time to replace the bookie itself. Others work meanwhile.
func (j *job) await(ctx context.Context) error {
	j.w.state(j.id, "waiting for its writer")
	j.w.slots.Release(1)
	err := pace.Sleep(ctx, j.w.s.o.OpenGrace)
	if aerr := j.w.slots.Acquire(context.WithoutCancel(ctx), 1); aerr != nil {
		return aerr
	}
	j.w.state(j.id, "copying")
	return err
}

// recover closes an open ledger, which fences its writer.
func (j *job) recover(ctx context.Context) error {
	r, err := j.w.s.o.Client.Open(ctx, j.id, ledgerclient.OpenOptions{Recover: true, Admin: true})
	if isNoLedger(err) {
		return nil
	}
	if err != nil {
		return &recoverError{err}
	}
	j.w.s.m.recovered.Inc()
	return r.Close()
}

// recoverError says that an open ledger could not be closed.
type recoverError struct{ err error }

func (e *recoverError) Error() string { return e.err.Error() }
func (e *recoverError) Unwrap() error { return e.err }

func (j *job) clear(ctx context.Context, mark metadata.Mark) error {
	cleared, err := j.w.s.o.Views.Replication.Clear(ctx, mark, j.lock)
	j.again = err == nil && !cleared
	return err
}

// outcome names how the work ended.
func (j *job) outcome(err error) Outcome {
	var open *recoverError
	switch {
	case err == nil && j.again:
		return OutcomeAgain
	case err == nil && j.gone:
		return OutcomeGone
	case err == nil:
		return OutcomeRepaired
	case errors.Is(err, metadata.ErrLockLost):
		return OutcomeLockLost
	case errors.As(err, &open):
		return OutcomeOpen
	case j.single:
		return OutcomeSingle
	case errors.Is(err, ErrUnreadable):
		return OutcomeUnreadable
	case errors.Is(err, ledgerclient.ErrNotEnoughBookies):
		return OutcomeNoBookies
	case corrupt.Is(err):
		return OutcomeDamaged
	}
	return OutcomeFailed
}
