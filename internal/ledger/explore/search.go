package explore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Options of a search.
type Options struct {
	Workers   int   // goroutines; 0 means 2
	StatesMax int64 // the search ends as incomplete beyond this many states; 0 means 40 million
	Progress  func(Report)
}

// Report says what a search, or a set of walks, has seen.
type Report struct {
	World       string
	States      int64 // up to symmetry
	Transitions int64
	Depth       int
	Acked       int64 // states in which the application was promised something
	Closed      int64 // states in which the ledger has ended
	Elapsed     time.Duration
	TableBytes  int64
	Bound       string // why the search ended before the world did; empty if it is complete
	Broken      *Broken
}

// Broken is a violated invariant with the history that leads to it.
type Broken struct {
	Invariant string
	History   []string // moves, one a line
}

func (r *Report) String() string {
	end := "complete"
	if r.Bound != "" {
		end = "stopped: " + r.Bound
	}
	if r.Broken != nil {
		end = "VIOLATED " + r.Broken.Invariant
	}
	return fmt.Sprintf("%-18s %9d states %10d steps  depth %3d %7.1fs  %s", r.World, r.States, r.Transitions, r.Depth, r.Elapsed.Seconds(), end)
}

// node is one entry of the frontier.
type node struct {
	state state
	id    uint32
}

// origin says how a state was first reached.
type origin struct {
	parent uint32
	move   uint16 // place among the moves of the parent
}

type worker struct {
	next    []node
	origins []origin
	steps   int64
	acked   int64
	closed  int64
	sc      scratch
}

type found struct {
	why    string
	parent uint32
	move   int // -1: the state of parent itself
}

type search struct {
	x       *space
	o       Options
	seen    visited
	workers []worker
	states  atomic.Int64
	mu      sync.Mutex
	broken  *found
	stop    atomic.Bool
	start   time.Time
	depth   int
}

// Search explores a world breadth first: the history of the first violation is as short as any. The error is for worlds
// that can not be explored; a violation is in the report.
func Search(ctx context.Context, spec *Spec, o Options) (rep Report, err error) {
	if o.Workers <= 0 {
		o.Workers = 2
	}
	if o.StatesMax <= 0 {
		o.StatesMax = 40 << 20
	}
	defer catch(&err)
	x, err := newSpace(spec)
	if err != nil {
		return Report{World: spec.Name}, err
	}
	s := &search{x: x, o: o, workers: make([]worker, o.Workers), start: time.Now()}
	return s.run(ctx)
}

func catch(err *error) {
	if p := recover(); p != nil {
		e, ok := p.(error)
		if !ok || !errors.Is(e, errTooMany) {
			panic(p)
		}
		*err = e
	}
}

func (s *search) run(ctx context.Context) (Report, error) {
	first := s.x.start
	w := &s.workers[0]
	s.x.settle(&first)
	s.x.noteServed(&first)
	s.x.start = first
	if why := s.x.check(&first); why != "" {
		return s.report(&Broken{Invariant: why}), nil
	}
	s.seen.add(s.x.fingerprint(&first, &w.sc))
	s.states.Add(1)
	w.origins = append(w.origins, origin{})
	frontier := [][]node{{{state: first, id: 0}}}
	bound := ""
	for bound == "" && len(frontier) > 0 {
		switch {
		case ctx.Err() != nil:
			bound = ctx.Err().Error()
		case s.states.Load() >= s.o.StatesMax:
			bound = fmt.Sprintf("%d states", s.o.StatesMax)
		}
		if bound != "" {
			break
		}
		if err := s.level(ctx, frontier); err != nil {
			return s.report(nil), err
		}
		if s.broken != nil {
			return s.report(s.history(s.broken)), nil
		}
		frontier = frontier[:0]
		for i := range s.workers {
			if len(s.workers[i].next) > 0 {
				frontier = append(frontier, s.workers[i].next)
			}
			s.workers[i].next = nil
		}
		if len(frontier) > 0 {
			s.depth++
		}
		if s.o.Progress != nil {
			s.o.Progress(s.report(nil))
		}
	}
	r := s.report(nil)
	r.Bound = bound
	return r, nil
}

func (s *search) report(b *Broken) Report {
	r := Report{World: s.x.spec.Name, States: s.states.Load(), Depth: s.depth, Elapsed: time.Since(s.start), TableBytes: s.seen.bytes(), Broken: b}
	for i := range s.workers {
		r.Transitions += s.workers[i].steps
		r.Acked += s.workers[i].acked
		r.Closed += s.workers[i].closed
	}
	return r
}

// level expands every node of the frontier.
func (s *search) level(ctx context.Context, frontier [][]node) error {
	const batch = 64
	var taken atomic.Int64
	total := 0
	for _, f := range frontier {
		total += len(f)
	}
	errs := make([]error, len(s.workers))
	var wg sync.WaitGroup
	for i := range s.workers {
		wg.Go(func() {
			defer catch(&errs[i])
			for !s.stop.Load() {
				at := int(taken.Add(batch)) - batch
				if at >= total {
					return
				}
				if ctx.Err() != nil || s.states.Load() > 2*s.o.StatesMax {
					return
				}
				for k := at; k < min(at+batch, total); k++ {
					s.expand(i, pickNode(frontier, k))
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func pickNode(frontier [][]node, k int) *node {
	for _, f := range frontier {
		if k < len(f) {
			return &f[k]
		}
		k -= len(f)
	}
	return nil
}

func (s *search) expand(i int, n *node) {
	w, x := &s.workers[i], s.x
	w.sc.moves = x.moves(&n.state, w.sc.moves[:0])
	quiet := true
	for k, m := range w.sc.moves {
		quiet = quiet && m.kind > lastFree
		next := n.state
		why := x.apply(&next, m)
		w.steps++
		if why != "" {
			s.found(found{why, n.id, k})
			return
		}
		if !s.seen.add(x.fingerprint(&next, &w.sc)) {
			continue
		}
		if why = x.check(&next); why != "" {
			s.found(found{why, n.id, k})
			return
		}
		s.states.Add(1)
		if next.promised != 0 {
			w.acked++
		}
		if next.closed != noEnd {
			w.closed++
		}
		id := uint32(len(w.origins)*len(s.workers) + i)
		w.origins = append(w.origins, origin{n.id, uint16(k)})
		w.next = append(w.next, node{next, id})
	}
	if quiet {
		if why := x.checkQuiet(&n.state); why != "" {
			s.found(found{why, n.id, -1})
		}
	}
}

func (s *search) found(f found) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken == nil {
		s.broken = &f
	}
	s.stop.Store(true)
}

// history replays the way to a violation from the start.
func (s *search) history(f *found) *Broken {
	var places []int
	if f.move >= 0 {
		places = append(places, f.move)
	}
	for id := f.parent; id != 0; {
		o := s.workers[int(id)%len(s.workers)].origins[int(id)/len(s.workers)]
		places = append(places, int(o.move))
		id = o.parent
	}
	b := &Broken{Invariant: f.why}
	at := s.x.start
	for i := len(places) - 1; i >= 0; i-- {
		m := s.x.moves(&at, nil)[places[i]]
		b.History = append(b.History, s.x.text(&at, m))
		s.x.apply(&at, m)
	}
	s.x.tidy(b)
	return b
}
