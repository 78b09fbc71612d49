package memfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/binderylog/bindery/internal/vfs"
)

// ErrCrashed is returned by every call on a file system that lost power, and on its files.
var ErrCrashed = errors.New("the file system has crashed")

// unboundedSpace is what Usage reports as the size of a file system without a capacity.
const unboundedSpace = 1 << 40

// FS is a file system in memory.
type FS struct {
	mu      sync.RWMutex // guards everything below and all nodes; pages are shared with clones, see page
	root    *node
	pending []dirOp // directory operations that are not durable, oldest first
	locks   map[*node]bool
	cap     int64 // bytes; 0 = unbounded
	used    int64 // pages
	changes int64 // operations that changed something
	crashAt int64 // the change that crashes; 0 = none
	crashed bool
}

var _ vfs.FS = (*FS)(nil)

// New returns an empty file system that holds the given directories durably, and the root.
func New(dirs ...string) *FS {
	f := &FS{root: newDir(), locks: map[*node]bool{}}
	for _, dir := range dirs {
		if err := f.MkdirAll(dir); err != nil {
			panic(fmt.Sprintf("memfs.New(%q): %v", dir, err)) // a mistake in a test's own text
		}
	}
	f.commitAllNames()
	f.changes = 0
	return f
}

// SetCapacity bounds the bytes that files may take, in blocks of 4 KiB; 0 means no bound. It may be set below what is in
// use, which is then full.
func (f *FS) SetCapacity(bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cap = bytes
}

// CrashNow makes every later call fail with ErrCrashed.
func (f *FS) CrashNow() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.crashed = true
}

// CrashAt crashes in the middle of the nth change from now, counted from 1; 0 or less calls it off. Changes are calls
// that write, sync, truncate, preallocate, create, remove, rename or sync names.
func (f *FS) CrashAt(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.crashAt = 0
	if n > 0 {
		f.crashAt = f.changes + n
	}
}

// Crashed says whether the file system has crashed.
func (f *FS) Crashed() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.crashed
}

// Changes returns how many operations have changed something since New.
func (f *FS) Changes() int64 {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.changes
}

// changeLocked counts an operation that changes something. dies says that the power fails in the middle of it: its
// effect is to be made, but not durable.
func (f *FS) changeLocked() (dies bool) {
	f.changes++
	if f.changes == f.crashAt {
		f.crashed = true
	}
	return f.crashed
}

// Open implements vfs.FS.
func (f *FS) Open(name string, m vfs.Mode) (vfs.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.crashed {
		return nil, pathError("open", name, ErrCrashed)
	}
	dir, base, err := f.parentLocked(name)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	n := f.root
	if base != "" {
		n = dir.live[base]
	}
	switch {
	case n == nil && !m.Create:
		return nil, pathError("open", name, fs.ErrNotExist)
	case n == nil:
		n = newFile()
		n.links = 1
		dies := f.changeLocked()
		f.applyLocked(dirOp{{dir, base, n}})
		if dies {
			return nil, pathError("open", name, ErrCrashed)
		}
	case m.Create && m.Exclusive:
		return nil, pathError("open", name, fs.ErrExist)
	case n.dir:
		return nil, pathError("open", name, syscall.EISDIR)
	}
	n.handles++
	return &file{fs: f, node: n, name: name, mode: m}, nil
}

// Remove implements vfs.FS.
func (f *FS) Remove(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.crashed {
		return pathError("remove", name, ErrCrashed)
	}
	dir, base, err := f.parentLocked(name)
	if err != nil {
		return pathError("remove", name, err)
	}
	n := dir.live[base]
	switch {
	case base == "":
		return pathError("remove", name, syscall.EBUSY)
	case n == nil:
		return pathError("remove", name, fs.ErrNotExist)
	case n.dir && len(n.live) > 0:
		return pathError("remove", name, syscall.ENOTEMPTY)
	}
	dies := f.changeLocked()
	f.applyLocked(dirOp{{dir, base, nil}})
	f.unlinkLocked(n)
	if dies {
		return pathError("remove", name, ErrCrashed)
	}
	return nil
}

// Rename implements vfs.FS. A directory may be renamed to a name that is free or an empty directory.
func (f *FS) Rename(oldName, newName string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.crashed {
		return pathError("rename", oldName, ErrCrashed)
	}
	oldDir, oldBase, err := f.parentLocked(oldName)
	if err != nil {
		return pathError("rename", oldName, err)
	}
	newDir, newBase, err := f.parentLocked(newName)
	if err != nil {
		return pathError("rename", newName, err)
	}
	n, target := oldDir.live[oldBase], newDir.live[newBase]
	switch {
	case n == nil:
		return pathError("rename", oldName, fs.ErrNotExist)
	case newBase == "":
		return pathError("rename", newName, syscall.EBUSY)
	case n == target:
		return nil
	case n.dir && within(n, newDir):
		return pathError("rename", newName, syscall.EINVAL)
	case target != nil && n.dir && !target.dir:
		return pathError("rename", newName, syscall.ENOTDIR)
	case target != nil && !n.dir && target.dir:
		return pathError("rename", newName, syscall.EISDIR)
	case target != nil && target.dir && len(target.live) > 0:
		return pathError("rename", newName, syscall.ENOTEMPTY)
	}
	dies := f.changeLocked()
	f.applyLocked(dirOp{{oldDir, oldBase, nil}, {newDir, newBase, n}})
	if target != nil {
		f.unlinkLocked(target)
	}
	if dies {
		return pathError("rename", oldName, ErrCrashed)
	}
	return nil
}

// within says whether d is top or lies below it.
func within(top, d *node) bool {
	if top == d {
		return true
	}
	for _, c := range top.live {
		if c.dir && within(c, d) {
			return true
		}
	}
	return false
}

// MkdirAll implements vfs.FS.
func (f *FS) MkdirAll(dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.crashed {
		return pathError("mkdir", dir, ErrCrashed)
	}
	at := f.root
	for _, part := range split(dir) {
		next := at.live[part]
		if next == nil {
			next = newDir()
			dies := f.changeLocked()
			f.applyLocked(dirOp{{at, part, next}})
			if dies {
				return pathError("mkdir", dir, ErrCrashed)
			}
		}
		if !next.dir {
			return pathError("mkdir", dir, syscall.ENOTDIR)
		}
		at = next
	}
	return nil
}

// List implements vfs.FS.
func (f *FS) List(dir string) ([]string, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	n, err := f.lookupLocked(dir)
	if err == nil && !n.dir {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, pathError("list", dir, err)
	}
	names := slices.Collect(maps.Keys(n.live))
	slices.Sort(names)
	return names, nil
}

// Stat implements vfs.FS.
func (f *FS) Stat(name string) (vfs.Info, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	n, err := f.lookupLocked(name)
	if err != nil {
		return vfs.Info{}, pathError("stat", name, err)
	}
	return vfs.Info{Size: n.now.size, Dir: n.dir}, nil
}

// SyncDir implements vfs.FS.
func (f *FS) SyncDir(dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.lookupLocked(dir)
	if err == nil && !n.dir {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return pathError("sync", dir, err)
	}
	if f.changeLocked() {
		return pathError("sync", dir, ErrCrashed)
	}
	f.commitNamesLocked(n)
	return nil
}

// Lock implements vfs.FS.
func (f *FS) Lock(name string) (io.Closer, error) {
	h, err := f.Open(name, vfs.Mode{Write: true, Create: true})
	if err != nil {
		return nil, err
	}
	n := h.(*file).node
	f.mu.Lock()
	held := f.locks[n]
	f.locks[n] = true
	f.mu.Unlock()
	if held {
		return nil, errors.Join(pathError("lock", name, vfs.ErrLocked), h.Close())
	}
	return &lock{f, h, n}, nil
}

type lock struct {
	fs   *FS
	file vfs.File
	node *node
}

func (l *lock) Close() error {
	l.fs.mu.Lock()
	if l.node != nil {
		delete(l.fs.locks, l.node)
		l.node = nil
	}
	l.fs.mu.Unlock()
	return l.file.Close()
}

// Usage implements vfs.FS.
func (f *FS) Usage(dir string) (vfs.Usage, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if _, err := f.lookupLocked(dir); err != nil {
		return vfs.Usage{}, pathError("statfs", dir, err)
	}
	total := f.cap
	if total == 0 {
		total = unboundedSpace
	}
	return vfs.Usage{
		Total:      total,
		Available:  max(0, total-f.used*pageSize),
		Inodes:     math.MaxInt32,
		InodesFree: math.MaxInt32,
	}, nil
}

// lookupLocked returns the node with this name.
func (f *FS) lookupLocked(name string) (*node, error) {
	if f.crashed {
		return nil, ErrCrashed
	}
	dir, base, err := f.parentLocked(name)
	if err != nil {
		return nil, err
	}
	if base == "" {
		return f.root, nil
	}
	n := dir.live[base]
	if n == nil {
		return nil, fs.ErrNotExist
	}
	return n, nil
}

// parentLocked returns the directory that holds name, and the name in it ("" for the root).
func (f *FS) parentLocked(name string) (*node, string, error) {
	parts := split(name)
	if len(parts) == 0 {
		return f.root, "", nil
	}
	at := f.root
	for _, part := range parts[:len(parts)-1] {
		next := at.live[part]
		if next == nil {
			return nil, "", fs.ErrNotExist
		}
		if !next.dir {
			return nil, "", syscall.ENOTDIR
		}
		at = next
	}
	return at, parts[len(parts)-1], nil
}

// split cuts a path into its parts; a relative path starts at the root.
func split(name string) []string {
	name = filepath.ToSlash(filepath.Clean(name))
	return strings.FieldsFunc(name, func(r rune) bool { return r == '/' })
}

// unlinkLocked drops a name of n, and its space with the last one.
func (f *FS) unlinkLocked(n *node) {
	n.links--
	f.releaseLocked(n)
}

// releaseLocked gives back the space of a file that nobody can reach any more.
func (f *FS) releaseLocked(n *node) {
	if n.dir || n.links > 0 || n.handles > 0 {
		return
	}
	f.used -= int64(n.used)
	n.used = 0
}

func pathError(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }
