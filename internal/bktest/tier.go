package bktest

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/binderylog/bindery/internal/intent"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/memmeta"
	"github.com/binderylog/bindery/internal/vfs/memfs"
	"github.com/binderylog/bindery/ledgerclient"
	"github.com/binderylog/bindery/offload"
	"github.com/binderylog/bindery/offload/objstore"
	"github.com/binderylog/bindery/offload/objstore/faulty"
	"github.com/binderylog/bindery/offload/objstore/mem"
)

// Times of a simulated tier. The grace is above what any request takes, late ones and those of a store in trouble included.
const (
	tierGrace   = 30 * time.Second
	tierAbandon = 20 * time.Second
	tierLate    = 12 * time.Second // what is late arrives within it
	tierClean   = 3 * time.Second
	tierHead    = 10 * time.Second
)

// tier is the object stores of a run and the workers that move ledgers there.
type tier struct {
	c       *Cluster
	stores  []*mem.Store // of target t1, t2...
	workers []*offloader
	stop    context.CancelFunc
	wg      sync.WaitGroup

	mu      sync.Mutex // guards what follows
	rng     *rand.Rand // of the targets' faults
	trouble map[int]bool
	lost    int                        // targets that lost their objects
	views   map[string][]*faulty.Store // of each process
	buried  []*faulty.Store            // of processes that are dead: what they sent may still arrive
}

func targetID(i int) string { return fmt.Sprintf("t%d", i+1) }

// newTier makes the stores. Nothing runs yet.
func newTier(c *Cluster) *tier {
	t := &tier{c: c, rng: rand.New(rand.NewPCG(c.cfg.Seed, 0x74696572)), trouble: map[int]bool{}, views: map[string][]*faulty.Store{}}
	for range c.cfg.Tier.Geometry.Shards() {
		t.stores = append(t.stores, mem.New())
	}
	c.check.tier = t
	return t
}

// start starts the workers, and lets what is late arrive.
func (t *tier) start() {
	c := t.c
	ctx, cancel := context.WithCancel(c.ctx)
	t.stop = cancel
	t.wg.Go(func() {
		rng := rand.New(rand.NewPCG(c.cfg.Seed, 0x6c617465))
		for elapse(ctx, time.Second+time.Duration(rng.Int64N(int64(tierLate-time.Second)))) {
			t.arrive()
		}
	})
	for i := range c.cfg.Tier.Workers {
		x := &offloader{t: t, name: fmt.Sprintf("tier%d", i), disk: memfs.New()}
		t.workers = append(t.workers, x)
		x.start()
	}
}

func (t *tier) close() {
	for _, x := range t.workers {
		x.end()
	}
	t.stop()
	t.wg.Wait()
}

// arrive lets late requests do what they asked for.
func (t *tier) arrive() {
	t.mu.Lock()
	all := t.buried
	t.buried = nil
	for _, v := range t.views {
		all = append(slices.Clone(all), v...)
	}
	t.mu.Unlock()
	for _, s := range all {
		s.Release()
	}
}

// targets are the stores as one process sees them. A dead one's requests fail.
func (t *tier) targets(name string) *offload.Targets {
	var list []offload.Target
	var views []*faulty.Store
	for i, s := range t.stores {
		f := faulty.Wrap(s, func(c faulty.Call) faulty.Fault { return t.fault(i, c) })
		views = append(views, f)
		list = append(list, offload.Target{ID: targetID(i), Store: f})
	}
	t.mu.Lock()
	t.buried = append(t.buried, t.views[name]...)
	t.views[name] = views
	t.mu.Unlock()
	targets, err := offload.NewTargets(list)
	if err != nil {
		t.c.h.Break("setup", "%v", err)
	}
	return targets
}

// kill makes every later request of a process fail.
func (t *tier) kill(name string) {
	t.mu.Lock()
	views := t.views[name]
	t.mu.Unlock()
	for _, f := range views {
		f.Set(faulty.Always(faulty.Fail(objstore.KindUnreachable)))
	}
}

// fault is what happens to a request at a target that is in trouble.
func (t *tier) fault(i int, c faulty.Call) faulty.Fault {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.trouble[i] {
		return faulty.Fault{}
	}
	switch t.rng.IntN(12) {
	case 0, 1:
		return faulty.Fail(objstore.KindTransient)
	case 2:
		return faulty.Fail(objstore.KindThrottled)
	case 3:
		return faulty.Cut()
	case 4, 5:
		return faulty.LostReply()
	case 6:
		return faulty.Late()
	case 7:
		return faulty.Fail(objstore.KindUnreachable)
	case 8:
		if c.Op == objstore.OpGet {
			return faulty.Flip(t.rng.Int64N(1 << 20))
		}
	case 9:
		return faulty.Delay(time.Duration(t.rng.Int64N(int64(300 * time.Millisecond))))
	}
	return faulty.Fault{}
}

// setTrouble begins or ends the trouble of a target.
func (t *tier) setTrouble(i int, on bool) {
	t.mu.Lock()
	t.trouble[i] = on
	t.mu.Unlock()
	t.c.h.Add(targetID(i), "is in trouble: %v", on)
}

// heal ends all trouble and starts workers that are dead.
func (t *tier) heal() {
	for i := range t.stores {
		t.setTrouble(i, false)
	}
	t.arrive()
	for _, x := range t.workers {
		if !x.up {
			x.start()
		}
	}
}

// lose makes a target lose everything, if what is left is enough by the geometry.
func (t *tier) lose(i int) {
	t.mu.Lock()
	enough := t.lost < t.c.cfg.Tier.Geometry.Parity
	if enough {
		t.lost++
	}
	t.mu.Unlock()
	if !enough {
		return
	}
	t.c.h.Add(targetID(i), "has lost all objects")
	t.c.check.targetLost(targetID(i))
	t.stores[i].Wipe()
}

// has reports whether a target holds an object. It asks the store itself, past all faults.
func (t *tier) has(target, key string) bool {
	for i, s := range t.stores {
		if targetID(i) == target {
			_, err := s.Head(context.Background(), key)
			return err == nil
		}
	}
	return false
}

// offloader is a process that moves ledgers to the tier. Its disk holds its intents.
type offloader struct {
	t      *tier
	name   string
	disk   *memfs.FS
	host   *Host
	store  *memmeta.Store
	client *ledgerclient.Client
	worker *offload.Worker
	runs   *offload.Service
	up     bool
}

// start runs a process on the disk.
func (x *offloader) start() {
	t, c := x.t, x.t.c
	x.host, x.store = c.net.Join(x.name), c.tree.Open()
	x.store.SetFaults(c.storeFaults(x.name))
	views := metadata.NewViews(x.store, metadata.DefaultRoot)
	o := c.patience(x.name)
	o.Offload = t.targets(x.name)
	var err error
	if x.client, err = ledgerclient.Attach(borrowed{x.store}, views, o, x.host.Dial); err != nil {
		c.h.Break("setup", "%v", err)
		return
	}
	log, err := intent.OpenVFS(x.disk, "/intents", intent.Options{Salvage: true})
	if err != nil {
		c.h.Break("setup", "intents of %s: %v", x.name, err)
		return
	}
	w := c.cfg.Tier
	inline := 0
	if !w.Inline {
		inline = -1
	}
	x.worker, err = offload.NewWorker(offload.Options{
		Records: offload.NewRecords(views), Targets: o.Offload, Entries: x.entries, Intents: log, Name: x.name, Logger: c.h.Logger(x.name, c.level),
		Geometry: w.Geometry, CellBytes: offload.CellBytesMin, InlineBytes: inline, ReadRate: -1, ScrubRate: -1, DeletionLag: w.Lag, Grace: tierGrace,
		Abandon: tierAbandon, TakeOver: 2 * time.Second,
	})
	if err != nil {
		c.h.Break("setup", "%v", err)
		return
	}
	x.runs = offload.NewService(x.worker, offload.ServiceOptions{
		Policy: offload.Policy{AfterAge: time.Millisecond}, Every: time.Second, CleanEvery: tierClean, HeadEvery: tierHead, FullEvery: 30 * tierHead,
	})
	x.runs.Start()
	x.up = true
	c.h.Add(x.name, "moves ledgers")
}

// entries reads a ledger from the bookies.
func (x *offloader) entries(ctx context.Context, id ledger.ID, m *ledger.Metadata, first, last ledger.EntryID) iter.Seq2[offload.Entry, error] {
	return func(yield func(offload.Entry, error) bool) {
		r, err := x.client.Open(ctx, id, ledgerclient.OpenOptions{Admin: true})
		if err != nil {
			yield(offload.Entry{}, err)
			return
		}
		defer func() { _ = r.Close() }()
		for body, err := range r.Bodies(ctx, first, last) {
			var e offload.Entry
			if err == nil {
				e, err = offload.ParseEntry(body, m.Digest)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// end stops the process as its operator would.
func (x *offloader) end() {
	if !x.up {
		return
	}
	x.up = false
	x.runs.Close()
	if err := x.worker.Close(); err != nil {
		x.t.c.h.Add(x.name, "stopped: %v", err)
	}
	_ = x.client.Close()
	x.host.Kill(false)
	_ = x.store.Close()
}

// die ends the process at once. Its disk keeps a share of what was not synced; negative: nothing at all.
func (x *offloader) die(seed uint64, keep float64) {
	if !x.up {
		return
	}
	x.t.c.h.Add(x.name, "dies, its disk keeps %.0f %%", max(keep, 0)*100)
	x.host.Kill(false)
	x.t.kill(x.name)
	disk := memfs.New()
	if keep >= 0 {
		disk = x.disk.CrashClone(seed, keep)
	}
	x.disk.CrashNow()
	x.store.SetFaults(func(memmeta.Op) memmeta.Fault { return memmeta.Fault{Err: errDead} })
	x.end()
	x.disk = disk
}
