package journal

import (
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/vfs"
)

// Everything here deals with groups that were durable once: what can be read of them is handed out, what can not is
// named as exactly as possible.

// salvage handles the group expect, whose header is not whole at p. It returns where to go on and with which sequence,
// or 0 if nothing readable follows.
func (w *walk) salvage(p place, b int, expect uint64, known bool) (place, uint64, error) {
	try := []place{p}
	if p.seg+1 < b {
		try = append(try, place{p.seg + 1, segmentHeaderBytes}) // it may have been the first one of the next segment
	}
	for _, q := range try {
		next, ok, err := w.salvageAt(q, b, expect)
		if err != nil {
			return p, 0, err
		}
		if ok {
			return next, w.last + 1, nil
		}
	}
	q := p
	h, ok, err := w.groupAt(p) // whole, but not the one that must come next
	if err == nil && (!ok || h.sequence < expect) {
		q, h, ok, err = w.nextGroup(p, b)
	}
	if err != nil || !ok {
		return p, 0, err
	}
	if !known && h.sequence-1 > max(w.seen, w.ahead) { // what is missing directly before it was never acknowledged
		return p, 0, nil
	}
	if h.sequence > w.from {
		_, err = w.use(p.seg)
		cause := fmt.Errorf("groups %d to %d were durable and can not be read", expect, h.sequence-1)
		if rerr := w.win.unreadable(p.off, vfs.Align); rerr != nil {
			cause = fmt.Errorf("%w: %w", cause, rerr)
		}
		w.lost(p, expect, cause)
	}
	return q, h.sequence, err
}

// salvageAt tries to read the group expect at q although its header is damaged: by putting one flipped bit right, or by
// walking its records up to a successor that fits.
func (w *walk) salvageAt(q place, b int, expect uint64) (next place, ok bool, err error) {
	s, err := w.use(q.seg)
	if err != nil {
		return q, false, err
	}
	if w.win.unreadable(q.off, vfs.Align) != nil {
		return q, false, nil
	}
	var copied [groupHeaderBytes]byte
	if copy(copied[:], w.win.at(q.off, vfs.Align)) < groupHeaderBytes {
		return q, false, nil
	}
	if repairBit(copied[:], s.seal.group(q.off)) {
		h, ok := decodeGroupHeader(copied[:], s.id, s.seal.group(q.off))
		if ok && (h.sequence == expect || expect == 0) && q.off+h.extent() <= w.win.size {
			w.res.Repaired++
			data := w.win.at(q.off, int(h.extent()))
			if !w.check(data, h, s.seal) {
				w.salvageRecords(q, data, h)
			}
			w.seen = max(w.seen, h.durable)
			return place{q.seg, q.off + h.extent()}, true, w.finish(q, data, h)
		}
	}
	if expect == 0 {
		return q, false, nil
	}
	return w.salvageHeaderless(q, b, expect)
}

// salvageHeaderless walks the records of a group without a usable header. That they are all there is certain only if the
// padding behind the last one is untouched and the next group follows at once.
func (w *walk) salvageHeaderless(q place, b int, expect uint64) (next place, ok bool, err error) {
	s, room := w.open, int(min(w.win.size-q.off, int64(extent(groupHeaderBytes+SegmentSizeMax/2))))
	at, n := groupHeaderBytes, 0
	for {
		data := w.win.at(q.off, min(room, at+RecordOverhead))
		if len(data) < at+RecordOverhead {
			break
		}
		r, ok := decodeRecordHeader(data[at:], s.seal.record(expect, at))
		if !ok || at+RecordOverhead+r.length > room {
			break
		}
		at += RecordOverhead + r.length
		n++
	}
	if n == 0 { // a block of zeros may have been anything
		return q, false, nil
	}
	h := groupHeader{segment: s.id, sequence: expect, records: uint32(n), payload: uint32(at - groupHeaderBytes)}
	data := w.win.at(q.off, int(h.extent()))
	if len(data) != int(h.extent()) || !allZero(data[at:]) {
		return q, false, nil
	}
	next = place{q.seg, q.off + h.extent()}
	follows, err := w.follows(next, b, expect+1)
	if err != nil || !follows {
		return q, false, err
	}
	if _, err := w.use(q.seg); err != nil {
		return q, false, err
	}
	w.res.Repaired++
	data = w.win.at(q.off, int(h.extent()))
	if !w.check(data, h, s.seal) {
		w.salvageRecords(q, data, h)
	}
	return next, true, w.finish(q, data, h)
}

// follows says whether the group sequence starts at p, or in the next segment.
func (w *walk) follows(p place, b int, sequence uint64) (bool, error) {
	h, ok, err := w.groupAt(p)
	if err != nil || ok {
		return ok && h.sequence == sequence, err
	}
	if p.seg+1 >= b {
		return false, nil
	}
	h, ok, err = w.groupAt(place{p.seg + 1, segmentHeaderBytes})
	return ok && h.sequence == sequence, err
}

// salvageRecords fills refs with the records of a damaged group whose length is known, and reports those that are lost.
func (w *walk) salvageRecords(p place, data []byte, h groupHeader) {
	s := w.segments[p.seg]
	w.refs = w.refs[:0]
	if h.sequence < w.from {
		return
	}
	end := groupHeaderBytes + int(h.payload)
	if end > len(data) {
		w.lost(p, h.sequence, errors.New("the segment file ends within a group that was durable"))
		end = len(data)
	}
	found := 0
	for at := groupHeaderBytes; at+RecordOverhead <= end; {
		seal := s.seal.record(h.sequence, at)
		r, ok := decodeRecordHeader(data[at:end], seal)
		if (!ok || r.length > end-at-RecordOverhead) && repairBit(data[at:at+RecordOverhead], seal) {
			if r, ok = decodeRecordHeader(data[at:end], seal); ok {
				w.res.Repaired++
			}
		}
		if !ok || r.length > end-at-RecordOverhead {
			w.lost(place{p.seg, p.off + int64(at)}, h.sequence, errors.New("a record header is not what was written"))
			at = nextRecord(data[:end], at+1, h.sequence, s.seal)
			continue
		}
		ref := recordRef{at: at, header: r}
		if crc32.Checksum(data[at+RecordOverhead:][:r.length], castagnoli) != r.crc {
			ref.bad = true
			cause := errors.New("payload checksum mismatch")
			if err := w.win.unreadable(p.off+int64(at), RecordOverhead+r.length); err != nil {
				cause = err
			}
			w.damage(Damage{
				Segment:  s.id,
				Offset:   p.off + int64(at),
				Position: Position(h.sequence),
				Known:    true,
				Kind:     r.kind,
				Tag:      r.tag,
				Err:      corrupt.New(s.name, p.off+int64(at), "journal record", cause),
			})
		}
		w.refs = append(w.refs, ref)
		at += RecordOverhead + r.length
		found++
	}
	if found != int(h.records) {
		w.lost(p, h.sequence, fmt.Errorf("%d of %d records can be read", found, h.records))
	}
}

// nextRecord finds the next record at or behind at whose header and payload are both whole. Two matching checksums leave
// no room for chance.
func nextRecord(data []byte, at int, sequence uint64, s seal) int {
	for ; at+RecordOverhead <= len(data); at++ {
		r, ok := decodeRecordHeader(data[at:], s.record(sequence, at))
		if ok && r.length <= len(data)-at-RecordOverhead && crc32.Checksum(data[at+RecordOverhead:][:r.length], castagnoli) == r.crc {
			return at
		}
	}
	return len(data)
}
