package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/journal"
)

// Allocation is the state of the blocks that are written to.
type Allocation string

// The states.
const (
	Append    Allocation = "append"    // the file grows with each write
	Sparse    Allocation = "sparse"    // size set, no blocks: BookKeeper's way
	Fallocate Allocation = "fallocate" // blocks reserved, never written
	Zeroed    Allocation = "zeroed"    // zeroes written once, as ahead of a journal
	Recycled  Allocation = "recycled"  // data written before, as in a journal's reused segments
)

// Area is a test file without a name. It is open once for each way to write it.
type Area struct {
	env     *Env
	size    int64
	state   Allocation
	own     vfs.File // for preparing and reading; direct where that is possible
	methods map[journal.IOMethod]*journal.DurableFile
	refused map[journal.IOMethod]error
	sectors vfs.File
	noSect  error
	buffer  vfs.File // buffered
	at      int64
	filled  int64 // bytes that were written once
	Direct  bool  // own is direct
}

// AreaOptions say what an area is for.
type AreaOptions struct {
	Size    int64
	State   Allocation
	Methods []journal.IOMethod // to open it with
	Sectors bool               // for parts of blocks too
	Buffer  bool               // for buffered streams
	FillFor time.Duration      // recycled: stop filling after this time and make do with what there is; 0: fill all
}

// areaMin is what an area that could not be filled in time must have.
const areaMin = 8 * MiB

// FillMin is the least time that filling an area is given.
const FillMin = 250 * time.Millisecond

// NewArea makes a test file, opens it in all the ways asked for, unlinks it, and brings its blocks into the state asked
// for. A way that is refused is remembered and never replaced by another.
func (e *Env) NewArea(ctx context.Context, o AreaOptions) (a *Area, err error) {
	a = &Area{env: e, size: o.Size, state: o.State, methods: map[journal.IOMethod]*journal.DurableFile{}, refused: map[journal.IOMethod]error{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Close())
		}
	}()
	if name := e.Fixed; name == "" {
		f, name, remove, err := e.openTemp()
		if err != nil {
			return a, &DiskError{"make a test file", err}
		}
		a.buffer = f
		err = a.open(name, o)
		if rerr := remove(); rerr != nil && err == nil {
			err = &DiskError{"unlink the test file", rerr}
		}
		if err != nil {
			return a, err
		}
	} else {
		a.size = min(a.size, e.FixedEnd)
		if a.state == Append || a.state == Sparse || a.state == Fallocate {
			return a, fmt.Errorf("%s: a device has no %s blocks", name, a.state)
		}
		if err := a.open(name, o); err != nil {
			return a, err
		}
	}
	if err := a.reset(ctx, o.FillFor); err != nil {
		return a, err
	}
	return a, nil
}

func (a *Area) open(name string, o AreaOptions) error {
	var err error
	a.own, err = a.env.FS.Open(name, vfs.Mode{Write: true, Direct: true})
	a.Direct = err == nil
	if errors.Is(err, vfs.ErrNoDirectIO) {
		a.own, err = a.env.FS.Open(name, vfs.Mode{Write: true})
	}
	if err != nil {
		return &DiskError{"open the test file", err}
	}
	for _, m := range o.Methods {
		f, err := journal.OpenDurable(a.env.FS, a.env.Dir, name, m)
		switch {
		case err == nil:
			a.methods[m] = f
		case IsUnsupported(err) || isNoDirect(err):
			a.refused[m] = err
		default:
			return &DiskError{fmt.Sprintf("open the test file for %s", m), err}
		}
	}
	if o.Sectors {
		s, ok := a.env.FS.(Sectors)
		if !ok {
			a.noSect = errors.ErrUnsupported
		} else if a.sectors, err = s.OpenSectors(name); err != nil {
			a.noSect = err
		}
	}
	if o.Buffer && a.env.Fixed != "" {
		if a.buffer, err = a.env.FS.Open(name, vfs.Mode{Write: true}); err != nil {
			return &DiskError{"open the device", err}
		}
	}
	return nil
}

func isNoDirect(err error) bool {
	var e *journal.NoDirectIOError
	return errors.As(err, &e)
}

// Size is how much of the file may be used.
func (a *Area) Size() int64 { return a.size }

// reset brings the blocks into their state. It is never measured.
func (a *Area) reset(ctx context.Context, fillFor time.Duration) error {
	a.at = 0
	fail := func(err error) error { return &DiskError{"prepare the test file", err} }
	if a.env.Fixed == "" {
		if err := a.own.Truncate(0); err != nil {
			return fail(err)
		}
		switch a.state {
		case Append:
			return a.sync()
		case Sparse:
			if err := a.own.Truncate(a.size); err != nil {
				return fail(err)
			}
			return a.sync()
		}
		if err := a.own.Preallocate(a.size); err != nil {
			return fail(err)
		}
	}
	switch a.state {
	case Fallocate:
		return a.sync()
	case Zeroed:
		zeroes := vfs.AlignedBytes(MiB)
		return a.fill(ctx, func(int) []byte { return zeroes }, fillFor)
	}
	p := NewPayload(a.env.Seed+1, MiB)
	return a.fill(ctx, p.Next, fillFor)
}

// fill writes the whole area once, or as much as there is time for.
func (a *Area) fill(ctx context.Context, next func(n int) []byte, within time.Duration) error {
	began := time.Now()
	a.filled = 0
	for a.filled < a.size {
		if err := ctx.Err(); err != nil {
			return err
		}
		if within > 0 && a.filled >= areaMin && time.Since(began) > within {
			a.size = a.filled / MiB * MiB
			break
		}
		n := int(min(MiB, a.size-a.filled))
		if err := a.env.Meter.Take(int64(n)); err != nil {
			if a.filled < areaMin {
				return err
			}
			a.size = a.filled / MiB * MiB
			break
		}
		if _, err := a.own.WriteAt(next(n)[:n], a.filled); err != nil {
			return &DiskError{"fill the test file", err}
		}
		a.filled += int64(n)
	}
	return a.sync()
}

func (a *Area) sync() error {
	if err := a.own.Sync(); err != nil {
		return &DiskError{"sync the test file", err}
	}
	return nil
}

// DropCache forgets the pages of the file, for reads where there is no direct I/O.
func (a *Area) DropCache() { a.own.DropCache(0, a.size) }

// Refused returns why a method can not be used here, or nil.
func (a *Area) Refused(m journal.IOMethod) error { return a.refused[m] }

// Refuse notes that a method turned out not to work here.
func (a *Area) Refuse(m journal.IOMethod, why error) { a.refused[m] = why }

// NoSectors returns why parts of blocks can not be written, or nil.
func (a *Area) NoSectors() error { return a.noSect }

// Close gives the file back; with its last descriptor it is gone.
func (a *Area) Close() error {
	var errs []error
	for _, f := range a.methods {
		errs = append(errs, f.Close())
	}
	for _, f := range []vfs.File{a.own, a.sectors, a.buffer} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	a.methods, a.own, a.sectors, a.buffer = nil, nil, nil, nil
	return errors.Join(errs...)
}
