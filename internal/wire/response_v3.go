package wire

import "math"

// decodeResponseV3 decodes a Response message. A sub-message that is absent, or lacks required fields, is no error when
// the outer status is not EOK: bookies answer some requests so.
func decodeResponseV3(p []byte, r *Response) error {
	var h header
	hasHeader, hasStatus := false, false
	f := fields{rest: p}
	for f.next() {
		switch {
		case f.bytes(1):
			if err := h.decode(f.b); err != nil {
				return err
			}
			hasHeader = true
		case f.varint(2):
			r.Code = CodeOfStatus(f.i32())
			hasStatus = true
		}
	}
	switch {
	case f.bad:
		return malformed("V3 response", "broken protobuf")
	case !hasHeader || !hasStatus:
		return malformed("V3 response", "required field missing")
	}
	r.Proto = V3
	r.Version = byte(min(h.version, math.MaxUint8))
	r.Op = opOfV3(h.op)
	r.RawOp = uint32(min(h.op, math.MaxUint32))
	r.TxnID = h.txn
	return r.decodeSub(p)
}

func (r *Response) decodeSub(p []byte) error {
	num := subField(r.Op)
	if num == 0 {
		return nil
	}
	found := false
	f := fields{rest: p}
	for f.next() {
		if !f.bytes(num) {
			continue
		}
		found = true
		sub := fields{rest: f.b}
		for sub.next() {
			r.field(&sub)
		}
		if sub.bad {
			return malformed("V3 "+r.Op.String()+" response", "broken protobuf")
		}
	}
	if !found && r.Code == OK {
		return malformed("V3 "+r.Op.String()+" response", "the operation's message is missing")
	}
	return nil
}

// field takes the current field of f into r. The outer status wins if it is not EOK, otherwise the inner one counts.
func (r *Response) field(f *fields) {
	switch r.Op {
	case OpStartTLS:
		return
	case OpAuth:
		switch {
		case f.bytes(1):
			r.AuthPlugin = string(f.b)
		case f.bytes(2):
			r.AuthPayload = f.b
		}
		return
	}
	if f.varint(1) {
		if r.Code == OK {
			r.Code = CodeOfStatus(f.i32())
		}
		return
	}
	if r.Op == OpBookieInfo {
		switch {
		case f.varint(2):
			r.TotalCapacity, r.HasTotalCapacity = f.i64(), true
		case f.varint(3):
			r.FreeSpace, r.HasFreeSpace = f.i64(), true
		}
		return
	}
	if f.varint(2) {
		r.Ledger = f.i64()
		return
	}
	switch r.Op {
	case OpAdd:
		if f.varint(3) {
			r.Entry = f.i64()
		}
	case OpRead:
		r.readField(f)
	case OpReadLAC:
		switch {
		case f.bytes(3):
			r.LACBody = f.b
		case f.bytes(4):
			r.LastEntryBody = f.b
		}
	case OpListEntries:
		if f.bytes(3) {
			r.Availability = f.b
		}
	}
}

func (r *Response) readField(f *fields) {
	switch {
	case f.varint(3):
		r.Entry = f.i64()
	case f.bytes(4):
		r.Body = f.b
	case f.varint(5):
		r.MaxLAC, r.HasMaxLAC = f.i64(), true
	case f.varint(6):
		r.LACUpdateTimestamp, r.HasLACUpdate = f.i64(), true
	}
}
