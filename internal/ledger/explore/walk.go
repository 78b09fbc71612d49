package explore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// walkStepsMax bounds one walk: a world's budgets end it long before.
const walkStepsMax = 4000

// Walk makes n random walks from the start of a world, one for each seed from seed on, and checks the same invariants
// after every move. It stops at the first violation and returns its seed; the walk of one seed is always the same.
func Walk(ctx context.Context, spec *Spec, seed uint64, n int) (rep Report, at uint64, err error) {
	defer catch(&err)
	x, err := newSpace(spec)
	if err != nil {
		return Report{World: spec.Name}, seed, err
	}
	start := time.Now()
	rep = Report{World: spec.Name, Bound: fmt.Sprintf("%d walks", n)}
	var seen visited
	var sc scratch
	for i := range n {
		if ctx.Err() != nil {
			rep.Bound = fmt.Sprintf("%d walks, %v", i, ctx.Err())
			break
		}
		at = seed + uint64(i)
		b := x.walk(rand.New(rand.NewPCG(at, 11)), &rep, &seen, &sc)
		if b != nil {
			rep.Broken = b
			break
		}
	}
	rep.Elapsed = time.Since(start)
	return rep, at, nil
}

func (x *space) walk(rnd *rand.Rand, rep *Report, seen *visited, sc *scratch) *Broken {
	s := x.start
	b := &Broken{}
	for step := range walkStepsMax {
		sc.moves = x.moves(&s, sc.moves[:0])
		if len(sc.moves) == 0 {
			b.Invariant = x.checkQuiet(&s)
			break
		}
		m := x.choose(rnd, sc.moves)
		b.History = append(b.History, x.text(&s, m))
		b.Invariant = x.apply(&s, m)
		rep.Transitions++
		if b.Invariant == "" {
			b.Invariant = x.check(&s)
		}
		if seen.add(x.fingerprint(&s, sc)) {
			rep.States++
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

// choose prefers what the system does by itself, so that walks get somewhere before their budgets are spent. Messages are
// under way in an order that depends on the run's numbering, so the choice is made among texts in the caller's hands only
// through the list's length: the numbering is the same for the same walks.
func (x *space) choose(rnd *rand.Rand, moves []move) move {
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
