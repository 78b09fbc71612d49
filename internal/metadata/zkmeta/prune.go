package zkmeta

import (
	"context"
	"errors"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/binderylog/bindery/internal/metadata"
)

// pruner removes the directories of ledger records and of under-replication marks once they are empty, as Java does: at most
// a few levels, best effort, behind the caller's back.
type pruner struct {
	s *Store

	mu      sync.Mutex
	dirs    map[string]int // levels that may go, by the lowest
	running bool
}

// after takes the deletes of a transaction that happened.
func (p *pruner) after(deletes []metadata.Delete) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range deletes {
		if n := emptyLevels(d.Key); n > 0 {
			if p.dirs == nil {
				p.dirs = map[string]int{}
			}
			p.dirs[parentOf(d.Key)] = n
		}
	}
	if len(p.dirs) > 0 && !p.running {
		p.running = p.s.task(p.run)
	}
}

func (p *pruner) run() {
	for {
		p.mu.Lock()
		dirs := p.dirs
		p.dirs = nil
		if len(dirs) == 0 {
			p.running = false
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		l, err := p.s.live(p.s.stop)
		if err != nil {
			continue // the store is being closed
		}
		for dir, levels := range dirs {
			p.remove(p.s.stop, l, dir, levels)
		}
	}
}

// remove deletes empty directories from the lowest up.
func (p *pruner) remove(ctx context.Context, l *link, dir string, levels int) {
	for ; levels > 0 && ctx.Err() == nil; levels-- {
		if err := l.conn.Delete(dir, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return // not empty, or not to be reached
		}
		dir = parentOf(dir)
	}
}
