package bktest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/offload"
	"github.com/binderylog/bindery/offload/protocol"
)

// offloadPrefix is where the offload records lie, beside the ledgers root.
const offloadPrefix = metadata.DefaultRoot + "-offload/"

// releaseTakes is above what lies between a release's look at the objects and the landing of its write, in a store that is in trouble.
const releaseTakes = 25 * time.Second

// targetLost notes that a target has lost its objects.
func (c *Checker) targetLost(target string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lostTargets == nil {
		c.lostTargets = map[string]time.Time{}
	}
	c.lostTargets[target] = time.Now()
}

// wroteOffload looks at a version of an offload record. It reports false for other keys.
func (c *Checker) wroteOffload(key string, value []byte) bool {
	rel, ok := strings.CutPrefix(key, offloadPrefix)
	if !ok {
		return false
	}
	var scheme metadata.Scheme
	id, parent, err := scheme.ParseLedgerPath(rel)
	if err != nil || parent { // a lock
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.ledger(int64(id))
	if value == nil {
		if l.tier != nil && l.tier.State != protocol.Deleting && !l.tier.Idle {
			c.h.Break("T1", "the offload record of ledger %d is removed, it was %s", id, l.tier.State)
		}
		l.tier = nil
		c.h.Add("store", "offload record of ledger %d removed", id)
		return true
	}
	r, err := offload.DecodeRecord(key, value)
	if err != nil {
		c.h.Break("T1", "offload record of ledger %d: %v", id, err)
		return true
	}
	old := l.tier
	if old == nil || old.State != r.State || old.Attempt != r.Attempt {
		c.h.Add("store", "offload record of ledger %d: %s attempt %.8s, ends at %d, %d abandoned", id, r.State, r.Attempt, r.LastEntry, len(r.Garbage))
	}
	if why := c.tierStep(l, old, r); why != "" {
		c.h.Break("T1", "offload record of ledger %d becomes %s: %s", id, r.State, why)
	}
	l.tier = r
	return true
}

// tierStep says what is wrong with a change of an offload record.
func (c *Checker) tierStep(l *ledgerView, old, r *offload.Record) string {
	was := protocol.Absent
	if old != nil {
		was = old.State
	}
	same := old != nil && old.Attempt == r.Attempt
	switch {
	case was == protocol.Released && r.State != protocol.Released && r.State != protocol.Deleting, was == protocol.Deleting && r.State != protocol.Deleting,
		r.State == protocol.Deleting && was == protocol.Absent:
		return "it was " + was.String()
	case was == r.State && same:
		return ""
	case r.State == protocol.Complete:
		if was != protocol.Uploading || !same {
			return "another attempt was under way"
		}
		return c.committed(l, r)
	case r.State == protocol.Released:
		if was != protocol.Complete || !same {
			return "it was not complete"
		}
		return c.released(l, r)
	}
	return ""
}

// committed checks a commit: the ledger is as it was uploaded, and every object is there.
func (c *Checker) committed(l *ledgerView, r *offload.Record) string {
	if l.gone || l.record.State != ledger.StateClosed || l.record.LastEntry != r.LastEntry || l.record.Length != r.Length {
		return fmt.Sprintf("the ledger's record is %s (gone %v)", describe(l.record), l.gone)
	}
	if missing := c.missing(l, r); len(missing) > 0 && len(c.lostTargets) == 0 {
		return fmt.Sprintf("%v are missing", missing)
	}
	return ""
}

// released checks what a release relies on.
func (c *Checker) released(l *ledgerView, r *offload.Record) string {
	if lag := time.Since(time.UnixMilli(r.CompletedAt)); lag < c.tier.c.cfg.Tier.Lag {
		return fmt.Sprintf("the lag is %v, only %v have passed", c.tier.c.cfg.Tier.Lag, lag)
	}
	if l.gone || string(l.record.Custom["bindery.tier"]) != "release" {
		return fmt.Sprintf("its owner has not agreed (gone %v)", l.gone)
	}
	m, err := metadata.DecodeLedger("offload record", r.LedgerMetadata)
	if err != nil || describe(m) != describe(l.record) {
		return fmt.Sprintf("the ledger's record is %s, the objects were looked at with %s: %v", describe(l.record), describe(m), err)
	}
	for _, x := range c.missing(l, r) {
		target, _, _ := strings.Cut(x, ":")
		if at, ok := c.lostTargets[target]; !ok || time.Since(at) > releaseTakes {
			return x + " is missing"
		}
	}
	return ""
}

// missing lists the objects that a record names and that are not there, as target:key.
func (c *Checker) missing(l *ledgerView, r *offload.Record) (out []string) {
	for target, keys := range implied(ledger.ID(l.id), r) {
		for _, key := range keys {
			if !c.tier.has(target, key) {
				out = append(out, target+":"+key)
			}
		}
	}
	return out
}

// implied lists, by target, the objects that a record names.
func implied(id ledger.ID, r *offload.Record) map[string][]string {
	out := map[string][]string{}
	if r.State != protocol.Complete && r.State != protocol.Released {
		return out
	}
	for _, t := range r.Manifest.Targets {
		out[t] = append(out[t], offload.ManifestName(r.Attempt, id))
	}
	for i, p := range r.Placement {
		if !r.Inline && !p.Missing {
			out[p.Target] = append(out[p.Target], offload.ShardName(r.Attempt, id, i, p.Generation))
		}
	}
	return out
}

// deletedLedger looks at the deletion of a ledger's record that the tier knows.
func (c *Checker) deletedLedger(l *ledgerView) {
	if l.tier == nil {
		return
	}
	switch l.tier.State {
	case protocol.Uploading, protocol.Complete:
		c.h.Break("T2", "the record of ledger %d is deleted, its offload record is %s", l.id, l.tier.State)
	case protocol.Released:
		l.released = true
	}
}

// settleWithin is how long the tier may take once all trouble is over.
const settleWithin = 15 * time.Minute

// settle waits until the tier has nothing left to do, and checks what it holds.
func (t *tier) settle(skip func(ledger.ID) bool) {
	c := t.c
	v := c.calmViews()
	defer func() { _ = v.Store.Close() }()
	left := "it did not begin"
	for began, quiet := time.Now(), 0; time.Since(began) < settleWithin; {
		if !elapse(c.ctx, 2*time.Second) {
			return
		}
		if left = t.unsettled(v, skip); left != "" {
			quiet = 0
		} else if quiet++; quiet == 3 {
			return
		}
	}
	c.h.Break("T3", "the tier does not settle within %v: %s", settleWithin, left)
}

// unsettled says what the tier has to do yet, or holds too much.
func (t *tier) unsettled(v *metadata.Views, skip func(ledger.ID) bool) string {
	c := t.c
	records := offload.NewRecords(v)
	known, want := map[ledger.ID]*offload.Record{}, map[string]map[string]bool{}
	for x, err := range records.All(c.ctx) {
		if err = errors.Join(err, x.Err); err != nil {
			return err.Error()
		}
		r := x.Record
		known[x.Ledger] = r
		if s := r.State; s == protocol.Uploading || s == protocol.Deleting || len(r.Garbage) > 0 || len(r.Stale) > 0 || r.Missing() > 0 {
			return fmt.Sprintf("ledger %d is %s, %d attempts, %d objects to be removed, %d shards missing", x.Ledger, s, len(r.Garbage), len(r.Stale), r.Missing())
		}
		for target, keys := range implied(x.Ledger, r) {
			if want[target] == nil {
				want[target] = map[string]bool{}
			}
			for _, key := range keys {
				want[target][key] = true
			}
		}
	}
	for r, err := range v.Ledgers.Records(c.ctx) {
		if err != nil {
			return err.Error()
		}
		m, x := r.Metadata, known[r.ID]
		switch {
		case m.State != ledger.StateClosed || m.LastEntry < 0 || skip(r.ID):
		case x == nil:
			return fmt.Sprintf("ledger %d has not been offloaded", r.ID)
		case c.cfg.Tier.Lag >= 0 && string(m.Custom["bindery.tier"]) == "release":
			return fmt.Sprintf("ledger %d is %s, and not released", r.ID, x.State)
		}
	}
	for i, s := range t.stores {
		have := s.Keys()
		for _, key := range have {
			if !want[targetID(i)][key] {
				return fmt.Sprintf("%s holds %s, which no record names", targetID(i), key)
			}
		}
		if len(have) != len(want[targetID(i)]) {
			return fmt.Sprintf("%s holds %d objects, the records name %d", targetID(i), len(have), len(want[targetID(i)]))
		}
		if n := len(s.Uploads()); n > 0 {
			return fmt.Sprintf("%s holds %d uploads", targetID(i), n)
		}
	}
	return ""
}

// finish lets the tier settle, reads every ledger from where it is now, deletes some, and sees that nothing is left of them.
func (t *tier) finish(w *work) {
	c := t.c
	t.settle(w.lost)
	k := &client{w: w, name: "reader"}
	k.boot()
	defer func() { _ = k.process().Close() }()
	var gone []*book
	for i, b := range c.books.all() {
		switch {
		case b.deleted.Load():
			gone = append(gone, b)
			continue
		case w.lost(b.id):
			continue
		}
		w.readAll(k, b)
		if i%3 == 0 {
			k.delete(b)
			gone = append(gone, b)
		}
	}
	t.settle(w.lost)
	for _, b := range gone {
		t.nothing(k, b)
	}
}

// collectWithin is how long bookies may take to drop a ledger that is gone.
const collectWithin = 3 * time.Minute

// nothing checks that a deleted ledger, and one that is in the tier alone, is on no bookie any more. A deletion that failed while the
// store was in trouble may not have happened.
func (t *tier) nothing(k *client, b *book) {
	c := t.c
	v := c.calmViews()
	defer func() { _ = v.Store.Close() }()
	if _, _, err := v.Ledgers.Read(c.ctx, b.id); !errors.Is(err, metadata.ErrNoLedger) {
		return
	}
	m := c.check.recordOf(int64(b.id))
	if m == nil || m.LastEntry < 0 {
		return
	}
	copies, err := k.process().Copies(b.id, m)
	if err != nil {
		c.h.Break("setup", "%v", err)
		return
	}
	left := ""
	for began := time.Now(); time.Since(began) < collectWithin; {
		left = ""
		for _, x := range c.members {
			for _, e := range []ledger.EntryID{0, m.LastEntry} {
				if x.up && left == "" {
					if _, answer, _ := copies.Read(c.ctx, ledger.BookieID(x.name), e); answer == ledger.AnswerOK {
						left = fmt.Sprintf("%s has entry %d", x.name, e)
					}
				}
			}
		}
		if left == "" || !elapse(c.ctx, 5*time.Second) {
			return
		}
	}
	c.h.Break("T4", "ledger %d is deleted, and %v later %s", b.id, collectWithin, left)
}

// recordOf is the last record of a ledger.
func (c *Checker) recordOf(id int64) *ledger.Metadata {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ledger(id).record
}
