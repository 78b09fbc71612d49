package bktest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/memmeta"
	"github.com/binderylog/bindery/ledgerclient"
)

// Cluster is one run: a metadata store, bookies, clients, and the trouble that they have.
type Cluster struct {
	cfg     Config
	ctx     context.Context // of the run
	h       *History
	check   *Checker
	net     *Net
	tree    *memmeta.Tree
	level   slog.Level
	members []*member
	loner   *loner // nil: none
	tier    *tier  // nil: none

	retiring  operators // of bookies that are gone
	switching operators // give up when the trouble is over

	mu     sync.Mutex // guards what follows
	rng    *rand.Rand // of store faults, which several processes ask for
	stormy bool       // the store has faults
	ops    *opLog
	books  *shelf
}

// Result is what came of a run.
type Result struct {
	Config  Config
	History *History
	Broken  []string // violated invariants, first one first; empty for a good run
	Acked   int64    // entries acknowledged
	Closed  int      // ledgers closed in the end
	Faults  int      // troubles that happened

	ops  *opLog
	ends map[ledgerclient.LedgerID]int64
}

// Judge checks the applications' history and completes Broken. It needs real time, so it is called outside the bubble.
func (r *Result) Judge() {
	if r.ops != nil {
		r.ops.linearize(r.History, r.ends)
	}
	r.Broken = r.History.Broken()
}

// Run makes one run. It must be called in a synctest bubble, whose clock it uses.
func Run(ctx context.Context, cfg Config, level slog.Level) Result {
	h := NewHistory()
	c := &Cluster{cfg: cfg, ctx: ctx, h: h, check: NewChecker(h), tree: memmeta.NewTree(), level: level, rng: rand.New(rand.NewPCG(cfg.Seed, 0x73746f7265)),
		ops: &opLog{}, books: &shelf{}}
	c.net = NewNet(cfg.Seed, cfg.Latency, c.check)
	c.tree.OnWrite(c.check.Wrote)
	h.Add("run", "%s", cfg.String())
	if cfg.Tier.On() {
		c.tier = newTier(c)
	}
	r := Result{Config: cfg, History: h}
	if err := c.boot(); err != nil {
		h.Break("setup", "%v", err)
	} else {
		if c.tier != nil {
			c.tier.start()
		}
		w := startWork(c)
		n := newNemesis(c, w)
		n.storm()
		r.Faults = n.count
		w.stop()
		c.heal()
		w.finish()
		if cfg.Healers.On() {
			c.mend(w.lost)
			c.whole(w.lost)
		}
		if c.tier != nil {
			c.tier.finish(w)
		}
		c.audit()
		r.Closed = w.closed
		r.Acked, r.ops, r.ends = c.ops.acked(), c.ops, w.ends
	}
	c.retiring.stop()
	if c.tier != nil && c.tier.stop != nil {
		c.tier.close()
	}
	if c.loner != nil {
		c.loner.stop()
	}
	for _, m := range c.members {
		m.stop()
	}
	return r
}

// boot formats the cluster and starts its bookies.
func (c *Cluster) boot() error {
	store := c.tree.Open()
	defer func() { _ = store.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := metadata.NewViews(store, metadata.DefaultRoot).Cluster.Init(ctx); err != nil {
		return err
	}
	for i := range c.cfg.Bookies {
		m := newMember(c, fmt.Sprintf("bk%d", i))
		m.heals = i < c.cfg.Healers.Members
		c.members = append(c.members, m)
		if err := m.start(); err != nil {
			return err
		}
	}
	if c.cfg.Healers.Alone {
		c.startLoner()
	}
	return nil
}

// settle is how long clients may take to notice that all is well: they remember for a moment who could not be reached.
const settle = 2 * time.Second

// heal ends all trouble and brings every bookie back.
func (c *Cluster) heal() {
	c.h.Add("run", "the trouble is over")
	c.setStormy(false)
	c.net.Heal()
	c.tree.LandLate()
	c.switching.stop()
	if c.tier != nil {
		c.tier.heal()
	}
	for _, m := range c.members {
		m.healDisk()
		if m.gone && !m.retired.Load() {
			continue // its operator is at it
		}
		m.gone, m.retiring = false, false
		if m.ro {
			m.setReadOnly(false)
		}
		if m.up && !m.kept { // a failed journal stays failed until its bookie starts again
			m.stop()
		}
		for attempt := 1; !m.up; attempt++ {
			if err := m.start(); err != nil {
				if attempt == 3 {
					c.h.Break("liveness", "%s does not start on a good disk: %v", m.name, err)
					break
				}
				elapse(c.ctx, 5*time.Second) // an operator tries again
			}
		}
	}
	v := c.calmViews()
	for _, m := range c.members {
		if err := v.Replication.SetDraining(c.ctx, ledger.BookieID(m.name), false, time.Now()); err != nil {
			c.h.Break("setup", "%v", err)
		}
	}
	if err := v.Replication.SetEnabled(c.ctx, true); err != nil && !errors.Is(err, metadata.ErrSwitched) {
		c.h.Break("setup", "%v", err)
	}
	_ = v.Store.Close()
	if c.cfg.Healers.On() && c.loner == nil && !slices.ContainsFunc(c.members, func(m *member) bool { return m.heals && m.up }) {
		c.startLoner() // all who took part are lost for good
	}
	elapse(c.ctx, settle)
}

// calmViews are the metadata as somebody sees them who has no trouble with the store.
func (c *Cluster) calmViews() *metadata.Views {
	return metadata.NewViews(c.tree.Open(), metadata.DefaultRoot)
}

// elapse lets the bubble's clock pass by d. It reports false if ctx ended before.
func elapse(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (c *Cluster) setStormy(on bool) {
	c.mu.Lock()
	c.stormy = on
	c.mu.Unlock()
	if !on {
		return
	}
	c.h.Add("store", "is in trouble")
}

// storeFaults returns the faults that one process meets at the store while it is in trouble.
func (c *Cluster) storeFaults(name string) func(memmeta.Op) memmeta.Fault {
	return func(op memmeta.Op) memmeta.Fault {
		c.mu.Lock()
		defer c.mu.Unlock()
		f := memmeta.Fault{Delay: c.cfg.Latency/2 + time.Duration(c.rng.Int64N(int64(c.cfg.Latency)))}
		if !c.stormy {
			return f
		}
		switch k := c.rng.IntN(10); {
		case k < 2:
			f.Delay += time.Duration(c.rng.Int64N(int64(3 * time.Second)))
		case k < 3:
			f.Err = fmt.Errorf("the store does not hear %s", name)
		case k < 6 && op.Name == "txn":
			f.Outcome = []memmeta.Outcome{memmeta.Applied, memmeta.Dropped, memmeta.Late}[c.rng.IntN(3)]
		}
		return f
	}
}
