package ledger

// close fails what is pending and closes the record at the LAC. A metadata operation under way is waited for: its
// outcome decides from which version the closing write starts.
func (w *Writer) close(cause Cause, out []Action) []Action {
	if w.phase != phaseOpen {
		return out
	}
	out = w.failPending(cause, out)
	w.phase, w.changing = phaseClosing, false
	if w.loop == loopWriting || w.loop == loopReading {
		return out
	}
	return w.writeClosed(out)
}

// abandon fails what is pending and ends the handle without writing anything.
func (w *Writer) abandon(cause Cause, out []Action) []Action {
	if w.phase == phaseOpen {
		out = w.failPending(cause, out)
	}
	w.changing = false
	return w.finish(cause, out)
}

// failPending fails every pending add, in order, and any force. A failed add is unknown, not absent.
func (w *Writer) failPending(cause Cause, out []Action) []Action {
	w.cause = cause
	if n := w.acks.Len(); n > 0 {
		first := w.acks.First()
		w.acks.Reset(first)
		out = append(out, Action{Kind: ActFail, First: first, Entry: first + EntryID(n) - 1, Cause: cause})
	}
	w.length = w.headBytes
	return w.failForce(cause, out)
}

func (w *Writer) writeClosed(out []Action) []Action {
	p := *w.record
	p.State, p.LastEntry, p.Length = StateClosed, w.lac, w.lacLength
	w.proposal, w.loop, w.closing = &p, loopWriting, true
	return append(out, Action{Kind: ActWrite, Record: &p, Version: w.version})
}

// closeAfterRead goes on with closing from what is stored.
func (w *Writer) closeAfterRead(out []Action) []Action {
	switch r := w.record; r.State {
	case StateOpen:
		if r.Quorum() != w.q || r.Last().First > w.lac+1 {
			return w.finish(CauseConflict, out)
		}
		return w.writeClosed(out)
	case StateInRecovery:
		if mutant == MutantCloseFromRecovery {
			return w.writeClosed(out)
		}
		return w.finish(CauseFenced, out)
	default:
		if r.LastEntry == w.lac && r.Length == w.lacLength {
			return w.finish(CauseNone, out)
		}
		return w.finish(CauseConflict, out)
	}
}

func (w *Writer) finish(cause Cause, out []Action) []Action {
	w.phase, w.loop, w.proposal = phaseClosed, loopIdle, nil
	return append(out, Action{Kind: ActClosed, Cause: cause, Entry: w.lac, Length: w.lacLength, Record: w.record})
}
