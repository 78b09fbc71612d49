package ledger

// R4 to R7: read the tail, write it back, agree its length, close.

// nextRead is the first entry that has not been asked for.
func (r *Recovery) nextRead() EntryID { return r.acks.Next() + EntryID(len(r.reads)) }

// readMore asks the whole write set of every further entry that fits the window. All members are asked at once: a slow
// one then holds up nothing, since one good copy or (Qw-Qa)+1 denials decide.
func (r *Recovery) readMore(out []Action) []Action {
	ensemble := r.record.Last().Bookies
	for !r.stopped && len(r.reads)+r.acks.Len() < r.cfg.ReadAhead {
		e := r.nextRead()
		r.reads = append(r.reads, recoveryRead{entry: e})
		for n := range r.q.Write {
			i := r.q.Index(e, n)
			out = append(out, Action{Kind: ActRecoveryRead, Entry: e, Index: i, Bookie: ensemble[i], Round: r.round})
		}
	}
	return out
}

// readAnswer takes one answer of R4.
func (r *Recovery) readAnswer(ev Event, out []Action) []Action {
	if r.phase != recReading || r.stopped || ev.Round != r.round || len(r.reads) == 0 {
		return out
	}
	n := ev.Entry - r.reads[0].entry
	if n < 0 || n >= EntryID(len(r.reads)) || ev.Index < 0 || ev.Index >= r.q.Ensemble || !r.q.Stores(ev.Entry, ev.Index) ||
		r.record.Last().Bookies[ev.Index] != ev.Bookie {
		return out
	}
	read := &r.reads[n]
	switch {
	case ev.Answer == AnswerUnauthorized:
		return r.abort(CauseUnauthorized, out)
	case read.found:
		return out
	case ev.Answer == AnswerOK:
		read.found, read.lac, read.length = true, ev.LAC, ev.Length
	case ev.Answer == AnswerNegative, mutant == MutantUnknownIsDenial:
		read.negative = read.negative.With(ev.Index)
	default:
		read.useless = read.useless.With(ev.Index)
	}
	return r.decide(out)
}

// decide works off the decided reads at the front of the window, in entry order.
func (r *Recovery) decide(out []Action) []Action {
	for len(r.reads) > 0 {
		read := r.reads[0]
		switch {
		case read.found:
			r.reads = r.reads[1:]
			out = r.readd(read, out)
			if r.phase != recReading {
				return out
			}
			continue
		case read.negative.Len() >= r.q.Absent():
			r.stopped, r.reads = true, nil
		case (read.negative | read.useless).Len() == r.q.Write:
			if !r.cfg.AcceptLoss {
				return r.abort(CauseUnreadable, out)
			}
			r.giveUp(read)
		}
		break
	}
	out = r.readMore(out)
	return r.sealWhenDone(out)
}

// readd is R5 for one entry.
func (r *Recovery) readd(read recoveryRead, out []Action) []Action {
	lac := min(max(r.base, read.lac), read.entry-1)
	if mutant == MutantRecoverySendsOwnLAC {
		lac = read.entry - 1
	}
	r.readded = true
	out = r.push(lac, read.length, out)
	if mutant == MutantRecoveryWritesNothing {
		r.acks.Reset(read.entry + 1)
		r.length = read.length
		return out[:0]
	}
	return r.replaceFailed(out)
}

// addAnswer takes a bookie's answer to a re-add.
func (r *Recovery) addAnswer(ev Event, out []Action) []Action {
	if r.phase != recReading || ev.Round != r.round || !r.current(ev.Index, ev.Bookie) {
		return out
	}
	switch ev.Answer {
	case AnswerOK:
		if !r.ack(ev.Entry, ev.Index) {
			return out
		}
		return r.advance(out)
	case AnswerFenced: // the bookie remembers the ledger as deleted
		return r.abort(CauseFenced, out)
	case AnswerUnauthorized:
		return r.abort(CauseUnauthorized, out)
	}
	r.failed = r.failed.With(ev.Index)
	return r.replaceFailed(out)
}

// advance releases re-adds that reached an ack quorum. A pick under way does not hold them back: nothing is stored, and
// the fragment that it leads to starts after them.
func (r *Recovery) advance(out []Action) []Action {
	first := r.acks.First()
	for {
		need := r.copies(r.acks.First())
		length, ok := r.acks.popComplete(need)
		if !ok {
			break
		}
		if need < r.q.Ack && r.loss.Thin == InvalidEntry {
			r.loss.Thin = r.acks.First() - 1
		}
		r.length = length
	}
	if last := r.acks.First() - 1; last >= first {
		out = append(out, Action{Kind: ActRelease, First: first, Entry: last})
		out = r.readMore(out)
	}
	return r.sealWhenDone(out)
}

// replaceFailed is R6. It asks for replacements once some re-add needs them.
func (r *Recovery) replaceFailed(out []Action) []Action {
	if r.loop == loopPicking || r.acks.Len() == 0 || r.failed&^r.unplaced == 0 {
		return out
	}
	r.loop, r.asked, r.unplaced = loopPicking, r.failed, 0
	return append(out, Action{Kind: ActPick, Indices: r.failed, Exclude: r.ensemble})
}

// picked puts the chosen bookies in place, in memory.
func (r *Recovery) picked(picks []Pick, out []Action) []Action {
	if r.loop != loopPicking || r.phase != recReading {
		return out
	}
	r.loop = loopIdle
	next, placed, reinstated, unplaced := r.choose(r.asked, picks)
	r.unplaced = unplaced
	if placed != 0 {
		fragments, ok := withFragment(r.fragments, r.acks.First(), next)
		if !ok {
			return r.abort(CauseConflict, out)
		}
		r.fragments = fragments
		for _, k := range picks {
			if k.Index >= 0 && k.Index < len(next) && placed.Has(k.Index) && next[k.Index] == k.Bookie {
				r.checks = append(r.checks, IncarnationCheck{Bookie: k.Bookie, Version: k.Incarnation})
			}
		}
	}
	out = append(out, Action{Kind: ActEnsemble, Record: &Metadata{Fragments: r.fragments}})
	out = r.swap(next, reinstated, out)
	if r.failed&^r.unplaced == 0 && !r.q.Reachable(r.failed) {
		if !r.cfg.AcceptLoss || r.failed == AllIndices(r.q.Ensemble) {
			return r.abort(CauseNotEnoughBookies, out)
		}
		r.thin = true
	}
	out = r.replaceFailed(out)
	return r.advance(out)
}

// sealWhenDone goes on to R7 when the end is known and everything before it is written back.
func (r *Recovery) sealWhenDone(out []Action) []Action {
	if r.phase != recReading || !r.stopped || r.acks.Len() > 0 && mutant != MutantRecoveryDoesNotWait {
		return out
	}
	last := r.acks.First() - 1
	if r.readded || last == InvalidEntry {
		return r.seal(out)
	}
	for _, f := range r.fenced {
		if f.entry == last {
			r.length = f.length
			return r.seal(out)
		}
	}
	// Nothing was recovered and no fenced bookie holds the last entry: its header must be read for the length.
	r.phase, r.waiting = recLength, 0
	ensemble := r.record.EnsembleOf(last)
	for n := range r.q.Write {
		i := r.q.Index(last, n)
		r.waiting = r.waiting.With(i)
		out = append(out, Action{Kind: ActReadLength, Entry: last, Index: i, Bookie: ensemble[i], Round: r.round})
	}
	return out
}

// lengthAnswer takes a header, or gives up on the exact length: an unreadable last entry never fails a recovery.
func (r *Recovery) lengthAnswer(ev Event, out []Action) []Action {
	if r.phase != recLength || ev.Round != r.round || ev.Entry != r.acks.First()-1 || !r.waiting.Has(ev.Index) {
		return out
	}
	if ev.Answer == AnswerOK {
		r.length = ev.Length
		return r.seal(out)
	}
	r.waiting = r.waiting.Without(ev.Index)
	if r.waiting != 0 {
		return out
	}
	for _, f := range r.fenced {
		if f.entry <= ev.Entry {
			r.length = max(r.length, f.length)
		}
	}
	return r.seal(out)
}

// seal is R7.
func (r *Recovery) seal(out []Action) []Action {
	p := *r.record
	p.State, p.LastEntry, p.Length, p.Fragments = StateClosed, r.acks.First()-1, r.length, r.fragments
	if mutant == MutantRecoveryDoesNotWait && r.acks.Len() > 0 {
		p.LastEntry, p.Length = r.acks.Next()-1, r.acks.at(r.acks.Len()-1).length
	}
	r.noteLoss(&p)
	r.checks = namedChecks(r.checks, r.fragments[len(r.record.Fragments)-1:])
	if mutant == MutantIncarnationsNotChecked {
		r.checks = nil
	}
	r.phase = recSealing
	return r.write(&p, out)
}

// namedChecks keeps the oldest check of every bookie that the fragments name: it goes back to before the first add.
func namedChecks(checks []IncarnationCheck, fragments []Fragment) []IncarnationCheck {
	var kept []IncarnationCheck
	for _, c := range checks {
		wanted := false
		for _, f := range fragments {
			wanted = wanted || holds(f.Bookies, c.Bookie)
		}
		for _, k := range kept {
			wanted = wanted && k.Bookie != c.Bookie
		}
		if wanted {
			kept = append(kept, c)
		}
	}
	return kept
}
