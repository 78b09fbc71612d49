package report

import (
	"cmp"
	"slices"

	"github.com/binderylog/bindery/tools/iobench/result"
)

// longest keeps the longest events, in order of time.
func longest(events []result.StallEvent) []result.StallEvent {
	e := slices.Clone(events)
	slices.SortStableFunc(e, func(a, b result.StallEvent) int { return cmp.Compare(b.GapUS, a.GapUS) })
	e = e[:stallsShown]
	slices.SortStableFunc(e, func(a, b result.StallEvent) int { return cmp.Compare(a.AtS, b.AtS) })
	return e
}
