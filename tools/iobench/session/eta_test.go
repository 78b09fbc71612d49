package session

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/tools/iobench/chapter"
	"github.com/binderylog/bindery/tools/iobench/result"
)

// TestLeftIsNeverBelowThePlan: neither by a chapter that has hardly begun, nor by those that come after it.
func TestLeftIsNeverBelowThePlan(t *testing.T) {
	start := time.Unix(1e9, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	e := eta{began: start}
	e.begin(start, 60*time.Second, 100*time.Second)
	left, later := e.left(at(20), 0) // twenty seconds of preparing
	require.Equal(t, 160*time.Second, left)
	require.Equal(t, 100*time.Second, later)
	left, _ = e.left(at(21), 0.5) // half is done in a second: the plan still stands
	require.Equal(t, 130*time.Second, left)
	left, _ = e.left(at(80), 0.5) // a slow disk: as long again
	require.Equal(t, 160*time.Second, left)
	e.end(at(120)) // twice its plan

	e.begin(at(120), 50*time.Second, 50*time.Second)
	left, later = e.left(at(121), 0)
	require.Equal(t, 150*time.Second, left)
	require.Equal(t, 100*time.Second, later, "what comes will take twice as long too")
	e.end(at(121)) // it had nothing to do

	e.begin(at(121), 50*time.Second, 0)
	left, later = e.left(at(122), 0)
	require.Equal(t, 50*time.Second, left)
	require.Zero(t, later)

	limited := eta{began: start, limit: 50 * time.Second}
	limited.begin(start, 20*time.Second, 60*time.Second)
	left, later = limited.left(at(5), 0)
	require.Equal(t, 45*time.Second, left)
	require.Equal(t, 25*time.Second, later)
	left, _ = limited.left(at(49), 0.5) // past its limit, and still half to do
	require.Equal(t, 44*time.Second, left)
}

// TestStatusOfEachChapter: each is announced while it prepares, with no less left than all plans together.
func TestStatusOfEachChapter(t *testing.T) {
	p := plan(t)
	p.Budget = 2 * time.Second
	p.Steps = []Step{simple(result.ChapterAlign, 0, 0.5, chapter.Align), simple(result.ChapterStalls, 0, 0.5, chapter.Stalls)}
	var seen []Status
	p.Progress = func(s Status) { seen = append(seen, s) }
	_, err := Run(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, "preparing", seen[0].Cell)
	require.GreaterOrEqual(t, seen[0].Left, 2*time.Second)
	second := 0
	for i, s := range seen {
		require.LessOrEqual(t, s.Later, s.Left)
		if s.Chapter == result.ChapterAlign {
			require.GreaterOrEqual(t, s.Later, time.Second, "stalls is still to come")
		} else if second == 0 {
			second = i
			require.Equal(t, Status{Chapter: result.ChapterStalls, Cell: "preparing"}, Status{Chapter: s.Chapter, Cell: s.Cell})
			require.GreaterOrEqual(t, s.Left, time.Second)
			require.InDelta(t, 0.5, s.Done, 0.01)
		}
	}
	require.NotZero(t, second)
}
