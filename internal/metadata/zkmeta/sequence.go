package zkmeta

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/binderylog/bindery/internal/metadata"
)

// drawsMax bounds the numbers that one transaction draws.
const drawsMax = 64

// Sequence implements metadata.Store. Concurrent draws from one path share a transaction, and the nodes that it leaves are
// removed by the next one. A draw whose answer was lost costs a gap and is repeated; its node goes with the session.
func (s *Store) Sequence(ctx context.Context, path string) (int64, error) {
	if i := strings.LastIndexByte(path, '/'); i <= 0 {
		if err := s.stopped(); err != nil {
			return 0, err
		}
		return 0, fmt.Errorf("%w: sequence path %q has no parent", metadata.ErrBadTxn, path)
	}
	if err := checkPath(path); err != nil {
		return 0, err
	}
	var n int64
	err := s.read(ctx, func(ctx context.Context, l *link) (err error) { // repeatable, like a read
		n, err = l.draws.of(path).draw(ctx)
		return err
	})
	return n, err
}

// NextInSequence implements metadata.Store. The server numbers the children of a node by how many it has created there; the
// version of the children that it shows counts the removed ones too.
func (s *Store) NextInSequence(ctx context.Context, path string) (int64, error) {
	if i := strings.LastIndexByte(path, '/'); i <= 0 {
		return 0, fmt.Errorf("%w: sequence path %q has no parent", metadata.ErrBadTxn, path)
	}
	if err := checkPath(path); err != nil {
		return 0, err
	}
	var n int64
	err := s.read(ctx, func(ctx context.Context, l *link) error {
		if err := l.syncs.sync(ctx); err != nil {
			return err
		}
		there, stat, err := l.conn.Exists(parentOf(path))
		if err == nil && there {
			n = int64((uint32(stat.Cversion) + uint32(stat.NumChildren)) / 2) //nolint:gosec // both count up to 31 bits, twice the creations up to 32
		}
		return err
	})
	return n, err
}

// drawers holds the sequences that a session draws from.
type drawers struct {
	l *link

	mu     sync.Mutex
	byPath map[string]*drawer
}

func (d *drawers) of(path string) *drawer {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.byPath[path] == nil {
		if d.byPath == nil {
			d.byPath = map[string]*drawer{}
		}
		d.byPath[path] = &drawer{l: d.l, path: path}
	}
	return d.byPath[path]
}

// drawer draws numbers of one path.
type drawer struct {
	l    *link
	path string

	mu      sync.Mutex
	waiting []chan drawn
	running bool

	litter []string // nodes drawn and not removed yet; of the running goroutine
}

type drawn struct {
	n   int64
	err error
}

func (d *drawer) draw(ctx context.Context) (int64, error) {
	ch := make(chan drawn, 1)
	d.mu.Lock()
	if !d.running {
		if d.running = d.l.s.task(d.run); !d.running {
			d.mu.Unlock()
			return 0, errEnded
		}
	}
	d.waiting = append(d.waiting, ch)
	d.mu.Unlock()
	select {
	case r := <-ch:
		return r.n, r.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (d *drawer) run() {
	for {
		d.mu.Lock()
		n := min(len(d.waiting), drawsMax)
		batch := d.waiting[:n:n]
		d.waiting = d.waiting[n:]
		if n == 0 && len(d.litter) == 0 {
			d.waiting, d.running = nil, false
			d.mu.Unlock()
			return
		}
		d.mu.Unlock()
		numbers, err := d.round(n)
		for i, ch := range batch {
			if err != nil {
				ch <- drawn{err: err}
			} else {
				ch <- drawn{n: numbers[i]}
			}
		}
	}
}

// round removes the litter and draws n numbers, in one transaction.
func (d *drawer) round(n int) ([]int64, error) {
	for {
		var ops []any
		for _, path := range d.litter {
			ops = append(ops, &zk.DeleteRequest{Path: path, Version: -1})
		}
		for range n {
			ops = append(ops, &zk.CreateRequest{Path: d.path, Data: []byte{}, Acl: d.l.s.acl, Flags: zk.FlagEphemeral | zk.FlagSequence})
		}
		if len(ops) == 0 {
			return nil, nil
		}
		answers, err := d.l.conn.Multi(ops...)
		old := len(d.litter)
		switch {
		case err == nil:
			d.litter = nil
			return d.numbers(answers, old)
		case errors.Is(err, zk.ErrNoNode) && old > 0:
			d.litter = nil // someone cleaned up; what is left goes with the session
		case errors.Is(err, zk.ErrNoNode):
			if err := d.l.makeDir(parentOf(d.path), d.l.s.acl); err != nil {
				return nil, err
			}
		default:
			d.litter = nil // the connection broke, or access is denied: do not insist
			return nil, err
		}
	}
}

func (d *drawer) numbers(answers []zk.MultiResponse, skip int) ([]int64, error) {
	var out []int64
	for _, a := range answers[skip:] {
		suffix, ok := strings.CutPrefix(a.String, d.path)
		n, err := strconv.ParseInt(suffix, 10, 32)
		if !ok || err != nil {
			return nil, fmt.Errorf("%w: zookeeper named a node of sequence %s %q", zk.ErrAPIError, d.path, a.String)
		}
		out = append(out, n)
		d.litter = append(d.litter, a.String)
	}
	return out, nil
}
