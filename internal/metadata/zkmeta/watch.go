package zkmeta

import (
	"container/heap"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/binderylog/bindery/internal/metadata"
)

// dispatch knows which watchers of a session care for a path.
type dispatch struct {
	mu    sync.Mutex
	keys  map[string]map[*watcher]struct{} // watchers of one key
	trees map[*watcher]struct{}            // watchers of what lies below a directory
}

func (d *dispatch) add(w *watcher) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w.tree {
		if d.trees == nil {
			d.trees = map[*watcher]struct{}{}
		}
		d.trees[w] = struct{}{}
		return
	}
	if d.keys == nil {
		d.keys = map[string]map[*watcher]struct{}{}
	}
	if d.keys[w.top] == nil {
		d.keys[w.top] = map[*watcher]struct{}{}
	}
	d.keys[w.top][w] = struct{}{}
}

func (d *dispatch) remove(w *watcher) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.trees, w)
	delete(d.keys[w.top], w)
	if len(d.keys[w.top]) == 0 {
		delete(d.keys, w.top)
	}
}

// event passes an event on. It is called by the library and does not block.
func (d *dispatch) event(e zk.Event) {
	what := lookData | lookChildren
	switch e.Type {
	case zk.EventNodeDataChanged:
		what = lookData
	case zk.EventNodeChildrenChanged:
		what = lookChildren
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for w := range d.keys[e.Path] {
		w.touch(e.Path, what)
	}
	for w := range d.trees {
		if e.Path == w.top || strings.HasPrefix(e.Path, w.top+"/") {
			w.touch(e.Path, what)
		}
	}
}

// look says what of a node is to be read again.
type look uint8

const (
	lookData     look = 1
	lookChildren look = 2
)

// watcher follows one key, or with tree everything below it.
type watcher struct {
	s    *Store
	top  string
	tree bool
	out  chan metadata.Event

	told   map[string]told                // what the reader knows
	below  map[string]map[string]struct{} // the keys of told by their parents
	synced bool

	mu    sync.Mutex
	dirty map[string]look
	order paths         // the keys of dirty
	wake  chan struct{} // capacity one
}

// paths is a heap, the smallest path on top: a directory that loses all its marks has tens of thousands to read.
type paths []string

// Len implements heap.Interface.
func (p paths) Len() int { return len(p) }

// Less implements heap.Interface.
func (p paths) Less(i, j int) bool { return p[i] < p[j] }

// Swap implements heap.Interface.
func (p paths) Swap(i, j int) { p[i], p[j] = p[j], p[i] }

// Push implements heap.Interface.
func (p *paths) Push(x any) { *p = append(*p, x.(string)) }

// Pop implements heap.Interface.
func (p *paths) Pop() any {
	last := len(*p) - 1
	x := (*p)[last]
	(*p)[last] = ""
	*p = (*p)[:last]
	return x
}

// told is the state of a key that was last reported.
type told struct {
	version int32
	made    int64 // transaction that made the node: one that was deleted and made again is another
}

func newWatcher(s *Store) *watcher {
	return &watcher{s: s, out: make(chan metadata.Event), told: map[string]told{}, below: map[string]map[string]struct{}{},
		dirty: map[string]look{}, wake: make(chan struct{}, 1)}
}

// Watch implements metadata.Store.
func (s *Store) Watch(ctx context.Context, prefix string) <-chan metadata.Event {
	w := newWatcher(s)
	w.top, w.tree = strings.CutSuffix(prefix, "/")
	ctx, cancel := context.WithCancel(ctx)
	unhook := context.AfterFunc(s.stop, cancel)
	end := func() { unhook(); cancel(); close(w.out) }
	if !s.task(func() { defer end(); w.run(ctx) }) {
		end()
	}
	return w.out
}

// touch asks for a path to be read again.
func (w *watcher) touch(path string, what look) {
	w.mu.Lock()
	if w.dirty[path] == 0 {
		heap.Push(&w.order, path)
	}
	w.dirty[path] |= what
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// next takes one path that is to be read, the smallest first.
func (w *watcher) next() (path string, what look, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.order) == 0 {
		return "", 0, false
	}
	path = heap.Pop(&w.order).(string)
	what = w.dirty[path]
	delete(w.dirty, path)
	return path, what, true
}

func (w *watcher) run(ctx context.Context) {
	for pause := newBackoff(); ; {
		l, err := w.s.live(ctx)
		if err == nil {
			l.watches.add(w)
			err = w.follow(ctx, l)
			l.watches.remove(w)
		}
		if ctx.Err() != nil {
			return
		}
		w.s.o.Logger.Debug("metadata watch restarts", "key", w.top, "error", err)
		if !pause.wait(ctx) {
			return
		}
	}
}

// follow reads everything once and then what changes, until the session ends.
func (w *watcher) follow(ctx context.Context, l *link) error {
	if err := l.syncs.sync(ctx); err != nil {
		return err
	}
	for path := range w.told {
		w.touch(path, lookData|lookChildren)
	}
	w.touch(w.top, lookData|lookChildren)
	for pause := newBackoff(); ; {
		path, what, more := w.next()
		if !more {
			if !w.synced {
				if !w.send(ctx, metadata.Event{Kind: metadata.EventSynced}) {
					return ctx.Err()
				}
				w.synced = true
			}
			pause = newBackoff()
			select {
			case <-w.wake:
				continue
			case <-l.done:
				return errEnded
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		err := w.refresh(ctx, l, path, what)
		if err == nil {
			continue
		}
		if ctx.Err() != nil || l.ended() {
			return err
		}
		w.touch(path, what) // a lost connection: the same session again, once it is back
		l.noticed(err)
		if !pause.wait(ctx) {
			return ctx.Err()
		}
		if err := l.wait(ctx); err != nil {
			return err
		}
	}
}

// refresh reads what was asked for of one node, with new watches, and reports what differs.
func (w *watcher) refresh(ctx context.Context, l *link, path string, what look) error {
	if w.tree && path == w.top { // not itself reported
		return w.children(l, path, true)
	}
	if what&lookData != 0 {
		alive, childless, err := w.data(ctx, l, path)
		if err != nil || !alive || childless {
			return err
		}
	}
	if w.tree && what&lookChildren != 0 && !isLeaf(path) {
		return w.children(l, path, false)
	}
	return nil
}

// data reads a node's value. alive is false if it does not exist; an ephemeral node is childless for ever.
func (w *watcher) data(ctx context.Context, l *link, path string) (alive, childless bool, err error) {
	for {
		value, stat, _, err := l.conn.GetW(path)
		if err == nil {
			return true, stat.EphemeralOwner != 0, w.put(ctx, path, value, stat)
		}
		if !errors.Is(err, zk.ErrNoNode) {
			return false, false, err
		}
		if path == w.top { // the only one that may come back without its parent saying so
			exists, _, _, err := l.conn.ExistsW(path)
			if err != nil {
				return false, false, err
			}
			if exists {
				continue
			}
		}
		return false, false, w.gone(ctx, path)
	}
}

// children reads the names below a node and asks for those that are new to be read, and those that have gone.
func (w *watcher) children(l *link, dir string, top bool) error {
	var names []string
	for {
		var err error
		names, _, _, err = l.conn.ChildrenW(dir)
		if err == nil {
			break
		}
		if !errors.Is(err, zk.ErrNoNode) {
			return err
		}
		if !top {
			return nil // its own data watch tells
		}
		exists, _, _, err := l.conn.ExistsW(dir)
		if err != nil {
			return err
		}
		if !exists {
			break
		}
	}
	have := make(map[string]struct{}, len(names))
	for _, n := range names {
		p := dir + "/" + n
		have[p] = struct{}{}
		if _, known := w.told[p]; !known {
			w.touch(p, lookData|lookChildren)
		}
	}
	for p := range w.below[dir] {
		if _, still := have[p]; !still {
			w.touch(p, lookData|lookChildren)
		}
	}
	return nil
}

// put reports a value unless the reader knows it.
func (w *watcher) put(ctx context.Context, path string, value []byte, stat *zk.Stat) error {
	old, known := w.told[path]
	now := told{version: stat.Version, made: stat.Czxid}
	if known && old == now {
		return nil
	}
	if known && old.made != now.made {
		if err := w.gone(ctx, path); err != nil {
			return err
		}
	}
	if !w.send(ctx, metadata.Event{Kind: metadata.EventPut, KV: toKV(path, value, stat)}) {
		return ctx.Err()
	}
	w.told[path] = now
	dir := parentOf(path)
	if w.below[dir] == nil {
		w.below[dir] = map[string]struct{}{}
	}
	w.below[dir][path] = struct{}{}
	return nil
}

// gone reports that a key has gone, and what was below it.
func (w *watcher) gone(ctx context.Context, path string) error {
	if _, known := w.told[path]; known {
		if !w.send(ctx, metadata.Event{Kind: metadata.EventDelete, KV: metadata.KV{Key: path}}) {
			return ctx.Err()
		}
		delete(w.told, path)
		dir := parentOf(path)
		if delete(w.below[dir], path); len(w.below[dir]) == 0 {
			delete(w.below, dir)
		}
	}
	for _, p := range slices.Sorted(maps.Keys(w.below[path])) {
		if err := w.gone(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

func (w *watcher) send(ctx context.Context, e metadata.Event) bool {
	select {
	case w.out <- e:
		return true
	case <-ctx.Done():
		return false
	}
}
