package ledgerclient

import (
	"context"
	"errors"
	"time"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
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
		if !sleep(ctx, pause) {
			w.post(writerEvent{metaOp: true, core: ledger.Event{Kind: ledger.EvMetaUnknown}, err: ctx.Err()})
			return
		}
		m, v, err := w.client.views.Ledgers.Read(ctx, w.id)
		w.post(writerEvent{metaOp: true, core: readOutcome(m, v, err), err: err})
	}) {
		cancel()
	}
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

// sleep waits for d or the end of ctx; it reports whether ctx still holds.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// desperateMax is how often in a row a writer that can reach no ack quorum without them takes bookies that failed a moment
// ago, before it gives up. It rides out a short cut of this client's own network, and ends soon where bookies are
// registered that nobody can reach.
const desperateMax = 3

// pick answers the core's request for bookies.
func (l *writerLoop) pick(indices ledger.IndexSet) {
	view := l.w.client.candidates()
	picks, ok := choosePicks(view, l.core.Ensemble(), indices, false)
	if !ok && !l.core.Record().Quorum().Reachable(l.core.Failed()&^placed(picks)) {
		if l.desperate < desperateMax {
			l.desperate++
			l.w.client.o.Logger.Warn("no healthy bookie left for the ensemble; trying those that failed a moment ago", "ledger", int64(l.w.id), "attempt", l.desperate)
			desperate, _ := choosePicks(view, l.core.Ensemble(), indices, true)
			w, pause := l.w, 200*time.Millisecond<<l.desperate
			if w.client.spawn(func() {
				sleep(w.client.ctx, pause)
				w.post(writerEvent{core: ledger.Event{Kind: ledger.EvPicked, Picks: desperate}})
			}) {
				return
			}
		}
	}
	l.step(ledger.Event{Kind: ledger.EvPicked, Picks: picks})
}

// couldReplace reports whether a pick would find something now.
func (l *writerLoop) couldReplace(indices ledger.IndexSet) bool {
	picks, _ := choosePicks(l.w.client.candidates(), l.core.Ensemble(), indices, false)
	return placed(picks) != 0
}

// choosePicks chooses a bookie for each index: another healthy one; else the one that is there, if it is healthy again; and
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
		b, found := placement.Replace(healthy, stay, exclude, random)
		for _, h := range healthy {
			if !found && h.ID == ensemble[i] {
				b, found = h.ID, true
			}
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
