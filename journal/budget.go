package journal

import (
	"sync"
	"sync/atomic"
	"time"
)

// budget bounds the bytes between Reserve and the acknowledgement. Taking and giving back cost one atomic operation
// while there is room. Waiters are served first come, first served.
type budget struct {
	limit   int64
	used    atomic.Int64
	waiting atomic.Int32
	failed  atomic.Bool // err is set

	mu      sync.Mutex // guards what follows
	waiters []*waiter
	err     error // set: nobody waits any more
}

type waiter struct {
	n     int64
	ready chan error // gets one value; buffered
}

// fits admits n bytes beside used ones. What is larger than the whole budget is admitted alone.
func (b *budget) fits(used, n int64) bool { return used <= 0 || used+n <= b.limit }

// take waits at most timeout for room.
func (b *budget) take(n int64, timeout time.Duration) error {
	if b.waiting.Load() == 0 && !b.failed.Load() && b.try(n) {
		return nil
	}
	b.mu.Lock()
	if err := b.err; err != nil { // open may take it back at once
		b.mu.Unlock()
		return err
	}
	b.waiting.Add(1) // from here on give looks for waiters, so the room it makes is not missed
	if len(b.waiters) == 0 && b.try(n) {
		b.waiting.Add(-1)
		b.mu.Unlock()
		return nil
	}
	if timeout <= 0 {
		b.waiting.Add(-1)
		b.mu.Unlock()
		return ErrBusy
	}
	w := &waiter{n: n, ready: make(chan error, 1)}
	b.waiters = append(b.waiters, w)
	b.mu.Unlock()

	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case err := <-w.ready:
		return err
	case <-t.C:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, o := range b.waiters {
		if o == w {
			b.waiters = append(b.waiters[:i], b.waiters[i+1:]...)
			b.waiting.Add(-1)
			b.grantLocked() // those behind may be smaller
			return ErrBusy
		}
	}
	return <-w.ready // served just now
}

func (b *budget) try(n int64) bool {
	for {
		u := b.used.Load()
		if !b.fits(u, n) {
			return false
		}
		if b.used.CompareAndSwap(u, u+n) {
			return true
		}
	}
}

// give returns n bytes.
func (b *budget) give(n int64) {
	if n == 0 {
		return
	}
	b.used.Add(-n)
	if b.waiting.Load() == 0 {
		return
	}
	b.mu.Lock()
	b.grantLocked()
	b.mu.Unlock()
}

func (b *budget) grantLocked() {
	for len(b.waiters) > 0 && b.try(b.waiters[0].n) {
		b.waiters[0].ready <- nil
		b.waiters = append(b.waiters[:0], b.waiters[1:]...)
		b.waiting.Add(-1)
	}
}

// fail makes everybody who waits, and would wait, get err.
func (b *budget) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = err
		b.failed.Store(true)
	}
	for _, w := range b.waiters {
		w.ready <- b.err
		b.waiting.Add(-1)
	}
	b.waiters = nil
}

// open lets callers take.
func (b *budget) open() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = nil
	b.failed.Store(false)
}
