package ledgerclient

import (
	"fmt"
	"slices"
	"time"

	"github.com/binderylog/bindery/internal/ledger"
)

// timeouts looks at everything that must not take too long.
func (l *writerLoop) timeouts() {
	o := l.w.client.o
	limit := ticks(o.AddTimeout)
	for _, ln := range l.lanes {
		if ln != nil && ln.outstanding > 0 && l.now-ln.progress > limit {
			ln.conn.fail(ErrTimeout) // nothing comes over it any more; what it holds must be freed
		} else if ln != nil && l.tooFarBehind(ln, limit) {
			l.w.client.m.slowReplicas.Inc()
			ln.conn.fail(fmt.Errorf("%w: it is %v behind the ack quorum", ErrTimeout, time.Since(ln.probeAt).Round(time.Millisecond)))
		}
	}
	if p := l.ops.get(l.ops.first); p != nil && !l.core.Changing() && l.core.Cause() == ledger.CauseNone && l.now-p.sent > limit+ticks(time.Second) {
		for i, b := range l.core.Ensemble() {
			if l.core.Missing().Has(i) {
				p := l.w.client.peer(b)
				p.quarantine(ErrTimeout)
				l.bookieFailed(i, p, ErrTimeout)
			}
		}
	}
	if !l.core.Degraded() {
		l.retryPause = 0
	} else if l.now >= l.retryAt {
		l.retryPause = min(max(2*l.retryPause, time.Second), 16*time.Second)
		l.retryAt = l.now + ticks(l.retryPause)
		l.retry(true)
	}
	switch {
	case o.ExplicitLACInterval < 0:
	case !l.core.LACUnsent():
		l.lacAt = 0
	case l.lacAt == 0:
		l.lacAt = l.now + ticks(o.ExplicitLACInterval) - ticks(tickEvery)
	case l.now >= l.lacAt:
		l.lacAt = 0
		l.step(ledger.Event{Kind: ledger.EvLACTick})
	}
}

// tooFarBehind reports whether a bookie that does answer lags behind the others by more than AddTimeout: entries wait in its
// queue that an ack quorum confirmed long ago, and hold their memory. While appends wait for that memory, a quarter of the
// time is enough: one slow replica must not set the pace of all writers of this client.
func (l *writerLoop) tooFarBehind(ln *lane, limit int64) bool {
	if ln.probe == InvalidEntry || ln.probe >= l.ops.first || l.w.deferred { // deferred: another bookie would end the ledger
		ln.behind = 0
		return false
	}
	if ln.behind == 0 {
		ln.behind = l.now
	}
	if l.w.client.budget.waiting.Load() > 0 {
		limit /= 4
	}
	return l.now-ln.behind > limit && l.hasSpare()
}

// hasSpare reports whether some healthy bookie is outside the ensemble.
func (l *writerLoop) hasSpare() bool {
	for _, b := range l.w.client.candidates() {
		if !b.Quarantined && !b.ReadOnly && !slices.Contains(l.core.Ensemble(), b.ID) {
			return true
		}
	}
	return false
}

// tickEvery is how often a writer with anything under way looks at its time-outs.
const tickEvery = 250 * time.Millisecond

// arm asks the wheel for the next look, if there is something to look at.
func (l *writerLoop) arm() {
	if l.armed || l.closed != nil {
		return
	}
	need := l.ops.n > 0 || l.core.Degraded() || l.w.client.o.ExplicitLACInterval >= 0 && l.core.LACUnsent()
	for _, ln := range l.lanes {
		need = need || ln != nil && ln.outstanding > 0
	}
	if need {
		l.armed = true
		l.w.client.wheel.after(ticks(tickEvery), l.w)
	}
}
