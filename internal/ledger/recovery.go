package ledger

// Recovery is the core of one attempt to end a ledger whose writer is gone, or must go.
//
//	R1     mark the record IN_RECOVERY (or find it so, or find it CLOSED and adopt it)
//	R2     fence the last ensemble until no ack quorum can form without a fenced bookie
//	R3     start after the highest LAC heard of, and never before the last fragment
//	R4     read entry after entry, fencing with each read: one good copy keeps an entry, (Qw-Qa)+1 negative answers end
//	       the ledger before it, anything else aborts
//	R5     write every entry that was kept back, to an ack quorum of the current ensemble
//	R6     replace bookies that fail meanwhile, in memory only
//	R7     close the record by one compare-and-set at the version of R1, which also checks that no bookie newly named has
//	       been emptied since it was chosen; if somebody else closed first, adopt; otherwise start over at R1
//	R8     an abort leaves the record IN_RECOVERY, for the next client
//
// What is written back carries in its header the LAC max(base, LAC of the copy that was read), never the progress of
// this recovery: a reader that follows it could otherwise be told of entries that a different end cuts off.
type Recovery struct {
	pipeline // re-adds; ensemble is the last one of fragments
	cfg      RecoveryConfig
	record   *Metadata // as stored at version; reads go by it
	version  int64
	phase    recoveryPhase
	loop     metaLoop
	proposal *Metadata // what the write under way stores
	doubt    bool      // R7: the proposal was sent and its outcome is not known
	restarts int
	checks   []IncarnationCheck

	unknown IndexSet // R2: indices that have not answered, or said nothing usable
	waiting IndexSet // R2, length: indices whose answer is out
	base    EntryID  // R3
	fenced  []lastEntry

	fragments []Fragment // record's fragments and the changes made in memory
	reads     []recoveryRead
	stopped   bool // R4 found the end
	readded   bool
	length    int64 // payload bytes up to the last re-added entry
	asked     IndexSet
	unplaced  IndexSet
	loss      Loss
	thin      bool // with AcceptLoss: no bookie is left that could make a full ack quorum
}

// RecoveryConfig bounds a recovery.
type RecoveryConfig struct {
	ReadAhead   int // entries read or being written back at once; 0 means 1
	RestartsMax int // times R7 may start over before the recovery aborts with CauseConflict; 0 means 16

	// AcceptLoss ends the ledger even where that can cost entries that were acknowledged: recovery_loss.go says what it gives up.
	AcceptLoss bool
	LossNote   string // who accepted the loss, when and why: kept in the record if something was given up
}

type recoveryPhase uint8

const (
	recMarking recoveryPhase = iota // R1
	recFencing                      // R2
	recReading                      // R4-R6
	recLength                       // the length of the closed ledger is being read
	recSealing                      // R7
	recDone
)

// lastEntry is what a fenced bookie said of its last entry.
type lastEntry struct {
	entry  EntryID
	length int64
}

// recoveryRead is the state of one recovery read.
type recoveryRead struct {
	entry    EntryID
	found    bool
	lac      EntryID
	length   int64
	negative IndexSet
	useless  IndexSet // answered, but neither a good copy nor a denial
}

// NewRecovery returns a recovery of the ledger whose record was read as record at version. Start begins it.
func NewRecovery(record *Metadata, version int64, cfg RecoveryConfig) *Recovery {
	if cfg.ReadAhead <= 0 {
		cfg.ReadAhead = 1
	}
	if cfg.RestartsMax <= 0 {
		cfg.RestartsMax = 16
	}
	return &Recovery{cfg: cfg, record: record, version: version, loss: noLoss(nil)}
}

// Start begins the recovery.
func (r *Recovery) Start(out []Action) []Action { return r.mark(out) }

// SetReadAhead changes RecoveryConfig.ReadAhead for reads yet to come: the driver knows how large entries are.
func (r *Recovery) SetReadAhead(n int) { r.cfg.ReadAhead = max(n, 1) }

// Done reports whether the recovery has ended, one way or the other.
func (r *Recovery) Done() bool { return r.phase == recDone }

// Step applies one event and appends what has to be done to out.
func (r *Recovery) Step(ev Event, out []Action) []Action {
	switch ev.Kind {
	case EvFenceAnswer:
		return r.fenceAnswer(ev, out)
	case EvReadAnswer:
		return r.readAnswer(ev, out)
	case EvAnswer:
		return r.addAnswer(ev, out)
	case EvPicked:
		return r.picked(ev.Picks, out)
	case EvLengthAnswer:
		return r.lengthAnswer(ev, out)
	case EvWritten:
		return r.written(ev.Version, out)
	case EvConflict:
		if r.loop == loopWriting {
			r.loop, r.doubt = loopReading, false
			return append(out, Action{Kind: ActRead})
		}
	case EvMetaUnknown:
		if r.loop == loopWriting || r.loop == loopReading {
			r.doubt = r.doubt || r.loop == loopWriting && r.phase == recSealing
			r.loop = loopReading
			return append(out, Action{Kind: ActRead, Retry: true})
		}
	case EvRead:
		return r.read(ev.Record, ev.Version, out)
	case EvGone:
		if r.loop == loopWriting || r.loop == loopReading {
			return r.abort(CauseGone, out)
		}
	case EvMetaTimeout:
		if r.loop == loopReading {
			return r.abort(CauseMetadata, out)
		}
	}
	return out
}

// mark is R1, from the record at hand.
func (r *Recovery) mark(out []Action) []Action {
	r.phase, r.loop = recMarking, loopIdle
	switch r.record.State {
	case StateClosed:
		return r.adopt(out)
	case StateInRecovery:
		return r.fence(out)
	}
	p := *r.record
	p.State = StateInRecovery
	return r.write(&p, out)
}

func (r *Recovery) write(p *Metadata, out []Action) []Action {
	r.proposal, r.loop = p, loopWriting
	return append(out, Action{Kind: ActWrite, Record: p, Version: r.version, Checks: r.checks})
}

// written takes the success of the write under way.
func (r *Recovery) written(version int64, out []Action) []Action {
	if r.loop != loopWriting {
		return out
	}
	r.record, r.version = r.proposal, version
	if r.phase == recSealing {
		return r.adopt(out)
	}
	return r.fence(out)
}

// read goes on from what is stored. If an R7 of unknown outcome has not landed yet, the same write is tried again: at
// the same version only one of the two can succeed, and both mean the same. A refused R7 starts over.
func (r *Recovery) read(record *Metadata, version int64, out []Action) []Action {
	if r.loop != loopReading {
		return out
	}
	if version < r.version {
		return append(out, Action{Kind: ActRead, Retry: true})
	}
	if mutant == MutantRecoveryClosesAnyVersion && r.phase == recSealing {
		r.version = version
		return r.write(r.proposal, out)
	}
	if r.phase == recSealing && record.State != StateClosed {
		if r.doubt && version == r.version {
			return r.write(r.proposal, out)
		}
		r.restarts++
		if r.restarts > r.cfg.RestartsMax {
			return r.abort(CauseConflict, out)
		}
	}
	r.record, r.version = record, version
	return r.mark(out)
}

func (r *Recovery) adopt(out []Action) []Action {
	r.phase, r.loop = recDone, loopIdle
	return append(out, Action{Kind: ActRecovered, Record: r.record, Version: r.version})
}

func (r *Recovery) abort(cause Cause, out []Action) []Action {
	r.phase, r.loop = recDone, loopIdle
	return append(out, Action{Kind: ActAborted, Cause: cause})
}

// fence is R2. A new round makes every answer of an earlier one stale.
func (r *Recovery) fence(out []Action) []Action {
	ensemble := r.record.Last().Bookies
	r.pipeline = pipeline{q: r.record.Quorum(), ensemble: ensemble, round: r.round + 1}
	r.phase, r.loop, r.proposal, r.doubt, r.checks = recFencing, loopIdle, nil, false, nil
	r.unknown = AllIndices(r.q.Ensemble)
	r.waiting = r.unknown
	r.base = InvalidEntry
	r.fenced = make([]lastEntry, len(ensemble))
	r.fragments = r.record.Fragments
	r.reads, r.stopped, r.readded, r.length, r.asked, r.unplaced = nil, false, false, 0, 0, 0
	r.loss, r.thin = noLoss(ensemble), false
	for i, b := range ensemble {
		r.fenced[i].entry = InvalidEntry
		out = append(out, Action{Kind: ActFence, Index: i, Bookie: b, Round: r.round})
	}
	return out
}

// fenceAnswer takes one answer of R2. A bad digest tells nothing of the LAC, but the bookie is fenced.
func (r *Recovery) fenceAnswer(ev Event, out []Action) []Action {
	if r.phase != recFencing || ev.Round != r.round || !r.current(ev.Index, ev.Bookie) {
		return out
	}
	r.waiting = r.waiting.Without(ev.Index)
	switch ev.Answer {
	case AnswerUnauthorized:
		return r.abort(CauseUnauthorized, out)
	case AnswerOK:
		r.fenced[ev.Index] = lastEntry{entry: ev.Entry, length: ev.Length}
		r.base = max(r.base, ev.LAC)
		r.loss.Seen = max(r.loss.Seen, ev.Entry)
		fallthrough
	case AnswerNegative, AnswerBadDigest:
		r.unknown = r.unknown.Without(ev.Index)
		if r.q.Covered(r.unknown) {
			return r.startReading(out)
		}
	}
	if r.waiting == 0 {
		if r.cfg.AcceptLoss {
			r.loss.Unfenced = r.unknown
			return r.startReading(out)
		}
		return r.abort(CauseNotCovered, out)
	}
	return out
}

// startReading is R3: everything before the last fragment is confirmed by the existence of that fragment.
func (r *Recovery) startReading(out []Action) []Action {
	if mutant != MutantRecoveryStartsAtLAC {
		r.base = max(r.base, r.record.Last().First-1)
	}
	r.acks.Reset(r.base + 1)
	r.phase, r.stopped = recReading, mutant == MutantRecoveryClosesAtLAC
	if r.stopped {
		return r.sealWhenDone(out)
	}
	return r.readMore(out)
}
