package zkmeta

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/binderylog/bindery/internal/metadata"
)

// readsInFlight bounds the reads that one page of values has under way.
const readsInFlight = 64

// Get implements metadata.Store.
func (s *Store) Get(ctx context.Context, key string) (metadata.KV, error) {
	var kv metadata.KV
	err := s.read(ctx, func(ctx context.Context, l *link) error {
		if err := l.syncs.sync(ctx); err != nil {
			return err
		}
		value, stat, err := l.conn.Get(key)
		if err == nil {
			kv = toKV(key, value, stat)
		}
		return err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return metadata.KV{}, fmt.Errorf("%s: %w", key, metadata.ErrNotFound)
	}
	if err != nil {
		return metadata.KV{}, err
	}
	return kv, nil
}

func toKV(key string, value []byte, stat *zk.Stat) metadata.KV {
	return metadata.KV{Key: key, Value: value, Version: metadata.Version(stat.Version), Session: sessionName(stat.EphemeralOwner)}
}

// List implements metadata.Store.
func (s *Store) List(ctx context.Context, prefix, after string, limit int) ([]metadata.KV, error) {
	for {
		keys, err := s.Keys(ctx, prefix, after, limit)
		if err != nil || len(keys) == 0 {
			return nil, err
		}
		kvs, err := s.values(ctx, keys)
		if err != nil || len(kvs) > 0 {
			return kvs, err
		}
		after = keys[len(keys)-1] // all of them went meanwhile; an empty page would mean the end
	}
}

// values reads keys side by side and leaves out those that have gone.
func (s *Store) values(ctx context.Context, keys []string) ([]metadata.KV, error) {
	var kvs []metadata.KV
	err := s.read(ctx, func(_ context.Context, l *link) error {
		found := make([]*metadata.KV, len(keys))
		errs := make([]error, min(readsInFlight, len(keys)))
		var wg sync.WaitGroup
		for w := range errs {
			wg.Go(func() {
				for i := w; i < len(keys) && errs[w] == nil; i += len(errs) {
					value, stat, err := l.conn.Get(keys[i])
					switch {
					case err == nil:
						kv := toKV(keys[i], value, stat)
						found[i] = &kv
					case !errors.Is(err, zk.ErrNoNode):
						errs[w] = err
					}
				}
			})
		}
		wg.Wait()
		for _, err := range errs {
			if err != nil {
				return err
			}
		}
		kvs = make([]metadata.KV, 0, len(keys))
		for _, kv := range found {
			if kv != nil {
				kvs = append(kvs, *kv)
			}
		}
		return nil
	})
	return kvs, err
}

// Keys implements metadata.Store.
func (s *Store) Keys(ctx context.Context, prefix, after string, limit int) ([]string, error) {
	if limit < 1 || !strings.HasPrefix(prefix, "/") {
		return nil, s.stopped()
	}
	var keys []string
	err := s.read(ctx, func(ctx context.Context, l *link) error {
		if err := l.syncs.sync(ctx); err != nil {
			return err
		}
		w := walk{ctx: ctx, l: l, prefix: prefix, after: after, limit: limit}
		err := w.dir(prefix[:strings.LastIndexByte(prefix, '/')])
		keys = w.keys
		return err
	})
	return keys, err
}

// stopped returns ErrClosed after Close.
func (s *Store) stopped() error {
	if s.stop.Err() != nil {
		return metadata.ErrClosed
	}
	return nil
}

// walk collects keys in byte order. That order is not that of a plain descent: "/b-c" comes before "/b/c", since '-' sorts
// before '/'. So a directory's entries are each child's name and, for what lies below it, the name with a slash.
type walk struct {
	ctx           context.Context
	l             *link
	prefix, after string
	limit         int
	keys          []string
}

// dir walks the children of one node ("" for the root).
func (w *walk) dir(dir string) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	path := dir
	if path == "" {
		path = "/"
	}
	names, _, err := w.l.conn.Children(path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil // pruned meanwhile: an empty subtree
	}
	if err != nil {
		return err
	}
	entries := make([]string, 0, len(names))
	for _, n := range names {
		if dir == "" && n == "zookeeper" {
			continue
		}
		p := dir + "/" + n
		if p > w.after && strings.HasPrefix(p, w.prefix) {
			entries = append(entries, n)
		}
		below := p + "/"
		if p+"0" > w.after && !isLeaf(p) && (strings.HasPrefix(below, w.prefix) || strings.HasPrefix(w.prefix, below)) {
			entries = append(entries, n+"/")
		}
	}
	slices.Sort(entries)
	for _, e := range entries {
		if len(w.keys) >= w.limit {
			return nil
		}
		if name, below := strings.CutSuffix(e, "/"); below {
			if err := w.dir(dir + "/" + name); err != nil {
				return err
			}
			continue
		}
		w.keys = append(w.keys, dir+"/"+e)
	}
	return nil
}
