package storage

import "time"

// pacer spreads a flush over the time in which the other cache fills (decision 16), so that the disk is not taken from
// the journal in bursts.
type pacer struct {
	d                 *dir
	done, total, step int64
	start             time.Time
	limit             time.Duration
}

const (
	paceStep     = 256 << 10 // bytes between two looks at the clock
	pacePauseMax = 20 * time.Millisecond
	paceLimitMax = 5 * time.Second // a flush never takes longer for pacing's sake
	paceFull     = 0.8             // the share of the other cache that may be full when the flush ends
)

func newPacer(d *dir, total int64) pacer {
	return pacer{d: d, total: total, start: time.Now(), limit: min(paceLimitMax, d.s.o.FlushInterval/4)}
}

// wrote notes n bytes appended, and pauses if the flush is ahead of its time.
func (p *pacer) wrote(n int64) {
	p.done += n
	p.step += n
	if p.step < paceStep || p.d.work.urgent {
		return
	}
	p.step = 0
	c := p.d.caches[0]
	pause := pace(p.done, p.total, p.d.taken.Load(), c.capacity(), time.Since(p.start), p.limit)
	if pause == 0 {
		return
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.d.urgent:
		p.d.work.urgent = p.d.requested()
	case <-p.d.s.stop:
		p.d.work.urgent = true
	}
}

// pace returns how long a flush that has written done of total bytes should pause, when the other cache is filled to fill
// of capacity and elapsed time has passed of at most limit.
func pace(done, total, fill, capacity int64, elapsed, limit time.Duration) time.Duration {
	if limit <= 0 || total <= 0 || capacity <= 0 || elapsed <= 0 {
		return 0
	}
	progress := float64(done) / float64(total)
	filled := float64(fill) / (paceFull * float64(capacity))
	passed := float64(elapsed) / float64(limit)
	ahead := progress - max(filled, passed)
	if ahead <= 0.01 || filled >= 1 || passed >= 1 {
		return 0
	}
	rate := max(filled/elapsed.Seconds(), 1/limit.Seconds()) // of the allowed progress, per second
	return min(time.Duration(ahead/rate*float64(time.Second)), pacePauseMax)
}
