package autorecovery

import (
	"context"
	"sync"
	"time"
)

// bucket is a token bucket of bytes. A request larger than what is there is let through on credit and the next ones wait, so
// that no size starves.
type bucket struct {
	mu   sync.Mutex
	rate float64 // bytes a second; <= 0: no limit
	have float64 // below 0: credit
	last time.Time
}

// bucketBurst is how much of a second may pass at once after a pause: little, since what passes at once meets the writers as
// one heap in front of a journal.
const bucketBurst = 5 * time.Millisecond

func newBucket(rate int64) *bucket { return &bucket{rate: float64(rate), last: time.Now()} }

// setRate changes the rate for what comes.
func (b *bucket) setRate(rate int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.refill(now)
	b.rate, b.have = float64(rate), min(b.have, 0)
}

// wait lets n bytes through.
func (b *bucket) wait(ctx context.Context, n int) error {
	d := b.take(n, time.Now())
	if d <= 0 {
		return ctx.Err()
	}
	return pause(ctx, d)
}

// take takes n bytes and returns how long their taker has to wait.
func (b *bucket) take(n int, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rate <= 0 {
		return 0
	}
	b.refill(now)
	b.have -= float64(n)
	if b.have >= 0 {
		return 0
	}
	return time.Duration(-b.have / b.rate * float64(time.Second))
}

// spend takes n bytes that have passed already, or gives back those that were not needed; the next ones wait for it.
func (b *bucket) spend(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rate > 0 {
		b.have -= float64(n)
	}
}

// refill adds what the time since the last one allows. b.mu is held.
func (b *bucket) refill(now time.Time) {
	if b.rate > 0 {
		b.have = min(b.have+b.rate*now.Sub(b.last).Seconds(), b.rate*bucketBurst.Seconds())
	}
	b.last = now
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
