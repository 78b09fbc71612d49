package offload

import (
	"context"
	"sync"
	"time"
)

// bucket is a token bucket of bytes. What is larger than what is there goes on credit, and the next ones wait.
type bucket struct {
	mu   sync.Mutex
	rate float64 // bytes a second; <= 0: no limit
	have float64
	last time.Time
}

// bucketBurst is how much of a second may pass at once after a pause.
const bucketBurst = 0.1

func newBucket(rate int64) *bucket { return &bucket{rate: float64(rate), last: time.Now()} }

func (b *bucket) wait(ctx context.Context, n int) error {
	d := b.take(n, time.Now())
	if d <= 0 {
		return context.Cause(ctx)
	}
	return sleep(ctx, d)
}

func (b *bucket) take(n int, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rate <= 0 {
		return 0
	}
	b.have = min(b.have+b.rate*now.Sub(b.last).Seconds(), b.rate*bucketBurst)
	b.last = now
	b.have -= float64(n)
	if b.have >= 0 {
		return 0
	}
	return time.Duration(-b.have / b.rate * float64(time.Second))
}

// sleep waits, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
