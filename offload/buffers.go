package offload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/binderylog/bindery/internal/vfs"
)

// Cells lie off the heap. There the collector would let it grow to twice what they take, and as much again for what replaces them.

// bufferPool hands out a bounded number of buffers: the memory of one upload.
type bufferPool struct {
	size  int // bytes that a buffer has room for
	slots chan struct{}

	mu     sync.Mutex
	free   [][]byte
	mapped [][]byte // what close gives back
}

func newBufferPool(count, size int) *bufferPool {
	return &bufferPool{size: size, slots: make(chan struct{}, count)}
}

// get returns an empty buffer, once there is one.
func (p *bufferPool) get(ctx context.Context) ([]byte, error) {
	select {
	case p.slots <- struct{}{}:
		return p.take()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// tryGet returns a buffer if there is one now.
func (p *bufferPool) tryGet() ([]byte, bool) {
	select {
	case p.slots <- struct{}{}:
		b, err := p.take()
		return b, err == nil
	default:
		return nil, false
	}
}

// take takes a free buffer or a fresh one for a slot that was taken.
func (p *bufferPool) take() ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		b := p.free[n-1]
		p.free = p.free[:n-1]
		return b[:0], nil
	}
	b, err := mapCell(p.size)
	if err != nil {
		<-p.slots
		return nil, err
	}
	p.mapped = append(p.mapped, b)
	return b[:0], nil
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

// adopt counts a buffer that did not come from the pool, so that it may be put; beyond the bound it is not counted.
func (p *bufferPool) adopt() {
	select {
	case p.slots <- struct{}{}:
	default:
	}
}

// close gives the memory back to the system. Nobody may touch a buffer any more.
func (p *bufferPool) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	mapped := p.mapped
	p.free, p.mapped = nil, nil
	return unmapCells(mapped)
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

// cellBuffers hold one cell of every shard, which the next stripe replaces: the memory of one verification or repair. Different shards
// may be used at once.
type cellBuffers [][]byte

func newCellBuffers(g Geometry) cellBuffers { return make(cellBuffers, g.Shards()) }

// get returns the shard's buffer with n bytes, which hold anything. Without buffers it is memory of the heap.
func (c cellBuffers) get(shard, n int) ([]byte, error) {
	switch {
	case c == nil:
		return make([]byte, n), nil
	case cap(c[shard]) < n:
		old := c[shard]
		c[shard] = nil
		if err := vfs.FreeOffHeap(old); err != nil {
			return nil, err
		}
		b, err := mapCell(n)
		if err != nil {
			return nil, err
		}
		c[shard] = b
	}
	return c[shard][:n], nil
}

// close gives the memory back to the system. Nobody may touch a buffer any more.
func (c cellBuffers) close() error {
	defer clear(c)
	return unmapCells(c)
}

func mapCell(n int) ([]byte, error) {
	b, err := vfs.AllocHugePages(n)
	if err != nil {
		return nil, fmt.Errorf("memory for a cell of %d bytes: %w", n, err)
	}
	return b, nil
}

func unmapCells(cells [][]byte) error {
	var errs []error
	for _, b := range cells {
		errs = append(errs, vfs.FreeOffHeap(b))
	}
	return errors.Join(errs...)
}
