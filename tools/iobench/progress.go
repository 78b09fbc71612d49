package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/binderylog/bindery/tools/iobench/result"
	"github.com/binderylog/bindery/tools/iobench/session"
	"golang.org/x/term"
)

// progress shows on a terminal what is going on and how long it will take, on one line that is overwritten. Anywhere else
// it is silent.
type progress struct {
	w    io.Writer
	off  bool // says nothing at all
	on   bool // shows the line
	stop chan struct{}

	limit      time.Duration // for all of the run; 0: none
	takesAbout time.Duration // in all, where its plan does not say it; 0: it does

	wg sync.WaitGroup

	mu   sync.Mutex
	last session.Status
	at   time.Time // of last
}

const progressEvery = 250 * time.Millisecond

func startProgress(w io.Writer, off bool) *progress {
	p := &progress{w: w, off: off, on: !off && isTerminal(w), stop: make(chan struct{})}
	if p.on {
		p.wg.Go(p.show)
	}
	return p
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("NO_COLOR") == ""
}

// started says what may be written, before anything is, also where there is no terminal.
func (p *progress) started(r *result.Run) {
	if !p.off {
		fmt.Fprintf(p.w, "%s: %s; writes at most %.1f GB\n", r.Device.Dir, p.takes(r), float64(r.Plan.MaxWriteBytes)/1e9)
	}
}

// takes is how long a run takes: there is no saying beforehand how long it is to prepare.
func (p *progress) takes(r *result.Run) string {
	measures := "measures for " + about(time.Duration(r.Plan.BudgetS*float64(time.Second)))
	switch {
	case p.takesAbout > 0:
		return "takes about " + about(p.takesAbout)
	case p.limit > 0:
		return measures + ", at most " + about(p.limit) + " with preparing"
	}
	return measures + ", and prepares test files before"
}

func (p *progress) update(s session.Status) {
	p.mu.Lock()
	p.last, p.at = s, time.Now()
	p.mu.Unlock()
}

func (p *progress) show() {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			fmt.Fprint(p.w, "\r\x1b[K")
			return
		case now := <-tick.C:
			p.mu.Lock()
			s, since := p.last, now.Sub(p.at)
			p.mu.Unlock()
			if s.Chapter != "" {
				fmt.Fprintf(p.w, "\r\x1b[K%s", line(s, since))
			}
		}
	}
}

// line is what is shown so long after a status came. Time that passes counts for the chapter that runs, not for those
// that have not begun.
func line(s session.Status, since time.Duration) string {
	left, done := max(s.Left-since, s.Later), s.Done
	if s.Left > 0 { // as far as the clock says
		done += (1 - done) * float64(min(since, s.Left-s.Later)) / float64(s.Left)
	}
	when := about(left) + " left"
	if left < time.Second { // it takes longer than planned, and nothing says how much
		when = "ends soon"
	}
	text := fmt.Sprintf("%3.0f %%  %-9s %-24s %6.1f GB written  %s", 100*min(done, 0.99), s.Chapter, s.Cell, float64(s.Written)/1e9, when)
	const width = 79
	return text[:min(len(text), width)]
}

// about is a time in the two largest units of it.
func about(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	}
	h := int(d.Hours())
	return fmt.Sprintf("%d h %d min", h, int(d.Minutes())-60*h)
}

// finish ends the display and clears its line.
func (p *progress) finish() {
	close(p.stop)
	p.wg.Wait()
}

// parentOf is the directory that is to hold a file.
func parentOf(name string) string { return filepath.Dir(name) }
