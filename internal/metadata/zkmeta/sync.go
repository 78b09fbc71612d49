package zkmeta

import (
	"context"
	"sync"
)

// syncer brings the connected server up to date with the leader. Calls that arrive while a sync is under way share the next
// one: a sync serves those who asked before it was sent.
type syncer struct {
	l *link

	mu      sync.Mutex
	next    *syncRound
	running bool
}

type syncRound struct {
	done chan struct{}
	err  error
}

// sync returns once a sync that was sent after the call began has been answered.
func (y *syncer) sync(ctx context.Context) error {
	y.mu.Lock()
	if y.next == nil {
		y.next = &syncRound{done: make(chan struct{})}
	}
	r := y.next
	start := !y.running
	if start {
		if y.running = y.l.s.task(y.run); !y.running {
			y.mu.Unlock()
			return errEnded
		}
	}
	y.mu.Unlock()
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (y *syncer) run() {
	for {
		y.mu.Lock()
		r := y.next
		y.next = nil
		if r == nil {
			y.running = false
			y.mu.Unlock()
			return
		}
		y.mu.Unlock()
		_, r.err = y.l.conn.Sync("/")
		close(r.done)
	}
}
