package ledger

// Ensemble change, and the loop over the metadata record that it shares with close.
//
//	startChange -> ActPick -> picked -> ActWrite -> written  -> swap, end
//	                  ^                     |----- conflict -> ActRead -> read -> adopt -> picked again if still failed
//	                  |                     '----- unknown  -> doubt, ActRead (after a pause) ...
//	                  '--- failures that came meanwhile

// startChange holds back releases and asks for replacements of every failed bookie.
func (w *Writer) startChange(out []Action) []Action {
	w.changing, w.loop = true, loopPicking
	w.asked, w.unplaced = w.failed, 0
	return append(out, Action{Kind: ActPick, Indices: w.failed, Exclude: w.ensemble})
}

// picked turns picks into a compare-and-set.
func (w *Writer) picked(picks []Pick, out []Action) []Action {
	if w.loop != loopPicking || w.phase != phaseOpen {
		return out
	}
	next, placed, reinstated, unplaced := w.choose(w.asked, picks)
	w.back, w.unplaced = reinstated, unplaced
	if placed == 0 && !w.doubt {
		out = w.swap(w.ensemble, w.back, out)
		return w.endChange(out)
	}
	return w.propose(next, placed != 0, out)
}

// propose writes the record with the ensemble next from LAC+1 on. Without a new ensemble it writes the record as it
// is: that alone settles a write in doubt, since after it the older version can not be met any more.
func (w *Writer) propose(next []BookieID, changed bool, out []Action) []Action {
	p := *w.record
	if changed {
		fragments, ok := withFragment(w.record.Fragments, w.changeStart(), next)
		if !ok {
			return w.abandon(CauseConflict, out)
		}
		if len(fragments) > w.cfg.FragmentsMax {
			return w.close(CauseTooManyFragments, out)
		}
		p.Fragments = fragments
	}
	w.proposal, w.loop, w.closing = &p, loopWriting, false
	return append(out, Action{Kind: ActWrite, Record: &p, Version: w.version})
}

// changeStart is the first entry of a fragment added now.
func (w *Writer) changeStart() EntryID {
	if mutant == MutantChangeStartsTooLate {
		return w.acks.Next()
	}
	return w.lac + 1
}

// endChange ends a change whose record is stored, or that has nothing to store: it starts over if more bookies failed
// meanwhile, and otherwise lets the complete adds go.
func (w *Writer) endChange(out []Action) []Action {
	if w.due() {
		return w.startChange(out)
	}
	w.loop, w.back, w.urgent = loopIdle, 0, false
	if !w.q.Reachable(w.failed) {
		return w.close(CauseNotEnoughBookies, out)
	}
	w.changing = false
	out = w.release(out)
	return w.resumeForce(out)
}

// written takes the success of the write under way.
func (w *Writer) written(version int64, out []Action) []Action {
	if w.loop != loopWriting {
		return out
	}
	w.record, w.version, w.proposal, w.doubt = w.proposal, version, nil, false
	if w.closing {
		return w.finish(CauseNone, out)
	}
	out = append(out, Action{Kind: ActEnsemble, Record: w.record})
	if w.phase == phaseClosing {
		w.ensemble = w.record.Last().Bookies
		return w.writeClosed(out)
	}
	out = w.swap(w.record.Last().Bookies, w.back, out)
	return w.endChange(out)
}

// conflict takes the refusal of the write under way: somebody else, or an earlier write of our own, was first.
func (w *Writer) conflict(out []Action) []Action {
	if w.loop != loopWriting {
		return out
	}
	w.proposal, w.loop = nil, loopReading
	return append(out, Action{Kind: ActRead})
}

// metaUnknown takes an unknown outcome. A write may land at any later time.
func (w *Writer) metaUnknown(out []Action) []Action {
	switch w.loop {
	case loopWriting:
		if mutant == MutantSentEnsembleAdopted && !w.closing {
			return w.written(w.version+1, out)
		}
		w.doubt, w.proposal, w.loop = mutant != MutantDoubtDropped, nil, loopReading
	case loopReading:
	default:
		return out
	}
	return append(out, Action{Kind: ActRead, Retry: true})
}

// metaTimeout gives up on the store. What the record says is not known; adds that were held fail, and may yet exist.
func (w *Writer) metaTimeout(out []Action) []Action {
	if w.loop != loopReading {
		return out
	}
	w.loop = loopIdle
	if w.phase == phaseClosing {
		return w.finish(CauseMetadata, out)
	}
	return w.close(CauseMetadata, out)
}

// gone takes the news that the record was deleted. There is nothing left to close.
func (w *Writer) gone(out []Action) []Action {
	if w.loop != loopWriting && w.loop != loopReading {
		return out
	}
	return w.abandon(CauseGone, out)
}

// read takes a linearizable read of the record and goes on from what is stored.
func (w *Writer) read(record *Metadata, version int64, out []Action) []Action {
	if w.loop != loopReading {
		return out
	}
	if version < w.version { // not linearizable: look again
		return append(out, Action{Kind: ActRead, Retry: true})
	}
	if version > w.version {
		w.doubt = false
	}
	w.record, w.version, w.loop = record, version, loopIdle
	if w.phase == phaseClosing {
		return w.closeAfterRead(out)
	}
	if record.State != StateOpen {
		return w.abandon(CauseFenced, out)
	}
	if record.Quorum() != w.q || record.Last().First > w.lac+1 {
		return w.abandon(CauseConflict, out)
	}
	out = append(out, Action{Kind: ActEnsemble, Record: record})
	out = w.swap(record.Last().Bookies, 0, out)
	if w.failed != 0 {
		return w.startChange(out)
	}
	if w.doubt {
		return w.propose(nil, false, out)
	}
	w.unplaced = 0
	return w.endChange(out)
}
