package objstore

import (
	"context"
	"sync"
	"time"
)

// limiterGrow is how long requests have to go well before one more is let out at a time.
const limiterGrow = 10 * time.Second

// limiter bounds the requests in flight at a target. The bound is halved when the target asks to slow down, and grows by one for each ten seconds in
// which it does not, up to its most.
type limiter struct {
	most int

	mu      sync.Mutex
	limit   int             // guarded by mu
	out     int             // guarded by mu
	since   time.Time       // guarded by mu: the last change of limit
	waiting []chan struct{} // guarded by mu: oldest first; closed when its turn has come
}

func newLimiter(most int) *limiter { return &limiter{most: most, limit: most} }

// enter waits for a place.
func (l *limiter) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	if l.out < l.limit && len(l.waiting) == 0 {
		l.out++
		l.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	l.waiting = append(l.waiting, turn)
	l.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, w := range l.waiting {
		if w == turn {
			l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
			return ctx.Err()
		}
	}
	l.out-- // the turn came at the same moment
	l.wakeLocked()
	return ctx.Err()
}

// leave gives the place back.
func (l *limiter) leave(now time.Time, throttled bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out--
	switch {
	case throttled:
		if now.Sub(l.since) >= time.Second || l.limit == l.most { // one halving for all requests that were out together
			l.limit, l.since = max(1, l.limit/2), now
		}
	case l.limit < l.most && now.Sub(l.since) >= limiterGrow:
		l.limit++
		l.since = now
	}
	l.wakeLocked()
}

func (l *limiter) wakeLocked() {
	for l.out < l.limit && len(l.waiting) > 0 {
		l.out++
		close(l.waiting[0])
		l.waiting = l.waiting[1:]
	}
}

func (l *limiter) now() (limit, out int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.limit, l.out
}
