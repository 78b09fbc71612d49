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
	wg   sync.WaitGroup

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
		fmt.Fprintf(p.w, "%s: about %.0f s; writes at most %.1f GB\n", r.Device.Dir, r.Plan.BudgetS, float64(r.Plan.MaxWriteBytes)/1e9)
	}
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

// line is what is shown so long after a status came.
func line(s session.Status, since time.Duration) string {
	left := max(s.Left-since, 0)
	text := fmt.Sprintf("%3.0f %%  %-9s %-24s %6.1f GB written  %s left", 100*s.Done, s.Chapter, s.Cell, float64(s.Written)/1e9, left.Round(time.Second))
	const width = 79
	return text[:min(len(text), width)]
}

// finish ends the display and clears its line.
func (p *progress) finish() {
	close(p.stop)
	p.wg.Wait()
}

// parentOf is the directory that is to hold a file.
func parentOf(name string) string { return filepath.Dir(name) }
