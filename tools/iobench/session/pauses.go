package session

import (
	"time"

	"github.com/binderylog/bindery/internal/pace"
	"github.com/binderylog/bindery/tools/iobench/advice"
)

const (
	pauseLook  = time.Millisecond     // between two looks at the clock
	pauseLeast = 3 * time.Millisecond // what wakes up later was not only waiting for its turn
)

// watched is what a watch for pauses saw.
type watched struct {
	advice.Pauses
	start time.Time
}

// running is how much of a time the machine was running.
func (w *watched) running(from, to time.Time) time.Duration {
	return to.Sub(from) - w.Within(from.Sub(w.start), to.Sub(w.start))
}

// watchPauses looks at the clock every millisecond until the returned function is called: whatever it misses more than a few of, everything
// else on the machine missed, too.
func watchPauses() func() watched {
	end, seen := make(chan struct{}), make(chan watched, 1)
	p := watched{start: time.Now()}
	go func() { // ends when end is closed
		for {
			due := time.Now().Add(pauseLook)
			pace.SleepUntil(due)
			now := time.Now()
			if late := now.Sub(due); late >= pauseLeast {
				p.List = append(p.List, advice.Pause{At: due.Sub(p.start), Length: late})
			}
			select {
			case <-end:
				p.Span = now.Sub(p.start)
				seen <- p
				return
			default:
			}
		}
	}()
	return func() watched { close(end); return <-seen }
}
