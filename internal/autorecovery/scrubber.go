package autorecovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/binderylog/bindery/bookie/storage"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/pace"
)

// scrubber sees to what the bookies of this process lack. It reads their disks from time to time, gives entries that can not
// be read back their bytes again from peers, ends limbo where everything is there, and marks what is left for the workers.
type scrubber struct {
	s     *Service
	reads *pace.Bucket
	whole map[string]bool // no ledger is in limbo there; that can only change with a start of the bookie
}

func newScrubber(s *Service) *scrubber {
	return &scrubber{s: s, reads: pace.NewBucket(s.o.ScrubRate, copyBurst), whole: map[string]bool{}}
}

func (c *scrubber) run(ctx context.Context) {
	// When the last one was is not remembered: a process that is restarted often scrubs an hour after each start.
	next := time.Now().Add(min(c.s.o.ScrubEvery, time.Hour))
	for {
		c.round(ctx)
		if c.s.o.ScrubEvery > 0 && !time.Now().Before(next) {
			c.scrubAll(ctx)
			next = time.Now().Add(c.s.o.ScrubEvery)
			continue // what was found is repaired at once
		}
		if pace.Sleep(ctx, c.s.o.LocalEvery) != nil {
			return
		}
	}
}

func (c *scrubber) scrubAll(ctx context.Context) {
	for _, b := range c.s.o.Local {
		done, err := b.Scrub(ctx, c.reads.Wait)
		c.s.m.scrubbedEntries.Add(int(done.Entries))
		c.s.m.scrubbedBytes.Add(int(done.Bytes))
		c.s.m.scrubErrors.Add(int(done.Damaged))
		if err != nil && ctx.Err() == nil {
			c.s.o.Logger.Warn("scrub ended early", "bookie", b.ID(), "error", err)
		}
	}
}

// round looks once at what each local bookie lacks.
func (c *scrubber) round(ctx context.Context) {
	on, err := c.s.o.Views.Replication.Enabled(ctx)
	if err != nil || !on {
		return
	}
	for _, b := range c.s.o.Local {
		if err := c.mend(ctx, b); err != nil && ctx.Err() == nil {
			c.s.o.Logger.Warn("damaged entries are not repaired yet", "bookie", b.ID(), "error", err)
		}
		if err := c.limbo(ctx, b); err != nil && ctx.Err() == nil {
			c.s.o.Logger.Warn("ledgers stay in limbo", "bookie", b.ID(), "error", err)
		}
	}
}

// mend drains the list of damaged entries.
func (c *scrubber) mend(ctx context.Context, b LocalBookie) error {
	list, _ := b.Damaged()
	var errs error
	for start := 0; start < len(list); {
		end := start + 1
		for end < len(list) && list[end].Ledger == list[start].Ledger {
			end++
		}
		if err := c.mendLedger(ctx, b, list[start:end]); err != nil {
			errs = errors.Join(errs, err)
			if ctx.Err() != nil {
				return errs
			}
		}
		start = end
	}
	return errs
}

// mendLedger writes the damaged entries of one ledger anew, under its lock. Only fragments that can not change are touched;
// an entry that belongs to no place of the bookie any more is forgotten.
func (c *scrubber) mendLedger(ctx context.Context, b LocalBookie, list []storage.Damaged) error {
	s := c.s
	id, self := ledger.ID(list[0].Ledger), ledger.BookieID(b.ID())
	lock, ok, err := s.o.Views.Replication.Lock(ctx, id, s.o.Name)
	if err != nil || !ok {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		_ = lock.Release(ctx)
	}()
	m, _, err := s.o.Views.Ledgers.Read(ctx, id)
	if isNoLedger(err) {
		for _, d := range list {
			b.Forget(d)
		}
		return nil
	}
	if err != nil {
		return err
	}
	cl, err := s.look(ctx)
	if err != nil {
		return err
	}
	copies, err := s.o.Client.Copies(id, m)
	if err != nil {
		return err
	}
	var errs error
	for _, d := range list {
		e := ledger.EntryID(d.Entry)
		i := m.FragmentOf(e)
		index := slices.Index(m.Fragments[i].Bookies, self)
		last, final := m.FinalFragment(i)
		switch {
		case final && (e > last || index < 0 || !m.Quorum().Stores(e, index)):
			b.Forget(d)
			continue
		case !final || index < 0:
			continue // an open ledger: when it is closed
		}
		plan, verdict := ledger.PlanCopy(m, i, index, self, 0)
		if verdict != ledger.CopyReady {
			continue
		}
		f := filling{s: s, cl: cl, id: id, m: m, lock: lock, copies: copies, p: place{fragment: i, index: index, bookie: self, last: last}}
		if err := f.copyRun(ctx, &plan, e, e, false); err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		whole, err := b.Repaired(d)
		if err == nil && whole {
			s.m.repairedE.Inc()
			s.o.Logger.Info("damaged entry repaired from a peer", "bookie", b.ID(), "ledger", d.Ledger, "entry", d.Entry)
		} else if err == nil {
			err = fmt.Errorf("ledger %d entry %d: it can not be read after it was written anew", d.Ledger, d.Entry)
		}
		errs = errors.Join(errs, err)
	}
	return errs
}

// limbo ends limbo where the bookie is whole again, and marks what is not. A worker then gives the entries back in place, and
// recovers what is open.
func (c *scrubber) limbo(ctx context.Context, b LocalBookie) error {
	if c.whole[b.ID()] {
		return nil
	}
	left, self := false, ledger.BookieID(b.ID())
	for after := ledger.ID(-1); ; {
		ids, err := b.Limbo(after, 1000)
		if err != nil {
			return err
		}
		if len(ids) == 0 {
			c.whole[b.ID()] = !left
			return nil
		}
		for _, id := range ids {
			after = id
			ended, err := b.EndLimbo(ctx, id)
			if err != nil {
				return err
			}
			if ended {
				c.s.m.limboEnded.Inc()
				continue
			}
			left = true
			m, _, err := c.s.o.Views.Ledgers.Read(ctx, id)
			if isNoLedger(err) {
				continue
			}
			if err == nil && m.Names(self) {
				_, err = c.s.o.Views.Replication.Mark(ctx, id, []ledger.BookieID{self}, time.Now())
			}
			if err != nil && !errors.Is(err, metadata.ErrVersion) {
				return err
			}
		}
	}
}
