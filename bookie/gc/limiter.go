package gc

import (
	"context"
	"time"

	"github.com/binderylog/bindery/internal/pace"
)

// limiter spaces work out to a rate that may change. It belongs to one goroutine. Work is let through in bursts of up to a
// tenth of a second, so that small pieces do not each cost a timer.
type limiter struct {
	perSecond func() float64
	ahead     time.Duration // how far the work let through is ahead of its time
	last      time.Time
}

const limiterBurst = 100 * time.Millisecond

// wait lets n units through.
func (l *limiter) wait(ctx context.Context, n int) error {
	now := time.Now()
	if !l.last.IsZero() {
		l.ahead = max(0, l.ahead-now.Sub(l.last))
	}
	l.last = now
	l.ahead += time.Duration(float64(n) / l.perSecond() * float64(time.Second))
	if l.ahead < limiterBurst {
		return ctx.Err()
	}
	return pace.Sleep(ctx, l.ahead)
}
