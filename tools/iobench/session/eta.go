package session

import "time"

// eta estimates how long a run will still take: what the plan gives the chapters that are left, more if those before took
// more than theirs, and never less than the running chapter's plan says.
type eta struct {
	began     time.Time     // the run
	limit     time.Duration // for all of it; 0: none
	planned   time.Duration // of the chapters that are over
	took      time.Duration // by them, preparation included
	budget    time.Duration // of the running chapter
	chapter   time.Time     // when it began to prepare
	measuring time.Time     // when it began to measure; zero: not yet
	later     time.Duration // budgets of the chapters that come after it
}

// begin notes that a chapter starts.
func (e *eta) begin(now time.Time, budget, later time.Duration) {
	e.budget, e.later, e.chapter, e.measuring = budget, later, now, time.Time{}
}

// end notes that it is over.
func (e *eta) end(now time.Time) {
	e.planned += e.budget
	e.took += now.Sub(e.chapter)
}

// slower is how much more than their plan chapters take: preparing is not in it, and a slow disk has to do its least.
func (e *eta) slower() float64 {
	if e.planned <= 0 {
		return 1
	}
	return max(1, e.took.Seconds()/e.planned.Seconds())
}

// left is how long the run will still take with so much of the running chapter done, and how much of that belongs to
// chapters that have not begun.
func (e *eta) left(now time.Time, done float64) (all, later time.Duration) {
	if e.measuring.IsZero() {
		e.measuring = now
	}
	running := time.Duration(float64(e.budget) * (1 - done))
	const tells = 0.05 // sooner its pace says nothing
	if measured := now.Sub(e.measuring); done > tells {
		running = max(running, time.Duration(float64(measured)/done*(1-done)))
	}
	later = time.Duration(float64(e.later) * e.slower())
	if e.limit > 0 { // later chapters get less if there is less
		later = min(later, max(e.limit-now.Sub(e.began)-running, 0))
	}
	return running + later, later
}
