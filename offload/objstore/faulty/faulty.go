// Package faulty puts faults in front of an object store: requests that fail, hang, are cut, answer late, damaged or not at all.
//
// What goes wrong is said by an Injector, a function of the call; the ones here are made of small parts:
//
//	s := faulty.Wrap(mem.New(), faulty.Nth(3, faulty.Fail(objstore.KindTransient)))          // the third request, once
//	s := faulty.Wrap(st, faulty.On(objstore.OpComplete, faulty.Nth(1, faulty.LostReply())))  // done, but nobody is told
//	s := faulty.Wrap(st, faulty.Rate(seed, 0.01, faulty.Fail(objstore.KindThrottled)))       // one in a hundred
//	s.Set(faulty.Always(faulty.Fail(objstore.KindUnreachable)))                              // the target is down from here on
//	s.Set(nil)                                                                               // and back
//
// Calls are counted in the order in which they arrive; Calls and Count tell what was asked for, so a test can say how many requests something may
// take. Safe for concurrent use. The package starts no goroutine: a hanging request ends with its context, a late one when Release is called.
//
// Only tests import it.
package faulty

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/binderylog/bindery/offload/objstore"
)

// Call is one request.
type Call struct {
	N    int // 1 for the first request of the store
	Op   objstore.Op
	Key  string
	Part int   // PutPart: its number
	Off  int64 // GetRange
	Len  int   // bytes sent or asked for
}

// What happens to a call.
type effect uint8

const (
	effectNone  effect = iota
	effectFail         // not done, an error
	effectLost         // done, an unclear error
	effectCut          // not done, an unclear error
	effectLate         // an unclear error; done when Release is called
	effectHang         // nothing until the context ends; not done
	effectStall        // done, then nothing until the context ends
	effectDelay        // waits, then goes on
	effectFlip         // a bit of the body differs
	effectSize         // the object is said to be longer or shorter than it is
)

// Fault is what is to happen to a call. The zero value lets it pass.
type Fault struct {
	effect effect
	kind   objstore.Kind
	delay  time.Duration
	n      int64
}

// Fail answers with an error of that kind; nothing is done. Of a transient one the caller can not know that: its error is unclear.
func Fail(k objstore.Kind) Fault { return Fault{effect: effectFail, kind: k} }

// LostReply does what is asked and answers with an unclear error.
func LostReply() Fault { return Fault{effect: effectLost, kind: objstore.KindTransient} }

// Cut breaks the connection within the request: nothing is done, the error is unclear.
func Cut() Fault { return Fault{effect: effectCut, kind: objstore.KindTransient} }

// Late answers with an unclear error and does what was asked when Release is called; a read is never done.
func Late() Fault { return Fault{effect: effectLate, kind: objstore.KindTransient} }

// Hang answers nothing until the caller's context ends, and does nothing.
func Hang() Fault { return Fault{effect: effectHang} }

// Stall does what is asked and answers nothing until the caller's context ends.
func Stall() Fault { return Fault{effect: effectStall} }

// Delay answers after d.
func Delay(d time.Duration) Fault { return Fault{effect: effectDelay, delay: d} }

// Flip inverts one bit of what is read, or of what is written on its way to a store that does not check.
func Flip(bit int64) Fault { return Fault{effect: effectFlip, n: bit} }

// WrongSize adds n to the size that the store announces.
func WrongSize(n int64) Fault { return Fault{effect: effectSize, n: n} }

// Injector says what happens to a call. It may keep state; calls come one at a time.
type Injector func(Call) Fault

// Always injects f into every call.
func Always(f Fault) Injector { return func(Call) Fault { return f } }

// Nth injects f into the nth call that it sees, counted from 1.
func Nth(n int, f Fault) Injector { return Between(n, n, f) }

// From injects f into the nth call and all later ones.
func From(n int, f Fault) Injector { return Between(n, int(^uint(0)>>1), f) }

// Between injects f into calls first to last that it sees.
func Between(first, last int, f Fault) Injector {
	seen := 0
	return func(Call) Fault {
		if seen++; seen >= first && seen <= last {
			return f
		}
		return Fault{}
	}
}

// Rate injects f into a share of calls, chosen by seed.
func Rate(seed uint64, share float64, f Fault) Injector {
	rng := rand.New(rand.NewPCG(seed, seed))
	return func(Call) Fault {
		if rng.Float64() < share {
			return f
		}
		return Fault{}
	}
}

// On shows in only the calls of op.
func On(op objstore.Op, in Injector) Injector {
	return func(c Call) Fault {
		if c.Op != op {
			return Fault{}
		}
		return in(c)
	}
}

// OnKey shows in only the calls whose key ends in suffix.
func OnKey(suffix string, in Injector) Injector {
	return func(c Call) Fault {
		if !strings.HasSuffix(c.Key, suffix) {
			return Fault{}
		}
		return in(c)
	}
}

// All injects the first fault that one of them has.
func All(in ...Injector) Injector {
	return func(c Call) Fault {
		var out Fault
		for _, i := range in {
			if f := i(c); out == (Fault{}) {
				out = f
			}
		}
		return out
	}
}

// Store is a store with faults.
type Store struct {
	in objstore.Store

	mu       sync.Mutex
	inject   Injector // guarded by mu
	calls    []Call   // guarded by mu
	injected int      // guarded by mu
	late     []func() // guarded by mu
}

var _ objstore.Store = (*Store)(nil)

// Wrap returns in with the faults of inject; nil is none.
func Wrap(in objstore.Store, inject Injector) *Store { return &Store{in: in, inject: inject} }

// Set changes the faults.
func (s *Store) Set(inject Injector) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inject = inject
}

// Calls returns every request so far, in order.
func (s *Store) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// Count returns the number of requests so far, of the given kinds or, without any, of all.
func (s *Store) Count(ops ...objstore.Op) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, c := range s.calls {
		if len(ops) == 0 || slices.Contains(ops, c.Op) {
			n++
		}
	}
	return n
}

// Injected returns how many calls had a fault so far.
func (s *Store) Injected() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.injected
}

// Release does what Late requests asked for, in order, and reports how many there were.
func (s *Store) Release() int {
	s.mu.Lock()
	late := s.late
	s.late = nil
	s.mu.Unlock()
	for _, do := range late {
		do()
	}
	return len(late)
}

func (s *Store) next(c Call) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.N = len(s.calls) + 1
	s.calls = append(s.calls, c)
	if s.inject == nil {
		return Fault{}
	}
	f := s.inject(c)
	if f != (Fault{}) {
		s.injected++
	}
	return f
}

var errInjected = errors.New("injected")

func (c Call) fail(k objstore.Kind, unclear bool) error {
	return &objstore.Error{Kind: k, Op: c.Op, Key: c.Key, MaybeDone: unclear && c.changes(), Err: errInjected}
}

// changes says whether the request changes what is stored.
func (c Call) changes() bool {
	switch c.Op {
	case objstore.OpGet, objstore.OpHead, objstore.OpList, objstore.OpUploads:
		return false
	}
	return true
}

// do runs a call with its fault. again repeats the request for Late, with a context of its own.
func (s *Store) do(ctx context.Context, c Call, f Fault, call func(context.Context) error) error {
	switch f.effect {
	case effectFail:
		return c.fail(f.kind, f.kind == objstore.KindTransient)
	case effectCut:
		return c.fail(f.kind, true)
	case effectLost:
		if err := call(ctx); err != nil {
			return err
		}
		return c.fail(f.kind, true)
	case effectLate:
		if !c.changes() {
			return c.fail(f.kind, false)
		}
		s.mu.Lock()
		s.late = append(s.late, func() { _ = call(context.WithoutCancel(ctx)) }) // what the store makes of it is seen in the store
		s.mu.Unlock()
		return c.fail(f.kind, true)
	case effectHang:
		<-ctx.Done()
		return c.ended(ctx)
	case effectStall:
		if err := call(ctx); err != nil {
			return err
		}
		<-ctx.Done()
		return c.ended(ctx)
	case effectDelay:
		timer := time.NewTimer(f.delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return c.ended(ctx)
		}
	}
	return call(ctx)
}

func (c Call) ended(ctx context.Context) error {
	return &objstore.Error{Kind: objstore.KindCanceled, Op: c.Op, Key: c.Key, MaybeDone: c.changes(), Err: ctx.Err()}
}
