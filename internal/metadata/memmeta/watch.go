package memmeta

import (
	"context"

	"github.com/binderylog/bindery/internal/metadata"
)

// watcher collects the keys that changed since its goroutine last looked. It remembers keys, not events, so a slow reader
// costs at most one entry per key.
type watcher struct {
	prefix  string
	dirty   map[string]struct{} // guarded by Tree.mu
	order   []string            // the keys of dirty, oldest change first; guarded by Tree.mu
	changed chan struct{}       // capacity one
}

func (w *watcher) changedLocked(key string) {
	if _, known := w.dirty[key]; known {
		return
	}
	w.dirty[key] = struct{}{}
	w.order = append(w.order, key)
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// Watch implements metadata.Store.
func (s *Store) Watch(ctx context.Context, prefix string) <-chan metadata.Event {
	out := make(chan metadata.Event)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		close(out)
		return out
	}
	w := &watcher{prefix: prefix, dirty: map[string]struct{}{}, changed: make(chan struct{}, 1)}
	s.tree.mu.Lock()
	var events []metadata.Event
	known := map[string]struct{}{} // keys that the reader has been told of
	s.tree.listLocked(prefix, "", int(^uint(0)>>1), func(n *node) {
		events = append(events, metadata.Event{Kind: metadata.EventPut, KV: n.kv()})
		known[n.key] = struct{}{}
	})
	s.tree.watchers[w] = struct{}{}
	s.tree.mu.Unlock()
	events = append(events, metadata.Event{Kind: metadata.EventSynced})
	s.watches.Go(func() {
		defer close(out)
		defer s.tree.unwatch(w)
		for {
			for _, e := range events {
				select {
				case out <- e:
				case <-ctx.Done():
					return
				case <-s.stop.Done():
					return
				}
			}
			select {
			case <-w.changed:
			case <-ctx.Done():
				return
			case <-s.stop.Done():
				return
			}
			events = s.tree.collect(w, known)
		}
	})
	return out
}

func (t *Tree) unwatch(w *watcher) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.watchers, w)
}

// collect turns the keys that changed into events that tell their state now. A key that came and went unseen is left out.
func (t *Tree) collect(w *watcher, known map[string]struct{}) []metadata.Event {
	t.mu.Lock()
	defer t.mu.Unlock()
	var events []metadata.Event
	for _, key := range w.order {
		_, told := known[key]
		switch n := t.getLocked(key); {
		case n != nil:
			known[key] = struct{}{}
			events = append(events, metadata.Event{Kind: metadata.EventPut, KV: n.kv()})
		case told:
			delete(known, key)
			events = append(events, metadata.Event{Kind: metadata.EventDelete, KV: metadata.KV{Key: key}})
		}
	}
	w.order = nil
	clear(w.dirty)
	return events
}
