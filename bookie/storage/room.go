package storage

import (
	"fmt"
	"time"
)

// Room in the write cache is counted in costs (writeCache.cost). dir.taken is what is used in the current cache plus what
// is reserved and not used yet; it never exceeds a cache's capacity, so that a reserved entry fits whichever cache is
// current when it comes. A swap subtracts what was used in the cache that it takes away.

// Reserve makes sure that the write cache has room for an entry of n bytes and waits up to timeout for it. It fails with
// ErrCacheFull, ErrDirFull (unless recovery is set), ErrDirFailed or ErrBadEntry. The room is used up by Put or given back
// by Unreserve. A timeout of 0 does not wait.
func (l *Ledger) Reserve(n int, recovery bool, timeout time.Duration) error {
	d := l.d
	if d.failed.Load() {
		return d.failure()
	}
	if d.diskFull.Load() && !recovery {
		return ErrDirFull
	}
	c := d.caches[0]
	cost, capacity := c.cost(n), c.capacity()
	if n < MinEntry || n > MaxEntry || cost > capacity {
		return fmt.Errorf("%w: %d bytes, allowed are %d to %d", ErrBadEntry, n, MinEntry, min(MaxEntry, capacity-cacheHeader))
	}
	if d.tryTake(cost, capacity) {
		return nil
	}
	if timeout <= 0 {
		d.cacheFull.Add(1)
		return ErrCacheFull
	}
	return d.waitTake(cost, capacity, timeout)
}

// tryTake takes room if there is some, and wakes the flusher when the cache becomes half full.
func (d *dir) tryTake(cost, capacity int64) bool {
	now := d.taken.Add(cost)
	if now > capacity {
		d.taken.Add(-cost)
		d.poke()
		return false
	}
	if half := capacity / 2; now >= half && now-cost < half {
		d.poke()
	}
	return true
}

func (d *dir) waitTake(cost, capacity int64, timeout time.Duration) error {
	d.stalls.Add(1)
	d.waiters.Add(1)
	defer d.waiters.Add(-1)
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		d.roomMu.Lock()
		change := d.roomCh
		d.roomMu.Unlock()
		if d.tryTake(cost, capacity) { // after taking the channel: no wake-up is missed
			return nil
		}
		select {
		case <-change:
		case <-timer.C:
			d.cacheFull.Add(1)
			return ErrCacheFull
		case <-d.s.stop:
			return ErrClosed
		}
		if err := d.failure(); err != nil {
			return err
		}
	}
}

// Unreserve gives back the room of an entry of n bytes that was not stored.
func (l *Ledger) Unreserve(n int) {
	l.d.taken.Add(-l.d.caches[0].cost(n))
	l.d.wakeWaiters()
}

// wakeWaiters wakes whoever waits for room.
func (d *dir) wakeWaiters() {
	if d.waiters.Load() == 0 { // a waiter is counted before it looks for room the first time
		return
	}
	d.roomMu.Lock()
	close(d.roomCh)
	d.roomCh = make(chan struct{})
	d.roomMu.Unlock()
}
