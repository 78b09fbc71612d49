package ledger

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// Clone and canonical encoding. Two cores with the same encoding behave the same for ever; the model check uses it to
// recognise states. Records and ensembles are never changed in place, so clones share them.

// Naming renames ensemble indices and bookies in an encoding. Where every entry goes to the whole ensemble, states that
// differ by a renaming only have the same futures, renamed; the model check looks at one of them. The nil Naming
// leaves everything as it is.
type Naming struct {
	Index  []uint8 // by present index
	Bookie map[BookieID]BookieID
}

func (n *Naming) set(s IndexSet) int64 {
	if n == nil {
		return int64(s)
	}
	var t IndexSet
	for ; s != 0; s = s.Without(s.First()) {
		t = t.With(int(n.Index[s.First()]))
	}
	return int64(t)
}

// at returns the present index of what the renaming puts at place i.
func (n *Naming) at(i int) int {
	if n == nil {
		return i
	}
	return slices.Index(n.Index, uint8(i))
}

func (n *Naming) bookie(b BookieID) string {
	if n == nil {
		return string(b)
	}
	return string(n.Bookie[b])
}

// Clone returns an independent copy.
func (w *Writer) Clone() *Writer {
	c := *w
	c.acks = w.acks.clone()
	c.force.since = append([]ackConn(nil), w.force.since...)
	c.force.covered = append([]ackConn(nil), w.force.covered...)
	return &c
}

// AppendState appends a canonical encoding of the whole state.
func (w *Writer) AppendState(b []byte) []byte { return w.AppendStateAs(b, nil) }

// AppendStateAs appends the canonical encoding of the whole state under a renaming.
func (w *Writer) AppendStateAs(b []byte, n *Naming) []byte {
	b = w.pipeline.appendState(b, n)
	b = w.record.appendState(b, n)
	b = appendInts(b, w.version, int64(w.lac), w.lacLength, int64(w.head), w.headBytes, w.length, int64(w.phase), int64(w.cause),
		int64(w.loop), boolInt(w.changing), boolInt(w.doubt), boolInt(w.closing), n.set(w.back), n.set(w.asked), n.set(w.unplaced))
	b = w.proposal.appendState(b, n)
	f := &w.force
	b = appendInts(b, boolInt(f.running), boolInt(f.waiting), int64(f.head), f.length, n.set(f.done), int64(w.headerLAC), int64(w.explicitLAC))
	for i := range f.since {
		b = f.since[n.at(i)].appendState(b)
		b = f.covered[n.at(i)].appendState(b)
	}
	if w.cfg.Delay {
		b = appendInts(b, boolInt(w.urgent))
	}
	return b
}

func (a ackConn) appendState(b []byte) []byte {
	return appendInts(b, int64(a.conn), boolInt(a.some), boolInt(a.mixed))
}

// Clone returns an independent copy.
func (r *Recovery) Clone() *Recovery {
	c := *r
	c.acks = r.acks.clone()
	c.checks = append([]IncarnationCheck(nil), r.checks...)
	c.fenced = append([]lastEntry(nil), r.fenced...)
	c.reads = append([]recoveryRead(nil), r.reads...)
	return &c
}

// AppendState appends a canonical encoding of the whole state.
func (r *Recovery) AppendState(b []byte) []byte { return r.AppendStateAs(b, nil) }

// AppendStateAs appends the canonical encoding of the whole state under a renaming.
func (r *Recovery) AppendStateAs(b []byte, n *Naming) []byte {
	b = r.pipeline.appendState(b, n)
	b = r.record.appendState(b, n)
	b = r.proposal.appendState(b, n)
	b = appendInts(b, r.version, int64(r.phase), int64(r.loop), boolInt(r.doubt), int64(r.restarts), n.set(r.unknown), n.set(r.waiting), int64(r.base),
		boolInt(r.stopped), boolInt(r.readded), r.length, n.set(r.asked), n.set(r.unplaced))
	b = appendInts(b, int64(len(r.checks)))
	for _, c := range n.checks(r.checks) {
		b = appendText(b, n.bookie(c.Bookie))
		b = appendInts(b, c.Version)
	}
	b = appendInts(b, int64(len(r.fenced)))
	for i := range r.fenced {
		f := r.fenced[n.at(i)]
		b = appendInts(b, int64(f.entry), f.length)
	}
	b = appendFragments(b, r.fragments, n)
	b = appendInts(b, int64(len(r.reads)))
	for _, e := range r.reads {
		b = appendInts(b, int64(e.entry), boolInt(e.found), int64(e.lac), e.length, n.set(e.negative), n.set(e.useless))
	}
	if r.cfg.AcceptLoss {
		l := &r.loss
		b = appendInts(b, n.set(l.Unfenced), n.set(l.Silent), int64(l.Entry), int64(l.Thin), int64(l.Seen), boolInt(r.thin))
	}
	return b
}

// checks returns the checks in the order of the new names: they are a conjunction, of which the oldest of each bookie
// counts.
func (n *Naming) checks(checks []IncarnationCheck) []IncarnationCheck {
	if n == nil || len(checks) < 2 {
		return checks
	}
	sorted := slices.Clone(checks)
	slices.SortStableFunc(sorted, func(a, b IncarnationCheck) int { return cmp.Compare(n.bookie(a.Bookie), n.bookie(b.Bookie)) })
	return sorted
}

// AppendState appends a canonical encoding of the whole state.
func (r *Reader) AppendState(b []byte) []byte { return r.AppendStateAs(b, nil) }

// AppendStateAs appends the canonical encoding of the whole state under a renaming.
func (r *Reader) AppendStateAs(b []byte, n *Naming) []byte {
	return appendInts(r.record.appendState(b, n), r.version, int64(r.lac))
}

// Clone returns an independent copy.
func (r *Replica) Clone() *Replica {
	c := *r
	c.Key = append([]byte(nil), r.Key...)
	c.ExplicitLAC = append([]byte(nil), r.ExplicitLAC...)
	return &c
}

// AppendState appends a canonical encoding of the whole state. It is not the stored form.
func (r *Replica) AppendState(b []byte) []byte {
	b = appendText(b, string(r.Key))
	b = appendText(b, string(r.ExplicitLAC))
	return appendInts(b, boolInt(r.HasKey), boolInt(r.Fenced), boolInt(r.Limbo), boolInt(r.Tombstone), boolInt(r.Deferred), boolInt(r.ForceLost),
		int64(r.LossEpoch), int64(r.Generation))
}

func (p *pipeline) appendState(b []byte, n *Naming) []byte {
	b = appendInts(b, int64(p.q.Ensemble), int64(p.q.Write), int64(p.q.Ack), n.set(p.failed), int64(p.round))
	b = appendBookies(b, p.ensemble, n)
	b = appendInts(b, int64(p.acks.first), int64(p.acks.n))
	for i := range p.acks.n {
		a := p.acks.at(i)
		b = appendInts(b, n.set(a.acked), int64(a.lac), a.length)
	}
	return b
}

// appendState encodes what the protocol looks at. The end of a record that is not closed means nothing and is left out.
func (m *Metadata) appendState(b []byte, n *Naming) []byte {
	if m == nil {
		return append(b, 0)
	}
	b = appendInts(append(b, 1), int64(m.Ensemble), int64(m.WriteQuorum), int64(m.AckQuorum), int64(m.State))
	if m.State == StateClosed {
		b = appendInts(b, int64(m.LastEntry), m.Length)
	}
	return appendFragments(b, m.Fragments, n)
}

func appendFragments(b []byte, fragments []Fragment, n *Naming) []byte {
	b = appendInts(b, int64(len(fragments)))
	for _, f := range fragments {
		b = appendBookies(appendInts(b, int64(f.First)), f.Bookies, n)
	}
	return b
}

func appendBookies(b []byte, bookies []BookieID, n *Naming) []byte {
	b = appendInts(b, int64(len(bookies)))
	for i := range bookies {
		b = appendText(b, n.bookie(bookies[n.at(i)]))
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(appendInts(b, int64(len(s))), s...)
}

func appendInts(b []byte, values ...int64) []byte {
	for _, v := range values {
		b = binary.AppendVarint(b, v)
	}
	return b
}

func boolInt(v bool) int64 {
	if v {
		return 1
	}
	return 0
}
