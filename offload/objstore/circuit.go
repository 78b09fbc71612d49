package objstore

import (
	"sync"
	"time"
)

// A circuit opens after failures in a row, or when half of the last requests failed.
const (
	circuitRow    = 5
	circuitWindow = 20
	circuitHalf   = circuitWindow / 2
	circuitOpen   = 10 * time.Second
)

// circuit keeps requests away from a target that fails. While it is open nothing is sent; then one request goes out as a probe, and its outcome closes
// the circuit or opens it again.
type circuit struct {
	mu      sync.Mutex
	row     int                 // failures since the last success
	recent  [circuitWindow]bool // ring of outcomes: true = failed
	n       int                 // outcomes ever
	failed  int                 // of the ring
	until   time.Time           // open until then; zero: closed
	probing bool                // one request is out to see
	last    error               // the last failure
}

// enter says whether a request may be sent, and whether it is the probe.
func (c *circuit) enter(now time.Time) (probe, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.until.IsZero():
		return false, true
	case now.Before(c.until) || c.probing:
		return false, false
	}
	c.probing = true
	return true, true
}

type outcome uint8

const (
	outcomeNone outcome = iota // says nothing about the target
	outcomeGood
	outcomeBad
)

// leave notes what became of a request, and why if it failed.
func (c *circuit) leave(now time.Time, probe bool, o outcome, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if probe {
		c.probing = false
	}
	switch {
	case o == outcomeNone:
	case o == outcomeGood && (probe || c.until.IsZero()):
		if probe {
			c.until, c.n, c.failed, c.recent = time.Time{}, 0, 0, [circuitWindow]bool{}
		}
		c.row = 0
		c.noteLocked(false)
	case o == outcomeBad:
		c.row++
		c.last = err
		c.noteLocked(true)
		if probe || c.until.IsZero() && (c.row >= circuitRow || c.n >= circuitWindow && c.failed >= circuitHalf) {
			c.until = now.Add(circuitOpen)
		}
	}
}

// why is the text of the last failure.
func (c *circuit) why() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil {
		return "none"
	}
	return c.last.Error()
}

func (c *circuit) noteLocked(bad bool) {
	i := c.n % circuitWindow
	if c.recent[i] {
		c.failed--
	}
	if bad {
		c.failed++
	}
	c.recent[i] = bad
	c.n++
}

// open says whether requests are kept away now.
func (c *circuit) open(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.until.IsZero() && now.Before(c.until)
}
