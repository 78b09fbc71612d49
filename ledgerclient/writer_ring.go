package ledgerclient

// addRing holds the pending adds of a writer, by entry id without gaps.
type addRing struct {
	first EntryID
	ring  []*pendingAdd
	start int
	n     int
}

func (r *addRing) push(p *pendingAdd) EntryID {
	if r.n == len(r.ring) {
		bigger := make([]*pendingAdd, max(64, 2*len(r.ring)))
		for i := range r.n {
			bigger[i] = r.ring[(r.start+i)&(len(r.ring)-1)]
		}
		r.ring, r.start = bigger, 0
	}
	r.ring[(r.start+r.n)&(len(r.ring)-1)] = p
	r.n++
	return r.first + EntryID(r.n-1)
}

func (r *addRing) get(e EntryID) *pendingAdd {
	if e < r.first || e >= r.first+EntryID(r.n) {
		return nil
	}
	return r.ring[(r.start+int(e-r.first))&(len(r.ring)-1)]
}

func (r *addRing) pop() (*pendingAdd, EntryID) {
	p, e := r.ring[r.start], r.first
	r.ring[r.start] = nil
	r.start = (r.start + 1) & (len(r.ring) - 1)
	r.first++
	r.n--
	return p, e
}
