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

// progress shows bytes, rate and time left on a terminal, on one line that is overwritten. Anywhere else it is silent.
type progress struct {
	w     io.Writer
	total int64 // 0 = unknown
	done  atomic.Int64
	start time.Time
	stop  chan struct{}
	wg    sync.WaitGroup
}

const progressEvery = 250 * time.Millisecond

// startProgress begins to show progress if w is a terminal and it was not switched off.
func startProgress(w io.Writer, total int64, off bool) *progress {
	p := &progress{w: w, total: total, start: time.Now(), stop: make(chan struct{})}
	if off || !isTerminal(w) {
		return p
	}
	p.wg.Go(func() {
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-p.stop:
				fmt.Fprintf(p.w, "\r\x1b[K")
				return
			case now := <-tick.C:
				fmt.Fprintf(p.w, "\r\x1b[K%s", p.line(now))
			}
		}
	})
	return p
}

// add counts n more bytes.
func (p *progress) add(n int) { p.done.Add(int64(n)) }

// finish ends the display and clears its line.
func (p *progress) finish() {
	close(p.stop)
	p.wg.Wait()
}

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
	s := fmt.Sprintf("%s of %s (%d %%)  %s/s", humanBytes(done), humanBytes(p.total), 100*done/p.total, humanBytes(int64(rate)))
	if rate > 0 && done < p.total {
		left := time.Duration(float64(p.total-done) / rate * float64(time.Second))
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
