package ledgerclient

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

// frame is one encoded request. An add is encoded once and the same frame goes to every bookie of the write set, so it is
// counted: one reference for its pending add, one for each connection that has it queued. Who drops the last one returns
// the memory.
type frame struct {
	b      []byte // the frame, length field included
	refs   atomic.Int32
	class  int8    // of the pool, -1: too large for it
	charge int64   // bytes of the budget that it holds
	budget *budget // where they go back to
}

const (
	frameClassMin = 9  // 512 B
	frameClassMax = 23 // 8 MiB
)

var framePools [frameClassMax + 1]sync.Pool

// newFrame returns a frame with one reference and room for n bytes; b has length 0.
func newFrame(n int) *frame {
	class := max(frameClassMin, bits.Len(uint(max(n, 1)-1)))
	if class > frameClassMax {
		f := &frame{b: make([]byte, 0, n), class: -1}
		f.refs.Store(1)
		return f
	}
	if f, ok := framePools[class].Get().(*frame); ok {
		f.b = f.b[:0]
		f.refs.Store(1)
		return f
	}
	f := &frame{b: make([]byte, 0, 1<<class), class: int8(class)}
	f.refs.Store(1)
	return f
}

// hold adds n references.
func (f *frame) hold(n int) { f.refs.Add(int32(n)) }

// drop gives up one reference.
func (f *frame) drop() {
	if f.refs.Add(-1) > 0 {
		return
	}
	if f.budget != nil {
		f.budget.release(f.charge)
		f.budget, f.charge = nil, 0
	}
	if f.class >= 0 {
		framePools[f.class].Put(f)
	}
}
