package ledgerclient

import (
	"sync"
	"sync/atomic"
	"time"
)

// tick is the resolution of every time-out of this package. Time-outs are seconds, and a coarse clock costs one timer for
// the whole client instead of one for each request.
const tick = 50 * time.Millisecond

// expirer is told that a time that it asked for has come. It must not block. It may be told too early or twice: it looks
// at its own state and asks again.
type expirer interface{ expire(now int64) }

const wheelSlots = 512 // 25.6 s per turn; later times go round again

// wheel is a coarse timing wheel. Nothing is ever removed from it: a time that lost its meaning is ignored when it comes.
type wheel struct {
	now atomic.Int64 // ticks since the start

	mu    sync.Mutex // guards slots
	slots [wheelSlots][]wheelItem
}

type wheelItem struct {
	at int64
	x  expirer
}

// ticks rounds a duration up to ticks, at least one.
func ticks(d time.Duration) int64 { return max(1, int64((d+tick-1)/tick)) }

// after asks for x to be told in n ticks.
func (w *wheel) after(n int64, x expirer) {
	w.mu.Lock()
	at := w.now.Load() + max(n, 1)
	i := at % wheelSlots
	w.slots[i] = append(w.slots[i], wheelItem{at: at, x: x})
	w.mu.Unlock()
}

// run advances the wheel until stop is closed.
func (w *wheel) run(stop <-chan struct{}) {
	t := time.NewTicker(tick)
	defer t.Stop()
	start := time.Now()
	for {
		select {
		case <-stop:
			return
		case <-t.C:
		}
		for now := int64(time.Since(start) / tick); w.now.Load() < now; {
			w.advance()
		}
	}
}

// advance moves the wheel by one tick.
func (w *wheel) advance() {
	w.mu.Lock()
	now := w.now.Add(1)
	i := now % wheelSlots
	due := w.slots[i]
	w.slots[i] = nil
	for _, item := range due {
		if item.at > now {
			w.slots[i] = append(w.slots[i], item)
		}
	}
	w.mu.Unlock()
	for _, item := range due {
		if item.at <= now {
			item.x.expire(now)
		}
	}
}
