package bktest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/binderylog/bindery/bookie"
	"github.com/binderylog/bindery/internal/autorecovery"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/memmeta"
	"github.com/binderylog/bindery/ledgerclient"
)

// healer is the auto-recovery of one process: of a bookie's, with whose store and host it works, or of one that has nothing else.
type healer struct {
	service *autorecovery.Service
	client  *ledgerclient.Client
}

// borrowed is a store that somebody else closes.
type borrowed struct{ metadata.Store }

// Close implements metadata.Store.
func (borrowed) Close() error { return nil }

// patience are the time-outs of every client of a run.
func (c *Cluster) patience(name string) *ledgerclient.Options {
	return &ledgerclient.Options{
		MaxPendingBytes: 8 << 20, ConnectTimeout: time.Second, AddTimeout: 2 * time.Second, ReadTimeout: 2 * time.Second, HedgeDelay: 300 * time.Millisecond,
		LongPollTimeout: 3 * time.Second, MetadataTimeout: 10 * time.Second, Quarantine: 3 * time.Second, Logger: c.h.Logger(name, c.level),
	}
}

// checkEvery is the time between two checks of all ledgers.
const checkEvery = 30 * time.Second

// startHealer starts the auto-recovery of a process, b being its bookie, or nil.
func (c *Cluster) startHealer(name string, host *Host, store *memmeta.Store, views *metadata.Views, b *bookie.Bookie) *healer {
	client, err := ledgerclient.Attach(borrowed{store}, views, c.patience(name), host.Dial)
	if err != nil {
		c.h.Break("setup", "%v", err)
		return nil
	}
	w := c.cfg.Healers
	o := autorecovery.Options{
		Name: name, Client: client, Views: views, LostBookieDelay: w.Delay, BookieCheck: 20 * time.Second, LedgerCheck: checkEvery, VerifyPercent: 100,
		OpenGrace: w.Grace, FailedHold: 8 * time.Second, Backoff: time.Second, Rate: w.Rate, Parallel: 3, ScrubEvery: 15 * time.Second, ScrubRate: 8 << 20,
		LocalEvery: 2 * time.Second, Logger: c.h.Logger(name, c.level),
	}
	if w.Still {
		o.BookieCheck, o.LedgerCheck = -1, -1
	}
	if b != nil {
		o.Local = []autorecovery.LocalBookie{b}
	}
	s, err := autorecovery.New(o)
	if err != nil {
		c.h.Break("setup", "%v", err)
		return nil
	}
	s.Start()
	return &healer{service: s, client: client}
}

func (x *healer) stop() {
	if x != nil {
		x.service.Close()
		_ = x.client.Close()
	}
}

// loner is a process that does nothing but auto-recovery.
type loner struct {
	c     *Cluster
	name  string
	host  *Host
	store *memmeta.Store
	heal  *healer
}

// lonerName is what that of a run is called.
const lonerName = "healer"

func (c *Cluster) startLoner() {
	c.loner = &loner{c: c, name: lonerName}
	c.loner.start()
}

func (l *loner) start() {
	c := l.c
	l.host, l.store = c.net.Join(l.name), c.tree.Open()
	l.store.SetFaults(c.storeFaults(l.name))
	l.heal = c.startHealer(l.name, l.host, l.store, metadata.NewViews(l.store, metadata.DefaultRoot), nil)
}

func (l *loner) stop() {
	l.heal.stop()
	l.host.Kill(false)
	_ = l.store.Close()
}

// die ends the process and starts another.
func (l *loner) die() {
	l.c.h.Add(l.name, "dies")
	l.host.Kill(false)
	l.store.SetFaults(func(memmeta.Op) memmeta.Fault { return memmeta.Fault{Err: errDead} })
	l.stop()
	l.start()
}

// operators are people with the command line, who try again until it works or over is set.
type operators struct {
	over atomic.Bool
	wg   sync.WaitGroup
}

// stop waits for those who are at it.
func (o *operators) stop() {
	o.over.Store(true)
	o.wg.Wait()
}

func (c *Cluster) operator(o *operators, task func(ctx context.Context, v *metadata.Views) error) {
	o.wg.Go(func() {
		store := c.tree.Open()
		defer func() { _ = store.Close() }()
		store.SetFaults(c.storeFaults("operator"))
		v := metadata.NewViews(store, metadata.DefaultRoot)
		for c.ctx.Err() == nil && !o.over.Load() {
			ctx, cancel := context.WithTimeout(c.ctx, 30*time.Second)
			err := task(ctx, v)
			cancel()
			if err == nil {
				return
			}
			c.h.Add("operator", "%v", err)
			elapse(c.ctx, 2*time.Second)
		}
	})
}

// retire does what `bindery node decommission` does with a bookie that is gone.
func (c *Cluster) retire(m *member) {
	if m.retiring || !m.gone {
		return
	}
	m.retiring = true
	id := ledger.BookieID(m.name)
	c.operator(&c.retiring, func(ctx context.Context, v *metadata.Views) error {
		if err := autorecovery.Empty(ctx, autorecovery.EmptyOptions{Views: v, Bookie: id, Poll: 500 * time.Millisecond}); err != nil {
			return err
		}
		_, version, err := v.Cookies.Get(ctx, id)
		if err == nil {
			err = v.Cookies.Delete(ctx, id, version)
		}
		if err != nil && !errors.Is(err, metadata.ErrNotFound) {
			return err
		}
		c.h.Add("operator", "%s is decommissioned", m.name)
		m.retired.Store(true)
		return nil
	})
}

// drain says, or takes back, that a bookie is to be emptied.
func (c *Cluster) drain(name string, on bool) {
	c.operator(&c.switching, func(ctx context.Context, v *metadata.Views) error {
		c.h.Add("operator", "%s is drained: %v", name, on)
		return v.Replication.SetDraining(ctx, ledger.BookieID(name), on, time.Now())
	})
}

// switchRecovery switches re-replication in the whole cluster.
func (c *Cluster) switchRecovery(on bool) {
	c.operator(&c.switching, func(ctx context.Context, v *metadata.Views) error {
		c.h.Add("operator", "re-replication on: %v", on)
		if err := v.Replication.SetEnabled(ctx, on); !errors.Is(err, metadata.ErrSwitched) {
			return err
		}
		return nil
	})
}

// mendWithin is how long re-replication may take once all trouble is over.
const mendWithin = 10 * time.Minute

// mend waits until re-replication has ended, and a while longer, so that collectors do what they should not.
func (c *Cluster) mend(skip func(ledger.ID) bool) {
	store := c.tree.Open()
	defer func() { _ = store.Close() }()
	v := metadata.NewViews(store, metadata.DefaultRoot)
	began := time.Now()
	quiet := began
	left := ""
	for _, m := range c.members {
		c.retire(m)
	}
	for time.Since(began) < mendWithin {
		if !elapse(c.ctx, time.Second) {
			return
		}
		if left = c.unmended(v, skip, began); left != "" {
			quiet = time.Now()
		} else if time.Since(quiet) > 15*time.Second {
			return
		}
	}
	c.h.Break("V6", "re-replication does not end within %v: %s", mendWithin, left)
}

// unmended says what re-replication has to do yet.
func (c *Cluster) unmended(v *metadata.Views, skip func(ledger.ID) bool, since time.Time) string {
	at, err := v.Replication.Checked(c.ctx, metadata.CheckLedgers)
	if err != nil {
		return err.Error()
	}
	if at.Before(since.Add(10 * time.Second)) { // one that ended sooner may have begun before
		return "no check of all ledgers has ended"
	}
	for m, err := range v.Replication.All(c.ctx, -1) {
		if err != nil {
			return err.Error()
		}
		if !skip(m.Ledger) {
			return fmt.Sprintf("ledger %d is marked with %v", m.Ledger, m.Replicas)
		}
	}
	held, err := v.Replication.Locked(c.ctx)
	if err != nil {
		return err.Error()
	}
	for id, name := range held {
		if !skip(id) {
			return fmt.Sprintf("ledger %d is locked by %s", id, name)
		}
	}
	for _, m := range c.members {
		if !m.gone || m.retired.Load() {
			continue
		}
		awaited, err := c.awaited(v, skip, m)
		if err != nil {
			return err.Error()
		}
		if !awaited {
			return m.name + " is not decommissioned"
		}
	}
	return ""
}

// awaited reports whether a ledger that only an operator can end names a bookie that is gone, which then stays with it: a writer
// may still have chosen it while its session lasted.
func (c *Cluster) awaited(v *metadata.Views, skip func(ledger.ID) bool, m *member) (bool, error) {
	for r, err := range v.Ledgers.Records(c.ctx) {
		if err != nil {
			return false, err
		}
		if skip(r.ID) && r.Metadata.Names(ledger.BookieID(m.name)) {
			return true, nil
		}
	}
	return false, nil
}

// whole checks that every copy which the record of a closed ledger names is there, and has the right content.
func (c *Cluster) whole(skip func(ledger.ID) bool) {
	store := c.tree.Open()
	views := metadata.NewViews(store, metadata.DefaultRoot)
	client, err := ledgerclient.Attach(store, views, c.patience("judge"), c.net.Join("judge").Dial)
	if err != nil {
		c.h.Break("setup", "%v", err)
		return
	}
	defer func() { _ = client.Close() }()
	for r, err := range views.Ledgers.Records(c.ctx) {
		if err != nil {
			c.h.Break("setup", "%v", err)
			return
		}
		if !skip(r.ID) && r.Metadata.State == ledger.StateClosed {
			c.wholeLedger(client, r)
		}
	}
}

func (c *Cluster) wholeLedger(client *ledgerclient.Client, r metadata.Record) {
	m := r.Metadata
	copies, err := client.Copies(r.ID, m)
	if err != nil {
		c.h.Break("setup", "%v", err)
		return
	}
	for e := ledger.EntryID(0); e <= m.LastEntry; e++ {
		ensemble := m.EnsembleOf(e)
		for k := range m.WriteQuorum {
			b := ensemble[m.Quorum().Index(e, k)]
			if _, answer, err := copies.Read(c.ctx, b, e); answer != ledger.AnswerOK {
				if c.isReleased(r.ID) {
					return // the tier has it alone, since a moment ago
				}
				c.h.Break("V7", "re-replication has ended, and %s lacks entry %d of ledger %d, %s: %v", b, e, r.ID, describe(m), err)
				return
			}
		}
	}
}

// isReleased reports whether a ledger's record has gone.
func (c *Cluster) isReleased(id ledger.ID) bool {
	store := c.tree.Open()
	defer func() { _ = store.Close() }()
	_, _, err := metadata.NewViews(store, metadata.DefaultRoot).Ledgers.Read(c.ctx, id)
	return errors.Is(err, metadata.ErrNoLedger)
}
