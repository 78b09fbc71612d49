package ledgerclient

import (
	"errors"
	"math"
	"sync"
	"time"
)

// penalty is how much a bookie has failed lately. Each failure that begins a quarantine adds one; it halves with every
// Options.Quarantine that passes. It makes the next quarantine longer, and after a quarantine the bookie is chosen less often
// until it has faded: a bookie that keeps failing is left alone, and one that had a bad moment soon counts in full again.
type penalty struct {
	mu    sync.Mutex // guards the fields below
	score float64
	at    time.Time
}

const (
	quarantineFactorMax = 8.0  // a quarantine is at most this many times Options.Quarantine
	penaltyFaded        = 0.05 // less than that is nothing
)

// now returns the score after its decay.
func (p *penalty) now(halfLife time.Duration) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.decayedLocked(halfLife)
}

func (p *penalty) decayedLocked(halfLife time.Duration) float64 {
	if p.score == 0 {
		return 0
	}
	s := p.score * math.Exp2(-time.Since(p.at).Seconds()/max(halfLife.Seconds(), 1e-3))
	if s < penaltyFaded {
		return 0
	}
	return s
}

// add notes a failure and returns by how much its quarantine is longer than the first one.
func (p *penalty) add(halfLife time.Duration) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.score, p.at = p.decayedLocked(halfLife)+1, time.Now()
	return min(math.Exp2(p.score-1), quarantineFactorMax)
}

// halve takes half of it away: the bookie has been started anew, which may have been the cure.
func (p *penalty) halve(halfLife time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.score, p.at = p.decayedLocked(halfLife)/2, time.Now()
}

// quarantine keeps the bookie out of ensembles for a while.
func (p *peer) quarantine(err error) {
	w, o := &p.client.wheel, p.client.o
	now := w.now.Load()
	var answer *BookieError
	p.unreachable.Store(!errors.As(err, &answer) && !errors.Is(err, ErrTimeout) && (p.unreachable.Load() || p.quarantined.Load() <= now))
	if until := p.quarantined.Load(); until > now { // the same trouble still: it does not count twice
		p.quarantined.CompareAndSwap(until, max(until, now+ticks(o.Quarantine)))
		return
	}
	d := time.Duration(float64(o.Quarantine) * p.penalty.add(o.Quarantine))
	p.client.m.quarantines.Inc()
	p.quarantined.Store(now + ticks(d))
	o.Logger.Warn("bookie failed; it is not chosen for ensembles for a while", "bookie", string(p.id), "for", d, "error", err)
}

// weight is the bookie's share in the choice of ensembles, 1 for one that has not failed lately.
func (p *peer) weight() float64 { return 1 / (1 + p.penalty.now(p.client.o.Quarantine)) }

// reached notes that a connection works.
func (p *peer) reached() {
	p.mu.Lock()
	p.failedAt, p.lastErr = time.Time{}, nil
	p.mu.Unlock()
	if p.unreachable.Swap(false) {
		p.quarantined.Store(0)
	}
}

// pardon ends the quarantine: the bookie has registered anew.
func (p *peer) pardon() {
	p.quarantined.Store(0)
	p.penalty.halve(p.client.o.Quarantine)
	p.noBatch.Store(false)
	p.redial()
}

func (p *peer) isQuarantined() bool { return p.quarantined.Load() > p.client.wheel.now.Load() }
