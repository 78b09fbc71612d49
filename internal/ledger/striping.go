package ledger

import "math/bits"

// IndexSet is a set of ensemble indices.
type IndexSet uint64

// Has reports whether index i is in the set.
func (s IndexSet) Has(i int) bool { return s>>uint(i)&1 != 0 }

// With returns the set with index i.
func (s IndexSet) With(i int) IndexSet { return s | 1<<uint(i) }

// Without returns the set without index i.
func (s IndexSet) Without(i int) IndexSet { return s &^ (1 << uint(i)) }

// Len returns the number of indices in the set.
func (s IndexSet) Len() int { return bits.OnesCount64(uint64(s)) }

// First returns the lowest index of a set that is not empty.
func (s IndexSet) First() int { return bits.TrailingZeros64(uint64(s)) }

// AllIndices is the set 0..n-1.
func AllIndices(n int) IndexSet {
	if n >= 64 {
		return ^IndexSet(0)
	}
	return 1<<uint(n) - 1
}

// The write set of entry e is the Qw consecutive indices (e+i) mod E, i = 0..Qw-1, counted on the absolute entry id and
// not on its distance from the fragment's start. All arithmetic is 64 bits wide.

// Start returns the first index of the write set of e.
func (q Quorum) Start(e EntryID) int { return int(uint64(e) % uint64(q.Ensemble)) }

// Index returns the i-th index of the write set of e, or, for i up to E-1, of its ensemble set: all indices in the
// order in which long polls and forces visit them.
func (q Quorum) Index(e EntryID, i int) int {
	i += q.Start(e)
	if i >= q.Ensemble {
		i -= q.Ensemble
	}
	return i
}

// Stores reports whether index i is in the write set of e.
func (q Quorum) Stores(e EntryID, i int) bool {
	d := i - q.Start(e)
	if d < 0 {
		d += q.Ensemble
	}
	return d < q.Write
}

// WriteSet returns the write set of e as a set.
func (q Quorum) WriteSet(e EntryID) IndexSet { return q.window(q.Start(e)) }

// window is the set of Qw consecutive indices from start, wrapping at E.
func (q Quorum) window(start int) IndexSet {
	w := AllIndices(q.Write) << uint(start)
	if over := start + q.Write - q.Ensemble; over > 0 {
		w = w&AllIndices(q.Ensemble) | AllIndices(over)
	}
	return w
}

// Covered reports whether answers prove enough about every entry that could be stored on an ensemble, given the
// indices from which nothing is known: every write set then has fewer than Qa unknown members, so no entry can have, or
// get, an ack quorum among them alone. Success and negative answers both make an index known.
func (q Quorum) Covered(unknown IndexSet) bool {
	for start := range q.Ensemble {
		if (q.window(start) & unknown).Len() >= q.Ack {
			return false
		}
	}
	return true
}

// Reachable reports whether every write set can still collect Qa acknowledgements without the failed indices.
func (q Quorum) Reachable(failed IndexSet) bool {
	for start := range q.Ensemble {
		if q.Write-(q.window(start)&failed).Len() < q.Ack {
			return false
		}
	}
	return true
}

// Absent is the number of negative answers from one write set that prove an entry can not have been acknowledged: one
// more than an ack quorum can do without.
func (q Quorum) Absent() int {
	if mutant == MutantOneDenialLess {
		return max(q.Write-q.Ack, 1)
	}
	return q.Write - q.Ack + 1
}
