package offload

import (
	"context"
	"slices"
	"sync"
)

// bufferPool hands out a bounded number of buffers: the memory of one upload.
type bufferPool struct {
	size  int // bytes that a fresh buffer has room for
	slots chan struct{}

	mu   sync.Mutex
	free [][]byte
}

func newBufferPool(count, size int) *bufferPool {
	return &bufferPool{size: size, slots: make(chan struct{}, count)}
}

// get returns an empty buffer, once there is one.
func (p *bufferPool) get(ctx context.Context) ([]byte, error) {
	select {
	case p.slots <- struct{}{}:
		return p.take(), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// tryGet returns a buffer if there is one now.
func (p *bufferPool) tryGet() ([]byte, bool) {
	select {
	case p.slots <- struct{}{}:
		return p.take(), true
	default:
		return nil, false
	}
}

func (p *bufferPool) take() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		b := p.free[n-1]
		p.free = p.free[:n-1]
		return b[:0]
	}
	return make([]byte, 0, p.size)
}

// put gives a buffer of get or tryGet back.
func (p *bufferPool) put(b []byte) {
	p.mu.Lock()
	p.free = append(p.free, b)
	p.mu.Unlock()
	select {
	case <-p.slots:
	default: // one beyond the bound, see adopt
	}
}

// extend returns b with n bytes in all; new ones are zero.
func extend(b []byte, n int) []byte {
	old := len(b)
	if n <= old {
		return b[:n]
	}
	b = slices.Grow(b, n-old)[:n]
	clear(b[old:])
	return b
}

// adopt counts a buffer that did not come from the pool, so that it may be put; beyond the bound it is not counted.
func (p *bufferPool) adopt() {
	select {
	case p.slots <- struct{}{}:
	default:
	}
}
