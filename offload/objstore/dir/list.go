package dir

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/binderylog/bindery/offload/objstore"
)

// List implements objstore.Objects. Files that are no objects are listed too, with their own length: they are what an operator looks for.
func (s *Store) List(ctx context.Context, prefix, after string, limit int) ([]objstore.Info, error) {
	limit, err := objstore.CheckList(prefix, limit)
	if err != nil {
		return nil, err
	}
	w := walk{s: s, ctx: ctx, prefix: prefix, after: after, limit: limit}
	folder := ""
	if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
		folder = prefix[:i]
		if objstore.CheckKey(folder) != nil {
			return nil, s.ready(objstore.OpList, prefix) // no key begins like that
		}
	}
	if err := w.folder(folder); err != nil {
		return nil, s.fail(objstore.OpList, prefix, err)
	}
	if len(w.out) == 0 {
		return nil, s.ready(objstore.OpList, prefix)
	}
	return w.out, nil
}

type walk struct {
	s             *Store
	ctx           context.Context
	prefix, after string
	limit         int
	out           []objstore.Info
}

type child struct {
	key  string // of a folder: ends in a slash, so that keys sort as they do in a flat store
	size int64
	dir  bool
}

// folder adds the objects below the folder of that key, in key order.
func (w *walk) folder(key string) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	children, err := w.children(key)
	if err != nil {
		return err
	}
	for _, c := range children {
		if len(w.out) == w.limit {
			return nil
		}
		if c.dir {
			if err := w.folder(strings.TrimSuffix(c.key, "/")); err != nil {
				return err
			}
			continue
		}
		w.out = append(w.out, w.object(c))
	}
	return nil
}

// children returns what is in a folder and may hold keys of this listing.
func (w *walk) children(key string) ([]child, error) {
	names, err := w.s.fs.List(w.s.path(key))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil // removed meanwhile, or a prefix that no key has
	}
	if err != nil {
		return nil, err
	}
	var out []child
	for _, name := range names {
		c := child{key: name}
		if key != "" {
			c.key = key + "/" + name
		}
		if objstore.CheckKey(c.key) != nil {
			continue // .bindery, and what no key can name
		}
		in, err := w.s.fs.Stat(filepath.Join(w.s.path(key), name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		c.size, c.dir = in.Size, in.Dir
		if c.dir {
			c.key += "/"
		}
		if w.wants(c) {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b child) int { return strings.Compare(a.key, b.key) })
	return out, nil
}

func (w *walk) wants(c child) bool {
	if !c.dir {
		return c.key > w.after && strings.HasPrefix(c.key, w.prefix)
	}
	return (strings.HasPrefix(c.key, w.prefix) || strings.HasPrefix(w.prefix, c.key)) &&
		(c.key > w.after || strings.HasPrefix(w.after, c.key))
}

func (w *walk) object(c child) objstore.Info {
	f, foot, err := openFooter(w.s.fs, w.s.path(c.key))
	if err != nil {
		return objstore.Info{Key: c.key, Size: c.size}
	}
	f.Close()
	return objstore.Info{Key: c.key, Size: foot.size, Modified: time.UnixMilli(foot.modified)}
}
