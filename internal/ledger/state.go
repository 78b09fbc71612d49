package ledger

import "encoding/binary"

// Clone and canonical encoding. Two cores with the same encoding behave the same for ever; the model check uses it to
// recognise states. Records and ensembles are never changed in place, so clones share them.

// Clone returns an independent copy.
func (w *Writer) Clone() *Writer {
	c := *w
	c.acks = w.acks.clone()
	c.force.since = append([]ackConn(nil), w.force.since...)
	c.force.covered = append([]ackConn(nil), w.force.covered...)
	return &c
}

// AppendState appends a canonical encoding of the whole state.
func (w *Writer) AppendState(b []byte) []byte {
	b = w.pipeline.appendState(b)
	b = w.record.appendState(b)
	b = appendInts(b, w.version, int64(w.lac), w.lacLength, int64(w.head), w.headBytes, w.length, int64(w.phase), int64(w.cause),
		int64(w.loop), boolInt(w.changing), boolInt(w.doubt), boolInt(w.closing), int64(w.back), int64(w.asked), int64(w.unplaced))
	b = w.proposal.appendState(b)
	f := &w.force
	b = appendInts(b, boolInt(f.running), boolInt(f.waiting), int64(f.head), f.length, int64(f.done), int64(w.headerLAC), int64(w.explicitLAC))
	for i := range f.since {
		b = f.since[i].appendState(b)
		b = f.covered[i].appendState(b)
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
func (r *Recovery) AppendState(b []byte) []byte {
	b = r.pipeline.appendState(b)
	b = r.record.appendState(b)
	b = r.proposal.appendState(b)
	b = appendInts(b, r.version, int64(r.phase), int64(r.loop), boolInt(r.doubt), int64(r.restarts), int64(r.unknown), int64(r.waiting), int64(r.base),
		boolInt(r.stopped), boolInt(r.readded), r.length, int64(r.asked), int64(r.unplaced))
	b = appendInts(b, int64(len(r.checks)))
	for _, c := range r.checks {
		b = appendText(b, string(c.Bookie))
		b = appendInts(b, c.Version)
	}
	b = appendInts(b, int64(len(r.fenced)))
	for _, f := range r.fenced {
		b = appendInts(b, int64(f.entry), f.length)
	}
	b = appendFragments(b, r.fragments)
	b = appendInts(b, int64(len(r.reads)))
	for _, e := range r.reads {
		b = appendInts(b, int64(e.entry), boolInt(e.found), int64(e.lac), e.length, int64(e.negative), int64(e.useless))
	}
	return b
}

// AppendState appends a canonical encoding of the whole state.
func (r *Reader) AppendState(b []byte) []byte {
	return appendInts(r.record.appendState(b), r.version, int64(r.lac))
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

func (p *pipeline) appendState(b []byte) []byte {
	b = appendInts(b, int64(p.q.Ensemble), int64(p.q.Write), int64(p.q.Ack), int64(p.failed), int64(p.round))
	b = appendBookies(b, p.ensemble)
	b = appendInts(b, int64(p.acks.first), int64(p.acks.n))
	for i := range p.acks.n {
		a := p.acks.at(i)
		b = appendInts(b, int64(a.acked), int64(a.lac), a.length)
	}
	return b
}

// appendState encodes what the protocol looks at. The end of a record that is not closed means nothing and is left out.
func (m *Metadata) appendState(b []byte) []byte {
	if m == nil {
		return append(b, 0)
	}
	b = appendInts(append(b, 1), int64(m.Ensemble), int64(m.WriteQuorum), int64(m.AckQuorum), int64(m.State))
	if m.State == StateClosed {
		b = appendInts(b, int64(m.LastEntry), m.Length)
	}
	return appendFragments(b, m.Fragments)
}

func appendFragments(b []byte, fragments []Fragment) []byte {
	b = appendInts(b, int64(len(fragments)))
	for _, f := range fragments {
		b = appendBookies(appendInts(b, int64(f.First)), f.Bookies)
	}
	return b
}

func appendBookies(b []byte, bookies []BookieID) []byte {
	b = appendInts(b, int64(len(bookies)))
	for _, id := range bookies {
		b = appendText(b, string(id))
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
