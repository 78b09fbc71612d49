package ledger

// Reader is the core of a reader that opened a ledger without recovering it: what it knows of the end. A reader may
// read up to its LAC, and never infers that an entry above the LAC of an open ledger does not exist.
type Reader struct {
	record  *Metadata
	version int64
	lac     EntryID
}

// NewReader returns a reader of the ledger whose record was read as record at version. For an open ledger the LAC is
// that of the last fragment's start until a LACRead or a long poll raised it.
func NewReader(record *Metadata, version int64) *Reader {
	r := &Reader{lac: InvalidEntry, version: version - 1}
	r.Record(record, version)
	return r
}

// Record takes a record that was read or watched. Older versions are ignored. A closed record ends the reader's
// uncertainty; everything before the last fragment of an open one is confirmed.
func (r *Reader) Record(record *Metadata, version int64) {
	if version <= r.version {
		return
	}
	r.record, r.version = record, version
	if record.State == StateClosed {
		r.lac = record.LastEntry
		return
	}
	r.Raise(record.Last().First - 1)
}

// Raise takes a LAC that some bookie reported. LAC is a monotone hint: it never goes back, and a closed record bounds it.
func (r *Reader) Raise(lac EntryID) {
	if r.record.State != StateClosed {
		r.lac = max(r.lac, lac)
	}
}

// LastAddConfirmed returns the highest entry that may be read.
func (r *Reader) LastAddConfirmed() EntryID { return r.lac }

// Sealed reports whether the ledger's end is final.
func (r *Reader) Sealed() bool { return r.record.State == StateClosed }

// Metadata returns the newest record that the reader knows. It must not be changed.
func (r *Reader) Metadata() (*Metadata, int64) { return r.record, r.version }

// Clone returns a copy.
func (r *Reader) Clone() *Reader { c := *r; return &c }

// ReadOutcome is the state of a read.
type ReadOutcome uint8

// The outcomes.
const (
	ReadPending ReadOutcome = iota
	ReadFound               // the answer just given is the result
	ReadAbsent              // every member of the write set denied the entry
	ReadEmpty               // long poll: enough bookies had nothing new
	ReadFailed              // no more bookies to ask, and not all of them denied the entry
)

// LACRead is one read of the LAC from all bookies of the last ensemble. It is done when no ack quorum can lie among
// those that have not answered; negative answers count, since they are valid statements.
type LACRead struct {
	q       Quorum
	unknown IndexSet
	waiting IndexSet
	lac     EntryID
}

// NewLACRead returns a read that waits for an answer of each of the ensemble's indices.
func NewLACRead(q Quorum) LACRead {
	all := AllIndices(q.Ensemble)
	return LACRead{q: q, unknown: all, waiting: all, lac: InvalidEntry}
}

// Answer takes one answer and returns ReadFound once the read is covered.
func (l *LACRead) Answer(i int, a Answer, lac EntryID) ReadOutcome {
	if !l.waiting.Has(i) {
		return ReadPending
	}
	l.waiting = l.waiting.Without(i)
	switch a {
	case AnswerOK:
		l.lac = max(l.lac, lac)
		fallthrough
	case AnswerNegative, AnswerBadDigest:
		l.unknown = l.unknown.Without(i)
		if l.q.Covered(l.unknown) {
			return ReadFound
		}
	}
	if l.waiting == 0 {
		return ReadFailed
	}
	return ReadPending
}

// LAC returns the highest LAC heard of.
func (l *LACRead) LAC() EntryID { return l.lac }

// EntryRead is one read that visits bookies in a given order: the next one is asked when one has failed, or when it is slow.
// It serves reads of one entry (members: the write set) and of runs of entries on an unstriped ensemble.
type EntryRead struct {
	order    [EnsembleMax]uint8
	members  uint8
	asked    uint8
	negative IndexSet
	useless  IndexSet
	done     bool
}

// NewEntryRead returns a read of entry e that prefers the write set's members in their own order, starting with the
// one that prefer names if it is a member (negative: none).
func NewEntryRead(q Quorum, e EntryID, prefer int) EntryRead {
	r := EntryRead{members: uint8(q.Write)}
	n := 0
	if prefer >= 0 && q.Stores(e, prefer) {
		r.order[0] = uint8(prefer)
		n = 1
	}
	for k := range q.Write {
		if i := q.Index(e, k); n == 0 || i != prefer {
			r.order[n] = uint8(i)
			n++
		}
	}
	return r
}

// Demote moves the members in bad behind the others, keeping the order within each group. It must precede Next.
func (r *EntryRead) Demote(bad IndexSet) {
	var last [EnsembleMax]uint8
	n, m := 0, 0
	for _, i := range r.order[:r.members] {
		if bad.Has(int(i)) {
			last[m] = i
			m++
		} else {
			r.order[n] = i
			n++
		}
	}
	copy(r.order[n:], last[:m])
}

// Next returns the next index to ask. The caller calls it once to begin, after every answer that left the read
// pending, and when the answer is slow.
func (r *EntryRead) Next() (i int, ok bool) {
	if r.done || r.asked == r.members {
		return 0, false
	}
	r.asked++
	return int(r.order[r.asked-1]), true
}

// Answer takes one answer. "No such entry" needs the denial of the whole write set; any other failure among them makes
// the read fail instead, since that bookie may hold the entry.
func (r *EntryRead) Answer(i int, a Answer) ReadOutcome {
	if r.done {
		return ReadPending
	}
	switch a {
	case AnswerOK:
		r.done = true
		return ReadFound
	case AnswerNegative:
		r.negative = r.negative.With(i)
	default:
		r.useless = r.useless.With(i)
	}
	if (r.negative | r.useless).Len() < int(r.members) {
		return ReadPending
	}
	r.done = true
	if r.negative.Len() == int(r.members) {
		return ReadAbsent
	}
	return ReadFailed
}

// LongPoll is one long poll for the entry after the LAC. It visits all indices of the ensemble in the order of the
// entry's ensemble set and ends with the first news, with E-Qa+1 answers without news, or with more than E-Qa failures.
type LongPoll struct {
	q        Quorum
	previous EntryID
	asked    int
	empty    int
	failed   int
	done     bool
}

// NewLongPoll returns a poll for news after the LAC previous.
func NewLongPoll(q Quorum, previous EntryID) LongPoll { return LongPoll{q: q, previous: previous} }

// Next returns the next index to poll: to begin, after an answer that left the poll pending, or when one is slow.
func (p *LongPoll) Next() (i int, ok bool) {
	if p.done || p.asked == p.q.Ensemble {
		return 0, false
	}
	p.asked++
	return p.q.Index(p.previous+1, p.asked-1), true
}

// Answer takes one answer: entry says that it brought the entry after the LAC, lac is the bookie's LAC.
func (p *LongPoll) Answer(a Answer, entry bool, lac EntryID) ReadOutcome {
	if p.done {
		return ReadPending
	}
	switch {
	case a == AnswerOK && (entry || lac > p.previous):
		p.done = true
		return ReadFound
	case a == AnswerOK, a == AnswerNegative:
		p.empty++
	default:
		p.failed++
	}
	spare := p.q.Ensemble - p.q.Ack
	switch {
	case p.failed > spare:
		p.done = true
		return ReadFailed
	case p.empty > spare, p.empty+p.failed == p.q.Ensemble:
		p.done = true
		return ReadEmpty
	}
	return ReadPending
}
