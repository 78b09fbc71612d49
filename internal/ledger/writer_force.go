package ledger

// Force: FORCE goes to every bookie of the ensemble; when all of them say OK, everything released before the call is
// durable and, with deferred sync, becomes confirmed.
//
// Under deferred sync an answer proves something only about acks that travelled on the same connection: a bookie that
// crashed and came back has a new connection, and may have lost what it acknowledged before. So the acks of each
// bookie since the last successful force must all have come over the connection that carried this FORCE. Acks that
// arrive while a force is under way count for the next one.

// forceState is the force of one writer. At most one is under way; further calls share the next.
type forceState struct {
	running bool
	waiting bool     // another force was asked for: while one runs, or during an ensemble change
	head    EntryID  // entries up to here become durable
	length  int64    // payload bytes up to head
	done    IndexSet // indices that answered OK
	since   []ackConn
	covered []ackConn // moved here from since when the force started
}

// ackConn says over which connections the acks of one index came.
type ackConn struct {
	conn  uint64
	some  bool
	mixed bool
}

func (f *forceState) init(e int) {
	f.head = InvalidEntry
	f.since, f.covered = make([]ackConn, e), make([]ackConn, e)
}

func (f *forceState) noteAck(i int, conn uint64) {
	a := &f.since[i]
	if a.some && a.conn != conn {
		a.mixed = true
	}
	a.some, a.conn = true, conn
}

// startForce begins a force, or queues it behind the one that runs.
func (w *Writer) startForce(out []Action) []Action {
	switch {
	case w.phase != phaseOpen:
		return append(out, Action{Kind: ActForceDone, Entry: w.lac, Cause: w.cause})
	case w.force.running || w.changing:
		w.force.waiting = true
		return out
	case w.head == InvalidEntry:
		return append(out, Action{Kind: ActForceDone, Entry: w.head})
	}
	f := &w.force
	f.running, f.waiting, f.done = true, false, 0
	f.head, f.length = w.head, w.headBytes
	for i := range f.since {
		f.covered[i], f.since[i] = f.since[i], ackConn{}
	}
	if w.failed != 0 { // one member gets nothing and has no replacement: not all can answer
		return w.forceFailed(CauseNotEnoughBookies, out)
	}
	for n := range w.q.Ensemble {
		i := w.q.Index(w.head, n)
		out = append(out, Action{Kind: ActForce, Index: i, Bookie: w.ensemble[i], Entry: w.head})
	}
	return out
}

// forceAnswer takes one bookie's answer to FORCE.
func (w *Writer) forceAnswer(ev Event, out []Action) []Action {
	f := &w.force
	if w.phase != phaseOpen || !f.running || ev.Entry != f.head {
		return out
	}
	if !w.current(ev.Index, ev.Bookie) || ev.Answer != AnswerOK {
		return w.forceFailed(CauseForce, out)
	}
	if a := f.covered[ev.Index]; w.cfg.Deferred && a.some && (a.mixed || a.conn != ev.Conn) && countConnections() {
		return w.forceFailed(CauseForce, out)
	}
	f.done = f.done.With(ev.Index)
	if f.done != AllIndices(w.q.Ensemble) {
		return out
	}
	f.running = false
	if f.head > w.lac {
		w.lac, w.lacLength = f.head, f.length
	}
	out = append(out, Action{Kind: ActForceDone, Entry: f.head})
	return w.resumeForce(out)
}

// countConnections is true but under two planted bugs.
func countConnections() bool {
	return mutant != MutantForceIgnoresConnections && mutant != MutantUncleanStopIgnored
}

// forceFailed ends the force. With deferred sync, entries that were acknowledged can not be confirmed any more, so the
// handle closes at its LAC; without it they were durable when they were acknowledged, and only this call fails.
func (w *Writer) forceFailed(cause Cause, out []Action) []Action {
	w.force.running = false
	out = append(out, Action{Kind: ActForceDone, Entry: w.force.head, Cause: cause})
	if w.cfg.Deferred {
		return w.close(CauseForce, out)
	}
	return w.resumeForce(out)
}

func (w *Writer) resumeForce(out []Action) []Action {
	if w.phase != phaseOpen || w.changing || w.force.running || !w.force.waiting {
		return out
	}
	w.force.waiting = false
	return w.startForce(out)
}

func (w *Writer) failForce(cause Cause, out []Action) []Action {
	if w.force.running || w.force.waiting {
		w.force.running, w.force.waiting = false, false
		out = append(out, Action{Kind: ActForceDone, Entry: w.head, Cause: cause})
	}
	return out
}
