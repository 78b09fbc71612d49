package engine

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/binderylog/bindery/internal/vfs"
)

// Ghost is a file system whose files are real and whose names are not: each file is one without a name in a directory of
// a disk, so that engines which want names leave nothing behind either, however the process ends. Syncing a directory
// syncs the real one, for what that costs.
type Ghost struct {
	real vfs.FS
	temp Unnamed
	dir  string

	mu    sync.Mutex
	files map[string]*ghost
	dirs  map[string]bool
}

// ghost is a file: the handle that keeps it, and where to open it again.
type ghost struct {
	keep  vfs.File
	again string
}

// NewGhost returns one whose files lie in dir. It fails with errors.ErrUnsupported where files must have names.
func NewGhost(fsys vfs.FS, dir string) (*Ghost, error) {
	temp, ok := fsys.(Unnamed)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	f, _, err := temp.OpenUnnamed(dir)
	if err != nil {
		return nil, err
	}
	return &Ghost{real: fsys, temp: temp, dir: dir, files: map[string]*ghost{}, dirs: map[string]bool{}}, f.Close()
}

// Close gives up all files.
func (g *Ghost) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var errs []error
	for _, f := range g.files {
		errs = append(errs, f.keep.Close())
	}
	clear(g.files)
	return errors.Join(errs...)
}

// Open implements vfs.FS.
func (g *Ghost) Open(name string, m vfs.Mode) (vfs.File, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f := g.files[name]
	switch {
	case f == nil && !m.Create:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	case f != nil && m.Create && m.Exclusive:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrExist}
	case f == nil:
		keep, again, err := g.temp.OpenUnnamed(g.dir)
		if err != nil {
			return nil, err
		}
		f = &ghost{keep, again}
		g.files[name] = f
	}
	m.Create, m.Exclusive = false, false
	return g.real.Open(f.again, m)
}

// Remove implements vfs.FS.
func (g *Ghost) Remove(name string) error {
	g.mu.Lock()
	f := g.files[name]
	delete(g.files, name)
	g.mu.Unlock()
	if f == nil {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	return f.keep.Close()
}

// Rename implements vfs.FS.
func (g *Ghost) Rename(oldName, newName string) error {
	g.mu.Lock()
	f, replaced := g.files[oldName], g.files[newName]
	if f != nil {
		delete(g.files, oldName)
		g.files[newName] = f
	}
	g.mu.Unlock()
	if f == nil {
		return &fs.PathError{Op: "rename", Path: oldName, Err: fs.ErrNotExist}
	}
	if replaced != nil && replaced != f {
		return replaced.keep.Close()
	}
	return nil
}

// MkdirAll implements vfs.FS.
func (g *Ghost) MkdirAll(dir string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for d := filepath.Clean(dir); !g.dirs[d]; d = filepath.Dir(d) {
		g.dirs[d] = true
	}
	return nil
}

// List implements vfs.FS.
func (g *Ghost) List(dir string) ([]string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.dirs[filepath.Clean(dir)] {
		return nil, &fs.PathError{Op: "list", Path: dir, Err: fs.ErrNotExist}
	}
	var names []string
	prefix := filepath.Clean(dir) + string(filepath.Separator)
	for name := range g.files {
		if rest, ok := strings.CutPrefix(name, prefix); ok && !strings.ContainsRune(rest, filepath.Separator) {
			names = append(names, rest)
		}
	}
	slices.Sort(names)
	return names, nil
}

// Stat implements vfs.FS.
func (g *Ghost) Stat(name string) (vfs.Info, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f := g.files[name]; f != nil {
		size, err := f.keep.Size()
		return vfs.Info{Size: size}, err
	}
	if g.dirs[filepath.Clean(name)] {
		return vfs.Info{Dir: true}, nil
	}
	return vfs.Info{}, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
}

// SyncDir implements vfs.FS.
func (g *Ghost) SyncDir(string) error { return g.real.SyncDir(g.dir) }

// Lock implements vfs.FS. Nobody else can see these files.
func (g *Ghost) Lock(string) (io.Closer, error) { return unlocked{}, nil }

type unlocked struct{}

func (unlocked) Close() error { return nil }

// Usage implements vfs.FS.
func (g *Ghost) Usage(string) (vfs.Usage, error) { return g.real.Usage(g.dir) }
