// Package modeldisk is a disk whose every operation takes a time that was asked for. Tests of iobench run on it in the
// virtual time of testing/synctest, so that what is measured can be compared with what is, exactly and quickly.
//
// It holds no data: reads return whatever is in the buffer. It keeps sizes, which blocks were ever written, and which
// written bytes are still in its page cache.
//
// Invariant: nothing sleeps while it holds a lock, or virtual time would stand still.
//
// The package starts no goroutine.
package modeldisk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/binderylog/bindery/internal/vfs"
)

// Times are what the operations of a disk take.
type Times struct {
	Write       time.Duration // of a direct write that is not durable
	Flush       time.Duration // of making it durable
	PerMiB      time.Duration // of moving data
	Read        time.Duration
	Cached      time.Duration // of a write to the page cache
	FirstWrite  time.Duration // more, for durable writes to blocks that were never written
	Grow        time.Duration // more, for durable writes that make the file longer
	Misaligned  time.Duration // more, for writes of less than PhysicalBlock
	Name        time.Duration // of create, rename, unlink
	SyncDir     time.Duration
	Preallocate time.Duration
}

// Disk is a model of a disk with a file system.
type Disk struct {
	Times
	PhysicalBlock int
	NoDirect      bool // O_DIRECT is refused
	NoDSyncWrite  bool // RWF_DSYNC is refused
	FUA           bool // a durable direct write needs no flush: it takes Write and a tenth of Flush
	Width         int  // operations at once; 0: any number
	FastBytes     int64
	SlowPerMiB    time.Duration                             // per MiB once FastBytes were written
	Extra         func(op string, n int64) time.Duration    // more for the nth operation of a kind, counted from 1
	Fail          func(op string, n int64) error            // error of the nth operation of a kind
	Noise         func(op string, n int64) (factor float64) // on everything
	OnWrite       func(name string, p []byte, off int64)    // sees what is written
	Space         int64                                     // bytes; 0: plenty

	mu      sync.Mutex
	files   map[string]*node
	open    int
	counts  map[string]int64
	written int64
	slots   chan struct{}
}

type node struct {
	size    int64
	written map[int64]bool // blocks of vfs.Align
	dirty   int64          // bytes in the page cache
}

// New returns an empty disk with the directory /d.
func New(t Times) *Disk {
	return &Disk{Times: t, PhysicalBlock: vfs.Align, files: map[string]*node{}, counts: map[string]int64{}}
}

// Files returns the names that there are, Open the number of open files.
func (d *Disk) Files() (names []string, open int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name := range d.files {
		names = append(names, name)
	}
	return names, d.open
}

// Count is how many operations of a kind were done: write, sync, read, open, remove, ...
func (d *Disk) Count(op string) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.counts[op]
}

// begin counts an operation and returns what it takes, and what it has to pass through one after the other; nil: nothing.
func (d *Disk) begin(op string, took time.Duration) (time.Duration, chan struct{}, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.Width > 0 && d.slots == nil {
		d.slots = make(chan struct{}, d.Width)
	}
	d.counts[op]++
	n := d.counts[op]
	if d.Noise != nil {
		took = time.Duration(float64(took) * d.Noise(op, n))
	}
	if d.Extra != nil {
		took += d.Extra(op, n)
	}
	if d.Fail != nil {
		if err := d.Fail(op, n); err != nil {
			return took, d.slots, err
		}
	}
	return took, d.slots, nil
}

// do takes the time of an operation.
func (d *Disk) do(op, name string, took time.Duration) error {
	took, slots, err := d.begin(op, took)
	if slots != nil {
		slots <- struct{}{}
		defer func() { <-slots }()
	}
	if took > 0 {
		<-time.After(took)
	}
	if err != nil {
		return &fs.PathError{Op: op, Path: name, Err: err}
	}
	return nil
}

// Open implements vfs.FS.
func (d *Disk) Open(name string, m vfs.Mode) (vfs.File, error) {
	if m.Direct && d.NoDirect {
		return nil, &fs.PathError{Op: "open", Path: name, Err: vfs.ErrNoDirectIO}
	}
	took := time.Duration(0)
	if m.Create {
		took = d.Name
	}
	if err := d.do("open", name, took); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.files[name]
	switch {
	case n == nil && !m.Create:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	case n != nil && m.Create && m.Exclusive:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrExist}
	case n == nil:
		n = &node{written: map[int64]bool{}}
		d.files[name] = n
	}
	d.open++
	return &file{disk: d, n: n, name: name, mode: m}, nil
}

// OpenSectors opens a file for durable direct writes of any size.
func (d *Disk) OpenSectors(name string) (vfs.File, error) {
	f, err := d.Open(name, vfs.Mode{Write: true, Direct: true, DSync: true})
	if err != nil {
		return nil, err
	}
	f.(*file).sectors = true
	return f, nil
}

// Remove implements vfs.FS.
func (d *Disk) Remove(name string) error {
	if err := d.do("remove", name, d.Name); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.files, name)
	return nil
}

// Rename implements vfs.FS.
func (d *Disk) Rename(oldName, newName string) error {
	if err := d.do("rename", oldName, d.Name); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files[newName] = d.files[oldName]
	delete(d.files, oldName)
	return nil
}

// MkdirAll implements vfs.FS.
func (d *Disk) MkdirAll(string) error { return nil }

// List implements vfs.FS.
func (d *Disk) List(dir string) (names []string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name := range d.files {
		if filepath.Dir(name) == dir {
			names = append(names, filepath.Base(name))
		}
	}
	return names, nil
}

// Stat implements vfs.FS.
func (d *Disk) Stat(name string) (vfs.Info, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.files[name]
	if n == nil {
		return vfs.Info{Dir: true}, nil
	}
	return vfs.Info{Size: n.size}, nil
}

// SyncDir implements vfs.FS.
func (d *Disk) SyncDir(dir string) error { return d.do("syncdir", dir, d.Times.SyncDir) }

// Lock implements vfs.FS.
func (d *Disk) Lock(string) (io.Closer, error) { return nil, errors.ErrUnsupported }

// Usage implements vfs.FS.
func (d *Disk) Usage(string) (vfs.Usage, error) {
	total := d.Space
	if total == 0 {
		total = 1 << 40
	}
	return vfs.Usage{Total: total, Available: total}, nil
}

// file is an open file.
type file struct {
	disk    *Disk
	n       *node
	name    string
	mode    vfs.Mode
	sectors bool
}

func (f *file) Name() string { return f.name }

func (f *file) check(p []byte, off int64) error {
	if f.mode.Direct && !f.sectors && (off|int64(len(p)))%vfs.Align != 0 {
		return &fs.PathError{Op: "write", Path: f.name, Err: syscall.EINVAL}
	}
	return nil
}

// move is the time to move n bytes.
func (d *Disk) move(n int64) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.written += n
	per := d.PerMiB
	if d.FastBytes > 0 && d.written > d.FastBytes {
		per = d.SlowPerMiB
	}
	return time.Duration(float64(per) * float64(n) / (1 << 20))
}

func (f *file) write(p []byte, off int64, durable bool) (int, error) {
	d := f.disk
	if err := f.check(p, off); err != nil {
		return 0, err
	}
	if d.OnWrite != nil {
		d.OnWrite(f.name, p, off)
	}
	d.mu.Lock()
	fresh, grows := false, off+int64(len(p)) > f.n.size
	for b := off / vfs.Align; b*vfs.Align < off+int64(len(p)); b++ {
		fresh = fresh || !f.n.written[b]
		f.n.written[b] = true
	}
	f.n.size = max(f.n.size, off+int64(len(p)))
	if !f.mode.Direct && !durable {
		f.n.dirty += int64(len(p))
	}
	full := d.Space > 0 && f.n.size > d.Space
	d.mu.Unlock()
	if full {
		return 0, &fs.PathError{Op: "write", Path: f.name, Err: syscall.ENOSPC}
	}
	took := d.Cached
	if f.mode.Direct || durable {
		took = d.Times.Write + d.move(int64(len(p)))
		if len(p) < d.PhysicalBlock {
			took += d.Misaligned
		}
	}
	if durable {
		flush := d.Flush
		if d.FUA {
			flush /= 10
		}
		took += flush
		if fresh {
			took += d.FirstWrite
		}
		if grows {
			took += d.Grow
		}
	}
	if err := d.do("write", f.name, took); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (f *file) WriteAt(p []byte, off int64) (int, error) { return f.write(p, off, f.mode.DSync) }

// WriteAtDSync implements vfs.DSyncWriter.
func (f *file) WriteAtDSync(p []byte, off int64) (int, error) {
	if f.disk.NoDSyncWrite {
		return 0, &fs.PathError{Op: "write", Path: f.name, Err: errors.ErrUnsupported}
	}
	return f.write(p, off, true)
}

func (f *file) ReadAt(p []byte, off int64) (int, error) {
	if size, _ := f.Size(); off >= size {
		return 0, io.EOF
	}
	if err := f.disk.do("read", f.name, f.disk.Read+f.disk.move(int64(len(p)))); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (f *file) Size() (int64, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	return f.n.size, nil
}

func (f *file) Sync() error {
	d := f.disk
	d.mu.Lock()
	dirty := f.n.dirty
	f.n.dirty = 0
	d.mu.Unlock()
	took := d.Flush
	if dirty > 0 {
		took += d.Times.Write + d.move(dirty)
	}
	return d.do("sync", f.name, took)
}

func (f *file) Truncate(size int64) error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	f.n.size = size
	if size == 0 {
		f.n.written = map[int64]bool{}
	}
	return nil
}

func (f *file) Preallocate(size int64) error {
	if f.disk.Space > 0 && size > f.disk.Space {
		return &fs.PathError{Op: "fallocate", Path: f.name, Err: syscall.ENOSPC}
	}
	f.disk.mu.Lock()
	f.n.size = max(f.n.size, size)
	f.disk.mu.Unlock()
	return f.disk.do("fallocate", f.name, f.disk.Times.Preallocate)
}

func (f *file) DropCache(int64, int64) {}

func (f *file) Close() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	f.disk.open--
	return nil
}

// String names the disk in messages of tests.
func (d *Disk) String() string {
	return fmt.Sprintf("model disk, write %v, flush %v", d.Times.Write, d.Flush)
}
