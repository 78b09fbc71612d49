package bktest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/ledgerclient"
)

// work is what applications do in a run.
type work struct {
	c      *Cluster
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	left   atomic.Int64 // ledgers to be made
	closed int
	stuck  map[ledgerclient.LedgerID]bool  // can not be recovered
	ends   map[ledgerclient.LedgerID]int64 // of ledgers that were recovered in the end

	clients []*client // constant
}

// client is one application: a process that may die and come back.
type client struct {
	w    *work
	name string

	mu   sync.Mutex // guards what follows
	host *Host
	lc   *ledgerclient.Client
}

// book is a ledger that the applications know.
type book struct {
	id       ledgerclient.LedgerID
	deferred bool
	deleted  atomic.Bool
}

// shelf is all of them.
type shelf struct {
	mu    sync.Mutex
	books []*book
}

func (s *shelf) add(b *book) {
	s.mu.Lock()
	s.books = append(s.books, b)
	s.mu.Unlock()
}

func (s *shelf) all() []*book {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.books)
}

func (s *shelf) pick(rng *rand.Rand) *book {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.books) == 0 {
		return nil
	}
	return s.books[rng.IntN(len(s.books))]
}

// payload is the content of an entry; now and then it is empty or large.
func payload(id ledgerclient.LedgerID, n int64) []byte {
	head := fmt.Sprintf("entry %d of ledger %d.", n, id)
	size := int(n*131+int64(id)*17) % 700
	switch n % 41 {
	case 7:
		return nil
	case 23:
		size = 30_000
	}
	return append([]byte(head), bytes.Repeat([]byte{byte(n)}, size)...)
}

func startWork(c *Cluster) *work {
	w := &work{c: c, ends: map[ledgerclient.LedgerID]int64{}, stuck: map[ledgerclient.LedgerID]bool{}}
	w.ctx, w.cancel = context.WithCancel(c.ctx)
	w.left.Store(int64(c.cfg.Ledgers))
	for i := range c.cfg.Clients {
		k := &client{w: w, name: fmt.Sprintf("client%d", i)}
		k.boot()
		w.clients = append(w.clients, k)
	}
	for i, k := range w.clients {
		seed := c.cfg.Seed + uint64(i)<<32 //nolint:gosec // a small number
		w.wg.Go(func() { k.writeLoop(rand.New(rand.NewPCG(seed, 2))) })
		w.wg.Go(func() { k.readLoop(rand.New(rand.NewPCG(seed, 3))) })
	}
	return w
}

// boot starts the client's process.
func (k *client) boot() {
	c := k.w.c
	host := c.net.Join(k.name)
	store := c.tree.Open()
	store.SetFaults(c.storeFaults(k.name))
	o := c.patience(k.name)
	if c.tier != nil {
		o.Offload = c.tier.targets(k.name)
	}
	lc, err := ledgerclient.Attach(store, metadata.NewViews(store, metadata.DefaultRoot), o, host.Dial)
	if err != nil {
		c.h.Break("setup", "%v", err)
		return
	}
	k.mu.Lock()
	k.host, k.lc = host, lc
	k.mu.Unlock()
}

func (k *client) process() *ledgerclient.Client {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lc
}

// die ends the process with its writers, and starts another.
func (k *client) die() {
	k.w.c.h.Add(k.name, "dies")
	k.mu.Lock()
	host, lc := k.host, k.lc
	k.mu.Unlock()
	host.Kill(false)
	if t := k.w.c.tier; t != nil {
		t.kill(k.name)
	}
	_ = lc.Close()
	k.boot()
}

func (w *work) clientName(rng *rand.Rand) string { return w.clients[rng.IntN(len(w.clients))].name }

func (w *work) killClient(rng *rand.Rand) { w.clients[rng.IntN(len(w.clients))].die() }

// stop ends the applications' work; their processes live on.
func (w *work) stop() {
	w.cancel()
	w.wg.Wait()
}

func (w *work) pause(rng *rand.Rand, most time.Duration) bool {
	return elapse(w.ctx, time.Duration(rng.Int64N(int64(most))))
}

// writeLoop writes one ledger after the other.
func (k *client) writeLoop(rng *rand.Rand) {
	for k.w.pause(rng, 3*time.Second) {
		if k.w.left.Add(-1) < 0 {
			return
		}
		k.write(rng)
	}
}

func (k *client) write(rng *rand.Rand) {
	c := k.w.c
	o := ledgerclient.CreateOptions{Quorum: c.cfg.Quorums[rng.IntN(len(c.cfg.Quorums))], Digest: ledger.DigestCRC32C, Password: password,
		DeferredSync: c.cfg.Defer && rng.IntN(2) == 0}
	entries, window, hurry, finish := 1+rng.IntN(c.cfg.Entries), []int{1, 4, 30}[rng.IntN(3)], rng.IntN(2) == 0, rng.IntN(3) > 0
	if c.cfg.Tier.Keep && rng.IntN(3) == 0 {
		o.Custom = map[string][]byte{"bindery.tier": []byte("keep")}
	}
	ctx, cancel := context.WithTimeout(k.w.ctx, 20*time.Second)
	defer cancel()
	w, err := k.process().Create(ctx, o)
	if err != nil {
		c.h.Add(k.name, "creates no ledger: %v", err)
		return
	}
	b := &book{id: w.ID(), deferred: o.DeferredSync}
	c.h.Add(k.name, "creates ledger %d %v deferred %v", b.id, o.Quorum, o.DeferredSync)
	c.books.add(b)
	a := &appender{k: k, w: w, b: b, room: make(chan struct{}, window), head: -1, next: 0}
	for n := range int64(entries) {
		if k.w.ctx.Err() != nil || a.failed.Load() {
			break
		}
		a.append(n)
		if !hurry && !k.w.pause(rng, 200*time.Millisecond) {
			break
		}
		if o.DeferredSync && rng.IntN(15) == 0 {
			a.force()
		}
	}
	if !finish {
		c.h.Add(k.name, "leaves ledger %d", b.id)
		return
	}
	if !k.w.pause(rng, 2*time.Second) && rng.IntN(2) == 0 {
		return
	}
	a.close()
}

// appender writes one ledger and checks what it is told.
type appender struct {
	k      *client
	w      *ledgerclient.Writer
	b      *book
	room   chan struct{}
	failed atomic.Bool

	mu   sync.Mutex
	head int64 // last entry acknowledged
	next int64
}

func (a *appender) append(n int64) {
	c := a.k.w.c
	a.room <- struct{}{}
	op := c.ops.begin(a.k.name, opAppend, a.b.id, n)
	a.w.AppendAsync(payload(a.b.id, n), func(id ledgerclient.EntryID, err error) {
		defer func() { <-a.room }()
		if err != nil {
			if !a.failed.Swap(true) {
				c.h.Add(a.k.name, "ledger %d entry %d: %v", a.b.id, n, err)
			}
			return
		}
		a.mu.Lock()
		if int64(id) != n || n != a.next {
			c.h.Break("I8", "%s is told entry %d of ledger %d after %d; it was append number %d", a.k.name, id, a.b.id, a.next-1, n)
		}
		a.next, a.head = n+1, n
		a.mu.Unlock()
		if !a.b.deferred {
			c.check.Acked(a.k.name, int64(a.b.id), n)
		}
		op.done(n)
	})
}

func (a *appender) force() {
	c := a.k.w.c
	a.mu.Lock()
	head := a.head
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := a.w.Force(ctx); err != nil {
		c.h.Add(a.k.name, "force of ledger %d: %v", a.b.id, err)
		return
	}
	if head >= 0 {
		c.check.Acked(a.k.name, int64(a.b.id), head)
	}
}

func (a *appender) close() {
	c := a.k.w.c
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	op := c.ops.begin(a.k.name, opEnd, a.b.id, 0)
	if err := a.w.Close(ctx); err != nil {
		c.h.Add(a.k.name, "close of ledger %d: %v", a.b.id, err)
		return
	}
	last := int64(a.w.LastAddConfirmed())
	op.done(last)
	c.h.Add(a.k.name, "closed ledger %d at %d", a.b.id, last)
	if a.b.deleted.Load() {
		return
	}
	c.check.Ended(a.k.name, int64(a.b.id), last)
}

// readLoop reads, follows, recovers and deletes ledgers of all applications.
func (k *client) readLoop(rng *rand.Rand) {
	for k.w.pause(rng, 4*time.Second) {
		b := k.w.c.books.pick(rng)
		if b == nil || b.deleted.Load() {
			continue
		}
		switch d := rng.IntN(20); {
		case d < 5:
			k.recover(b, 20*time.Second)
		case d < 13:
			k.read(b, rng)
		case d < 19:
			k.tail(b, rng)
		default:
			k.delete(b)
		}
	}
}

// recover ends a ledger. It reports whether that worked.
func (k *client) recover(b *book, limit time.Duration) bool {
	c := k.w.c
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	op := c.ops.begin(k.name, opEnd, b.id, 0)
	r, err := k.process().Open(ctx, b.id, ledgerclient.OpenOptions{Recover: true, Password: password})
	if err != nil {
		c.h.Add(k.name, "recovery of ledger %d: %v", b.id, err)
		k.gone(b, err)
		return false
	}
	defer func() { _ = r.Close() }()
	last := int64(r.LastAddConfirmed())
	op.done(last)
	c.h.Add(k.name, "recovered ledger %d, which ends at %d", b.id, last)
	if !b.deleted.Load() {
		c.check.Ended(k.name, int64(b.id), last)
	}
	return true
}

// gone checks a complaint that a ledger does not exist.
func (k *client) gone(b *book, err error) {
	if errors.Is(err, ledgerclient.ErrNoSuchLedger) && !b.deleted.Load() && !errors.Is(err, ledgerclient.ErrNotEnoughBookies) {
		k.w.c.h.Break("I4", "%s is told that ledger %d does not exist: %v", k.name, b.id, err)
	}
}

func (k *client) read(b *book, rng *rand.Rand) {
	c := k.w.c
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	op := c.ops.begin(k.name, opLAC, b.id, 0)
	r, err := k.process().Open(ctx, b.id, ledgerclient.OpenOptions{Password: password})
	if err != nil {
		k.gone(b, err)
		return
	}
	defer func() { _ = r.Close() }()
	last := int64(r.LastAddConfirmed())
	op.done(last)
	if r.Sealed() && !b.deleted.Load() {
		c.check.Ended(k.name, int64(b.id), last)
	}
	first := int64(0)
	if last > 0 {
		first = rng.Int64N(last + 1)
	}
	k.entries(ctx, b, r, first, last, false)
}

// entries reads a range and checks every byte. must says that failing to is a violation.
func (k *client) entries(ctx context.Context, b *book, r *ledgerclient.Reader, first, last int64, must bool) bool {
	c, next := k.w.c, first
	for e, err := range r.Entries(ctx, ledgerclient.EntryID(first), ledgerclient.EntryID(last)) {
		if err != nil {
			absent := errors.Is(err, ledgerclient.ErrNoSuchEntry) && !errors.Is(err, ledgerclient.ErrNotEnoughBookies)
			if !b.deleted.Load() && (absent || must) {
				c.h.Break("I4", "%s can not read entry %d of ledger %d, of which %d are confirmed: %v", k.name, next, b.id, last+1, err)
			}
			return false
		}
		k.entry(b, e, next)
		next++
	}
	if next != last+1 {
		c.h.Break("I7", "%s reads up to entry %d of ledger %d instead of %d", k.name, next-1, b.id, last)
	}
	return true
}

func (k *client) entry(b *book, e ledgerclient.Entry, want int64) {
	if int64(e.ID) != want || !bytes.Equal(e.Data, payload(b.id, want)) {
		k.w.c.h.Break("I7", "%s reads entry %d of ledger %d as %d bytes %.40q under id %d", k.name, want, b.id, len(e.Data), e.Data, e.ID)
	}
}

func (k *client) tail(b *book, rng *rand.Rand) {
	ctx, cancel := context.WithTimeout(k.w.ctx, time.Duration(1+rng.IntN(15))*time.Second)
	defer cancel()
	r, err := k.process().Open(ctx, b.id, ledgerclient.OpenOptions{Password: password})
	if err != nil {
		k.gone(b, err)
		return
	}
	defer func() { _ = r.Close() }()
	next := int64(r.LastAddConfirmed()) + 1
	next = rng.Int64N(next + 1)
	for e, err := range r.Tail(ctx, ledgerclient.EntryID(next)) {
		if err != nil {
			if errors.Is(err, ledgerclient.ErrNoSuchEntry) && !errors.Is(err, ledgerclient.ErrNotEnoughBookies) && !b.deleted.Load() {
				k.w.c.h.Break("I4", "%s can not follow ledger %d at entry %d: %v", k.name, b.id, next, err)
			}
			return
		}
		k.entry(b, e, next)
		k.w.c.ops.begin(k.name, opLAC, b.id, 0).done(next)
		next++
	}
}

func (k *client) delete(b *book) {
	c := k.w.c
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	m, err := k.process().Metadata(ctx, b.id)
	if err != nil || m.State != ledgerclient.StateClosed {
		return
	}
	b.deleted.Store(true)
	c.h.Add(k.name, "deletes ledger %d: %v", b.id, k.process().Delete(ctx, b.id))
}

// finishWithin is how long recovery may take once all trouble is over.
const finishWithin = 5 * time.Minute

// finish recovers every ledger and reads all of it, twice, by different clients.
func (w *work) finish() {
	final := &client{w: w, name: "final"}
	final.boot()
	for _, b := range w.c.books.all() {
		if b.deleted.Load() {
			continue
		}
		deadline := time.Now().Add(finishWithin)
		done := false
		for !done && time.Now().Before(deadline) {
			if done = final.recover(b, time.Minute); !done && !elapse(w.c.ctx, 2*time.Second) {
				break
			}
		}
		if !done && w.c.check.Stuck(int64(b.id)) {
			w.c.h.Add("run", "ledger %d waits for bookies in limbo; only an operator can end it", b.id)
			w.stuck[b.id] = true
			continue
		}
		if !done {
			w.c.h.Break("V1", "ledger %d can not be recovered within %v although every bookie is up", b.id, finishWithin)
			continue
		}
		w.closed++
		for _, k := range []*client{final, w.clients[0]} {
			w.readAll(k, b)
		}
	}
	for _, k := range append(w.clients, final) {
		_ = k.process().Close()
	}
}

// lost reports whether nobody can make a ledger whole.
func (w *work) lost(id ledgerclient.LedgerID) bool { return w.stuck[id] }

func (w *work) readAll(k *client, b *book) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err := k.process().Open(ctx, b.id, ledgerclient.OpenOptions{Password: password})
	if err != nil {
		w.c.h.Break("I4", "%s can not open ledger %d, which is closed: %v", k.name, b.id, err)
		return
	}
	defer func() { _ = r.Close() }()
	last := int64(r.LastAddConfirmed())
	w.c.check.Ended(k.name, int64(b.id), last)
	if last >= 0 {
		k.entries(ctx, b, r, 0, last, true)
	}
	if !b.deferred {
		w.ends[b.id] = last
	}
}
