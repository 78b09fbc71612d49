package journal

import "time"

// The keeper is the journal's clock: it covers the last acknowledged group when no other follows, and lets groups start
// that only had to wait for time to pass. Nothing on the path of a record starts a timer.

// armLocked makes the keeper look at time at, or earlier.
func (j *Journal) armLocked(at int64) {
	if j.keeperAt != 0 && j.keeperAt <= at {
		return
	}
	j.keeperAt = at
	select {
	case j.keeperWake <- struct{}{}:
	default:
	}
}

func (j *Journal) keep() {
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for {
		select {
		case <-j.stopped:
			return
		case <-j.keeperWake:
		case <-t.C:
		}
		j.mu.Lock()
		next := j.lookLocked()
		j.mu.Unlock()
		t.Reset(next)
	}
}

// lookLocked does what is due and returns how long the keeper may sleep.
func (j *Journal) lookLocked() time.Duration {
	const idle = time.Hour
	if j.keeperAt == 0 {
		return idle
	}
	now := j.now()
	if wait := j.keeperAt - now; wait > 0 {
		return time.Duration(wait)
	}
	j.keeperAt = 0
	if j.err == nil && j.lastRecord > j.covered {
		if now >= j.coverAt && j.sealed.len() == 0 && (j.open == nil || !j.open.content()) && j.flight.len() == 0 {
			j.cover = true
			if err := j.pool.shrink(poolIdle); err != nil {
				j.o.Logger.Warn("journal: free group buffer", "error", err)
			}
		} else {
			j.keeperAt = max(j.coverAt, now+int64(timerMin))
		}
	}
	j.commitLocked()
	if j.keeperAt == 0 {
		return idle
	}
	return time.Duration(max(j.keeperAt-now, 1))
}
