package explore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// walkStepsMax bounds one walk: a world's budgets end it long before.
const walkStepsMax = 4000

// Walk makes n random walks from the start of a world, one for each seed from seed on, drives the cores without any memory
// of steps, and checks the same invariants after every move. It stops at the first violation and returns its seed; the
// walk of one seed is always the same. Report.States counts states as often as walks pass them.
func Walk(ctx context.Context, spec *Spec, seed uint64, n int) (rep Report, at uint64, err error) {
	defer catch(&err)
	direct := *spec
	direct.exact, direct.asymmetric = true, true
	start := time.Now()
	rep = Report{World: spec.Name, Bound: fmt.Sprintf("%d walks", n)}
	for i := range n {
		if ctx.Err() != nil {
			rep.Bound = fmt.Sprintf("%d walks, %v", i, ctx.Err())
			break
		}
		at = seed + uint64(i)
		// A space of its own for each walk: moves are listed in the order of the space's numbers.
		x, err := newSpace(&direct)
		if err != nil {
			return rep, at, err
		}
		b := x.walk(rand.New(rand.NewPCG(at, 11)), &rep)
		if b != nil {
			rep.Broken = b
			break
		}
	}
	rep.Elapsed = time.Since(start)
	return rep, at, nil
}

func (x *space) walk(rnd *rand.Rand, rep *Report) *Broken {
	s := x.start
	b := &Broken{}
	var moves []move
	for step := range walkStepsMax {
		moves = x.moves(&s, moves[:0])
		if len(moves) == 0 {
			b.Invariant = x.checkQuiet(&s)
			break
		}
		m := choose(rnd, moves)
		b.History = append(b.History, x.text(&s, m))
		b.Invariant = x.apply(&s, m)
		rep.States++
		rep.Transitions++
		if b.Invariant == "" {
			b.Invariant = x.check(&s)
		}
		rep.Depth = max(rep.Depth, step+1)
		if b.Invariant != "" {
			break
		}
	}
	if b.Invariant != "" {
		return b
	}
	return nil
}

// choose prefers what the system does by itself, so that walks get somewhere before their budgets are spent.
func choose(rnd *rand.Rand, moves []move) move {
	free := 0
	for _, m := range moves {
		if m.kind <= lastFree {
			free++
		}
	}
	if free > 0 && rnd.IntN(8) != 0 {
		n := rnd.IntN(free)
		for _, m := range moves {
			if m.kind <= lastFree {
				if n == 0 {
					return m
				}
				n--
			}
		}
	}
	return moves[rnd.IntN(len(moves))]
}
