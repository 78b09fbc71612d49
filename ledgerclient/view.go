package ledgerclient

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sort"
	"sync"

	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/ledgerclient/placement"
)

// bookieView is the last known set of registered bookies.
type bookieView struct {
	mu      sync.Mutex // guards the fields below
	bookies map[BookieID]metadata.Bookie
	sorted  []BookieID
	known   chan struct{} // closed after the first update
	once    sync.Once
}

func (v *bookieView) get(id BookieID) (metadata.Bookie, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	b, ok := v.bookies[id]
	return b, ok
}

// set takes a new set and returns the ids of bookies that registered anew since the last one.
func (v *bookieView) set(list []metadata.Bookie) []BookieID {
	v.mu.Lock()
	defer v.mu.Unlock()
	var anew []BookieID
	next := make(map[BookieID]metadata.Bookie, len(list))
	v.sorted = v.sorted[:0]
	for _, b := range list {
		if old, was := v.bookies[b.ID]; !was || old.Version != b.Version {
			anew = append(anew, b.ID)
		}
		next[b.ID] = b
		v.sorted = append(v.sorted, b.ID)
	}
	sort.Slice(v.sorted, func(i, j int) bool { return v.sorted[i] < v.sorted[j] })
	v.bookies = next
	v.once.Do(func() { close(v.known) })
	return anew
}

// watchBookies keeps the view up to date until ctx ends.
func (c *Client) watchBookies(ctx context.Context) {
	for list := range c.views.Bookies.Watch(ctx) {
		c.registered(list)
	}
}

// registered takes the set of registered bookies, from wherever it was read: who is new in it is pardoned. The next reader
// finds nothing new in the same set, so every one has to see to that.
func (c *Client) registered(list []metadata.Bookie) {
	for _, id := range c.view.set(list) {
		if p := c.knownPeer(id); p != nil {
			p.pardon()
		}
	}
}

// Candidates returns the registered bookies as placement sees them, asked for anew from the store.
func (c *Client) Candidates(ctx context.Context) ([]placement.Bookie, error) {
	if err := c.err(); err != nil {
		return nil, err
	}
	list, err := c.views.Bookies.List(ctx, metadata.AnyKind)
	if err != nil {
		return nil, fmt.Errorf("list bookies: %w", metaError(err))
	}
	c.registered(list)
	return c.candidates(), nil
}

// candidates returns the view for placement, in a stable order.
func (c *Client) candidates() []placement.Bookie {
	c.view.mu.Lock()
	defer c.view.mu.Unlock()
	all := make([]placement.Bookie, 0, len(c.view.sorted))
	for _, id := range c.view.sorted {
		b := c.view.bookies[id]
		if b.Damaged != nil {
			continue
		}
		quarantined, weight := c.standing(id)
		all = append(all, placement.Bookie{ID: id, Domain: b.Info.Properties[metadata.PropertyDomain], ReadOnly: b.ReadOnly, Quarantined: quarantined, Weight: weight})
	}
	return all
}

func (c *Client) quarantined(id BookieID) bool {
	p := c.knownPeer(id)
	return p != nil && p.isQuarantined()
}

// standing returns what this client holds against a bookie: whether it is in quarantine, and its weight in a choice.
func (c *Client) standing(id BookieID) (quarantined bool, weight float64) {
	p := c.knownPeer(id)
	if p == nil {
		return false, 1
	}
	return p.isQuarantined(), p.weight()
}

func random() float64 { return rand.Float64() }
