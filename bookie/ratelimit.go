package bookie

import (
	"errors"
	"io/fs"
	"sync"
	"time"

	"github.com/binderylog/bindery/internal/corrupt"
)

// rateLimit lets one event through per period and counts the others.
type rateLimit struct {
	mu      sync.Mutex
	last    time.Time
	skipped int
}

func (r *rateLimit) allow(period time.Duration) (ok bool, skipped int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := time.Now(); t.Sub(r.last) >= period {
		skipped, r.skipped, r.last = r.skipped, 0, t
		return true, skipped
	}
	r.skipped++
	return false, 0
}

// fileLimits is a rateLimit for each file that errors name.
type fileLimits struct {
	mu sync.Mutex
	of map[string]*rateLimit
}

// fileLimitsMax bounds the files that are told apart; the others share one limit.
const fileLimitsMax = 1024

// allow is rateLimit.allow for the file that err names.
func (f *fileLimits) allow(err error, period time.Duration) (ok bool, skipped int) {
	name := ""
	var c *corrupt.Error
	var p *fs.PathError
	switch {
	case errors.As(err, &c):
		name = c.Path
	case errors.As(err, &p):
		name = p.Path
	}
	f.mu.Lock()
	if f.of == nil {
		f.of = map[string]*rateLimit{}
	}
	if f.of[name] == nil && len(f.of) >= fileLimitsMax {
		name = ""
	}
	r := f.of[name]
	if r == nil {
		r = &rateLimit{}
		f.of[name] = r
	}
	f.mu.Unlock()
	return r.allow(period)
}
