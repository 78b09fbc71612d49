package autorecovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/ledgerclient/placement"
)

// checkParallel bounds the ledgers that a check looks at at once.
const checkParallel = 64

// errDisabled ends a check in whose midst replication was switched off.
var errDisabled = errors.New("re-replication was switched off")

// check runs one check to its end.
func (a *auditor) check(ctx context.Context, t task) error {
	m := a.s.m
	started := time.Now()
	switch t {
	case taskAudit:
		m.audits.Inc()
		err := a.auditBookies(ctx)
		m.auditTime.Update(time.Since(started).Seconds())
		return err
	case taskLedgers:
		err := a.checkLedgers(ctx)
		m.checkTime.Update(time.Since(started).Seconds())
		return a.checked(ctx, metadata.CheckLedgers, err)
	case taskPlacement:
		err := a.checkPlacement(ctx)
		m.placementTime.Update(time.Since(started).Seconds())
		return a.checked(ctx, metadata.CheckPlacement, err)
	case taskReplicas:
		err := a.countReplicas(ctx)
		m.replicasTime.Update(time.Since(started).Seconds())
		return a.checked(ctx, metadata.CheckReplicas, err)
	}
	return a.countMarks(ctx)
}

// checked remembers a check that ran to its end, and no other.
func (a *auditor) checked(ctx context.Context, k metadata.CheckKind, err error) error {
	if err != nil {
		return err
	}
	return a.s.o.Views.Replication.SetChecked(ctx, k, time.Now())
}

// each runs fn for every ledger, many at once, as long as replication is on.
func (a *auditor) each(ctx context.Context, fn func(ctx context.Context, r metadata.Record) error) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(checkParallel)
	n := 0
	var listing error
	for r, err := range records(gctx, a.s.o.Views.Ledgers, a.damaged) {
		if err != nil {
			listing = err
			break
		}
		if n++; n%1000 == 0 {
			if on, err := a.s.o.Views.Replication.Enabled(gctx); err != nil || !on {
				listing = errors.Join(err, errDisabled)
				break
			}
		}
		a.s.m.ledgersChecked.Inc()
		g.Go(func() error { return fn(gctx, r) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return listing
}

func (a *auditor) damaged(id ledger.ID, err error) {
	a.s.m.damagedRecords.Inc()
	a.s.o.Logger.Error("the record of a ledger is damaged; nobody can tell where its entries are", "ledger", int64(id), "error", err)
}

// auditBookies marks every ledger that names a bookie which is neither writable nor read-only, or which is being emptied: in
// any fragment, of any state. It does not care what made it run.
func (a *auditor) auditBookies(ctx context.Context) error {
	cl, err := a.s.look(ctx)
	if err != nil {
		return err
	}
	if len(cl.bookies) == 0 {
		a.s.o.Logger.Warn("no bookie is registered: nothing is marked, since nothing could be copied")
		return nil
	}
	started := time.Now()
	var marked atomic.Int64
	err = a.each(ctx, func(ctx context.Context, r metadata.Record) error {
		var lost []ledger.BookieID
		for _, f := range r.Metadata.Fragments {
			for _, b := range f.Bookies {
				if cl.lost(b) && !slices.Contains(lost, b) {
					lost = append(lost, b)
				}
			}
		}
		a.s.m.fragments.Update(float64(len(r.Metadata.Fragments)))
		a.s.m.bookies.Update(float64(r.Metadata.Ensemble))
		if len(lost) == 0 {
			return nil
		}
		changed, err := a.s.o.Views.Replication.Mark(ctx, r.ID, lost, time.Now())
		if changed {
			marked.Add(1)
		}
		return err
	})
	if n := marked.Load(); n > 0 {
		a.s.m.marked.Update(float64(n))
		a.s.m.marking.Update(time.Since(started).Seconds())
		a.s.o.Logger.Warn("ledgers with copies on lost bookies marked", "ledgers", n)
	}
	return err
}

// checkLedgers reads the first and the last entry of every place of every ledger, and marks those that lack copies.
func (a *auditor) checkLedgers(ctx context.Context) error {
	cl, err := a.s.look(ctx)
	if err != nil || len(cl.bookies) == 0 {
		return err
	}
	return a.each(ctx, func(ctx context.Context, r metadata.Record) error {
		n := inspection{s: a.s, cl: cl, id: r.ID, m: r.Metadata, percent: a.s.o.VerifyPercent}
		bad, err := n.run(ctx)
		if err != nil {
			return fmt.Errorf("ledger %d: %w", r.ID, err)
		}
		var lacking []ledger.BookieID
		for _, p := range bad {
			if !slices.Contains(lacking, p.bookie) {
				lacking = append(lacking, p.bookie)
			}
		}
		if r.Metadata.State != ledger.StateClosed {
			for _, b := range r.Metadata.Last().Bookies {
				if cl.lost(b) && !slices.Contains(lacking, b) {
					lacking = append(lacking, b)
				}
			}
		}
		if len(lacking) == 0 {
			return nil
		}
		_, err = a.s.o.Views.Replication.Mark(ctx, r.ID, lacking, time.Now())
		return err
	})
}

// checkPlacement counts closed ledgers with write sets on too few racks, and marks them, without a bookie, if they are to be
// repaired.
func (a *auditor) checkPlacement(ctx context.Context) error {
	cl, err := a.s.look(ctx)
	if err != nil {
		return err
	}
	var misplaced atomic.Int64
	err = a.each(ctx, func(ctx context.Context, r metadata.Record) error {
		if r.Metadata.State != ledger.StateClosed {
			return nil
		}
		for _, f := range r.Metadata.Fragments {
			if placement.Adheres(cl.bookies, f.Bookies, r.Metadata.WriteQuorum, a.s.o.MinRacks) {
				continue
			}
			misplaced.Add(1)
			if a.s.o.RepairPlacement {
				_, err := a.s.o.Views.Replication.Mark(ctx, r.ID, nil, time.Now())
				return err
			}
			return nil
		}
		return nil
	})
	if err == nil {
		a.s.m.misplaced.Store(misplaced.Load())
	}
	return err
}

// countReplicas asks the bookies of closed ledgers which entries they have, and counts the ledgers with an entry that has no
// replica, fewer than its ack quorum, or fewer than its write quorum, each in the worst class. It marks nothing.
func (a *auditor) countReplicas(ctx context.Context) error {
	var none, belowAck, belowWrite atomic.Int64
	err := a.each(ctx, func(ctx context.Context, r metadata.Record) error {
		if r.Metadata.State != ledger.StateClosed || r.Metadata.LastEntry < 0 {
			return nil
		}
		_, err := a.s.o.Views.Replication.Get(ctx, r.ID)
		if err == nil {
			return nil // it is known already
		}
		if !errors.Is(err, metadata.ErrNotFound) {
			return err
		}
		least, err := a.leastReplicas(ctx, r)
		if err != nil {
			return fmt.Errorf("ledger %d: %w", r.ID, err)
		}
		switch {
		case least == 0:
			none.Add(1)
		case least < r.Metadata.AckQuorum:
			belowAck.Add(1)
		case least < r.Metadata.WriteQuorum:
			belowWrite.Add(1)
		}
		return nil
	})
	if err == nil {
		a.s.m.noReplica.Store(none.Load())
		a.s.m.belowAck.Store(belowAck.Load())
		a.s.m.belowWrite.Store(belowWrite.Load())
	}
	return err
}

// leastReplicas returns how many replicas the worst entry of a ledger has.
func (a *auditor) leastReplicas(ctx context.Context, r metadata.Record) (int, error) {
	m := r.Metadata
	copies, err := a.s.o.Client.Copies(r.ID, m)
	if err != nil {
		return 0, err
	}
	has := map[ledger.BookieID]func(ledger.EntryID) bool{}
	least := m.WriteQuorum
	for i, f := range m.Fragments {
		for _, b := range f.Bookies {
			if _, asked := has[b]; asked {
				continue
			}
			list, _, err := copies.List(ctx, b)
			if ctx.Err() != nil {
				return 0, context.Cause(ctx)
			}
			if err != nil {
				list = func(ledger.EntryID) bool { return false }
			}
			has[b] = list
		}
		last, _ := m.FinalFragment(i)
		for e := f.First; e <= last; e++ {
			n := 0
			for k := range m.WriteQuorum {
				if has[f.Bookies[m.Quorum().Index(e, k)]](e) {
					n++
				}
			}
			if least = min(least, n); least == 0 {
				return 0, nil
			}
		}
	}
	return least, nil
}

// countMarks counts the under-replicated ledgers.
func (a *auditor) countMarks(ctx context.Context) error {
	n := int64(0)
	for _, err := range a.s.o.Views.Replication.All(ctx, -1) {
		if err != nil {
			return err
		}
		n++
	}
	a.s.m.marks.Store(n)
	return nil
}
