package advice

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Pause is a time in which the machine stood still.
type Pause struct {
	At, Length time.Duration // At counts from when the watch began
}

// Pauses are those of a machine that may not use its processors all the time: a virtual one above its share, a container
// above its quota. What runs on it stands still with it.
type Pauses struct {
	List []Pause       // in order, apart from each other
	Span time.Duration // how long the watch took
}

// Share is the part of the time in which the machine stood still.
func (p Pauses) Share() float64 {
	sum := time.Duration(0)
	for _, x := range p.List {
		sum += x.Length
	}
	return float64(sum) / float64(max(p.Span, 1))
}

// Within is how much of the time between two moments of the watch the machine stood still.
func (p *Pauses) Within(from, to time.Duration) (sum time.Duration) {
	for i := p.next(float64(from)); i < len(p.List) && p.List[i].At < to; i++ {
		x := p.List[i]
		sum += min(x.At+x.Length, to) - max(x.At, from)
	}
	return sum
}

// Beyond leaves of the pauses those that come on top of a share that is in other figures already.
func (p Pauses) Beyond(share float64, seed uint64) Pauses {
	mine := p.Share()
	if mine <= 0 {
		return p
	}
	rng := rand.New(rand.NewPCG(seed, 3))
	out := Pauses{Span: p.Span}
	for _, x := range p.List {
		if rng.Float64() >= share/mine {
			out.List = append(out.List, x)
		}
	}
	return out
}

// next is the first pause that ends after a moment.
func (p *Pauses) next(at float64) int {
	i, _ := slices.BinarySearchFunc(p.List, at, func(x Pause, at float64) int {
		if float64(x.At+x.Length) <= at {
			return -1
		}
		return 1
	})
	return i
}

// through returns when d nanoseconds in which the machine runs have passed since t. The watch is repeated over and over.
func (p *Pauses) through(t, d float64) float64 {
	end := t + d
	if len(p.List) == 0 || p.Span <= 0 {
		return end
	}
	span := float64(p.Span)
	base := math.Floor(t/span) * span
	i := p.next(t - base)
	for {
		if i == len(p.List) {
			i, base = 0, base+span
		}
		x := p.List[i]
		from := max(base+float64(x.At), t)
		if from > end {
			return end
		}
		end += base + float64(x.At+x.Length) - from
		i++
	}
}
