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

// watchPauses looks at the clock every millisecond until the returned function is called: whatever it misses more than a few of, everything
// else on the machine missed, too.
func watchPauses() func() advice.Pauses {
	end, seen := make(chan struct{}), make(chan advice.Pauses, 1)
	go func() { // ends when end is closed
		var p advice.Pauses
		start := time.Now()
		for {
			due := time.Now().Add(pauseLook)
			pace.SleepUntil(due)
			now := time.Now()
			if late := now.Sub(due); late >= pauseLeast {
				p.List = append(p.List, advice.Pause{At: due.Sub(start), Length: late})
			}
			select {
			case <-end:
				p.Span = now.Sub(start)
				seen <- p
				return
			default:
			}
		}
	}()
	return func() advice.Pauses { close(end); return <-seen }
}
