package errorfs

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// Fault is what is to go wrong with one operation. The zero value is nothing.
type Fault struct {
	Err   error         // returned, as the cause of a *fs.PathError, instead of doing the operation
	Short int           // Write with Err: so many bytes are written first
	Delay time.Duration // waited before anything else
	Flip  bool          // Read: Bit of the bytes read is inverted, counted modulo their number
	Bit   int64
}

// merge adds what is wrong by another injector. The first error wins.
func (f *Fault) merge(g Fault) {
	if f.Err == nil && g.Err != nil {
		f.Err, f.Short = g.Err, g.Short
	}
	if !f.Flip && g.Flip {
		f.Flip, f.Bit = true, g.Bit
	}
	f.Delay += g.Delay
}

// Injector decides what goes wrong. Inject is called once for each operation, by several goroutines at once.
type Injector interface {
	Inject(op Op) Fault
	String() string
}

// injector is a function with a name.
type injector struct {
	name string
	fn   func(op Op) Fault
}

func (i *injector) Inject(op Op) Fault { return i.fn(op) }
func (i *injector) String() string     { return i.name }

// Func makes an Injector of a function.
func Func(name string, fn func(op Op) Fault) Injector { return &injector{name, fn} }

// None injects nothing.
func None() Injector { return Func("none", func(Op) Fault { return Fault{} }) }

// Nth makes the nth operation of these kinds fail, counted from 1, and no other.
func Nth(kinds Kind, n int64, err error) Injector {
	return counted(fmt.Sprintf("%s %d fails: %v", kinds, n, err), kinds, func(i int64, _ Op) Fault {
		if i == n {
			return Fault{Err: err}
		}
		return Fault{}
	})
}

// From makes the nth operation of these kinds and all later ones fail: a device that died.
func From(kinds Kind, n int64, err error) Injector {
	return counted(fmt.Sprintf("%s %d and later fail: %v", kinds, n, err), kinds, func(i int64, _ Op) Fault {
		if i >= n {
			return Fault{Err: err}
		}
		return Fault{}
	})
}

// ShortWrite makes the nth write store only the first bytes of it and fail.
func ShortWrite(n int64, bytes int, err error) Injector {
	return counted(fmt.Sprintf("write %d stops after %d bytes: %v", n, bytes, err), Write, func(i int64, op Op) Fault {
		if i == n {
			return Fault{Err: err, Short: min(bytes, op.Len)}
		}
		return Fault{}
	})
}

// FlipBit inverts one bit of what the nth read returns, counted from the first bit of the first byte, modulo the length.
// The file itself stays as it is.
func FlipBit(n, bit int64) Injector {
	return counted(fmt.Sprintf("read %d returns bit %d flipped", n, bit), Read, func(i int64, _ Op) Fault {
		return Fault{Flip: i == n, Bit: bit}
	})
}

// NoSpaceAfter makes the file system full once that many bytes have been written: the write that crosses the limit is
// short, and with all later ones, and every preallocation and creation from then on, it fails with ENOSPC. Removing files gives
// nothing back; use memfs.FS.SetCapacity for a disk that frees space.
func NoSpaceAfter(bytes int64) Injector {
	var left atomic.Int64
	left.Store(bytes)
	return Func(fmt.Sprintf("no space after %d bytes", bytes), func(op Op) Fault {
		switch op.Kind {
		case Write:
			after := left.Add(-int64(op.Len))
			if after < 0 {
				return Fault{Err: syscall.ENOSPC, Short: int(max(0, after+int64(op.Len)))}
			}
		case Create, Preallocate, Mkdir:
			if left.Load() <= 0 {
				return Fault{Err: syscall.ENOSPC}
			}
		}
		return Fault{}
	})
}

// Latency delays operations of these kinds.
func Latency(kinds Kind, delay func(op Op) time.Duration) Injector {
	return Func(fmt.Sprintf("%s is slow", kinds), func(op Op) Fault {
		if op.Kind&kinds == 0 {
			return Fault{}
		}
		return Fault{Delay: delay(op)}
	})
}

// OnPath limits inj to operations on names whose last part matches pattern, as filepath.Match has it, or, if pattern
// holds a slash, on names that end in what it matches ("current/*.log"). Renames match by either name.
func OnPath(pattern string, inj Injector) Injector {
	return Func(fmt.Sprintf("on %s: %s", pattern, inj), func(op Op) Fault {
		if matches(pattern, op.Path) || op.NewPath != "" && matches(pattern, op.NewPath) {
			return inj.Inject(op)
		}
		return Fault{}
	})
}

func matches(pattern, name string) bool {
	parts := strings.Split(filepath.ToSlash(name), "/")
	n := strings.Count(pattern, "/") + 1
	if n > len(parts) {
		return false
	}
	ok, err := filepath.Match(pattern, strings.Join(parts[len(parts)-n:], "/"))
	if err != nil {
		panic(fmt.Sprintf("errorfs.OnPath(%q): %v", pattern, err)) // a mistake in a test's own text
	}
	return ok
}

// All injects what any of the injectors does.
func All(injectors ...Injector) Injector {
	names := make([]string, len(injectors))
	for i, inj := range injectors {
		names[i] = inj.String()
	}
	return Func(strings.Join(names, "; "), func(op Op) Fault {
		var f Fault
		for _, inj := range injectors {
			f.merge(inj.Inject(op))
		}
		return f
	})
}

// Switch is an injector that can be turned on and off. It starts off.
type Switch struct {
	on  atomic.Bool
	inj Injector
}

// NewSwitch wraps an injector.
func NewSwitch(inj Injector) *Switch { return &Switch{inj: inj} }

// Set turns it on or off.
func (s *Switch) Set(on bool) { s.on.Store(on) }

// Inject implements Injector. While off, operations are not counted by the injector inside.
func (s *Switch) Inject(op Op) Fault {
	if !s.on.Load() {
		return Fault{}
	}
	return s.inj.Inject(op)
}

// String implements Injector.
func (s *Switch) String() string { return "while on: " + s.inj.String() }

// counted numbers the operations of some kinds from 1.
func counted(name string, kinds Kind, fault func(i int64, op Op) Fault) Injector {
	var count atomic.Int64
	return Func(name, func(op Op) Fault {
		if op.Kind&kinds == 0 {
			return Fault{}
		}
		return fault(count.Add(1), op)
	})
}
