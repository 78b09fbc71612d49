package compare

import (
	"math"
	"slices"
)

// Bounds of what counts as a difference.
const (
	changeMin     = 0.10 // two runs of one idle disk differ by less
	significance  = 0.01 // of the rank test, two-sided
	roundsMin     = 5    // with fewer no order of the rounds is unlikely enough
	roundsMax     = 60   // more are thinned: the test is exact, and its cost grows with the third power
	deviationsMax = 3.0
	outlierRuns   = 5 // with fewer the median absolute deviation says nothing
	// toSigma scales a median absolute deviation to the standard deviation of a normal distribution.
	toSigma = 1.4826
)

func median(v []float64) float64 {
	s := slices.Clone(v)
	slices.Sort(s)
	n := len(s)
	switch {
	case n == 0:
		return math.NaN()
	case n%2 == 1:
		return s[n/2]
	}
	return (s[n/2-1] + s[n/2]) / 2
}

// deviations says for each value how many scaled median absolute deviations it lies from the median. Where more than half of
// the values are equal any other is infinitely far.
func deviations(v []float64) (mid float64, out []float64) {
	mid = median(v)
	off := make([]float64, len(v))
	for i, x := range v {
		off[i] = math.Abs(x - mid)
	}
	mad := median(off) * toSigma
	out = make([]float64, len(v))
	for i, x := range v {
		if x != mid {
			out[i] = (x - mid) / mad
		}
	}
	return mid, out
}

// rankTables keeps the counts of orders by the numbers of rounds: all figures of two runs have the same.
type rankTables map[[2]int][]float64

// test is the two-sided exact probability of rounds being ordered as oddly as these if both runs were alike
// (Mann and Whitney). 1 if there are too few.
func (t rankTables) test(a, b []float64) float64 {
	a, b = thin(a), thin(b)
	n, m := len(a), len(b)
	if n < roundsMin || m < roundsMin {
		return 1
	}
	u := 0.0 // pairs in which a is the larger; ties count half
	for _, x := range a {
		for _, y := range b {
			switch {
			case x > y:
				u++
			case x == y:
				u += 0.5
			}
		}
	}
	tail := int(math.Ceil(min(u, float64(n*m)-u))) // a half is taken as the less odd order
	counts := t[[2]int{n, m}]
	if counts == nil {
		counts = orders(n, m)
		t[[2]int{n, m}] = counts
	}
	sum, total := 0.0, 0.0
	for i, c := range counts {
		total += c
		if i <= tail {
			sum += c
		}
	}
	return min(1, 2*sum/total)
}

// orders counts, for each value of u, the orders of n and m rounds that give it.
func orders(n, m int) []float64 {
	// ways[j] holds the counts for i rounds of the one and j of the other: the last in order is of the one or of the other.
	ways := make([][]float64, m+1)
	for j := range ways {
		ways[j] = []float64{1}
	}
	for i := 1; i <= n; i++ {
		next := make([][]float64, m+1)
		next[0] = []float64{1}
		for j := 1; j <= m; j++ {
			c := make([]float64, i*j+1)
			for u, w := range ways[j] { // last is of the one: it is above j of the other
				c[u+j] += w
			}
			for u, w := range next[j-1] {
				c[u] += w
			}
			next[j] = c
		}
		ways = next
	}
	return ways[m]
}

// thin keeps at most roundsMax values, evenly.
func thin(v []float64) []float64 {
	if len(v) <= roundsMax {
		return v
	}
	out := make([]float64, roundsMax)
	for i := range out {
		out[i] = v[i*len(v)/roundsMax]
	}
	return out
}

// allBeyond reports whether every one of at least roundsMin rounds lies on the same side of a value.
func allBeyond(rounds []float64, value float64, above bool) bool {
	if len(rounds) < roundsMin {
		return false
	}
	for _, r := range rounds {
		if r == value || (r > value) != above {
			return false
		}
	}
	return true
}
