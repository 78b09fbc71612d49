package memmeta

import (
	"bytes"
	"strconv"
	"strings"
	"sync"

	"github.com/binderylog/bindery/internal/metadata"
)

// node is one key.
type node struct {
	key     string
	value   []byte
	version metadata.Version
	writes  int64 // puts since the key was created: the counter behind Sequence
	session string
}

// Tree is the shared state behind the stores of one name: what an etcd cluster is to its clients.
type Tree struct {
	mu       sync.Mutex
	nodes    ordered
	revision metadata.Version // of the last write
	sessions map[string]*session
	sessionN int64
	watchers map[*watcher]struct{}
	late     []metadata.Txn // writes whose outcome was reported unknown and that have not landed yet
	onWrite  func(key string, value []byte, v metadata.Version)
}

// NewTree returns an empty tree of its own.
func NewTree() *Tree {
	return &Tree{
		sessions: map[string]*session{},
		watchers: map[*watcher]struct{}{},
	}
}

var (
	registryMu sync.Mutex
	registry   = map[string]*Tree{}
)

// Named returns the tree of that name in this process, making it if there is none. It lives as long as the process.
func Named(name string) *Tree {
	registryMu.Lock()
	defer registryMu.Unlock()
	t := registry[name]
	if t == nil {
		t = NewTree()
		registry[name] = t
	}
	return t
}

// OnWrite installs a function that sees every write in the order in which they take effect, before anybody can read it:
// for checkers that must not miss a version. value is nil for a delete and belongs to the tree. It runs under the tree's
// lock and must not call the tree or any of its stores.
func (t *Tree) OnWrite(fn func(key string, value []byte, v metadata.Version)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.onWrite = fn
}

func (t *Tree) getLocked(key string) *node { return t.nodes.get(key) }

// versionLocked returns the version of a key, or Absent.
func (t *Tree) versionLocked(key string) metadata.Version {
	if n := t.getLocked(key); n != nil {
		return n.version
	}
	return metadata.Absent
}

// applyLocked makes the transaction if its conditions hold. All writes of one transaction get one version, as in etcd.
func (t *Tree) applyLocked(x metadata.Txn) (metadata.TxnResult, error) {
	conflict := func(key string, want metadata.Version) error {
		if want == metadata.Any {
			return nil
		}
		if have := t.versionLocked(key); have != want {
			return &metadata.ConflictError{Key: key, Want: want, Have: have}
		}
		return nil
	}
	for _, c := range x.Checks {
		if err := conflict(c.Key, c.Version); err != nil {
			return metadata.TxnResult{}, err
		}
	}
	for _, p := range x.Puts {
		if err := conflict(p.Key, p.Version); err != nil {
			return metadata.TxnResult{}, err
		}
		if p.Session != nil && t.sessions[p.Session.ID()] == nil {
			return metadata.TxnResult{}, metadata.ErrSessionLost
		}
	}
	for _, d := range x.Deletes {
		if err := conflict(d.Key, d.Version); err != nil {
			return metadata.TxnResult{}, err
		}
	}
	t.revision++
	var r metadata.TxnResult
	for _, p := range x.Puts {
		s := ""
		if p.Session != nil {
			s = p.Session.ID()
		}
		t.putLocked(p.Key, p.Value, s)
		r.Versions = append(r.Versions, t.revision)
	}
	for _, d := range x.Deletes {
		t.deleteLocked(d.Key)
	}
	return r, nil
}

func (t *Tree) putLocked(key string, value []byte, session string) *node {
	n := &node{key: key, value: bytes.Clone(value), version: t.revision, writes: 1, session: session}
	if old := t.getLocked(key); old != nil {
		n.writes = old.writes + 1
	}
	t.nodes.set(n)
	if t.onWrite != nil {
		t.onWrite(key, n.value, n.version)
	}
	t.notifyLocked(key)
	return n
}

func (t *Tree) deleteLocked(key string) {
	if t.nodes.remove(key) {
		if t.onWrite != nil {
			t.onWrite(key, nil, t.revision)
		}
		t.notifyLocked(key)
	}
}

func (t *Tree) notifyLocked(key string) {
	for w := range t.watchers {
		if strings.HasPrefix(key, w.prefix) {
			w.changedLocked(key)
		}
	}
}

// listLocked calls fn for up to limit keys with prefix that sort after `after`.
func (t *Tree) listLocked(prefix, after string, limit int, fn func(*node)) {
	from := prefix
	if after >= from {
		from = after + "\x00"
	}
	t.nodes.from(from, func(n *node) bool {
		if limit <= 0 || !strings.HasPrefix(n.key, prefix) {
			return false
		}
		fn(n)
		limit--
		return true
	})
}

func (n *node) kv() metadata.KV {
	return metadata.KV{Key: n.key, Value: bytes.Clone(n.value), Version: n.version, Session: n.session}
}

// session is a lease that lasts until it is ended.
type session struct {
	id   string
	done chan struct{}
}

// ID implements metadata.Session.
func (s *session) ID() string { return s.id }

// Done implements metadata.Session.
func (s *session) Done() <-chan struct{} { return s.done }

func (t *Tree) newSessionLocked() *session {
	t.sessionN++
	s := &session{id: "mem-" + strconv.FormatInt(t.sessionN, 10), done: make(chan struct{})}
	t.sessions[s.id] = s
	return s
}

// endSessionLocked removes a session's keys, then tells its owner.
func (t *Tree) endSessionLocked(s *session) {
	if t.sessions[s.id] == nil {
		return
	}
	delete(t.sessions, s.id)
	var keys []string
	t.nodes.from("", func(n *node) bool {
		if n.session == s.id {
			keys = append(keys, n.key)
		}
		return true
	})
	if len(keys) > 0 {
		t.revision++
	}
	for _, k := range keys {
		t.deleteLocked(k)
	}
	close(s.done)
}

// LandLate makes the writes whose outcome was reported as unknown with Late, in the order they were sent, each under its
// own conditions as they are now. It returns how many of them took effect.
func (t *Tree) LandLate() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, x := range t.late {
		if _, err := t.applyLocked(x); err == nil {
			n++
		}
	}
	t.late = nil
	return n
}

// Late returns how many writes have not landed yet.
func (t *Tree) Late() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.late)
}
