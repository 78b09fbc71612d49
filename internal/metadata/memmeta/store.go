// Package memmeta is the metadata store in memory: for tests, for simulation, and for a process that holds a whole cluster.
//
// All stores opened on one Tree see the same keys, each with a session of its own, like several clients of one etcd. It is
// deterministic: nothing happens but by a call, there is no clock, and versions count the writes. Faults are injected by a
// function that is asked before each operation: it can delay it, refuse it, or make its outcome unknown in each of the three
// ways that a real store knows (applied, never applied, applied later).
//
// Goroutines: one per Watch, which ends with its context or the store; Close waits for them.
// Limits: those of package metadata.
package memmeta

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/binderylog/bindery/internal/metadata"
)

// Op is an operation about to be made, as a fault function sees it.
type Op struct {
	Name string   // "get", "list", "keys", "txn", "sequence" or "session"
	Keys []string // keys or prefix it touches
}

// Outcome says what happens to a write whose caller gets ErrUnknownOutcome.
type Outcome uint8

// The outcomes. Known is the zero value: no such fault.
const (
	Known   Outcome = iota
	Applied         // it happened at once, the answer was lost
	Dropped         // it never happens
	Late            // it happens when Tree.LandLate is called
)

// Fault is what a fault function does to one operation. The zero value does nothing.
type Fault struct {
	Delay   time.Duration // before the operation; the context may end it
	Err     error         // refuse with this, wrapped in metadata.ErrUnavailable
	Outcome Outcome       // for writes: report ErrUnknownOutcome
}

// Store is one client of a Tree.
type Store struct {
	tree *Tree

	mu      sync.Mutex // guards the three fields below; taken before tree.mu
	faults  func(Op) Fault
	session *session
	closed  bool

	stop    context.Context // ends with Close
	cancel  context.CancelFunc
	watches sync.WaitGroup
}

// Open returns a new client of the tree of that name in this process; with "", of a tree of its own.
func Open(name string) *Store {
	if name == "" {
		return NewTree().Open()
	}
	return Named(name).Open()
}

// Open returns a new client of the tree.
func (t *Tree) Open() *Store {
	s := &Store{tree: t}
	s.stop, s.cancel = context.WithCancel(context.Background())
	return s
}

// Tree returns the tree that the store works on.
func (s *Store) Tree() *Tree { return s.tree }

// SetFaults installs a function that is asked before every operation of this store; nil removes it. It is called without
// any lock held.
func (s *Store) SetFaults(fn func(Op) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = fn
}

// ExpireSession ends this store's session as if it could not be renewed. It reports whether there was one.
func (s *Store) ExpireSession() bool {
	s.mu.Lock()
	old := s.session
	s.session = nil
	s.mu.Unlock()
	if old == nil {
		return false
	}
	s.tree.mu.Lock()
	defer s.tree.mu.Unlock()
	s.tree.endSessionLocked(old)
	return true
}

// begin applies the faults of an operation. The returned outcome is Known unless a write's answer is to be lost.
func (s *Store) begin(ctx context.Context, name string, keys ...string) (Outcome, error) {
	s.mu.Lock()
	faults, closed := s.faults, s.closed
	s.mu.Unlock()
	if closed {
		return Known, metadata.ErrClosed
	}
	if faults == nil {
		if err := ctx.Err(); err != nil {
			return Known, fmt.Errorf("%w: %w", metadata.ErrUnavailable, err)
		}
		return Known, nil
	}
	f := faults(Op{Name: name, Keys: keys})
	if f.Delay > 0 {
		t := time.NewTimer(f.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		case <-s.stop.Done():
			return Known, metadata.ErrClosed
		}
	}
	if err := ctx.Err(); err != nil {
		return Known, fmt.Errorf("%w: %w", metadata.ErrUnavailable, err)
	}
	if f.Err != nil {
		return Known, fmt.Errorf("%w: %w", metadata.ErrUnavailable, f.Err)
	}
	return f.Outcome, nil
}

// Get implements metadata.Store.
func (s *Store) Get(ctx context.Context, key string) (metadata.KV, error) {
	if _, err := s.begin(ctx, "get", key); err != nil {
		return metadata.KV{}, err
	}
	s.tree.mu.Lock()
	defer s.tree.mu.Unlock()
	n := s.tree.getLocked(key)
	if n == nil {
		return metadata.KV{}, fmt.Errorf("%s: %w", key, metadata.ErrNotFound)
	}
	return n.kv(), nil
}

// List implements metadata.Store.
func (s *Store) List(ctx context.Context, prefix, after string, limit int) ([]metadata.KV, error) {
	if _, err := s.begin(ctx, "list", prefix); err != nil {
		return nil, err
	}
	s.tree.mu.Lock()
	defer s.tree.mu.Unlock()
	var out []metadata.KV
	s.tree.listLocked(prefix, after, limit, func(n *node) { out = append(out, n.kv()) })
	return out, nil
}

// Keys implements metadata.Store.
func (s *Store) Keys(ctx context.Context, prefix, after string, limit int) ([]string, error) {
	if _, err := s.begin(ctx, "keys", prefix); err != nil {
		return nil, err
	}
	s.tree.mu.Lock()
	defer s.tree.mu.Unlock()
	var out []string
	s.tree.listLocked(prefix, after, limit, func(n *node) { out = append(out, n.key) })
	return out, nil
}

// Put implements metadata.Store.
func (s *Store) Put(ctx context.Context, key string, value []byte, v metadata.Version) (metadata.Version, error) {
	return metadata.PutOne(ctx, s, key, value, v)
}

// Delete implements metadata.Store.
func (s *Store) Delete(ctx context.Context, key string, v metadata.Version) error {
	return metadata.DeleteOne(ctx, s, key, v)
}

// Txn implements metadata.Store.
func (s *Store) Txn(ctx context.Context, t metadata.Txn) (metadata.TxnResult, error) {
	if err := metadata.CheckLimits(t); err != nil {
		return metadata.TxnResult{}, err
	}
	outcome, err := s.begin(ctx, "txn", txnKeys(t)...)
	if err != nil {
		return metadata.TxnResult{}, err
	}
	s.tree.mu.Lock()
	defer s.tree.mu.Unlock()
	switch outcome {
	case Dropped:
		return metadata.TxnResult{}, fmt.Errorf("%w: injected", metadata.ErrUnknownOutcome)
	case Late:
		s.tree.late = append(s.tree.late, cloneTxn(t))
		return metadata.TxnResult{}, fmt.Errorf("%w: injected", metadata.ErrUnknownOutcome)
	}
	r, err := s.tree.applyLocked(t)
	if outcome == Applied {
		return metadata.TxnResult{}, fmt.Errorf("%w: injected", metadata.ErrUnknownOutcome)
	}
	return r, err
}

// Sequence implements metadata.Store the way etcd does: each call writes the parent key, whose count of writes is the
// number.
func (s *Store) Sequence(ctx context.Context, path string) (int64, error) {
	i := strings.LastIndexByte(path, '/')
	if i <= 0 {
		return 0, fmt.Errorf("%w: sequence path %q has no parent", metadata.ErrBadTxn, path)
	}
	outcome, err := s.begin(ctx, "sequence", path)
	if err != nil {
		return 0, err
	}
	s.tree.mu.Lock()
	defer s.tree.mu.Unlock()
	if outcome == Dropped || outcome == Late {
		return 0, fmt.Errorf("%w: injected", metadata.ErrUnknownOutcome)
	}
	s.tree.revision++
	n := s.tree.putLocked(path[:i], nil, "")
	if outcome == Applied {
		return 0, fmt.Errorf("%w: injected", metadata.ErrUnknownOutcome)
	}
	return n.writes - 1, nil
}

// NextInSequence implements metadata.Store.
func (s *Store) NextInSequence(ctx context.Context, path string) (int64, error) {
	i := strings.LastIndexByte(path, '/')
	if i <= 0 {
		return 0, fmt.Errorf("%w: sequence path %q has no parent", metadata.ErrBadTxn, path)
	}
	if _, err := s.begin(ctx, "get", path[:i]); err != nil {
		return 0, err
	}
	s.tree.mu.Lock()
	defer s.tree.mu.Unlock()
	if n := s.tree.getLocked(path[:i]); n != nil {
		return n.writes, nil
	}
	return 0, nil
}

// Session implements metadata.Store.
func (s *Store) Session(ctx context.Context) (metadata.Session, error) {
	if _, err := s.begin(ctx, "session"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, metadata.ErrClosed
	}
	if s.session == nil {
		s.tree.mu.Lock()
		s.session = s.tree.newSessionLocked()
		s.tree.mu.Unlock()
	}
	return s.session, nil
}

// Close implements metadata.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return nil
	}
	s.ExpireSession()
	s.cancel()
	s.watches.Wait()
	return nil
}

func txnKeys(t metadata.Txn) []string {
	keys := make([]string, 0, len(t.Checks)+len(t.Puts)+len(t.Deletes))
	for _, c := range t.Checks {
		keys = append(keys, c.Key)
	}
	for _, p := range t.Puts {
		keys = append(keys, p.Key)
	}
	for _, d := range t.Deletes {
		keys = append(keys, d.Key)
	}
	return keys
}

func cloneTxn(t metadata.Txn) metadata.Txn {
	c := metadata.Txn{
		Checks:  append([]metadata.Check(nil), t.Checks...),
		Puts:    append([]metadata.Put(nil), t.Puts...),
		Deletes: append([]metadata.Delete(nil), t.Deletes...),
	}
	for i := range c.Puts {
		c.Puts[i].Value = append([]byte(nil), c.Puts[i].Value...)
	}
	return c
}
