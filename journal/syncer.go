package journal

import (
	"fmt"
	"time"
)

// syncEvery bounds what a power loss costs in relaxed mode.
const syncEvery = time.Second

// force is a request to hear of the next sync that covers group after.
type force struct {
	after uint64
	ack   ack
}

// kickSyncer makes the syncer look.
func (j *Journal) kickSyncer() {
	select {
	case j.syncerWake <- struct{}{}:
	default:
	}
}

// wroteUnsyncedLocked notes that g lies in the page cache only.
func (j *Journal) wroteUnsyncedLocked(g *group) {
	if n := len(j.unsynced); n == 0 || j.unsynced[n-1] != g.seg {
		j.unsynced = append(j.unsynced, g.seg)
	}
	j.writtenS = max(j.writtenS, g.s)
	if len(j.forces) > 0 || len(j.unsynced) > 1 || j.closing {
		j.kickSyncer()
	}
}

// sync is the syncer's loop, in relaxed mode only: groups are acknowledged once they are in the page cache, forces and
// the journal's own S wait for this goroutine.
func (j *Journal) sync() {
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	for {
		select {
		case <-j.stopped:
			return
		case <-j.syncerWake:
		case <-tick.C:
		}
		j.mu.Lock()
		j.syncLocked()
		j.mu.Unlock()
	}
}

// syncLocked makes everything written so far durable and answers the forces that waited for it.
func (j *Journal) syncLocked() {
	upTo, s, segments := j.written, j.writtenS, j.unsynced
	if upTo > j.durable && j.err == nil {
		j.unsynced = nil // what is written from here on is the next sync's
		j.mu.Unlock()
		start := j.now()
		var err error
		for _, seg := range segments {
			if err = seg.file.Sync(); err != nil {
				err = fmt.Errorf("sync segment %016x: %w", seg.id, err)
				break
			}
		}
		j.m.write.add(j.now()-start, 1)
		j.mu.Lock()
		if err != nil {
			j.poisonLocked(fmt.Sprintf("sync groups up to %d", upTo), err)
		} else if j.err == nil {
			j.durable = upTo
			j.covered = max(j.covered, s)
		}
	}
	j.answerForcesLocked()
	j.commitLocked() // a covering group may have waited for this
	if j.closing {
		j.drained.Broadcast()
	}
}

// answerForcesLocked passes the forces that are covered, or will never be, to the acknowledging worker.
func (j *Journal) answerForcesLocked() {
	n := 0
	for n < len(j.forces) && (j.err != nil || j.forces[n].after <= j.durable) {
		n++
	}
	if n == 0 {
		return
	}
	g := &group{err: j.err}
	for _, f := range j.forces[:n] {
		g.acks = append(g.acks, f.ack)
	}
	j.forces = append(j.forces[:0], j.forces[n:]...)
	j.done.push(g)
	j.work.Signal()
}
