package journal

import "time"

// Stats are figures since Open.
type Stats struct {
	Groups, EmptyGroups uint64 // written; the empty ones are among the groups
	Records             uint64
	PayloadBytes        uint64        // bodies
	WrittenBytes        uint64        // groups with headers and padding
	QueueBytes          int64         // bodies reserved or appended, not yet acknowledged
	QueueRecords        int           // appended, not yet acknowledged
	InFlight            int           // groups being written
	SyncTime            time.Duration // p50 of a group's write
	SyncTimeP99         time.Duration
	Segments            int    // that hold groups, or will next
	Spares              int    // recycled or prepared files
	SparesZeroed        int    // of those, the ones every block of which has been written
	SegmentsZeroed      uint64 // switches to a segment that was ready and zeroed
	SegmentsUnprepared  uint64 // segments that were used although their blocks had never been written
	SegmentWaits        uint64 // segments that were not ready when the first group was
	SegmentsRecycled    uint64
	ZeroedBytes         uint64
	Cuts, Damaged       uint64 // found by Replay
	Repaired            uint64
	Failed              bool
	IO                  IOMethod
	Next                Position // of the open group
	Durable             Position // every group up to this is durable
}

// Stats returns the figures of this moment.
func (j *Journal) Stats() Stats {
	j.mu.Lock()
	s := j.st
	if !j.started {
		s.Segments = j.onDisk
		s.Next = j.end
		j.mu.Unlock()
		return s
	}
	s.InFlight = j.inflight
	s.Segments = len(j.live) + 1 + len(j.planned)
	s.Spares = len(j.spares)
	for _, f := range j.spares {
		s.SparesZeroed += int(bit(f.zeroed))
	}
	s.IO = j.io.name
	s.Next = Position(j.nextSeq)
	s.Durable = Position(j.durable)
	s.QueueRecords = len(j.forces)
	for _, q := range []*queue{&j.sealed, &j.flight, &j.done} {
		for _, g := range q.items[q.head:] {
			s.QueueRecords += len(g.acks)
		}
	}
	if j.open != nil {
		s.QueueRecords += len(j.open.acks)
	}
	j.mu.Unlock()
	s.QueueBytes = j.budget.used.Load()
	s.SyncTime = time.Duration(j.m.write.quantile(0.5))
	s.SyncTimeP99 = time.Duration(j.m.write.quantile(0.99))
	return s
}
