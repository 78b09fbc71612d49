package journal

import (
	"fmt"
	"time"

	"github.com/binderylog/bindery/internal/invariant"
	"github.com/binderylog/bindery/internal/vfs"
)

const (
	// earlyBytes lets a group start beside one in flight; see docs/adr/0013.
	earlyBytes = 32 << 10
	// coverAfter is how long the last acknowledged group may stay the last one before an empty group covers it.
	coverAfter = 100 * time.Millisecond
	// timerMin is the shortest wait that is left to a timer: Go's poller has no finer sleep.
	timerMin = time.Millisecond
	// poolIdle is how many group buffers an idle journal keeps.
	poolIdle = 4
)

// mayStart is the rule of the pipeline. While nothing is in flight a group starts at once. Beside another one it starts
// only if it is worth it: enough bytes, or half a sync time since the last start, so that small groups do not crowd the
// disk with writes of one record each.
func mayStart(inflight, limit, bytes int, sinceStart, syncTime int64) bool {
	switch {
	case inflight == 0:
		return true
	case inflight >= limit:
		return false
	}
	return bytes >= earlyBytes || sinceStart >= syncTime/2
}

// Commit sees to it that what was appended gets written. Callers call it once per batch of Appends; it never waits.
func (j *Journal) Commit() {
	j.mu.Lock()
	j.commitLocked()
	j.mu.Unlock()
}

// commitLocked wakes a worker if there is something to do for it.
func (j *Journal) commitLocked() {
	if j.idle > 0 && !j.kicked && j.startableLocked() {
		j.kicked = true
		j.work.Signal()
	}
}

// startableLocked says whether takeLocked would return a group. If time alone is missing, the keeper will look again.
func (j *Journal) startableLocked() bool {
	if j.sealed.len() > 0 {
		g := j.sealed.first()
		return !g.write || j.err != nil || j.inflight < j.o.GroupsInFlight && j.readyLocked(g.seg)
	}
	g := j.open
	if g == nil || !g.content() {
		return j.coverableLocked()
	}
	if j.err != nil || g.records == 0 {
		return true // nothing to write
	}
	if j.inflight >= j.o.GroupsInFlight || !j.readyLocked(g.seg) {
		return false
	}
	full := g.used-groupHeaderBytes >= j.o.MaxGroupBytes
	if wait := int64(j.o.MaxGroupWait); wait > 0 && !full && !j.closing && len(g.acks) == g.records {
		if due := g.opened + wait; j.now() < due {
			j.armLocked(due)
			return false
		}
	}
	if j.inflight == 0 || full {
		return true
	}
	if g.used >= earlyBytes {
		return true
	}
	now := j.now()
	if mayStart(j.inflight, j.o.GroupsInFlight, g.used, now-j.lastStart, j.syncTime) {
		return true
	}
	if due := j.lastStart + j.syncTime/2; due-now >= int64(timerMin) {
		j.armLocked(due)
	}
	return false
}

// readyLocked says whether s can be written. If not, the preparer will wake the workers.
func (j *Journal) readyLocked(s *segment) bool {
	if !s.ready && !s.waited {
		s.waited = true
		j.st.SegmentWaits++
	}
	return s.ready
}

// coverableLocked says whether it is time for an empty group.
func (j *Journal) coverableLocked() bool {
	return j.cover && j.err == nil && j.flight.len() == 0 && j.durable >= j.written && j.lastRecord > j.covered
}

// takeLocked returns the next group, placed in the pipeline, or nil if none may start now. A group whose write flag is
// off is complete as it is.
func (j *Journal) takeLocked() *group {
	if !j.startableLocked() {
		return nil
	}
	var g *group
	switch {
	case j.sealed.len() > 0:
		g = j.sealed.pop()
		j.cover = false
	case j.open != nil && j.open.content():
		g, j.open = j.open, nil
		j.cover = false
		g.write = g.records > 0
		j.sealLocked(g)
	default:
		var err error
		if g, err = j.pool.get(); err != nil {
			j.cover = false // no memory for an empty group: the next one will do
			return nil
		}
		g.write = true
		j.sealLocked(g)
		if !g.seg.ready { // its segment is on its way
			j.sealed.push(g)
			j.cover = false
			return nil
		}
		j.cover = false
		j.st.EmptyGroups++
	}
	g.s = j.durable
	g.err = j.err
	j.flight.push(g)
	return g
}

// worker is the loop of GroupsInFlight+1 goroutines: each writes groups while there are any to start, one at a time runs
// the acknowledgements. A worker seals the open group only when it gets to run, so whatever was appended since it was woken
// goes along.
func (j *Journal) worker() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for {
		j.kicked = false
		if g := j.takeLocked(); g != nil {
			if g.write && g.err == nil {
				j.writeLocked(g)
			}
			j.completeLocked(g)
			continue
		}
		if !j.acking && j.done.len() > 0 {
			j.acknowledgeLocked()
			continue
		}
		if j.stop {
			return
		}
		j.idle++
		j.work.Wait()
		j.idle--
	}
}

// writeLocked writes g without the lock.
func (j *Journal) writeLocked(g *group) {
	j.inflight++
	start := j.now()
	j.lastStart = start
	if j.idle > 0 && (!j.acking && j.done.len() > 0 || j.startableLocked()) {
		j.work.Signal() // somebody else for what remains
	}
	j.mu.Unlock()

	if g.opened > 0 {
		j.m.left(start-g.opened, g.records)
	}
	invariant.CrashPoint("journal.group-before-write")
	b := g.bytes(j.epoch.UnixNano() + start)
	err := j.io.write(g.seg.file, b, g.off)
	if err == nil && j.io.sync {
		err = j.syncGroup(g.seg.file)
	}
	if err == nil {
		invariant.CrashPoint("journal.group-written")
	}
	took := j.now() - start
	j.m.wrote(took, len(b))

	j.mu.Lock()
	j.inflight--
	if err != nil {
		j.poisonLocked(fmt.Sprintf("write group %d to segment %016x", g.seq, g.seg.id), err)
	}
	if j.syncTime == 0 {
		j.syncTime = took
	}
	j.syncTime += (took - j.syncTime) / 8
	j.st.Groups++
	j.st.Records += uint64(g.records)
	j.st.PayloadBytes += uint64(g.charge)
	j.st.WrittenBytes += uint64(len(b))
}

// syncGroup makes what was written to f durable. Syncs take turns, and after the first failed one there is none: a failed
// write-back is reported to one sync only, and the next one, which was to cover the same bytes, would succeed without them.
func (j *Journal) syncGroup(f vfs.File) error {
	j.syncTurn <- struct{}{}
	defer func() { <-j.syncTurn }()
	if j.syncErr == nil {
		j.syncErr = f.Sync()
	}
	return j.syncErr
}

// completeLocked notes that g is finished and passes on what is complete in order.
func (j *Journal) completeLocked(g *group) {
	g.done = true
	for j.flight.len() > 0 && j.flight.first().done {
		g := j.flight.pop()
		if j.err != nil {
			g.err = j.err // also if its own write went well: an earlier one did not, or the disk is not to be trusted
		}
		if g.write {
			g.seg.writes--
			if g.err == nil {
				j.advanceLocked(g)
			}
		}
		j.done.push(g)
	}
}

// advanceLocked notes that every group up to g has been written.
func (j *Journal) advanceLocked(g *group) {
	invariant.Check(g.seq > j.written && g.s < g.seq, "group %d complete after %d, S %d", g.seq, j.written, g.s)
	j.written = g.seq
	if g.records > 0 {
		j.lastRecord = g.seq
	}
	if j.o.Relaxed {
		j.wroteUnsyncedLocked(g)
	} else {
		j.durable = g.seq
		j.covered = max(j.covered, g.s)
	}
	if j.lastRecord > j.covered {
		j.coverAt = j.now() + int64(coverAfter)
		if j.keeperAt == 0 {
			j.armLocked(j.coverAt)
		}
	}
}

// acknowledgeLocked runs the sinks of what is complete, in order. Only one worker does so at a time.
func (j *Journal) acknowledgeLocked() {
	j.acking = true
	for j.done.len() > 0 {
		g := j.done.pop()
		j.mu.Unlock()
		j.deliver(g)
		if g.large {
			if err := g.free(); err != nil {
				j.o.Logger.Warn("journal: free group buffer", "error", err)
			}
		}
		j.mu.Lock()
		j.pool.put(g)
	}
	j.acking = false
	if j.closing {
		j.drained.Broadcast()
	}
}

// deliver tells the sinks of one group.
func (j *Journal) deliver(g *group) {
	invariant.CrashPoint("journal.before-ack")
	var last Sink
	for i := range g.acks {
		a := &g.acks[i]
		if a.sink == nil {
			continue
		}
		a.sink.JournalDone(a.t, g.err)
		if a.sink != last {
			last = a.sink
			j.dirty.add(last)
		}
	}
	j.dirty.flush()
	j.budget.give(g.charge)
	if g.opened > 0 {
		j.m.acked(j.now()-g.opened, len(g.acks))
	}
}

// sinkSet collects the sinks of a group, each once.
type sinkSet struct {
	list []Sink
	seen map[Sink]struct{}
}

// sinkSetSmall is the size up to which comparing with each is faster than a map.
const sinkSetSmall = 8

func (s *sinkSet) add(k Sink) {
	if len(s.list) <= sinkSetSmall {
		for _, o := range s.list {
			if o == k {
				return
			}
		}
		s.list = append(s.list, k)
		return
	}
	if s.seen == nil {
		s.seen = make(map[Sink]struct{}, 64)
	}
	if len(s.seen) == 0 {
		for _, o := range s.list {
			s.seen[o] = struct{}{}
		}
	}
	if _, ok := s.seen[k]; !ok {
		s.seen[k] = struct{}{}
		s.list = append(s.list, k)
	}
}

// flush calls each sink once and forgets them.
func (s *sinkSet) flush() {
	for _, k := range s.list {
		k.JournalFlush()
	}
	clear(s.list)
	s.list = s.list[:0]
	clear(s.seen)
}

// SetGroupWait changes how long a group waits for company: 0, or 1 to 20 ms.
func (j *Journal) SetGroupWait(d time.Duration) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	o := j.o
	o.MaxGroupWait = d
	if err := o.Validate(); err != nil {
		return err
	}
	j.o.MaxGroupWait = d
	j.commitLocked() // a group that waits need not any more
	return nil
}
