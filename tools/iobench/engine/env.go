package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/binderylog/bindery/internal/pace"
	"github.com/binderylog/bindery/internal/vfs"
)

// Sizes.
const (
	KiB = 1 << 10
	MiB = 1 << 20
)

// Sectors is a file system that can also write parts of a block of vfs.Align bytes with direct I/O.
type Sectors interface {
	// OpenSectors opens name for durable direct writes of whole sectors.
	OpenSectors(name string) (vfs.File, error)
}

// Flusher is a file that can start writing cached pages without waiting for the disk to have them.
type Flusher interface {
	FlushRange(off, n int64) error
}

// Report tells whoever watches how far a chapter is.
func (e *Env) Report(chapter, cell string, done float64) {
	if e.Progress != nil {
		e.Progress(Progress{Chapter: chapter, Cell: cell, Done: done})
	}
}

// Unnamed is a file system that can make files without a name. What has no name can not be left behind.
type Unnamed interface {
	// OpenUnnamed makes such a file in dir, and says by which name it can be opened again while it is open. It fails with
	// errors.ErrUnsupported where the file system can not do that.
	OpenUnnamed(dir string) (f vfs.File, again string, err error)
}

// Trimmer is a file system that can tell a disk which of its blocks are free.
type Trimmer interface {
	// Trim discards free space among the first n bytes of the file system that holds dir.
	Trim(dir string, n int64) error
}

// Env is where and how a run measures.
type Env struct {
	FS       vfs.FS
	Dir      string
	Meter    *Meter
	Seed     uint64
	Start    time.Time       // of the run
	Wait     func(time.Time) // sleeps until then; nil: with the kernel's own timer
	Sensors  func() Sensed   // temperature and clock, once a second; nil: not known
	Progress func(Progress)  // told about once a second; nil: nobody is
	Fixed    string          // a device or file that takes the place of test files (`raw`); it is neither made nor removed
	FixedEnd int64           // its size
	cells    atomic.Int64
}

// Sensed is what sensors say; what is 0 is not known.
type Sensed struct {
	TemperatureC float64
	ClockMHz     float64
}

// Progress is how far a chapter is.
type Progress struct {
	Chapter string
	Cell    string
	Done    float64 // share of the chapter
}

// DiskError is an operation that the disk refused. It is the end of the run: figures of a disk with errors mean nothing.
type DiskError struct {
	Op  string
	Err error
}

func (e *DiskError) Error() string {
	if vfs.IsNoSpace(e.Err) {
		return fmt.Sprintf("%s: no space left: free some, or ask for smaller files (--file-mib)", e.Op)
	}
	if errors.Is(e.Err, fs.ErrNotExist) {
		return fmt.Sprintf("%s: %v: the directory was removed, or its disk unmounted, while it was measured", e.Op, e.Err)
	}
	return fmt.Sprintf("%s: %v: the disk failed; its figures mean nothing, look at the kernel's log", e.Op, e.Err)
}

func (e *DiskError) Unwrap() error { return e.Err }

// WaitUntil sleeps.
func (e *Env) WaitUntil(t time.Time) { e.wait(t) }

func (e *Env) wait(until time.Time) {
	if e.Wait != nil {
		e.Wait(until)
		return
	}
	pace.SleepUntil(until)
}

// openTemp makes a test file. remove takes its name away, if it has one.
func (e *Env) openTemp() (f vfs.File, name string, remove func() error, err error) {
	if u, ok := e.FS.(Unnamed); ok {
		f, name, err = u.OpenUnnamed(e.Dir)
		if !errors.Is(err, errors.ErrUnsupported) {
			return f, name, func() error { return nil }, err
		}
	}
	name = e.tempName()
	f, err = e.FS.Open(name, vfs.Mode{Write: true, Create: true, Exclusive: true})
	return f, name, func() error { return e.FS.Remove(name) }, err
}

func (e *Env) since() float64 { return time.Since(e.Start).Seconds() }

// tempName is a name that nothing has; the file gets it for the moment until it is unlinked.
func (e *Env) tempName() string {
	return filepath.Join(e.Dir, fmt.Sprintf("%s%016x", TempPrefix, rand.Uint64()))
}

// TempPrefix begins the names of test files, which have one for a moment only.
const TempPrefix = ".iobench-"

// IsUnsupported tells errors that say that a method is not to be had here from those of a failing disk.
func IsUnsupported(err error) bool {
	return errors.Is(err, errors.ErrUnsupported) || errors.Is(err, vfs.ErrNoDirectIO) || errors.Is(err, syscall.EINVAL)
}
