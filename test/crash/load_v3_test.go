//go:build crash

package crash

import (
	"context"
	"math/rand/v2"

	"github.com/binderylog/bindery/internal/wire"
)

// writeV3 does what only V3 can: deferred adds with forces, and explicit LACs.
func (w *world) writeV3(ctx context.Context, bookie int, address string, ledgers, deferred []*ledgerState, rng *rand.Rand) {
	c, err := dialForm(address, wire.V3)
	if err != nil {
		return
	}
	defer c.close()
	for ctx.Err() == nil && c.failed() == nil && len(ledgers)+len(deferred) > 0 {
		if len(deferred) > 0 && rng.IntN(2) == 0 {
			w.addDeferred(c, deferred[rng.IntN(len(deferred))].replicas[bookie], rng)
		} else if len(ledgers) > 0 {
			w.writeLAC(c, ledgers[rng.IntN(len(ledgers))].replicas[bookie], rng)
		}
	}
	if err := c.failed(); err != nil {
		w.lostConn(err)
	}
}

// addDeferred sends deferred adds, waits for their answers, and then, most times, forces them. Only a force makes
// promises about them.
func (w *world) addDeferred(c *conn, r *replica, rng *rand.Rand) {
	id := r.of.id
	var answered []int64
	for range 1 + rng.IntN(30) {
		r.mu.Lock()
		entry, fenced := r.next, r.fenced
		if fenced {
			entry = probeEntry + 1 + rng.Int64N(1<<30)
		} else {
			r.next++
			r.sentLocked(entry)
		}
		r.mu.Unlock()
		c.send(&wire.Request{
			Op: wire.OpAdd, Ledger: id, Entry: entry, WriteFlags: wire.DeferredSync, HasKey: true, Key: w.key(id), Body: w.body(id, entry),
		}, func(a answer) {
			switch {
			case a.err != nil || a.code == wire.TooMany:
			case a.code == wire.OK && fenced:
				w.wrongf("%s, entry %d: a deferred add sent after a fence was answered is accepted", r, entry)
			case a.code == wire.OK:
				answered = append(answered, entry) // the receiver's goroutine alone, until wait returns
			case a.code == wire.Fenced:
				// An unclean stop with un-synced deferred adds fences a ledger by itself; that has to last.
				r.mu.Lock()
				r.asked, r.fenced = true, true
				r.mu.Unlock()
			default:
				w.wrongf("%s, entry %d: a deferred add is answered %s", r, entry, a.code)
			}
		})
		if fenced {
			break
		}
	}
	c.wait(0)
	if c.failed() != nil || rng.IntN(5) == 0 {
		return
	}
	a := c.do(&wire.Request{Op: wire.OpForce, Ledger: id})
	switch {
	case a.err != nil || a.code == wire.TooMany || a.code == wire.IO: // decision of the bookie after an unclean stop
	case a.code == wire.OK:
		for _, entry := range answered {
			r.have(entry)
		}
		w.count("deferred adds forced", int64(len(answered)))
	case a.code == wire.NoLedger && (len(answered) == 0 || r.of.deleted.Load() > 0):
	default:
		w.wrongf("%s: a force is answered %s", r, a.code)
	}
}

// writeLAC stores an explicit LAC.
func (w *world) writeLAC(c *conn, r *replica, rng *rand.Rand) {
	r.mu.Lock()
	r.lacMax += 1 + rng.Int64N(5)
	lac, fenced := r.lacMax, r.asked
	r.mu.Unlock()
	id := r.of.id
	a := c.do(&wire.Request{Op: wire.OpWriteLAC, Ledger: id, LAC: lac, HasKey: true, Key: w.key(id), Body: seal.SealLAC(nil, id, lac)})
	switch {
	case a.err != nil || a.code == wire.TooMany:
	case a.code == wire.OK:
		r.mu.Lock()
		r.lac, r.bound = max(r.lac, lac), true
		r.mu.Unlock()
		w.count("explicit LACs answered", 1)
	case r.of.deleted.Load() > 0 && (a.code == wire.Fenced || a.code == wire.NoLedger):
	case a.code == wire.Fenced && fenced:
	default:
		w.wrongf("%s: an explicit LAC is answered %s", r, a.code)
	}
}

// verifyLACs checks the explicit LACs that a bookie answered.
func (w *world) verifyLACs(bookie int, address string) error {
	c, err := dialForm(address, wire.V3)
	if err != nil {
		return err
	}
	defer c.close()
	for _, l := range w.active() {
		r := l.replicas[bookie]
		r.mu.Lock()
		least, most := r.lac, r.lacMax
		r.mu.Unlock()
		if least < 0 {
			continue
		}
		a := c.do(&wire.Request{Op: wire.OpReadLAC, Ledger: l.id})
		if a.err != nil {
			return a.err
		}
		lac, err := int64(-1), error(nil)
		if a.code == wire.OK {
			lac, err = seal.OpenLAC(a.body, l.id)
		}
		if a.code != wire.OK || err != nil || lac < least || lac > most {
			w.wrongf("%s: an explicit LAC of %d was answered; now a read of it says %s, %d (%v)", r, least, a.code, lac, err)
		}
		w.count("explicit LACs verified", 1)
	}
	return c.failed()
}
