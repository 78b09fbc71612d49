package wire

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
)

// The availability of a ledger's entries on one bookie, the answer to OpListEntries:
//
//	+-------------+---------------+------------+------------------------------------------------+
//	| version (4) | groups G (4)  | zero (56B) | G x { first(8) last(8) size(4) period(4) }     |
//	+-------------+---------------+------------+------------------------------------------------+
//
// A group is the runs of size ids that start at first, first+period, ... last. Encoders write one run per group, with
// first = last and period 0; decoders take the periodic form too.
const (
	availabilityHeader = 64
	availabilityGroup  = 24
)

// Run is Count consecutive entry ids from First on.
type Run struct{ First, Count int64 }

// AppendRun adds id to runs of ascending ids. An id that is not above the last one is dropped.
func AppendRun(runs []Run, id int64) []Run {
	if n := len(runs); n > 0 {
		last := &runs[n-1]
		switch at := id - last.First; { // not the sum, which may overflow
		case id < last.First || at < last.Count:
			return runs
		case at == last.Count:
			last.Count++
			return runs
		}
	}
	return append(runs, Run{First: id, Count: 1})
}

// AvailabilitySize returns the size in bytes of the encoding of n runs.
func AvailabilitySize(n int) int { return availabilityHeader + n*availabilityGroup }

// AppendAvailability appends the encoding of runs, which are ascending and do not touch. Empty runs are left out, and
// one of more than 2^31-1 ids is split, since a group's size has 32 bits.
func AppendAvailability(dst []byte, runs []Run) []byte {
	start := len(dst)
	var head [availabilityHeader]byte
	dst = append(dst, head[:]...)
	groups := uint32(0)
	for _, r := range runs {
		for r.Count > 0 {
			n := min(r.Count, math.MaxInt32)
			dst = appendInt64(dst, r.First)
			dst = appendInt64(dst, r.First)
			dst = binary.BigEndian.AppendUint32(dst, uint32(n)) //nolint:gosec // checked above
			dst = binary.BigEndian.AppendUint32(dst, 0)
			r.First += n
			r.Count -= n
			groups++
		}
	}
	binary.BigEndian.PutUint32(dst[start+4:], groups)
	return dst
}

// Availability is a decoded list of entries. It aliases the bytes it was decoded from.
type Availability struct{ groups []byte }

// group is one group of the list.
type group struct {
	first, last  int64 // starts of the first and the last run
	size, period int64
}

// DecodeAvailability checks b and returns what it lists.
func DecodeAvailability(b []byte) (Availability, error) {
	if len(b) < availabilityHeader {
		return Availability{}, malformed("list of entries", "shorter than its header")
	}
	if v := binary.BigEndian.Uint32(b); v != 0 {
		return Availability{}, malformed("list of entries", fmt.Sprintf("version %d, this program knows 0", v))
	}
	n := binary.BigEndian.Uint32(b[4:])
	rest := b[availabilityHeader:]
	if uint64(n)*availabilityGroup > uint64(len(rest)) {
		return Availability{}, malformed("list of entries", fmt.Sprintf("%d groups in %d bytes", n, len(rest)))
	}
	a := Availability{groups: rest[:int(n)*availabilityGroup]}
	end := int64(-1)
	for i := range a.count() {
		g := a.group(i)
		// The order and the bounds make Contains and All total: ids ascend and never overflow.
		if g.first <= end || g.last < g.first || g.size <= 0 || g.last > math.MaxInt64-(g.size-1) {
			return Availability{}, malformed("list of entries", fmt.Sprintf("group %d is empty, negative or out of order", i))
		}
		if g.last > g.first && (g.period < g.size || (g.last-g.first)%g.period != 0) {
			return Availability{}, malformed("list of entries", fmt.Sprintf("group %d has period %d with runs of %d", i, g.period, g.size))
		}
		end = g.last + g.size - 1
	}
	return a, nil
}

func (a Availability) count() int { return len(a.groups) / availabilityGroup }

func (a Availability) group(i int) group {
	b := a.groups[i*availabilityGroup:]
	g := group{
		first:  int64(binary.BigEndian.Uint64(b)),             //nolint:gosec // two's complement, checked by the decoder
		last:   int64(binary.BigEndian.Uint64(b[8:])),         //nolint:gosec // as above
		size:   int64(int32(binary.BigEndian.Uint32(b[16:]))), //nolint:gosec // as above
		period: int64(int32(binary.BigEndian.Uint32(b[20:]))), //nolint:gosec // as above
	}
	return g
}

// Runs yields the runs of the list in ascending order. A hostile list may hold many in few bytes: stop when enough.
func (a Availability) Runs() iter.Seq[Run] {
	return func(yield func(Run) bool) {
		for i := range a.count() {
			g := a.group(i)
			for first := g.first; ; first += g.period {
				if !yield(Run{First: first, Count: g.size}) {
					return
				}
				if first == g.last {
					break
				}
			}
		}
	}
}

// Count returns how many entries the list holds.
func (a Availability) Count() int64 {
	var n int64
	for i := range a.count() {
		g := a.group(i)
		runs := int64(1)
		if g.last > g.first {
			runs += (g.last - g.first) / g.period
		}
		n += runs * g.size
	}
	return n
}

// Contains reports whether the list holds entry id.
func (a Availability) Contains(id int64) bool {
	lo, hi := 0, a.count()
	for lo < hi { // first group that begins after id
		mid := int(uint(lo+hi) >> 1) //nolint:gosec // halves of an index
		if a.group(mid).first <= id {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 {
		return false
	}
	g := a.group(lo - 1)
	if id >= g.last && id-g.last >= g.size {
		return false
	}
	if g.last == g.first {
		return id-g.first < g.size
	}
	return (id-g.first)%g.period < g.size
}
