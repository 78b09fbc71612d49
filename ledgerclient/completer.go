package ledgerclient

import (
	"context"
	"runtime/pprof"
	"sync"
)

// completer runs the done functions of one writer, in order, on one goroutine that it starts with the first of them. The
// writer's loop never waits for it: a done function may append again, even if that has to wait for room.
type completer struct {
	mu      sync.Mutex // guards the fields below
	queue   []completion
	running bool
	closed  bool
	wake    chan struct{}
	wg      sync.WaitGroup
}

type completion struct {
	done func(EntryID, error)
	id   EntryID
	err  error
}

// add queues completions; the slice is copied.
func (c *completer) add(batch []completion) {
	c.mu.Lock()
	idle := len(c.queue) == 0
	c.queue = append(c.queue, batch...)
	if !c.running {
		c.running = true
		c.wake = make(chan struct{}, 1)
		c.wg.Go(c.run)
	}
	c.mu.Unlock()
	if idle {
		c.poke()
	}
}

func (c *completer) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *completer) run() {
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("ledgerclient", "done functions")))
	var batch []completion
	for {
		c.mu.Lock()
		batch, c.queue = c.queue, batch[:0]
		closed := c.closed
		c.mu.Unlock()
		if len(batch) == 0 {
			if closed {
				return
			}
			<-c.wake
			continue
		}
		for i := range batch {
			batch[i].done(batch[i].id, batch[i].err)
			batch[i] = completion{}
		}
	}
}

// close waits until everything queued has run. It must be the last call.
func (c *completer) close() {
	c.mu.Lock()
	c.closed = true
	running := c.running
	c.mu.Unlock()
	if running {
		c.poke()
		c.wg.Wait()
	}
}
