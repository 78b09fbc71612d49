package zkmeta

import (
	"context"
	"errors"
	"sync"

	"github.com/go-zookeeper/zk"
)

// Bounds of one batch of writes.
const (
	batchOps   = 100
	batchBytes = 256 << 10
	// batchRefusals is how many of its writes a batch may lose before the rest goes alone.
	batchRefusals = 4
)

// batcher sends single writes that are asked for at the same time in one multi: ZooKeeper logs and replicates it as one. Since
// a multi happens as a whole or not at all, a write whose condition does not hold is taken out and the others go again.
type batcher struct {
	l *link

	mu      sync.Mutex
	waiting []*write
	running bool
}

// write is one operation of a batch.
type write struct {
	op   any
	size int
	done chan struct{}

	answer zk.MultiResponse
	err    error
}

// errAlone asks for a write to be sent by itself.
var errAlone = errors.New("to be sent alone")

// newWrite returns a write for a batch, or nil for one that is too large.
func newWrite(op any) *write {
	w := &write{op: op, done: make(chan struct{})}
	switch op := op.(type) {
	case *zk.CreateRequest:
		w.size = len(op.Path) + len(op.Data)
	case *zk.SetDataRequest:
		w.size = len(op.Path) + len(op.Data)
	case *zk.DeleteRequest:
		w.size = len(op.Path)
	}
	if w.size > batchBytes/4 {
		return nil
	}
	return w
}

// do sends one write, with others if there are any, and returns its own part of the answer.
func (b *batcher) do(ctx context.Context, w *write) ([]zk.MultiResponse, error) {
	b.mu.Lock()
	if !b.running {
		if b.running = b.l.s.task(b.run); !b.running {
			b.mu.Unlock()
			return nil, errNotSent
		}
	}
	b.waiting = append(b.waiting, w)
	b.mu.Unlock()
	select {
	case <-w.done:
		return []zk.MultiResponse{w.answer}, w.err
	case <-ctx.Done():
		return nil, ctx.Err() // its outcome is unknown
	}
}

func (b *batcher) run() {
	for {
		b.mu.Lock()
		n, size := 0, 0
		for n < len(b.waiting) && n < batchOps && size < batchBytes {
			size += b.waiting[n].size
			n++
		}
		batch := b.waiting[:n:n]
		b.waiting = b.waiting[n:]
		if n == 0 {
			b.waiting, b.running = nil, false
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
		b.send(batch)
	}
}

// send carries a batch to its end.
func (b *batcher) send(batch []*write) {
	finish := func(w *write, answer zk.MultiResponse, err error) {
		w.answer, w.err = answer, err
		close(w.done)
	}
	for refusals := 0; len(batch) > 0; refusals++ {
		if refusals == batchRefusals {
			for _, w := range batch {
				finish(w, zk.MultiResponse{}, errAlone)
			}
			return
		}
		ops := make([]any, len(batch))
		for i, w := range batch {
			ops[i] = w.op
		}
		answers, err := b.l.conn.Multi(ops...)
		bad := -1
		for i := range answers {
			if bad < 0 && answers[i].Error != nil {
				bad = i
			}
		}
		if err == nil && len(answers) == len(batch) || err != nil && bad < 0 {
			for i, w := range batch {
				var a zk.MultiResponse
				if err == nil {
					a = answers[i]
				}
				finish(w, a, err)
			}
			return
		}
		if bad < 0 || bad >= len(batch) {
			for _, w := range batch {
				finish(w, zk.MultiResponse{}, zk.ErrUnknown)
			}
			return
		}
		finish(batch[bad], answers[bad], answers[bad].Error)
		batch = append(batch[:bad:bad], batch[bad+1:]...)
	}
}
