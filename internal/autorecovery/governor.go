package autorecovery

import (
	"slices"
	"sync"
	"time"

	"github.com/binderylog/bindery/internal/pace"
)

// governor lowers the rate of copying while it is in the way. What it knows is how long the copies' own adds take, which go
// through the same journals as the writers': while their median in a window is above twice the quiet one, the rate is halved,
// otherwise it grows by a sixteenth of the limit. It begins low, so that the first windows tell what quiet is.
type governor struct {
	b *pace.Bucket

	mu      sync.Mutex // guards what follows
	limit   int64      // bytes a second; <= 0: no limit, and nothing to govern
	rate    int64      // what is allowed now
	began   time.Time  // of the window
	took    []time.Duration
	quiet   time.Duration // median of the quietest window, which is forgotten slowly
	slowest int64         // lower bound of rate
}

// copyBurst is how much of a rate may pass at once after a pause: little, since what passes at once meets the writers as one
// heap in front of a journal.
const copyBurst = 5 * time.Millisecond

const (
	governWindow = 100 * time.Millisecond
	governLeast  = 8  // adds that tell anything about a window
	governShare  = 16 // of the limit: the lowest rate, and the step by which it grows
	governSlack  = 500 * time.Microsecond
	governFloor  = 1 << 20 // bytes a second that are in nobody's way
)

func newGovernor(limit int64) *governor {
	g := &governor{b: pace.NewBucket(limit, copyBurst)}
	g.setLimit(limit)
	return g
}

// setLimit changes the limit for what comes.
func (g *governor) setLimit(limit int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limit, g.rate = limit, limit
	if limit > 0 {
		g.slowest = min(max(limit/governShare, governFloor), limit)
		g.rate = min(2*g.slowest, limit)
	}
	g.took, g.quiet, g.began = g.took[:0], 0, time.Time{}
	g.b.SetRate(g.rate)
}

// added takes how long an add took that ended now.
func (g *governor) added(now time.Time, took time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.limit <= 0 {
		return
	}
	if now.Sub(g.began) > 10*governWindow { // there was nothing to copy
		g.began, g.took = now, g.took[:0]
	}
	g.took = append(g.took, took)
	if now.Sub(g.began) < governWindow || len(g.took) < governLeast {
		return
	}
	slices.Sort(g.took)
	median := g.took[len(g.took)/2]
	g.began, g.took = now, g.took[:0]
	// A quiet time that was better than any since is not held against them for ever: it grows by a percent a window.
	if g.quiet += g.quiet/100 + 1; g.quiet <= 1 || median < g.quiet {
		g.quiet = median
	}
	if median > 2*g.quiet+governSlack {
		g.rate = max(g.rate/2, g.slowest)
	} else {
		g.rate = min(g.rate+g.limit/governShare, g.limit)
	}
	g.b.SetRate(g.rate)
}

// current returns the bytes a second that are allowed now.
func (g *governor) current() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.rate
}
