package ledgerclient

import (
	"math"
	"sync"
	"time"
)

// latency estimates how long a bookie usually takes to answer a read: mean and mean deviation, as TCP estimates round trips.
// It decays: what is older than latencyMemory says nothing, so a bookie that was slow is tried again.
type latency struct {
	mu        sync.Mutex // guards the fields below
	mean, dev float64    // seconds
	n         int
	at        time.Time
}

const latencyMemory = 30 * time.Second

// observe takes one measurement. A failure counts as slow only for as long as it took.
func (l *latency) observe(d time.Duration, ok bool) {
	s := d.Seconds()
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.n == 0 || now.Sub(l.at) > latencyMemory {
		l.mean, l.dev, l.n = s, s/2, 0
	} else if ok || s > l.mean {
		l.dev += (math.Abs(s-l.mean) - l.dev) / 4
		l.mean += (s - l.mean) / 8
	}
	l.n++
	l.at = now
}

// usual returns the mean and the time within which nearly every answer comes; known is false without recent answers.
func (l *latency) usual() (mean, late time.Duration, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n < 4 || time.Since(l.at) > latencyMemory {
		return 0, 0, false
	}
	return seconds(l.mean), seconds(l.mean + 4*l.dev), true
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// hedges lends reads that are sent a second time early: one for ten reads, at most hedgesMax saved up. Where every bookie is
// slow at once, asking twice would only make it worse.
type hedges struct {
	mu    sync.Mutex // guards saved
	saved float64
}

const (
	hedgeShare = 0.1
	hedgesMax  = 20
	hedgeMin   = 20 * time.Millisecond // nothing is asked twice before that
	slowFactor = 4                     // a bookie this much slower than the quickest is asked last
)

func (h *hedges) earn() {
	h.mu.Lock()
	h.saved = min(h.saved+hedgeShare, hedgesMax)
	h.mu.Unlock()
}

func (h *hedges) spend() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.saved < 1 {
		return false
	}
	h.saved--
	return true
}

// hedgeAfter returns when a read that was sent to a bookie is late: what that bookie usually needs, HedgeDelay at most.
func (p *peer) hedgeAfter() time.Duration {
	limit := p.client.o.HedgeDelay
	if _, late, known := p.reads.usual(); known {
		return min(max(late, hedgeMin), limit)
	}
	return limit
}
