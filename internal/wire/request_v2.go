package wire

import (
	"encoding/binary"
	"fmt"
)

// headerV2 is the first word of a V2 packet.
type headerV2 struct {
	version byte
	op      uint32
	flags   Flags
}

func parseHeaderV2(w uint32) headerV2 {
	if w>>24 == 0 {
		return headerV2{op: w}
	}
	return headerV2{version: byte(w >> 24), op: w >> 16 & 0xff, flags: Flags(w) & flagsKnown} //nolint:gosec // unknown bits are ignored
}

func (h headerV2) append(dst []byte) []byte {
	if h.version == 0 {
		return binary.BigEndian.AppendUint32(dst, h.op)
	}
	return append(dst, h.version, byte(h.op), 0, byte(h.flags)) //nolint:gosec // op is an opcode
}

// hasKeyV2 reports whether a V2 read with this header carries a master key. Versions are signed bytes.
func (h headerV2) hasKey() bool { return h.flags&Fence != 0 && int8(h.version) >= 2 } //nolint:gosec // as on the wire

// decodeRequestV2 decodes
//
//	add          header(4) key(20) body
//	read         header(4) ledger(8) entry(8) [key(20)]
//	batch read   header(4) ledger(8) first(8) requestId(8) maxCount(4) maxSize(8) [key(20)]
//	auth         header(4) AuthMessage
//
// Bytes behind the known fields are ignored, but for an add, where all that is left is the body.
func decodeRequestV2(p []byte, r *Request) error {
	if len(p) < 4 {
		return malformed("V2 request", "shorter than its header")
	}
	h := parseHeaderV2(binary.BigEndian.Uint32(p))
	r.Proto, r.Version, r.Flags, r.RawOp = V2, h.version, h.flags, h.op
	r.Op = opOfV2(h.op)
	switch r.Op {
	case OpAdd:
		if len(p) < 4+MasterKeySize+16 {
			return malformed("V2 add", "shorter than key and ids")
		}
		r.Key, r.HasKey = p[4:4+MasterKeySize:4+MasterKeySize], true
		r.Body = p[4+MasterKeySize:]
		r.Ledger = int64(binary.BigEndian.Uint64(r.Body))    //nolint:gosec // two's complement on the wire
		r.Entry = int64(binary.BigEndian.Uint64(r.Body[8:])) //nolint:gosec // as above
		return nil
	case OpRead:
		if len(p) < 20 {
			return malformed("V2 read", "shorter than its ids")
		}
		r.Ledger = int64(binary.BigEndian.Uint64(p[4:])) //nolint:gosec // as above
		r.Entry = int64(binary.BigEndian.Uint64(p[12:])) //nolint:gosec // as above
		return r.readKeyV2(h, p[20:])
	case OpBatchRead:
		if len(p) < 40 {
			return malformed("V2 batch read", "shorter than its fields")
		}
		r.Ledger = int64(binary.BigEndian.Uint64(p[4:]))     //nolint:gosec // as above
		r.Entry = int64(binary.BigEndian.Uint64(p[12:]))     //nolint:gosec // as above
		r.RequestID = int64(binary.BigEndian.Uint64(p[20:])) //nolint:gosec // as above
		r.MaxCount = int32(binary.BigEndian.Uint32(p[28:]))  //nolint:gosec // as above
		r.MaxSize = int64(binary.BigEndian.Uint64(p[32:]))   //nolint:gosec // as above
		return r.readKeyV2(h, p[40:])
	case OpAuth:
		a, err := decodeAuth(p[4:])
		if err != nil {
			return err
		}
		r.AuthPlugin, r.AuthPayload = string(a.plugin), a.payload
		return nil
	default:
		return malformed("V2 request", fmt.Sprintf("unknown opcode %d", h.op))
	}
}

func (r *Request) readKeyV2(h headerV2, rest []byte) error {
	if !h.hasKey() {
		return nil
	}
	if len(rest) < MasterKeySize {
		return malformed("V2 fencing read", "shorter than its master key")
	}
	r.Key, r.HasKey = rest[:MasterKeySize:MasterKeySize], true
	return nil
}

func appendRequestV2(dst []byte, r *Request) ([]byte, error) {
	op := ops[min(r.Op, opCount-1)].v2
	if op == 0 {
		return dst, fmt.Errorf("wire: %s has no V2 form; send it on a V3 connection", r.Op)
	}
	h := headerV2{version: r.Version, op: uint32(op), flags: r.Flags & flagsKnown}
	dst = h.append(dst)
	switch r.Op {
	case OpAdd:
		if len(r.Key) != MasterKeySize {
			return dst, fmt.Errorf("wire: V2 add needs a master key of %d bytes, not %d", MasterKeySize, len(r.Key))
		}
		dst = append(dst, r.Key...)
		return append(dst, r.Body...), nil
	case OpRead:
		dst = appendInt64(dst, r.Ledger)
		dst = appendInt64(dst, r.Entry)
	case OpBatchRead:
		dst = appendInt64(dst, r.Ledger)
		dst = appendInt64(dst, r.Entry)
		dst = appendInt64(dst, r.RequestID)
		dst = binary.BigEndian.AppendUint32(dst, uint32(r.MaxCount)) //nolint:gosec // two's complement on the wire
		dst = appendInt64(dst, r.MaxSize)
	case OpAuth:
		return appendAuth(dst, r.AuthPlugin, r.AuthPayload), nil
	}
	if h.hasKey() {
		if len(r.Key) != MasterKeySize {
			return dst, fmt.Errorf("wire: V2 fencing read needs a master key of %d bytes, not %d", MasterKeySize, len(r.Key))
		}
		dst = append(dst, r.Key...)
	}
	return dst, nil
}

func appendInt64(dst []byte, v int64) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(v)) //nolint:gosec // two's complement on the wire
}
