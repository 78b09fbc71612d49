package autorecovery

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/binderylog/bindery/internal/pace"
	"golang.org/x/sync/errgroup"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/ledgerclient"
	"github.com/binderylog/bindery/ledgerclient/placement"
)

// ErrUnreadable is matched when no bookie that answers has an entry which a copy needs. If the bookies that had it come back,
// the ledger is repaired; if not, the entry is lost.
var ErrUnreadable = errors.New("no bookie that answers has the entry")

// errObsolete says that the record is not that of the inspection any more: look again.
var errObsolete = errors.New("the ledger's record has changed")

const (
	// runBytes is what is copied together, in one read and as one batch of adds. Writers share disks and journals with the
	// copies: sixteen entries of 4 KiB one by one keep a disk busy five times as long as one group of 64 KiB does, and a larger one would
	// keep it busy for longer at a time than a writer should wait.
	runBytes   = 64 << 10
	runEntries = 256 // at most
	// runsAtOnce bounds the runs of one place that are under way, singlesAtOnce the entries where there are no runs.
	runsAtOnce    = 4
	singlesAtOnce = 16
)

// filling copies what one place lacks.
type filling struct {
	s        *Service
	cl       *cluster
	id       ledger.ID
	m        *ledger.Metadata
	lock     *metadata.Lock
	copies   *ledgerclient.Copies
	p        place
	lastSize atomic.Int64 // bytes of an entry, as read last
	prefer   int          // index that reads begin with: entries read in order from one bookie are read ahead there
}

// run gives a place its entries: on the bookie that is there, if that answers and takes adds, otherwise on another one, which
// is then published.
func (f *filling) run(ctx context.Context) error {
	inPlace := f.p.to == "" && !f.cl.lost(f.p.bookie) && f.cl.writable(f.p.bookie)
	if inPlace {
		err := f.copyTo(ctx, f.p.bookie)
		if err == nil || ctx.Err() != nil || errors.Is(err, ErrUnreadable) || errors.Is(err, errObsolete) {
			return err
		}
		f.s.o.Logger.Warn("a bookie does not take back its own copies; they go elsewhere", "ledger", int64(f.id), "bookie", f.p.bookie, "error", err)
	}
	to := f.p.to
	if to == "" {
		ensemble := f.m.Fragments[f.p.fragment].Bookies
		stay := slices.Delete(slices.Clone(ensemble), f.p.index, f.p.index+1)
		var ok bool
		if to, ok = placement.Replace(f.cl.bookies, stay, ensemble, rand.Float64); !ok {
			return fmt.Errorf("replace %s: %w: none of the %d registered can be used", f.p.bookie, ledgerclient.ErrNotEnoughBookies, len(f.cl.bookies))
		}
	}
	return f.copyTo(ctx, to)
}

// copyTo copies the place's entries to a bookie and publishes it there. The bookie's incarnation is read before anything is
// sent: one that is emptied in between is not published (decision 39).
func (f *filling) copyTo(ctx context.Context, to ledger.BookieID) error {
	check, err := f.s.o.Views.Incarnations.Check(ctx, to)
	if err != nil {
		return err
	}
	plan, verdict := ledger.PlanCopy(f.m, f.p.fragment, f.p.index, to, int64(check.Version))
	if verdict != ledger.CopyReady {
		return fmt.Errorf("%w: %v", errObsolete, verdict)
	}
	if ledger.Planted() == ledger.MutantPublishBeforeCopies {
		if err := f.publish(ctx, &plan); err != nil {
			return err
		}
	}
	if err := f.copyEntries(ctx, &plan); err != nil {
		return err
	}
	return f.publish(ctx, &plan)
}

// copyEntries copies in the order of entries, a window of runs at a time.
func (f *filling) copyEntries(ctx context.Context, plan *ledger.Copy) error {
	first, end, some := f.m.StoredAt(f.p.fragment, f.p.index, plan.Last)
	if !some {
		return nil
	}
	inPlace := plan.To == plan.From
	needed := func(e ledger.EntryID) bool {
		if ledger.Planted() == ledger.MutantCopiesEndsOnly && e != first && e != end {
			return false
		}
		return plan.Needs(f.m.Quorum(), e) && !(inPlace && f.p.has != nil && f.p.has(e))
	}
	size := f.entrySize()
	f.lastSize.Store(size)
	f.prefer = rand.IntN(f.m.Ensemble)
	// Where entries are striped no bookie has a run; and one that did not say what it has is asked for each.
	most, atOnce := int64(runEntries), runsAtOnce
	if f.m.WriteQuorum < f.m.Ensemble || inPlace && f.p.has == nil {
		most, atOnce = 1, singlesAtOnce
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for e := first; e <= end && gctx.Err() == nil; {
		n := int64(0)
		for limit := min(most, max(1, runBytes/f.lastSize.Load())); n < limit && e+ledger.EntryID(n) <= end && needed(e+ledger.EntryID(n)); {
			n++
		}
		if n == 0 {
			e++
			continue
		}
		from, held := e, min(n*size, f.s.o.InFlightBytes)
		e += ledger.EntryID(n)
		if err := f.s.inFlight.Acquire(gctx, held); err != nil {
			break // the group's own error says why
		}
		g.Go(func() error {
			defer f.s.inFlight.Release(held)
			return f.copyRun(gctx, plan, from, from+ledger.EntryID(n-1), inPlace)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// entrySize estimates the bytes of one entry.
func (f *filling) entrySize() int64 {
	n := int64(64 << 10)
	if f.m.State == ledger.StateClosed && f.m.LastEntry >= 0 {
		n = f.m.Length/(int64(f.m.LastEntry)+1) + 256
	}
	return min(n, f.s.o.InFlightBytes)
}

// copyRun reads entries from whoever has them and writes them to the target.
func (f *filling) copyRun(ctx context.Context, plan *ledger.Copy, e, last ledger.EntryID, inPlace bool) error {
	if inPlace && f.p.has == nil {
		// It did not say what it has: ask for this one.
		body, answer, _ := f.copies.Read(ctx, plan.To, e)
		if answer == ledger.AnswerOK {
			return f.s.rate.b.Wait(ctx, len(body))
		}
	}
	for e <= last {
		// What the entries before them had is taken first, so that the reads are spread like the adds.
		due := int(f.lastSize.Load()) * int(last-e+1)
		if err := f.s.rate.b.Wait(ctx, due); err != nil {
			return err
		}
		started := time.Now()
		bodies, err := f.read(ctx, plan, e, last)
		if err != nil {
			return err
		}
		bytes := 0
		for _, b := range bodies {
			bytes += len(b)
		}
		f.lastSize.Store(int64(max(1, bytes/len(bodies))))
		f.s.m.read(len(bodies), bytes, time.Since(started))
		f.s.rate.b.Spend(bytes - due)
		started = time.Now()
		if err := f.copies.WriteRun(ctx, plan.To, e, bodies); err != nil {
			return err
		}
		took := time.Since(started)
		f.s.rate.added(time.Now(), took)
		f.s.m.wrote(len(bodies), bytes, took)
		e += ledger.EntryID(len(bodies))
	}
	return nil
}

// read reads an entry, and those behind it that come along up to last, from the members of its write set that answer, the one
// that is to be replaced last.
func (f *filling) read(ctx context.Context, plan *ledger.Copy, e, last ledger.EntryID) ([][]byte, error) {
	q, ensemble := f.m.Quorum(), f.m.Fragments[f.p.fragment].Bookies
	var sources []ledger.BookieID
	for n := range ensemble {
		index := (f.prefer + n) % len(ensemble)
		if b := ensemble[index]; q.Stores(e, index) && b != plan.From && f.cl.up(b) {
			sources = append(sources, b)
		}
	}
	if plan.From != plan.To && f.cl.up(plan.From) {
		sources = append(sources, plan.From)
	}
	var causes []error
	for _, b := range sources {
		if last > e {
			bodies, err := f.copies.ReadRun(ctx, b, e, last, runBytes)
			if err != nil || len(bodies) > 0 {
				return bodies, err
			}
		}
		body, answer, err := f.copies.Read(ctx, b, e)
		if answer == ledger.AnswerOK {
			return [][]byte{body}, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		causes = append(causes, err)
	}
	f.s.m.unreadable.Inc()
	return nil, fmt.Errorf("ledger %d entry %d: %w: %w", f.id, e, ErrUnreadable, errors.Join(causes...))
}

// publish names the new bookie in the record: a compare-and-set on the record as it is now, on which the copy is judged anew,
// and which holds only while the bookie and the lock are what they were. A write of unknown outcome is looked at again.
func (f *filling) publish(ctx context.Context, plan *ledger.Copy) error {
	v := f.s.o.Views
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		m, version, err := v.Ledgers.Read(ctx, f.id)
		if isNoLedger(err) || corrupt.Is(err) {
			return fmt.Errorf("%w: %w", errObsolete, err)
		}
		if err == nil {
			next, incarnations, verdict := plan.Publish(m)
			if verdict != ledger.CopyReady {
				return fmt.Errorf("%w: %v", errObsolete, verdict)
			}
			if next == nil {
				return nil
			}
			checks := f.lock.Checks()
			for _, k := range incarnations {
				checks = append(checks, metadata.Check{Key: v.Incarnations.Key(k.Bookie), Version: metadata.Version(k.Version)})
			}
			if _, err = v.Ledgers.Write(ctx, f.id, next, version, checks...); err == nil {
				return nil
			}
			if err := f.refused(err); err != nil {
				return err
			}
		} else if !errors.Is(err, metadata.ErrUnavailable) {
			return err
		}
		if err := pace.Sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// refused says whether a publish that failed is over: nil means that it is looked at again.
func (f *filling) refused(err error) error {
	var c *metadata.ConflictError
	switch {
	case errors.As(err, &c) && c.Key == f.s.o.Views.Ledgers.Key(f.id):
		return nil // somebody changed the record, or this very change has landed
	case errors.As(err, &c):
		for _, k := range f.lock.Checks() {
			if k.Key == c.Key {
				return fmt.Errorf("publish: %w", metadata.ErrLockLost)
			}
		}
		return fmt.Errorf("%w: the new bookie is not what it was when the copy began: %w", errObsolete, err)
	case errors.Is(err, metadata.ErrUnknownOutcome), errors.Is(err, metadata.ErrUnavailable):
		return nil
	}
	return err
}
