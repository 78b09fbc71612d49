package ledger

// pipeline is the part that a live writer and a recovery share: the ensemble that pending adds are sent to, their
// acks, and the indices whose bookie has failed. All pending adds use the one current ensemble: it is swapped for all
// of them at once, so no add can be left behind with an older one, and no ack can be matched against an older one.
type pipeline struct {
	q        Quorum
	ensemble []BookieID // never changed in place
	failed   IndexSet   // nothing is sent to these until they are replaced or answer again
	acks     AckTracker
	round    int // stamped on every send; answers of another round are stale (recovery starts over with a new one)
}

// current reports whether b is the bookie at index i. Answers of others are stale and are dropped.
func (p *pipeline) current(i int, b BookieID) bool {
	return i >= 0 && i < len(p.ensemble) && (p.ensemble[i] == b || mutant == MutantStaleAcks)
}

// push adds the next entry and sends it to the members of its write set that are not known to have failed.
func (p *pipeline) push(lac EntryID, length int64, out []Action) []Action {
	e := p.acks.push(lac, length)
	for n := range p.q.Write {
		if i := p.q.Index(e, n); !p.failed.Has(i) {
			out = append(out, Action{Kind: ActSend, Entry: e, Index: i, Bookie: p.ensemble[i], LAC: lac, Length: length, Round: p.round})
		}
	}
	return out
}

// ack counts a successful answer; the caller has checked that it is current.
func (p *pipeline) ack(e EntryID, i int) bool {
	return p.q.Stores(e, i) && p.acks.Ack(e, i)
}

// swap makes next the current ensemble. At every index that got another bookie, and at every reinstated one, the acks
// of all pending adds are unset and the adds sent again. Nothing is released here: the caller does that once, after
// every pending add has been brought up to date.
func (p *pipeline) swap(next []BookieID, reinstated IndexSet, out []Action) []Action {
	moved := reinstated
	for i, b := range next {
		if p.ensemble[i] != b {
			moved = moved.With(i)
		}
	}
	p.ensemble = next
	p.failed &^= moved
	if moved == 0 {
		return out
	}
	for n := range p.acks.n {
		e, add := p.acks.first+EntryID(n), p.acks.at(n)
		again := moved & p.q.WriteSet(e)
		if mutant != MutantAcksNotUnset {
			add.acked &^= again
		}
		for ; again != 0; again = again.Without(again.First()) {
			i := again.First()
			out = append(out, Action{Kind: ActSend, Entry: e, Index: i, Bookie: next[i], LAC: add.lac, Length: add.length, Round: p.round})
		}
	}
	return out
}

// choose applies the picks for the indices in asked to the current ensemble. placed are those that got another bookie,
// reinstated those whose own bookie answers again, unplaced those without a candidate. A pick that the ensemble already
// holds elsewhere counts as none.
func (p *pipeline) choose(asked IndexSet, picks []Pick) (next []BookieID, placed, reinstated, unplaced IndexSet) {
	next = append([]BookieID(nil), p.ensemble...)
	unplaced = asked
	for _, k := range picks {
		if k.Index < 0 || k.Index >= len(next) || !unplaced.Has(k.Index) || k.Bookie == "" {
			continue
		}
		if k.Bookie == p.ensemble[k.Index] {
			reinstated = reinstated.With(k.Index)
		} else if holds(next, k.Bookie) {
			continue
		} else {
			next[k.Index] = k.Bookie
			placed = placed.With(k.Index)
		}
		unplaced = unplaced.Without(k.Index)
	}
	return next, placed, reinstated, unplaced
}

func holds(ensemble []BookieID, b BookieID) bool {
	for _, m := range ensemble {
		if m == b {
			return true
		}
	}
	return false
}

// withFragment returns the fragments with an ensemble that starts at first: it replaces a last fragment with the same
// start and follows one with a lower start. ok is false if the last fragment starts later: fragments never overlap.
func withFragment(fragments []Fragment, first EntryID, ensemble []BookieID) (_ []Fragment, ok bool) {
	n := len(fragments)
	last := fragments[n-1].First
	if last > first {
		return nil, false
	}
	if last == first {
		n--
	}
	next := append(make([]Fragment, 0, n+1), fragments[:n]...)
	return append(next, Fragment{First: first, Bookies: ensemble}), true
}
