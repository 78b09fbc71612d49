package engine

import (
	"math"
	"slices"

	"github.com/binderylog/bindery/tools/iobench/result"
)

// Metric is what cells are compared by.
type Metric string

// The metrics.
const (
	ByP50  Metric = "p50_us"
	ByP99  Metric = "p99_us"
	ByRate Metric = "mb_per_s"
)

func (m Metric) of(c *result.Cell) float64 {
	switch {
	case m == ByRate:
		return c.MBPerS
	case c.Latency == nil:
		return math.Inf(1)
	case m == ByP50:
		return c.Latency.P50US
	}
	return c.Latency.P99US
}

func (m Metric) round(r *result.Round) float64 {
	switch m {
	case ByRate:
		return r.MBPerS
	case ByP50:
		return r.P50US
	}
	return r.P99US
}

// better reports whether a is better than b.
func (m Metric) better(a, b float64) bool {
	if m == ByRate {
		return a > b
	}
	return a < b
}

// Spread is how far the rounds of a cell lie apart, in percent of their middle.
func Spread(c *result.Cell, m Metric) float64 {
	var v []float64
	for i := range c.Rounds {
		v = append(v, m.round(&c.Rounds[i]))
	}
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	if middle := v[len(v)/2]; middle > 0 {
		return 100 * (v[len(v)-1] - v[0]) / middle
	}
	return 0
}

// Compare names the best cell and says whether that means anything: it does if the best one was ahead of every other in
// every round, and its lead is more than the rounds of either lie apart. ok is false if there are not two cells to
// compare.
func Compare(question string, m Metric, cells []*result.Cell) (v result.Verdict, ok bool) {
	cells = slices.DeleteFunc(slices.Clone(cells), func(c *result.Cell) bool { return c.Unsupported != "" || c.Ops == 0 })
	if len(cells) < 2 {
		return v, false
	}
	slices.SortStableFunc(cells, func(a, b *result.Cell) int {
		switch {
		case m.better(m.of(a), m.of(b)):
			return -1
		case m.better(m.of(b), m.of(a)):
			return 1
		}
		return 0
	})
	best, second := cells[0], cells[1]
	v = result.Verdict{Question: question, Best: best.ID, Second: second.ID, Metric: string(m), Ratio: 1, Rounds: len(best.Rounds)}
	if a, b := m.of(best), m.of(second); a > 0 && b > 0 && !math.IsInf(b, 1) {
		v.Ratio = max(a/b, b/a)
	}
	v.SpreadPct = max(Spread(best, m), Spread(second, m))
	v.Significant = v.Rounds > 1
	v.RoundsWon = v.Rounds
	for _, other := range cells[1:] {
		won := 0
		for i := range best.Rounds {
			if i < len(other.Rounds) && m.better(m.round(&best.Rounds[i]), m.round(&other.Rounds[i])) {
				won++
			}
		}
		v.RoundsWon = min(v.RoundsWon, won)
	}
	if v.RoundsWon < v.Rounds || 100*(v.Ratio-1) <= v.SpreadPct {
		v.Significant = false
	}
	return v, true
}
