package wire

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of the operations' sub-messages in Request and Response, and of the request context.
const (
	fieldRead       protowire.Number = 100
	fieldAdd        protowire.Number = 101
	fieldAuth       protowire.Number = 102
	fieldWriteLAC   protowire.Number = 103
	fieldReadLAC    protowire.Number = 104
	fieldBookieInfo protowire.Number = 105
	fieldStartTLS   protowire.Number = 106
	fieldForce      protowire.Number = 107
	fieldList       protowire.Number = 108
	fieldContext    protowire.Number = 200
)

// subField returns the field of op's sub-message, 0 if it has none.
func subField(op Op) protowire.Number {
	switch op {
	case OpRead:
		return fieldRead
	case OpAdd:
		return fieldAdd
	case OpAuth:
		return fieldAuth
	case OpWriteLAC:
		return fieldWriteLAC
	case OpReadLAC:
		return fieldReadLAC
	case OpBookieInfo:
		return fieldBookieInfo
	case OpStartTLS:
		return fieldStartTLS
	case OpForce:
		return fieldForce
	case OpListEntries:
		return fieldList
	}
	return 0
}

// header is a BKPacketHeader.
type header struct {
	version, op, txn, priority uint64
}

func (h *header) decode(b []byte) error {
	const versionBit, opBit, txnBit = 1, 2, 4
	seen := 0
	f := fields{rest: b}
	for f.next() {
		switch {
		case f.varint(1):
			h.version = f.u
			seen |= versionBit
		case f.varint(2):
			h.op = f.u
			seen |= opBit
		case f.varint(3):
			h.txn = f.u
			seen |= txnBit
		case f.varint(4):
			h.priority = f.u
		}
	}
	if f.bad {
		return malformed("V3 header", "broken protobuf")
	}
	if seen != versionBit|opBit|txnBit {
		return malformed("V3 header", "required field missing")
	}
	return nil
}

func (h *header) append(dst []byte) []byte {
	size := sizeVarint(1, h.version) + sizeVarint(2, h.op) + sizeVarint(3, h.txn)
	if h.priority > 0 {
		size += sizeVarint(4, h.priority)
	}
	dst = appendMessageHead(dst, 1, size)
	dst = appendVarint(dst, 1, h.version)
	dst = appendVarint(dst, 2, h.op)
	dst = appendVarint(dst, 3, h.txn)
	if h.priority > 0 {
		dst = appendVarint(dst, 4, h.priority)
	}
	return dst
}

// decodeRequestV3 decodes a Request message. Fields come in any order, so the sub-messages are decoded once the header,
// and with it the operation, is known; sub-messages of other operations are skipped.
func decodeRequestV3(p []byte, r *Request) error {
	var h header
	hasHeader := false
	f := fields{rest: p}
	for f.next() {
		switch {
		case f.bytes(1):
			if err := h.decode(f.b); err != nil {
				return err
			}
			hasHeader = true
		case f.bytes(fieldContext) && len(r.Context) < contextMax:
			r.Context = append(r.Context, decodePair(f.b))
		}
	}
	if f.bad {
		return malformed("V3 request", "broken protobuf")
	}
	if !hasHeader {
		return malformed("V3 request", "no header")
	}
	r.Proto = V3
	r.Version = byte(min(h.version, math.MaxUint8))
	r.Op = opOfV3(h.op)
	r.RawOp = uint32(min(h.op, math.MaxUint32))
	r.TxnID = h.txn
	r.Priority = uint32(h.priority) //nolint:gosec // protobuf cuts to the low 32 bits
	if r.Priority > 0 {
		r.Flags |= HighPriority
	}
	return r.decodeSub(p)
}

// decodeSub decodes the sub-message of r.Op out of the whole packet p.
func (r *Request) decodeSub(p []byte) error {
	num := subField(r.Op)
	if num == 0 {
		return nil
	}
	missing := requiredFields(r.Op)
	found := false
	f := fields{rest: p}
	for f.next() {
		if !f.bytes(num) {
			continue
		}
		found = true
		sub := fields{rest: f.b}
		for sub.next() {
			missing &^= r.field(&sub)
		}
		if sub.bad {
			return malformed("V3 "+r.Op.String()+" request", "broken protobuf")
		}
	}
	switch {
	case !found:
		r.Invalid = "the operation's message is missing"
	case missing != 0:
		r.Invalid = "a required field is missing"
	}
	return nil
}

// requiredFields returns the required fields of op's request message as a set of bits 1<<number.
func requiredFields(op Op) uint16 {
	switch op {
	case OpRead:
		return 1<<1 | 1<<2
	case OpAdd, OpWriteLAC:
		return 1<<1 | 1<<2 | 1<<3 | 1<<4
	case OpReadLAC, OpForce, OpListEntries:
		return 1 << 1
	case OpAuth:
		return 1<<1 | 1<<2
	}
	return 0
}

// field takes the current field of f into r and returns its bit in the set of requiredFields.
func (r *Request) field(f *fields) uint16 {
	switch r.Op {
	case OpRead:
		return r.readField(f)
	case OpAdd:
		return r.addField(f)
	case OpWriteLAC:
		return r.writeLACField(f)
	case OpReadLAC, OpForce, OpListEntries:
		if f.varint(1) {
			r.Ledger = f.i64()
			return 1 << 1
		}
	case OpBookieInfo:
		if f.varint(1) {
			r.Requested = f.i64()
		}
	case OpAuth:
		switch {
		case f.bytes(1):
			r.AuthPlugin = string(f.b)
			return 1 << 1
		case f.bytes(2):
			r.AuthPayload = f.b
			return 1 << 2
		}
	}
	return 0
}

func (r *Request) readField(f *fields) uint16 {
	switch {
	case f.varint(1):
		r.Ledger = f.i64()
		return 1 << 1
	case f.varint(2):
		r.Entry = f.i64()
		return 1 << 2
	case f.bytes(3):
		r.Key, r.HasKey = f.b, true
	case f.varint(4):
		r.PreviousLAC, r.HasPreviousLAC = f.i64(), true
	case f.varint(5):
		r.TimeoutMillis, r.HasTimeout = f.i64(), true
	case f.varint(100):
		r.Flags &^= Fence
		r.Piggyback = false
		switch f.u {
		case 1:
			r.Flags |= Fence
		case 2:
			r.Piggyback = true
		}
	}
	return 0
}

func (r *Request) addField(f *fields) uint16 {
	switch {
	case f.varint(1):
		r.Ledger = f.i64()
		return 1 << 1
	case f.varint(2):
		r.Entry = f.i64()
		return 1 << 2
	case f.bytes(3):
		r.Key, r.HasKey = f.b, true
		return 1 << 3
	case f.bytes(4):
		r.Body = f.b
		return 1 << 4
	case f.varint(5):
		r.WriteFlags = f.i32()
	case f.varint(100):
		r.Flags &^= RecoveryAdd
		if f.u == 1 {
			r.Flags |= RecoveryAdd
		}
	}
	return 0
}

func (r *Request) writeLACField(f *fields) uint16 {
	switch {
	case f.varint(1):
		r.Ledger = f.i64()
		return 1 << 1
	case f.varint(2):
		r.LAC = f.i64()
		return 1 << 2
	case f.bytes(3):
		r.Key, r.HasKey = f.b, true
		return 1 << 3
	case f.bytes(4):
		r.Body = f.b
		return 1 << 4
	}
	return 0
}

// decodePair decodes a ContextPair; what is missing or broken in it is empty, since it only informs.
func decodePair(b []byte) ContextPair {
	var c ContextPair
	f := fields{rest: b}
	for f.next() {
		switch {
		case f.bytes(1):
			c.Key = f.b
		case f.bytes(2):
			c.Value = f.b
		}
	}
	return c
}

// appendRequestV3 writes the fields in the order of the protocol's declaration, as the current Java client does.
func appendRequestV3(dst []byte, r *Request) []byte {
	h := header{version: uint64(V3), op: uint64(ops[min(r.Op, opCount-1)].v3), txn: r.TxnID, priority: uint64(r.Priority)}
	if h.op == 0 {
		h.op = uint64(r.RawOp)
	}
	if h.priority == 0 && r.Flags&HighPriority != 0 {
		h.priority = priorityHigh
	}
	dst = h.append(dst)
	if num := subField(r.Op); num != 0 {
		dst = appendMessageHead(dst, num, r.sizeSub())
		dst = r.appendSub(dst)
	}
	for _, c := range r.Context {
		dst = appendMessageHead(dst, fieldContext, sizeBytes(1, c.Key)+sizeBytes(2, c.Value))
		dst = appendBytes(dst, 1, c.Key)
		dst = appendBytes(dst, 2, c.Value)
	}
	return dst
}

// readFlag returns the value of ReadRequest.flag, 0 = absent.
func (r *Request) readFlag() uint64 {
	switch {
	case r.Flags&Fence != 0:
		return 1
	case r.Piggyback:
		return 2
	}
	return 0
}

func (r *Request) sizeSub() int {
	switch r.Op {
	case OpRead:
		n := sizeI64(1, r.Ledger) + sizeI64(2, r.Entry)
		if flag := r.readFlag(); flag != 0 {
			n += sizeVarint(100, flag)
		}
		if r.HasKey {
			n += sizeBytes(3, r.Key)
		}
		if r.HasPreviousLAC {
			n += sizeI64(4, r.PreviousLAC)
		}
		if r.HasTimeout {
			n += sizeI64(5, r.TimeoutMillis)
		}
		return n
	case OpAdd:
		n := sizeI64(1, r.Ledger) + sizeI64(2, r.Entry) + sizeBytes(3, r.Key) + sizeBytes(4, r.Body)
		if r.Flags&RecoveryAdd != 0 {
			n += sizeVarint(100, 1)
		}
		if r.WriteFlags != 0 {
			n += sizeI64(5, int64(r.WriteFlags))
		}
		return n
	case OpWriteLAC:
		return sizeI64(1, r.Ledger) + sizeI64(2, r.LAC) + sizeBytes(3, r.Key) + sizeBytes(4, r.Body)
	case OpReadLAC, OpForce, OpListEntries:
		return sizeI64(1, r.Ledger)
	case OpBookieInfo:
		return sizeI64(1, r.Requested)
	case OpAuth:
		return sizeAuth(r.AuthPlugin, r.AuthPayload)
	}
	return 0
}

func (r *Request) appendSub(dst []byte) []byte {
	switch r.Op {
	case OpRead:
		if flag := r.readFlag(); flag != 0 {
			dst = appendVarint(dst, 100, flag)
		}
		dst = appendI64(dst, 1, r.Ledger)
		dst = appendI64(dst, 2, r.Entry)
		if r.HasKey {
			dst = appendBytes(dst, 3, r.Key)
		}
		if r.HasPreviousLAC {
			dst = appendI64(dst, 4, r.PreviousLAC)
		}
		if r.HasTimeout {
			dst = appendI64(dst, 5, r.TimeoutMillis)
		}
	case OpAdd:
		if r.Flags&RecoveryAdd != 0 {
			dst = appendVarint(dst, 100, 1)
		}
		dst = appendI64(dst, 1, r.Ledger)
		dst = appendI64(dst, 2, r.Entry)
		dst = appendBytes(dst, 3, r.Key)
		dst = appendBytes(dst, 4, r.Body)
		if r.WriteFlags != 0 {
			dst = appendI64(dst, 5, int64(r.WriteFlags))
		}
	case OpWriteLAC:
		dst = appendI64(dst, 1, r.Ledger)
		dst = appendI64(dst, 2, r.LAC)
		dst = appendBytes(dst, 3, r.Key)
		dst = appendBytes(dst, 4, r.Body)
	case OpReadLAC, OpForce, OpListEntries:
		dst = appendI64(dst, 1, r.Ledger)
	case OpBookieInfo:
		dst = appendI64(dst, 1, r.Requested)
	case OpAuth:
		dst = appendAuth(dst, r.AuthPlugin, r.AuthPayload)
	}
	return dst
}
