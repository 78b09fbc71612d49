package ledger

// Writer is the core of the one live writer of a ledger.
//
// The application's view: entries are released in order, each with an ack quorum on the ensemble that the *stored*
// record names for it. From the moment a bookie has failed until the record names a replacement and every pending add
// was sent to it, nothing is released (changing), so LAC and with it the start of the new fragment stand still.
//
// The record's view: at most one metadata operation is under way. A write whose outcome is unknown may land at any
// later time (doubt): until a compare-and-set of this writer succeeded or a higher version was read, the change is
// neither dropped nor taken for done, whatever a re-read shows. The ensembles of the record that was read are adopted,
// never those that were sent. The writer closes from OPEN only; found IN_RECOVERY it writes nothing.
//
// If no replacement is left but every write set can still reach an ack quorum, the writer goes on with fewer copies
// and looks again at EvRetry; the failed bookie gets nothing until then.
type Writer struct {
	pipeline
	cfg     WriterConfig
	record  *Metadata // as stored; pipeline.ensemble is its last one
	version int64

	lac       EntryID // confirmed: what readers may read. Equals head unless sync is deferred
	lacLength int64   // payload bytes up to lac
	head      EntryID // last released
	headBytes int64   // payload bytes up to head
	length    int64   // payload bytes pushed

	phase    writerPhase
	cause    Cause // why the phase is not open
	loop     metaLoop
	changing bool
	doubt    bool
	closing  bool      // the write under way is the one that closes
	proposal *Metadata // what the write under way stores
	back     IndexSet  // indices to reinstate when the change is stored
	asked    IndexSet  // failed indices of the last pick
	unplaced IndexSet  // those of them that had no candidate
	urgent   bool      // with Delay: some failure must not wait

	force       forceState
	headerLAC   EntryID // highest LAC that a packet carried
	explicitLAC EntryID // highest LAC sent as explicit LAC
}

// WriterConfig is what a writer does not take from the record.
type WriterConfig struct {
	Deferred     bool // adds are acknowledged before their sync; only a force moves the LAC
	Delay        bool // a failed bookie is replaced only when an ack quorum is in danger, or the answer was urgent
	FragmentsMax int  // an ensemble change beyond this many fragments closes the ledger; 0 means DefaultFragmentsMax
}

// DefaultFragmentsMax bounds the record: a ledger whose ensemble changed a thousand times has found a sick cluster, and
// every change rewrites the whole record.
const DefaultFragmentsMax = 1000

type writerPhase uint8

const (
	phaseOpen    writerPhase = iota
	phaseClosing             // pending adds have failed; the record is being closed
	phaseClosed
)

// metaLoop says what the core waits for.
type metaLoop uint8

const (
	loopIdle metaLoop = iota
	loopPicking
	loopWriting
	loopReading
)

// NewWriter returns the writer of a ledger that was just created: record is OPEN, as stored at version, and empty.
func NewWriter(record *Metadata, version int64, cfg WriterConfig) *Writer {
	if cfg.FragmentsMax <= 0 {
		cfg.FragmentsMax = DefaultFragmentsMax
	}
	w := &Writer{cfg: cfg, record: record, version: version, lac: InvalidEntry, head: InvalidEntry, headerLAC: InvalidEntry, explicitLAC: InvalidEntry}
	w.pipeline = pipeline{q: record.Quorum(), ensemble: record.Last().Bookies}
	w.force.init(w.q.Ensemble)
	return w
}

// LastAddConfirmed returns the LAC.
func (w *Writer) LastAddConfirmed() EntryID { return w.lac }

// LastAddPushed returns the id of the newest add.
func (w *Writer) LastAddPushed() EntryID { return w.acks.Next() - 1 }

// Pending returns the number of adds not yet released.
func (w *Writer) Pending() int { return w.acks.Len() }

// Cause returns why the writer takes no more adds, CauseNone while it does.
func (w *Writer) Cause() Cause { return w.cause }

// Closed reports whether ActClosed was emitted.
func (w *Writer) Closed() bool { return w.phase == phaseClosed }

// Changing reports whether an ensemble change holds back the release of adds.
func (w *Writer) Changing() bool { return w.changing }

// Degraded reports whether some index of the ensemble gets no adds because its bookie failed and has no replacement.
func (w *Writer) Degraded() bool { return w.failed != 0 && !w.changing }

// Length returns the payload bytes of all confirmed entries.
func (w *Writer) Length() int64 { return w.lacLength }

// LACUnsent reports whether no packet and no explicit LAC has carried the present LAC.
func (w *Writer) LACUnsent() bool {
	return w.phase == phaseOpen && !w.changing && w.lac > max(w.headerLAC, w.explicitLAC)
}

// Forcing reports whether a force is under way.
func (w *Writer) Forcing() bool { return w.force.running }

// Unforced reports whether a force would move the LAC.
func (w *Writer) Unforced() bool { return w.phase == phaseOpen && w.head > w.lac }

// Failed returns the indices whose bookie failed and was not replaced yet.
func (w *Writer) Failed() IndexSet { return w.failed }

// Missing returns the indices that have been sent the oldest pending add and have not acknowledged it.
func (w *Writer) Missing() IndexSet {
	if w.acks.Len() == 0 {
		return 0
	}
	return w.q.WriteSet(w.acks.First()) &^ w.acks.at(0).acked &^ w.failed
}

// Urgent reports whether a failure asks for another bookie though changes are delayed.
func (w *Writer) Urgent() bool { return w.urgent }

// Record returns the stored record as this writer knows it. It must not be changed.
func (w *Writer) Record() *Metadata { return w.record }

// Version returns the version of Record.
func (w *Writer) Version() int64 { return w.version }

// Ensemble returns the current ensemble. It must not be changed.
func (w *Writer) Ensemble() []BookieID { return w.ensemble }

// Step applies one event and appends what has to be done to out.
func (w *Writer) Step(ev Event, out []Action) []Action {
	switch ev.Kind {
	case EvAnswer:
		return w.answer(ev, out)
	case EvAppend:
		return w.append(ev.Size, out)
	case EvPicked:
		return w.picked(ev.Picks, out)
	case EvWritten:
		return w.written(ev.Version, out)
	case EvConflict:
		return w.conflict(out)
	case EvRead:
		return w.read(ev.Record, ev.Version, out)
	case EvGone:
		return w.gone(out)
	case EvMetaUnknown:
		return w.metaUnknown(out)
	case EvMetaTimeout:
		return w.metaTimeout(out)
	case EvForce:
		return w.startForce(out)
	case EvForceAnswer:
		return w.forceAnswer(ev, out)
	case EvClose:
		return w.close(CauseClosed, out)
	case EvRetry:
		if w.phase == phaseOpen && w.failed != 0 && w.loop == loopIdle {
			return w.startChange(out)
		}
	case EvLACTick:
		return w.lacTick(out)
	}
	return out
}

// append takes one add of the application.
func (w *Writer) append(size int64, out []Action) []Action {
	if w.phase != phaseOpen {
		return append(out, Action{Kind: ActFail, First: InvalidEntry, Entry: InvalidEntry, Cause: w.cause})
	}
	w.length += size
	w.headerLAC = w.lac
	if mutant == MutantLACFromUnacked {
		w.headerLAC = w.acks.Next() - 1
	}
	out = w.push(w.headerLAC, w.length, out)
	if !w.changing && w.due() { // a failure that came when nothing was pending
		return w.startChange(out)
	}
	return out
}

// answer takes a bookie's answer to an add, or its silence.
func (w *Writer) answer(ev Event, out []Action) []Action {
	if w.phase != phaseOpen || !w.current(ev.Index, ev.Bookie) {
		return out
	}
	switch ev.Answer {
	case AnswerOK:
		if w.cfg.Deferred {
			w.force.noteAck(ev.Index, ev.Conn)
		}
		if w.ack(ev.Entry, ev.Index) {
			return w.release(out)
		}
		return out
	case AnswerFenced:
		return w.close(CauseFenced, out)
	case AnswerUnauthorized:
		return w.close(CauseUnauthorized, out)
	}
	w.urgent = w.urgent || ev.Urgent
	return w.bookieFailed(ev.Index, out)
}

// due reports whether some failure asks for an ensemble change that has not been tried.
func (w *Writer) due() bool {
	if w.failed&^w.unplaced == 0 {
		return false
	}
	return !w.cfg.Delay || w.urgent || !w.q.Reachable(w.failed)
}

// bookieFailed notes a failure. It starts a change at once only if some add needs it; otherwise the next add does, so
// that the death of a bookie does not rewrite the records of all idle ledgers.
func (w *Writer) bookieFailed(i int, out []Action) []Action {
	if w.failed.Has(i) {
		return out
	}
	if w.cfg.Deferred { // entries that were not synced on the others could not be forced on a new bookie
		return w.close(CauseDeferred, out)
	}
	w.failed = w.failed.With(i)
	if w.changing || w.acks.Len() == 0 || !w.due() {
		return out
	}
	return w.startChange(out)
}

// quorum is the number of acks that an add needs.
func (w *Writer) quorum() int {
	if mutant == MutantAckShort {
		return max(w.q.Ack-1, 1)
	}
	return w.q.Ack
}

// release hands over every complete add at the head of the queue.
func (w *Writer) release(out []Action) []Action {
	if w.changing && mutant != MutantReleaseDuringChange || w.phase != phaseOpen {
		return out
	}
	first := w.acks.First()
	for {
		length, ok := w.acks.popComplete(w.quorum())
		if !ok {
			break
		}
		w.headBytes = length
	}
	if w.acks.First() == first {
		return out
	}
	w.head = w.acks.First() - 1
	if !w.cfg.Deferred {
		w.lac, w.lacLength = w.head, w.headBytes
	}
	return append(out, Action{Kind: ActRelease, First: first, Entry: w.head})
}

// lacTick sends an explicit LAC if no packet has carried the present one.
func (w *Writer) lacTick(out []Action) []Action {
	if w.phase != phaseOpen || w.changing {
		return out
	}
	w.explicitLAC = max(w.explicitLAC, w.headerLAC)
	if w.lac <= w.explicitLAC {
		return out
	}
	w.explicitLAC = w.lac
	for n := range w.q.Write {
		if i := w.q.Index(w.lac, n); !w.failed.Has(i) {
			out = append(out, Action{Kind: ActWriteLAC, Index: i, Bookie: w.ensemble[i], LAC: w.lac})
		}
	}
	return out
}
