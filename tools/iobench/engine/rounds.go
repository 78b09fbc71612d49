package engine

import (
	"context"
	"runtime"
	"time"
)

// Contender is a load that is run in turns with others.
type Contender struct {
	Load
	Before func(ctx context.Context) error // not measured, before each of its rounds; may be nil
}

// Interleave runs every load once, then every load again, and so on: A B C A B C. It starts each round with another one,
// so that none is always the first after a pause.
func (e *Env) Interleave(ctx context.Context, rounds int, list []Contender, chapter string) error {
	for round := range rounds {
		runtime.GC() // the garbage of what went before is no property of the disk
		for i := range list {
			c := &list[(i+round)%len(list)]
			e.Report(chapter, c.Probe.Cell.ID, (float64(round)+float64(i)/float64(len(list)))/float64(rounds))
			if c.Before != nil {
				if err := c.Before(ctx); err != nil {
					return err
				}
			}
			if err := e.Run(ctx, c.Load); err != nil {
				return err
			}
		}
	}
	return nil
}

// Slice divides a budget of time among the rounds of a number of loads, at least a millisecond each.
func Slice(budget time.Duration, rounds, loads int) time.Duration {
	return max(budget/time.Duration(max(rounds*loads, 1)), time.Millisecond)
}
