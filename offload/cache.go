package offload

import (
	"container/list"
	"context"
	"sync"
)

// lru is a cache bounded by bytes, with one flight per key: who asks for what another is fetching waits for it. Failures are not kept.
type lru[K comparable, V any] struct {
	max  int
	size func(V) int

	mu      sync.Mutex
	bytes   int
	order   *list.List // of *cached[K, V]; used last at the front
	entries map[K]*list.Element
	flights map[K]*flight[V]
}

type cached[K comparable, V any] struct {
	key   K
	value V
	bytes int
}

type flight[V any] struct {
	done  chan struct{}
	value V
	err   error
}

func newLRU[K comparable, V any](limit int, size func(V) int) *lru[K, V] {
	return &lru[K, V]{max: limit, size: size, order: list.New(), entries: map[K]*list.Element{}, flights: map[K]*flight[V]{}}
}

// get returns what is cached, or what fetch returns. hit says that nothing was fetched for this call.
func (c *lru[K, V]) get(ctx context.Context, key K, fetch func() (V, error)) (v V, hit bool, err error) {
	for {
		c.mu.Lock()
		if e, ok := c.entries[key]; ok {
			c.order.MoveToFront(e)
			v := e.Value.(*cached[K, V]).value
			c.mu.Unlock()
			return v, true, nil
		}
		f, ok := c.flights[key]
		if !ok {
			f = &flight[V]{done: make(chan struct{})}
			c.flights[key] = f
			c.mu.Unlock()
			f.value, f.err = fetch()
			c.mu.Lock()
			delete(c.flights, key)
			if f.err == nil {
				c.addLocked(key, f.value)
			}
			c.mu.Unlock()
			close(f.done)
			return f.value, false, f.err
		}
		c.mu.Unlock()
		select {
		case <-f.done:
			if f.err == nil {
				return f.value, true, nil
			}
			// The other one's failure, its context's end for one, is not ours: try again.
			if err := ctx.Err(); err != nil {
				return v, false, context.Cause(ctx)
			}
		case <-ctx.Done():
			return v, false, context.Cause(ctx)
		}
	}
}

// peek returns what is cached.
func (c *lru[K, V]) peek(key K) (v V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.entries[key]; ok {
		c.order.MoveToFront(e)
		return e.Value.(*cached[K, V]).value, true
	}
	return v, false
}

func (c *lru[K, V]) add(key K, v V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addLocked(key, v)
}

func (c *lru[K, V]) addLocked(key K, v V) {
	n := c.size(v)
	if old, ok := c.entries[key]; ok {
		c.dropLocked(old)
	}
	if n > c.max {
		return
	}
	for c.bytes+n > c.max {
		c.dropLocked(c.order.Back())
	}
	c.entries[key] = c.order.PushFront(&cached[K, V]{key, v, n})
	c.bytes += n
}

func (c *lru[K, V]) dropLocked(e *list.Element) {
	x := c.order.Remove(e).(*cached[K, V])
	delete(c.entries, x.key)
	c.bytes -= x.bytes
}
