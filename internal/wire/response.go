package wire

import (
	"encoding/binary"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Response is one answer of either form. Slices alias the packet it was decoded from; nil means absent.
type Response struct {
	Proto   Proto
	Version byte // V2: of the request
	Op      Op
	RawOp   uint32 // for OpUnsupported
	Code    Code
	TxnID   uint64 // V3

	Ledger, Entry int64  // as the request had them; Entry is the real id only for a piggy-back hit
	Body          []byte // read: the entry

	MaxLAC             int64 // V3 read
	HasMaxLAC          bool
	LACUpdateTimestamp int64 // V3 read, ms since 1970
	HasLACUpdate       bool

	LACBody       []byte // read LAC
	LastEntryBody []byte

	TotalCapacity, FreeSpace       int64 // bookie info, bytes
	HasTotalCapacity, HasFreeSpace bool

	Availability []byte // list entries: see DecodeAvailability

	RequestID int64    // batch read
	Entries   [][]byte // batch read: bodies of consecutive entries from Entry on

	AuthPlugin  string
	AuthPayload []byte
}

// AppendResponse appends r as a frame, length included. It never fails: an operation that r.Proto does not have is
// answered in V3's form for unsupported operations, and a code that V2 does not know as IO.
func AppendResponse(dst []byte, r *Response) []byte {
	start := len(dst)
	dst = openFrame(dst)
	if r.Proto == V3 {
		dst = appendResponseV3(dst, r)
	} else {
		dst = appendResponseV2(dst, r)
	}
	return closeFrame(dst, start)
}

// CloseFrame makes all of dst from start on one frame again, after content was appended to the frame at start.
// A read answer is built that way without a copy: AppendResponse with code OK and no Body, then the body, then CloseFrame.
func CloseFrame(dst []byte, start int) []byte { return closeFrame(dst, start) }

// PutFrameSize says at the start of a frame that it has size bytes in all, wherever they lie.
func PutFrameSize(start []byte, size int) {
	binary.BigEndian.PutUint32(start, uint32(size-LengthSize)) //nolint:gosec // a frame is far below 4 GiB
}

// AppendBatchEntry appends one entry to a batch read answer that AppendResponse began; CloseFrame or PutFrameSize must follow.
func AppendBatchEntry(dst, body []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(body))) //nolint:gosec // a body is below the frame limit
	return append(dst, body...)
}

// DecodeResponse decodes packet, which came on a connection of form p, into r, overwriting all of it. It fails with
// *FormatError where the connection should be closed.
func DecodeResponse(p Proto, packet []byte, r *Response) error {
	entries := r.Entries[:0]
	*r = Response{Entries: entries}
	if p == V3 {
		return decodeResponseV3(packet, r)
	}
	return decodeResponseV2(packet, r)
}

// appendResponseV2 writes
//
//	add, read    header(4) rc(4) ledger(8) entry(8) [body, if rc = 0]
//	batch read   header(4) rc(4) ledger(8) first(8) requestId(8) { size(4) body }*
//	auth         header(4) AuthMessage
func appendResponseV2(dst []byte, r *Response) []byte {
	op := ops[min(r.Op, opCount-1)].v2
	if op == 0 {
		op = uint8(min(r.RawOp, math.MaxUint8))
	}
	h := headerV2{version: r.Version, op: uint32(op)}
	if r.Op == OpAuth {
		if r.AuthPlugin == AuthDisabledPlugin {
			h.version = byte(V2) // whatever the request had
		}
		return appendAuth(h.append(dst), r.AuthPlugin, r.AuthPayload)
	}
	dst = h.append(dst)
	dst = binary.BigEndian.AppendUint32(dst, uint32(r.Code.V2())) //nolint:gosec // codes are small
	dst = appendInt64(dst, r.Ledger)
	dst = appendInt64(dst, r.Entry)
	switch r.Op {
	case OpRead:
		if r.Code == OK {
			dst = append(dst, r.Body...)
		}
	case OpBatchRead:
		dst = appendInt64(dst, r.RequestID)
		if r.Code == OK {
			for _, e := range r.Entries {
				dst = AppendBatchEntry(dst, e)
			}
		}
	}
	return dst
}

func decodeResponseV2(p []byte, r *Response) error {
	if len(p) < 4 {
		return malformed("V2 response", "shorter than its header")
	}
	h := parseHeaderV2(binary.BigEndian.Uint32(p))
	r.Proto, r.Version, r.RawOp = V2, h.version, h.op
	r.Op = opOfV2(h.op)
	switch r.Op {
	case OpUnsupported:
		return malformed("V2 response", fmt.Sprintf("unknown opcode %d", h.op))
	case OpAuth:
		a, err := decodeAuth(p[4:])
		if err != nil {
			return err
		}
		r.AuthPlugin, r.AuthPayload = string(a.plugin), a.payload
		return nil
	}
	if len(p) < 24 {
		return malformed("V2 response", "shorter than code and ids")
	}
	r.Code = Code(binary.BigEndian.Uint32(p[4:]))    //nolint:gosec // two's complement on the wire
	r.Ledger = int64(binary.BigEndian.Uint64(p[8:])) //nolint:gosec // as above
	r.Entry = int64(binary.BigEndian.Uint64(p[16:])) //nolint:gosec // as above
	switch r.Op {
	case OpRead:
		if r.Code == OK {
			r.Body = p[24:]
		}
	case OpBatchRead:
		return decodeBatch(p, r)
	}
	return nil
}

func decodeBatch(p []byte, r *Response) error {
	if len(p) < 32 {
		return malformed("V2 batch read response", "shorter than its request id")
	}
	r.RequestID = int64(binary.BigEndian.Uint64(p[24:])) //nolint:gosec // two's complement on the wire
	if r.Code != OK {
		return nil
	}
	rest := p[32:]
	for len(rest) > 0 {
		if len(rest) < 4 {
			return malformed("V2 batch read response", "cut inside an entry's size")
		}
		n := binary.BigEndian.Uint32(rest)
		rest = rest[4:]
		if n == 0 || uint64(n) > uint64(len(rest)) {
			return malformed("V2 batch read response", fmt.Sprintf("entry of %d bytes with %d left", n, len(rest)))
		}
		r.Entries = append(r.Entries, rest[:n:n])
		rest = rest[n:]
	}
	return nil
}

// appendResponseV3 writes header, status and the operation's sub-message with all its required fields.
func appendResponseV3(dst []byte, r *Response) []byte {
	h := header{version: uint64(V3), op: uint64(ops[min(r.Op, opCount-1)].v3), txn: r.TxnID}
	num := subField(r.Op)
	if h.op == 0 {
		h.op = uint64(r.RawOp)
	}
	dst = h.append(dst)
	status := uint64(r.Code.Status()) //nolint:gosec // statuses are not negative
	dst = appendVarint(dst, 2, status)
	if num == 0 || r.withoutSub() {
		return dst
	}
	dst = appendMessageHead(dst, num, r.sizeSub(status))
	return r.appendSub(dst, status)
}

// withoutSub reports the two answers that have no sub-message: a refused START_TLS and a refused AUTH.
func (r *Response) withoutSub() bool {
	return r.Code != OK && (r.Op == OpStartTLS || r.Op == OpAuth)
}

func (r *Response) sizeSub(status uint64) int {
	n := sizeVarint(1, status)
	switch r.Op {
	case OpRead:
		n += sizeI64(2, r.Ledger) + sizeI64(3, r.Entry) + sizeOptional(4, r.Body)
		if r.HasMaxLAC {
			n += sizeI64(5, r.MaxLAC)
		}
		if r.HasLACUpdate {
			n += sizeI64(6, r.LACUpdateTimestamp)
		}
	case OpAdd:
		n += sizeI64(2, r.Ledger) + sizeI64(3, r.Entry)
	case OpWriteLAC, OpForce:
		n += sizeI64(2, r.Ledger)
	case OpReadLAC:
		n += sizeI64(2, r.Ledger) + sizeOptional(3, r.LACBody) + sizeOptional(4, r.LastEntryBody)
	case OpBookieInfo:
		if r.HasTotalCapacity {
			n += sizeI64(2, r.TotalCapacity)
		}
		if r.HasFreeSpace {
			n += sizeI64(3, r.FreeSpace)
		}
	case OpListEntries:
		n += sizeI64(2, r.Ledger) + sizeOptional(3, r.Availability)
	case OpStartTLS:
		return 0
	case OpAuth:
		return sizeAuth(r.AuthPlugin, r.AuthPayload)
	}
	return n
}

func (r *Response) appendSub(dst []byte, status uint64) []byte {
	switch r.Op {
	case OpStartTLS:
		return dst
	case OpAuth:
		return appendAuth(dst, r.AuthPlugin, r.AuthPayload)
	}
	dst = appendVarint(dst, 1, status)
	switch r.Op {
	case OpRead:
		dst = appendI64(dst, 2, r.Ledger)
		dst = appendI64(dst, 3, r.Entry)
		dst = appendOptional(dst, 4, r.Body)
		if r.HasMaxLAC {
			dst = appendI64(dst, 5, r.MaxLAC)
		}
		if r.HasLACUpdate {
			dst = appendI64(dst, 6, r.LACUpdateTimestamp)
		}
	case OpAdd:
		dst = appendI64(dst, 2, r.Ledger)
		dst = appendI64(dst, 3, r.Entry)
	case OpWriteLAC, OpForce:
		dst = appendI64(dst, 2, r.Ledger)
	case OpReadLAC:
		dst = appendI64(dst, 2, r.Ledger)
		dst = appendOptional(dst, 3, r.LACBody)
		dst = appendOptional(dst, 4, r.LastEntryBody)
	case OpBookieInfo:
		if r.HasTotalCapacity {
			dst = appendI64(dst, 2, r.TotalCapacity)
		}
		if r.HasFreeSpace {
			dst = appendI64(dst, 3, r.FreeSpace)
		}
	case OpListEntries:
		dst = appendI64(dst, 2, r.Ledger)
		dst = appendOptional(dst, 3, r.Availability)
	}
	return dst
}

func sizeOptional(num protowire.Number, b []byte) int {
	if b == nil {
		return 0
	}
	return sizeBytes(num, b)
}

func appendOptional(dst []byte, num protowire.Number, b []byte) []byte {
	if b == nil {
		return dst
	}
	return appendBytes(dst, num, b)
}

// AppendAddAnswerV2 appends the answer to a V2 add with a version above 0, as AppendResponse would, but faster: it is
// what a bookie sends most.
func AppendAddAnswerV2(dst []byte, version byte, c Code, ledger, entry int64) []byte {
	dst = append(dst, 0, 0, 0, 24, version, ops[OpAdd].v2, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(c.V2())) //nolint:gosec // codes are small
	dst = appendInt64(dst, ledger)
	return appendInt64(dst, entry)
}
