package journal

import (
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/vfs"
)

// damageMax bounds Replayed.Damage. More than this is not a list of records any more: Whole becomes false.
const damageMax = 1 << 16

// walk reads the groups of a directory in order and tells a torn tail from damage.
//
// The segments fall into runs: one for each Start. The header of a run's first segment (flagFresh) records where the run
// before it ended, so of an older run everything up to there must be readable, and everything behind it is ignored.
// The end of the last run is found here: let S be the highest durable sequence in the header of any of its groups, then
// what is missing up to S is damage, and the first thing missing above S ends the journal.
//
// A walk opens one file at a time, and holds two chunks of it, more if a group is larger.
type walk struct {
	fs       vfs.FS
	dir      string
	segments []*segmentFile
	note     *note
	noteErr  error
	from     uint64
	emit     func(Record) error                           // may be nil
	onGroup  func(*segmentFile, int64, groupHeader) error // may be nil; each group that is read, before its records
	res      *Replayed
	direct   bool // read past the page cache: the journal was written past it, too

	win    window
	open   *segmentFile // the one win reads
	refs   []recordRef
	seen   uint64 // highest S so far
	ahead  uint64 // highest S of the groups behind the first bad one of this run
	looked bool   // ahead is known
	final  place  // the last group found by that look
	last   uint64 // sequence of the last group that was read

	missing bool // segments that the mark needs were deleted, and only the note knows of it

	// Per segment id.
	used    map[uint64]int64  // where the last group that was read ends
	firsts  map[uint64]uint64 // the first group that was read
	visited map[uint64]bool   // the walk got to it
}

// recordRef is a record within a group that has been checked.
type recordRef struct {
	at     int // offset of the header in the group
	header recordHeader
	bad    bool // the payload is not what was written
}

// place is an offset in a segment.
type place struct {
	seg int // index in walk.segments
	off int64
}

func (p place) after(q place) bool { return p.seg > q.seg || p.seg == q.seg && p.off > q.off }

// newWalk prepares a walk over d. r must be empty.
func newWalk(fs vfs.FS, d *directory, from uint64, r *Replayed) *walk {
	r.Whole = true
	return &walk{fs: fs, dir: d.dir, segments: d.segments, note: d.note, noteErr: d.noteErr, from: from, res: r,
		used: map[uint64]int64{}, firsts: map[uint64]uint64{}, visited: map[uint64]bool{}}
}

func (w *walk) close() error {
	w.open = nil
	return w.win.close()
}

// use points the window at segment i.
func (w *walk) use(i int) (*segmentFile, error) {
	s := w.segments[i]
	if w.open == s {
		return s, nil
	}
	if err := w.close(); err != nil {
		return nil, err
	}
	f, err := w.openFile(s)
	if err != nil {
		return nil, fmt.Errorf("open journal segment: %w", err)
	}
	if err := w.win.open(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	w.open = s
	return s, nil
}

// openFile opens a segment for reading, past the page cache if that is asked for and possible.
func (w *walk) openFile(s *segmentFile) (vfs.File, error) {
	if w.direct && s.size%vfs.Align == 0 {
		f, err := w.fs.Open(s.name, vfs.Mode{Direct: true})
		if !errors.Is(err, vfs.ErrNoDirectIO) {
			return f, err
		}
	}
	return w.fs.Open(s.name, vfs.Mode{})
}

// groupAt reads a whole group header at p.
func (w *walk) groupAt(p place) (h groupHeader, ok bool, err error) {
	s := w.segments[p.seg]
	if s.err != nil {
		return h, false, nil
	}
	if _, err := w.use(p.seg); err != nil {
		return h, false, err
	}
	h, ok = decodeGroupHeader(w.win.at(p.off, vfs.Align), s.id, s.seal.group(p.off))
	return h, ok && p.off+h.extent() <= max(w.win.size, s.header.size), nil
}

// start returns the first segment that may hold a group at or after from.
func (w *walk) start() (int, error) {
	for i := len(w.segments) - 1; i > 0; i-- {
		s := w.segments[i]
		if s.err != nil {
			continue
		}
		if s.header.fresh() && (s.header.first <= w.from || s.header.prevLast < w.from) {
			return i, nil
		}
		h, ok, err := w.groupAt(place{i, segmentHeaderBytes})
		if err != nil {
			return 0, err
		}
		if ok && h.sequence <= w.from {
			return i, nil
		}
	}
	return 0, nil
}

// run walks everything.
func (w *walk) run() (err error) {
	defer func() { err = errors.Join(err, w.close()) }()
	first, err := w.start()
	if err != nil {
		return err
	}
	w.res.Segments = len(w.segments) - first
	if first < len(w.segments) && w.segments[first].err == nil && w.segments[first].header.fresh() {
		w.last = w.segments[first].header.prevLast // what lies before was not looked at, but this much is known
	}
	if err := w.goneBefore(first); err != nil {
		return err
	}
	w.goneAtEnd()
	for a := first; a < len(w.segments); {
		if s := w.segments[a]; s.err != nil {
			w.lostSegment(s)
			a++
			continue
		}
		b := a + 1
		for b < len(w.segments) && w.segments[b].err == nil && !w.segments[b].header.fresh() {
			b++
		}
		// An unreadable header ends the run as well: what it said about the end of this run is gone, so the rule of the
		// last run applies.
		known := b < len(w.segments) && w.segments[b].err == nil
		var end uint64
		if known {
			end = w.segments[b].header.prevLast
		}
		if err := w.walkRun(a, b, known, end); err != nil {
			return err
		}
		a = b
	}
	w.res.End = Position(max(w.last+1, w.from))
	return nil
}

// walkRun walks the segments [a, b). With known, the run ended with sequence end.
func (w *walk) walkRun(a, b int, known bool, end uint64) error {
	w.seen, w.ahead, w.looked, w.final = 0, 0, false, place{}
	for i := a; i < b; i++ {
		w.visited[w.segments[i].id] = true
		if w.segments[i].repaired {
			w.res.Repaired++
		}
	}
	p := place{a, segmentHeaderBytes}
	var expect uint64 // 0: whatever comes first
	if w.segments[a].header.fresh() {
		expect = w.segments[a].header.first
	}
	for {
		if known && expect > end {
			return nil
		}
		h, ok, err := w.groupAt(p)
		if err != nil {
			return err
		}
		if ok && (h.sequence == expect || expect == 0 && h.sequence >= w.segments[p.seg].header.first) {
			if known && h.sequence > end {
				return nil
			}
			done, err := w.group(p, h, b, known, end)
			if err != nil || done {
				return err
			}
			p.off += h.extent()
			expect = h.sequence + 1
			continue
		}
		if p.seg+1 < b { // the run may simply go on in the next segment
			next := place{p.seg + 1, segmentHeaderBytes}
			n, ok, err := w.groupAt(next)
			if err != nil {
				return err
			}
			if ok && (n.sequence == expect || expect == 0) {
				p = next
				continue
			}
		}
		damaged, err := w.isDamage(p, b, expect, known, end)
		if err != nil {
			return err
		}
		if !damaged {
			if !known && w.goneAfter(p, b, expect) {
				return nil
			}
			return w.endOfRun(p, b, vfs.Align, expect, known)
		}
		next, at, err := w.salvage(p, b, expect, known)
		if err != nil {
			return err
		}
		if at == 0 { // nothing readable follows
			cause := errors.New("a group that was durable is gone, and what follows it")
			switch {
			case !known:
				w.lostEnd(p, max(expect, w.seen, w.ahead), expect, cause)
			case end >= w.from:
				w.lostEnd(p, end, expect, cause)
			}
			return nil
		}
		p, expect = next, at
	}
}

// group handles a group whose header is whole. done ends the run.
func (w *walk) group(p place, h groupHeader, b int, known bool, end uint64) (done bool, err error) {
	data := w.win.at(p.off, int(h.extent()))
	whole := w.check(data, h, w.open.seal)
	if !whole {
		damaged, err := w.isDamage(p, b, h.sequence, known, end)
		if err != nil {
			return true, err
		}
		if !damaged {
			return true, w.endOfRun(p, b, int(h.extent()), h.sequence, known)
		}
		if _, err := w.use(p.seg); err != nil { // isDamage may have looked elsewhere
			return true, err
		}
		data = w.win.at(p.off, int(h.extent()))
		w.salvageRecords(p, data, h)
	}
	w.seen = max(w.seen, h.durable)
	return false, w.finish(p, data, h)
}

// finish counts a group and hands its records out.
func (w *walk) finish(p place, data []byte, h groupHeader) error {
	id := w.segments[p.seg].id
	w.last = max(w.last, h.sequence)
	w.used[id] = p.off + h.extent()
	if w.firsts[id] == 0 {
		w.firsts[id] = h.sequence
	}
	if h.sequence < w.from {
		return nil
	}
	return w.deliver(p, data, h)
}

// deliver hands out the records in refs.
func (w *walk) deliver(p place, data []byte, h groupHeader) error {
	s := w.segments[p.seg]
	if w.onGroup != nil {
		if err := w.onGroup(s, p.off, h); err != nil {
			return err
		}
	}
	for i := range w.refs {
		r := &w.refs[i]
		if r.bad {
			continue
		}
		body := data[r.at+RecordOverhead:][:r.header.length]
		w.res.Records++
		w.res.Bytes += int64(len(body))
		if w.emit == nil {
			continue
		}
		err := w.emit(Record{
			Position: Position(h.sequence),
			Segment:  s.id,
			Offset:   p.off + int64(r.at),
			Kind:     r.header.kind,
			Tag:      r.header.tag,
			Payload:  body,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// check fills refs with the records of a group and reports whether all of it is as it was written.
func (w *walk) check(data []byte, h groupHeader, s seal) bool {
	w.refs = w.refs[:0]
	at, end := groupHeaderBytes, groupHeaderBytes+int(h.payload)
	if end > len(data) {
		return false
	}
	for range h.records {
		r, ok := decodeRecordHeader(data[at:end], s.record(h.sequence, at))
		if !ok || r.length > end-at-RecordOverhead {
			return false
		}
		if crc32.Checksum(data[at+RecordOverhead:][:r.length], castagnoli) != r.crc {
			return false
		}
		w.refs = append(w.refs, recordRef{at: at, header: r})
		at += RecordOverhead + r.length
	}
	return at == end
}

// isDamage says whether the group expect, which is not whole at p, was durable once.
func (w *walk) isDamage(p place, b int, expect uint64, known bool, end uint64) (bool, error) {
	if expect == 0 { // the run's start was trimmed and its first group is bad
		expect = max(w.segments[p.seg].header.first, w.from, 1)
	}
	if known {
		return expect <= end, nil
	}
	if !w.looked {
		if err := w.look(p, b); err != nil {
			return false, err
		}
	}
	return expect <= max(w.seen, w.ahead), nil
}

// look finds the highest S behind p in the segments up to b.
func (w *walk) look(p place, b int) error {
	w.looked = true
	at := place{p.seg, p.off}
	if h, ok, err := w.groupAt(at); err != nil {
		return err
	} else if ok {
		w.ahead = h.durable // its header is whole, so what it says is true, torn or not
	}
	for {
		q, h, ok, err := w.nextGroup(at, b)
		if err != nil || !ok {
			return err
		}
		w.ahead = max(w.ahead, h.durable)
		at, w.final = q, q
	}
}

// nextGroup finds the next whole group header behind p in the segments up to b.
func (w *walk) nextGroup(p place, b int) (place, groupHeader, bool, error) {
	off := p.off + vfs.Align
	for i := p.seg; i < b; i++ {
		s, err := w.use(i)
		if err != nil {
			return p, groupHeader{}, false, err
		}
		for ; off < w.win.size; off += vfs.Align {
			if h, ok := decodeGroupHeader(w.win.at(off, vfs.Align), s.id, s.seal.group(off)); ok {
				return place{i, off}, h, true, nil
			}
		}
		off = segmentHeaderBytes
	}
	return p, groupHeader{}, false, nil
}

// endOfRun records a cut, if there is something to cut. The group that is not whole takes n bytes.
func (w *walk) endOfRun(p place, b, n int, expect uint64, known bool) error {
	if known {
		return nil // cut long ago
	}
	s, err := w.use(p.seg)
	if err != nil {
		return err
	}
	torn := looksLikeGroup(w.win.at(p.off, n), s.id)
	if err := w.win.unreadable(p.off, n); err != nil { // torn or damaged: nobody can tell
		w.lostEnd(p, expect, expect, err)
		return nil
	}
	if p.seg+1 < b { // the group may have been the first one of the next segment
		q := place{p.seg + 1, segmentHeaderBytes}
		if _, err := w.use(q.seg); err != nil {
			return err
		}
		w.win.at(q.off, vfs.Align)
		if err := w.win.unreadable(q.off, vfs.Align); err != nil {
			w.lostEnd(q, expect, expect, err)
			return nil
		}
	}
	behind := 0
	for q := p; w.final.after(q); behind++ {
		next, _, ok, err := w.nextGroup(q, b)
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		q = next
	}
	var reason string
	switch {
	case torn:
		reason = "its last group was not written whole"
	case behind > 0:
		reason = "a group is missing before later ones that were not acknowledged either"
	default:
		return nil
	}
	w.res.Cut = &Cut{Segment: s.id, Offset: p.off, Position: Position(expect), Groups: behind, Reason: reason}
	return nil
}

// looksLikeGroup tells a torn group of this segment from what a recycled file held before.
func looksLikeGroup(b []byte, segment uint64) bool {
	if len(b) < groupHeaderBytes {
		return false
	}
	var want [16]byte
	(&groupHeader{segment: segment}).encodeIdentity(want[:])
	return [16]byte(b[:16]) == want
}

// lost records damage that hit more than records that are known.
func (w *walk) lost(p place, sequence uint64, cause error) {
	s := w.segments[p.seg]
	w.res.Whole = false
	w.damage(Damage{
		Segment:  s.id,
		Offset:   p.off,
		Position: Position(sequence),
		Err:      corrupt.New(s.name, p.off, "journal group", cause),
	})
}

// lostEnd records that a run went, or may have gone, up to sequence last, and can not be read from expect on. As last counts
// as the last group from now on, the header of the next run says so, and the damage is found again until a mark lies behind it.
func (w *walk) lostEnd(p place, last, expect uint64, cause error) {
	w.last = max(w.last, last)
	w.lost(p, expect, cause)
}

func (w *walk) lostSegment(s *segmentFile) {
	w.res.Whole = false
	w.damage(Damage{Segment: s.id, Position: Position(w.last + 1), Err: s.err})
}

func (w *walk) damage(d Damage) {
	if len(w.res.Damage) >= damageMax {
		w.res.Whole = false
		return
	}
	w.res.Damage = append(w.res.Damage, d)
}
