package journal

import (
	"cmp"
	"errors"
	"fmt"
	iofs "io/fs"
	"slices"

	"github.com/binderylog/bindery/internal/corrupt"
)

// Segments are recycled once the mark has passed all their groups, the oldest first, and empty ones at a start, the newest
// first; each is durable before the next. One that is missing otherwise is damage: somebody deleted it. What shows it is what
// the segments behind it say, and what the note says about the last ones.

// goneAtEnd tests that the newest segment is there. What lay in those that are not can not be told, so the loss stays one
// until the mark lies behind everything that was written before it was found.
func (w *walk) goneAtEnd() {
	var cause error
	var gone uint64 // the segment, if it is known and not there: one that is there holds what it holds
	n := w.note
	segment := func(s *segmentFile, id uint64) int { return cmp.Compare(s.id, id) }
	switch {
	case w.noteErr != nil:
		cause = fmt.Errorf("which segments there have to be is not known: %w", w.noteErr)
	case n == nil && w.from > 1 && len(w.segments) == 0:
		cause = errors.New("there is no segment, and the mark says that there were")
	case n == nil:
		return
	case w.from != 0 && w.from <= n.gone:
		cause = fmt.Errorf("segments were missing at an earlier start, with records up to %d", n.gone)
	case n.last != 0 && w.from > n.last: // the mark needs nothing
		return
	default:
		if _, ok := slices.BinarySearchFunc(w.segments, n.newest, segment); n.newest != 0 && !ok {
			gone = n.newest
			cause = fmt.Errorf("segment %016x, the newest, is missing: %w", n.newest, iofs.ErrNotExist)
			break
		}
		if !w.alone() {
			return
		}
		cause = fmt.Errorf("segment %016x, before those that are there, is missing: %w", w.segments[0].header.prev, iofs.ErrNotExist)
	}
	w.missing = true
	w.res.Whole = false
	w.damage(Damage{Segment: gone, Position: Position(w.from), Err: corrupt.New(w.dir, 0, "journal", cause)})
}

// alone reports whether all that is there are segments that were prepared to follow another one: that one goes later if
// everything is in order.
func (w *walk) alone() bool {
	for i, s := range w.segments {
		if s.err != nil || s.header.fresh() {
			return false
		}
		if _, ok, err := w.groupAt(place{i, segmentHeaderBytes}); ok || err != nil {
			return false
		}
	}
	return len(w.segments) > 0
}

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
