package ledgerclient

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"
)

// budget bounds the bytes of adds under way. The common case is one atomic operation; who finds too little left queues up
// and is served in order.
type budget struct {
	free    atomic.Int64
	waiting atomic.Int32

	mu    sync.Mutex // guards queue and closed
	queue list.List  // of *budgetWaiter
	err   error      // set by close
}

type budgetWaiter struct {
	need  int64
	grant chan error
}

func newBudget(n int64) *budget {
	b := &budget{}
	b.free.Store(n)
	return b
}

// acquire takes n bytes, waiting for them until ctx ends. A nil ctx waits for ever.
func (b *budget) acquire(ctx context.Context, n int64) error {
	if b.waiting.Load() == 0 {
		if b.free.Add(-n) >= 0 {
			return nil
		}
		b.release(n)
	}
	w := &budgetWaiter{need: n, grant: make(chan error, 1)}
	b.mu.Lock()
	if b.err != nil {
		defer b.mu.Unlock()
		return b.err
	}
	b.waiting.Add(1)
	e := b.queue.PushBack(w)
	b.grantLocked()
	b.mu.Unlock()
	var done <-chan struct{}
	if ctx != nil {
		done = ctx.Done()
	}
	select {
	case err := <-w.grant:
		return err
	case <-done:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case err := <-w.grant: // granted meanwhile: give it back
		if err == nil {
			b.free.Add(n)
			b.grantLocked()
		}
	default:
		b.queue.Remove(e)
		b.waiting.Add(-1)
		b.grantLocked()
	}
	return context.Cause(ctx)
}

// force takes n bytes whatever is left, for an add that others wait for. Those that come after it wait the longer.
func (b *budget) force(n int64) { b.free.Add(-n) }

// release gives n bytes back.
func (b *budget) release(n int64) {
	b.free.Add(n)
	if b.waiting.Load() == 0 {
		return
	}
	b.mu.Lock()
	b.grantLocked()
	b.mu.Unlock()
}

// grantLocked serves the queue in order as far as the bytes go.
func (b *budget) grantLocked() {
	for e := b.queue.Front(); e != nil; e = b.queue.Front() {
		w := e.Value.(*budgetWaiter)
		if b.free.Add(-w.need) < 0 {
			b.free.Add(w.need)
			return
		}
		b.queue.Remove(e)
		b.waiting.Add(-1)
		w.grant <- nil
	}
}

// close makes every waiter, present or future, fail with err.
func (b *budget) close(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
	for e := b.queue.Front(); e != nil; e = b.queue.Front() {
		b.queue.Remove(e)
		b.waiting.Add(-1)
		e.Value.(*budgetWaiter).grant <- err
	}
}
