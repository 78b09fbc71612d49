package pace

import (
	"context"
	"sync"
	"time"
)

// Bucket is a token bucket of bytes. A request larger than what is there is let through on credit and the next ones wait, so
// that no size starves.
type Bucket struct {
	mu    sync.Mutex
	rate  float64       // bytes a second; <= 0: no limit
	burst time.Duration // how much of the rate may pass at once after a pause
	have  float64       // below 0: credit
	last  time.Time
}

// NewBucket returns a bucket of rate bytes a second, of which as much as comes in burst may pass at once after a pause. A rate
// of 0 or less is no limit.
func NewBucket(rate int64, burst time.Duration) *Bucket {
	return &Bucket{rate: float64(rate), burst: burst, last: time.Now()}
}

// SetRate changes the rate for what comes.
func (b *Bucket) SetRate(rate int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill(time.Now())
	b.rate, b.have = float64(rate), min(b.have, 0)
}

// Wait lets n bytes through, or returns ctx's cause when it ends before.
func (b *Bucket) Wait(ctx context.Context, n int) error { return Sleep(ctx, b.take(n, time.Now())) }

// Spend takes n bytes that have passed already, or gives back those that were not needed if n is negative; the next ones wait
// for it.
func (b *Bucket) Spend(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rate > 0 {
		b.have -= float64(n)
	}
}

// take takes n bytes and returns how long their taker has to wait.
func (b *Bucket) take(n int, now time.Time) time.Duration {
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

// refill adds what the time since the last one allows. b.mu is held.
func (b *Bucket) refill(now time.Time) {
	if b.rate > 0 {
		b.have = min(b.have+b.rate*now.Sub(b.last).Seconds(), b.rate*b.burst.Seconds())
	}
	b.last = now
}
