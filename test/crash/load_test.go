//go:build crash

package crash

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/binderylog/bindery/internal/wire"
)

// load drives all bookies until ctx ends or their process dies.
func (w *world) load(ctx context.Context, addresses []string, seed uint64) {
	var ledgers, deferred []*ledgerState
	for _, l := range w.active() {
		if l.deferred {
			deferred = append(deferred, l)
		} else {
			ledgers = append(ledgers, l)
		}
	}
	var wg sync.WaitGroup
	for b, address := range addresses {
		for half := range 2 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(seed, uint64(b*2+half)))
				var mine []*replica
				for i, l := range ledgers {
					if i%2 == half {
						mine = append(mine, l.replicas[b])
					}
				}
				w.write(ctx, address, mine, rng)
			})
		}
		wg.Go(func() { w.disturb(ctx, b, address, ledgers, rand.New(rand.NewPCG(seed, uint64(1000+b)))) })
		wg.Go(func() {
			w.writeV3(ctx, b, address, ledgers, deferred, rand.New(rand.NewPCG(seed, uint64(2000+b))))
		})
	}
	wg.Wait()
}

// write sends adds to the replicas of one bookie.
func (w *world) write(ctx context.Context, address string, mine []*replica, rng *rand.Rand) {
	c, err := dial(address)
	if err != nil || len(mine) == 0 {
		return
	}
	defer c.close()
	window := 1 << rng.IntN(9)
	for ctx.Err() == nil && c.failed() == nil {
		r := mine[rng.IntN(len(mine))]
		for range 1 + rng.IntN(20) {
			w.sendAdd(c, r, rng)
			c.wait(window)
		}
		if rng.IntN(200) == 0 {
			window = 1 << rng.IntN(9)
		}
	}
	c.wait(0)
	if err := c.failed(); err != nil {
		w.lostConn(err)
	}
}

// sendAdd sends one add of a kind chosen by rng.
func (w *world) sendAdd(c *conn, r *replica, rng *rand.Rand) {
	r.mu.Lock()
	var flags wire.Flags
	fenced := r.fenced
	entry := r.next
	switch p := rng.IntN(100); {
	case fenced && p < 70:
		flags = wire.RecoveryAdd | wire.HighPriority
		r.next++
	case fenced: // to be refused, so it is not noted as sent
		entry = probeEntry + 1 + rng.Int64N(1<<30)
	case p < 4 && r.next > 0: // again what was sent before
		entry = rng.Int64N(r.next)
		if rng.IntN(2) == 0 {
			flags = wire.RecoveryAdd
		}
	case p < 6: // leave a gap, which the above may fill
		entry += rng.Int64N(40)
		r.next = entry + 1
	default:
		r.next++
	}
	if !fenced || flags != 0 {
		r.sentLocked(entry)
	}
	before := r.entries[entry]
	r.mu.Unlock()
	id := r.of.id
	if c.isOpen(wire.OpAdd, id, entry) {
		return // V2 could not tell the two answers apart
	}
	c.send(&wire.Request{Op: wire.OpAdd, Ledger: id, Entry: entry, Flags: flags, HasKey: true, Key: w.key(id), Body: w.body(id, entry)}, func(a answer) {
		switch {
		case a.err != nil || a.code == wire.TooMany:
		case a.code == wire.OK && fenced && flags == 0:
			w.wrongf("%s, entry %d: an add sent after a fence was answered is accepted", r, entry)
		case a.code == wire.OK:
			r.have(entry)
			w.count("adds acknowledged", 1)
		case a.code == wire.Fenced && flags == 0:
			r.mu.Lock()
			asked := r.asked
			r.mu.Unlock()
			if !asked && r.of.deleted.Load() == 0 {
				w.wrongf("%s, entry %d: an add is answered %s, and nobody fenced the ledger", r, entry, a.code)
			}
			w.count("adds refused by a fence", 1)
		case r.of.deleted.Load() > 0 && a.code == wire.Fenced:
		default:
			w.wrongf("%s, entry %d (flags %d, known as %d): an add is answered %s", r, entry, flags, before, a.code)
		}
	})
}

// disturb reads, fences and tries wrong keys while others write.
func (w *world) disturb(ctx context.Context, bookie int, address string, ledgers []*ledgerState, rng *rand.Rand) {
	c, err := dial(address)
	if err != nil || len(ledgers) == 0 {
		return
	}
	defer c.close()
	tick := time.NewTicker(15 * time.Millisecond)
	defer tick.Stop()
	for c.failed() == nil {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		r := ledgers[rng.IntN(len(ledgers))].replicas[bookie]
		switch p := rng.IntN(100); {
		case p < 3:
			w.fence(c, r, rng)
		case p < 5: // a ledger that the bookie has never heard of and that has no record
			w.fence(c, w.add(1<<41+rng.Int64N(1<<40), false, false).replicas[bookie], rng)
		case p < 15:
			w.wrongKey(c, r)
		default:
			for range 8 {
				w.readSome(c, r, rng)
			}
			c.wait(0)
		}
	}
}

// fence sends a fencing read and notes the answer.
func (w *world) fence(c *conn, r *replica, rng *rand.Rand) {
	r.mu.Lock()
	r.asked = true
	entry := int64(-1)
	if r.next > 0 && rng.IntN(2) == 0 {
		entry = rng.Int64N(r.next + 2)
	}
	r.mu.Unlock()
	a := c.do(&wire.Request{Op: wire.OpRead, Ledger: r.of.id, Entry: entry, Flags: wire.Fence, HasKey: true, Key: w.key(r.of.id)})
	switch {
	case a.err != nil || a.code == wire.TooMany:
	case a.code == wire.OK, a.code == wire.NoEntry, a.code == wire.NoLedger:
		r.mu.Lock()
		r.fenced, r.bound = true, true
		r.mu.Unlock()
		w.count("fences answered", 1)
	default:
		w.wrongf("%s: a fencing read of entry %d is answered %s", r, entry, a.code)
	}
}

func (w *world) wrongKey(c *conn, r *replica) {
	r.mu.Lock()
	bound := r.bound
	r.mu.Unlock()
	if !bound {
		return
	}
	id := r.of.id
	a := c.do(&wire.Request{Op: wire.OpAdd, Ledger: id, Entry: probeEntry, HasKey: true, Key: w.key(id ^ 1<<50), Body: w.body(id, probeEntry)})
	if a.err == nil && a.code != wire.UA && a.code != wire.TooMany && r.of.deleted.Load() == 0 {
		w.wrongf("%s: an add with another master key is answered %s", r, a.code)
	}
}

// readSome reads an entry that is there.
func (w *world) readSome(c *conn, r *replica, rng *rand.Rand) {
	r.mu.Lock()
	if r.next == 0 {
		r.mu.Unlock()
		return
	}
	entry := rng.Int64N(r.next)
	st, ok := r.entries[entry]
	r.mu.Unlock()
	if !ok || st != acked {
		return // it may be written at this moment
	}
	c.send(&wire.Request{Op: wire.OpRead, Ledger: r.of.id, Entry: entry}, func(a answer) {
		if a.code == wire.TooMany {
			return
		}
		w.checkRead(r, entry, st, a, false)
	})
}
