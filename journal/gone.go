package journal

import "fmt"

// Segments are recycled once the mark has passed all their groups, the oldest first, and empty ones at a start, the newest
// first; each is durable before the next. One that is missing otherwise is damage: somebody deleted it. What shows it is what
// the segments behind it say.

// goneBefore tests that the segments begin where the mark needs them to. first is the one that the walk begins with. The
// mark 0 says nothing: whoever passes it wants whatever there is.
func (w *walk) goneBefore(first int) error {
	if w.from == 0 || first >= len(w.segments) || w.segments[first].err != nil {
		return nil
	}
	s := w.segments[first]
	last := s.header.prevLast // that was before this segment, at least
	if !s.header.fresh() {
		last = max(s.header.first, 1) - 1
		h, ok, err := w.groupAt(place{first, segmentHeaderBytes})
		if err != nil {
			return err
		}
		if ok {
			last = h.sequence - 1
		}
	}
	if last >= w.from {
		w.lost(place{first, 0}, w.from, fmt.Errorf("the segments with groups %d to %d before this one are missing", w.from, last))
	}
	return nil
}

// goneAfter looks, where a run that is the last one seems to end before group expect, for a segment up to b whose predecessor
// is not there although an older one is. It reports whether it found one; the loss is noted then.
func (w *walk) goneAfter(p place, b int, expect uint64) bool {
	for i := p.seg + 1; i < b; i++ {
		if h := w.segments[i].header; h.prev != w.segments[i-1].id {
			w.lostEnd(place{i, 0}, max(h.first-1, expect), expect, fmt.Errorf("segment %016x before this one, with groups from %d on, is missing", h.prev, expect))
			return true
		}
	}
	return false
}
