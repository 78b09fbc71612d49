package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/term"
)

// statusLine shows one line: on a terminal it is overwritten again and again, anywhere else it is printed now and then. With elsewhere
// 0 it is silent there, below 0 everywhere.
type statusLine struct {
	w    io.Writer
	line func(now time.Time) string // "": nothing to say
	stop chan struct{}
	wg   sync.WaitGroup

	mu    sync.Mutex // of w
	shown bool       // the line stands on the terminal
	live  bool       // w is a terminal
}

const (
	progressEvery = 250 * time.Millisecond
	clearLine     = "\r\x1b[K"
)

func startStatusLine(w io.Writer, elsewhere time.Duration, line func(now time.Time) string) *statusLine {
	s := &statusLine{w: w, line: line, stop: make(chan struct{}), live: isTerminal(w)}
	every := elsewhere
	if s.live && elsewhere >= 0 {
		every = progressEvery
	}
	if every <= 0 {
		return s
	}
	s.wg.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-s.stop:
				s.clear()
				return
			case now := <-tick.C:
				s.show(now)
			}
		}
	})
	return s
}

func (s *statusLine) show(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := s.line(now)
	switch {
	case s.live:
		fmt.Fprint(s.w, clearLine+line)
		s.shown = true
	case line != "":
		fmt.Fprintln(s.w, line)
	}
}

func (s *statusLine) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shown {
		fmt.Fprint(s.w, clearLine)
		s.shown = false
	}
}

// Write implements io.Writer for log lines, which take the line's place.
func (s *statusLine) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shown {
		fmt.Fprint(s.w, clearLine)
		s.shown = false
	}
	return s.w.Write(b)
}

// finish ends the display and clears the line.
func (s *statusLine) finish() {
	close(s.stop)
	s.wg.Wait()
}

// progress shows bytes, rate and time left on a terminal, on one line that is overwritten. Anywhere else it is silent.
type progress struct {
	total int64 // 0 = unknown
	done  atomic.Int64
	start time.Time
	*statusLine
}

// startProgress begins to show progress if w is a terminal and it was not switched off.
func startProgress(w io.Writer, total int64, off bool) *progress {
	p := &progress{total: total, start: time.Now()}
	elsewhere := time.Duration(0)
	if off {
		elsewhere = -1
	}
	p.statusLine = startStatusLine(w, elsewhere, p.line)
	return p
}

// add counts n more bytes.
func (p *progress) add(n int) { p.done.Add(int64(n)) }

// line is what is shown at a moment.
func (p *progress) line(now time.Time) string {
	done := p.done.Load()
	elapsed := now.Sub(p.start).Seconds()
	rate := 0.0
	if elapsed > 0 {
		rate = float64(done) / elapsed
	}
	if p.total <= 0 {
		return fmt.Sprintf("%s  %s/s", humanBytes(done), humanBytes(int64(rate)))
	}
	var left time.Duration
	if rate > 0 {
		left = time.Duration(float64(p.total-done) / rate * float64(time.Second))
	}
	return doneOf(done, p.total, rate, left)
}

// doneOf prints how far something is; left is how long it will still take, 0 if that can not be told.
func doneOf(done, total int64, rate float64, left time.Duration) string {
	s := fmt.Sprintf("%s of %s (%d %%)  %s/s", humanBytes(done), humanBytes(total), 100*done/total, humanBytes(int64(rate)))
	if left > 0 && done < total {
		s += "  ETA " + left.Round(time.Second).String()
	}
	return s
}

// humanBytes prints decimal units, as the rates of disks and networks do.
func humanBytes(n int64) string {
	switch {
	case n >= 1e12:
		return fmt.Sprintf("%.2f TB", float64(n)/1e12)
	case n >= 1e9:
		return fmt.Sprintf("%.2f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%d B", n)
}

// isTerminal reports whether w is a terminal.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
