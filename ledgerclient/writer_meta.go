package ledgerclient

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/pace"
	"github.com/binderylog/bindery/internal/wire"
	"github.com/binderylog/bindery/ledgerclient/placement"
)

// metaState is the writer's side of a loop over the metadata record.
type metaState struct {
	deadline time.Time // of the loop; zero while nothing is under way
	pause    time.Duration
	err      error // of the last operation
}

// metaWrite starts the compare-and-set that the core asks for.
func (l *writerLoop) metaWrite(a *ledger.Action) {
	l.beginMeta()
	ctx, cancel := l.ctxFor(time.Until(l.meta.deadline))
	w, record, version := l.w, a.Record, metadata.Version(a.Version)
	if !w.client.spawn(func() {
		defer cancel()
		v, err := w.client.views.Ledgers.Write(ctx, w.id, record, version)
		w.post(writerEvent{metaOp: true, core: writeOutcome(v, err), err: err})
	}) {
		cancel()
	}
}

// metaRead starts the linearizable read that the core asks for.
func (l *writerLoop) metaRead(retry bool) {
	l.beginMeta()
	pause := time.Duration(0)
	if retry {
		l.meta.pause = min(max(2*l.meta.pause, 20*time.Millisecond), time.Second)
		pause = l.meta.pause
		if time.Now().Add(pause).After(l.meta.deadline) {
			l.meta.deadline = time.Time{}
			l.step(ledger.Event{Kind: ledger.EvMetaTimeout})
			return
		}
	}
	ctx, cancel := l.ctxFor(time.Until(l.meta.deadline))
	w := l.w
	if !w.client.spawn(func() {
		defer cancel()
		if pace.Sleep(ctx, pause) != nil {
			w.post(writerEvent{metaOp: true, core: ledger.Event{Kind: ledger.EvMetaUnknown}, err: ctx.Err()})
			return
		}
		m, v, err := w.client.views.Ledgers.Read(ctx, w.id)
		w.post(writerEvent{metaOp: true, core: readOutcome(m, v, err), err: err})
	}) {
		cancel()
	}
}

// ctxFor bounds one operation of the metadata store.
func (l *writerLoop) ctxFor(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(l.w.client.ctx, d)
}

// beginMeta starts the clock of a loop.
func (l *writerLoop) beginMeta() {
	if l.meta.deadline.IsZero() {
		l.meta = metaState{deadline: time.Now().Add(l.w.client.o.MetadataTimeout)}
	}
}

// metaDone feeds an outcome to the core. A loop ends with a success or with what makes the core go another way.
func (l *writerLoop) metaDone(ev ledger.Event, err error) {
	l.meta.err = err
	switch ev.Kind {
	case ledger.EvWritten, ledger.EvGone:
		l.meta = metaState{}
	case ledger.EvMetaUnknown:
		l.w.client.m.metadataRetries.Inc()
		l.w.client.o.Logger.Warn("ledger metadata: outcome unknown, reading again", "ledger", int64(l.w.id), "error", err)
	}
	l.step(ev)
}

// writeOutcome maps the result of a compare-and-set to an event. Every error that does not prove that nothing was written
// is an unknown outcome; so is an unavailable store, for the core then looks again.
func writeOutcome(v metadata.Version, err error) ledger.Event {
	switch {
	case err == nil:
		return ledger.Event{Kind: ledger.EvWritten, Version: int64(v)}
	case errors.Is(err, metadata.ErrNoLedger):
		return ledger.Event{Kind: ledger.EvGone}
	case errors.Is(err, metadata.ErrVersion):
		return ledger.Event{Kind: ledger.EvConflict}
	}
	return ledger.Event{Kind: ledger.EvMetaUnknown}
}

func readOutcome(m *ledger.Metadata, v metadata.Version, err error) ledger.Event {
	switch {
	case err == nil:
		return ledger.Event{Kind: ledger.EvRead, Record: m, Version: int64(v)}
	case errors.Is(err, metadata.ErrNoLedger):
		return ledger.Event{Kind: ledger.EvGone}
	}
	return ledger.Event{Kind: ledger.EvMetaUnknown}
}

// desperateMax is how often in a row a writer that can reach no ack quorum without them takes bookies that failed a moment
// ago, before it gives up. It rides out a short cut of this client's own network, and ends soon where bookies are
// registered that nobody can reach.
const desperateMax = 3

// pick answers the core's request for bookies, in the background: whoever is chosen is connected to first, so that the
// record never names a bookie that this client can not reach.
func (l *writerLoop) pick(indices ledger.IndexSet) {
	w, ensemble, failed, q := l.w, l.core.Ensemble(), l.core.Failed(), l.core.Record().Quorum()
	back := w.delay && q.Reachable(failed) && !l.core.Urgent() // only those that answer again
	desperate := l.desperate < desperateMax
	attempt := l.desperate + 1
	if !w.client.spawn(func() {
		ev := writerEvent{}
		if back {
			ev.core = ledger.Event{Kind: ledger.EvPicked, Picks: returned(w.client.candidates(), ensemble, indices)}
			w.post(ev)
			return
		}
		picks := w.client.reachablePicks(w.client.ctx, ensemble, indices, w.proto)
		if desperate && !q.Reachable(failed&^placed(picks)) {
			w.client.o.Logger.Warn("no healthy bookie left for the ensemble; trying those that failed a moment ago", "ledger", int64(w.id), "attempt", attempt)
			_ = pace.Sleep(w.client.ctx, 200*time.Millisecond<<attempt)
			picks, _ = choosePicks(w.client.candidates(), ensemble, indices, true)
			ev.desperate = true
			for _, k := range picks {
				w.client.peer(k.Bookie).redial()
			}
		}
		ev.core = ledger.Event{Kind: ledger.EvPicked, Picks: picks}
		w.post(ev)
	}) {
		return // the client is closed, and so will be the loop
	}
}

// probeRounds is how often in one pick a bookie that turned out not to be reachable is replaced by another candidate.
const probeRounds = 3

// reachablePicks chooses bookies and connects to them. Who can not be reached is quarantined by that and not chosen again;
// after some rounds only bookies that are connected already are left to choose from.
func (c *Client) reachablePicks(ctx context.Context, ensemble []BookieID, indices ledger.IndexSet, proto wire.Proto) []ledger.Pick {
	for round := 1; ; round++ {
		view := c.candidates()
		if round > probeRounds {
			known := view[:0]
			for _, b := range view {
				if c.peer(b.ID).connected(proto) {
					known = append(known, b)
				}
			}
			view = known
		}
		picks, _ := choosePicks(view, ensemble, indices, false)
		var chosen []BookieID
		for _, p := range picks {
			if p.Bookie != "" {
				chosen = append(chosen, p.Bookie)
			}
		}
		if round > probeRounds || c.probe(ctx, chosen, proto) {
			return picks
		}
	}
}

// probe connects to bookies, all at once, and reports whether every one of them is there.
func (c *Client) probe(ctx context.Context, bookies []BookieID, proto wire.Proto) bool {
	ok := true
	conns := make([]*conn, len(bookies))
	for i, b := range bookies {
		conns[i] = c.peer(b).conn(proto)
	}
	for _, x := range conns {
		select {
		case <-x.up:
		case <-x.dead:
			ok = false
		case <-ctx.Done():
			return false
		}
	}
	return ok
}

// retry looks for bookies for the indices that go without. If there are none, the members that failed are connected to
// again: one that answers leaves its quarantine.
func (l *writerLoop) retry(probe bool) {
	if !l.core.Degraded() {
		return
	}
	failed := l.core.Failed()
	if l.w.delay && l.core.Record().Quorum().Reachable(failed) {
		if placed(returned(l.w.client.candidates(), l.core.Ensemble(), failed)) != 0 {
			l.step(ledger.Event{Kind: ledger.EvRetry})
			return
		}
	} else if l.couldReplace(failed) {
		l.step(ledger.Event{Kind: ledger.EvRetry})
		return
	}
	if !probe {
		return
	}
	w := l.w
	for i, b := range l.core.Ensemble() {
		if !l.core.Failed().Has(i) {
			continue
		}
		w.client.spawn(func() {
			if w.client.probe(w.client.ctx, []BookieID{b}, w.proto) {
				w.post(writerEvent{retry: true})
			}
		})
	}
}

// returned picks, of the members that failed, those that are healthy again.
func returned(view []placement.Bookie, ensemble []BookieID, failed ledger.IndexSet) []ledger.Pick {
	var picks []ledger.Pick
	for i, b := range ensemble {
		if failed.Has(i) && slices.ContainsFunc(view, func(h placement.Bookie) bool { return h.ID == b && !h.Quarantined && !h.ReadOnly }) {
			picks = append(picks, ledger.Pick{Index: i, Bookie: b})
		}
	}
	return picks
}

// couldReplace reports whether a pick would find something now.
func (l *writerLoop) couldReplace(indices ledger.IndexSet) bool {
	picks, _ := choosePicks(l.w.client.candidates(), l.core.Ensemble(), indices, false)
	return placed(picks) != 0
}

// choosePicks chooses a bookie for each index: the one that is there, if it is healthy again; else another healthy one; and
// with desperate the one that is there, healthy or not, which at least needs no change of the record. ok is false if some
// index got none.
func choosePicks(view []placement.Bookie, ensemble []BookieID, indices ledger.IndexSet, desperate bool) (picks []ledger.Pick, ok bool) {
	healthy := make([]placement.Bookie, 0, len(view))
	for _, b := range view {
		if !b.Quarantined && !b.ReadOnly {
			healthy = append(healthy, b)
		}
	}
	var stay, exclude []BookieID
	for i, b := range ensemble {
		if !indices.Has(i) {
			stay = append(stay, b)
		}
		exclude = append(exclude, b)
	}
	ok = true
	for i := range ensemble {
		if !indices.Has(i) {
			continue
		}
		b, found := ensemble[i], slices.ContainsFunc(healthy, func(h placement.Bookie) bool { return h.ID == ensemble[i] })
		if !found {
			b, found = placement.Replace(healthy, stay, exclude, random)
		}
		if !found && desperate {
			b, found = ensemble[i], true
		}
		if found {
			stay, exclude = append(stay, b), append(exclude, b)
		}
		ok = ok && found
		picks = append(picks, ledger.Pick{Index: i, Bookie: b})
	}
	return picks, ok
}

// placed returns the indices that picks fill.
func placed(picks []ledger.Pick) ledger.IndexSet {
	var s ledger.IndexSet
	for _, p := range picks {
		if p.Bookie != "" {
			s = s.With(p.Index)
		}
	}
	return s
}
