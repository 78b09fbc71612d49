package errorfs

import (
	"errors"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"github.com/binderylog/bindery/internal/vfs"
)

// FS is a file system with faults.
type FS struct {
	fs       vfs.FS
	inj      Injector
	injected atomic.Int64
	mu       sync.Mutex
	counts   map[Kind]int64 // guarded by mu
	last     Op             // guarded by mu: the last operation that a fault was injected into
}

var _ vfs.FS = (*FS)(nil)

// Wrap returns fsys with the faults of inj.
func Wrap(fsys vfs.FS, inj Injector) *FS {
	return &FS{fs: fsys, inj: inj, counts: map[Kind]int64{}}
}

// Injected returns how many operations failed, fell short or had a bit flipped so far.
func (f *FS) Injected() int64 { return f.injected.Load() }

// Last returns the last operation that a fault was injected into.
func (f *FS) Last() Op {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// Count returns how many operations of these kinds were asked for so far, failed ones included.
func (f *FS) Count(kinds Kind) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	var n int64
	for k, c := range f.counts {
		if k&kinds != 0 {
			n += c
		}
	}
	return n
}

// Unwrap returns the file system inside.
func (f *FS) Unwrap() vfs.FS { return f.fs }

// String names the faults.
func (f *FS) String() string { return f.inj.String() }

// before counts an operation and asks what goes wrong with it.
func (f *FS) before(op Op) Fault {
	fault := f.inj.Inject(op)
	f.mu.Lock()
	f.counts[op.Kind]++
	if fault.Err != nil || fault.Flip {
		f.last = op
	}
	f.mu.Unlock()
	if fault.Err != nil || fault.Flip {
		f.injected.Add(1)
	}
	if fault.Delay > 0 {
		time.Sleep(fault.Delay) //nolint:forbidigo // the fault asked for is a slow disk
	}
	if fault.Err != nil {
		var path *fs.PathError
		if !errors.As(fault.Err, &path) {
			fault.Err = &fs.PathError{Op: op.Kind.String(), Path: op.Path, Err: fault.Err}
		}
	}
	return fault
}

// Open implements vfs.FS.
func (f *FS) Open(name string, m vfs.Mode) (vfs.File, error) {
	kind := Open
	if m.Create {
		kind = Create
	}
	if fault := f.before(Op{Kind: kind, Path: name}); fault.Err != nil {
		return nil, fault.Err
	}
	h, err := f.fs.Open(name, m)
	if err != nil {
		return nil, err
	}
	return &file{fs: f, f: h}, nil
}

// Remove implements vfs.FS.
func (f *FS) Remove(name string) error {
	if fault := f.before(Op{Kind: Remove, Path: name}); fault.Err != nil {
		return fault.Err
	}
	return f.fs.Remove(name)
}

// Rename implements vfs.FS.
func (f *FS) Rename(oldName, newName string) error {
	if fault := f.before(Op{Kind: Rename, Path: oldName, NewPath: newName}); fault.Err != nil {
		return fault.Err
	}
	return f.fs.Rename(oldName, newName)
}

// MkdirAll implements vfs.FS.
func (f *FS) MkdirAll(dir string) error {
	if fault := f.before(Op{Kind: Mkdir, Path: dir}); fault.Err != nil {
		return fault.Err
	}
	return f.fs.MkdirAll(dir)
}

// List implements vfs.FS.
func (f *FS) List(dir string) ([]string, error) {
	if fault := f.before(Op{Kind: List, Path: dir}); fault.Err != nil {
		return nil, fault.Err
	}
	return f.fs.List(dir)
}

// Stat implements vfs.FS.
func (f *FS) Stat(name string) (vfs.Info, error) {
	if fault := f.before(Op{Kind: Stat, Path: name}); fault.Err != nil {
		return vfs.Info{}, fault.Err
	}
	return f.fs.Stat(name)
}

// SyncDir implements vfs.FS.
func (f *FS) SyncDir(dir string) error {
	if fault := f.before(Op{Kind: SyncDir, Path: dir}); fault.Err != nil {
		return fault.Err
	}
	return f.fs.SyncDir(dir)
}

// Lock implements vfs.FS.
func (f *FS) Lock(name string) (io.Closer, error) {
	if fault := f.before(Op{Kind: Lock, Path: name}); fault.Err != nil {
		return nil, fault.Err
	}
	return f.fs.Lock(name)
}

// Usage implements vfs.FS.
func (f *FS) Usage(dir string) (vfs.Usage, error) {
	if fault := f.before(Op{Kind: Usage, Path: dir}); fault.Err != nil {
		return vfs.Usage{}, fault.Err
	}
	return f.fs.Usage(dir)
}
