package journal

import "time"

// Stats are figures since Start.
type Stats struct {
	Groups, EmptyGroups   uint64
	Records               uint64
	PayloadBytes          uint64 // bodies
	WrittenBytes          uint64 // groups with headers and padding
	QueueBytes            int64  // reserved or appended, not yet acknowledged
	InFlight              int    // groups being written
	SyncTime              time.Duration
	Segments              int    // live segment files
	Spares                int    // recycled or prepared ones
	SegmentsZeroed        uint64 // switches to a segment that was ready
	SegmentsUnprepared    uint64 // switches to one that had to be allocated, its blocks never written
	SegmentWaits          uint64 // groups that had to wait for a segment
	SegmentsRecycled      uint64
	ZeroedBytes           uint64
	Cuts, Damaged         uint64 // found by Replay
	Repaired              uint64
	Failed                bool
	IO                    IOMethod
	OldestPosition, First Position
	Next                  Position // of the open group
}

// Stats returns the figures of this moment.
func (j *Journal) Stats() Stats { return Stats{} }
