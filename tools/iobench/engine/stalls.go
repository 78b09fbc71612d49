package engine

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/binderylog/bindery/tools/iobench/result"
)

const (
	stallMin    = 10 * time.Millisecond // what counts as one
	stallEvents = 2000                  // that are kept, the longest
)

// stalls are the gaps between completions.
type stalls struct {
	origin  time.Time
	longest time.Duration
	over    [4]int64
	events  []result.StallEvent
}

var stallLimits = [4]time.Duration{10 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond}

func (s *stalls) add(end time.Time, gap time.Duration) {
	s.longest = max(s.longest, gap)
	if gap < stallMin {
		return
	}
	for i, limit := range stallLimits {
		if gap > limit {
			s.over[i]++
		}
	}
	s.events = append(s.events, result.StallEvent{AtS: max(0, end.Add(-gap).Sub(s.origin).Seconds()), GapUS: us(int64(gap))})
	if len(s.events) > 2*stallEvents {
		s.keepLongest()
	}
}

func (s *stalls) keepLongest() {
	if len(s.events) <= stallEvents {
		return
	}
	slices.SortFunc(s.events, func(a, b result.StallEvent) int { return cmp.Compare(b.GapUS, a.GapUS) })
	s.events = s.events[:stallEvents]
}

func (s *stalls) result(cell string) *result.Stalls {
	s.keepLongest()
	slices.SortFunc(s.events, func(a, b result.StallEvent) int { return cmp.Compare(a.AtS, b.AtS) })
	return &result.Stalls{
		Cell: cell, LongestUS: us(int64(s.longest)), Over10MS: s.over[0], Over50MS: s.over[1], Over100MS: s.over[2], Over500MS: s.over[3],
		PeriodS: period(s.events), Events: s.events,
	}
}

// period is the rhythm of stalls: the middle of the distances between them, if most lie near it. 0: there is none.
func period(events []result.StallEvent) float64 {
	const least, near, most = 5, 0.2, 0.7
	if len(events) < least {
		return 0
	}
	var gaps []float64
	for i := 1; i < len(events); i++ {
		gaps = append(gaps, events[i].AtS-events[i-1].AtS)
	}
	sorted := slices.Sorted(slices.Values(gaps))
	middle := sorted[len(sorted)/2]
	n := 0
	for _, g := range gaps {
		if math.Abs(g-middle) <= near*middle {
			n++
		}
	}
	if middle <= 0 || float64(n) < most*float64(len(gaps)) {
		return 0
	}
	return middle
}
