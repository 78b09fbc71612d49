package ledgerclient

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/binderylog/bindery/internal/digest"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/driver"
	"github.com/binderylog/bindery/internal/wire"
	"github.com/binderylog/bindery/ledgerclient/placement"
	"github.com/binderylog/bindery/offload"
)

// Client is a connection to a cluster. It may be used by any number of goroutines.
type Client struct {
	o      *Options
	store  metadata.Store
	views  *metadata.Views
	budget *budget
	wheel  wheel
	view   bookieView
	hedges hedges
	tier   *offload.Reader // nil: no targets are known
	m      *clientMetrics
	dial   DialFunc
	addsV3 bool // benchmarks: send ordinary adds as V3, too

	txn      atomic.Uint64
	nextConn atomic.Uint64

	ctx    context.Context // ends with Close
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	closed  bool
	peers   map[BookieID]*peer
	conns   map[*conn]struct{}
	writers map[*Writer]struct{}
}

// Dial connects to the cluster whose metadata lies at metadataURI, such as "etcd://127.0.0.1:2379/ledgers" or
// "mem://name". Nil o means defaults.
func Dial(ctx context.Context, metadataURI string, o *Options) (*Client, error) {
	o = o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.DialTimeout)
	defer cancel()
	store, root, err := driver.Open(ctx, metadataURI, driver.Options{Timeout: o.MetadataTimeout, Logger: o.Logger})
	if err != nil {
		return nil, dialError(err)
	}
	views, err := metadata.LoadViews(ctx, store, root)
	if err != nil {
		_ = store.Close()
		return nil, fmt.Errorf("open cluster at %s: %w", metadataURI, dialError(err))
	}
	c, err := newClient(store, views, o, netDial)
	if err != nil {
		_ = store.Close()
	}
	return c, err
}

// dialError marks a store that can not be reached, in its own words: they say where it should be.
func dialError(err error) error {
	if errors.Is(err, metadata.ErrUnavailable) {
		return &kindError{text: err.Error(), kind: ErrMetadata, err: err}
	}
	return err
}

// newClient takes over the store, unless it fails.
func newClient(store metadata.Store, views *metadata.Views, o *Options, dial DialFunc) (*Client, error) {
	tier, err := newTier(views, o.Offload, o.OffloadKeys)
	if err != nil {
		return nil, err
	}
	c := &Client{o: o, store: store, views: views, tier: tier, budget: newBudget(o.MaxPendingBytes), dial: dial,
		peers: map[BookieID]*peer{}, conns: map[*conn]struct{}{}, writers: map[*Writer]struct{}{}}
	c.view.known = make(chan struct{})
	c.m = newClientMetrics(c)
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.wg.Go(func() {
		pprof.SetGoroutineLabels(pprof.WithLabels(c.ctx, pprof.Labels("ledgerclient", "clock")))
		c.wheel.run(c.ctx.Done())
	})
	c.wg.Go(func() {
		pprof.SetGoroutineLabels(pprof.WithLabels(c.ctx, pprof.Labels("ledgerclient", "watch-bookies")))
		c.watchBookies(c.ctx)
	})
	return c, nil
}

// Close ends the client: open writers fail their pending adds and leave their ledgers open for recovery.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return ErrClosed
	}
	c.closed = true
	conns := make([]*conn, 0, len(c.conns))
	for x := range c.conns {
		conns = append(conns, x)
	}
	writers := slices.Collect(maps.Keys(c.writers))
	c.mu.Unlock()
	c.cancel(ErrClosed)
	for _, w := range writers {
		w.poke() // a loop without work waits for nothing else
	}
	c.budget.close(ErrClosed)
	for _, x := range conns {
		x.fail(ErrClosed)
	}
	c.wg.Wait()
	return c.store.Close()
}

// start runs a connection. It reports false if the client is closed.
func (c *Client) start(x *conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.conns[x] = struct{}{}
	c.wg.Go(func() {
		x.run(c.ctx)
		c.mu.Lock()
		delete(c.conns, x)
		c.mu.Unlock()
	})
	return true
}

// spawn runs a background task that ends with the client. It reports false if the client is closed.
func (c *Client) spawn(task func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.wg.Go(task)
	return true
}

// peer returns the client's view of a bookie.
func (c *Client) peer(id BookieID) *peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.peerLocked(id)
}

// peersOf returns the client's view of an ensemble.
func (c *Client) peersOf(ensemble []BookieID) []*peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	peers := make([]*peer, len(ensemble))
	for i, b := range ensemble {
		peers[i] = c.peerLocked(b)
	}
	return peers
}

func (c *Client) peerLocked(id BookieID) *peer {
	p := c.peers[id]
	if p == nil {
		p = &peer{client: c, id: id}
		c.peers[id] = p
	}
	return p
}

// knownPeer returns the client's view of a bookie that it has dealt with, nil if it has not.
func (c *Client) knownPeer(id BookieID) *peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.peers[id]
}

// allPeers returns every bookie that this client has dealt with.
func (c *Client) allPeers() []*peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]*peer, 0, len(c.peers))
	for _, p := range c.peers {
		all = append(all, p)
	}
	return all
}

// nextTxn returns a number that no other request of this client has.
func (c *Client) nextTxn() uint64 { return c.txn.Add(1) }

// err returns ErrClosed after Close.
func (c *Client) err() error {
	if c.ctx.Err() != nil {
		return ErrClosed
	}
	return nil
}

// waitForView waits until the set of registered bookies is known.
func (c *Client) waitForView(ctx context.Context) error {
	select {
	case <-c.view.known:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("list bookies: %w", context.Cause(ctx))
	case <-c.ctx.Done():
		return ErrClosed
	}
}

// Create makes a new ledger and returns its writer.
func (c *Client) Create(ctx context.Context, o CreateOptions) (*Writer, error) {
	if err := c.err(); err != nil {
		return nil, err
	}
	if o.Quorum == (Quorum{}) {
		o.Quorum = Quorum{Ensemble: 3, Write: 3, Ack: 2}
	}
	if err := o.Quorum.Validate(); err != nil {
		return nil, err
	}
	if o.Digest == 0 {
		o.Digest = DigestCRC32C
	}
	seal, err := digest.New(o.Digest, o.Password)
	if err != nil {
		return nil, err
	}
	proto := wire.V2
	if o.DeferredSync {
		proto = wire.V3
	}
	var ensemble []BookieID
	for round := 1; ; round++ {
		if ensemble, err = c.chooseEnsemble(ctx, o.Quorum, o.OpportunisticStriping); err != nil {
			return nil, fmt.Errorf("create ledger: %w", err)
		}
		o.Quorum.Ensemble = len(ensemble)
		// Who can not be reached is quarantined now and chosen again only if nobody else is left; adds then do without it.
		if c.probe(ctx, ensemble, proto) || round == probeRounds {
			break
		}
	}
	m := &ledger.Metadata{FormatVersion: metadata.LedgerFormatV3, Ensemble: o.Quorum.Ensemble, WriteQuorum: o.Quorum.Write, AckQuorum: o.Quorum.Ack,
		State: StateOpen, LastEntry: InvalidEntry, Fragments: []Fragment{{First: 0, Bookies: ensemble}},
		Digest: o.Digest, Password: o.Password, HasPassword: true, CTime: time.Now().UnixMilli(), HasCTime: true, Custom: map[string][]byte{}}
	if m.Password == nil {
		m.Password = []byte{}
	}
	for k, v := range o.Custom {
		m.Custom[k] = v
	}
	if _, ok := m.Custom["bindery.tier"]; !ok {
		m.Custom["bindery.tier"] = []byte("release")
	}
	records := c.OffloadRecords()
	for {
		id, err := c.newID(ctx, o.ID)
		if err != nil {
			return nil, fmt.Errorf("create ledger: %w", metaError(err))
		}
		switch err := records.MayCreate(ctx, id); {
		case errors.Is(err, metadata.ErrExists) && o.ID != nil:
			return nil, fmt.Errorf("create ledger %d: %w: %w", id, ErrLedgerExists, err)
		case errors.Is(err, metadata.ErrExists):
			continue // the store has forgotten that it gave this id out, the tier has not
		case err != nil:
			return nil, fmt.Errorf("create ledger: %w", metaError(err))
		}
		v, err := c.views.Ledgers.Create(ctx, id, m)
		if errors.Is(err, metadata.ErrExists) && o.ID != nil {
			return nil, fmt.Errorf("create ledger %d: %w", id, ErrLedgerExists)
		}
		if errors.Is(err, metadata.ErrExists) {
			continue // the id was taken by its own choice of somebody else
		}
		if err != nil {
			return nil, fmt.Errorf("create ledger: %w", metaError(err))
		}
		return c.newWriter(id, m, v, seal, o)
	}
}

// newID returns the id asked for, or draws one.
func (c *Client) newID(ctx context.Context, asked *LedgerID) (LedgerID, error) {
	if asked == nil {
		return c.views.Ledgers.NewID(ctx)
	}
	if *asked < 0 {
		return 0, fmt.Errorf("ledger id %d: ids start at 0", *asked)
	}
	return *asked, nil
}

// chooseEnsemble returns bookies for a new ledger. A bookie that registered a moment ago may not be in the view yet: if
// the view is too small, the store is asked before the call fails.
func (c *Client) chooseEnsemble(ctx context.Context, q Quorum, shrink bool) ([]BookieID, error) {
	if err := c.waitForView(ctx); err != nil {
		return nil, err
	}
	least := q.Ensemble
	if shrink {
		least = q.Write
	}
	ensemble, err := placement.ChooseAtLeast(c.candidates(), least, q.Ensemble, random)
	if err == nil && len(ensemble) == q.Ensemble {
		return ensemble, nil
	}
	view, err := c.Candidates(ctx)
	if err != nil {
		return nil, err
	}
	return placement.ChooseAtLeast(view, least, q.Ensemble, random)
}

// Delete removes a ledger. Its bookies drop their copies some time later.
func (c *Client) Delete(ctx context.Context, id LedgerID) error {
	if err := c.err(); err != nil {
		return err
	}
	_, _, damage := c.views.Ledgers.Read(ctx, id)
	if c.tier != nil && !isDamage(damage) {
		if err := c.OffloadRecords().DeleteLedger(ctx, id); err != nil {
			return about("delete", id, metaError(err))
		}
		return nil
	}
	if damage != nil && !isDamage(damage) {
		return about("delete", id, metaError(damage))
	}
	if err := c.views.Ledgers.Delete(ctx, id, metadata.Any); err != nil {
		return about("delete", id, metaError(err))
	}
	return nil
}

// Ledgers yields the ids of all ledgers, ascending. An error is the last thing it yields.
func (c *Client) Ledgers(ctx context.Context) iter.Seq2[LedgerID, error] {
	return func(yield func(LedgerID, error) bool) {
		if err := c.err(); err != nil {
			yield(0, err)
			return
		}
		for id, err := range c.views.Ledgers.All(ctx) {
			if err != nil {
				yield(0, fmt.Errorf("list ledgers: %w", metaError(err)))
				return
			}
			if !yield(id, nil) {
				return
			}
		}
	}
}

// Metadata returns the record of a ledger as it is stored now, of one that bookies gave up as it was then.
func (c *Client) Metadata(ctx context.Context, id LedgerID) (*Metadata, error) {
	if err := c.err(); err != nil {
		return nil, err
	}
	m, _, err := c.views.Ledgers.Read(ctx, id)
	if errors.Is(err, metadata.ErrNoLedger) && c.tier != nil {
		m, err = c.OffloadRecords().Offloaded(ctx, id)
	}
	if err != nil {
		return nil, fmt.Errorf("ledger %d: %w", id, metaError(err))
	}
	return m, nil
}

// Bookies returns the registered bookies, sorted by id.
func (c *Client) Bookies(ctx context.Context) ([]Bookie, error) {
	if err := c.err(); err != nil {
		return nil, err
	}
	list, err := c.views.Bookies.List(ctx, metadata.AnyKind)
	if err != nil {
		return nil, fmt.Errorf("list bookies: %w", metaError(err))
	}
	all := make([]Bookie, 0, len(list))
	for _, b := range list {
		addr, _ := b.Address()
		all = append(all, Bookie{ID: b.ID, Address: addr, ReadOnly: b.ReadOnly, Quarantined: c.quarantined(b.ID)})
	}
	return all, nil
}
