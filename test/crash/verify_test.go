//go:build crash

package crash

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/binderylog/bindery/internal/digest"
	"github.com/binderylog/bindery/internal/wire"
)

// probeEntry is an entry id that no load writes: adds with it must be refused.
const probeEntry = int64(1) << 40

// verify checks everything that a bookie has promised so far. It is called after a start, before any load.
func (w *world) verify(bookie int, address string, seed uint64) error {
	c, err := dial(address)
	if err != nil {
		return err
	}
	defer c.close()
	rng := rand.New(rand.NewPCG(seed, uint64(bookie)))
	for _, l := range w.all() {
		if err := w.verifyReplica(c, l.replicas[bookie], rng); err != nil {
			return err
		}
		if err := c.failed(); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) verifyReplica(c *conn, r *replica, rng *rand.Rand) error {
	r.mu.Lock()
	before := maps.Clone(r.entries)
	last, bound, fenced := r.last, r.bound, r.fenced
	r.mu.Unlock()

	entries := slices.Sorted(maps.Keys(before))
	if rng.IntN(3) == 0 {
		rng.Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
	}
	for _, entry := range entries {
		c.send(&wire.Request{Op: wire.OpRead, Ledger: r.of.id, Entry: entry}, func(a answer) {
			w.checkRead(r, entry, before[entry], a, true)
		})
		if c.wait(128); c.failed() != nil {
			return c.failed()
		}
	}
	if c.wait(0); c.failed() != nil {
		return c.failed()
	}
	w.count("entries verified", int64(len(entries)))

	r.mu.Lock()
	last = max(last, r.last)
	r.mu.Unlock()
	if r.of.deleted.Load() == 0 {
		w.checkLast(r, last, c.do(&wire.Request{Op: wire.OpRead, Ledger: r.of.id, Entry: -1}))
	}
	if bound && r.of.deleted.Load() == 0 && r.of.recorded {
		a := c.do(&wire.Request{Op: wire.OpAdd, Ledger: r.of.id, Entry: probeEntry, HasKey: true, Key: w.key(r.of.id ^ 1<<50), Body: w.body(r.of.id, probeEntry)})
		if a.err == nil && a.code != wire.UA {
			w.wrongf("%s: an add with another master key is answered %s", r, a.code)
		}
	}
	if fenced {
		a := c.do(&wire.Request{Op: wire.OpAdd, Ledger: r.of.id, Entry: probeEntry, HasKey: true, Key: w.key(r.of.id), Body: w.body(r.of.id, probeEntry)})
		if a.err == nil && a.code != wire.Fenced {
			w.wrongf("%s: it answered a fence, and answers an add with %s", r, a.code)
		}
		w.count("fences verified", 1)
	}
	return c.failed()
}

// checkRead judges the answer to a read of an entry of which st was known. settled says that the bookie has just
// started and got nothing since: what it has it keeps, what it has not it never gets back.
func (w *world) checkRead(r *replica, entry int64, st status, a answer, settled bool) {
	switch {
	case a.err != nil:
	case a.code == wire.OK:
		if !bytes.Equal(a.body, w.body(r.of.id, entry)) {
			w.wrongf("%s, entry %d: read back other bytes (%d of %d)", r, entry, len(a.body), len(w.body(r.of.id, entry)))
		}
		if st == absent {
			w.wrongf("%s, entry %d: was not there after an earlier start, and is now", r, entry)
		}
		if settled {
			r.have(entry)
		}
	case a.code != wire.NoEntry && a.code != wire.NoLedger:
		w.wrongf("%s, entry %d: read answered %s", r, entry, a.code)
	case r.of.deleted.Load() > 0:
	case st == acked:
		w.wrongf("%s, entry %d: acknowledged, and read answered %s", r, entry, a.code)
	case settled:
		r.mu.Lock()
		r.entries[entry] = absent
		r.mu.Unlock()
	}
}

// checkLast judges the answer to a read of entry -1 right after a start.
func (w *world) checkLast(r *replica, last int64, a answer) {
	switch {
	case a.err != nil:
	case a.code == wire.OK:
		id, entry, _, _, err := digest.Header(a.body)
		if err != nil || id != r.of.id || entry != last || !bytes.Equal(a.body, w.body(id, entry)) {
			w.wrongf("%s: the last entry is said to be %d of ledger %d, it is %d (%v)", r, entry, id, last, err)
		}
	case last >= 0 || a.code != wire.NoEntry && a.code != wire.NoLedger:
		w.wrongf("%s: a read of the last entry, which is %d, is answered %s", r, last, a.code)
	}
}

// verifyAll verifies all bookies at once. It returns the first error of a connection: the process has died.
func (w *world) verifyAll(addresses []string, seed uint64) error {
	errs := make([]error, len(addresses))
	var wg sync.WaitGroup
	for b, address := range addresses {
		wg.Go(func() {
			if errs[b] = w.verify(b, address, seed); errs[b] == nil {
				errs[b] = w.verifyLACs(b, address)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
