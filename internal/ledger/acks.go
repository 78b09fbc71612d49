package ledger

// AckTracker holds the adds that were sent and not yet released, in entry order without gaps, and counts for each the
// ensemble indices that acknowledged it. Indices are counted, not bookies: after an ensemble change the acks of a
// replaced index are unset. It is a ring, so that a steady stream of adds allocates nothing.
type AckTracker struct {
	first EntryID // id of the oldest pending add
	ring  []pendingAdd
	start int // ring position of the oldest
	n     int
}

// pendingAdd is what is frozen when an add is pushed, and its acks.
type pendingAdd struct {
	acked  IndexSet
	lac    EntryID // LAC that the packet's header carries
	length int64   // cumulative length that the header carries, this entry included
}

// Reset empties the tracker; the next add pushed is e.
func (t *AckTracker) Reset(e EntryID) {
	t.first, t.start, t.n = e, 0, 0
}

// Len returns the number of pending adds.
func (t *AckTracker) Len() int { return t.n }

// First returns the id of the oldest pending add, or of the next one if none is pending.
func (t *AckTracker) First() EntryID { return t.first }

// Next returns the id that the next push gets.
func (t *AckTracker) Next() EntryID { return t.first + EntryID(t.n) }

// push appends an add and returns its id.
func (t *AckTracker) push(lac EntryID, length int64) EntryID {
	if t.n == len(t.ring) {
		t.grow()
	}
	t.ring[(t.start+t.n)&(len(t.ring)-1)] = pendingAdd{lac: lac, length: length}
	t.n++
	return t.first + EntryID(t.n-1)
}

func (t *AckTracker) grow() {
	bigger := make([]pendingAdd, max(8, 2*len(t.ring)))
	for i := range t.n {
		bigger[i] = t.ring[(t.start+i)&(len(t.ring)-1)]
	}
	t.ring, t.start = bigger, 0
}

// at returns the i-th oldest pending add.
func (t *AckTracker) at(i int) *pendingAdd { return &t.ring[(t.start+i)&(len(t.ring)-1)] }

// get returns the pending add e, nil if it was released or never pushed.
func (t *AckTracker) get(e EntryID) *pendingAdd {
	if e < t.first || e >= t.Next() {
		return nil
	}
	return t.at(int(e - t.first))
}

// Ack counts an acknowledgement of e from ensemble index i; it reports whether e is pending. Repeated acks of one index
// count once.
func (t *AckTracker) Ack(e EntryID, i int) bool {
	p := t.get(e)
	if p == nil {
		return false
	}
	p.acked = p.acked.With(i)
	return true
}

// popComplete removes the oldest add if it has an ack quorum and returns its cumulative length.
func (t *AckTracker) popComplete(ack int) (length int64, ok bool) {
	if t.n == 0 {
		return 0, false
	}
	p := t.at(0)
	if p.acked.Len() < ack {
		return 0, false
	}
	length = p.length
	t.start = (t.start + 1) & (len(t.ring) - 1)
	t.first++
	t.n--
	return length, true
}

// clone returns a copy that shares nothing.
func (t *AckTracker) clone() AckTracker {
	c := AckTracker{first: t.first}
	if t.n > 0 {
		size := 8
		for size < t.n {
			size *= 2
		}
		c.ring, c.n = make([]pendingAdd, size), t.n
		for i := range t.n {
			c.ring[i] = *t.at(i)
		}
	}
	return c
}
