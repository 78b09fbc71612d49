package entrylog

import (
	"fmt"
	"math"
)

// RecordHeaderSize is the length in bytes of the header before every body: entry i+1 of a run starts RecordHeaderSize +
// its predecessor's body size behind it.
const RecordHeaderSize = 8

// Run is a sequence of consecutive entries of one ledger whose records lie one after another in a log.
type Run struct {
	Ledger int64
	First  int64 // id of the first entry
	Log    LogID
	Offset int64 // of the first entry's record header
	Count  uint32
	// Sizes are the body lengths: one element if all are equal, otherwise Count of them.
	Sizes []uint32
}

// Last returns the id of the last entry.
func (r *Run) Last() int64 { return r.First + int64(r.Count) - 1 }

// Size returns the body length of the i-th entry.
func (r *Run) Size(i int) uint32 {
	if len(r.Sizes) == 1 {
		return r.Sizes[0]
	}
	return r.Sizes[i]
}

// Bytes returns the length of the run in its log, record headers included.
func (r *Run) Bytes() int64 { return r.offsetOf(int(r.Count)) - r.Offset }

// Location returns the place of the i-th entry.
func (r *Run) Location(i int) Location {
	return Location{Log: r.Log, Offset: r.offsetOf(i), Size: r.Size(i)}
}

// Find returns the place of an entry of the run.
func (r *Run) Find(entry int64) (Location, bool) {
	if entry < r.First || entry > r.Last() {
		return Location{}, false
	}
	return r.Location(int(entry - r.First)), true
}

func (r *Run) offsetOf(i int) int64 {
	if len(r.Sizes) == 1 {
		return r.Offset + int64(i)*(RecordHeaderSize+int64(r.Sizes[0]))
	}
	off := r.Offset
	for _, s := range r.Sizes[:i] {
		off += RecordHeaderSize + int64(s)
	}
	return off
}

// Slice returns the part of the run that holds entries [i, j), sharing Sizes.
func (r *Run) Slice(i, j int) Run {
	s := Run{Ledger: r.Ledger, First: r.First + int64(i), Log: r.Log, Offset: r.offsetOf(i), Count: uint32(j - i), Sizes: r.Sizes}
	if len(r.Sizes) != 1 {
		s.Sizes = r.Sizes[i:j]
	}
	return s
}

// Check reports what can not be a run: it guards every decoder and everything handed in.
func (r *Run) Check() error {
	switch {
	case r.Ledger < 0 || r.First < 0:
		return fmt.Errorf("run of ledger %d, entry %d: negative id", r.Ledger, r.First)
	case r.Count == 0 || r.Count > MaxRunEntries:
		return fmt.Errorf("run of ledger %d, entry %d: %d entries", r.Ledger, r.First, r.Count)
	case r.First > math.MaxInt64-int64(r.Count)+1:
		return fmt.Errorf("run of ledger %d, entry %d: ids overflow", r.Ledger, r.First)
	case len(r.Sizes) != 1 && len(r.Sizes) != int(r.Count):
		return fmt.Errorf("run of ledger %d, entry %d: %d sizes for %d entries", r.Ledger, r.First, len(r.Sizes), r.Count)
	case r.Offset < headerSize:
		return fmt.Errorf("run of ledger %d, entry %d: offset %d", r.Ledger, r.First, r.Offset)
	}
	for _, s := range r.Sizes {
		if s < MinBody || s > MaxBody {
			return fmt.Errorf("run of ledger %d, entry %d: body of %d bytes", r.Ledger, r.First, s)
		}
	}
	if r.Offset > maxOffset || r.Bytes() > maxOffset-r.Offset {
		return fmt.Errorf("run of ledger %d, entry %d: offset %d overflows", r.Ledger, r.First, r.Offset)
	}
	return nil
}

// RunBuilder turns a sequence of appended entries into runs. Entries added in order of ledger and entry id, as a flush
// appends them, give the longest runs and the order that Checkpoint wants.
type RunBuilder struct {
	runs []Run
	end  int64 // offset behind the last entry
}

// Add takes one entry.
func (b *RunBuilder) Add(ledger, entry int64, loc Location) {
	end := loc.Offset + RecordHeaderSize + int64(loc.Size)
	if n := len(b.runs); n > 0 {
		r := &b.runs[n-1]
		if r.Ledger == ledger && r.Log == loc.Log && r.Last()+1 == entry && b.end == loc.Offset && r.Count < MaxRunEntries {
			r.grow(loc.Size)
			b.end = end
			return
		}
	}
	b.runs = append(b.runs, Run{Ledger: ledger, First: entry, Log: loc.Log, Offset: loc.Offset, Count: 1, Sizes: []uint32{loc.Size}})
	b.end = end
}

// grow adds an entry of the given size, spelling the sizes out once they differ.
func (r *Run) grow(size uint32) {
	switch {
	case len(r.Sizes) == 1 && r.Sizes[0] == size:
	case len(r.Sizes) == 1:
		sizes := make([]uint32, r.Count, r.Count+8)
		for i := range sizes {
			sizes[i] = r.Sizes[0]
		}
		r.Sizes = append(sizes, size)
	default:
		r.Sizes = append(r.Sizes, size)
	}
	r.Count++
}

// Runs returns what was built and empties the builder.
func (b *RunBuilder) Runs() []Run {
	runs := b.runs
	b.runs, b.end = nil, 0
	return runs
}
