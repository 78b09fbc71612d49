package journal

import (
	"math/rand/v2"

	"github.com/binderylog/bindery/internal/invariant"
	"github.com/binderylog/bindery/internal/vfs"
)

// segment is a segment file in the life of this process. Its identity (id, salt) is drawn in memory, so that records can
// be checksummed for it at once; the preparer writes its header and gives it a file, and no group is written to it
// before that is durable.
type segment struct {
	id   uint64
	salt uint64
	seal seal
	size int64

	// Guarded by Journal.mu.
	off    int64  // where the next group goes
	last   uint64 // no group above this one is in it (once it is not the current one)
	writes int    // groups sealed into it that are not done
	zeroed bool   // every block had been written before it was used
	ready  bool   // header durable, name durable, file set
	waited bool   // a group had to wait for it to get ready
	asked  bool   // the preparer knows that it is nearly full

	// Constant from the start.
	first uint64 // no group below this one is in it; of a fresh segment, its first
	prev  uint64 // id of the one before it
	old   bool   // found on disk
	empty bool   // found on disk without a group

	file vfs.File // set before ready
	name string

	spare *spareFile // the preparer's: the file that is to become this segment, while that has not worked yet
}

// identityLocked draws the identity of the next segment and asks for it to be prepared.
func (j *Journal) identityLocked() *segment {
	s := j.newSegmentLocked()
	s.first = j.nextSeq
	j.unprepared = append(j.unprepared, s)
	j.kickPreparer()
	return s
}

func (j *Journal) newSegmentLocked() *segment {
	j.maxID++
	s := &segment{id: j.maxID, prev: j.newest, salt: rand.Uint64(), size: j.o.SegmentSize, off: segmentHeaderBytes}
	s.seal = sealOf(s.salt)
	s.name = fileName(j.dir, s.id, liveSuffix)
	j.newest = s.id
	return s
}

// nearlyFull says that the next segment will be wanted soon.
func (s *segment) nearlyFull() bool { return s.off > s.size/4*3 }

// bindLocked gives a group its sequence, and decides which segment it goes to with room for n bytes. No other group may get
// a sequence before it is sealed.
func (j *Journal) bindLocked(g *group, n int) {
	switch {
	case j.cur.off+int64(n) > j.cur.size:
		j.switchLocked()
	case !j.cur.zeroed && len(j.planned) > 0 && j.planned[0].ready && j.planned[0].zeroed:
		j.switchLocked() // writing into blocks that were never written is several times slower
	}
	g.seg, g.seq = j.cur, j.nextSeq
}

// switchLocked makes the next segment the current one. It never waits: a segment that is not ready yet takes groups all
// the same, their write waits.
func (j *Journal) switchLocked() {
	j.cur.last = j.nextSeq - 1
	j.live = append(j.live, j.cur)
	if len(j.planned) > 0 {
		j.cur = j.planned[0]
		j.planned = append(j.planned[:0], j.planned[1:]...)
	} else {
		j.cur = j.identityLocked()
	}
	if j.cur.ready && j.cur.zeroed {
		j.st.SegmentsZeroed++
	}
	j.gateLocked()
	j.kickPreparer()
	invariant.CrashPoint("journal.segment-switched")
}

// sealLocked fixes the group's place. A group that does not go to disk has none.
func (j *Journal) sealLocked(g *group) {
	if !g.write {
		return
	}
	if g.seg == nil {
		j.bindLocked(g, vfs.Align)
	}
	s := g.seg
	g.off = s.off
	s.off += int64(extent(g.used))
	invariant.Check(g.seq == j.nextSeq, "group %d sealed as %d", g.seq, j.nextSeq)
	invariant.Check(s.off <= s.size && s.first <= g.seq, "group %d at %d of segment %016x, which begins with %d and has %d bytes", g.seq, g.off, s.id, s.first, s.size)
	s.writes++
	j.nextSeq++
	if !s.asked && s.nearlyFull() {
		s.asked = true
		j.kickPreparer()
	}
}
