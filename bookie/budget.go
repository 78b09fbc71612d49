package bookie

import (
	"sync"
	"sync/atomic"
)

// lane says what a request is for: the last tenth of a budget serves only what ends trouble.
type lane uint8

const (
	laneOrdinary lane = iota // normal adds
	laneReserved             // fencing, recovery and reads
)

// budget bounds the bytes of requests and answers in memory, or a share of them. Taking and giving back without contention is one atomic
// operation; who finds no room waits in line, per lane. A taker that asks for more than its lane has gets the whole lane.
//
// add may push the use over the limit (the size of an answer is known only when it has been read); then nobody gets
// anything until it is back under it.
type budget struct {
	limit    [2]atomic.Int64 // by lane
	used     atomic.Int64
	nWaiting atomic.Int32

	mu    sync.Mutex
	queue [2][]*budgetWaiter // by lane, first come first served
}

type budgetWaiter struct {
	n     int64
	ready chan struct{}
}

func newBudget(bytes int64) *budget {
	b := &budget{}
	b.setLimit(bytes)
	return b
}

// setLimit changes the size of the budget. What is taken beyond a smaller one is given back in time.
func (b *budget) setLimit(bytes int64) {
	b.limit[laneOrdinary].Store(bytes - bytes/10)
	b.limit[laneReserved].Store(bytes)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.grantLocked()
}

// try takes n bytes if they are free and nobody is in line for that lane.
func (b *budget) try(n int64, l lane) bool {
	if b.nWaiting.Load() > 0 && l == laneOrdinary {
		return false
	}
	return b.cas(n, l)
}

func (b *budget) cas(n int64, l lane) bool {
	for {
		used := b.used.Load()
		if used+n > b.limit[l].Load() {
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// acquire takes n bytes and returns how many it took, waiting for room until cancel is closed; then it returns 0.
func (b *budget) acquire(n int64, l lane, cancel <-chan struct{}) int64 {
	n = min(n, b.limit[l].Load())
	if n <= 0 || b.try(n, l) {
		return n
	}
	w := &budgetWaiter{n: n, ready: make(chan struct{})}
	b.mu.Lock()
	// Counted before the last try: a release that comes after the try sees the count and grants.
	b.nWaiting.Add(1)
	b.queue[l] = append(b.queue[l], w)
	b.grantLocked()
	b.mu.Unlock()
	select {
	case <-w.ready:
		return w.n
	case <-cancel:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-w.ready: // granted at the same moment
		b.releaseLocked(w.n)
	default:
		b.dropLocked(w, l)
	}
	return 0
}

// add takes n bytes whether they are free or not.
func (b *budget) add(n int64) { b.used.Add(n) }

// release gives n bytes back.
func (b *budget) release(n int64) {
	if n == 0 {
		return
	}
	b.used.Add(-n)
	if b.nWaiting.Load() > 0 {
		b.mu.Lock()
		b.grantLocked()
		b.mu.Unlock()
	}
}

func (b *budget) releaseLocked(n int64) {
	b.used.Add(-n)
	b.grantLocked()
}

// grantLocked serves the lines as far as there is room, the reserved one first.
func (b *budget) grantLocked() {
	for _, l := range [...]lane{laneReserved, laneOrdinary} {
		q := b.queue[l]
		for len(q) > 0 {
			q[0].n = min(q[0].n, b.limit[l].Load()) // it may be smaller than when the wait began
			if !b.cas(q[0].n, l) {
				break
			}
			close(q[0].ready)
			q[0] = nil
			q = q[1:]
			b.nWaiting.Add(-1)
		}
		b.queue[l] = q
	}
}

func (b *budget) dropLocked(w *budgetWaiter, l lane) {
	for i, x := range b.queue[l] {
		if x == w {
			b.queue[l] = append(b.queue[l][:i], b.queue[l][i+1:]...)
			b.nWaiting.Add(-1)
			break
		}
	}
	b.grantLocked() // whoever stood behind may fit
}

// nearlyFull reports whether only the reserved part is left.
func (b *budget) nearlyFull() bool { return b.used.Load() >= b.limit[laneOrdinary].Load() }

// pressed reports whether somebody waits for room.
func (b *budget) pressed() bool { return b.nWaiting.Load() > 0 }
